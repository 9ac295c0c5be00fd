"""Users' functions: created, replaced, dropped, and called by standing and one-off queries."""

from __future__ import annotations

import threading
import time
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.engine.conftest import Open
from tests.engine.rows import TICKS, ticks, values
from tests.waiting import wait_until

from ladle.engine import Database
from ladle.errors import AlreadyExists, EvaluationError, InUse, InvocationTimeout, LadleError, SqlError, UnknownName
from ladle.testing.one_row import at_one_row

# a function that is stopped ends its thread without a word
pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")

ODD = "CREATE FUNCTION odd(n INT) RETURNS BOOLEAN LANGUAGE PYTHON AS $$ pc.equal(pc.bit_wise_and(n, 1), 1) $$"
NEVER = "def never(n):\n    while True:\n        pass\n"


def at_least(limit: int) -> str:
    """The source of a function that is told by one number."""
    return f"def enough(n):\n    return pc.greater_equal(n, {limit})\n"


def create(db: Database, source: str, arguments: list[str] | None = None, returns: str = "BOOLEAN") -> None:
    db.create_function(source, arguments=arguments or ["INT"], returns=returns, replace=True)


def test_anywhere_an_expression_may_stand(db: Database) -> None:
    db.sql(TICKS)
    db.sql(ODD)
    create(db, "def twice(n):\n    return pc.multiply(n, 2)\n", returns="INT")
    db.register("SELECT n, twice(n), twice(n) + 1 AS more FROM ticks WHERE odd(n) AND twice(n) < 12", name="q")
    db.push("ticks", ticks(range(8)), wait=True)
    answer = db.invoke("q")
    assert answer.columns == ["n", "twice(n)", "more"]
    assert answer.table.schema.types == [pa.int32()] * 3
    assert values(answer, "twice(n)") == [2, 6, 10]
    assert values(answer, "more") == [3, 7, 11]
    assert db.status().queries[0].coverage == 1.0
    grouped = db.sql(
        "SELECT odd(n) AS o, sum(twice(n)) AS s FROM ticks GROUP BY odd(n) HAVING odd(n) ORDER BY twice(1)"
    )
    assert grouped.table.to_pylist() == [{"o": True, "s": 32}]
    assert values(db.sql("SELECT CASE WHEN odd(3) THEN twice(twice(5)) END AS x")) == [20]
    joined = "SELECT a.n FROM ticks a JOIN ticks b ON a.n = b.n WHERE odd(a.n) AND twice(b.n) < 8 ORDER BY 1"
    assert values(db.sql(joined)) == [1, 3]
    assert values(db.sql("SELECT N FROM q WHERE ODD(n) AND n > 2")) == [3, 5]


def test_a_predicate_is_a_factor_that_is_kept_and_shared(db: Database) -> None:
    db.sql(TICKS)
    db.sql(ODD)
    for name in ("a", "b"):
        db.register("SELECT n FROM ticks WHERE n > 2 AND odd(n)", name=name)
    factors = db.catalog.queries["a"].plan.scans[0].block.factors
    assert [factor.ranges is None for factor in factors] == [False, True]
    assert [function.name for function in factors[1].functions] == ["odd"]
    assert db.catalog.queries["a"].blocks == db.catalog.queries["b"].blocks
    shown = db.explain("a")
    symbol = factors[1].functions[0].symbol
    assert f"functions {symbol} = odd(n INT) RETURNS BOOLEAN" in shown
    assert "shared    with 1 other standing query" in shown
    assert symbol.upper() in shown


def test_arguments_are_cast_as_by_cast(db: Database) -> None:
    db.sql("CREATE STREAM s (n INT, price DECIMAL(4,1))")
    create(db, "def half(x):\n    assert x.type == pa.float64()\n    return pc.divide(x, 2.0)\n", ["DOUBLE"], "DOUBLE")
    db.push("s", [{"n": 3, "price": Decimal(5)}, {"n": None, "price": None}], wait=True)
    answer = db.sql("SELECT half(n) AS a, half(price) AS b, half(1) AS c FROM s")
    assert answer.table.to_pylist() == [{"a": 1.5, "b": 2.5, "c": 0.5}, {"a": None, "b": None, "c": 0.5}]


