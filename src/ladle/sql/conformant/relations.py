"""Relations: SELECT blocks, joins, set operations, CTEs and VALUES, rendered for DuckDB with Spark's schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

import pyarrow as pa
from sqlglot import exp

from ladle.sql.conformant.bounded_loops import is_recursive, recursion
from ladle.sql.conformant.casts import cast, is_ordered
from ladle.sql.conformant.expressions import condition, each_expression, expression, filtered, normalized
from ladle.sql.conformant.folds import has_fold, outputs_of
from ladle.sql.conformant.group_sets import SOME_ROW, grouped_by, has_sets, keys_of
from ladle.sql.conformant.mixed_rows import is_mixed
from ladle.sql.conformant.operands import refused_at
from ladle.sql.conformant.order_by import limits_of, order_by, ordered_as, ordinal, ties
from ladle.sql.conformant.parser_names import only
from ladle.sql.conformant.scope import Columns, NamedTable, Subquery, TypedScope, quoted
from ladle.sql.conformant.spark_types import BIGINT, NotConformant, Typed, common_type
from ladle.sql.conformant.the_list import compared
from ladle.sql.conformant.window_structs import (
    NUMBERS,
    SESSIONS,
    gap_of,
    inside,
    is_session,
    is_window,
    is_window_type,
    numbers,
    session,
    sessions,
)

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


def root_scope(relations: Mapping[str, pa.Schema]) -> TypedScope:
    """The scope of a whole statement: the relations that it may name."""
    tables = {
        name.lower(): NamedTable(name, tuple((field.name, field.type) for field in schema))
        for name, schema in relations.items()
    }
    return TypedScope(sources={}, query=_nested, tables=tables)


def query(tree: exp.Expr, scope: TypedScope) -> Subquery:
    """A query at any place; `scope` is the one around it."""
    scope, prefix = _with(tree, scope)
    match tree:
        case exp.Select():
            found = _select(tree, scope)
        case exp.SetOperation():
            found = ordered_as(tree, _set_operation(tree, scope))
        case exp.Subquery():
            only(tree, _SUBQUERY_PARTS)
            found = ordered_as(tree, query(tree.this, scope))
        case _:
            raise NotConformant(f"{type(tree).__name__.upper()} as a query is not proven equal in DuckDB")
    return replace(found, sql=prefix + found.sql)


def _nested(tree: exp.Expr, scope: TypedScope) -> Subquery:
    return replace(query(tree, scope), correlated=_is_correlated(tree))


def _is_correlated(tree: exp.Expr) -> bool:
    inside = {node.alias_or_name.lower() for node in tree.find_all(exp.Table, exp.Subquery, exp.Values)}
    return any(column.table and column.table.lower() not in inside for column in tree.find_all(exp.Column))


def _with(tree: exp.Expr, scope: TypedScope) -> tuple[TypedScope, str]:
    """The scope with this query's CTEs, and their text."""
    clause = tree.args.get("with_")
    if clause is None:
        return scope, ""
    texts: list[str] = []
    for cte in clause.expressions:
        if clause.args.get("recursive") and is_recursive(cte):
            text, table = recursion(cte, query, scope)
            texts.append(text)
            scope = replace(scope, tables={**scope.tables, table.name.lower(): table})
            continue
        found = query(cte.this, scope)
        alias = cte.args["alias"]
        columns = _renamed(found.columns, alias)
        names = ", ".join(quoted(name) for name, _ in columns)
        texts.append(f"{quoted(alias.name)}({names}) AS ({found.sql})")
        tables = {**scope.tables, alias.name.lower(): NamedTable(alias.name, columns, found.may_raise)}
        scope = replace(scope, tables=tables)
    return scope, f"WITH {'RECURSIVE ' if clause.args.get('recursive') else ''}{', '.join(texts)} "


def _renamed(columns: Columns, alias: exp.Expr | None) -> Columns:
    names = [each.name for each in (alias.args.get("columns") or ())] if alias is not None else []
    if names and len(names) != len(columns):
        raise NotConformant("an alias with another number of columns than its relation")
    renamed = tuple((name, type_) for name, (_, type_) in zip(names, columns, strict=True)) if names else columns
    if len({name.lower() for name, _ in renamed}) != len(renamed):
        raise NotConformant("a derived table with two columns of one name")
    return renamed


def _select(tree: exp.Select, outer: TypedScope) -> Subquery:
    only(tree, _SELECT_PARTS)
    text, sources, may_raise = _from(tree, outer)
    windows = {each.this.name.lower(): each for each in tree.args.get("windows") or ()}
    rows = TypedScope(sources, query=_nested, tables=outer.tables, parent=outer, named_windows=windows)
    try:
        return _clauses(tree, rows, text, may_raise=may_raise)
    except NotConformant:
        _refuse_what_spark_refuses(tree, rows)
        raise


def _refuse_what_spark_refuses(tree: exp.Select, rows: TypedScope) -> None:
    """Of a block that Spark has to run for one of its parts, look at the others too: Spark is not asked about them."""
    conditions = [tree.args[part].this for part in ("where", "having") if tree.args.get(part) is not None]
    for node in (*conditions, *tree.expressions):
        for scope in (replace(rows, windows=True), replace(rows, windows=True, keys={})):
            with suppress(NotConformant):
                expression(node, scope)


