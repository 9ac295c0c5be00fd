"""Templates: what is made without the parser is what the parser and binder make, in every part."""

from __future__ import annotations

import threading
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sql.names import Catalog

from ladle import sql
from ladle.errors import LadleError
from ladle.plan import Plan
from ladle.schema import Column, StreamSchema, TableSchema
from ladle.sql import templates
from ladle.sql.templates import Templates

TYPES: dict[str, pa.DataType] = {
    "tiny": pa.int8(),
    "small": pa.int16(),
    "n": pa.int32(),
    "big": pa.int64(),
    "f": pa.float32(),
    "x": pa.float64(),
    "price": pa.decimal128(9, 2),
    "long": pa.decimal128(30, 4),
    "word": pa.string(),
    "flag": pa.bool_(),
    "d5": pa.int32(),
    "Day": pa.date32(),
}
TIMES = {"at": pa.timestamp("us", "UTC"), "ntz": pa.timestamp("us")}
COLUMNS = tuple(Column(name, type_) for name, type_ in (TYPES | TIMES).items())
SCHEMA = StreamSchema(COLUMNS, "at")


def names_of(streams: dict[str, StreamSchema], queries: dict[str, str]) -> Catalog:
    names = Catalog()
    names.streams, names.queries = streams, queries
    return names


NAMES = names_of({"s": SCHEMA, "s1": SCHEMA}, {"inner1": "SELECT n, x FROM s WHERE big > 17"})


def everything(plan: Plan) -> tuple[Any, ...]:
    """A plan and the ranges of its factors, which do not count when factors are compared."""
    return plan, [
        (factor.ranges, factor.columns, factor.duckdb) for scan in plan.scans for factor in scan.block.factors
    ]


def both(cache: Templates, text: str, names: Catalog = NAMES) -> None:
    """The template's plan is the binder's, or both raise the same."""
    try:
        expected: Any = everything(sql._bind(text, names))
    except LadleError as error:
        expected = str(error)
    try:
        found: Any = everything(cache.bind(text, names))
    except LadleError as error:
        found = str(error)
    assert found == expected, text


numbers = st.one_of(
    st.integers(0, 300).map(str),
    st.sampled_from(["0", "9", "10", "127", "128", "255", "32767", "32768", "2147483647", "2147483648", "999999999"]),
    st.integers(0, 10**12).map(str),
    st.integers(10**17, 10**22).map(str),
    st.sampled_from(["9223372036854775807", "9223372036854775808", "007", "00", "1000000000"]),
    st.decimals(0, 1000, places=2).map(str),
    st.decimals(0, Decimal("0.01"), places=4).map(lambda value: f"{value:f}"),
    st.sampled_from(["0.0", "0.00", "1.0", "0.5", "12345678901234567.5", "3.14159265358979", "00.5"]),
)
odd = st.sampled_from(["5L", "1e3", ".5", "5.", "1.5BD", "0x1F", "5S", "1.5e-3", "7D", "1_000"])
columns = st.sampled_from([*TYPES, "s.n", "`d5`", "N", "unknown5"])
operators = st.sampled_from(["<", "<=", ">", ">=", "=", "<>", "!=", "==", "<=>"])


@st.composite
def conjuncts(draw: st.DrawFn) -> str:
    """A conjunct with `{}` for its numbers."""
    column, operator = draw(columns), draw(operators)
    return draw(
        st.sampled_from(
            [
                f"{column} {operator} {{}}",
                f"{column} {operator} {{}}",
                f"{column} {operator} {{}}",
                f"{{}} {operator} {column}",
                f"{column} {operator} -{{}}",
                f"{column} {operator} - {{}}",
                f"NOT {column} {operator} {{}}",
                f"({column} {operator} ({{}}))",
                f"{column} BETWEEN {{}} AND {{}}",
                f"{column} IN ({{}}, {{}})",
                f"({column} {operator} {{}} OR n = {{}})",
                f"(n < {{}} AND {column} {operator} {{}})",
                f"{column} + {{}} {operator} {{}}",
                f"{column} / {{}} > {{}}",
                f"{column} {operator} {{}} + 1",
                f"{column} {operator} '{{}}'",
                "{} < {}",
                "word = 'a5' /* {} */",
            ]
        )
    )