SCALARS: dict[str, list[Any]] = {
    "BOOLEAN": [True, False],
    "TINYINT": [-128, 127],
    "SMALLINT": [-32768, 5],
    "INT": [-(1 << 31), 7],
    "BIGINT": [-(1 << 63), (1 << 63) - 1],
    "FLOAT": [0.5, float("inf")],
    "DOUBLE": [-0.1, float("-inf")],
    "DECIMAL(9,2)": [Decimal("-1.25"), Decimal("1234567.89")],
    "DECIMAL(38,10)": [Decimal("1.0000000001"), Decimal("-9999999999999999999999999999.5")],
    "STRING": ["", "größer"],
    "BINARY": [b"", b"\x00\xff"],
    "DATE": [date(1, 1, 1), date(9999, 12, 31)],
    "TIMESTAMP": [datetime(1900, 1, 1, tzinfo=UTC), datetime(2024, 2, 29, 12, 0, 0, 1, tzinfo=UTC)],
    "TIMESTAMP_NTZ": [datetime(1900, 1, 1), datetime(2024, 2, 29, 12, 0, 0, 1)],
}


@pytest.mark.parametrize("type_", SCALARS)
def test_every_scalar_type_as_argument_and_result(db: Database, type_: str) -> None:
    db.sql(f"CREATE STREAM s (k INT, x {type_})")
    rows = [{"k": k, "x": x} for k, x in enumerate([*SCALARS[type_], None])]
    kind = str(db.catalog.streams["s"].schema.arrow.field("x").type)
    same = f"def same(x):\n    assert isinstance(x, pa.Array) and str(x.type) == {kind!r}, x.type\n    return x\n"
    create(db, same, [type_], type_)
    create(db, "def there(x):\n    return pc.is_valid(x)\n", [type_])
    db.register("SELECT k, same(x) AS x FROM s WHERE there(x)", name="q")
    db.push("s", rows, wait=True)
    assert db.status().queries[0].coverage == 1.0
    assert db.invoke("q").table.to_pylist() == rows[:-1]
    everything = db.sql("SELECT k, same(x) AS x FROM s ORDER BY k")
    assert everything.table.to_pylist() == rows
    assert everything.table.schema.field("x").type == db.catalog.streams["s"].schema.arrow.field("x").type


def test_nulls_are_given_as_nulls(db: Database) -> None:
    db.sql("CREATE STREAM s (n INT)")
    create(db, "def is_missing(n):\n    return pc.is_null(n)\n")
    create(db, "def nothing(n):\n    return pa.nulls(len(n))\n")
    db.push("s", [{"n": 1}, {"n": None}], wait=True)
    assert values(db.sql("SELECT n FROM s WHERE is_missing(n)")) == [None]
    assert values(db.sql("SELECT nothing(n) OR n > 0 AS x FROM s")) == [True, None]
    assert values(db.sql("SELECT n FROM s WHERE nothing(n)")) == []


RESULTS = [
    ("np.asarray(n) * 2", "BIGINT", [2, 4]),
    ("np.asarray(n) * 0.5", "DOUBLE", [0.5, 1.0]),
    ("np.array(['a', 'bc'], dtype=object)", "STRING", ["a", "bc"]),
    ("np.array(['a', 'bc'])", "STRING", ["a", "bc"]),
    ("np.ma.masked_array([1, 2], mask=[True, False])", "INT", [None, 2]),
    ("np.array(['2024-01-01', 'NaT'], dtype='datetime64[D]')", "DATE", [date(2024, 1, 1), None]),
    ("pa.chunked_array([[1], [2]])", "INT", [1, 2]),
    ("pa.array(['a', 'a']).dictionary_encode()", "STRING", ["a", "a"]),
    ("pa.array([1.0, 2.0])", "TINYINT", [1, 2]),
    ("pa.array([1, None])", "DECIMAL(5,2)", [Decimal(1), None]),
    ("np.array([float('nan'), 1.0])", "DOUBLE", ["nan", 1.0]),
]


@pytest.mark.parametrize(("expression", "type_", "expected"), RESULTS, ids=[each[0] for each in RESULTS])
def test_results_of_numpy_and_of_nearby_types(db: Database, expression: str, type_: str, expected: list[Any]) -> None:
    db.sql("CREATE STREAM s (n INT)")
    db.push("s", [{"n": 1}, {"n": 2}], wait=True)
    create(db, f"def made(n):\n    return {expression}\n", returns=type_)
    found = values(db.sql("SELECT made(n) AS x FROM s"))
    assert [str(x) if x != x else x for x in found] == expected


