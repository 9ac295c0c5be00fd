"""Functions of one string over all of Unicode: every code point alone, inside a word, and where words end."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
import sqlglot

from ladle.sql.conform import translate_query
from ladle.sql.conformant.functions import LIST
from ladle.sql.dialect import DIALECT
from tests.conformance.engines import connection, in_spark_frame

SHAPES = ("{}", "a{}b", "a{}Σ", "{}Σ", "aΣ{}", "aΣ{}b", "Σ{}Σ", " {} ")
NAMES = [f"s{i}" for i in range(len(SHAPES))]
SCHEMA = pa.schema([("n", pa.int32()), *((name, pa.string()) for name in NAMES)])


def alphabet() -> pa.Table:
    letters = [chr(c) for c in range(1, 0x20000) if not 0xD800 <= c <= 0xDFFF]
    columns = [pa.array([shape.format(letter) for letter in letters]) for shape in SHAPES]
    return pa.table([pa.array(range(len(letters)), pa.int32()), *columns], schema=SCHEMA)


@pytest.mark.spark
def test_every_character(spark: Any) -> None:
    given = alphabet()
    in_spark_frame(spark, given).createOrReplaceTempView("u")
    con = connection(given, "u")
    entries = [entry for entry in LIST if len(entry.params) == 1 and entry.params[0].types == (pa.string(),)]
    assert {"upper", "lower", "length", "trim"} <= {entry.name for entry in entries}
    found = []
    for entry in entries:
        for name, shape in zip(NAMES, SHAPES, strict=True):
            text = f"SELECT u.n AS n, {entry.spark.format(f'u.{name}')} AS r FROM u"
            translated = translate_query(sqlglot.parse_one(text, dialect=DIALECT), {"u": SCHEMA})
            theirs = spark.sql(text).toArrow().sort_by("n").column("r").to_pylist()
            ours = con.sql(translated.sql).to_arrow_table().sort_by("n").column("r").to_pylist()
            wrong = [i for i, (a, b) in enumerate(zip(theirs, ours, strict=True)) if a != b]
            if wrong:
                sample = [(given.column(name)[i].as_py(), theirs[i], ours[i]) for i in wrong[:3]]
                found.append(f"{entry.name} of {shape}: {len(wrong)} differ, as {sample!a}")
    assert not found, "\n".join(found)
