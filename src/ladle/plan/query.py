"""A bound query (PSoup section 3.2): its standing part and its residual.

The standing part is a list of scans, one per mention of a stream in FROM: a *block* (stream and conjunction of
factors; shared by every query that has the same one, and what coverage is recorded for) seen through a window. The
residual is the rest of the statement over the scans' rows, in Spark's SQL, and in DuckDB's too when every function and
operator of it is on the list that the conformance test proves equal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import NotRequired, TypedDict

import pyarrow as pa

from ladle.json_values import Json, JsonFields, JsonRow
from ladle.plan.answering import Folding
from ladle.plan.as_of import AsOf, as_of_from_json, as_of_to_json
from ladle.plan.function import Function
from ladle.plan.join import SharedJoin, join_from_json, join_to_json
from ladle.plan.ranges import Ranges
from ladle.plan.sample import Sample, sample_from_json, sample_to_json
from ladle.plan.window import Window, window_from_json, window_to_json
from ladle.schema import decode_schema, encode_schema


class Engine(Enum):
    """What runs a residual."""

    PROJECTION = "projection"
    DUCKDB = "duckdb"
    SPARK = "spark"


@dataclass(frozen=True)
class Factor:
    """One boolean factor of a WHERE clause over the columns of one stream.

    `sql` is its canonical Spark text (equal texts are one factor, evaluated once for all queries); `duckdb` is what
    evaluates it over an Arrow chunk. Column names in both are the stream's physical names, unqualified and quoted.
    """

    sql: str
    duckdb: str
    columns: tuple[str, ...]
    ranges: Ranges | None = field(default=None, compare=False)
    """The normal form of a factor over one column and constants: the values it is true for. None: it has none."""
    functions: tuple[Function, ...] = field(default=(), compare=False)
    """The users' functions that it calls; its text names their versions."""


def calling(factors: tuple[Factor, ...]) -> tuple[Factor, ...]:
    """Those that call functions."""
    return tuple(factor for factor in factors if factor.functions)


@dataclass(frozen=True)
class Block:
    """A select block over one stream: the tuples for which every factor is true."""

    stream: str
    factors: tuple[Factor, ...] = ()

    @property
    def columns(self) -> frozenset[str]:
        """The columns that its factors look at."""
        return frozenset(name for factor in self.factors for name in factor.columns)

    @property
    def calling(self) -> tuple[Factor, ...]:
        """The factors that call functions."""
        return calling(self.factors)

    @property
    def without_calls(self) -> Block:
        """The block without factors that call users' functions."""
        return Block(self.stream, tuple(factor for factor in self.factors if not factor.functions))

    @cached_property
    def text(self) -> str:
        """What two blocks must share to be one."""
        return f"{self.stream} | " + " AND ".join(sorted({factor.sql for factor in self.factors}))


@dataclass(frozen=True)
class Scan:
    """One mention of a stream: the residual reads its rows under the name `relation`."""

    relation: str
    block: Block
    window: Window
    columns: tuple[str, ...]
    """Physical columns of the stream that the residual needs, in the stream's order."""
    as_of: AsOf | None = None
    """The moment it is read at, whatever that of the answer is."""
    sample: Sample | None = None
    """Which of the window's tuples it has; None: all of them."""


ROW = "_row_of_table"
"""The column of a table's scan that numbers its rows: MERGE reads it, and nothing else."""


@dataclass(frozen=True)
class TableRead:
    """A table that the residual reads under the name `relation`: as it stands when the answer is read, unless it is
    read as of another moment.
    """

    relation: str
    table: str
    columns: tuple[str, ...]
    """Those that the residual needs, in the table's order."""
    as_of: AsOf | None = None


