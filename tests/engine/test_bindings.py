"""Texts are the truth, and plans are derived: bound again by another version of the program, to the same answers.

Another version is played by another number of the translation, and by a binder that does not understand some text. What
it would get wrong, if it took what was derived before for its own, are answers: they are compared with plain Python.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ladle import sql
from ladle.catalog.bindings import NUMBERS, PLANS
from ladle.catalog.dependents import queries_calling, queries_on, queries_reading
from ladle.engine import Database
from ladle.errors import BrokenQuery, InUse, SqlError
from ladle.plan import Plan
from ladle.stem.numbering import DamagedNumbers, Numbering, read_numbers
from ladle.testing import connect_inline

QUIET = {"maintenance_seconds": 3_600.0}
ROWS = [{"n": n % 40, "word": f"w{n % 7}"} for n in range(200)]
TEXTS = {
    "low": "SELECT n FROM s WHERE n < 5",
    "high": "SELECT n FROM s WHERE n > 30",
    "words": "SELECT n, word FROM s WHERE word = 'w3' AND n > 10",
    "joined": "SELECT a.n FROM s [RANGE 1 HOUR] AS a, s [RANGE 1 HOUR] AS b "
    "WHERE a.n = b.n AND a.n < 2 AND b.word = 'w1'",
    "over": "SELECT n + 1 AS more FROM high WHERE n < 35",
}


def expected(name: str) -> list[int]:
    match name:
        case "low":
            return sorted(row["n"] for row in ROWS if row["n"] < 5)
        case "high":
            return sorted(row["n"] for row in ROWS if row["n"] > 30)
        case "words":
            return sorted(row["n"] for row in ROWS if row["word"] == "w3" and row["n"] > 10)
        case "joined":
            return sorted(a["n"] for a in ROWS for b in ROWS if a["n"] == b["n"] < 2 and b["word"] == "w1")
        case _:
            return sorted(row["n"] + 1 for row in ROWS if 30 < row["n"] < 35)


def answer(db: Database, name: str) -> list[int]:
    return sorted(next(iter(row.values())) for row in db.invoke(name).to_pylist())


def check(db: Database, *but: str) -> None:
    for name in TEXTS:
        if name not in but:
            assert answer(db, name) == expected(name), name


def opened(path: Path, *, read_only: bool = False) -> Database:
    return connect_inline(path, settings=QUIET, read_only=read_only)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A warehouse with queries whose results are kept, closed."""
    place = tmp_path / "warehouse"
    with opened(place) as db:
        db.sql("CREATE STREAM s (n INT, word STRING)")
        for name, text in TEXTS.items():
            db.register(text, name=name, materialize="partial")
        for begin in range(0, 200, 50):
            db.push("s", ROWS[begin : begin + 50], wait=True)
        db.backfill()
        check(db)
        assert {each.coverage for each in db.status().queries} == {1.0}
    return place


