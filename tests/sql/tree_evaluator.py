"""Runs the tree of a query node by node, each by a text of its own: the judge of what `ladle.sql.peel` makes.

The text of a node is written here, from what the node says, in Spark's SQL over its children's rows as `_c0` and `_c1`
with columns `c0`, `c1`, ...; DuckDB runs it as it runs any residual. Filters and projections whose scalars have
DuckDB's text are run by that instead, so both texts of a scalar are judged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import singledispatch

import pyarrow as pa
from sqlglot import exp

from ladle.clock import to_datetime
from ladle.evaluate import duck
from ladle.plan import Plan
from ladle.plan.nodes import (
    Distinct,
    Except,
    Filter,
    Fragment,
    GroupBy,
    Intersect,
    Join,
    JoinKind,
    Limit,
    Node,
    Project,
    Sessions,
    SetOperation,
    Sort,
    StreamScan,
    TableScan,
    TimeWindows,
    TopK,
    Union,
    Values,
)
from ladle.plan.scalars import Scalar, SortKey
from ladle.sql.conform import translate_query
from ladle.sql.conformant.parser_names import FUNCTION
from ladle.sql.drafts import SelectDraft
from ladle.sql.script import draft, only_chunk

_TESTS = {JoinKind.SEMI: "EXISTS", JoinKind.ANTI: "NOT EXISTS"}
_WORDS = {Union: "UNION", Intersect: "INTERSECT", Except: "EXCEPT"}


class Evaluator:
    """`rows` gives the rows of a leaf, with the columns of its stream or table."""

    def __init__(self, plan: Plan, rows: Callable[[Node], pa.Table], now_us: int) -> None:
        self._functions = {function.symbol.lower(): function for function in plan.functions}
        self._plan = plan
        self._rows = rows
        self._now_us = now_us

    def answer(self, node: Node) -> pa.Table:
        """The rows of a node, with its names."""
        return self._table(node).rename_columns([f"{at} {name}" for at, name in enumerate(node.names)])

    def _table(self, node: Node) -> pa.Table:
        if isinstance(node, StreamScan | TableScan):
            return _numbered(self._rows(node))
        below = [self._table(child) for child in node.children]
        if isinstance(node, TimeWindows):
            return self._windows(node, below[0])
        if isinstance(node, Sessions):
            return self._sessions(node, below[0])
        if isinstance(node, Fragment):
            given = {
                f"_c{at}": table.rename_columns(list(child.names))
                for at, (table, child) in enumerate(zip(below, node.children, strict=True))
            }
            assert node.duckdb is not None, node.sql
            return _numbered(self._run(node.duckdb, pa.schema([(c.name, c.type) for c in node.columns]), given))
        given = {f"_c{at}": table for at, table in enumerate(below)}
        direct = self._direct(node, below[0]) if below else self._constants(node)
        if direct is not None:
            return direct
        tree = self._parsed(text_of(node))
        translated = translate_query(tree, {name: table.schema for name, table in given.items()})
        return _numbered(self._run(translated.sql, translated.schema, given))

    def _windows(self, node: TimeWindows, below: pa.Table) -> pa.Table:
        """Every start within reach of a row's time, which is then compared with both ends."""
        origin = f"TIMESTAMP '1970-01-01 00:00:00' + to_microseconds({node.offset_us})"
        names = [[f'"c{at}"' for at in range(below.num_columns)]]
        last = len(node.columns) - 1
        text = f"""SELECT _c0.*, struct_pack("start" := s, "end" := s + to_microseconds({node.size_us})) AS "c{last}"
            FROM (SELECT *, {_in_duckdb(node.time, names)} AS _t FROM _c0) AS _c0, LATERAL (SELECT time_bucket(
            to_microseconds({node.slide_us}), _t, {origin}) - to_microseconds(i * {node.slide_us}) AS s
            FROM range(-1, {node.size_us // node.slide_us + 2}) r(i))
            WHERE s <= _t AND _t < s + to_microseconds({node.size_us})"""
        rows = self._run(
            text, pa.schema([*_timed_fields(below), (f"c{last}", node.columns[last].type)]), {"_c0": below}
        )
        return rows.drop_columns(["_t"])

    def _sessions(self, node: Sessions, below: pa.Table) -> pa.Table:
        """Row by row, in Python."""
        names = [[f'"c{at}"' for at in range(below.num_columns)]]
        keys = [f'{_in_duckdb(each, names)} AS "k{at}"' for at, each in enumerate(node.keys)]
        listed = ", ".join(["*", *keys, f"epoch_us({_in_duckdb(node.time, names)}) AS t"])
        found = duck.run(f'SELECT {listed} FROM "_c0"', {"_c0": below}, functions=self._plan.functions, in_order=True)
        rows = found.to_pylist()
        sessions: list[tuple[int, int] | None] = [None] * len(rows)
        by_key: dict[str, list[int]] = {}
        for number, row in enumerate(rows):
            if row["t"] is not None:
                key = repr([0.0 if row[f"k{at}"] == 0 else row[f"k{at}"] for at in range(len(node.keys))])
                by_key.setdefault(key, []).append(number)
        for numbers in by_key.values():
            numbers.sort(key=lambda number: rows[number]["t"])
            session: list[int] = []
            for number in [*numbers, None]:
                if session and (number is None or rows[number]["t"] > rows[session[-1]]["t"] + node.gap_us):
                    for each in session:
                        sessions[each] = (rows[session[0]]["t"], rows[session[-1]]["t"] + node.gap_us)
                    session = []
                if number is not None:
                    session.append(number)
        kept = [number for number, each in enumerate(sessions) if each is not None]
        type_ = node.columns[-1].type
        values = [{"start": each[0], "end": each[1]} for each in sessions if each is not None]
        plain = pa.array(values, pa.struct([("start", pa.int64()), ("end", pa.int64())]))
        column = pa.StructArray.from_arrays(
            [plain.field(at).cast(type_.field(at).type) for at in (0, 1)], fields=list(type_)
        )
        return below.take(pa.array(kept, pa.int64())).append_column(f"c{len(node.columns) - 1}", column)

    def _direct(self, node: Node, below: pa.Table) -> pa.Table | None:
        names = [[f'"c{at}"' for at in range(below.num_columns)]]
        if isinstance(node, Project) and all(each.duckdb is not None for each in node.outputs):
            listed = ", ".join(f'{_in_duckdb(each, names)} AS "c{at}"' for at, each in enumerate(node.outputs))
            schema = pa.schema([(f"c{at}", each.type) for at, each in enumerate(node.outputs)])
            return self._run(f'SELECT {listed} FROM "_c0"', schema, {"_c0": below})
        if isinstance(node, Filter) and all(each.duckdb is not None for each in node.conditions):
            kept = "true"
            for each in reversed(node.conditions):
                # in order: what may raise is not looked at where those before it are not true
                kept = f"CASE WHEN ({_in_duckdb(each, names)}) THEN {kept} ELSE false END"
            return self._run(f'SELECT * FROM "_c0" WHERE {kept}', below.schema, {"_c0": below})
        return None

    def _constants(self, node: Node) -> pa.Table | None:
        """A SELECT for each row of VALUES: as there, a column has the type that all its values have in common."""
        assert isinstance(node, Values)
        if any(each.duckdb is None for row in node.rows for each in row):
            return None
        rows = [", ".join(f'{_in_duckdb(each, [])} AS "c{at}"' for at, each in enumerate(row)) for row in node.rows]
        schema = pa.schema([(f"c{at}", column.type) for at, column in enumerate(node.columns)])
        return self._run(" UNION ALL ".join(f"SELECT {row}" for row in rows), schema, {})

    def _parsed(self, text: str) -> exp.Expression:
        statement = draft(only_chunk(text))
        assert isinstance(statement, SelectDraft)
        for call in statement.query.tree.find_all(exp.Anonymous):
            if call.name.lower() in self._functions:
                call.meta[FUNCTION] = self._functions[call.name.lower()]
        return statement.query.tree

    def _run(self, sql: str, schema: pa.Schema, given: Mapping[str, pa.Table]) -> pa.Table:
        parameters = {"now": to_datetime(self._now_us).replace(tzinfo=None)} if "$now" in sql else None
        answer = duck.run(sql, given, parameters=parameters, functions=self._plan.functions, in_order=True)
        cast = [column.cast(field.type) for column, field in zip(answer.columns, schema, strict=True)]
        return pa.Table.from_arrays(cast, schema=schema)