WRONG = [
    ("n[:1]", "BOOLEAN", "returned 1 values for 3 rows"),
    ("pc.add(n, 1)", "BOOLEAN", "returned BIGINT, not BOOLEAN"),
    ("pc.cast(n, pa.string())", "INT", "returned STRING, not INT"),
    ("pa.array([1.5, 2.0, 3.0])", "INT", "a value that is no INT"),
    ("pa.array([1, 2, 300])", "TINYINT", "a value that is no TINYINT"),
    ("[True, True, True]", "BOOLEAN", "returned list, not an array"),
    ("None", "BOOLEAN", "returned NoneType, not an array"),
    ("np.zeros((3, 2))", "DOUBLE", "an array of 2 dimensions"),
    ("1 / 0", "BOOLEAN", "raised ZeroDivisionError: division by zero (line 2 of its source)"),
    pytest.param("exit()", "BOOLEAN", "raised SystemExit", marks=pytest.mark.not_at_one_row("it ends Spark's worker")),
    ("pc.no_such_function(n)", "BOOLEAN", "raised AttributeError"),
]
WRONG = at_one_row(WRONG[:1] + WRONG[8:10], WRONG)  # Spark tries each again, three times


@pytest.mark.parametrize(
    ("expression", "type_", "message"), WRONG, ids=[str(getattr(each, "values", each)[0]) for each in WRONG]
)
def test_what_a_function_does_wrong_is_told(db: Database, expression: str, type_: str, message: str) -> None:
    db.sql(TICKS)
    db.push("ticks", ticks(range(3)), wait=True)
    create(db, f"def wrong(n):\n    return {expression}\n", returns=type_)
    with pytest.raises(EvaluationError, match="Function 'wrong'") as raised:
        db.sql("SELECT wrong(n) FROM ticks")
    assert message in raised.value.message


def test_one_that_raises_harms_only_its_own_queries(db: Database) -> None:
    db.sql(TICKS)
    db.sql(ODD)
    raises = "def fussy(n):\n    if pc.any(pc.equal(n, 0)).as_py():\n        raise ValueError('a zero')\n    return n\n"
    create(db, raises, returns="INT")
    db.register("SELECT n FROM ticks WHERE fussy(n) > 1", name="raises")
    db.register("SELECT n FROM ticks WHERE n <> 0 AND fussy(n) > 1", name="guarded")
    db.register("SELECT n FROM ticks WHERE odd(n)", name="fine")
    db.push("ticks", ticks([1, 2]), wait=True)
    assert values(db.invoke("raises")) == [2]
    assert db.push("ticks", ticks([0, 3]), wait=True) == 2
    db.backfill()
    assert values(db.invoke("fine")) == [1, 3]
    assert values(db.invoke("guarded")) == [2, 3]
    with pytest.raises(EvaluationError, match="Function 'fussy' raised ValueError: a zero"):
        db.invoke("raises")
    status = {query.name: query for query in db.status().queries}
    assert (status["raises"].covered, status["fine"].covered, status["guarded"].covered) == (1, 2, 2)
    assert "a zero" in str(status["raises"].error)


@pytest.mark.not_at_one_row("its limit is shorter than a Spark job takes")
@pytest.mark.parametrize("body", ["while True:\n        pass", "import time\n    time.sleep(20)"])
def test_one_that_never_ends_hangs_nothing(open_db: Open, body: str) -> None:
    db = open_db(factor_seconds_max=1.0, invoke_seconds_max=1.5)
    db.sql(TICKS)
    db.sql(ODD)
    create(db, f"def never(n):\n    {body}\n")
    db.register("SELECT n FROM ticks WHERE never(n)", name="never")
    db.register("SELECT n FROM ticks WHERE odd(n)", name="fine")
    before = time.monotonic()
    assert db.push("ticks", ticks(range(4)), wait=True) == 1
    assert values(db.invoke("fine")) == [1, 3]
    late = r"Function 'never' took longer than 1\.5 s"
    with pytest.raises(EvaluationError, match=late):
        db.invoke("never")
    with pytest.raises(InvocationTimeout, match=late):
        db.sql("SELECT never(n) FROM ticks")
    assert time.monotonic() - before < 15
    assert "took longer" in str({query.name: query.error for query in db.status().queries}["never"])


