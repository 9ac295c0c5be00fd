"""Proof of the list's aggregates: over groups with NULLs and edge cases, plain, DISTINCT, with FILTER and OVER frames.

Sums and averages of doubles depend on the order of rows, in Spark too (partitions, shuffles): they are compared to
within 1e-9 of each other, on values that don't cancel. Which of 0.0 and -0.0 is the smallest is as undetermined: zeros
are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from tests.conformance.calls import Case, aggregate_cases, translated
from tests.conformance.engines import connection, differs, in_spark_frame, zoned
from tests.conformance.values import naive, table

from ladle.sql.conform import NotConformant

FRAMES = (
    "OVER (PARTITION BY v.k)",
    "OVER (PARTITION BY v.k ORDER BY v.n)",
    "OVER (PARTITION BY v.k ORDER BY v.n DESC ROWS BETWEEN 2 PRECEDING AND 1 FOLLOWING)",
)

AT_ONCE = 100
"""Aggregates in one statement."""

SPREADS = ("corr", "stddev", "stddev_samp", "stddev_pop", "std", "variance", "var_samp", "var_pop")
"""Aggregates in which values cancel: of numbers below a thousand, how near they are is what counts."""


def small() -> pa.Table:
    """Values whose sums neither overflow nor cancel: what raises is tested by `test_overflow`."""
    given = table()
    arrays = []
    for field in given.schema:
        array = given.column(field.name).combine_chunks()
        if pa.types.is_integer(field.type) and field.name not in ("k", "n"):
            array = pa.array([None if v is None else abs(v) % 100 for v in array.to_pylist()], field.type)
        elif pa.types.is_floating(field.type):
            finite = [
                None if v is None else abs(v) if abs(v) < 1e6 else v % 1e3 if v == v and abs(v) < 1e300 else 1.5
                for v in array.to_pylist()
            ]
            array = pa.array(finite, field.type)
        elif pa.types.is_decimal(field.type):
            array = pa.array([None if v is None else v % 1000 for v in array.to_pylist()], field.type)
        arrays.append(array)
    return pa.table(arrays, schema=given.schema)


def compare(spark: Any, con: Any, cases: Sequence[Case], clause: str, order: str) -> list[str]:
    """Some at a time: what Spark takes to plan a statement grows with the square of its aggregates."""
    at_once = [cases[first : first + AT_ONCE] for first in range(0, len(cases), AT_ONCE)]
    return [each for some in at_once for each in compare_some(spark, con, some, clause, order)]


def compare_some(spark: Any, con: Any, cases: Sequence[Case], clause: str, order: str) -> list[str]:
    texts = ", ".join(f"{case.spark} AS r{i}" for i, case in enumerate(cases))
    theirs = spark.sql(f"SELECT {order} AS o, {texts} FROM v {clause} ORDER BY o").toArrow()
    ours_texts = ", ".join(f"{case.expression} AS r{i}" for i, case in enumerate(cases))
    ours = con.sql(f"SELECT {order} AS o, {ours_texts} FROM v {clause} ORDER BY o").to_arrow_table()
    found = []
    for i, case in enumerate(cases):
        expected, actual = theirs.column(f"r{i}").combine_chunks(), ours.column(f"r{i}").combine_chunks()
        declared = case.translated.schema.field("r").type
        if expected.type != declared or actual.type != zoned(declared):
            found.append(f"{case.label}: Spark {expected.type}, we {declared}, DuckDB {actual.type}")
            continue
        approximate = case.entry is not None and case.entry.approximate
        near = 1e-6 if case.entry is not None and case.entry.name in SPREADS else 0
        rows = differs(expected, actual.cast(declared), approximate=approximate, near=near, signed_zero=False)
        if rows:
            found.append(f"{case.label}: group {rows[0]}: Spark {expected[rows[0]]}, DuckDB {actual[rows[0]]}")
    return found


@pytest.fixture(scope="module", params=["edges", "small"])
def engines(request: Any, spark: Any) -> Any:
    given = table() if request.param == "edges" else small()
    in_spark_frame(spark, given).createOrReplaceTempView("v")
    return request.param, spark, connection(naive(given))


def _sums(case: Case) -> bool:
    return case.entry is not None and case.entry.name in ("sum", "avg")


def _spreads(case: Case) -> bool:
    return case.entry is not None and case.entry.name in SPREADS


@pytest.mark.spark
def test_groups(engines: Any, record_property: Any) -> None:
    kind, spark, con = engines
    cases = [case for case in aggregate_cases() if kind == "small" or not _sums(case)]
    # Apart: Spark gives each row once for each DISTINCT to all aggregates of a statement.
    apart = ([case for case in cases if ("DISTINCT" in case.spark) is distinct] for distinct in (False, True))
    found = [each for part in apart for each in compare(spark, con, part, "GROUP BY v.k", "v.k")]
    record_property(f"proven_aggregates_{kind}", len(cases))
    assert not found, "\n".join(found)


@pytest.mark.spark
@pytest.mark.parametrize("frame", FRAMES)
def test_windows(engines: Any, frame: str) -> None:
    kind, spark, con = engines
    cases = []
    for case in aggregate_cases():
        if "DISTINCT" in case.spark or "FILTER" in case.spark or (kind == "edges" and (_sums(case) or _spreads(case))):
            continue
        text = f"{case.spark} {frame}"
        try:
            cases.append(Case(f"{case.label} {frame}", text, translated(text), case.entry))
        except NotConformant:
            continue
    for name in ("row_number()", "rank()", "dense_rank()", "lag(v.c3c)", "lead(v.c13c, 2)", "lag(v.c4c, 1, 7)"):
        if "ROWS" not in frame and "ORDER" in frame:
            text = f"{name} {frame}"
            cases.append(Case(text, text, translated(text)))
    found = compare(spark, con, cases, "", "v.n")
    assert len(cases) > 40
    assert not found, "\n".join(found)


@pytest.mark.spark
@pytest.mark.parametrize("expression", ["sum(v.c4a)", "sum(DISTINCT v.c4a)"])
def test_overflow_raises(spark: Any, expression: str) -> None:
    rows = pa.table({"c4a": pa.array([(1 << 63) - 1, 1], pa.int64())})
    in_spark_frame(spark, rows).createOrReplaceTempView("v")
    with pytest.raises(Exception, match="OVERFLOW"):
        spark.sql(f"SELECT {expression} FROM v").collect()
    con = connection(rows)
    with pytest.raises(Exception, match="out of range"):
        con.sql(translated(expression).sql).fetchall()
