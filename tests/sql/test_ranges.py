"""Ranges against two implementations that know nothing of them: the factor's own text in DuckDB, and Spark.

Random predicates over one column of each type, with constants at and beyond the limits of types and of other types than
the column's, over values that lie at these constants and next to them.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, localcontext
from functools import cache
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.sql.names import Catalog

from ladle.errors import TypeMismatch
from ladle.evaluate import evaluate_factors
from ladle.plan import Factor, Ranges
from ladle.plan.keys import INT64_MAX, Key, decimal_key, float_key, key_of
from ladle.plan.ranges import Interval
from ladle.schema import TIMESTAMP, TIMESTAMP_NTZ, type_name
from ladle.sql import bind
from ladle.sql.conform import NotConformant, translate_factor
from ladle.sql.dialect import DIALECT
from ladle.sql.factor_ranges import ranges_of
from ladle.sql.split import canonical_factor

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
DECIMALS = tuple(pa.decimal128(*digits) for digits in ((5, 2), (10, 0), (18, 6), (19, 0), (20, 6), (38, 10), (38, 0)))
NUMERIC = (*INTEGERS, pa.float32(), pa.float64(), *DECIMALS)
MOMENTS = (pa.date32(), TIMESTAMP, TIMESTAMP_NTZ)
TYPES = (*NUMERIC, *MOMENTS, pa.bool_(), pa.string(), pa.binary())

NUMBERS = (
    "0", "1", "-1", "2", "5", "6", "-7", "5.5", "5.25", "-0.01", "0.1", "1.1", "0.30000000000000004", "99.995",
    "127", "128", "-128", "-129", "127.5", "-128.5", "999.99", "1000", "32767", "32768", "-32769", "16777217",
    "2147483647", "2147483648", "-2147483649", "9999999999", "10000000000", "9007199254740991", "9007199254740992",
    "9007199254740993", "9007199254740995", "-9007199254740993", "999999999999999999", "1000000000000000000",
    "1000000000000000065", "9223372036854775295", "9223372036854775807", "9223372036854775808", "-9223372036854775808",
    "-9223372036854775809", "99999999999999999999", "12345678901234567890.123456", "9" * 28 + ".9999999999", "9" * 38,
    "-" + "9" * 38,
)  # fmt: skip
ODD_NUMBERS = (
    "1e18", "-1e18", "9.223372036854775807e18", "1e19", "-1e19", "1e38", "1e300", "-1e300", "1e-300", "2.5e0", "5.5D",
    "0.1D", "-0.0D", "1.1F", "16777217F", "CAST('NaN' AS DOUBLE)", "CAST('NaN' AS FLOAT)",
    "CAST('Infinity' AS DOUBLE)", "CAST('-Infinity' AS FLOAT)", "5L", "5S", "5Y", "CAST('5' AS INT)",
    "CAST(5.5 AS INT)", "CAST(5.455 AS DECIMAL(5,2))", "CAST(-5.455 AS DECIMAL(5,2))", "CAST(1e0 AS BIGINT)",
    "CAST(6 AS DOUBLE)", "CAST(0.1 AS FLOAT)", "100 + 50", "2 * 3", "2 - 7", "7 div 2", "-7 % 3", "1 / 4", "2 * 2.75",
    "0.1 + 0.2", "5.5 - 0.25", "-(5)", "-(5.5)", "(5)", "2147483647L + 1", "1e0 + 4", "'5'", "'-7'", "'NaN'",
    "'Infinity'", "NULL", "CAST(NULL AS INT)",
)  # fmt: skip
DAYS = ("0001-01-01", "1582-10-15", "1969-12-31", "1970-01-01", "2024-02-29", "2024-03-01", "9999-12-31")
HOURS = ("00:00:00", "00:00:00.000001", "12:30:00.5", "23:59:59.999999")
TEXTS = (
    "",
    "a",
    "aa",
    "ab",
    "a%",
    "a_",
    "b",
    "B",
    "\u00e9",
    "\u00e9a",
    "\u65e5\u672c",
    "\U0001f600",
    "\x7f",
    " ",
    "a\nb",
    "\\",
)
PATTERNS = (
    "", "%", "%%", "a", "a%", "ab%%", "\u00e9%", "\u65e5%", "a\\%", "a\\%%", "a\\_%", "\\\\%", "%a", "a_", "a%b",
    "\U0001f600%",
)  # fmt: skip
OCTETS = (b"", b"\x00", b"a", b"a\x00", b"ab", b"\xff", b"\xff\xff", b"\x80")


def quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def values_of(type_: pa.DataType) -> list[Any]:
    """Values at the constants and beside them, as far as the type has them."""
    if type_ == pa.bool_():
        return [None, True, False]
    if type_ == pa.string():
        return [None, *TEXTS, *(text + more for text in TEXTS for more in ("\x01", "z", "\u00e9"))]
    if type_ == pa.binary():
        return [None, *OCTETS]
    if type_ == pa.date32():
        near = [date.fromisoformat(day) for day in DAYS]
        return [None, *near, *(day + timedelta(1) for day in near[:-1]), *(day - timedelta(1) for day in near[1:])]
    if type_ in (TIMESTAMP, TIMESTAMP_NTZ):
        zone = UTC if type_ == TIMESTAMP else None
        return [None, *(datetime.fromisoformat(f"{day} {hour}").replace(tzinfo=zone) for day in DAYS for hour in HOURS)]
    if pa.types.is_integer(type_):
        limit = 1 << (type_.bit_width - 1)
        near_numbers = {math.floor(Decimal(text)) + step for text in NUMBERS for step in range(-2, 3)}
        return [None, *sorted(n for n in near_numbers | {-limit, limit - 1} if -limit <= n < limit)]
    if pa.types.is_decimal(type_):
        return [None, *decimals_of(type_)]
    doubles = [float(text) for text in NUMBERS]
    near_doubles = [math.nextafter(x, way) for x in doubles for way in (math.inf, -math.inf)]
    return [
        None,
        *doubles,
        *near_doubles,
        math.nan,
        math.inf,
        -math.inf,
        -0.0,
        5e-324,
        1e300 if type_ != pa.float32() else 1.0,
    ]


def decimals_of(type_: pa.DataType) -> list[Decimal]:
    limit = 10**type_.precision - 1
    near = {math.floor(Decimal(text) * 1) * 10**type_.scale + step for text in NUMBERS for step in (-1, 0, 1)}
    with localcontext(prec=80):
        near |= {math.floor(Decimal(text).scaleb(type_.scale)) + step for text in NUMBERS for step in (-1, 0, 1, 2)}
        kept = sorted(n for n in near | {limit, -limit} if abs(n) <= limit)
        return [Decimal(n).scaleb(-type_.scale) for n in kept]


class Predicates:
    """Predicates over a column `x` of one type."""

    def __init__(self, rng: random.Random, type_: pa.DataType) -> None:
        self.rng = rng
        self.type = type_

    def predicate(self, depth: int = 2) -> str:
        rng = self.rng
        if depth and rng.random() < 0.45:
            one, other = self.predicate(depth - 1), self.predicate(depth - 1)
            return rng.choice(
                (
                    f"({one}) AND ({other})",
                    f"({one}) OR ({other})",
                    f"NOT ({one})",
                    f"({one}) IS {rng.choice(('', 'NOT '))}{rng.choice(('TRUE', 'FALSE', 'NULL'))}",
                )
            )
        return self.atom()

    def atom(self) -> str:
        rng = self.rng
        maybe_not = rng.choice(("", "NOT "))
        dice = rng.random()
        if self.type == pa.bool_() and dice < 0.2:
            return rng.choice(("x", "NOT x", "x IS TRUE", "x IS NOT FALSE"))
        if self.type == pa.string() and dice < 0.35:
            return rng.choice(
                (
                    f"x {maybe_not}LIKE {quoted(rng.choice(PATTERNS))}",
                    f"startswith(x, {quoted(rng.choice(TEXTS))})",
                    f"x {maybe_not}LIKE {quoted(rng.choice(('a!%', 'a!%%', '!!%', 'a%')))} ESCAPE '!'",
                )
            )
        if dice < 0.45:
            return rng.choice(("x IS NULL", "x IS NOT NULL", "isnull(x)", "isnotnull(x)", "TRUE", "NULL = x"))
        if dice < 0.6:
            return f"x {maybe_not}IN ({', '.join(self.constant() for _ in range(rng.randint(1, 5)))})"
        if dice < 0.7 and self.type != pa.bool_():
            return f"x {maybe_not}BETWEEN {self.constant()} AND {self.constant()}"
        operator = rng.choice(("=", "<>", "<", "<=", ">", ">=", "<=>", "=="))
        if dice < 0.75:
            return f"x IS {maybe_not}DISTINCT FROM {self.constant()}"
        sides = ["x", self.constant()]
        if rng.random() < 0.3:
            sides.reverse()
        return f"{sides[0]} {operator} {sides[1]}"

    def constant(self) -> str:
        rng = self.rng
        if rng.random() < 0.05:
            return "NULL"
        if self.type == pa.bool_():
            return rng.choice(("TRUE", "FALSE"))
        if self.type == pa.string():
            return quoted(rng.choice(TEXTS))
        if self.type == pa.binary():
            return rng.choice((f"X'{rng.choice(OCTETS).hex()}'", quoted(rng.choice(TEXTS))))
        if self.type in MOMENTS:
            return self.moment()
        return rng.choice((rng.choice(NUMBERS), rng.choice(NUMBERS), rng.choice(ODD_NUMBERS)))

    def moment(self) -> str:
        rng = self.rng
        day, hour = rng.choice(DAYS), rng.choice(HOURS)
        forms = [f"DATE '{day}'", f"TIMESTAMP '{day} {hour}'", f"TIMESTAMP_NTZ '{day} {hour}'", f"'{day}'"]
        if self.type != pa.date32():
            forms.append(f"'{day} {hour}'")
        forms += [
            f"CAST(TIMESTAMP '{day} {hour}' AS DATE)",
            f"CAST('{day}' AS DATE)",
            f"CAST(DATE '{day}' AS TIMESTAMP)",
        ]
        if day not in (DAYS[0], DAYS[-1]):
            forms.append(f"TIMESTAMP '{day} {hour}+05:30'")
        return rng.choice(forms)


def factor_of(text: str, type_: pa.DataType) -> Factor:
    """As the split of WHERE makes it, but whole."""
    (statement,) = DIALECT.parse(f"SELECT x FROM s WHERE {text}")
    assert statement is not None
    tree = canonical_factor(statement.args["where"].this)
    ranges = ranges_of(tree, {"x": type_})
    translated = translate_factor(tree.copy(), {"x": type_})
    return Factor(tree.sql(DIALECT), translated.sql, ("x",), ranges)


def wrong(found: Sequence[bool], ranges: Ranges, type_: pa.DataType) -> list[Any]:
    """Which values of the column of this type the ranges hold and should not, or the other way round."""
    values, _ = column_of(type_)
    kept = [ranges.holds(key) for key in keys_of(type_)]
    return [(value, there) for value, there, here in zip(values, found, kept, strict=True) if there != here]


@cache
def keys_of(type_: pa.DataType) -> list[Key | None]:
    return [None if value is None else key_of(value, type_) for value in column_of(type_)[0]]


@cache
def column_of(type_: pa.DataType) -> tuple[list[Any], pa.Table]:
    table = pa.table({"x": pa.array(values_of(type_), type_)})
    # read back, because a FLOAT is not the number it was made of
    return table["x"].to_pylist(), table


@pytest.mark.parametrize("type_", [pytest.param(type_, id=type_name(type_)) for type_ in TYPES])
@settings(max_examples=30)
@given(st.randoms(use_true_random=True))
def test_ranges_hold_what_duckdb_keeps(type_: pa.DataType, rng: random.Random) -> None:
    texts = [Predicates(rng, type_).predicate() for _ in range(8)]
    factors = []
    for text in texts:
        try:
            factors.append(factor_of(text, type_))
        except (NotConformant, TypeMismatch):
            event("not conformant")
    ranged = [factor for factor in factors if factor.ranges is not None]
    event(f"with ranges: {len(ranged)}")
    _, table = column_of(type_)
    result = evaluate_factors(table, ranged)
    assert not result.failures
    for factor in ranged:
        assert factor.ranges is not None
        assert wrong(result.masks[factor.sql].tolist(), factor.ranges, type_) == [], factor.sql


@pytest.mark.spark
@pytest.mark.parametrize("type_", [pytest.param(type_, id=type_name(type_)) for type_ in TYPES])
def test_ranges_hold_what_spark_keeps(type_: pa.DataType, spark: SparkSession) -> None:
    rng = random.Random(type_name(type_))
    generator = Predicates(rng, type_)
    ranged: dict[str, Ranges] = {}
    while len(ranged) < 60:
        text = generator.predicate(depth=rng.choice((0, 0, 1)))
        try:
            ranges = factor_of(text, type_).ranges
        except (NotConformant, TypeMismatch):
            continue
        if ranges is not None:
            ranged[text] = ranges
    _, table = column_of(type_)
    frame = spark.createDataFrame(table, f"x {type_name(type_)}")
    answer = frame.selectExpr(*(f"coalesce(({text}), false) AS f{i}" for i, text in enumerate(ranged))).toArrow()
    for i, (text, ranges) in enumerate(ranged.items()):
        assert wrong(answer[f"f{i}"].to_pylist(), ranges, type_) == [], text


@pytest.mark.parametrize("type_", [pytest.param(type_, id=type_name(type_)) for type_ in TYPES])
def test_most_predicates_have_ranges(type_: pa.DataType) -> None:
    """So that the tests above don't pass by having nothing to compare."""
    generator = Predicates(random.Random(7), type_)
    conformant = have = 0
    for _ in range(200):
        try:
            factor = factor_of(generator.atom(), type_)
        except (NotConformant, TypeMismatch):
            continue
        conformant += 1
        have += factor.ranges is not None
    assert have > 0.85 * conformant
    assert have > 60


