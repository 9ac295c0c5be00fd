"""INSERT of plain literals: read without the parser, it means what it means with it, and takes no time."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.waiting import cpu_seconds

from ladle.errors import LadleError, Position, SqlError, TypeMismatch
from ladle.evaluate import duck
from ladle.schema import TIMESTAMP, TIMESTAMP_NTZ, Column, StreamSchema, TableSchema
from ladle.sql import is_unfinished, parse_one, split_script
from ladle.sql.literal_rows import LiteralRows, literal_rows
from ladle.sql.lower import lower, lower_tolerant_insert
from ladle.sql.script import chunks, only_chunk
from ladle.sql.statement_types import Insert, InsertTableValues, InsertValues
from ladle.stem.intake import not_cast

TYPES = {
    "b": pa.bool_(),
    "t": pa.int8(),
    "i": pa.int32(),
    "l": pa.int64(),
    "f": pa.float32(),
    "g": pa.float64(),
    "d": pa.decimal128(6, 2),
    "s": pa.string(),
    "day": pa.date32(),
    "at": TIMESTAMP,
    "ntz": TIMESTAMP_NTZ,
}
COLUMNS = tuple(Column(name, type_) for name, type_ in TYPES.items())


class Known:
    """A stream and a table with a column of every type."""

    def stream_schema(self, name: str) -> tuple[str, StreamSchema] | None:
        return ("Rows", StreamSchema(COLUMNS, None)) if name.lower() == "rows" else None

    def table_schema(self, name: str) -> tuple[str, TableSchema] | None:
        return ("Kept", TableSchema(COLUMNS)) if name.lower() == "kept" else None

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None if arguments else []


NAMES: Any = Known()

TEXTS = st.sampled_from(
    [
        "",
        "a",
        " 5 ",
        "5",
        "-7",
        "1.5",
        "1e3",
        "abc",
        "true",
        "N",
        "300",
        "9" * 30,
        "nan",
        "2024-02-30",
        "2024-1-5",
        "é;(,",
    ]
)
NUMBERS = st.one_of(
    st.integers(-400, 400).map(str),
    st.integers(-(10**17), 10**17).map(str),
    st.decimals(-99_999, 99_999, places=3).map(str),
    st.sampled_from(["0", "-0", "007", "0.1", "2.675", "9999.995", "-9999.994", "16777217", "127", "128"]),
)
KINDS = {
    "text": TEXTS.map(lambda text: f"'{text}'"),
    "number": NUMBERS,
    "truth": st.sampled_from(["TRUE", "false", "True"]),
    "time": st.sampled_from(
        ["DATE '2024-02-29'", "TIMESTAMP '2024-02-29 10:00:00.5'", "timestamp'1969-12-31 23:59:59+01:30'"]
    ),
}


@st.composite
def inserts(draw: st.DrawFn) -> str:
    names = draw(st.lists(st.sampled_from(list(TYPES)), min_size=1, max_size=4, unique=True))
    count = draw(st.integers(1, 5))
    cells = []
    for _ in names:
        kind = KINDS[draw(st.sampled_from(list(KINDS)))]
        null = st.sampled_from(["NULL", "null"])
        cells.append(draw(st.lists(kind | null, min_size=count, max_size=count)))
    rows = ", ".join(f"({', '.join(row)})" for row in zip(*cells, strict=True))
    return f"INSERT INTO rows ({', '.join(names)}) VALUES {rows}"


@given(inserts())
@settings(max_examples=200, deadline=None)
def test_literals_mean_what_they_mean_to_the_parser(text: str) -> None:
    quick = parse_one(text, NAMES)
    if not isinstance(quick, InsertValues):
        return  # the parser read it
    try:
        slow = lower_tolerant_insert(only_chunk(text), NAMES)
    except TypeMismatch:
        # VALUES of a DATE and a TIMESTAMP have a type in common, but what is quick casts each alone
        raise AssertionError(text) from None
    if slow.plan.residual.duckdb_sql is None:
        return  # only Spark reads texts of columns as times
    answer = duck.run(slow.plan.residual.duckdb_sql, {})
    width = len(slow.columns)
    types = [TYPES[name] for name in slow.columns]
    rows = pa.table(
        [column.cast(type_) for column, type_ in zip(answer.columns[:width], types, strict=True)], slow.columns
    )
    assert {each.row for each in quick.misfits} == set(not_cast(rows, answer.select(range(width, 2 * width))))
    assert quick.rows.equals(rows) or repr(quick.rows.to_pylist()) == repr(rows.to_pylist())


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO rows (s) VALUES ('it''s')",
        r"INSERT INTO rows (s) VALUES ('a\n')",
        "INSERT INTO rows (i) VALUES (1 + 1)",
        "INSERT INTO rows (g) VALUES (1e3)",
        "INSERT INTO rows (i) VALUES (1), -- one\n (2)",
        "INSERT INTO rows (s) SELECT 'a'",
        "INSERT INTO rows (at) VALUES ('yesterday')",
        "INSERT INTO rows (s) VALUES (1.50)",
        "INSERT INTO rows (i) VALUES (99999999999999999999)",
    ],
)
def test_what_is_not_plain_is_left_to_the_parser(text: str) -> None:
    assert isinstance(parse_one(text, NAMES), Insert)


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO rows (i) VALUES (1), (2, 3)",
        "INSERT INTO rows (i, nosuch) VALUES (1, 2)",
        "INSERT INTO rows (i, I) VALUES (1, 2)",
        "INSERT INTO rows VALUES (1)",
        "INSERT INTO nowhere VALUES (1)",
        "INSERT INTO rows (i) VALUES (1",
        "INSERT INTO rows (at) VALUES (TIMESTAMP 'noon')",
        "INSERT INTO kept (i) VALUES ('a'), (5)",
    ],
)
def test_errors_are_the_parsers(text: str) -> None:
    with pytest.raises(LadleError) as quick:
        parse_one(text, NAMES)
    with pytest.raises(LadleError) as slow:
        lower(only_chunk(text), NAMES)
    assert str(quick.value) == str(slow.value)


def test_rows_that_do_not_fit_a_stream_are_told() -> None:
    found = parse_one("insert into `ROWS` (s, g, t) values ('IBM', 'abc', 5), ('KO', '1.5', 300), (3, 2, 1);", NAMES)
    assert isinstance(found, InsertValues)
    assert found.stream == "Rows"
    assert found.rows.to_pylist() == [
        {"s": "IBM", "g": None, "t": 5},
        {"s": "KO", "g": 1.5, "t": None},
        {"s": "3", "g": 2.0, "t": 1},
    ]
    assert [(each.row, each.column.name, each.value) for each in found.misfits] == [(0, "g", "abc"), (1, "t", 300)]
    assert found.misfits[1].given == {"s": "KO", "g": "1.5", "t": 300}


def test_a_row_that_does_not_fit_a_table_is_an_error_at_its_place() -> None:
    with pytest.raises(TypeMismatch, match="'abc' is no INT") as caught:
        parse_one("INSERT INTO kept (s, i) VALUES ('a', '1'),\n  ('b', 'abc')", NAMES)
    assert caught.value.position == Position(2, 9)
    fine = parse_one("INSERT INTO kept (s, i) VALUES ('a', '1')", NAMES)
    assert isinstance(fine, InsertTableValues)
    assert fine.rows.to_pylist() == [{"s": "a", "i": 1}]


def test_scripts_are_split_as_by_the_parser() -> None:
    one, two = "INSERT INTO rows (s) VALUES ('a;b'), (NULL)", "INSERT INTO rows (i) VALUES (1)"
    script = f"  {one} ;\n{two}; SELECT 1 AS x; {two}"
    assert split_script(script) == [one, two, "SELECT 1 AS x", two]
    assert split_script(two) == [two]
    assert not is_unfinished(f"{one}; ")
    assert is_unfinished(one)
    assert is_unfinished(f"{one}; SELECT 1")
    assert not is_unfinished(f"{one}; SELECT 1;")
    with pytest.raises(SqlError) as caught:
        split_script(f"{two};\n SELECT 'open")
    assert caught.value.position == Position(2, 9)


def test_a_thousand_rows_take_milliseconds() -> None:
    """0.05 ms a row is the bar, and a quarter of it is usual; here four times the bar, for machines that are busy."""
    row = "('S{0}', {0}.5, {0}, TIMESTAMP '2026-01-01 10:00:00')"
    text = "INSERT INTO rows (s, g, i, at) VALUES " + ", ".join(row.format(number) for number in range(1_000))

    def read() -> None:
        (statement,) = split_script(text)
        assert isinstance(parse_one(statement, NAMES), InsertValues)

    assert cpu_seconds(read, 0.2) < 0.2


def test_long_texts_are_scanned_in_one_pass() -> None:
    unclosed = "INSERT INTO rows (s) VALUES " + ", ".join(["('a')"] * 20_000) + ", ('a"
    assert literal_rows(unclosed) is None
    assert cpu_seconds(lambda: literal_rows(unclosed), 2.0) < 2.0


PIECES = st.sampled_from(
    [
        *("INSERT", "INTO", "TABLE", "VALUES", "rows", "`a b`", "`it's`", "é", "NULL", "true", "DATE", "timestamp"),
        *("1", "-2", "3.5", ".5", "6.", "1e3", "--", "-", "/*", "*/", "''", "'a'", "'b;'", "'(,'", "'", '"x"', '"'),
        *("(", ")", ",", ";", "\\", "$$", "r'q'", "x", " ", "\n", "\x1c", "\xa0", "(1, 'a'), ", "('b', NULL)"),
    ]
)
LIKE_INSERTS = st.builds(
    lambda head, pieces: head + "".join(pieces),
    st.sampled_from(["INSERT INTO rows VALUES ", "insert into table rows (a, `b c`)values", "INSERT INTO rows ("]),
    st.lists(PIECES | st.just(", ") | st.sampled_from(["(1, 'a')", "(2, NULL)", "; INSERT INTO t VALUES (1)"])),
)


@given(LIKE_INSERTS)
@settings(max_examples=500, deadline=None)
def test_what_is_taken_apart_is_what_the_tokenizer_finds(text: str) -> None:
    """Literals, brackets and commas: of a statement that is taken apart there are no other tokens in the same order."""
    found = literal_rows(text)
    if found is None:
        return
    tokens = [(token.text, token.token_type.name) for token in chunks(text[: found.end])[0].tokens]
    values = next(number for number, (word, _) in enumerate(tokens) if word.upper() == "VALUES")
    assert _told(tokens[values + 1 :]) == _expected(found)
    assert all(text[found.at(text, 0, column) :].startswith(found.row(0)[column][:1]) for column in range(found.width))
    assert found.closed == (text[found.end - 1] == ";")


def _told(tokens: list[tuple[str, str]]) -> list[str]:
    return [f"'{text}'" if kind == "STRING" else text.upper() for text, kind in tokens]


def _expected(found: LiteralRows) -> list[str]:
    expected: list[str] = []
    for number in range(len(found.literals) // found.width):
        expected += [",", "("] if number else ["("]
        for column, literal in enumerate(found.row(number)):
            expected += [","] if column else []
            if literal.startswith("-"):
                expected += ["-", literal[1:]]
            elif literal.endswith("'") and not literal.startswith("'"):
                word, _, quoted = literal.partition("'")
                expected += [word.strip().upper(), f"'{quoted}"]
            else:
                expected.append(literal if literal.startswith("'") else literal.upper())
        expected.append(")")
    return expected


@pytest.mark.parametrize(
    ("text", "literals"),
    [
        ("insert into t values (1)", ["1"]),
        (" INSERT\nINTO  TABLE t VALUES\t( 1 ,\n'a;(' ) , (-2.5,'')  ;  SELECT 1", ["1", "'a;('", "-2.5", "''"]),
        ("INSERT INTO `a b` (`it's`, `ü`) VALUES (date'2024-01-01', Null)", ["date '2024-01-01'", "Null"]),
        ("INSERT INTO t(a)VALUES(TRUE),(false);", ["TRUE", "false"]),
    ],
)
def test_literals_as_they_are_written(text: str, literals: list[str]) -> None:
    found = literal_rows(text)
    assert found is not None
    assert found.literals == literals


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO t VALUES",
        "INSERT INTO t VALUES ()",
        "INSERT INTO t VALUES (1,)",
        "INSERT INTO t VALUES (1) (2)",
        "INSERT INTO t VALUES (1), ",
        "INSERT INTO t VALUES (1), (2, 3)",
        "INSERT INTO t VALUES ((1))",
        "INSERT INTO t VALUES ('a' 'b')",
        "INSERT INTO t VALUES ('a''b')",
        "INSERT INTO t VALUES (r'a')",
        "INSERT INTO t VALUES (-'5')",
        "INSERT INTO t VALUES (1 2)",
        "INSERT INTO t VALUES (- 1)",
        "INSERT INTO t VALUES (1.), (.5)",
        "INSERT INTO t VALUES (1) -- it's\n",
        "INSERT INTO t VALUES (\u0661)",
        "INSERT INTO t VALUES (1\xa0)",
        "INSERT INTO t (a b) VALUES (1)",
        "INSERT INTO t (a VALUES (1)",
        "INSERT INTO table VALUES (1)",
        "INSERT INTO VALUES (1)",
        "INSERT OVERWRITE t VALUES (1)",
        "INSERT INTO s.t VALUES (1)",
        "INSERTS INTO t VALUES (1)",
    ],
)
def test_what_is_not_taken_apart(text: str) -> None:
    assert literal_rows(text) is None
