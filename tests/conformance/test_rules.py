"""Typing, refusals and rendering without any engine: what can be told from a tree alone."""

from __future__ import annotations

import pyarrow as pa
import pytest
import sqlglot
from sqlglot import exp

from ladle.errors import TypeMismatch, UnknownName, Unsupported
from ladle.schema import TIMESTAMP, TIMESTAMP_NTZ, type_name
from ladle.sql.conform import NotConformant, arrow_type, check_functions, translate_factor, translate_query
from ladle.sql.conformant.known import known_functions
from ladle.sql.conformant.the_list import LIST
from ladle.sql.dialect import DIALECT

SCHEMA = pa.schema(
    [
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("t", pa.int8()),
        ("f", pa.float32()),
        ("g", pa.float64()),
        ("d", pa.decimal128(10, 2)),
        ("w", pa.decimal128(38, 18)),
        ("s", pa.string()),
        ("day", pa.date32()),
        ("at", TIMESTAMP),
        ("b", pa.bool_()),
        ("tags", pa.list_(pa.string())),
    ]
)


def parsed(text: str) -> exp.Expression:
    return sqlglot.parse_one(text, dialect=DIALECT)


def type_of(text: str) -> str:
    translated = translate_query(parsed(f"SELECT {text} AS r FROM r"), {"r": SCHEMA})
    return type_name(translated.schema.field("r").type)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", "INT"),
        ("3000000000", "BIGINT"),
        ("0.95", "DECIMAL(2,2)"),
        ("1e3", "DOUBLE"),
        ("1 / 2", "DOUBLE"),
        ("r.t + r.i", "INT"),
        ("r.i + r.g", "DOUBLE"),
        ("r.f + r.i", "DOUBLE"),
        ("r.f + r.f", "FLOAT"),
        ("r.d + 1", "DECIMAL(11,2)"),
        ("r.d * r.i", "DECIMAL(21,2)"),
        ("r.d * 2", "DECIMAL(12,2)"),
        ("r.d / 3", "DECIMAL(14,6)"),
        ("r.d + r.g", "DOUBLE"),
        ("r.l * 0.5", "DECIMAL(22,1)"),
        ("coalesce(r.d, 0)", "DECIMAL(12,2)"),
        ("coalesce(r.day, r.at)", "TIMESTAMP"),
        ("CASE WHEN r.b THEN 1 ELSE r.l END", "BIGINT"),
        ("r.day + INTERVAL 1 DAY", "DATE"),
        ("r.day + INTERVAL 1 HOUR", "TIMESTAMP"),
        ("r.at - INTERVAL 1 MONTH", "TIMESTAMP"),
        ("date_trunc('hour', r.at)", "TIMESTAMP"),
        ("ceil(r.g)", "BIGINT"),
        ("ceil(r.d)", "DECIMAL(9,0)"),
        ("round(r.d, 1)", "DECIMAL(10,1)"),
        ("length(r.s)", "INT"),
        ("r.tags", "ARRAY<STRING>"),
    ],
)
def test_types_are_sparks(text: str, expected: str) -> None:
    assert type_of(text) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("SELECT soundex(r.s) AS x FROM r", "function soundex is not proven equal in DuckDB"),
        ("SELECT ln(r.g) AS x FROM r", "function ln is not proven equal"),
        ("SELECT r.w * r.w AS x FROM r", "more than 38 digits"),
        ("SELECT CAST(r.g AS STRING) AS x FROM r", "CAST from DOUBLE to STRING"),
        ("SELECT NULL AS x FROM r", "VOID"),
        ("SELECT r.i AS x FROM r GROUP BY r.s", "neither grouped nor aggregated"),
        ("SELECT r.i AS x FROM r WHERE sum(r.i) > 1", "sum outside a grouped query"),
        ("SELECT r.i AS x FROM r WHERE r.s > r.at", "CAST from STRING to TIMESTAMP"),
        ("SELECT r.l < 9223372036854775808 AS x FROM r", "an integer compared with 9223372036854775808"),
        ("SELECT DISTINCT r.tags AS x FROM r", "DISTINCT"),
        ("SELECT r.at - r.at AS x FROM r", "column x"),
        ("SELECT r.s LIKE 'a\\\\b' AS x FROM r", "an escape that Spark refuses"),
        ("SELECT r.i AS x FROM r TABLESAMPLE (10 ROWS)", "SAMPLE"),
        (
            "WITH RECURSIVE t AS (SELECT 1 AS x UNION ALL SELECT ln(r.g) AS x FROM r, t AS t) SELECT t.x FROM t AS t",
            "function ln is not proven equal",
        ),
        ("SELECT a.i AS x FROM r AS a JOIN r AS b ON 1 / a.i = b.i", "may raise"),
        ("SELECT (a.i + 1) IS NULL AS x FROM r AS a", "IS NULL over an expression that may raise"),
        ("SELECT t.x AS x FROM nowhere AS t", "relation nowhere is not given"),
    ],
)
def test_reasons(text: str, reason: str) -> None:
    with pytest.raises(NotConformant) as caught:
        translate_query(parsed(text), {"r": SCHEMA})
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("text", "may_raise"),
    [
        ("i > 5", False),
        ("i BETWEEN 1 AND 5 AND s IN ('a', 'b') OR s IS NULL", False),
        ("s LIKE 'a%' AND NOT b", False),
        ("at >= '2024-01-01' AND day = DATE '2024-01-01'", False),
        ("g / 2 > 1", False),
        ("i / i > 1", True),
        ("i + 1 > 5", True),
        ("CAST(g AS INT) = 1", True),
        ("d > 1.5 AND g <= 2", False),
    ],
)
def test_factors(text: str, may_raise: bool) -> None:
    factor = translate_factor(parsed(text), dict(zip(SCHEMA.names, SCHEMA.types, strict=True)))
    assert factor.may_raise is may_raise
    assert '"' in factor.sql