def key(number: int) -> bytes:
    found = decimal_key(number, pa.decimal128(20, 2))
    assert isinstance(found, bytes)
    return found


DAY = 86_400_000_000
LONG = pa.decimal128(20, 2)
SHORT = pa.decimal128(5, 2)
NAN = float_key(math.nan)

EXAMPLES: tuple[tuple[pa.DataType, str, list[Interval], bool], ...] = (
    (pa.int32(), "x = 5", [(5, 6)], False),
    (pa.int32(), "x <> 5", [(None, 5), (6, None)], False),
    (pa.int32(), "5 < x", [(6, None)], False),
    (pa.int32(), "x <= 5", [(None, 6)], False),
    (pa.int32(), "x <=> 5", [(5, 6)], False),
    (pa.int32(), "x <=> NULL", [], True),
    (pa.int32(), "NOT x <=> 5", [(None, 5), (6, None)], True),
    (pa.int32(), "x IS DISTINCT FROM 5", [(None, 5), (6, None)], True),
    (pa.int32(), "x = NULL", [], False),
    (pa.int32(), "x <> NULL OR x = 1", [(1, 2)], False),
    (pa.int32(), "x IN (1, 2, 7)", [(1, 3), (7, 8)], False),
    (pa.int32(), "x IN (1, NULL)", [(1, 2)], False),
    (pa.int32(), "x NOT IN (1, 3)", [(None, 1), (2, 3), (4, None)], False),
    (pa.int32(), "x NOT IN (1, NULL)", [], False),
    (pa.int32(), "(x IN (1, NULL)) IS NULL", [(None, 1), (2, None)], True),
    (pa.int32(), "x BETWEEN 1 AND 5", [(1, 6)], False),
    (pa.int32(), "x BETWEEN 5 AND 1", [], False),
    (pa.int32(), "x NOT BETWEEN 1 AND 5", [(None, 1), (6, None)], False),
    (pa.int32(), "x NOT BETWEEN 1 AND NULL", [(None, 1)], False),
    (pa.int32(), "x IS NULL", [], True),
    (pa.int32(), "x IS NOT NULL", [(None, None)], False),
    (pa.int32(), "x IS NULL OR x > 3", [(4, None)], True),
    (pa.int32(), "NOT (x > 3 OR x IS NULL)", [(None, 4)], False),
    (pa.int32(), "(x > 3) IS NOT TRUE", [(None, 4)], True),
    (pa.int32(), "x > 3 AND x < 9 OR x = 20", [(4, 9), (20, 21)], False),
    (pa.int32(), "x < 5.5", [(None, 6)], False),
    (pa.int32(), "x = 5.5", [], False),
    (pa.int32(), "x <> 5.5", [(None, None)], False),
    (pa.int32(), "x >= -5.5", [(-5, None)], False),
    (pa.int32(), "x < 5.5D", [(None, 6)], False),
    (pa.int32(), "x > CAST('NaN' AS DOUBLE)", [], False),
    (pa.int32(), "x < CAST('NaN' AS DOUBLE)", [(None, None)], False),
    (pa.int32(), "x > 100 + 50", [(151, None)], False),
    (pa.int32(), "x > -(2 * 3)", [(-5, None)], False),
    (pa.int32(), "x > 9999999999", [], False),
    (pa.int32(), "x < 9999999999", [(None, None)], False),
    (pa.int32(), "x = '5'", [(5, 6)], False),
    (pa.int8(), "x <= 127", [(None, None)], False),
    (pa.int8(), "x < 128", [(None, None)], False),
    (pa.int8(), "x >= 127", [(127, None)], False),
    (pa.int64(), "x > 9223372036854775807", [], False),
    (pa.int64(), "x >= 9223372036854775807", [(INT64_MAX, None)], False),
    (pa.int64(), "x = 9223372036854775808", [], False),
    (pa.int64(), "x <> 9223372036854775808", [(None, None)], False),
    (pa.int64(), "x < 1e18", [(None, 999999999999999936)], False),
    (pa.int64(), "x > 1e18", [(1000000000000000065, None)], False),
    (pa.int64(), "x = 9007199254740992D", [(9007199254740992, 9007199254740994)], False),
    (pa.int64(), "x IN (9007199254740993, 1e0)", [(1, 2), (9007199254740992, 9007199254740994)], False),
    (pa.float64(), "x > 1.5", [(float_key(1.5) + 1, None)], False),
    (pa.float64(), "x = 0", [(0, 1)], False),
    (pa.float64(), "x = CAST('NaN' AS DOUBLE)", [(NAN, None)], False),
    (pa.float64(), "x > CAST('Infinity' AS DOUBLE)", [(float_key(math.inf) + 1, None)], False),
    (pa.float64(), "x > 9007199254740993", [(float_key(2.0**53) + 1, None)], False),
    (pa.float32(), "x <= 0.1", [(None, float_key(0.1) + 1)], False),
    (pa.float32(), "x = 0.5F", [(float_key(0.5), float_key(0.5) + 1)], False),
    (SHORT, "x > 1.005", [(101, None)], False),
    (SHORT, "x = 1.005", [], False),
    (SHORT, "x <= 5", [(None, 501)], False),
    (SHORT, "x > 999.98", [(99999, None)], False),
    (SHORT, "x > 999.99", [], False),
    (SHORT, "x >= 0.1D", [(10, None)], False),
    (LONG, "x > 1.005", [(key(101), None)], False),
    (LONG, "x = -5", [(key(-500), key(-499))], False),
    (LONG, "x <= 99999999999999999999", [(None, None)], False),
    (pa.bool_(), "x", [(1, None)], False),
    (pa.bool_(), "NOT x", [(None, 1)], False),
    (pa.bool_(), "x IS NOT TRUE", [(None, 1)], True),
    (pa.bool_(), "x = FALSE", [(None, 1)], False),
    (pa.bool_(), "x OR NOT x", [(None, None)], False),
    (pa.string(), "x = 'ab'", [(b"ab", b"ab\0")], False),
    (pa.string(), "x > 'ab'", [(b"ab\0", None)], False),
    (pa.string(), "x >= ''", [(None, None)], False),
    (pa.string(), "x LIKE 'ab%'", [(b"ab", b"ac")], False),
    (pa.string(), "x LIKE '%'", [(None, None)], False),
    (pa.string(), "x LIKE 'ab'", [(b"ab", b"ab\0")], False),
    (pa.string(), r"x LIKE 'a\\%%'", [(b"a%", b"a&")], False),
    (pa.string(), "x LIKE 'a!_%' ESCAPE '!'", [(b"a_", b"a`")], False),
    (pa.string(), "x NOT LIKE 'ab%'", [(None, b"ab"), (b"ac", None)], False),
    (pa.string(), "startswith(x, '\u00e9')", [(b"\xc3\xa9", b"\xc3\xaa")], False),
    (pa.string(), "NOT startswith(x, '')", [], False),
    (pa.binary(), "x >= X'ff'", [(b"\xff", None)], False),
    (pa.binary(), "x = 'a'", [(b"a", b"a\0")], False),
    (pa.date32(), "x >= DATE '1970-01-02'", [(1, None)], False),
    (pa.date32(), "x >= '1970-01-02'", [(1, None)], False),
    (pa.date32(), "x > TIMESTAMP '1970-01-02 00:00:00'", [(2, None)], False),
    (pa.date32(), "x > TIMESTAMP '1970-01-02 00:00:01'", [(2, None)], False),
    (pa.date32(), "x = TIMESTAMP '1970-01-02 00:00:01'", [], False),
    (TIMESTAMP, "x < DATE '1970-01-02'", [(None, DAY)], False),
    (TIMESTAMP, "x = TIMESTAMP '1970-01-02 00:00:00.000001'", [(DAY + 1, DAY + 2)], False),
    (TIMESTAMP, "x < TIMESTAMP '1970-01-02 05:30:00+05:30'", [(None, DAY)], False),
    (TIMESTAMP, "x < TIMESTAMP_NTZ '1970-01-02 00:00:00'", [(None, DAY)], False),
    (TIMESTAMP_NTZ, "x < '1970-01-02 00:00:00'", [(None, DAY)], False),
)


