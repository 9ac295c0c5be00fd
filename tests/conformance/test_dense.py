"""Where edges are not enough: strings over all of Unicode (alone, in words, at their ends), and rounding of doubles."""

from __future__ import annotations

import math
import random
import unicodedata
from typing import Any

import pyarrow as pa
import pytest
import sqlglot
from tests.conformance.engines import connection, differs, in_spark_frame

from ladle.sql.conform import translate_query
from ladle.sql.conformant.the_list import LIST
from ladle.sql.dialect import DIALECT

SHAPES = ("{}", "a{}b", "a{}Σ", "{}Σ", "aΣ{}", "aΣ{}b", "Σ{}Σ", " {} ")
NAMES = [f"s{i}" for i in range(len(SHAPES))]
SCHEMA = pa.schema([("n", pa.int32()), *((name, pa.string()) for name in NAMES)])


def alphabet(*, whole: bool) -> pa.Table:
    """All that lower and upper case, spaces or combining make different, and of the rest, tens of thousands of letters
    and signs without case, one in sixteen; or everything.
    """
    letters = [
        chr(c)
        for c in range(1, 0x20000)
        if unicodedata.category(chr(c)) != "Cs"
        and (whole or c < 0x3000 or c % 16 == 0 or unicodedata.category(chr(c)) not in ("Lo", "So", "Co", "Cn"))
    ]
    columns = [pa.array([shape.format(letter) for letter in letters]) for shape in SHAPES]
    return pa.table([pa.array(range(len(letters)), pa.int32()), *columns], schema=SCHEMA)


@pytest.mark.spark
@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.soak)])
def test_every_character(spark: Any, *, whole: bool) -> None:
    given = alphabet(whole=whole)
    in_spark_frame(spark, given).createOrReplaceTempView("u")
    entries = [entry for entry in LIST if len(entry.params) == 1 and entry.params[0].types == (pa.string(),)]
    assert {"upper", "lower", "length", "trim"} <= {entry.name for entry in entries}
    # Only in lower does one letter of a word have an influence on another.
    calls = [(entry, i) for entry in entries for i in range(len(SHAPES)) if entry.name == "lower" or i < 2]
    columns = ", ".join(f"{entry.spark.format(f'u.{NAMES[i]}')} AS r{at}" for at, (entry, i) in enumerate(calls))
    text = f"SELECT u.n AS n, {columns} FROM u"
    translated = translate_query(sqlglot.parse_one(text, dialect=DIALECT), {"u": SCHEMA})
    theirs = spark.sql(text).toArrow().sort_by("n")
    ours = connection(given, "u").sql(translated.sql).to_arrow_table().sort_by("n")
    found = []
    for at, (entry, i) in enumerate(calls):
        wrong = differs(theirs.column(f"r{at}").combine_chunks(), ours.column(f"r{at}").combine_chunks())
        found += [f"{entry.name} of {given.column(NAMES[i])[row].as_py()!a}" for row in wrong[:3]]
    assert not found, "\n".join(found)


@pytest.mark.spark
def test_round_of_doubles(spark: Any) -> None:
    """Ties as people write them (1.005, 2.675) and their neighbours: the digits of the shortest text decide."""
    source = random.Random(7)
    values = [sign * n / 1000 for n in range(0, 20_000, 5) for sign in (1, -1)]
    values += [round(source.uniform(-1e6, 1e6), source.randrange(12)) for _ in range(20_000)]
    values += [math.nextafter(value, source.choice((-math.inf, math.inf))) for value in values[:8_000]]
    values += [source.gauss(0, 10.0 ** source.randrange(-12, 17)) for _ in range(20_000)]
    given = pa.table({"n": pa.array(range(len(values)), pa.int32()), "x": pa.array(values, pa.float64())})
    in_spark_frame(spark, given).createOrReplaceTempView("u")
    columns = ", ".join(f"round(u.x, {digits}) AS r{digits}" for digits in range(7))
    text = f"SELECT u.n AS n, {columns} FROM u"
    translated = translate_query(sqlglot.parse_one(text, dialect=DIALECT), {"u": given.schema})
    theirs = spark.sql(text).toArrow().sort_by("n")
    ours = connection(given, "u").sql(translated.sql).to_arrow_table().sort_by("n")
    for digits in range(7):
        name = f"r{digits}"
        wrong = differs(theirs.column(name).combine_chunks(), ours.column(name).combine_chunks())
        assert not wrong, (
            digits,
            len(wrong),
            values[wrong[0]],
            theirs.column(name)[wrong[0]],
            ours.column(name)[wrong[0]],
        )
