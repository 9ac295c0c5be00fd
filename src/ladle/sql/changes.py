"""INSERT, UPDATE and DELETE: what rows go where, as plans.

Whatever changes a table is a SELECT that gives the table's rows afterwards, so expressions mean there what they mean in
every query.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from sqlglot import exp

from ladle.errors import SqlError, unknown
from ladle.plan import Plan
from ladle.schema import Column, StreamSchema, TableSchema, type_name
from ladle.sql.binder import Binder
from ladle.sql.defaults import default_value, is_default, write_defaults, written_default
from ladle.sql.drafts import DeleteDraft, InsertDraft, UpdateDraft
from ladle.sql.names import QUARANTINE, Names, unknown_relation
from ladle.sql.planning import bound, finish
from ladle.sql.position import SourceText
from ladle.sql.resolve import has_aggregate
from ladle.sql.statement_types import DeleteRows, Insert, InsertRows, UpdateRows


def lower_insert(
    insert: InsertDraft, names: Names, source: SourceText, *, tolerant: bool = False
) -> Insert | InsertRows:
    """The query's columns, cast to the stream's or table's types as by CAST; with `tolerant`, as by try_cast."""
    name = ".".join(part.name for part in insert.target)
    if len(insert.target) == 1 and (stream := names.stream_schema(name)) is not None:
        targets = _targets(insert, stream[1], source)
        listed = tuple(column.name for column in targets)
        plan = _cast_plan(insert, targets, targets, names, source, tolerant=tolerant)
        return Insert(stream[0], listed, plan, tolerant)
    if len(insert.target) == 1 and (table := names.table_schema(name)) is not None:
        targets = _targets(insert, table[1], source)
        return InsertRows(table[0], _cast_plan(insert, targets, table[1].columns, names, source))
    position = source.of(insert.target[0])
    if len(insert.target) == 2 and insert.target[1].name.lower() == QUARANTINE:
        raise SqlError("Rows get into a quarantine by not fitting their stream, not by INSERT.", position=position)
    if len(insert.target) == 1 and names.query_sql(name) is not None:
        raise SqlError(f"'{name}' is a query; rows go into streams and tables.", position=position)
    kinds = {"Streams": names.stream_names(), "Tables": names.table_names()}
    raise unknown_relation("stream or table", name, kinds, position)


def _cast_plan(
    insert: InsertDraft,
    targets: Sequence[Column],
    columns: Sequence[Column],
    names: Names,
    source: SourceText,
    *,
    tolerant: bool = False,
) -> Plan:
    """A plan whose answer has `columns`: the query's, which are `targets`, and the defaults of those it does not give.

    With `tolerant`, what can't be cast is NULL, and the answer also has the columns as they were given.
    """
    binder = Binder(names, source)
    write_defaults(insert.query.tree, list(targets))
    tree, fields = bound(binder, insert.query.tree)
    if len(fields) != len(targets):
        listed = ", ".join(column.name for column in targets)
        raise SqlError(
            f"{len(fields)} values for {len(targets)} columns: {listed}.",
            hint="name the columns that are given: INSERT INTO name (a, b) VALUES (1, 2)",
            position=source.of(insert.query.tree),
        )
    given = {column.name: field.column for field, column in zip(fields, targets, strict=True)}
    outer = exp.Select()
    for column in columns:
        if column.name in given:
            value: exp.Expression = exp.column(quoted_name(given[column.name]), table=quoted_name("_i"))
        else:
            value = default_value(column, names)
        outer.append("expressions", aliased(cast_to(value, column.type, safe=tolerant), column.name))
    for number, column in enumerate(targets if tolerant else ()):
        value = exp.column(quoted_name(given[column.name]), table=quoted_name("_i"))
        outer.append("expressions", aliased(value, f"_given{number}"))
    inner = tree.this if isinstance(tree, exp.Subquery) else tree
    outer.set("from_", exp.From(this=exp.Subquery(this=inner, alias=exp.TableAlias(this=quoted_name("_i")))))
    return finish(insert.query.sql, binder, outer)


def _targets(insert: InsertDraft, schema: StreamSchema | TableSchema, source: SourceText) -> list[Column]:
    if insert.columns is None:
        return list(schema.columns)
    targets: list[Column] = []
    for identifier in insert.columns:
        column = target_column(identifier, schema, source)
        if column in targets:
            raise SqlError(f"Column '{column.name}' is given twice.", position=source.of(identifier))
        targets.append(column)
    return targets