@pytest.fixture
def another_translation(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """From the call on, another version of the program runs."""
    return lambda: monkeypatch.setattr("ladle.plan.translation.TRANSLATION", 1_000)


@pytest.fixture
def not_understood(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Texts that the binder refuses."""
    refused: set[str] = set()
    bind = sql.rebind

    def rebind(text: str, names: Any) -> Plan:
        if text in refused:
            raise SqlError("This version has no such operator.")
        return bind(text, names)

    monkeypatch.setattr(sql, "rebind", rebind)
    return refused


def bound(db: Database) -> int:
    """How many texts this process had to bind because nothing was kept of them."""
    return db._store._bindings.bound


def covered(db: Database) -> int:
    return sum(each.covered for each in db.status().queries if each.name in ("low", "high", "words"))


def files(path: Path) -> dict[str, bytes]:
    return {str(each): each.read_bytes() for each in sorted((path / "derived").rglob("*")) if each.is_file()}


def test_what_was_bound_is_kept(path: Path) -> None:
    for read_only in (False, True):
        with opened(path, read_only=read_only) as db:
            assert {each.coverage for each in db.status().queries} == {1.0}
            check(db)
            assert bound(db) == 0


def test_nothing_is_bound_before_it_is_needed(path: Path) -> None:
    (path / "derived" / PLANS).unlink()
    with opened(path, read_only=True) as db:
        assert [query.name for query in db.queries()] == list(TEXTS)
        assert queries_on(db.catalog, "s") == list(TEXTS)
        assert queries_reading(db.catalog, "high") == ["over"]
        assert db.sql("SHOW STREAMS").to_pylist()[0]["name"] == "s"
        assert bound(db) == 0
        check(db)
        assert bound(db) == len(TEXTS)


@pytest.mark.parametrize("harm", ["gone", "cut", "flipped", "of another table"])
def test_kept_plans_may_be_lost(path: Path, harm: str) -> None:
    plans = path / "derived" / PLANS
    data = plans.read_bytes()
    match harm:
        case "gone":
            plans.unlink()
        case "cut":
            plans.write_bytes(data[: len(data) // 2])
        case "flipped":
            plans.write_bytes(data.replace(b"high", b"hugh", 1).replace(b'"factors"', b'"factorz"', 1))
        case _:
            head, _, rest = data.partition(b"\n")
            plans.write_bytes(head.replace(b" ", b" 1", 1) + b"\n" + rest)
    with opened(path) as db:
        check(db)
        assert bound(db) == len(TEXTS)
        assert {each.coverage for each in db.status().queries} == {1.0}, "blocks have the numbers they had"


@pytest.mark.parametrize("read_only", [False, True])
def test_another_translation_binds_everything_again(
    path: Path, another_translation: Callable[[], None], read_only: bool
) -> None:
    another_translation()
    before = files(path)
    with opened(path, read_only=read_only) as db:
        # First of all: the backfill begins after some seconds by itself, and answers may take longer than that.
        there = files(path)
        assert covered(db) == 0
        check(db)
        assert bound(db) == len(TEXTS)
        if read_only:
            assert files(path) == before, "a process that reads writes nothing"
            return
        assert not any(name.endswith((".results", ".pairs")) for name in there)
        db.backfill()
        check(db)
        assert {each.coverage for each in db.status().queries} == {1.0}
    with opened(path) as db:
        assert {each.coverage for each in db.status().queries} == {1.0}
        check(db)
        assert bound(db) == 0


def test_old_results_are_not_taken_for_another_block_s(
    path: Path, another_translation: Callable[[], None], not_understood: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first query does not bind, so blocks are met in another order; and nothing that was derived was removed."""
    another_translation()
    not_understood.add(TEXTS["low"])
    monkeypatch.setattr("ladle.archive.warehouse.Warehouse.empty_derived", lambda _: None)
    with opened(path) as db:
        assert any(name.endswith(".results") for name in files(path))
        check(db, "low")
        assert covered(db) == 0
        db.backfill()
        check(db, "low")


@pytest.mark.parametrize("harm", ["gone", "cut", "cut at a part's end", "flipped"])
def test_without_its_numbers_nothing_is_covered(path: Path, harm: str) -> None:
    """Numbers that were given are not given again: they would name other blocks."""
    numbers = path / "derived" / NUMBERS
    data = numbers.read_bytes()
    given = set(read_numbers(data).numbers.values())
    match harm:
        case "gone":
            numbers.unlink()
        case "cut":
            numbers.write_bytes(data[:-3])
        case "cut at a part's end":
            numbers.write_bytes(data[: -16 - 20 - 24])
        case _:
            numbers.write_bytes(data[:-40] + bytes([data[-40] ^ 1]) + data[-39:])
    with opened(path, read_only=True) as db:
        check(db)
    with opened(path) as db:
        check(db)
        assert not given & set(db.catalog.queries.users)
        db.backfill()
        check(db)


def test_numbers_outlive_what_is_derived_while_the_process_does(path: Path) -> None:
    with opened(path) as db:
        shutil.rmtree(path / "derived")
        db.register("SELECT n FROM s WHERE n = 7", name="seven", materialize="partial")
        db.push("s", [{"n": 100, "word": "w9"}], wait=True)
        db.backfill()
        users = dict(db.catalog.queries.users)
        assert set(read_numbers((path / "derived" / NUMBERS).read_bytes()).numbers.values()) >= set(users)
    with opened(path) as db:
        assert dict(db.catalog.queries.users) == users
        assert answer(db, "high") == [*expected("high"), 100]
        assert answer(db, "seven") == [7] * 5


def test_numbers_of_blocks_that_are_gone_are_forgotten_at_last(tmp_path: Path) -> None:
    numbering = Numbering.begun(tmp_path / "numbers")
    given = numbering.numbers([f"block {number}" for number in range(3_000)])
    numbering.keep(set(given[:10]))
    again = Numbering(tmp_path / "numbers")
    assert again.numbers([f"block {number}" for number in range(10)]) == given[:10]
    assert again.find("block 2000") is None
    assert min(again.numbers(["block 2000"])) > max(given)


def test_a_damaged_table_of_numbers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    numbering = Numbering.begun(path)
    for number in range(4):
        numbering.numbers([f"{number} {each}" for each in range(number + 1)])
        numbering.save()
    numbering.close()
    data = path.read_bytes()
    assert read_numbers(data).following == numbering.begin + 10
    for at in range(len(data)):
        with pytest.raises(DamagedNumbers):
            read_numbers(data[:at])
        with pytest.raises(DamagedNumbers):
            read_numbers(data[:at] + bytes([data[at] ^ 64]) + data[at + 1 :])


def test_a_number_never_means_two_blocks(tmp_path: Path) -> None:
    """Whatever was written down when the process was killed: the next one gives other numbers."""
    path = tmp_path / "numbers"
    numbering = Numbering.begun(path)
    means: dict[int, str] = {}
    for turn in range(200):
        keys = [f"{turn} {each}" for each in range(turn % 40)] + [f"{turn // 3} shared"]
        for key, number in zip(keys, numbering.numbers(keys), strict=True):
            assert means.setdefault(number, key) == key
        if turn % 50 == 30:
            numbering.save()
        if turn % 7 == 0:  # killed: what is in memory is lost
            numbering = Numbering(path)
    numbering.close()
    table = read_numbers(path.read_bytes())
    assert table.following == max(means) + 1
    assert len(table.numbers) < len(means)


def test_numbers_are_written_down_many_at_a_time(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    numbering = Numbering.begun(path)
    numbering.numbers(["first"])
    before = path.read_bytes()
    for number in range(20):
        numbering.numbers([f"block {number}"])
    assert path.read_bytes() == before
    numbering.save()
    assert len(read_numbers(path.read_bytes()).numbers) == 21


def test_numbers_of_registrations_are_written_down_with_the_next_epoch(path: Path) -> None:
    with opened(path) as db:
        for number in range(70, 90):
            db.register(f"SELECT n FROM s WHERE n = {number}", name=f"q{number}")
        db.push("s", [{"n": 100, "word": "w9"}], wait=True)
        table = read_numbers((path / "derived" / NUMBERS).read_bytes())
        assert set(table.numbers.values()) >= set(db.catalog.queries.users)


def test_the_first_answer_does_not_wait_for_all_queries_to_be_bound(path: Path) -> None:
    with opened(path, read_only=True) as db:
        check(db)
        assert not db.catalog.queries.step.is_made


def test_a_reader_beside_the_writer(path: Path) -> None:
    with opened(path) as db, opened(path, read_only=True) as reader:
        check(reader)
        db.register("SELECT n FROM s WHERE n = 7", name="seven", materialize="partial")
        db.backfill()
        assert answer(reader, "seven") == [7] * 5
        assert {each.coverage for each in reader.status().queries} == {1.0}
        assert reader.catalog.queries["seven"].blocks == db.catalog.queries["seven"].blocks


def test_a_reader_sees_that_blocks_have_other_numbers(path: Path) -> None:
    with opened(path, read_only=True) as reader:
        check(reader)
        (path / "derived" / NUMBERS).unlink()
        with opened(path) as db:
            check(reader)
            db.backfill()
            check(reader)
            assert covered(reader) == covered(db) > 0
            assert dict(reader.catalog.queries.users) == dict(db.catalog.queries.users)


def test_a_query_that_does_not_bind_is_broken_and_others_go_on(
    path: Path, another_translation: Callable[[], None], not_understood: set[str]
) -> None:
    another_translation()
    not_understood.add(TEXTS["high"])
    reason = "This version has no such operator."
    with opened(path) as db:
        check(db, "high", "over")
        db.push("s", [{"n": 3, "word": "w0"}], wait=True)
        db.backfill()
        assert answer(db, "low") == sorted([*expected("low"), 3])
        with pytest.raises(BrokenQuery, match=f"Query 'high' is broken: {reason}") as broken:
            db.invoke("high")
        assert "CREATE OR REPLACE QUERY high" in str(broken.value.hint)
        with pytest.raises(BrokenQuery, match="'over' is broken: It reads query 'high', which is broken") as told_over:
            db.invoke("over")
        with pytest.raises(BrokenQuery, match="'high' is broken"):
            db.sql("SELECT count(*) FROM high")
        with pytest.raises(BrokenQuery, match="'high' is broken"):
            db.sql("DESCRIBE high")
        assert "CREATE OR REPLACE QUERY high" in str(told_over.value.hint), "what is to be mended"
        for analyze in (False, True):
            assert f"  broken    {reason}" in db.explain("high", analyze=analyze).splitlines()
            assert db.explain_tree("high", analyze=analyze) is None
        assert "  standing part" in db.explain("low").splitlines()
        shown = {row["name"]: (row["window"], row["broken"]) for row in db.sql("SHOW QUERIES").to_pylist()}
        assert shown["high"] == ("broken", reason)
        assert shown["low"] == ("everything retained", None)
        statuses = {each.name: each for each in db.status().queries}
        assert (statuses["high"].window, statuses["high"].error) == ("broken", f"broken: {reason}")
        assert statuses["low"].error is None
        assert [query.name for query in db.queries()] == list(TEXTS), "they all stand"
    not_understood.clear()
    with opened(path) as db:
        assert sorted(answer(db, "high")) == expected("high")
        assert answer(db, "over") == expected("over")


def test_a_broken_query_may_be_dropped(
    path: Path, another_translation: Callable[[], None], not_understood: set[str]
) -> None:
    another_translation()
    not_understood.add(TEXTS["high"])
    with opened(path) as db:
        with pytest.raises(InUse, match="others read it: over"):
            db.unregister("high")
        db.unregister("high", cascade=True)
        assert [query.name for query in db.queries()] == ["low", "words", "joined"]
    with opened(path) as db:
        check(db, "high", "over")


def test_a_broken_query_may_be_replaced_and_its_readers_are_whole_again(
    path: Path, another_translation: Callable[[], None], not_understood: set[str]
) -> None:
    another_translation()
    not_understood.update((TEXTS["high"], TEXTS["words"]))
    with opened(path) as db:
        db.sql("CREATE OR REPLACE QUERY high AS SELECT n FROM s WHERE n >= 31")
        check(db, "words")
        db.sql("CREATE OR REPLACE QUERY words AS SELECT word, n FROM s WHERE n > 38")
        assert answer(db, "words") == sorted(row["word"] for row in ROWS if row["n"] > 38)
    with opened(path, read_only=True) as db:
        check(db, "words")


def test_a_reader_that_stays_broken_does_not_keep_others_from_being_replaced(
    path: Path, another_translation: Callable[[], None], not_understood: set[str]
) -> None:
    another_translation()
    not_understood.add(TEXTS["over"])
    with opened(path) as db:
        db.sql("CREATE OR REPLACE QUERY high AS SELECT n FROM s WHERE n >= 31")
        check(db, "over")
        with pytest.raises(BrokenQuery, match="Query 'over' is broken: This version"):
            db.invoke("over")
    not_understood.clear()
    with opened(path) as db:
        assert answer(db, "over") == expected("over")


def test_an_error_of_ours_while_binding_breaks_one_query_and_no_other(
    path: Path, another_translation: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    another_translation()
    bind = sql.rebind

    def rebind(text: str, names: Any) -> Plan:
        if text == TEXTS["low"]:
            raise ZeroDivisionError("oops")
        return bind(text, names)

    monkeypatch.setattr(sql, "rebind", rebind)
    with opened(path) as db:
        check(db, "low")
        with pytest.raises(BrokenQuery, match="Query 'low' is broken: ZeroDivisionError: oops"):
            db.invoke("low")


def test_functions_are_those_of_their_version(tmp_path: Path, another_translation: Callable[[], None]) -> None:
    path = tmp_path / "warehouse"
    with opened(path) as db:
        db.sql("CREATE STREAM s (n INT, word STRING)")
        db.sql("CREATE FUNCTION twice(n INT) RETURNS INT LANGUAGE PYTHON AS $$ pc.multiply(n, 2) $$")
        db.register("SELECT twice(n) AS m FROM s WHERE twice(n) > 70", name="q")
        db.register("SELECT m FROM q", name="reader")
        db.push("s", ROWS, wait=True)
        db.sql("CREATE OR REPLACE FUNCTION twice(n INT) RETURNS INT LANGUAGE PYTHON AS $$ pc.multiply(n, 3) $$")
        assert answer(db, "reader") == sorted(3 * row["n"] for row in ROWS if 3 * row["n"] > 70)
        with pytest.raises(InUse, match="queries call it: q, reader"):
            db.sql("DROP FUNCTION twice")
    another_translation()
    with opened(path) as db:
        assert answer(db, "reader") == sorted(3 * row["n"] for row in ROWS if 3 * row["n"] > 70)
        assert queries_calling(db.catalog, "twice") == ["q", "reader"]


def test_columns_that_come_later_are_in_no_star_of_before(path: Path, another_translation: Callable[[], None]) -> None:
    with opened(path) as db:
        db.register("SELECT * FROM s WHERE n > 38", name="star")
        db.sql("ALTER STREAM s ADD COLUMN late STRING")
        db.register("SELECT * FROM star", name="over_star")
        db.register("SELECT * FROM s WHERE n > 38", name="new_star")
        # What reads it follows it, with the columns that it had.
        db.sql("CREATE OR REPLACE QUERY star AS SELECT n, word FROM s WHERE n > 37")
    for _ in range(2):
        with opened(path) as db:
            names = {name: db.invoke(name).table.column_names for name in ("star", "over_star", "new_star")}
            assert names == {"star": ["n", "word"], "over_star": ["n", "word"], "new_star": ["n", "word", "late"]}
            assert answer(db, "over_star") == sorted(row["n"] for row in ROWS if row["n"] > 37)
        another_translation()


def test_a_backup_has_texts(path: Path, tmp_path: Path, another_translation: Callable[[], None]) -> None:
    from ladle.backup.copying import restore

    with opened(path) as db:
        db.backup(tmp_path / "backup")
    another_translation()
    restore(tmp_path / "backup", tmp_path / "restored")
    with opened(tmp_path / "restored", read_only=True) as db:
        check(db)
    with opened(tmp_path / "restored") as db:
        check(db)
        db.backfill()
        assert {each.coverage for each in db.status().queries} == {1.0}
