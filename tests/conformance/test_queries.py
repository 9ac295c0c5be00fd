"""Whole queries in both engines: clauses, scopes, type widening and NULL ordering that no single expression shows."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.conformance.engines import zoned
from tests.conformance.values import naive

from ladle.schema import TIMESTAMP, type_name
from ladle.sql.conform import translate_query
from ladle.sql.script import bound_tree, only_chunk

QUERIES = [
    line
    for line in Path(__file__).with_name("queries.sql").read_text(encoding="utf-8").splitlines()
    if line and not line.startswith("--")
]


def _at(hour: int) -> datetime:
    return datetime(2024, 1, 1 + hour // 24, hour % 24, 30, tzinfo=UTC)


R = pa.table(
    {
        "id": pa.array(range(12), pa.int32()),
        "k": pa.array([1, 1, 2, 2, 3, 3, None, None, 4, 1, 2, 5], pa.int32()),
        "x": pa.array([0, 1, 2, 3, 4, 5, None, -1, 7, 2, 3, None], pa.int32()),
        "y": pa.array([0.0, -0.0, 1.5, None, float("nan"), float("nan"), float("inf"), 2.25, 1.5, -3.5, 0.25, 50.0]),
        "s": pa.array(["a", "ab", None, "b", "B", "", "a", "é", "ab ", "😀", "b", None]),
        "d": pa.array(
            [Decimal(n) / 4 if n is not None else None for n in (0, 1, 2, 3, 5, -7, None, 9, 11, 13, 40, 1)],
            pa.decimal128(10, 2),
        ),
        "at": pa.array([_at(3 * i) if i != 5 else None for i in range(12)], TIMESTAMP),
        "day": pa.array([date(2023, 12, 27 + i) if i < 5 else date(2024, 1, i - 4) for i in range(12)], pa.date32()),
        "b": pa.array([True, False, None, True, False, False, None, True, True, None, False, True]),
        "tags": pa.array([["a", None], [], None] * 4, pa.list_(pa.string())),
        "place": pa.array([{"at": 1, "name": "x"}, None] * 6, pa.struct([("at", pa.int32()), ("name", pa.string())])),
    }
)
S = pa.table(
    {
        "k": pa.array([1, 2, 2, None, 9], pa.int32()),
        "name": pa.array(["one", "two", "zwei", "none", None]),
        "z": pa.array([1, 2, 3, 4, None], pa.int64()),
    }
)


@pytest.fixture(scope="module")
def engines(spark: Any) -> Any:
    import duckdb

    con = duckdb.connect(config={"threads": "2", "enable_external_access": "false"})
    for name, given in (("r", R), ("s", S)):
        schema = ", ".join(f"{field.name} {type_name(field.type)}" for field in given.schema)
        spark.createDataFrame(given, schema).createOrReplaceTempView(name)
        con.register(f"given_{name}", naive(given))
        con.execute(f"CREATE TABLE {name} AS SELECT * FROM given_{name}")
    return spark, con


def _rows(given: pa.Table, *, ordered: bool) -> list[str]:
    rows = [repr([_plain(value) for value in row.values()]) for row in _listed(given)]
    return rows if ordered else sorted(rows)


def _listed(given: pa.Table) -> list[dict[int, Any]]:
    columns = [column.to_pylist() for column in given.columns]
    return [dict(enumerate(row)) for row in zip(*columns, strict=True)]


def _plain(value: Any) -> Any:
    # Twelve digits: sums of doubles depend on the order of rows.
    return float(f"{value:.12g}") if isinstance(value, float) else value


@pytest.mark.spark
@pytest.mark.parametrize("text", QUERIES, ids=range(len(QUERIES)))
def test_query(engines: Any, text: str) -> None:
    spark, con = engines
    translated = translate_query(bound_tree(only_chunk(text)), {"r": R.schema, "s": S.schema})
    theirs = spark.sql(text).toArrow()
    ours = con.sql(translated.sql).to_arrow_table()
    assert ours.schema.names == translated.schema.names == theirs.schema.names
    assert [field.type for field in theirs.schema] == [field.type for field in translated.schema]
    if not any(pa.types.is_nested(field.type) for field in ours.schema):
        assert [field.type for field in ours.schema] == [zoned(field.type) for field in translated.schema]
    ours = ours.cast(translated.schema)
    ordered = "ORDER BY" in text.rsplit(")", 1)[-1]
    assert _rows(ours, ordered=ordered) == _rows(theirs, ordered=ordered)