@st.composite
def shapes(draw: st.DrawFn) -> str:
    where = " AND ".join(draw(st.lists(conjuncts(), min_size=1, max_size=4)))
    return draw(
        st.sampled_from(
            [
                f"SELECT * FROM s WHERE {where}",
                f"  SELECT n, x AS x2 FROM s [ROWS {{}}] WHERE {where} ; ",
                f"SELECT count(*) AS c, max(n) FROM s WHERE {where} BEGIN NOW - INTERVAL {{}} MINUTES END NOW",
                f"SELECT n, count(*) FROM s WHERE {where} GROUP BY 1 HAVING count(*) > {{}} ORDER BY 1 LIMIT {{}}",
                "SELECT a.n + {} FROM s AS a, s1 AS b WHERE a.n = b.n AND b.big > {} AND a.small = {}",
                f"WITH t AS (SELECT * FROM s WHERE {where}) SELECT n FROM t WHERE x < {{}}",
                f"SELECT n FROM inner1 AS s WHERE {where}",
                f"SELECT n FROM s WHERE {where} UNION ALL SELECT n FROM s1 WHERE n > {{}}",
                f"SELECT n FROM s WHERE n IN (SELECT n FROM s1 WHERE big = {{}}) AND {where}",
            ]
        )
    )


@given(data=st.data(), shape=shapes())
@settings(max_examples=150, deadline=None)
def test_a_template_gives_the_plan_of_the_binder(data: st.DataObject, shape: str) -> None:
    cache = Templates(sql._bind)
    kind = numbers if data.draw(st.integers(0, 9)) else numbers | odd
    for _ in range(data.draw(st.integers(3, 6))):
        parts = shape.split("{}")
        text = parts[0] + "".join(data.draw(kind) + part for part in parts[1:])
        both(cache, text)


texts = st.one_of(
    st.sampled_from(
        ["IBM", "a", "", "5", "it''s", "it\\'s", "back\\\\slash", "--", "/* x", ";", "é", "%", "N", "null"]
    ),
    st.sampled_from(["x" * 199, "x" * 250, "'' OR ''", "a' OR word = 'b", "\n", "\t{", "$1", "2024-02-29", "\x01"]),
    st.text("ab5 '=", max_size=6),
)
TEXT_SHAPES = (
    "SELECT n FROM s WHERE word = '{}'",
    "SELECT n FROM s WHERE word = '{}' AND n > {n}",
    "SELECT n FROM s WHERE n > {n} AND NOT word <= '{}' AND word <> '{}'",
    "SELECT n FROM s WHERE word >='{}' AND Day = '2024-01-01' AND n < {n}",
    "SELECT n FROM s WHERE word = '{}' OR n = {n}",
    "SELECT n, '{}' AS t FROM s WHERE word = '{}'",
    "SELECT n FROM s WHERE n = '{}'",
    "SELECT n FROM s WHERE Day > '{}' AND n = {n}",
    "SELECT n FROM s WHERE upper(word) = '{}' AND word LIKE '{}'",
    "SELECT n FROM s WHERE 'a' = '{}' AND word = r'{}'",
    "SELECT word, count(*) FROM s WHERE word < '{}' GROUP BY word HAVING word > '{}' AND count(*) > {n}",
    "SELECT a.n FROM s [RANGE 1 HOUR] a JOIN s1 [RANGE 1 HOUR] b ON a.n = b.n WHERE a.word = '{}' AND b.word = '{}'",
)


@given(data=st.data(), shape=st.sampled_from(TEXT_SHAPES))
@settings(max_examples=150, deadline=None)
def test_a_template_with_texts_gives_the_plan_of_the_binder(data: st.DataObject, shape: str) -> None:
    cache = Templates(sql._bind)
    for _ in range(data.draw(st.integers(3, 6))):
        first, *rest = shape.replace("{n}", data.draw(numbers)).split("{}")
        both(cache, first + "".join(data.draw(texts) + part for part in rest))


