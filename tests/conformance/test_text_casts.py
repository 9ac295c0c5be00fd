"""Texts cast to other types: three implementations, of which Spark is right.

DuckDB reads texts that are in columns (`text_casts`), Python those that are literals (`readable`). The texts are edge
cases, and random ones made of the pieces that the formats consist of.
"""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from tests.conformance.engines import connection, differs, in_spark_frame
from tests.spark.test_register import TEXTS

from ladle.schema import TIMESTAMP, TIMESTAMP_NTZ, type_name
from ladle.sql.conformant.readable import Unreadable, read
from ladle.sql.conformant.spark_types import DATE, NotConformant, is_moment
from ladle.sql.conformant.text_casts import FROM_TEXT, tried

PIECES = (
    *("0", "1", "5", "12", "2024", "0099", "31", "02", "29", "9" * 18, "9223372036854775807", "127", "32768"),
    *("+", "-", ".", ":", "e", "E", "e5", "e-3", "f", "D", " ", "\t", "\x7f", "\x00", "\u00a0", "T", "Z", "/", "_"),
    *("true", "F", "yes", "nO", "inf", "Infinity", "NaN", "x", "é", "10:00:00", ".123456", "+01:00", " UTC", "-02-30"),
    *("2024-02-29", "2023-12-31", "\u0665", "'", "\\"),
)
MORE = (
    *("1e400", "-1e400", "1e-400", "4.9e-324", "2.4703282292062328e-324", "1.7976931348623159e308", "1_000"),
    *("16777217", "0.1", "3.4028236e38", "1e39", "00000000000000000000000005", "-0", "-0.0", "+.5e+3d", "5.e3"),
    *(
        "9" * 40,
        "0." + "3" * 40,
        "128",
        "-128",
        "-129",
        "32767",
        "2147483648",
        "-2147483648",
        "ye\u017f",
        "\x7f5",
        "5\x7f",
    ),
    *(
        "\x7f1.5",
        "1.5\x7f",
        " nan ",
        "\x7fnan",
        "-nan",
        "- 5",
        "5-",
        "2024-00-10",
        "2024-1-",
        "99999-01-01",
        "2024-01-01\n",
    ),
    *("-2024-01-01", "+2024-1-1T", "20240101", "2024-02-29x", "1900-02-29", "2000-02-29", "0000-02-29", "-0001-12-31"),
    *(
        "2024-01-31 10:00:00-18:00",
        "2024-01-31 10:00:00+18:01",
        "2024-01-31 10:00:00 UTC+1:30",
        "2024-01-31 10:00:00.1234567",
    ),
)
TARGETS = (*FROM_TEXT, pa.decimal128(10, 2), pa.decimal128(38, 18), TIMESTAMP, TIMESTAMP_NTZ)


def texts() -> list[str]:
    source = random.Random(14)
    made = ("".join(source.choices(PIECES, k=source.randint(1, 4))) for _ in range(3_000))
    return list(dict.fromkeys((*TEXTS, *MORE, *made)))


@pytest.fixture(scope="module")
def in_spark(spark: Any) -> pa.Table:
    given = pa.table({"s": texts(), "n": range(len(texts()))})
    casts = [f"try_cast(s AS {type_name(target)}) AS c{i}" for i, target in enumerate(TARGETS)]
    return in_spark_frame(spark, given).selectExpr("n", "s", *casts).orderBy("n").toArrow()


@pytest.mark.spark
@pytest.mark.parametrize("target", FROM_TEXT, ids=type_name)
def test_texts_of_columns(target: pa.DataType, in_spark: pa.Table) -> None:
    given = pa.table({"s": texts(), "n": range(len(texts()))})
    ours = connection(given).sql(f"SELECT {tried('s', target)} AS r FROM v ORDER BY n").to_arrow_table()
    expected = in_spark.column(f"c{TARGETS.index(target)}").combine_chunks()
    rows = differs(_numbers(expected), _numbers(ours.column("r").combine_chunks().cast(target)))
    hexadecimal = {row for row in rows if "0x" in texts()[row].lower()}
    wrong = [
        f"{texts()[row]!r}: {ours.column('r')[row]}, in Spark {expected[row]}" for row in rows if row not in hexadecimal
    ]
    assert not wrong, "\n".join(wrong[:20])
    assert sum(expected.is_valid().to_pylist()) > 20


@pytest.mark.spark
@pytest.mark.parametrize("target", TARGETS, ids=type_name)
def test_texts_of_literals(target: pa.DataType, in_spark: pa.Table) -> None:
    expected = _numbers(in_spark.column(f"c{TARGETS.index(target)}").combine_chunks()).to_pylist()
    wrong = []
    for text, value in zip(texts(), expected, strict=True):
        try:
            found = read(text, target)
        except Unreadable:
            found = None
        except NotConformant:
            continue
        if repr(found) != repr(value) and found != value:
            wrong.append(f"{text!r}: {found!r}, in Spark {value!r}")
    assert not wrong, "\n".join(wrong[:20])


def _numbers(array: pa.Array) -> pa.Array:
    """Dates and times as numbers: Python has none before the year 1."""
    if array.type == DATE:
        return array.cast(pa.int32())
    return array.cast(pa.int64()) if is_moment(array.type) else array
