"""Proof of the list: every entry, on every combination of types it accepts, gives in DuckDB what Spark gives.

Method: two implementations. Spark evaluates the text as it stands, DuckDB what `translate_query` makes of it, over one
table of edge cases and random values. Compared are the type, every value, NULLs, and which rows raise. Nothing here
names a function: a new entry of the list is tested by being there.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.conformance.calls import Case, cast_cases, scalar_cases
from tests.conformance.engines import connection, differs, in_duckdb, in_spark, in_spark_frame, split, zoned
from tests.conformance.values import naive, table

BATCH = 150


@pytest.fixture(scope="module")
def frame(spark: Any) -> Any:
    return in_spark_frame(spark, table()).alias("v")


def problems(frame: Any, con: Any, cases: Sequence[Case]) -> list[str]:
    try:
        ours, theirs = in_duckdb(con, cases), in_spark(frame, cases)
    except Exception as error:
        if len(cases) == 1:
            return [f"{cases[0].label}: raised {str(error)[:300]}"]
        half = len(cases) // 2
        return problems(frame, con, cases[:half]) + problems(frame, con, cases[half:])
    return [problem for i, case in enumerate(cases) if (problem := _problem(case, theirs, ours, i)) is not None]


def _problem(case: Case, theirs: pa.Table, ours: pa.Table, index: int) -> str | None:
    expected, spark_raised = split(theirs, index, may_raise=case.translated.may_raise)
    actual, duckdb_raised = split(ours, index, may_raise=case.translated.may_raise)
    declared = case.translated.schema.field("r").type
    if expected.type != declared:
        return f"{case.label}: Spark types it {expected.type}, we {declared}"
    if actual.type != zoned(declared):
        return f"{case.label}: DuckDB gives {actual.type} for {declared}"
    rows = differs(spark_raised, duckdb_raised) or differs(expected, actual.cast(declared))
    if not rows:
        return None
    at = rows[0]
    given = table()
    named = {
        name: given.column(name)[at].as_py() for name in given.column_names if re.search(rf"\b{name}\b", case.spark)
    }
    spark = "raises" if spark_raised[at].as_py() else str(pc.cast(expected[at : at + 1], pa.string())[0])
    duck = "raises" if duckdb_raised[at].as_py() else str(pc.cast(actual[at : at + 1], pa.string())[0])
    return f"{case.label}: {len(rows)} rows, {case.spark} of {named}: Spark {spark}, DuckDB {duck}"


@pytest.mark.spark
@pytest.mark.parametrize("kind", ["functions", "casts"])
def test_list_is_equal(kind: str, frame: Any, record_property: Any, capsys: Any) -> None:
    cases = scalar_cases() if kind == "functions" else cast_cases()
    con = connection(naive(table()))
    found = []
    for start in range(0, len(cases), BATCH):
        found += problems(frame, con, cases[start : start + BATCH])
    record_property(f"proven_{kind}", len(cases))
    with capsys.disabled():
        sys.stdout.write(f"\n{kind}: {len(cases) - len(found)} of {len(cases)} combinations equal\n")
    assert not found, "\n".join(found)
