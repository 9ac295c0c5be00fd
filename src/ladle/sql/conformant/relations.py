"""Relations: SELECT blocks, joins, set operations, CTEs and VALUES, rendered for DuckDB with Spark's schemas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from ladle.sql.conformant.casts import cast, is_ordered
from ladle.sql.conformant.expressions import condition, each_expression, expression, filtered, normalized
from ladle.sql.conformant.functions import BY_NAME, compared
from ladle.sql.conformant.nodes import call_of
from ladle.sql.conformant.operands import refused_at
from ladle.sql.conformant.scope import Columns, Scope, Subquery, Table, quoted
from ladle.sql.conformant.spark_types import NotConformant, Typed, common_type
from ladle.sql.conformant.tumbling import is_window, times
from ladle.sql.conformant.windows import direction

_SELECT_PARTS = frozenset(
    [
        "expressions",
        "from_",
        "joins",
        "where",
        "group",
        "having",
        "distinct",
        "order",
        "limit",
        "offset",
        "with_",
        "windows",
    ]
)
_SET_PARTS = frozenset(["this", "expression", "distinct", "order", "limit", "offset", "with_"])
_SUBQUERY_PARTS = frozenset(["this", "alias", "order", "limit", "offset", "with_"])
_JOINS = {
    "LEFT": "LEFT JOIN",
    "LEFT OUTER": "LEFT JOIN",
    "RIGHT": "RIGHT JOIN",
    "RIGHT OUTER": "RIGHT JOIN",
    "FULL": "FULL JOIN",
    "FULL OUTER": "FULL JOIN",
    "": "JOIN",
    "INNER": "JOIN",
    "SEMI": "SEMI JOIN",
    "LEFT SEMI": "SEMI JOIN",
    "ANTI": "ANTI JOIN",
    "LEFT ANTI": "ANTI JOIN",
}

Sources = Mapping[str, Mapping[str, Typed]]


def root_scope(relations: Mapping[str, pa.Schema]) -> Scope:
    tables = {
        name.lower(): Table(name, tuple((field.name, field.type) for field in schema))
        for name, schema in relations.items()
    }
    return Scope(sources={}, query=_nested, tables=tables)


def query(tree: exp.Expr, scope: Scope) -> Subquery:
    """A query at any place; `scope` is the one around it."""
    scope, prefix = _with(tree, scope)
    match tree:
        case exp.Select():
            found = _select(tree, scope)
        case exp.SetOperation():
            found = _ordered(tree, _set_operation(tree, scope))
        case exp.Subquery():
            _only(tree, _SUBQUERY_PARTS)
            found = _ordered(tree, query(tree.this, scope))
        case _:
            raise NotConformant(f"{type(tree).__name__.upper()} as a query is not proven equal in DuckDB")
    return replace(found, sql=prefix + found.sql)


def _nested(tree: exp.Expr, scope: Scope) -> Subquery:
    return replace(query(tree, scope), correlated=_is_correlated(tree))


def _is_correlated(tree: exp.Expr) -> bool:
    inside = {node.alias_or_name.lower() for node in tree.find_all(exp.Table, exp.Subquery, exp.Values)}
    return any(column.table and column.table.lower() not in inside for column in tree.find_all(exp.Column))


def _only(tree: exp.Expr, parts: frozenset[str]) -> None:
    for part, value in tree.args.items():
        if value and part not in parts:
            raise NotConformant(f"{part.rstrip('_').upper().replace('_', ' ')} is not proven equal in DuckDB")


def _with(tree: exp.Expr, scope: Scope) -> tuple[Scope, str]:
    """The scope with this query's CTEs, and their text."""
    clause = tree.args.get("with_")
    if clause is None:
        return scope, ""
    if clause.args.get("recursive"):
        raise NotConformant("a recursive CTE is not proven equal in DuckDB")
    texts: list[str] = []
    for cte in clause.expressions:
        found = query(cte.this, scope)
        alias = cte.args["alias"]
        columns = _renamed(found.columns, alias)
        names = ", ".join(quoted(name) for name, _ in columns)
        texts.append(f"{quoted(alias.name)}({names}) AS ({found.sql})")
        tables = {**scope.tables, alias.name.lower(): Table(alias.name, columns, found.may_raise)}
        scope = replace(scope, tables=tables)
    return scope, f"WITH {', '.join(texts)} "