def _clauses(tree: exp.Select, rows: TypedScope, text: str, *, may_raise: bool) -> Subquery:
    """A SELECT block over the relations whose text is given."""
    group, having = tree.args.get("group"), tree.args.get("having")
    kept = [] if tree.args.get("where") is None else [filtered(tree.args["where"].this, rows)]
    windowed = _windows(group, tree)
    if windowed:
        text, rows, kept = _timed(tree, windowed, rows, text, kept)
    may_raise |= any(each.may_raise for each in kept)
    clauses = [f"FROM {text}"] if text else []
    listed = [each.sql for each in kept if each.sql]
    if listed:
        clauses.append("WHERE " + " AND ".join(listed))
    grouped = group is not None or having is not None or any(map(has_fold, outputs_of(tree)))
    inside = replace(rows, windows=True)
    named: dict[str, Typed] = {}
    groups_by: list[Typed] = []
    if grouped:
        keys = _keys(group, tree, rows)
        inside = replace(inside, keys={key.sql: normalized(key) for key in keys})
        named = {each.name.lower(): normalized(expression(each, rows)) for each in windowed}
        may_raise |= any(key.may_raise for key in keys)
        groups_by = [] if has_sets(group) or windowed else [normalized(key) for key in keys]
        if keys:
            clauses.append("GROUP BY " + grouped_by(group, [normalized(key).sql for key in keys]))
    names = [each.alias_or_name or f"_{i}" for i, each in enumerate(tree.expressions)]
    outputs = list(zip(names, each_expression(tree.expressions, inside), strict=True))
    distinct = tree.args.get("distinct") is not None
    if distinct:
        outputs = [(name, _distinct(value, tree)) for name, value in outputs]
    aliased = replace(inside, aliases={**named, **{name.lower(): value for name, value in outputs}})
    if having is not None:
        groups = filtered(having.this, replace(aliased, windows=False))
        may_raise |= groups.may_raise
        clauses.append(f"HAVING {SOME_ROW} AND ({groups.sql})" if has_sets(group) else f"HAVING {groups.sql}")
    elif has_sets(group):
        clauses.append(f"HAVING {SOME_ROW}")
    limits = list(limits_of(tree))
    order = [] if tree.args.get("order") is None else order_by(tree, outputs, aliased)
    if limits and (order or is_mixed(tree)):
        order += ties([value for _, value in outputs], zeros=not (grouped or distinct))
        if not distinct and any(value.may_raise for _, value in outputs):
            order += [each.sql for each in groups_by if not each.may_raise and each.constant is None]
    clauses += [f"ORDER BY {', '.join(order)}"] if order else []
    clauses += limits
    selected = ", ".join(f"{value.sql} AS {quoted(name)}" for name, value in outputs)
    return Subquery(
        f"SELECT {'DISTINCT ' if distinct else ''}{selected} {' '.join(clauses)}".rstrip(),
        tuple((name, value.type) for name, value in outputs),
        may_raise or any(value.may_raise for _, value in outputs),
        one_row=grouped and group is None,
    )


def _timed(
    tree: exp.Select, windowed: Sequence[exp.Expr], rows: TypedScope, text: str, kept: list[Typed]
) -> tuple[str, TypedScope, list[Typed]]:
    """FROM, the scope and the conditions of a block that groups by a time window."""
    window = windowed[0]
    if any(each != window for each in windowed) or not isinstance(window, exp.Anonymous) or not window.expressions:
        raise NotConformant("several time windows in one SELECT")
    if rows.sources.keys() & {NUMBERS, SESSIONS}:
        raise NotConformant("a relation with the name of one of Ladle's own")
    at = expression(window.expressions[0], rows)
    kept = [*kept, Typed(f"{at.sql} IS NOT NULL", pa.bool_(), at.may_raise)]
    if is_window(window):
        joined = numbers(window)
        if joined is not None and (within := inside(window, at)) is not None:
            kept.append(Typed(within, pa.bool_(), at.may_raise))
        return f"{text} {joined or ''}".rstrip(), replace(rows, time_windows=True), kept
    gap_us = gap_of(window)
    group = tree.args["group"]
    keys = [_meant(node, tree) for node in group.expressions]
    others = [normalized(expression(key, rows)) for key in keys if not is_session(key)]
    listed = [f"{key.sql} AS k{at}" for at, key in enumerate(others)] + [f"epoch_us({at.sql}) AS t"]
    sources: dict[str, Mapping[str, Typed]] = {}
    for alias, columns in rows.sources.items():
        renamed: dict[str, Typed] = {}
        for name, column in columns.items():
            renamed[name] = Typed(f'"{SESSIONS}".c{len(listed)}', column.type)
            listed.append(f"{column.sql} AS c{len(listed)}")
        sources[alias] = renamed
    below = f"SELECT {', '.join(listed)} FROM {text} WHERE {' AND '.join(each.sql for each in kept)}"
    raised = Typed("", pa.bool_(), any(each.may_raise for each in (*kept, *others)))
    of_row = session(at, gap_us)
    found = sessions(below, gap_us, [f"k{at}" for at in range(len(others))])
    return found, replace(rows, sources=sources, session=of_row), [raised]


