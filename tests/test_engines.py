"""The suites of `benchmarks/suites`: which engine they need, and that DuckDB's answers to them are Spark's.

Method: two implementations. Rows are random, from few values, so that filters and joins keep some; both engines get the
same, through the factors of each scan.
"""

from __future__ import annotations

import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from benchmarks._suites import SUITES, Suite, load, needs
from benchmarks.engines import PAGE, lines
from tests.conformance.values import naive

from ladle.errors import LadleError
from ladle.plan import Plan
from ladle.schema import type_name
from ladle.sql.ordered_aggregates import for_spark

ROWS = 150
FEW = 8
"""Rows of what others refer to by keys: with more of them alike, a join of eight relations would never end."""
COMPARED = 30
"""Queries that are compared in one run, picked anew in each; the seed is printed."""

_WORDS = {
    "p_type": ("ECONOMY ANODIZED STEEL", "PROMO BRASS", "SMALL BRASS", "MEDIUM POLISHED TIN"),
    "p_brand": ("Brand#12", "Brand#23", "Brand#45"),
    "p_container": ("SM BOX", "MED BOX", "LG BOX"),
    "p_name": ("forest green", "blue", "forest red"),
    "n_name": ("FRANCE", "GERMANY", "BRAZIL", "CANADA", "SAUDI ARABIA"),
    "r_name": ("EUROPE", "ASIA", "AMERICA"),
    "c_mktsegment": ("BUILDING", "AUTOMOBILE"),
    "c_phone": ("13-1", "31-2", "99-3"),
    "o_orderstatus": ("F", "O"),
    "o_orderpriority": ("1-URGENT", "2-HIGH", "5-LOW"),
    "o_comment": ("special requests", "plain"),
    "l_returnflag": ("R", "N"),
    "l_shipmode": ("MAIL", "SHIP", "AIR"),
    "l_shipinstruct": ("DELIVER IN PERSON", "NONE"),
    "state": ("OR", "CA", "NY"),
    "channel": ("Apple", "google", "other"),
    "url": ("https://a.b/x/y/z?channel_id=7", "https://a.b/shop"),
    "kind": ("view", "cart", "buy"),
    "side": ("buy", "sell"),
    "page": ("/a/1", "/b/2", "/Shop/3", "/robots.txt", "/x.xml"),
    "referrer": ("https://a.org/x", "https://b.org/y/z", ""),
    "ip": ("10.0.0.1", "10.1.2.3", "192.168.0.7"),
    "tags": ("a,b", "b", ""),
    "body": ('{"city": "Kiel"}', '{"city": "Bonn"}'),
}
_KEYS = ("p_partkey", "s_suppkey", "c_custkey", "n_nationkey", "r_regionkey", "key")
_NUMBERS = {
    "l_discount": (Decimal("0.04"), Decimal("0.06"), Decimal("0.10")),
    "p_size": (3, 9, 15),
    "category": (10, 11),
    "status": (200, 401, 404, 500),
    "ms": tuple(range(0, 1100, 37)),
    "price": (50, 150, 12_345, 2_000_000),
    "amount": (0.5, 7.25, 100.0),
    "epoch_ms": (1_767_261_600_123, 1_767_265_261_500),
}


def _value(name: str, type_: pa.DataType, source: random.Random) -> Any:
    if source.random() < 0.03 and name != "device":  # any_value takes NULL or not, as it comes
        return None
    if pa.types.is_string(type_):
        return source.choice(_WORDS.get(name, ("ab", "Cd", "b c")))
    if pa.types.is_boolean(type_):
        return source.random() < 0.8
    if pa.types.is_date(type_):
        return date(1993, 6, 1) + timedelta(days=source.randrange(1900))
    if pa.types.is_floating(type_):
        return source.choice(_NUMBERS.get(name, (source.uniform(15, 30), 0.05, 20.5)))
    number = source.choice(_NUMBERS.get(name, tuple(range(1, 9))))
    return Decimal(number).quantize(Decimal(1).scaleb(-type_.scale)) if pa.types.is_decimal(type_) else number


def _table(schema: pa.Schema, source: random.Random) -> pa.Table:
    columns = []
    rows = FEW if schema.names[0] in _KEYS else ROWS
    for field in schema:
        if pa.types.is_timestamp(field.type):
            # no two alike, so that the last one is determined
            start = datetime(2026, 1, 1, 10, tzinfo=UTC)
            moments = source.sample(range(10_800), rows)
            columns.append(pa.array([start + timedelta(seconds=each) for each in moments], field.type))
        elif field.name in ("id", "o_orderkey", *_KEYS):
            columns.append(pa.array(range(1, rows + 1), field.type))
        else:
            columns.append(pa.array([_value(field.name, field.type, source) for _ in range(rows)], field.type))
    return pa.table(columns, schema=schema)


