"""Operators over every pair of types: what Spark refuses is refused while binding, and nothing else is.

Method: two implementations. Spark analyses each text that we refuse by itself, and all the others in one query, whose
types must be those that we give them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

import pyarrow as pa
import pytest
import sqlglot

from ladle.errors import TypeMismatch
from ladle.schema import TIMESTAMP, TIMESTAMP_NTZ, type_name
from ladle.sql.conform import NotConformant, translate_query
from ladle.sql.dialect import DIALECT

SCHEMA = pa.schema(
    [
        ("b", pa.bool_()),
        ("t", pa.int8()),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("g", pa.float64()),
        ("d", pa.decimal128(5, 2)),
        ("s", pa.string()),
        ("x", pa.binary()),
        ("day", pa.date32()),
        ("at", TIMESTAMP),
        ("ntz", TIMESTAMP_NTZ),
        ("arr", pa.list_(pa.int32())),
        ("st", pa.struct([("a", pa.int32())])),
        ("m", pa.map_(pa.string(), pa.int32())),
    ]
)
OPERATORS = (
    "{0} = {1}",
    "{0} < {1}",
    "{0} IN ({1})",
    "{0} BETWEEN {1} AND {1}",
    "{0} + {1}",
    "{0} - {1}",
    "{1} - {0}",
    "{0} * {1}",
    "{0} / {1}",
    "{0} % {1}",
    "{0} div {1}",
    "{0} & {1}",
    "{0} AND {1}",
    "coalesce({0}, {1})",
    "CASE WHEN v.b THEN {0} ELSE {1} END",
    "greatest({0}, {1})",
    "nullif({0}, {1})",
)
OTHERS = (
    "NOT v.s",
    "NOT v.i",
    "- v.s",
    "v.i IN (1, v.s, v.g)",
    "v.s IN (v.i, v.b)",
    "if(v.b, v.s, v.l)",
    "v.b OR v.s",
    "v.s AND v.s AND v.b",
)
STATEMENTS = (
    "SELECT v.b AS r FROM v UNION ALL SELECT v.i AS r FROM v",
    "SELECT v.day AS r FROM v EXCEPT SELECT v.g AS r FROM v",
    "SELECT q.col1 AS r FROM VALUES ('a'), (5) AS q",
    "SELECT 1 AS r FROM v WHERE v.s",
    "SELECT 1 AS r FROM v WHERE v.i",
    "SELECT CASE WHEN v.s THEN 1 END AS r FROM v",
    "SELECT v.b IN (SELECT v.i AS i FROM v) AS r FROM v",
    "SELECT soundex(v.s) AS r, v.b + 1 AS q FROM v",
    "SELECT v.b AS r FROM v WHERE soundex(v.s) = 'a' AND v.arr = 'a'",
)


def _texts() -> Iterator[str]:
    names = [f"v.{name}" for name in SCHEMA.names] + ["NULL"]
    for operator, (at, one) in product(OPERATORS, enumerate(names)):
        yield from (operator.format(one, other) for other in names[at:])
    yield from OTHERS


def verdict(statement: str) -> str | None:
    """The type that we give it, `refused`, or None: Spark is asked."""
    try:
        translated = translate_query(sqlglot.parse_one(statement, dialect=DIALECT), {"v": SCHEMA})
    except TypeMismatch:
        return "refused"
    except NotConformant:
        return None
    return type_name(translated.schema.field("r").type)


@pytest.fixture(scope="module")
def view(spark: Any) -> Any:
    columns = ", ".join(f"{field.name} {type_name(field.type)}" for field in SCHEMA)
    spark.createDataFrame([], columns).createOrReplaceTempView("v")
    return spark


def analysed(session: Any, texts: list[str]) -> dict[str, str]:
    """The type that Spark gives each expression, or `refused`: its analyser before it complains, so all at once."""
    state = session._jsparkSession.sessionState()
    listed = ", ".join(f"{text} AS r{i}" for i, text in enumerate(texts))
    outputs = state.analyzer().execute(state.sqlParser().parsePlan(f"SELECT {listed} FROM v")).expressions()
    found = [outputs.apply(i) for i in range(len(texts))]
    types = [each.dataType().simpleString() if each.resolved() else "refused" for each in found]
    return dict(zip(texts, types, strict=True))


@pytest.mark.spark
def test_types_that_spark_refuses_are_refused_and_no_others(view: Any) -> None:
    texts = list(dict.fromkeys(_texts()))
    found = {text: verdict(f"SELECT {text} AS r FROM v") for text in texts}
    in_spark = analysed(view, texts)
    wrong = [
        f"{text}: {ours}, in Spark {in_spark[text]}"
        for text, ours in found.items()
        if (_plain(ours) != in_spark[text] if ours is not None else in_spark[text] == "refused")
    ]
    assert not wrong, "\n".join(wrong)
    assert sum(each == "refused" for each in in_spark.values()) > 900


@pytest.mark.spark
@pytest.mark.parametrize("statement", STATEMENTS)
def test_statements_that_spark_refuses_are_refused(view: Any, statement: str) -> None:
    from pyspark.errors import AnalysisException, ParseException

    assert verdict(statement) == "refused"
    with pytest.raises((AnalysisException, ParseException)):
        view.sql(statement)


def _plain(name: str) -> str:
    return re.sub(r"\s", "", name).lower()