@dataclass(frozen=True)
class Residual:
    """The statement over the scans' relations. `:now` (Spark) and `$now` (DuckDB) stand for NOW when `uses_now`;
    what stands for NOW as of an entry is in the plan's `nows`.
    """

    spark_sql: str
    duckdb_sql: str | None
    projection: tuple[tuple[str, str], ...] | None = None
    """(output name, physical column) pairs when the residual only picks columns of its one scan."""
    why_spark: str | None = None
    """What keeps DuckDB from running it, for people."""
    uses_now: bool = False
    foldings: tuple[Folding, ...] | None = None
    """How it is answered by nodes, if it is; None: nobody has looked yet."""

    @cached_property
    def keeps_names(self) -> bool:
        """Whether it picks columns and gives none of them another name."""
        return self.projection is not None and all(name == source for name, source in self.projection)

    @cached_property
    def engine(self) -> Engine:
        """What runs it: nothing for a projection, DuckDB where it is proven equal, else Spark."""
        if self.projection is not None:
            return Engine.PROJECTION
        return Engine.DUCKDB if self.duckdb_sql is not None else Engine.SPARK


@dataclass(frozen=True)
class JoinedForm:
    """The same query over joins that are shared: what they replace of its scans, and the statement over the rest."""

    joins: tuple[SharedJoin, ...]
    residual: Residual

    @cached_property
    def scans(self) -> frozenset[int]:
        """The numbers of the scans that are joined."""
        return frozenset(number for join in self.joins for number in join.scans)


@dataclass(frozen=True)
class Plan:
    """A bound query. `schema` is the answer's, or None when only Spark can tell it (engine SPARK)."""

    sql: str
    scans: tuple[Scan, ...]
    residual: Residual
    schema: pa.Schema | None
    queries: tuple[str, ...] = ()
    """Standing queries that this one reads as relations; they can't be dropped before it."""
    functions: tuple[Function, ...] = ()
    """Users' functions that it calls anywhere, also in what it reads."""
    joined: JoinedForm | None = None
    """Where streams are joined by comparisons; the residual itself is for what that can't answer."""
    tables: tuple[TableRead, ...] = ()
    """Tables that it reads, each once for each moment; they can't be dropped before it."""
    nows: tuple[AsOf, ...] = ()
    """The entries as of which its texts compute something of NOW, by the parameter of each."""

    @cached_property
    def streams(self) -> tuple[str, ...]:
        """The streams that are read, each once."""
        return tuple(dict.fromkeys(scan.block.stream for scan in self.scans))

    @property
    def called(self) -> tuple[Function, ...]:
        """Those that are called when it runs: of others the bodies are part of its text."""
        return tuple(function for function in self.functions if not function.inlined)

    @cached_property
    def browses(self) -> bool:
        """Whether something is read as of another moment."""
        moments = (*(scan.as_of for scan in self.scans), *(table.as_of for table in self.tables), *self.nows)
        return any(as_of is not None for as_of in moments)


class ScanJson(TypedDict):
    """A scan as it is written."""

    relation: str
    stream: str
    factors: list[JsonRow]
    window: JsonFields
    columns: list[str]
    as_of: NotRequired[JsonRow]
    sample: NotRequired[JsonRow]


class PlanJson(TypedDict):
    """A bound query as it is written."""

    sql: str
    scans: list[ScanJson]
    residual: JsonRow
    schema: str | None
    queries: list[str]
    functions: NotRequired[list[JsonFields]]
    joined: NotRequired[list[JsonRow]]
    """The residual over the joins' pairs, and then the joins."""
    tables: NotRequired[list[JsonRow]]
    nows: NotRequired[list[JsonRow]]


def factor_to_json(factor: Factor) -> list[Json]:
    """Encode a factor."""
    value: list[Json] = [factor.sql, factor.duckdb, list(factor.columns)]
    if factor.functions:
        return [*value, None, [function.id for function in factor.functions]]
    return value if factor.ranges is None else [*value, factor.ranges.to_json()]


def factor_from_json(value: JsonRow, functions: Mapping[int, Function]) -> Factor:
    """Decode a factor; `functions` are those that it may call, by id."""
    sql, duckdb, columns, *more = value
    ranges, called = more if len(more) == 2 else (more[0] if more else None, ())
    return Factor(
        sql,
        duckdb,
        tuple(columns),
        None if ranges is None else Ranges.from_json(ranges),
        tuple(functions[number] for number in called),
    )