def _data(suite: Suite, source: random.Random) -> dict[str, pa.Table]:
    schemas = {name: schema.arrow for name, schema in (*suite.names.streams.items(), *suite.names.tables.items())}
    return {name: _table(schema, source) for name, schema in schemas.items()}


def _in_duckdb(con: duckdb.DuckDBPyConnection, plan: Plan) -> pa.Table:
    for scan in plan.scans:
        where = " AND ".join(f"({factor.duckdb})" for factor in scan.block.factors) or "TRUE"
        names = ", ".join(f'"{name}"' for name in scan.columns)
        rows = f"SELECT {names} FROM {scan.block.stream} WHERE {where}"
        con.execute(f'CREATE OR REPLACE TEMP TABLE "{scan.relation}" AS {rows}')
    for table in plan.tables:
        names = ", ".join(f'"{name}"' for name in table.columns)
        con.execute(f'CREATE OR REPLACE TEMP TABLE "{table.relation}" AS SELECT {names} FROM {table.table}')
    assert plan.residual.duckdb_sql is not None
    return con.sql(plan.residual.duckdb_sql).to_arrow_table()


def _in_spark(spark: Any, plan: Plan) -> pa.Table:
    for scan in plan.scans:
        where = " AND ".join(f"({factor.sql})" for factor in scan.block.factors) or "true"
        names = ", ".join(f"`{name}`" for name in scan.columns)
        spark.sql(f"SELECT {names} FROM {scan.block.stream} WHERE {where}").createOrReplaceTempView(scan.relation)
    for table in plan.tables:
        names = ", ".join(f"`{name}`" for name in table.columns)
        spark.sql(f"SELECT {names} FROM {table.table}").createOrReplaceTempView(table.relation)
    return spark.sql(for_spark(plan.residual.spark_sql)).toArrow()


def _rows(given: pa.Table) -> list[str]:
    columns = [column.to_pylist() for column in given.columns]
    # Ten digits: sums of doubles depend on the order of rows.
    shown = [[float(f"{v:.10g}") if isinstance(v, float) else v for v in column] for column in columns]
    return sorted(map(repr, zip(*shown, strict=True)))


def test_nine_tenths_need_no_spark() -> None:
    engines = [needs(plan)[0] for file in SUITES.values() for plan in load(file).plans.values()]
    assert len(engines) > 120
    assert sum(engine in ("nothing", "DuckDB") for engine in engines) >= 0.9 * len(engines)
    assert "refused" not in engines


def test_the_page_is_what_is_counted() -> None:
    page = (Path(__file__).parent.parent / PAGE).read_text(encoding="utf-8")
    assert "\n".join(lines()) in page, "python -m benchmarks engines --page docs/benchmarks/engines.md writes it anew"


@pytest.mark.spark
def test_answers_are_those_of_spark(spark: Any, record_property: Any) -> None:
    seed = random.SystemRandom().randrange(1 << 32)
    record_property("seed", seed)
    source = random.Random(seed)
    plans = [(file, name, plan) for file in SUITES.values() for name, plan in load(file).plans.items()]
    ours = [each for each in plans if not isinstance(each[2], LadleError) and each[2].residual.duckdb_sql is not None]
    picked = sorted(source.sample(ours, COMPARED), key=lambda each: each[:2])
    problems = compare(spark.newSession(), picked, source)
    assert not problems, f"seed {seed}: {problems}"


def compare(spark: Any, picked: list[tuple[str, str, Any]], source: random.Random) -> list[str]:
    """What differs between the engines."""
    spark.conf.set("spark.sql.shuffle.partitions", "1")
    spark.conf.set("spark.sql.codegen.wholeStage", "false")
    spark.conf.set("spark.sql.adaptive.enabled", "false")
    problems = []
    for file in SUITES.values():
        con = duckdb.connect(config={"threads": "2", "enable_external_access": "false"})
        data = _data(load(file), source)
        for name, given in data.items():
            schema = ", ".join(f"`{field.name}` {type_name(field.type)}" for field in given.schema)
            spark.createDataFrame(given, schema).createOrReplaceTempView(name)
            con.register("given", naive(given))
            con.execute(f"CREATE TABLE {name} AS SELECT * FROM given")
        for of, name, plan in picked:
            if of == file:
                ours, theirs = _in_duckdb(con, plan).cast(plan.schema), _in_spark(spark, plan)
                if theirs.schema.names != ours.schema.names or _rows(ours) != _rows(theirs):
                    problems.append(f"{of} {name}: {_rows(ours)[:2]} for Spark's {_rows(theirs)[:2]}")
    return problems