def _timed_fields(below: pa.Table) -> list[pa.Field]:
    return [*below.schema, pa.field("_t", pa.timestamp("us"))]


@singledispatch
def text_of(node: Node) -> str:
    """Spark's text of a node over its children."""
    raise AssertionError(f"a node that the evaluator does not know: {node}")


@text_of.register
def _(node: Values) -> str:
    return " UNION ALL ".join(f"SELECT {_listed([each.over([]) for each in row])}" for row in node.rows)


@text_of.register
def _(node: Project) -> str:
    return f"SELECT {_listed([each.over(_names(node)) for each in node.outputs])} FROM _c0"


@text_of.register
def _(node: Filter) -> str:
    conditions = " AND ".join(f"({each.over(_names(node))})" for each in node.conditions)
    return f"SELECT {_listed(_names(node)[0])} FROM _c0 WHERE {conditions}"


@text_of.register
def _(node: Join) -> str:
    names = _names(node)
    terms = [each.over(names) for each in node.comparisons]
    if node.condition is not None:
        terms.append(f"({node.condition.over(names)})")
    on = " AND ".join(terms) or "true"
    outputs = names[0] + (names[1] if node.kind.keeps_right else [])
    if node.kind is JoinKind.INNER:
        return f"SELECT {_listed(outputs)} FROM _c0 CROSS JOIN _c1 WHERE {on}"
    if node.kind in _TESTS:
        # Not as a join: DuckDB may join on no condition that may raise.
        return f"SELECT {_listed(outputs)} FROM _c0 WHERE {_TESTS[node.kind]} (SELECT 1 AS one FROM _c1 WHERE {on})"
    return f"SELECT {_listed(outputs)} FROM _c0 {node.kind.value} JOIN _c1 ON {on}"