def _renamed(columns: Columns, alias: exp.Expr | None) -> Columns:
    names = [each.name for each in (alias.args.get("columns") or ())] if alias is not None else []
    if names and len(names) != len(columns):
        raise NotConformant("an alias with another number of columns than its relation")
    renamed = tuple((name, type_) for name, (_, type_) in zip(names, columns, strict=True)) if names else columns
    if len({name.lower() for name, _ in renamed}) != len(renamed):
        raise NotConformant("a derived table with two columns of one name")
    return renamed


def _select(tree: exp.Select, outer: Scope) -> Subquery:
    _only(tree, _SELECT_PARTS)
    text, sources, may_raise = _from(tree, outer)
    windows = {each.this.name.lower(): each for each in tree.args.get("windows") or ()}
    rows = Scope(sources, query=_nested, tables=outer.tables, parent=outer, named_windows=windows)
    try:
        return _clauses(tree, rows, text, may_raise=may_raise)
    except NotConformant:
        _refuse_what_spark_refuses(tree, rows)
        raise


def _refuse_what_spark_refuses(tree: exp.Select, rows: Scope) -> None:
    """Of a block that Spark has to run for one of its parts, look at the others too: Spark is not asked about them."""
    conditions = [tree.args[part].this for part in ("where", "having") if tree.args.get(part) is not None]
    for node in (*conditions, *tree.expressions):
        for scope in (replace(rows, windows=True), replace(rows, windows=True, keys={})):
            with suppress(NotConformant):
                expression(node, scope)


def _clauses(tree: exp.Select, rows: Scope, text: str, *, may_raise: bool) -> Subquery:
    """A SELECT block over the relations whose text is given."""
    clauses = [f"FROM {text}"] if text else []
    group, having = tree.args.get("group"), tree.args.get("having")
    kept = [] if tree.args.get("where") is None else [filtered(tree.args["where"].this, rows)]
    windowed = _windows(group, tree)
    for time in times(windowed):
        at = expression(time, rows)
        kept.append(Typed(f"{at.sql} IS NOT NULL", pa.bool_(), at.may_raise))
    if kept:
        may_raise |= any(each.may_raise for each in kept)
        clauses.append("WHERE " + " AND ".join(each.sql for each in kept))
    rows = replace(rows, time_windows=bool(windowed))
    grouped = group is not None or having is not None or any(map(has_fold, _outputs(tree)))
    inside = replace(rows, windows=True)
    named: dict[str, Typed] = {}
    if grouped:
        keys = _keys(group, tree, rows)
        inside = replace(inside, keys={key.sql: normalized(key) for key in keys})
        named = {each.name.lower(): normalized(expression(each, rows)) for each in windowed}
        may_raise |= any(key.may_raise for key in keys)
        if keys:
            clauses.append("GROUP BY " + ", ".join(normalized(key).sql for key in keys))
    names = [each.alias_or_name or f"_{i}" for i, each in enumerate(tree.expressions)]
    outputs = list(zip(names, each_expression(tree.expressions, inside), strict=True))
    distinct = tree.args.get("distinct") is not None
    if distinct:
        outputs = [(name, _distinct(value, tree)) for name, value in outputs]
    aliased = replace(inside, aliases={**named, **{name.lower(): value for name, value in outputs}})
    if having is not None:
        groups = filtered(having.this, replace(aliased, windows=False))
        may_raise |= groups.may_raise
        clauses.append(f"HAVING {groups.sql}")
    if tree.args.get("order") is not None:
        clauses.append(_order_by(tree, outputs, aliased))
    clauses.extend(_limit(tree))
    listed = ", ".join(f"{value.sql} AS {quoted(name)}" for name, value in outputs)
    return Subquery(
        f"SELECT {'DISTINCT ' if distinct else ''}{listed} {' '.join(clauses)}".rstrip(),
        tuple((name, value.type) for name, value in outputs),
        may_raise or any(value.may_raise for _, value in outputs),
        one_row=grouped and group is None,
    )


def _distinct(value: Typed, tree: exp.Select) -> Typed:
    if tree.args["distinct"].args.get("on") is not None:
        raise NotConformant("DISTINCT ON is not proven equal in DuckDB")
    if not is_ordered(value.type):
        raise NotConformant("DISTINCT over these types is not proven equal in DuckDB")
    return normalized(value)


