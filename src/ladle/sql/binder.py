"""Binding of queries: FROM against the catalog, names against scopes, windows to the mentions of streams.

Every mention of a stream becomes a scan, named `_s0`, `_s1`, ... in the bound text. Its window is its own bracket, else
BEGIN-END of the nearest query around it. A table is `_t0`, `_t1`, ..., however often it is mentioned. A standing query
in FROM is inlined from its text, with its own windows. A CTE is bound once, where it is written, so its scans are one
however often it is mentioned.

Output names: declared case for columns, written case for aliases, Spark's text for the rest. A name that comes twice
gets a suffix (`a`, `a_1`): Arrow and Spark would allow the duplicate, DuckDB and most readers of Arrow would not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from ladle.errors import Position, SqlError, Unsupported
from ladle.plan import AsOf, Function
from ladle.schema import unique_names
from ladle.sql.bounds import window_of_bounds
from ladle.sql.dialect import Bounds
from ladle.sql.from_clause import bind_from, bind_generated
from ladle.sql.group_checks import check_distinct, check_grouping
from ladle.sql.names import Names
from ladle.sql.naming import output_name
from ladle.sql.position import SourceText
from ladle.sql.qualify import sorted_by, without_places, without_qualify
from ladle.sql.recursion import bind_recursion, is_wrapped, recursion_of
from ladle.sql.resolve import Aliases, bind_expression, has_aggregate, star_columns
from ladle.sql.row_makers import generator_of, is_grouped, only_generator, over_groups
from ladle.sql.scopes import NAME, Around, Cte, Field, Relation, ScanDraft, Scope, TableDraft, Within
from ladle.sql.shared_joins import conditions_to_where
from ladle.sql.sharing import Below, Read
from ladle.sql.split import push_where
from ladle.sql.trees import aliased
from ladle.sql.window_groups import Windows, check_time_windows, grouped_windows, name_windows
from ladle.sql.within import no_time, refuse_rows_of_many

_ROWS_MAX = (1 << 31) - 1


@dataclass
class Binder:
    """Binds the trees of one text; inlined standing queries have binders of their own that share the scans."""

    names: Names
    source: SourceText
    scans: list[ScanDraft] = field(default_factory=list)
    tables: list[TableDraft] = field(default_factory=list)
    queries: dict[str, None] = field(default_factory=dict)
    cte_names: set[str] = field(default_factory=set)
    functions: dict[str, Function] = field(default_factory=dict)
    """Users' functions that are called, by symbol."""
    below: Mapping[Read, Below] = field(default_factory=dict)
    """The standing queries that are read."""
    often: frozenset[Read] = frozenset()
    """Those of them that are bound once, before the statement."""
    shared: dict[tuple[Read, tuple[Within, ...]], Cte] = field(default_factory=dict)
    """What these are bound to, for each set of windows on their rows."""
    before: list[exp.CTE] = field(default_factory=list)
    """What is bound before the statement, each behind what it reads."""
    past: AsOf | None = None
    """The moment that this text is read as of."""
    nows: dict[str, AsOf] = field(default_factory=dict)
    """The entries as of which standing queries compute something of NOW, by the parameter of each."""
    mentions: int = 0
    """Streams mentioned in this text itself."""

    def inlined(self, below: Below) -> Binder:
        """A binder for the text of a standing query that this one reads."""
        names = self.names.inside(below.name)
        return replace(self, names=names, source=SourceText(below.text), mentions=0, past=below.past)

    def query(self, node: exp.Expression, around: Around) -> tuple[exp.Expression, tuple[Field, ...]]:
        """The bound tree and its output columns."""
        bounds = node.args.get("bounds")
        if isinstance(bounds, Bounds):
            around = replace(around, window=window_of_bounds(bounds, self.source))
            position = self.source.of(bounds)
            node.set("bounds", None)
        if isinstance(fetch := node.args.get("limit"), exp.Fetch):
            # FETCH NEXT ROW ONLY is one row
            count = fetch.args.get("count") or exp.Literal.number(1)
            node.set("limit", exp.Limit(expression=count))
        sorted_by(node, self.source)
        mentions = self.mentions
        around = self._ctes(node, around)
        result = self._query(node, around)
        if bounds is not None and self.mentions == mentions:
            raise SqlError(
                "BEGIN ... END ... bounds a stream, and this SELECT reads none.",
                hint="standing queries and common table expressions have the window they were written with; "
                "tables have none",
                position=position,
            )
        return result

    def _query(self, node: exp.Expression, around: Around) -> tuple[exp.Expression, tuple[Field, ...]]:
        match node:
            case _ if around.recursion is not None and not is_wrapped(node):
                return bind_recursion(self, node, around)
            case exp.Select() if node.args.get("qualify") is not None and not around.within:
                return self._select(without_qualify(node, self.source), around)
            case exp.Select():
                return self._select(node, around)
            case exp.SetOperation():
                return self._set_operation(node, around)
            case exp.Subquery() if any(node.args.get(key) for key in ("order", "limit", "offset")):
                return self.query(_as_select(node), around)
            case exp.Subquery():
                inner, fields = self.query(node.this, around)
                node.set("this", inner)
                node.set("with_", node.args.get("with_"))
                return node, fields
            case exp.Values():
                return self.query(_values_select(node), around)
        raise SqlError("A query was expected here.", position=self.source.of(node))

    def _ctes(self, node: exp.Expression, around: Around) -> Around:
        with_ = node.args.get("with_")
        if with_ is None:
            return around
        recursive = bool(with_.args.get("recursive"))
        with_.set("recursive", None)
        ctes = dict(around.ctes)
        seen: set[str] = set()
        if around.within:
            node.set("with_", None)
        for cte in with_.expressions:
            if cte.alias.lower() in seen:
                raise SqlError(
                    f"'{cte.alias}' is defined twice in this WITH.", position=self.source.of(cte.args["alias"])
                )
            seen.add(cte.alias.lower())
            alias = cte.args["alias"]
            recursion = recursion_of(cte, self._cte_name, self.source, recursive=recursive)
            if around.within:
                if recursion is not None:
                    raise no_time("it reads itself")
                seen_there = replace(around, parent=None, within=(), ctes=dict(ctes))
                ctes[cte.alias.lower()] = Cte(cte.alias, (), cte, seen_there)
                continue
            tree, fields = self.query(cte.this, replace(around, parent=None, ctes=ctes, recursion=recursion))
            cte.set("this", tree)
            if recursion is None:
                fields, name = self._renamed(tree, fields, alias), self._cte_name(alias.name)
                cte.set("level", None)
            else:
                name = recursion.name
                with_.set("recursive", True)
            ctes[alias.name.lower()] = Cte(name, fields)
            cte.set("alias", exp.TableAlias(this=exp.to_identifier(name, quoted=True)))
        return replace(around, ctes=ctes)

    def _cte_name(self, wanted: str) -> str:
        """Unique in the whole text: inlined queries and nested WITHs may use a name again."""
        name, number = wanted, 0
        while name.lower() in self.cte_names or name.lower().startswith(("_s", "_j", "_t")):
            number += 1
            name = f"{wanted.lstrip('_')}_{number}"
        self.cte_names.add(name.lower())
        return name

    def _renamed(self, tree: exp.Expression, fields: tuple[Field, ...], alias: exp.Expression) -> tuple[Field, ...]:
        """Columns as `t(a, b)` names them: the projections of the query take the names."""
        columns = alias.args.get("columns")
        if not columns:
            return fields
        if len(columns) != len(fields):
            raise SqlError(
                f"'{alias.name}' names {len(columns)} columns, but its query has {len(fields)}.",
                position=self.source.of(alias),
            )
        names = [column.name for column in columns]
        renamed = tuple(Field(name, unique) for name, unique in zip(names, unique_names(names), strict=True))
        leftmost = tree
        while not isinstance(leftmost, exp.Select):
            leftmost = leftmost.this
        for projection, item in zip(leftmost.expressions, renamed, strict=True):
            projection.set("alias", exp.to_identifier(item.column, quoted=True))
        return renamed

    # SELECT

    def _select(self, node: exp.Select, around: Around) -> tuple[exp.Expression, tuple[Field, ...]]:
        distinct = node.args.get("distinct")
        if distinct is not None and distinct.args.get("on") is not None:
            raise Unsupported("DISTINCT ON is not part of Spark's SQL.", position=self.source.of(distinct))
        if not node.expressions:
            raise SqlError("SELECT needs at least one expression.", position=self.source.of(node))
        if around.within:
            refuse_rows_of_many(node)
        generator = only_generator(node, self.source)
        if generator is not None and is_grouped(node):
            return self._select(over_groups(node, generator, self.source), around)
        scope = Scope(self.source, around.parent)
        within = bind_from(self, node, scope, around)
        windows = {name: self._expression(call, scope, around) for name, call in grouped_windows(node).items()}
        projections = self._projections(node, scope, around, windows)
        if not projections:
            raise SqlError(
                "EXCEPT leaves out every column, and a SELECT needs at least one.", position=self.source.of(node)
            )
        where = node.args.get("where")
        if where is not None:
            self._expression(where.this, scope, around)
        if within:
            node.set("where", exp.Where(this=exp.and_(*([] if where is None else [where.this]), *within)))
        conditions_to_where(node)
        if node.args.get("where") is not None:
            push_where(node, scope, self.scans)
        self._group(node, scope, around, projections, windows)
        trees = [tree for _, tree in projections]
        check_grouping(node, scope, trees)
        check_distinct(trees, scope)
        check_time_windows(node, scope, trees)
        if node.args.get("having") is not None:
            name_windows(node.args["having"], windows, scope)
        for window in node.args.get("windows") or ():
            self._expression(window, scope, around)
        for key in ("limit", "offset"):
            if node.args.get(key) is not None:
                self._limited(node.args[key], around)
        fields = _fields([name for name, _ in projections])
        seen = self._outputs(fields) if node.args.get("distinct") is not None else scope
        aliases = Aliases({name.lower(): tree for name, tree in reversed(projections)}, first=seen is scope)
        without_places(node, lambda each: self._expression(each, seen, around, aliases), self.source)
        node.set(
            "expressions",
            [aliased(tree, item.column) for (_, tree), item in zip(projections, fields, strict=True)],
        )
        return self._order_select(node, scope, around, projections, fields, windows), fields

    def _expression(
        self, node: exp.Expression, scope: Scope, around: Around, aliases: Aliases | None = None
    ) -> exp.Expression:
        def bind_query(query: exp.Expression, outer: Scope) -> exp.Expression:
            return self.query(query, around.inside(outer))[0]

        return bind_expression(node, scope, bind_query, aliases)

    def _limited(self, clause: exp.Expression, around: Around) -> None:
        """LIMIT or OFFSET: numbers of rows are INT, as in Spark."""
        self._expression(clause, Scope(self.source), around)
        amount = clause.args.get("expression")
        if isinstance(amount, exp.Literal) and str(amount.this).isdecimal() and int(amount.this) > _ROWS_MAX:
            raise SqlError(
                f"{amount.this} is too large for {clause.key.upper()}: at most {_ROWS_MAX}.",
                position=self.source.of(amount),
            )

    def _projections(
        self, node: exp.Select, scope: Scope, around: Around, windows: Windows
    ) -> list[tuple[str, exp.Expression]]:
        """(output name, bound expression) of the SELECT list; an alias may be used by those after it, as in Spark."""
        bound: list[tuple[str, exp.Expression]] = []
        aliases: dict[str, exp.Expression] = {}
        for item in list(node.expressions):
            if isinstance(item, exp.Star) or (isinstance(item, exp.Column) and isinstance(item.this, exp.Star)):
                bound.extend(star_columns(item, scope))
                continue
            if (generator := generator_of(item)) is not None:
                call, given = generator[0], [each.name for each in generator[1]]
                made = bind_generated(self, node, call, given, scope, around)
                bound.extend(made)
                aliases = {**{name.lower(): tree for name, tree in made if given}, **aliases}
                continue
            if isinstance(item, exp.Aliases):
                raise SqlError(
                    "A list of names is for a function that makes rows of several columns.",
                    hint="write AS and one name",
                    position=self.source.of(item),
                )
            expression = item.this if isinstance(item, exp.Alias) else item
            name = item.alias if isinstance(item, exp.Alias) else output_name(item)
            tree = self._expression(expression.pop(), scope, around, Aliases(aliases, windows=windows))
            if not isinstance(item, exp.Alias) and NAME in tree.meta:
                name = tree.meta[NAME]
            bound.append((name, tree))
            if isinstance(item, exp.Alias):
                aliases.setdefault(name.lower(), tree)
        return bound

    def _group(
        self,
        node: exp.Select,
        scope: Scope,
        around: Around,
        projections: Sequence[tuple[str, exp.Expression]],
        windows: Windows,
    ) -> None:
        named = {name.lower(): tree for name, tree in reversed(projections)}
        group = node.args.get("group")
        if group is not None:
            if group.args.get("all"):
                keys = [tree.copy() for _, tree in projections if not has_aggregate(tree)]
                group.set("all", None)
                group.set("expressions", keys)
                if not keys:
                    node.set("group", None)
            else:
                for item in list(group.expressions):
                    if _is_ordinal(item):
                        item.replace(self._at(item, projections).copy())
                    else:
                        self._expression(item, scope, around, Aliases(named))
                for key in ("grouping_sets", "cube", "rollup"):
                    for item in group.args.get(key) or ():
                        self._expression(item, scope, around, Aliases(named))
        having = node.args.get("having")
        if having is not None:
            grouped = frozenset(group.expressions) if group is not None else frozenset()
            self._expression(having.this, scope, around, Aliases(named, grouped=grouped, windows=windows))

    def _at(self, item: exp.Expression, projections: Sequence[tuple[str, exp.Expression]]) -> exp.Expression:
        index = int(item.name)
        if not 1 <= index <= len(projections):
            raise SqlError(
                f"There is no column {index}; the SELECT list has {len(projections)}.",
                position=self.source.of(item),
            )
        return projections[index - 1][1]

    # ORDER BY

    def _order_select(
        self,
        node: exp.Select,
        scope: Scope,
        around: Around,
        projections: Sequence[tuple[str, exp.Expression]],
        fields: tuple[Field, ...],
        windows: Windows,
    ) -> exp.Expression:
        """ORDER BY names outputs first, then columns of FROM. An output becomes its number, which nothing can hide."""
        order = node.args.get("order")
        if order is None:
            return node
        named = {name.lower(): tree for name, tree in reversed(projections)}
        rest = self._ordinals(order, projections)
        if rest and node.args.get("distinct") is not None:
            return self._ordered_outside(node, fields, around)
        for item in rest:
            position = self.source.of(item)
            tree = self._expression(item.this, scope, around, Aliases(named, first=True, windows=windows))
            for number, (_, projection) in enumerate(projections, start=1):
                if tree == projection:
                    item.set("this", exp.Literal.number(number))
                    break
            if node.args.get("group") is not None:
                name_windows(item, windows, scope)
            if item.this.find(exp.Window) is not None:
                raise SqlError(
                    "ORDER BY can't compute a window function itself.",
                    hint="put it into the SELECT list, give it a name with AS, and order by that",
                    position=position,
                )
        return node

    def _ordinals(
        self, order: exp.Expression, projections: Sequence[tuple[str, exp.Expression]]
    ) -> list[exp.Expression]:
        """Replaces what is an output by its number; the items that are something else."""
        rest: list[exp.Expression] = []
        names = [name.lower() for name, _ in projections]
        for item in list(order.expressions):
            target = item.this
            if isinstance(target, exp.Var) and target.name.upper() == "ALL" and len(order.expressions) == 1:
                items = []
                for number in range(1, len(names) + 1):
                    each = item.copy()
                    each.set("this", exp.Literal.number(number))
                    items.append(each)
                order.set("expressions", items)
            elif _is_ordinal(target):
                self._at(target, projections)
            elif isinstance(target, exp.Column) and not target.table and target.name.lower() in names:
                item.set("this", exp.Literal.number(names.index(target.name.lower()) + 1))
            else:
                rest.append(item)
        return rest

    def _ordered_outside(self, node: exp.Expression, fields: tuple[Field, ...], around: Around) -> exp.Expression:
        """`SELECT ... FROM (query) ORDER BY expression over its outputs`: for DISTINCT and set operations."""
        outer = exp.Select()
        for key in ("order", "limit", "offset", "with_"):
            if (value := node.args.get(key)) is not None:
                node.set(key, None)
                outer.set(key, value)
        scope = self._outputs(fields)
        relation = scope.relations[0]
        outer.set("from_", exp.From(this=_derived(node, "_o")))
        outer.set("expressions", [aliased(relation.column(item), item.column) for item in fields])
        for item in outer.args["order"].expressions:
            if not _is_ordinal(item.this):
                self._expression(item.this, scope, around)
        return outer

    def _outputs(self, fields: tuple[Field, ...]) -> Scope:
        """What may name the columns of a query, and nothing else."""
        return Scope(self.source, relations=[Relation("_o", (("_o",),), fields)])

    # Set operations

    def _set_operation(self, node: exp.SetOperation, around: Around) -> tuple[exp.Expression, tuple[Field, ...]]:
        if around.within and node.args.get("limit") is not None:
            raise no_time("which rows it gives depends on all others")
        # left-deep chains of operands are as long as users make them, so no recursion along them
        spine: list[exp.SetOperation] = [node]
        while isinstance(spine[-1].this, exp.SetOperation) and not _own_clauses(spine[-1].this):
            spine.append(spine[-1].this)
        left, fields = self.query(spine[-1].this, around)
        spine[-1].set("this", left)
        for operation in reversed(spine):
            if around.within and not isinstance(operation, exp.Union):
                raise no_time(f"{operation.key.upper()} compares it with others")
            position = self.source.of(operation.expression)
            right, others = self.query(operation.expression, around)
            if operation.args.get("by_name"):
                right, others = self._by_name(right, others, fields, position)
                operation.set("by_name", None)
            operation.set("expression", right)
            if len(others) != len(fields):
                raise SqlError(
                    f"Both sides of {operation.key.upper()} must have the same number of columns, "
                    f"not {len(fields)} and {len(others)}.",
                    position=position,
                )
        for key in ("limit", "offset"):
            if node.args.get(key) is not None:
                self._limited(node.args[key], around)
        outside = self._outputs(fields)
        without_places(node, lambda each: self._expression(each, outside, around), self.source)
        order = node.args.get("order")
        if order is not None:
            outputs = [(item.name, exp.column(item.column)) for item in fields]
            if self._ordinals(order, outputs):
                return self._ordered_outside(node, fields, around), fields
        return node, fields

    def _by_name(
        self, right: exp.Expression, others: tuple[Field, ...], fields: tuple[Field, ...], position: Position | None
    ) -> tuple[exp.Expression, tuple[Field, ...]]:
        """The right side of UNION BY NAME, with its columns in the order of the left side's."""
        found = {item.column.lower(): item for item in others}
        names = [item.column.lower() for item in fields]
        if sorted(names) != sorted(found):
            left, other = (", ".join(item.name for item in side) for side in (fields, others))
            raise SqlError(
                f"Both sides of UNION BY NAME must have columns of the same names, not ({left}) and ({other}).",
                position=position,
            )
        relation = Relation("_n", (("_n",),), others)
        columns = [aliased(relation.column(found[name]), found[name].column) for name in names]
        outer = exp.Select(expressions=columns, from_=exp.From(this=_derived(right, "_n")))
        return outer, tuple(found[name] for name in names)


