"""Proof of the list: every entry, on every combination of types it accepts, gives in DuckDB what Spark gives.

Method: two implementations. Spark evaluates the text as it stands, DuckDB what `translate_query` makes of it, over one
table of edge cases and random values. Compared are the type, every value, NULLs, and which rows raise. Nothing here names
a function: a new entry of the list is tested by being there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from tests.conformance.calls import Case, cast_cases, scalar_cases
from tests.conformance.engines import connection, differs, in_duckdb, in_spark, zoned
from tests.conformance.values import naive, table

BATCH = 150


@pytest.fixture(scope="module")
def frame(spark: Any) -> Any:
    return spark.createDataFrame(table()).alias("v")


def problems(frame: Any, con: Any, cases: Sequence[Case]) -> list[str]:
    try:
        ours, theirs = in_duckdb(con, cases), in_spark(frame, cases)
    except Exception as error:
        if len(cases) == 1:
            return [f"{cases[0].label}: raised {str(error)[:300]}"]
        half = len(cases) // 2
        return problems(frame, con, cases[:half]) + problems(frame, con, cases[half:])
    given = table()
    found = []
    for i, case in enumerate(cases):
        expected = theirs.column(f"r{i}").combine_chunks()
        actual = ours.column(f"r{i}").combine_chunks()
        declared = case.translated.schema.field("r").type
        if expected.type != declared:
            found.append(f"{case.label}: Spark types it {expected.type}, we {declared}")
        elif actual.type != zoned(declared):
            found.append(f"{case.label}: DuckDB gives {actual.type} for {declared}")
        else:
            rows = differs(theirs.column(f"n{i}").combine_chunks(), ours.column(f"n{i}").combine_chunks())
            rows = rows or differs(expected, actual.cast(declared))
            if rows:
                found.append(f"{case.label}: {_shown(case, given, rows, expected, actual, theirs, ours, i)}")
    return found


def _shown(case: Case, given: pa.Table, rows: list[int], expected: pa.Array, actual: pa.Array, theirs: pa.Table, ours: pa.Table, i: int) -> str:
    names = [name for name in given.column_names if f"v.{name}" in case.spark.replace(")", " ").replace(",", " ").split()]
    at = rows[0]
    raised = [bool(t.column(f"n{i}")[at].as_py() is None) for t in (theirs, ours)]
    return (
        f"{len(rows)} rows; {case.spark} with { {n: given.column(n)[at].as_py() for n in names} }: "
        f"Spark {'raises' if raised[0] else repr(expected[at].as_py())}, DuckDB {'raises' if raised[1] else repr(actual[at].as_py())}"
    )


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
        print(f"\n{kind}: {len(cases) - len(found)} of {len(cases)} combinations equal")
    assert not found, "\n".join(found)