times = st.one_of(
    st.datetimes().map(str),
    st.dates().map(str),
    st.sampled_from(
        ["2024-02-29", "2023-02-29", "2024-1-5", "2024", "0000-01-01", "9999-12-31 23:59:59.999999", "now"]
    ),
    st.sampled_from(["2024-01-01 24:00:00", "2024-01-01T10:00:00", "2024-01-01 10:00:00+01:00", " 2024-01-01", ""]),
    st.sampled_from(["2024-01-01 10:00", "2024-01-01 10:00:00.1234567", "10000-01-01", "1947-03-09", "2024-01-01 x"]),
)
TIME_SHAPES = (
    "SELECT n FROM s WHERE {column} {operator} TIMESTAMP '{}'",
    "SELECT n FROM s WHERE {column} {operator} DATE '{}' AND n > {n}",
    "SELECT n FROM s WHERE {column} {operator} timestamp_ntz'{}'",
    "SELECT n FROM s WHERE {column} {operator} '{}' AND word = '{}'",
    "SELECT n FROM s WHERE NOT {column} {operator} '{}' OR n = {n}",
    "SELECT n FROM s WHERE {column} >= TIMESTAMP '{}' AND {column} {operator} TIMESTAMP '{}'",
    "SELECT n FROM s WHERE {column} {operator} TIMESTAMP '{}' - INTERVAL 1 DAY AND day > '{}'",
    "SELECT n, DATE '1947-03-09' AS d FROM s WHERE {column} {operator} DATE '{}'",
    "SELECT n FROM s WHERE {column} > '{}' GROUP BY n HAVING max({column}) {operator} '{}'",
    "SELECT n FROM s WHERE {column} > TIMESTAMP '{}' BEGIN TIMESTAMP '{}' END NOW",
    "SELECT a.n FROM s [RANGE 1 HOUR] a JOIN s1 [RANGE 1 HOUR] b ON a.n = b.n WHERE a.{column} {operator} '{}'",
)


@given(
    data=st.data(),
    shape=st.sampled_from(TIME_SHAPES),
    column=st.sampled_from(["at", "ntz", "Day", "word", "n"]),
    operator=operators,
)
@settings(max_examples=150, deadline=None)
def test_a_template_with_times_gives_the_plan_of_the_binder(
    data: st.DataObject, shape: str, column: str, operator: str
) -> None:
    cache = Templates(sql._bind)
    shape = shape.replace("{column}", column).replace("{operator}", operator)
    for _ in range(data.draw(st.integers(3, 6))):
        first, *rest = shape.replace("{n}", data.draw(numbers)).split("{}")
        both(cache, first + "".join(data.draw(times) + part for part in rest))


@pytest.mark.parametrize(
    "where",
    ["at > TIMESTAMP '{}'", "at <= '{}'", "Day = DATE '{}'", "Day < '{}'", "ntz >= TIMESTAMP_NTZ '{}'", "word = '{}'"],
)
def test_times_are_parameters(where: str) -> None:
    cache = Templates(sql._bind)
    for day in ("2024-01-01", "2024-02-29", "1999-12-31", "0001-01-01", "1947-03-09"):
        both(cache, f"SELECT n FROM s WHERE {where.replace('{}', day)} AND n > 3")
    assert cache.filled == 3
    for none in ("2023-02-29", "2024-01-01 ", "0000-01-01"):
        both(cache, f"SELECT n FROM s WHERE {where.replace('{}', none)} AND n > 3")
    assert cache.filled == 3 or where.startswith("word"), "left to the binder"


def test_texts_are_parameters() -> None:
    cache = Templates(sql._bind)
    shape = "SELECT n FROM s WHERE word = '{}' AND n > 3"
    for text in ("IBM", "AAPL", "a longer one", "", "5", "--", "/*", "é"):
        both(cache, shape.replace("{}", text))
    assert cache.filled == 6
    for text in ("it''s", "it\\'s", "x" * 201, "a' OR word = 'b"):
        both(cache, shape.replace("{}", text))
    assert cache.filled == 6, "left to the parser"


def test_a_text_that_is_cast_does_not_keep_numbers_from_being_parameters() -> None:
    cache = Templates(sql._bind)
    for number in range(5):
        both(cache, f"SELECT n FROM s WHERE Day = '2024-01-01' AND n > {number}")
    assert cache.filled == 3