def _fields(names: Sequence[str]) -> tuple[Field, ...]:
    return tuple(Field(name, unique) for name, unique in zip(names, unique_names(names), strict=True))


def _derived(node: exp.Expression, alias: str) -> exp.Subquery:
    return exp.Subquery(this=node, alias=exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))


def _is_ordinal(node: exp.Expression) -> bool:
    return isinstance(node, exp.Literal) and not node.is_string and node.name.isdecimal()


def _own_clauses(node: exp.Expression) -> bool:
    return any(node.args.get(key) for key in ("order", "limit", "offset", "with_", "bounds"))


def _as_select(node: exp.Subquery) -> exp.Select:
    """`(query) ORDER BY x LIMIT n` as `SELECT * FROM (query) ORDER BY x LIMIT n`."""
    select = exp.Select(expressions=[exp.Star()])
    for key in ("order", "limit", "offset", "with_"):
        if (value := node.args.get(key)) is not None:
            node.set(key, None)
            select.set(key, value)
    select.set("from_", exp.From(this=_derived(node.this, "_q")))
    return select


def _values_select(node: exp.Values) -> exp.Select:
    select = exp.Select(expressions=[exp.Star()])
    for key in ("order", "limit", "offset", "with_", "bounds"):
        if (value := node.args.get(key)) is not None:
            node.set(key, None)
            select.set(key, value)
    select.set("from_", exp.From(this=node))
    return select