def test_python_that_never_ends_is_stopped(open_db: Open) -> None:
    db = open_db(invoke_seconds_max=0.3)
    db.sql(TICKS)
    db.push("ticks", ticks(range(4)), wait=True)
    create(db, NEVER)
    before = set(threading.enumerate())
    with pytest.raises(LadleError, match="took longer"):
        db.sql("SELECT never(n) FROM ticks")
    own = [each for each in set(threading.enumerate()) - before if each.name == "ladle-function"]
    wait_until(lambda: not any(each.is_alive() for each in own), "the thread of a stopped function ends")


# -- versions --


def test_a_replaced_function_is_never_mixed_with_the_old_one(db: Database) -> None:
    db.sql(TICKS)
    create(db, at_least(3))
    for mode in ("none", "partial", "complete"):
        db.register("SELECT n FROM ticks WHERE enough(n)", name=mode, materialize=mode)
    db.register("SELECT count(*) AS c FROM partial", name="reader")
    db.push("ticks", ticks(range(6)), wait=True)
    assert [values(db.invoke(name)) for name in ("none", "partial", "complete")] == [[3, 4, 5]] * 3
    assert values(db.invoke("reader")) == [3]
    blocks = db.catalog.queries["partial"].blocks
    create(db, at_least(3))
    assert db.catalog.queries["partial"].blocks == blocks, "the same again is no new version"
    create(db, at_least(5))
    assert db.catalog.queries["partial"].blocks != blocks
    assert [values(db.invoke(name)) for name in ("none", "partial", "complete")] == [[5]] * 3
    assert values(db.invoke("reader")) == [1]
    db.push("ticks", ticks([4, 5, 6]), wait=True)
    db.backfill()
    assert [values(db.invoke(name)) for name in ("none", "partial", "complete")] == [[5, 5, 6]] * 3
    assert values(db.sql("SELECT n FROM ticks WHERE enough(n)")) == [5, 5, 6]


def test_a_function_that_is_called_keeps_its_types(db: Database) -> None:
    db.sql(TICKS)
    create(db, at_least(3))
    db.register("SELECT n FROM ticks WHERE enough(n)", name="q")
    with pytest.raises(InUse, match="can't take or return other types: queries call it: q"):
        create(db, at_least(3), ["BIGINT"])
    with pytest.raises(InUse, match="other types"):
        create(db, at_least(3), returns="INT")
    db.unregister("q")
    create(db, at_least(3), ["BIGINT"])
    assert db.functions()[0].arguments == ("BIGINT",)


def test_dropping_what_is_called(db: Database) -> None:
    db.sql(TICKS)
    db.sql(ODD)
    db.register("SELECT n FROM ticks WHERE odd(n)", name="q")
    db.register("SELECT n FROM q", name="reader")
    db.register("SELECT n FROM ticks", name="other")
    with pytest.raises(InUse, match="Function 'odd' can't be dropped: queries call it: q, reader"):
        db.sql("DROP FUNCTION odd")
    db.sql("DROP FUNCTION ODD CASCADE")
    assert [query.name for query in db.queries()] == ["other"]
    assert db.functions() == []
    with pytest.raises(UnknownName, match="Function 'odd' not found"):
        db.sql("SELECT odd(n) FROM ticks")
    with pytest.raises(UnknownName, match="Function 'odd' not found"):
        db.drop_function("odd")
    assert db.sql("DROP FUNCTION IF EXISTS odd").message == "there was no function odd"


def test_names_that_are_there(db: Database) -> None:
    assert db.sql(ODD).message == "function odd created"
    with pytest.raises(AlreadyExists, match="There is a function 'odd' already"):
        db.sql(ODD.replace("odd", "ODD"))
    kept = db.sql(ODD.replace("FUNCTION", "FUNCTION IF NOT EXISTS").replace("1)", "0)"))
    assert kept.message == "function odd is there already, unchanged"
    assert values(db.sql("SELECT odd(1)")) == [True]
    replaced = ODD.replace("CREATE", "CREATE OR REPLACE")
    assert db.sql(replaced).message == "function odd is there already, unchanged"
    assert db.sql(replaced.replace(", 1) $$", ", 0) $$")).message == "function odd replaced"
    assert values(db.sql("SELECT odd(1)")) == [False]