def _distinct(value: Typed, tree: exp.Select) -> Typed:
    if tree.args["distinct"].args.get("on") is not None:
        raise NotConformant("DISTINCT ON is not proven equal in DuckDB")
    if not is_ordered(value.type):
        raise NotConformant("DISTINCT over these types is not proven equal in DuckDB")
    return normalized(value)


def _keys(group: exp.Group | None, tree: exp.Select, rows: TypedScope) -> list[Typed]:
    if group is None:
        return []
    only(group, frozenset(("expressions",)))
    keys = []
    for node in keys_of(group):
        key = expression(_meant(node, tree), rows)
        if not is_ordered(key.type) and not is_window_type(key.type):
            raise NotConformant("GROUP BY over this type is not proven equal in DuckDB")
        if key.constant is not None:
            raise NotConformant("GROUP BY a constant")
        keys.append(key)
    return keys


def _windows(group: exp.Group | None, tree: exp.Select) -> list[exp.Expr]:
    """The time windows that a query groups by."""
    keys = [] if group is None else [_meant(node, tree) for node in group.expressions]
    return [key for key in keys if is_window(key) or is_session(key)]


def _meant(node: exp.Expr, tree: exp.Select) -> exp.Expr:
    """The projection that GROUP BY names by position or alias, else the node itself."""
    if isinstance(node, exp.Literal) and not node.is_string:
        return _bare(tree.expressions[ordinal(node, len(tree.expressions))])
    if isinstance(node, exp.Column) and not node.table:
        for output in tree.expressions:
            if output.alias_or_name.lower() == node.name.lower():
                return _bare(output)
    return node


def _bare(node: exp.Expr) -> exp.Expr:
    return node.this if isinstance(node, exp.Alias) else node


def _from(tree: exp.Select, outer: TypedScope) -> tuple[str, Sources, bool]:
    clause = tree.args.get("from_")
    if clause is None:
        return "", {}, False
    text, alias, columns, may_raise = _relation(clause.this, outer)
    sources: dict[str, Mapping[str, Typed]] = {alias.lower(): columns}
    for join in (*(clause.this.args.get("joins") or ()), *(tree.args.get("joins") or ())):
        only(join, frozenset(("this", "side", "kind", "on", "using")))
        kind = f"{join.side} {join.kind}".strip().upper()
        right, alias, columns, raises = _relation(join.this, outer)
        if alias.lower() in sources:
            raise NotConformant(f"two relations named {alias}")
        seen = {**sources, alias.lower(): columns}
        on = _on(join, sources, columns, TypedScope(seen, query=_nested, tables=outer.tables, parent=outer))
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


def _on(join: exp.Join, left: Sources, right: Mapping[str, Typed], scope: TypedScope) -> str | None:
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


def _relation(node: exp.Expr, outer: TypedScope) -> tuple[str, str, Mapping[str, Typed], bool]:
    """A member of FROM: its text, its alias, its columns and whether it may raise."""
    columns: Columns
    match node:
        case exp.Table() if isinstance(node.this, exp.Anonymous) and node.this.name.lower() == "range":
            only(node, frozenset(("this", "alias")))
            text, columns, may_raise = _range(node.this), (("id", BIGINT),), False
        case exp.Table():
            only(node, frozenset(("this", "alias", "joins")))
            found = outer.tables.get(node.name.lower())
            if found is None:
                raise NotConformant(f"relation {node.name} is not given")
            columns, text, may_raise = found.columns, quoted(found.name), found.may_raise
            if node.args.get("alias") is not None and node.args["alias"].args.get("columns"):
                listed = ", ".join(quoted(name) for name, _ in columns)
                text = f"(SELECT {listed} FROM {text})"
        case exp.Subquery():
            only(node, _SUBQUERY_PARTS | {"joins"})
            scope, prefix = _with(node, outer)
            inner = ordered_as(node, query(node.this, scope))
            columns, text, may_raise = inner.columns, f"({prefix}{inner.sql})", inner.may_raise
        case exp.Values():
            only(node, frozenset(("expressions", "alias", "joins")))
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
    plain = isinstance(node, exp.Table) and renamed == columns and not isinstance(node.this, exp.Anonymous)
    return f"{text} AS {quoted(alias)}{'' if plain else names}", alias, typed, may_raise


def _range(call: exp.Anonymous) -> str:
    """Whole numbers up to an end, which is left out."""
    bounds = ", ".join(each.sql(dialect="duckdb") for each in call.expressions)
    return f"(SELECT CAST(range AS BIGINT) AS id FROM range({bounds}))"


def _values(node: exp.Values, outer: TypedScope) -> tuple[str, Columns, bool]:
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


def _set_operation(tree: exp.SetOperation, scope: TypedScope) -> Subquery:
    only(tree, _SET_PARTS)
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