@pytest.mark.parametrize(
    ("type_", "text", "intervals", "null"),
    [pytest.param(*example, id=f"{type_name(example[0])}: {example[1]}") for example in EXAMPLES],
)
def test_examples(type_: pa.DataType, text: str, intervals: list[Interval], null: bool) -> None:
    factor = factor_of(text, type_)
    assert factor.ranges == Ranges("x", tuple(intervals), null)
    _, table = column_of(type_)
    mask = evaluate_factors(table, [factor]).masks[factor.sql]
    assert wrong(mask.tolist(), factor.ranges, type_) == []


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (pa.int32(), "x + 1 > 5"),
        (pa.int32(), "x = x"),
        (pa.int32(), "x > 2147483647 + 1"),
        (pa.int32(), "x > 1 / 0"),
        (pa.int32(), "x > 1 % 0"),
        (pa.int32(), "x = 'five'"),
        (pa.int32(), "x = TRUE"),
        (pa.int32(), "x = CAST(1e300 AS INT)"),
        (pa.int64(), "x IN ('5', 6)"),
        # TRUE in Spark, for NULL too
        (pa.int64(), "x < 9223372036854775808"),
        (pa.int8(), "x BETWEEN -9223372036854775808.5 AND 1"),
        (pa.decimal128(38, 0), "x > 5.5"),
        (pa.string(), "x > 5"),
        (pa.string(), "x LIKE '%a'"),
        (pa.string(), "x LIKE 'a_'"),
        (pa.string(), r"x LIKE 'a\\b'"),
        (pa.string(), "x ILIKE 'a%'"),
        (pa.string(), "upper(x) = 'A'"),
        (pa.string(), "startswith('a', x)"),
        (pa.date32(), "x > 'today'"),
        (pa.date32(), "x > TIMESTAMP '2024-01-01 00:00:00 Europe/Berlin'"),
        (pa.list_(pa.int32()), "x IS NULL"),
    ],
)
def test_what_is_not_understood_has_no_ranges(type_: pa.DataType, text: str) -> None:
    (statement,) = DIALECT.parse(f"SELECT x FROM s WHERE {text}")
    assert statement is not None
    assert ranges_of(canonical_factor(statement.args["where"].this), {"x": type_}) is None