def _outputs(tree: exp.Select) -> Iterator[exp.Expr]:
    yield from tree.expressions
    if tree.args.get("order") is not None:
        yield from tree.args["order"].expressions


def has_fold(node: exp.Expr) -> bool:
    """Whether an expression computes an aggregate itself."""
    return any(True for _ in _folds(node))


def _folds(node: exp.Expr) -> Iterator[exp.Expr]:
    """The aggregates of this query itself: not those of subqueries or OVER."""
    for each in node.walk(prune=lambda n: isinstance(n, exp.Query | exp.Window)):
        if isinstance(each, exp.Query | exp.Window):
            continue
        called = call_of(each) if isinstance(each, exp.Anonymous | exp.Any) else None
        entries = BY_NAME.get(called.name) if called is not None else None
        if isinstance(each, exp.AggFunc) or (entries is not None and entries[0].aggregate):
            yield each


def _keys(group: exp.Group | None, tree: exp.Select, rows: Scope) -> list[Typed]:
    if group is None:
        return []
    _only(group, frozenset(("expressions",)))
    keys = []
    for node in group.expressions:
        key = expression(_meant(node, tree), rows)
        if not is_ordered(key.type) and not is_window(_meant(node, tree)):
            raise NotConformant("GROUP BY over this type is not proven equal in DuckDB")
        if key.constant is not None:
            raise NotConformant("GROUP BY a constant")
        keys.append(key)
    return keys


def _windows(group: exp.Group | None, tree: exp.Select) -> list[exp.Expr]:
    """The time windows that a query groups by."""
    keys = [] if group is None else [_meant(node, tree) for node in group.expressions]
    return [key for key in keys if is_window(key)]


def _meant(node: exp.Expr, tree: exp.Select) -> exp.Expr:
    """The projection that GROUP BY names by position or alias, else the node itself."""
    if isinstance(node, exp.Literal) and not node.is_string:
        return _bare(tree.expressions[_ordinal(node, len(tree.expressions))])
    if isinstance(node, exp.Column) and not node.table:
        for output in tree.expressions:
            if output.alias_or_name.lower() == node.name.lower():
                return _bare(output)
    return node


def _bare(node: exp.Expr) -> exp.Expr:
    return node.this if isinstance(node, exp.Alias) else node


def _ordinal(node: exp.Literal, count: int) -> int:
    text = str(node.this)
    if not text.isdigit() or not 1 <= int(text) <= count:
        raise NotConformant(f"{text} is not a position of the select list")
    return int(text) - 1


def _order_by(tree: exp.Select, outputs: Sequence[tuple[str, Typed]], scope: Scope) -> str:
    keys = []
    for ordered in tree.args["order"].expressions:
        node = ordered.this
        if isinstance(node, exp.Literal) and not node.is_string:
            key = outputs[_ordinal(node, len(outputs))][1]
        else:
            key = expression(node, scope)
        if not is_ordered(key.type):
            raise NotConformant("ORDER BY over this type is not proven equal in DuckDB")
        sql = normalized(key).sql
        if tree.args.get("distinct") is not None:
            positions = [i for i, (_, value) in enumerate(outputs, 1) if value.sql in (sql, key.sql)]
            if not positions:
                raise NotConformant("ORDER BY of something that DISTINCT does not select")
            sql = str(positions[0])
        elif key.constant is not None:
            # A constant orders nothing, but as a number it would be a position.
            continue
        keys.append(sql + direction(ordered))
    return f"ORDER BY {', '.join(keys)}" if keys else ""


def _limit(tree: exp.Expr) -> Iterator[str]:
    for part, word in (("limit", "LIMIT"), ("offset", "OFFSET")):
        clause = tree.args.get(part)
        if clause is None:
            continue
        amount = clause.args.get("expression")
        _only(clause, frozenset(("expression",)))
        if not isinstance(amount, exp.Literal) or amount.is_string or not str(amount.this).isdigit():
            raise NotConformant(f"{word} of something that is not a number")
        yield f"{word} {amount.this}"