@pytest.mark.parametrize("name", ["abs", "count", "now", "rand", "reflect", "case", "cast", "if", "exists", "größe"])
def test_names_that_no_function_can_have(db: Database, name: str) -> None:
    with pytest.raises(LadleError, match=f"'{name}' can't name a function"):
        db.sql(f"CREATE FUNCTION `{name}`(x INT) RETURNS INT LANGUAGE PYTHON AS $$ return x $$")
    assert db.functions() == []


def test_show_and_describe(db: Database) -> None:
    db.sql(TICKS)
    db.sql(ODD)
    db.register("SELECT n FROM ticks WHERE odd(n)", name="q")
    shown = db.sql("SHOW FUNCTIONS").table.to_pylist()
    assert shown == [{"name": "odd", "arguments": "INT", "returns": "BOOLEAN", "queries": 1}]
    for text in ("DESCRIBE odd", "DESCRIBE FUNCTION odd"):
        facts = {row["name"]: row["value"] for row in db.sql(text).table.to_pylist()}
        assert facts["function"] == "odd(n INT) RETURNS BOOLEAN"
        assert facts["queries"] == "q"
        assert "pc.bit_wise_and(n, 1)" in facts["source"]
    with pytest.raises(UnknownName, match="Function 'q' not found"):
        db.sql("DESCRIBE FUNCTION q")


def test_bodies_of_every_form(db: Database) -> None:
    form = "CREATE OR REPLACE FUNCTION f(a INT, b INT) RETURNS INT LANGUAGE PYTHON AS $${}$$"
    forms = [
        "pc.add(a, b)",
        "\n    import pyarrow.compute as c\n    return c.add(a, b)  # $ and ; are part of it\n",
        "\nimport pyarrow.compute as c\ndef f(x, y):\n    return both(x, y)\ndef both(x, y):\n    return c.add(x, y)\n",
    ]
    for body in forms:
        db.sql(form.format(body))
        assert values(db.sql("SELECT f(2, 3)")) == [5], body
    assert values(db.execute(f"{form.format('pc.subtract(a, b)')}; SELECT f(2, 3)")[1]) == [-1]
    db.sql("CREATE OR REPLACE FUNCTION f(a INT, b INT) RETURNS INT LANGUAGE PYTHON AS 'pc.multiply(a, b)'")
    assert values(db.sql("SELECT f(2, 3)")) == [6]


MISTAKES = [
    ("SELECT odd(n, 1) FROM ticks", "takes 1 arguments, not 2: odd(n INT) RETURNS BOOLEAN"),
    ("SELECT odd(*) FROM ticks", "takes expressions"),
    ("SELECT odd(DISTINCT n) FROM ticks", "takes expressions"),
    ("SELECT odd(n) OVER () FROM ticks", "can't stand in FROM or before OVER"),
    ("SELECT * FROM odd(1)", "FROM"),
    ("CREATE FUNCTION f(x INT) RETURNS INT LANGUAGE JAVA AS $$x$$", "Expected LANGUAGE PYTHON"),
    ("CREATE FUNCTION f(x INT) LANGUAGE PYTHON AS $$x$$", "Expected RETURNS and a type"),
    ("CREATE FUNCTION f(x INT) RETURNS INT LANGUAGE PYTHON AS x", "Expected AS $$"),
    ("CREATE FUNCTION f RETURNS INT LANGUAGE PYTHON AS $$x$$", "Expected the arguments in parentheses"),
    ("CREATE FUNCTION f(x INT) RETURNS INT LANGUAGE PYTHON AS $$x +$$", "is not Python"),
    ("CREATE FUNCTION f(x INT) RETURNS INT LANGUAGE PYTHON AS $$y = x$$", "nor returns anything"),
    ("CREATE FUNCTION f(x INT) RETURNS INT LANGUAGE PYTHON AS $$math.sin(x)$$", "uses 'math' from outside"),
    ("CREATE FUNCTION f(x ARRAY<INT>) RETURNS INT LANGUAGE PYTHON AS $$x$$", "can't take or return ARRAY<INT>"),
    ("CREATE FUNCTION f(class INT) RETURNS INT LANGUAGE PYTHON AS $$1$$", "'class' can't name an argument"),
    ("CREATE FUNCTION f(x INT, X INT) RETURNS INT LANGUAGE PYTHON AS $$x$$", "two arguments of one name"),
    ("CREATE FUNCTION f(x INT) RETURNS INT LANGUAGE PYTHON AS $$def f(x, y): return x$$", "but 1 types"),
    ("CREATE OR REPLACE STREAM s (n INT)", "CREATE OR REPLACE QUERY, VIEW, FUNCTION or TOKEN"),
]