@pytest.mark.parametrize(
    ("shape", "filled"),
    [
        ("SELECT * FROM s WHERE n > {} AND n <= {}", True),
        ("SELECT * FROM s WHERE n > {} AND big = {} AND NOT x < -{}", True),
        ("SELECT count(*) FROM s [ROWS 100] WHERE {} < price", True),
        ("SELECT n FROM s WHERE n = {} ORDER BY n LIMIT 5", True),
        ("SELECT n FROM s WHERE n = {} OR n = 3", False),
        ("SELECT n + 1 FROM s", False),
        ("SELECT n FROM s LIMIT {}", False),
    ],
)
def test_what_is_filled(shape: str, filled: bool) -> None:
    cache = Templates(sql._bind)
    for number in ("5", "6", "77", "78", "5", "1234567890"):
        both(cache, shape.replace("{}", number))
    assert cache.filled == (4 if filled else 0)


def test_an_unusual_number_does_not_spoil_the_key() -> None:
    cache = Templates(sql._bind)
    for number in ("5", "007", "5", "6", "12345678901234567890", "7", "00", "8"):
        both(cache, f"SELECT n FROM s WHERE n > {number}")
    assert cache.filled == 3


def test_another_window_is_another_template_of_the_same_key() -> None:
    cache = Templates(sql._bind)
    for rows in (10, 10, 20, 10, 20, 30):
        for number in (1, 2, 1):
            both(cache, f"SELECT n FROM s [ROWS {rows}] WHERE n < {number}")
    assert cache.filled == 14


def test_equal_factors_are_one() -> None:
    cache = Templates(sql._bind)
    for a, b, c in ((1, 2, 3), (1, 2, 3), (4, 4, 4), (4, 5, 4), (7, 7, 8)):
        both(cache, f"SELECT n FROM s WHERE n <> {a} AND n <> {b} AND n <> 7 AND {c} <> n")
    assert cache.filled == 3


def test_a_template_is_used_only_for_what_it_was_bound_to() -> None:
    cache = Templates(sql._bind)
    text = "SELECT * FROM s WHERE n > {} AND d5 = {}"
    others = [
        NAMES,
        names_of({"s": StreamSchema((Column("n", pa.int64()), Column("d5", pa.decimal128(10, 3))))}, {}),
        names_of({"S": SCHEMA}, {}),
        names_of({"other": SCHEMA}, {"s": "SELECT n, d5 FROM other WHERE x > 1"}),
        names_of({"other": SCHEMA}, {"s": "SELECT n, d5 FROM other WHERE x > 2"}),
        names_of({}, {}),
    ]
    for names in [*others, *others]:
        for number in ("1", "2", "3"):
            both(cache, text.replace("{}", number), names)


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(templates, "_KEYS_MAX", 8)
    monkeypatch.setattr(templates, "_TEMPLATES_PER_KEY_MAX", 4)
    cache = Templates(sql._bind)
    for number in range(30):
        for _ in range(2):
            cache.bind(f"SELECT n AS c{'x' * number} FROM s WHERE n > {number}", NAMES)
            cache.bind(f"SELECT n FROM s [ROWS {number + 1}] WHERE n > 1", NAMES)
    assert len(cache._known) <= 8
    assert all(len(known.templates) <= 4 for known in cache._known.values())


def test_threads_share_it() -> None:
    cache = Templates(sql._bind)
    texts = [f"SELECT n FROM s [ROWS {n % 3 + 1}] WHERE n > {n} AND x <= {n}.{n}" for n in range(60)]
    expected = [everything(sql._bind(text, NAMES)) for text in texts]
    wrong: list[str] = []

    def work(seed: int) -> None:
        for at in range(len(texts)):
            number = (at * 7 + seed) % len(texts)
            if everything(cache.bind(texts[number], NAMES)) != expected[number]:
                wrong.append(texts[number])

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_template_over_a_table_knows_when_that_is_another() -> None:
    names, cache = names_of({"s": SCHEMA}, {}), Templates(sql._bind)
    for number in range(4):
        both(cache, f"SELECT s.n, c.name FROM s JOIN companies c ON s.word = c.symbol WHERE s.n < {number}", names)
    assert cache.filled
    filled, names = cache.filled, names_of({"s": SCHEMA}, {})
    names.tables = {"companies": TableSchema((Column("name", pa.int32()), Column("symbol", pa.string())))}
    both(cache, "SELECT s.n, c.name FROM s JOIN companies c ON s.word = c.symbol WHERE s.n < 9", names)
    assert cache.filled == filled