def test_two_columns_have_no_ranges() -> None:
    (statement,) = DIALECT.parse("SELECT x FROM s WHERE x = 1 OR y = 1")
    assert statement is not None
    assert ranges_of(statement.args["where"].this, {"x": pa.int32(), "y": pa.int32()}) is None


def factors(where: str) -> list[tuple[str, Ranges | None]]:
    plan = bind(f"SELECT symbol FROM trades WHERE {where}", Catalog())
    return [(factor.sql, factor.ranges) for factor in plan.scans[0].block.factors]


def test_binding_fills_ranges_in() -> None:
    found = factors("SYMBOL LIKE 'A%' AND 100 < size AND size % 2 = 1")
    assert found == [
        ("`symbol` LIKE 'A%'", Ranges("symbol", ((b"A", b"B"),))),
        ("`size` > 100", Ranges("size", ((101, None),))),
        ("`size` % 2 = 1", None),
    ]


def test_constants_that_are_computed_need_no_guard() -> None:
    """`100 + 50` can't raise: as a factor of its own it is the same for all queries, whatever stands before it."""
    found = factors("symbol = 'A' AND size > 100 + 50")
    assert found[1] == ("`size` > 100 + 50", Ranges("size", ((151, None),)))
    guarded = factors("symbol = 'A' AND size + 1 > 100")
    assert guarded[1][0].startswith("CASE WHEN")