def plan_to_json(plan: Plan) -> PlanJson:
    """Encode a bound query."""
    joined = plan.joined
    value: PlanJson = {
        "sql": plan.sql,
        "scans": [_scan_to_json(scan) for scan in plan.scans],
        "residual": _residual_to_json(plan.residual, plan.schema),
        "schema": None if plan.schema is None else encode_schema(plan.schema),
        "queries": list(plan.queries),
    }
    if plan.functions:
        value["functions"] = [function.to_json() for function in plan.functions]
    if joined is not None:
        joins = (join_to_json(join) for join in joined.joins)
        value["joined"] = [_residual_to_json(joined.residual, plan.schema), *joins]
    if plan.tables:
        value["tables"] = [_table_to_json(table) for table in plan.tables]
    if plan.nows:
        value["nows"] = [as_of_to_json(each) for each in plan.nows]
    return value


def _scan_to_json(scan: Scan) -> ScanJson:
    value: ScanJson = {
        "relation": scan.relation,
        "stream": scan.block.stream,
        "factors": [factor_to_json(factor) for factor in scan.block.factors],
        "window": window_to_json(scan.window),
        "columns": list(scan.columns),
    }
    if scan.as_of is not None:
        value["as_of"] = as_of_to_json(scan.as_of)
    if scan.sample is not None:
        value["sample"] = sample_to_json(scan.sample)
    return value


def _table_to_json(table: TableRead) -> list[Json]:
    as_of = () if table.as_of is None else (as_of_to_json(table.as_of),)
    return [table.relation, table.table, list(table.columns), *as_of]


def _table_from_json(value: JsonRow) -> TableRead:
    name, table, columns, *as_of = value
    return TableRead(name, table, tuple(columns), as_of_from_json(as_of[0] if as_of else None))


def _residual_to_json(residual: Residual, schema: pa.Schema | None) -> list[Json]:
    return [
        residual.spark_sql,
        residual.duckdb_sql,
        None if residual.projection is None else [list(pair) for pair in residual.projection],
        residual.why_spark,
        residual.uses_now,
        *(() if residual.foldings is None else ([each.to_json(schema) for each in residual.foldings],)),
    ]


def _residual_from_json(value: JsonRow, schema: pa.Schema | None) -> Residual:
    spark_sql, duckdb_sql, projection, why_spark, uses_now, *more = value
    foldings: tuple[Folding, ...] | None = None
    if more:
        # Older versions wrote down what partial aggregates are to fold if that was all the residual does.
        written = [[[["_g0", 0, more[0], None]], None, False, []]] if isinstance(more[0], dict) else more[0]
        foldings = tuple(Folding.from_json(each, schema) for each in written)
    return Residual(
        spark_sql,
        duckdb_sql,
        None if projection is None else tuple((out, source) for out, source in projection),
        why_spark,
        uses_now,
        foldings,
    )


def plan_from_json(value: PlanJson) -> Plan:
    """Decode a bound query."""
    functions = {each["id"]: Function.from_json(each) for each in value.get("functions", ())}
    joined = value.get("joined")
    schema = None if value["schema"] is None else decode_schema(value["schema"])
    return Plan(
        sql=value["sql"],
        scans=tuple(
            Scan(
                scan["relation"],
                Block(scan["stream"], tuple(factor_from_json(factor, functions) for factor in scan["factors"])),
                window_from_json(scan["window"]),
                tuple(scan["columns"]),
                as_of_from_json(scan.get("as_of")),
                sample_from_json(scan.get("sample")),
            )
            for scan in value["scans"]
        ),
        residual=_residual_from_json(value["residual"], schema),
        schema=schema,
        queries=tuple(value["queries"]),
        functions=tuple(functions.values()),
        joined=None
        if joined is None
        else JoinedForm(
            tuple(join_from_json(join, functions) for join in joined[1:]), _residual_from_json(joined[0], schema)
        ),
        tables=tuple(map(_table_from_json, value.get("tables", ()))),
        nows=tuple(as_of for each in value.get("nows", ()) if (as_of := as_of_from_json(each)) is not None),
    )