def _from(tree: exp.Select, outer: Scope) -> tuple[str, Sources, bool]:
    clause = tree.args.get("from_")
    if clause is None:
        return "", {}, False
    text, alias, columns, may_raise = _relation(clause.this, outer)
    sources: dict[str, Mapping[str, Typed]] = {alias.lower(): columns}
    for join in (*(clause.this.args.get("joins") or ()), *(tree.args.get("joins") or ())):
        _only(join, frozenset(("this", "side", "kind", "on", "using")))
        kind = f"{join.side} {join.kind}".strip().upper()
        right, alias, columns, raises = _relation(join.this, outer)
        if alias.lower() in sources:
            raise NotConformant(f"two relations named {alias}")
        seen = {**sources, alias.lower(): columns}
        on = _on(join, sources, columns, Scope(seen, query=_nested, tables=outer.tables, parent=outer))
        if on is None and kind in ("CROSS", "", "INNER"):
            text += f" CROSS JOIN {right}"
        elif on is not None and kind in _JOINS:
            text += f" {_JOINS[kind]} {right} ON {on}"
        else:
            raise NotConformant(f"a {kind} join of this form is not proven equal in DuckDB")
        if not kind.endswith(("SEMI", "ANTI")):
            sources = seen
        may_raise |= raises
    return text, sources, may_raise


def _on(join: exp.Join, left: Sources, right: Mapping[str, Typed], scope: Scope) -> str | None:
    terms: list[Typed] = []
    for name in join.args.get("using") or ():
        owners = [columns[name.name.lower()] for columns in left.values() if name.name.lower() in columns]
        if len(owners) != 1 or name.name.lower() not in right:
            raise NotConformant(f"USING ({name.name}) of more than two relations")
        with refused_at(name):
            a, b = compared([owners[0], right[name.name.lower()]])
        terms.append(Typed(f"({a.sql} = {b.sql})", pa.bool_(), a.may_raise or b.may_raise))
    on = join.args.get("on")
    if on is not None:
        if on.find(exp.Query):
            raise NotConformant("a subquery in a join condition is not proven equal in DuckDB")
        terms.append(condition(on, scope))
    if any(term.may_raise for term in terms):
        raise NotConformant("a join condition that may raise")
    return " AND ".join(term.sql for term in terms) if terms else None


def _relation(node: exp.Expr, outer: Scope) -> tuple[str, str, Mapping[str, Typed], bool]:
    """A member of FROM: its text, its alias, its columns and whether it may raise."""
    match node:
        case exp.Table():
            _only(node, frozenset(("this", "alias", "joins")))
            found = outer.tables.get(node.name.lower())
            if found is None:
                raise NotConformant(f"relation {node.name} is not given")
            columns, text, may_raise = found.columns, quoted(found.name), found.may_raise
            if node.args.get("alias") is not None and node.args["alias"].args.get("columns"):
                listed = ", ".join(quoted(name) for name, _ in columns)
                text = f"(SELECT {listed} FROM {text})"
        case exp.Subquery():
            _only(node, _SUBQUERY_PARTS | {"joins"})
            scope, prefix = _with(node, outer)
            inner = _ordered(node, query(node.this, scope))
            columns, text, may_raise = inner.columns, f"({prefix}{inner.sql})", inner.may_raise
        case exp.Values():
            _only(node, frozenset(("expressions", "alias", "joins")))
            text, columns, may_raise = _values(node, outer)
        case _:
            raise NotConformant(f"{type(node).__name__.upper()} in FROM is not proven equal in DuckDB")
    alias = node.alias_or_name
    if not alias:
        raise NotConformant("a derived table without a name")
    renamed = _renamed(columns, node.args.get("alias"))
    names = f"({', '.join(quoted(name) for name, _ in renamed)})"
    typed = {name.lower(): Typed(f"{quoted(alias)}.{quoted(name)}", type_) for name, type_ in renamed}
    # The columns of a given relation are known by name, not by position.
    plain = isinstance(node, exp.Table) and renamed == columns
    return f"{text} AS {quoted(alias)}{'' if plain else names}", alias, typed, may_raise