@text_of.register
def _(node: GroupBy) -> str:
    names = _names(node)
    keys = [each.over(names) for each in node.keys]
    aggregates = [each.over(names) for each in node.aggregates]
    return f"SELECT {_listed([*keys, *aggregates])} FROM _c0" + (f" GROUP BY {', '.join(keys)}" if keys else "")


@text_of.register
def _(node: Distinct) -> str:
    return f"SELECT DISTINCT {_listed(_names(node)[0])} FROM _c0"


@text_of.register
def _(node: SetOperation) -> str:
    left, right = (f"SELECT {_listed(own)} FROM _c{at}" for at, own in enumerate(_names(node)))
    return f"{left} {_WORDS[type(node)]} {'ALL ' if node.all else ''}{right}"


@text_of.register
def _(node: Sort) -> str:
    return f"SELECT {_listed(_names(node)[0])} FROM _c0 {_order(node, node.keys)}"


@text_of.register
def _(node: TopK) -> str:
    return f"SELECT {_listed(_names(node)[0])} FROM _c0 {_order(node, node.keys)}{_limit(node)}"


@text_of.register
def _(node: Limit) -> str:
    return f"SELECT {_listed(_names(node)[0])} FROM _c0{_limit(node)}"


def _order(node: Node, keys: Sequence[SortKey]) -> str:
    return f"ORDER BY {', '.join(key.over(_names(node)) for key in keys)}"


def _limit(node: TopK | Limit) -> str:
    return ("" if node.limit is None else f" LIMIT {node.limit}") + (f" OFFSET {node.offset}" if node.offset else "")


def _in_duckdb(scalar: Scalar, names: Sequence[Sequence[str]]) -> str:
    assert scalar.duckdb is not None
    return scalar.duckdb.format(*(names[child][at] for child, at in scalar.columns))


def _names(node: Node) -> list[list[str]]:
    return [[f"`_c{at}`.`c{i}`" for i in range(len(child.columns))] for at, child in enumerate(node.children)]


def _listed(texts: Sequence[str]) -> str:
    return ", ".join(f"{text} AS `c{at}`" for at, text in enumerate(texts))


def _numbered(table: pa.Table) -> pa.Table:
    return table.rename_columns([f"c{at}" for at in range(table.num_columns)])
