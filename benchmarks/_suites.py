"""The queries of `benchmarks/suites`, bound against the streams and tables that each file creates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ladle.errors import LadleError
from ladle.plan import Engine, Function, Plan
from ladle.schema import StreamSchema, TableSchema
from ladle.sql import parse_one, split_script
from ladle.sql.statement_types import CreateQuery, CreateStream, CreateTable

SUITES = {"TPC-H": "tpch.sql", "NEXMark": "nexmark.sql", "What people ask": "streams.sql"}


@dataclass
class SuiteNames:
    """What the binder asks of the streams and tables of one suite."""

    streams: dict[str, StreamSchema] = field(default_factory=dict)
    tables: dict[str, TableSchema] = field(default_factory=dict)

    def stream_schema(self, name: str) -> tuple[str, StreamSchema] | None:
        found = self.streams.get(name.lower())
        return None if found is None else (name.lower(), found)

    def table_schema(self, name: str) -> tuple[str, TableSchema] | None:
        found = self.tables.get(name.lower())
        return None if found is None else (name.lower(), found)

    def query_sql(self, name: str) -> tuple[str, str] | None:
        return None

    def inside(self, query: str) -> SuiteNames:
        return self

    def function(self, name: str) -> Function | None:
        return None

    def function_names(self) -> Iterable[str]:
        return ()

    def stream_names(self) -> Iterable[str]:
        return self.streams

    def table_names(self) -> Iterable[str]:
        return self.tables

    def query_names(self) -> Iterable[str]:
        return ()


@dataclass(frozen=True)
class Suite:
    """The queries of one file by name; one that is refused has its error instead of a plan."""

    names: SuiteNames
    plans: Mapping[str, Plan | LadleError]


def load(file: str) -> Suite:
    names, plans = SuiteNames(), dict[str, Plan | LadleError]()
    text = (Path(__file__).parent / "suites" / file).read_text(encoding="utf-8")
    for statement in split_script(text):
        try:
            parsed = parse_one(statement, names)
        except LadleError as error:
            plans[_name(statement)] = error
            continue
        match parsed:
            case CreateStream():
                names.streams[parsed.name.lower()] = parsed.schema
            case CreateTable():
                names.tables[parsed.name.lower()] = parsed.schema
            case CreateQuery():
                plans[_name(statement)] = parsed.plan
    return Suite(names, plans)


def needs(plan: Plan | LadleError) -> tuple[str, str]:
    """What a query needs (`nothing`, `DuckDB`, `Spark`, `refused`), and why if it is one of the last two."""
    if isinstance(plan, LadleError):
        return "refused", plan.message
    match plan.residual.engine:
        case Engine.PROJECTION:
            return "nothing", ""
        case Engine.DUCKDB:
            return "DuckDB", ""
        case Engine.SPARK:
            return "Spark", plan.residual.why_spark or ""


def _name(statement: str) -> str:
    words = statement.upper().split()
    return statement.split()[words.index("QUERY") + 1]