def _values(node: exp.Values, outer: Scope) -> tuple[str, Columns, bool]:
    rows = [
        [expression(each, outer) for each in (row.expressions if isinstance(row, exp.Tuple) else [row])]
        for row in node.expressions
    ]
    if len({len(row) for row in rows}) != 1:
        raise NotConformant("VALUES of rows of different lengths")
    columns = [_column(node, column) for column in zip(*rows, strict=True)]
    texts = ", ".join(f"({', '.join(value.sql for value in row)})" for row in zip(*columns, strict=True))
    named = tuple((f"col{i}", column[0].type) for i, column in enumerate(columns, 1))
    return f"(VALUES {texts})", named, any(value.may_raise for column in columns for value in column)


def _column(node: exp.Values, values: Sequence[Typed]) -> Sequence[Typed]:
    """The values of one column as their common type; strings are not made anything else here."""
    with refused_at(node):
        type_ = common_type(values, strings=False)
    return [cast(value, type_) for value in values]


def _set_operation(tree: exp.SetOperation, scope: Scope) -> Subquery:
    _only(tree, _SET_PARTS)
    left, right = query(tree.this, scope), query(tree.expression, scope)
    if len(left.columns) != len(right.columns):
        raise NotConformant("a set operation over different numbers of columns")
    pairs = zip(left.columns, right.columns, strict=True)
    with refused_at(tree.expression):
        types = [common_type([Typed("", a), Typed("", b)]) for (_, a), (_, b) in pairs]
    every = not tree.args.get("distinct")
    plain = isinstance(tree, exp.Union) and every
    if not plain and any(not is_ordered(type_) for type_ in types):
        raise NotConformant("a set operation over these types is not proven equal in DuckDB")
    word = type(tree).__name__.upper() + (" ALL" if every else "")
    sides = [_side(side, types, left.columns, fold=not plain) for side in (left, right)]
    columns = tuple((name, type_) for (name, _), type_ in zip(left.columns, types, strict=True))
    raises = left.may_raise or right.may_raise or any(raised for _, raised in sides)
    return Subquery(f"({sides[0][0]}) {word} ({sides[1][0]})", columns, raises)


def _side(side: Subquery, types: Sequence[pa.DataType], names: Columns, *, fold: bool) -> tuple[str, bool]:
    """One side with the types of the whole; where rows are compared, with one zero."""
    inner = ", ".join(f"c{i}" for i in range(len(types)))
    given = [Typed(f"q.c{i}", type_) for i, (_, type_) in enumerate(side.columns)]
    values = [cast(value, to) for value, to in zip(given, types, strict=True)]
    values = [normalized(value) for value in values] if fold else values
    if values == given:
        return side.sql, False
    listed = ", ".join(f"{value.sql} AS {quoted(name)}" for value, (name, _) in zip(values, names, strict=True))
    return f"SELECT {listed} FROM ({side.sql}) AS q({inner})", any(value.may_raise for value in values)


def _ordered(tree: exp.Expr, inner: Subquery) -> Subquery:
    """ORDER BY and LIMIT around a set operation or a parenthesised query: only its own columns can be named."""
    order = tree.args.get("order")
    limits = list(_limit(tree))
    if order is None and not limits:
        return inner
    keys = []
    for ordered in order.expressions if order is not None else ():
        at = _position(ordered.this, inner.columns)
        type_ = inner.columns[at][1]
        if not is_ordered(type_):
            raise NotConformant("ORDER BY over this type is not proven equal in DuckDB")
        keys.append(normalized(Typed(f"q.c{at}", type_)).sql + direction(ordered))
    listed = ", ".join(f"q.c{i} AS {quoted(name)}" for i, (name, _) in enumerate(inner.columns))
    names = ", ".join(f"c{i}" for i in range(len(inner.columns)))
    clauses = ([f"ORDER BY {', '.join(keys)}"] if keys else []) + limits
    return replace(inner, sql=f"SELECT {listed} FROM ({inner.sql}) AS q({names}) {' '.join(clauses)}", one_row=False)


def _position(node: exp.Expr, columns: Columns) -> int:
    if isinstance(node, exp.Literal) and not node.is_string:
        return _ordinal(node, len(columns))
    if isinstance(node, exp.Column):
        for i, (name, _) in enumerate(columns):
            if name.lower() == node.name.lower():
                return i
    raise NotConformant(f"ORDER BY {node.sql(dialect='spark')} around a set operation is not proven equal in DuckDB")