@pytest.mark.parametrize(("text", "message"), MISTAKES, ids=[each[0] for each in MISTAKES])
def test_mistakes(db: Database, text: str, message: str) -> None:
    db.sql(TICKS)
    db.sql(ODD)
    with pytest.raises(LadleError) as raised:
        db.sql(text)
    assert message in raised.value.message
    if text.startswith("SELECT odd"):
        assert isinstance(raised.value, SqlError)
        assert raised.value.position is not None


# -- durability --


def test_functions_outlive_the_process(open_db: Open) -> None:
    db = open_db()
    db.sql(TICKS)
    create(db, at_least(1))
    create(db, at_least(2))
    db.register("SELECT n, enough(n) AS e FROM ticks WHERE enough(n)", name="q")
    db.push("ticks", ticks(range(4)), wait=True)
    symbol = db.functions()[0].symbol
    for _ in range(2):  # from the log's entries, and from the checkpoint
        db.close()
        db = open_db(checkpoint_entries=1)
        assert db.functions()[0].symbol == symbol
        assert db.functions()[0].source == at_least(2)
        assert db.explain("q").count("coverage  1 of 1") == 1
        assert values(db.invoke("q")) == [2, 3]
        db.maintain()
    db.push("ticks", ticks([5]), wait=True)
    with pytest.raises(InUse):
        db.drop_function("enough")
    reader = open_db(read_only=True)
    assert values(reader.invoke("q")) == [2, 3, 5]
    assert [function.name for function in reader.functions()] == ["enough"]


def test_two_warehouses_of_one_process_have_functions_of_their_own(open_db: Open, tmp_path: Any) -> None:
    from ladle.testing import connect_inline

    first = open_db()
    second = connect_inline(tmp_path / "second", settings={"maintenance_seconds": 3_600.0})
    with second:
        for db, limit in ((first, 1), (second, 2)):
            db.sql(TICKS)
            create(db, at_least(limit))
            db.register("SELECT n FROM ticks WHERE enough(n)", name="q")
            db.push("ticks", ticks(range(3)), wait=True)
        assert first.functions()[0].symbol == second.functions()[0].symbol
        for _ in range(2):
            assert values(first.invoke("q")) == [1, 2]
            assert values(second.invoke("q")) == [2]
            assert values(first.sql("SELECT count(*) FROM ticks WHERE enough(n + 0)")) == [2]
            assert values(second.sql("SELECT count(*) FROM ticks WHERE enough(n + 0)")) == [1]


def test_through_python(db: Database) -> None:
    db.sql(TICKS)

    @db.create_function(arguments=["INT"], returns="BOOLEAN")
    def even(n: pa.Array) -> pa.Array:
        return pc.equal(pc.bit_wise_and(n, 1), 0)

    assert even(pa.array([1, 2])).to_pylist() == [False, True]
    made = db.create_function(even, "straight", arguments=["INT"], returns="BOOLEAN")
    assert (made.name, made.arguments, made.returns) == ("straight", ("INT",), pa.bool_())
    db.push("ticks", ticks(range(4)), wait=True)
    assert values(db.sql("SELECT n FROM ticks WHERE even(n) AND straight(n)")) == [0, 2]
    with pytest.raises(AlreadyExists):
        db.create_function(even, arguments=["INT"], returns="BOOLEAN")
    assert db.create_function(even, arguments=["BIGINT"], returns="INT", if_not_exists=True).arguments == ("INT",)
    with pytest.raises(LadleError, match="either kept or replaced"):
        db.create_function(even, arguments=["INT"], returns="INT", if_not_exists=True, replace=True)
    db.drop_function("straight")
    assert [function.name for function in db.functions()] == ["even"]


def test_many_rows_are_given_in_arrays(db: Database) -> None:
    db.sql("CREATE STREAM s (n INT)")
    create(db, "def rows_given(n):\n    return np.full(len(n), len(n))\n", returns="INT")
    db.push("s", pa.table({"n": np.arange(10_000, dtype=np.int32)}), wait=True)
    assert values(db.sql("SELECT min(rows_given(n)) > 500 AS big FROM s")) == [True]