def test_factor_uses_physical_names() -> None:
    assert translate_factor(parsed("PRICE > 5"), {"Price": pa.int32()}).sql == "(\"Price\" > CAST('5' AS INTEGER))"


def test_factor_refuses_subqueries() -> None:
    with pytest.raises(NotConformant, match="subquery"):
        translate_factor(parsed("i IN (SELECT 1 AS x)"), {"i": pa.int32()})


def test_now_is_a_parameter() -> None:
    tree = parsed("SELECT r.i AS i FROM r WHERE r.at > x")
    tree.find(exp.GT).set("expression", exp.Placeholder(this="now"))  # type: ignore[union-attr]
    assert "$now" in translate_query(tree, {"r": SCHEMA}).sql


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("SELECT uper(s) FROM r", UnknownName, "upper"),
        ("SELECT 1,\n  nosuch(s) FROM r", UnknownName, "line 2, column 3"),
        ("SELECT reflect('java.lang.System', 'exit') FROM r", Unsupported, "reaches outside"),
        ("SELECT java_method('a', 'b') FROM r", Unsupported, "reaches outside"),
        ("SELECT input_file_name() FROM r", Unsupported, "reaches outside"),
        ("SELECT rand() FROM r", Unsupported, "another value each time"),
        ("SELECT uuid() FROM r", Unsupported, "another value each time"),
        ("SELECT * FROM read_csv('/etc/passwd')", Unsupported, "reaches outside"),
        ("SELECT getenv('HOME') FROM r", UnknownName, "getenv"),
        ("SELECT a FROM (SELECT CASE WHEN version() = 'x' THEN 1 END AS a FROM r)", Unsupported, "version"),
    ],
)
def test_functions_refused(text: str, error: type[Exception], words: str) -> None:
    with pytest.raises(error) as caught:
        check_functions(parsed(text))
    assert words in str(caught.value)


def test_functions_known() -> None:
    check_functions(
        parsed(
            "SELECT upper(s), CAST(s AS INT), CASE WHEN b THEN 1 END, if(b, 1, 2), trim(s), extract(YEAR FROM at), "
            "position('a' IN s), substring(s, 1), count(*), sum(DISTINCT i), row_number() OVER (ORDER BY i), any(b), "
            "array(1, 2), map(1, 2), soundex(s), percentile(i, 0.5), timestampdiff(DAY, at, at), s LIKE 'a', "
            "try_cast(s AS INT), struct(i), collect_list(i), i IN (1, 2), EXISTS (SELECT 1) FROM r"
        )
    )


def test_the_list_holds_only_known_functions() -> None:
    names = {entry.name for entry in LIST if entry.name.isidentifier()} - {"extract_second"}
    assert names <= known_functions() | {"isnotnull", "isnull", "not", "in", "div"}


@pytest.mark.parametrize(
    ("ddl", "expected"),
    [
        ("TIMESTAMP", TIMESTAMP),
        ("TIMESTAMP_NTZ", TIMESTAMP_NTZ),
        ("DECIMAL", pa.decimal128(10, 0)),
        ("DECIMAL(5,2)", pa.decimal128(5, 2)),
        ("STRING", pa.string()),
        ("BYTE", pa.int8()),
        ("LONG", pa.int64()),
        ("REAL", pa.float32()),
        ("ARRAY<STRUCT<a: INT, b: STRING>>", pa.list_(pa.struct([("a", pa.int32()), ("b", pa.string())]))),
        ("MAP<STRING, TIMESTAMP>", pa.map_(pa.string(), TIMESTAMP)),
    ],
)
def test_arrow_types(ddl: str, expected: pa.DataType) -> None:
    kind = parsed(f"CAST(x AS {ddl})").find(exp.DataType)
    assert kind is not None
    assert arrow_type(kind) == expected


@pytest.mark.parametrize("ddl", ["VARIANT", "INTERVAL", "DECIMAL(39,2)", "DECIMAL(5,6)"])
def test_types_refused(ddl: str) -> None:
    kind = parsed(f"CAST(x AS {ddl})").find(exp.DataType)
    assert kind is not None
    with pytest.raises(TypeMismatch):
        arrow_type(kind)
