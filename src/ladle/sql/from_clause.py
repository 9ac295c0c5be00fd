"""FROM: what can stand in it, and which columns that brings into scope.

Streams, their quarantines, tables, standing queries, CTEs, subqueries, VALUES and a few table functions. Anything else
does not exist, so no text can reach a file or a table of the engine beneath.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from ladle.errors import (
    LadleError,
    Position,
    SqlError,
    UnknownName,
    Unsupported,
)
from ladle.plan import AsOf, TimeWindow, Window
from ladle.plan.query import ROW
from ladle.schema import ARRIVAL, Column, StreamSchema, TableSchema, is_nested, unique_names
from ladle.sql.as_of_clause import past_of, past_of_query, refuse_past, with_now
from ladle.sql.bounds import brackets_of, window_of_stream
from ladle.sql.dialect import BRACKET
from ladle.sql.function_calls import resolve_functions
from ladle.sql.names import mentioned_stream, unknown_relation
from ladle.sql.parenthesised import as_derived_table, without_parentheses
from ladle.sql.pivot import pivoted
from ladle.sql.position import SourceText
from ladle.sql.resolve import GENERATORS, BindQuery, bind_expression, fix_now
from ladle.sql.row_makers import column_names
from ladle.sql.sample_clause import IN_THERE, OF_KEYS, refuse_sample, sample_of
from ladle.sql.scopes import NUMBERED, Around, Cte, Field, Relation, ScanDraft, Scope, TableDraft, Within
from ladle.sql.shared_joins import conditions_to_where
from ladle.sql.sharing import Below, Read
from ladle.sql.split import push_where
from ladle.sql.trees import copied
from ladle.sql.unpivot import unpivoted
from ladle.sql.using_columns import merge_columns
from ladle.sql.within import Mentions, window_on_rows

if TYPE_CHECKING:
    from ladle.sql.binder import Binder

Qualifiers = tuple[tuple[str, ...], ...]

_RANGE = "range"
_VIEW = "_l"
"""The alias of a LATERAL VIEW."""


def bind_from(binder: Binder, node: exp.Select, scope: Scope, around: Around) -> list[exp.Expression]:
    """Binds FROM, joins and lateral views of a SELECT in place, and fills its scope. Windows on its rows may become
    conditions, which are given back, bound.
    """
    without_parentheses(node)
    mentions = Mentions(node, around, binder.names) if around.within else None
    from_ = node.args.get("from_")
    if from_ is not None:
        own = around if mentions is None else mentions.around(from_.this)
        for relation in _bind_members(binder, from_.this, scope, own):
            scope.add(relation, None)
    for join in node.args.get("joins") or ():
        _bind_join(binder, join, scope, around if mentions is None else mentions.around(join.this))
    parts = list(scope.relations)
    for lateral in node.args.get("laterals") or ():
        position = binder.source.of(lateral)
        scope.add(_bind_lateral(binder, lateral, scope, replace(around, within=())), position)
    return [] if mentions is None else mentions.conditions(parts, binder.scans, binder.nows)


def _bind_members(binder: Binder, node: exp.Expression, scope: Scope, around: Around) -> list[Relation]:
    """The relations of one member of FROM: a join in parentheses has several."""
    if not isinstance(node, exp.Subquery) or not isinstance(node.this, exp.Table) or node.args.get("pivots"):
        return [_bind_relation(binder, node, scope, around)]
    alias = node.args.get("alias")
    if alias is not None:
        _no_bracket(binder, alias.meta.get(BRACKET), "a join in parentheses")
    inner = Scope(binder.source, scope.parent)
    select = exp.Select(from_=exp.From(this=node.this), joins=node.this.args.pop("joins", None))
    if within := bind_from(binder, select, inner, around):
        select.set("where", exp.Where(this=exp.and_(*within)))
    conditions_to_where(select)
    if select.args.get("where") is not None:
        push_where(select, inner, binder.scans)
    found = as_derived_table(node, select, inner, scope.alias_for(node.alias or "_b"))
    if alias is not None and alias.args.get("columns"):
        found[0].fields = _named(binder, found[0].fields, alias.args["columns"], node.alias, node)
    return found


def _bind_relation(binder: Binder, node: exp.Expression, scope: Scope, around: Around) -> Relation:
    match node:
        case exp.Table() | exp.Subquery() if node.args.get("pivots"):
            return _bind_pivot(binder, node, scope, around)
        case exp.Table() if isinstance(node.this, exp.Func):
            refuse_past(node, binder.source, "a function")
            refuse_sample(node, binder.source, "a function", OF_KEYS)
            return _bind_table_function(binder, node, node.this, scope, around)
        case exp.Table():
            return _bind_table(binder, node, scope, around)
        case exp.Subquery():
            return _bind_subquery(binder, node, node, scope, replace(around, parent=scope.parent))
        case exp.Values():
            return _bind_values(binder, node, scope, around)
        case exp.Lateral():
            return _bind_lateral(binder, node, scope, around)
    raise Unsupported(
        "This can't stand in FROM.",
        hint="name a stream, a table, a query, or a subquery",
        position=binder.source.of(node),
    )


def _bind_pivot(binder: Binder, node: exp.Expression, scope: Scope, around: Around) -> Relation:
    """`relation PIVOT (...) AS t`: a query over the relation, which is bound first."""
    pivots = node.args["pivots"]
    if len(pivots) > 1:
        raise Unsupported("A relation is pivoted once.", position=binder.source.of(pivots[1]))
    pivot = pivots[0]
    named = pivot.args.get("alias")
    if named is not None:
        _no_bracket(binder, named.meta.get(BRACKET), "a pivot")
    if named is not None and named.args.get("columns"):
        raise Unsupported(
            "A pivot takes no list of names.", hint="write IN ('a' AS name)", position=binder.source.of(named)
        )
    wanted = pivot.alias or "_q"
    alias = scope.alias_for(wanted)
    given = node.copy()
    given.set("pivots", None)
    every = exp.Select(expressions=[exp.Star()], from_=exp.From(this=given))
    inner = replace(around, parent=scope.parent)
    tree, fields = binder.query(every, inner)
    below = Relation("_p", ((node.alias_or_name.lower() or "_p",),), fields)
    rows = Scope(binder.source, scope.parent, [below])
    subquery = exp.Subquery(this=tree, alias=exp.TableAlias(this=exp.to_identifier("_p", quoted=True)))

    def bind(each: exp.Expression) -> exp.Expression:
        return bind_expression(each.copy(), rows, _bind_inner(binder, around))

    written = unpivoted if pivot.args.get("unpivot") else pivoted
    select, names = written(pivot, below, subquery, bind, binder.source)
    columns = unique_names(names)
    for projection, column in zip(select.expressions, columns, strict=True):
        projection.set("alias", exp.to_identifier(column, quoted=True))
    rendered = exp.TableAlias(this=exp.to_identifier(alias, quoted=True))
    node.replace(exp.Subquery(this=select, alias=rendered))
    known = tuple(Field(name, column) for name, column in zip(names, columns, strict=True))
    return Relation(alias, ((wanted.lower(),),), known)


def _bind_table(binder: Binder, node: exp.Table, scope: Scope, around: Around) -> Relation:
    parts = [part for part in node.parts if isinstance(part, exp.Identifier)]
    if not parts or len(parts) != len(node.parts):
        raise SqlError("FROM names a stream, table or query.", position=binder.source.of(node))
    names = [part.name for part in parts]
    alias_node = node.args.get("alias")
    bracket = _bracket(binder, node)
    wanted = node.alias or names[-1]
    alias = scope.alias_for(wanted)
    qualifiers: Qualifiers = ((wanted.lower(),),)
    if not node.alias and len(names) == 2:
        qualifiers = ((wanted.lower(),), (names[0].lower(), wanted.lower()))
    if len(names) == 1 and (cte := around.ctes.get(names[0].lower())) is not None:
        _no_bracket(binder, bracket, "a common table expression")
        refuse_past(node, binder.source, "a common table expression")
        refuse_sample(node, binder.source, "a common table expression", IN_THERE)
        relation, target = _cte(binder, cte, alias, qualifiers, around)
    elif (found := mentioned_stream(binder.names, names)) is not None:
        past = past_of(node, binder.source, (found[0],)) or binder.past
        relation, target = _scan(binder, found, bracket, past, alias, qualifiers, around)
        binder.scans[-1].sample = sample_of(node, binder.source)
    elif len(names) == 1 and (table := binder.names.table_schema(names[0])) is not None:
        _no_bracket(binder, bracket, "a table", hint="leave it out: a table is read as it stands")
        refuse_sample(node, binder.source, "a table, whose rows have no ids", OF_KEYS)
        past = past_of(node, binder.source) or binder.past
        if NUMBERED in node.meta:
            table = (table[0], table[1].with_column(Column(ROW, pa.int64())))
        relation, target = _table(binder, table, past, alias, qualifiers)
    elif len(names) == 1 and (query := binder.names.query_sql(names[0])) is not None:
        refuse_sample(node, binder.source, "a standing query", IN_THERE)
        past = past_of_query(node, binder.source, binder.names) or binder.past
        within = around.within
        if bracket is not None:
            within = (*within, Within(window_on_rows(bracket, binder.source), past))
        position = binder.source.of(bracket)
        relation, target = _inline(binder, query[0], past, within, alias, qualifiers, position)
    else:
        raise _unknown_relation(binder, names, parts[0])
    columns = alias_node.args.get("columns") if alias_node is not None else None
    if columns:
        relation.fields = _named(binder, relation.fields, columns, wanted, node)
    target.set("alias", exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
    node.replace(target)
    return relation


def _bracket(binder: Binder, node: exp.Table) -> exp.Expression | None:
    """The window of a mention."""
    found = brackets_of(node)
    if len(found) > 1:
        raise SqlError("The window is given twice.", position=binder.source.of(found[1]))
    return found[0] if found else None


def _scan(
    binder: Binder,
    found: tuple[str, StreamSchema],
    bracket: exp.Expression | None,
    past: AsOf | None,
    alias: str,
    qualifiers: Qualifiers,
    around: Around,
) -> tuple[Relation, exp.Expression]:
    stream, schema = found
    window: Window = around.window or TimeWindow()
    if bracket is not None:
        window = window_of_stream(bracket, schema, binder.source)
    number = len(binder.scans)
    draft = ScanDraft(f"_s{number}", stream, schema, window, past=past)
    binder.scans.append(draft)
    binder.mentions += 1
    fields = tuple(Field(column.name, column.name, plain=not is_nested(column.type)) for column in schema.columns)
    hidden = (Field("ts", ARRIVAL, plain=True),) if schema.timestamp is None and schema.column("ts") is None else ()
    relation = Relation(alias, qualifiers, fields, hidden, scan=number)
    return relation, exp.Table(this=exp.to_identifier(draft.relation, quoted=True))


def _table(
    binder: Binder, found: tuple[str, TableSchema], past: AsOf | None, alias: str, qualifiers: Qualifiers
) -> tuple[Relation, exp.Expression]:
    name, schema = found
    own = name, None if past is None else past.of_tables
    alike = (i for i, known in enumerate(binder.tables) if (known.table, known.past) == own and known.schema == schema)
    number = next(alike, len(binder.tables))
    if number == len(binder.tables):
        binder.tables.append(TableDraft(f"_t{number}", name, schema, own[1]))
    fields = tuple(Field(column.name, column.name, plain=not is_nested(column.type)) for column in schema.columns)
    target = exp.Table(this=exp.to_identifier(binder.tables[number].relation, quoted=True))
    return Relation(alias, qualifiers, fields, table=number), target


def _cte(
    binder: Binder, cte: Cte, alias: str, qualifiers: Qualifiers, around: Around
) -> tuple[Relation, exp.Expression]:
    if cte.written is None:
        return _mention(cte, alias, qualifiers)
    assert cte.around is not None
    if (known := cte.bound.get(around.within)) is None:
        written = copied(cte.written)
        tree, fields = binder.query(written.this, replace(cte.around, within=around.within))
        fields = binder._renamed(tree, fields, written.args["alias"])
        tree = tree if binder.past is None else with_now(tree, binder.past, binder.nows)
        known = cte.bound[around.within] = _before(binder, cte.name, tree, fields)
    return _mention(known, alias, qualifiers)


def _mention(cte: Cte, alias: str, qualifiers: Qualifiers) -> tuple[Relation, exp.Expression]:
    return Relation(alias, qualifiers, cte.fields), exp.Table(this=exp.to_identifier(cte.name, quoted=True))


def _before(binder: Binder, name: str, tree: exp.Expression, fields: tuple[Field, ...]) -> Cte:
    """Puts a bound query before the statement."""
    cte = binder._cte_name(name)
    binder.before.append(exp.CTE(this=tree, alias=exp.TableAlias(this=exp.to_identifier(cte, quoted=True))))
    return Cte(cte, fields)


def _inline(
    binder: Binder,
    name: str,
    past: AsOf | None,
    within: tuple[Within, ...],
    alias: str,
    qualifiers: Qualifiers,
    position: Position | None,
) -> tuple[Relation, exp.Expression]:
    binder.queries[name] = None
    read = Read(name.lower(), past)
    if read in binder.often:
        return _mention(bind_shared(binder, read, within), alias, qualifiers)
    tree, fields = _bind_below(binder, binder.below[read], within, position)
    return Relation(alias, qualifiers, fields), exp.Subquery(this=tree)


def bind_shared(binder: Binder, read: Read, within: tuple[Within, ...] = ()) -> Cte:
    """A standing query that is bound before the statement, once for all who read it within these windows."""
    known = binder.shared.get((read, within))
    if known is None:
        below = binder.below[read]
        tree, fields = _bind_below(binder, below, within)
        known = binder.shared[read, within] = _before(binder, below.name, tree, fields)
    return known


def _bind_below(
    binder: Binder, below: Below, within: tuple[Within, ...] = (), position: Position | None = None
) -> tuple[exp.Expression, tuple[Field, ...]]:
    """A standing query where it is read. `position` is that of the window which is written there."""
    name = below.name
    inner = binder.inlined(below)
    try:
        written = fix_now(below.written())
        resolve_functions(written, inner.names, inner.source, binder.functions)
        tree, fields = inner.query(written, Around(within=within))
    except LadleError as error:
        message = f"In the standing query '{name}': {error.message}"
        raise type(error)(message, hint=error.hint, position=position) from error
    return tree if below.past is None else with_now(tree, below.past, binder.nows), fields


def _bind_subquery(
    binder: Binder, node: exp.Expression, subquery: exp.Subquery, scope: Scope, around: Around
) -> Relation:
    """`(query) AS t(a, b)`; `node` is the subquery or the LATERAL around it, which then has the alias."""
    alias_node = node.args.get("alias")
    if alias_node is not None:
        _no_bracket(binder, alias_node.meta.get(BRACKET), "a subquery")
    wanted = node.alias or "_q"
    alias = scope.alias_for(wanted)
    subquery.set("alias", None)
    tree, fields = binder.query(subquery, around)
    inner = tree.this if isinstance(tree, exp.Subquery) else tree
    if alias_node is not None:
        fields = binder._renamed(inner, fields, alias_node)
    rendered = exp.TableAlias(this=exp.to_identifier(alias, quoted=True))
    replacement = exp.Subquery(this=inner)
    if isinstance(node, exp.Lateral):
        node.set("this", replacement)
        node.set("alias", rendered)
    else:
        replacement.set("alias", rendered)
        node.replace(replacement)
    qualifiers = ((wanted.lower(),),) if node.alias or isinstance(node, exp.Lateral) else ((alias.lower(),),)
    return Relation(alias, qualifiers, fields)


def _bind_values(binder: Binder, node: exp.Values, scope: Scope, around: Around) -> Relation:
    rows = node.expressions
    width = len(rows[0].expressions) if isinstance(rows[0], exp.Tuple) else 1
    for row in rows:
        if (len(row.expressions) if isinstance(row, exp.Tuple) else 1) != width:
            raise SqlError(
                f"Every row of VALUES must have {width} values, as the first has.",
                position=binder.source.of(row),
            )
        bind_expression(row, Scope(binder.source, around.parent), _bind_inner(binder, around))
    wanted = node.alias or "_v"
    alias = scope.alias_for(wanted)
    fields = tuple(Field(f"col{number}", f"col{number}") for number in range(1, width + 1))
    alias_node = node.args.get("alias")
    if alias_node is not None and alias_node.args.get("columns"):
        fields = _named(binder, fields, alias_node.args["columns"], wanted, node)
        fields = tuple(Field(item.name, item.name) for item in fields)
    node.set("alias", _table_alias(alias, fields))
    return Relation(alias, ((wanted.lower(),),), fields)


def _bind_table_function(
    binder: Binder, node: exp.Expression, call: exp.Expr, scope: Scope, around: Around
) -> Relation:
    name = call.name.lower()
    if not isinstance(call, exp.Anonymous) or name not in {*GENERATORS, _RANGE}:
        known = ", ".join(sorted({*GENERATORS, _RANGE}))
        raise UnknownName(
            f"'{call.name or call.key}' is not a function that can stand in FROM. Functions: {known}.",
            hint="FROM reads streams, tables and queries; files are attached to a stream, or inserted, first",
            position=binder.source.of(call),
        )
    if name == _RANGE:
        _check_range(call, node, binder.source)
    arguments = scope if isinstance(node, exp.Lateral) else Scope(binder.source, around.parent)
    for argument in list(call.expressions):
        bind_expression(argument, arguments, _bind_inner(binder, around))
    wanted = node.alias or name
    # the alias of a LATERAL VIEW is rendered without quotes, so it is none of the user's
    alias = scope.alias_for(_VIEW if node.args.get("view") else wanted)
    alias_node = node.args.get("alias")
    given = [each.name for each in (alias_node.args.get("columns") if alias_node is not None else None) or ()]
    names = column_names(binder, call, given, binder.source.of(node))
    fields = tuple(Field(each, column) for each, column in zip(names, unique_names(names), strict=True))
    node.set("alias", _table_alias(alias, fields))
    return Relation(alias, ((wanted.lower(),),), fields)


def bind_generated(
    binder: Binder, select: exp.Select, call: exp.Anonymous, names: Sequence[str], scope: Scope, around: Around
) -> list[tuple[str, exp.Expression]]:
    """The columns that a call in the SELECT list makes. The call goes behind FROM as a LATERAL VIEW, or where nothing
    is read it is FROM; no name means its columns, so it is not in the scope.
    """
    position = binder.source.of(call)
    for argument in list(call.expressions):
        bind_expression(argument, scope, _bind_inner(binder, around))
    given = column_names(binder, call, names, position)
    columns = unique_names(given)
    alias = scope.alias_for(_VIEW)
    fields = tuple(Field(name, column) for name, column in zip(given, columns, strict=True))
    call.pop()
    if select.args.get("from_") is None:
        select.set("from_", exp.From(this=exp.Table(this=call, alias=_table_alias(alias, fields))))
    else:
        outer = call.name.lower().endswith("_outer")
        call.set("this", call.name.lower().removesuffix("_outer"))
        lateral = exp.Lateral(this=call, view=True, outer=outer, alias=_table_alias(alias, fields))
        select.append("laterals", lateral)
    made = Relation(alias, (), fields)
    return [(item.name, made.column(item)) for item in fields]


def _check_range(call: exp.Expr, node: exp.Expression, source: SourceText) -> None:
    """`range(end)`, `range(start, end)` or `range(start, end, step)`, of constants."""
    plain = [each.this if isinstance(each, exp.Neg) else each for each in call.expressions]
    numbers = [each for each in plain if isinstance(each, exp.Literal) and not each.is_string]
    whole = len(numbers) == len(plain) and all(each.name.isdecimal() and len(each.name) < 19 for each in numbers)
    still = len(plain) == 3 and plain[2].name == "0"
    if not whole or still or not 1 <= len(plain) <= 3 or isinstance(node, exp.Lateral):
        raise Unsupported("range takes whole numbers.", hint="write range(0, 10)", position=source.of(call))


def _bind_lateral(binder: Binder, node: exp.Lateral, scope: Scope, around: Around) -> Relation:
    """LATERAL VIEW and LATERAL (subquery): both see the relations before them."""
    if isinstance(node.this, exp.Subquery):
        return _bind_subquery(binder, node, node.this, scope, replace(around, parent=scope))
    return _bind_table_function(binder, node, node.this, scope, around)


def _bind_join(binder: Binder, join: exp.Join, scope: Scope, around: Around) -> None:
    side, kind = (join.args.get("side") or "").upper(), (join.args.get("kind") or "").upper()
    position = binder.source.of(join.this)
    if join.this.args.get("pivots"):
        raise Unsupported(
            "PIVOT and UNPIVOT behind a join are of the whole join in Spark, which is not part of Ladle's SQL.",
            hint="write a subquery: JOIN (SELECT * FROM t PIVOT (...)) AS p",
            position=position,
        )
    relations = _bind_members(binder, join.this, scope, around)
    before = list(scope.relations)
    on = join.args.get("on")
    merge_columns(join, scope, Scope(binder.source, relations=relations), side)
    for relation in relations:
        scope.add(relation, position)
    if side in ("RIGHT", "FULL"):
        for other in before:
            other.pushable = False
    if side in ("LEFT", "FULL") and kind not in ("SEMI", "ANTI"):
        for relation in relations:
            relation.pushable = False
    if on is not None:
        bind_expression(on, scope, _bind_inner(binder, around))
    if kind in ("SEMI", "ANTI"):
        scope.relations = before


def _bind_inner(binder: Binder, around: Around) -> BindQuery:
    def bind_query(query: exp.Expression, outer: Scope) -> exp.Expression:
        return binder.query(query, around.inside(outer))[0]

    return bind_query


def _named(
    binder: Binder, fields: tuple[Field, ...], columns: list[exp.Expression], name: str, node: exp.Expression
) -> tuple[Field, ...]:
    if len(columns) != len(fields):
        raise SqlError(
            f"'{name}' names {len(columns)} columns, but there are {len(fields)}.",
            position=binder.source.of(node),
        )
    return tuple(Field(column.name, item.column) for column, item in zip(columns, fields, strict=True))


def _table_alias(alias: str, fields: tuple[Field, ...]) -> exp.TableAlias:
    return exp.TableAlias(
        this=exp.to_identifier(alias, quoted=True),
        columns=[exp.to_identifier(item.column, quoted=True) for item in fields],
    )


def _no_bracket(binder: Binder, bracket: exp.Expression | None, what: str, hint: str = IN_THERE) -> None:
    if bracket is not None:
        raise SqlError(f"A window bounds a stream, and this is {what}.", hint=hint, position=binder.source.of(bracket))


def _unknown_relation(binder: Binder, names: list[str], node: exp.Expression) -> UnknownName:
    """The error for a name that nothing in FROM has."""
    known = binder.names
    kinds = {"Streams": known.stream_names(), "Tables": known.table_names(), "Queries": known.query_names()}
    error = unknown_relation("stream, table or query", ".".join(names), kinds, binder.source.of(node))
    around = node.find_ancestor(exp.CTE)
    while around is not None:
        if len(names) == 1 and around.alias.lower() == names[0].lower():
            error.hint = "a common table expression that reads itself begins with WITH RECURSIVE"
        around = around.find_ancestor(exp.CTE)
    return error
