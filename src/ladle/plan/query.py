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
from typing import Any

import pyarrow as pa

from ladle.plan.aggregate import Aggregate
from ladle.plan.function import Function
from ladle.plan.join import Join, join_from_json, join_to_json
from ladle.plan.ranges import Ranges
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
        return frozenset(name for factor in self.factors for name in factor.columns)

    @property
    def calling(self) -> tuple[Factor, ...]:
        """The factors that call functions."""
        return calling(self.factors)

    @property
    def without_calls(self) -> Block:
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


@dataclass(frozen=True)
class TableScan:
    """A table that the residual reads, as it stands when the answer is read, under the name `relation`."""

    relation: str
    table: str
    columns: tuple[str, ...]
    """Those that the residual needs, in the table's order."""


@dataclass(frozen=True)
class Residual:
    """The statement over the scans' relations. `:now` (Spark) and `$now` (DuckDB) stand for NOW when `uses_now`."""

    spark_sql: str
    duckdb_sql: str | None
    projection: tuple[tuple[str, str], ...] | None = None
    """(output name, physical column) pairs when the residual only picks columns of its one scan."""
    why_spark: str | None = None
    """What keeps DuckDB from running it, for people."""
    uses_now: bool = False
    aggregate: Aggregate | None = None
    """What it folds, when that is all it does and partial aggregates can answer it."""

    @cached_property
    def keeps_names(self) -> bool:
        """Whether it picks columns and gives none of them another name."""
        return self.projection is not None and all(name == source for name, source in self.projection)

    @cached_property
    def engine(self) -> Engine:
        if self.projection is not None:
            return Engine.PROJECTION
        return Engine.DUCKDB if self.duckdb_sql is not None else Engine.SPARK


@dataclass(frozen=True)
class Joined:
    """The same query over joins that are shared: what they replace of its scans, and the statement over the rest."""

    joins: tuple[Join, ...]
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
    joined: Joined | None = None
    """Where streams are joined by comparisons; the residual itself is for what that can't answer."""
    tables: tuple[TableScan, ...] = ()
    """Tables that it reads, each once; they can't be dropped before it."""

    @cached_property
    def streams(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(scan.block.stream for scan in self.scans))


def factor_to_json(factor: Factor) -> list[Any]:
    value: list[Any] = [factor.sql, factor.duckdb, list(factor.columns)]
    if factor.functions:
        return [*value, None, [function.id for function in factor.functions]]
    return value if factor.ranges is None else [*value, factor.ranges.to_json()]


def factor_from_json(value: list[Any], functions: Mapping[int, Function]) -> Factor:
    sql, duckdb, columns, *more = value
    ranges, called = more if len(more) == 2 else (more[0] if more else None, ())
    return Factor(
        sql,
        duckdb,
        tuple(columns),
        None if ranges is None else Ranges.from_json(ranges),
        tuple(functions[number] for number in called),
    )


def plan_to_json(plan: Plan) -> dict[str, Any]:
    joined = plan.joined
    return {
        "sql": plan.sql,
        "scans": [
            {
                "relation": scan.relation,
                "stream": scan.block.stream,
                "factors": [factor_to_json(factor) for factor in scan.block.factors],
                "window": window_to_json(scan.window),
                "columns": list(scan.columns),
            }
            for scan in plan.scans
        ],
        "residual": _residual_to_json(plan.residual),
        "schema": None if plan.schema is None else encode_schema(plan.schema),
        "queries": list(plan.queries),
        **({"functions": [function.to_json() for function in plan.functions]} if plan.functions else {}),
        **(
            {"joined": [_residual_to_json(joined.residual), *(join_to_json(join) for join in joined.joins)]}
            if joined is not None
            else {}
        ),
        **({"tables": [[t.relation, t.table, list(t.columns)] for t in plan.tables]} if plan.tables else {}),
    }


def _residual_to_json(residual: Residual) -> list[Any]:
    return [
        residual.spark_sql,
        residual.duckdb_sql,
        None if residual.projection is None else [list(pair) for pair in residual.projection],
        residual.why_spark,
        residual.uses_now,
        *(() if residual.aggregate is None else (residual.aggregate.to_json(),)),
    ]


def _residual_from_json(value: list[Any]) -> Residual:
    spark_sql, duckdb_sql, projection, why_spark, uses_now, *aggregate = value
    return Residual(
        spark_sql,
        duckdb_sql,
        None if projection is None else tuple((out, source) for out, source in projection),
        why_spark,
        uses_now,
        Aggregate.from_json(aggregate[0]) if aggregate else None,
    )


def plan_from_json(value: dict[str, Any]) -> Plan:
    functions = {each["id"]: Function.from_json(each) for each in value.get("functions", ())}
    joined = value.get("joined")
    return Plan(
        sql=value["sql"],
        scans=tuple(
            Scan(
                scan["relation"],
                Block(scan["stream"], tuple(factor_from_json(factor, functions) for factor in scan["factors"])),
                window_from_json(scan["window"]),
                tuple(scan["columns"]),
            )
            for scan in value["scans"]
        ),
        residual=_residual_from_json(value["residual"]),
        schema=None if value["schema"] is None else decode_schema(value["schema"]),
        queries=tuple(value["queries"]),
        functions=tuple(functions.values()),
        joined=None
        if joined is None
        else Joined(tuple(join_from_json(join, functions) for join in joined[1:]), _residual_from_json(joined[0])),
        tables=tuple(TableScan(name, table, tuple(columns)) for name, table, columns in value.get("tables", ())),
    )