def lower_update(update: UpdateDraft, names: Names, source: SourceText) -> UpdateRows:
    """`SELECT CASE WHEN condition THEN value ELSE column END, ..., condition FROM table`.

    The condition is computed once for each row, below: it may be a subquery, or not give the same twice.
    """
    name, schema = target_table(update.table, "UPDATE", names, source)
    values: dict[str, exp.Expression] = {}
    for identifier, value in update.assignments:
        column = target_column(identifier, schema, source)
        if column.name in values:
            raise SqlError(f"Column '{column.name}' is given twice.", position=source.of(identifier))
        _refuse_aggregate(value, "SET", source)
        values[column.name] = written_default(column).pop() if is_default(value) else value
    outer = exp.Select()
    changed: exp.Expression = exp.true()
    relation: exp.Expression = exp.Table(this=update.table.copy())
    mark = _free_name("_changed", schema)
    if update.where is not None:
        _refuse_aggregate(update.where, "WHERE", source)
        below = exp.Select(expressions=[exp.Star(), aliased(_is_true(update.where), mark)])
        below.set("from_", exp.From(this=relation))
        relation = exp.Subquery(this=below, alias=exp.TableAlias(this=update.table.copy()))
        changed = exp.column(quoted_name(mark))
    for column in schema.columns:
        kept = exp.column(quoted_name(column.name))
        result: exp.Expression = kept
        if column.name in values:
            result = cast_to(exp.Paren(this=values[column.name]), column.type)
            if update.where is not None:
                result = exp.Case(ifs=[exp.If(this=changed.copy(), true=result)], default=kept)
        outer.append("expressions", aliased(result, column.name))
    outer.append("expressions", aliased(changed, mark))
    outer.set("from_", exp.From(this=relation))
    return UpdateRows(name, _plan(update.sql, outer, names, source))


def lower_delete(delete: DeleteDraft, names: Names, source: SourceText) -> DeleteRows:
    """`SELECT * FROM table WHERE condition IS NOT TRUE`."""
    name, _ = target_table(delete.table, "DELETE", names, source)
    if delete.where is None:
        return DeleteRows(name, None)
    _refuse_aggregate(delete.where, "WHERE", source)
    query = exp.Select(expressions=[exp.Star()])
    query.set("from_", exp.From(this=exp.Table(this=delete.table.copy())))
    query.set("where", exp.Where(this=exp.Not(this=_is_true(delete.where))))
    return DeleteRows(name, _plan(delete.sql, query, names, source))


def _plan(sql: str, tree: exp.Expression, names: Names, source: SourceText) -> Plan:
    binder = Binder(names, source)
    done, _ = bound(binder, tree)
    return finish(sql, binder, done)


def target_table(identifier: exp.Identifier, doing: str, names: Names, source: SourceText) -> tuple[str, TableSchema]:
    """The table that a statement changes, by name, and its schema."""
    name, position = identifier.name, source.of(identifier)
    found = names.table_schema(name)
    if found is not None:
        return found
    if names.stream_schema(name) is not None:
        hint = "RETAIN lets go of old tuples; what is to change belongs in a table"
        raise SqlError(
            f"'{name}' is a stream, whose tuples stay as they came; {doing} is for tables.",
            hint=hint,
            position=position,
        )
    if names.query_sql(name) is not None:
        raise SqlError(f"'{name}' is a query; {doing} is for tables.", position=position)
    raise unknown("table", name, names.table_names(), position=position)


def target_column(identifier: exp.Identifier, schema: StreamSchema | TableSchema, source: SourceText) -> Column:
    """The column of a schema that an identifier names."""
    column = schema.column(identifier.name)
    if column is None:
        known = [each.name for each in schema.columns]
        raise unknown("column", identifier.name, known, position=source.of(identifier))
    return column


def _refuse_aggregate(node: exp.Expression, where: str, source: SourceText) -> None:
    if has_aggregate(node):
        raise SqlError(
            f"An aggregate can't stand in {where}, which is about single rows.",
            hint="write it as a subquery: (SELECT max(a) FROM name)",
            position=source.of(node),
        )


def _free_name(wanted: str, schema: TableSchema) -> str:
    while schema.column(wanted) is not None:
        wanted = f"_{wanted}"
    return wanted


def _is_true(condition: exp.Expression) -> exp.Expression:
    return exp.Paren(this=exp.Is(this=exp.Paren(this=condition), expression=exp.true()))


def cast_to(value: exp.Expression, type_: pa.DataType, *, safe: bool = False) -> exp.Cast:
    """A value cast to a type; with `safe`, NULL where that can't be."""
    to = exp.DataType.build(type_name(type_), dialect="spark")
    return exp.TryCast(this=value, to=to, safe=True) if safe else exp.Cast(this=value, to=to)


def aliased(value: exp.Expression, name: str) -> exp.Alias:
    """A value under a name."""
    return exp.Alias(this=value, alias=quoted_name(name))


def quoted_name(name: str) -> exp.Identifier:
    """An identifier in quotes, so that its case stays."""
    return exp.to_identifier(name, quoted=True)
