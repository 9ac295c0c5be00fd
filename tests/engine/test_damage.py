"""Bits that flip on the disk: no wrong answer, no crash. What is derived is made anew, the rest named and refused."""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.engine.conftest import QUIET, Open
from tests.engine.rows import TICKS, ticks, values
from tests.support.damage import flipped

from ladle.archive.checks import Checks
from ladle.archive.segments import DataFile
from ladle.engine import Database
from ladle.errors import DamagedFile, LadleError, WarehouseError
from ladle.testing import connect_inline

pytestmark = pytest.mark.not_at_one_row("its queries have no residual")

STATEMENTS = (
    "CREATE STREAM trades (symbol STRING, price DOUBLE, at TIMESTAMP) TIMESTAMP BY at",
    "CREATE STREAM quotes (symbol STRING, bid DOUBLE, at TIMESTAMP) TIMESTAMP BY at",
    "CREATE TABLE names (symbol STRING, name STRING)",
    "INSERT INTO names VALUES ('A', 'Alpha'), ('B', 'Beta'), ('C', 'Gamma')",
    "CREATE QUERY dear AS SELECT symbol, price FROM trades WHERE price > 100.5",
    "CREATE QUERY some WITH (materialize = 'partial') AS SELECT symbol, price FROM trades WHERE symbol IN ('A', 'C')",
    "CREATE QUERY joined AS SELECT t.symbol, t.price, q.bid FROM trades [RANGE 1 HOUR] t "
    "JOIN quotes [RANGE 1 HOUR] q ON t.symbol = q.symbol "
    "AND q.at BETWEEN t.at - INTERVAL 2 SECONDS AND t.at WHERE t.price > 20",
)
QUESTIONS = (
    "SELECT * FROM dear",
    "SELECT * FROM some",
    "SELECT * FROM joined",
    "SELECT symbol, price, at FROM trades",
    "SELECT symbol, bid FROM quotes",
    "SELECT name FROM names",
    "SELECT reason FROM trades.quarantine",
    "SELECT name, count(*) AS n, sum(price) AS total FROM trades t JOIN names n ON t.symbol = n.symbol GROUP BY name",
)


def rows_of(first: int, count: int, **more: Callable[[int], object]) -> list[dict[str, Any]]:
    return [
        {
            "symbol": "ABC"[n % 3],
            "at": f"2026-01-01T00:{n // 60:02d}:{n % 60:02d}Z",
            **{name: make(n) for name, make in more.items()},
        }
        for n in range(first, first + count)
    ]


def make_warehouse(path: Path) -> None:
    """One of each kind of file."""
    settings = {**QUIET, "compact_files_min": 1_000, "checkpoint_entries": 5}
    with connect_inline(path, settings=settings) as db:
        for statement in STATEMENTS:
            db.sql(statement)
        for first in range(0, 400, 100):
            db.push("trades", rows_of(first, 100, price=lambda n: n * 0.75), wait=True)
            db.push("quotes", rows_of(first, 100, bid=lambda n: n * 0.5), wait=True)
        db.push("trades", [{"symbol": "A", "price": "dear", "at": "2026-01-01T00:00:00Z"}], wait=True)
        db._backfill.run()
        db._store.checkpoint_if_due()
        db.push("trades", rows_of(400, 5, price=lambda n: n * 0.75), wait=True)
        db._ingest.drain_later = lambda *_: None  # type: ignore[method-assign]
        db.push("quotes", rows_of(400, 5, bid=lambda n: n * 0.5))


def answers(db: Database) -> list[object]:
    """Of each question the rows in some order, or the error."""
    found: list[object] = []
    for question in QUESTIONS:
        try:
            found.append(sorted(map(repr, db.sql(question).to_pylist())))
        except LadleError as error:
            found.append(error)
    return found


def drained(path: Path) -> Database:
    """The warehouse, open, with nothing left in its inboxes."""
    db = connect_inline(path, settings=QUIET)
    for name in ("trades", "quotes"):
        db._ingest.drain(db.catalog.streams[name])
    return db


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[object]]:
    """A warehouse, and what it answers."""
    path = tmp_path_factory.mktemp("damage") / "original"
    make_warehouse(path)
    copy = path.with_name("whole")
    shutil.copytree(path, copy)
    with drained(copy) as db:
        assert not any(db.verify().table.column("damaged").to_pylist())
        right = answers(db)
    assert not any(isinstance(answer, LadleError) for answer in right)
    return path, right


PLACES = {
    "segments": "streams/*/archive/*.parquet",
    "quarantine": "streams/*/quarantine/*.parquet",
    "tables": "tables/*/*.parquet",
    "log": "log/*.json",
    "inbox": "streams/*/inbox/*.arrow",
    "results": "derived/results/*/*.results",
    "pairs": "derived/joins/*/*.pairs",
    "query sets": "derived/querysets/*.page",
    "numbers": "derived/numbers",
    "plans": "derived/plans",
    "format": "FORMAT",
}
DERIVED = ("results", "pairs", "query sets", "numbers", "plans")


def flip(original: tuple[Path, list[object]], work: Path, part: str, seed: int) -> None:
    whole, right = original
    chance = random.Random(f"{part}/{seed}")
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(whole, work)
    path = chance.choice(sorted(work.glob(PLACES[part])))
    path.write_bytes(flipped(path.read_bytes(), chance, chance.choice((1, 1, 2, 5))))
    told = f"{part}, seed {seed}: {path.name}"
    try:
        with connect_inline(work, settings=QUIET, read_only=True) as reader:
            report = {row["part"]: row["damaged"] for row in reader.verify().to_pylist()}
            assert part == "format" or report[{"inbox": "pushes"}.get(part, part)] == 1, told
        db = drained(work)
    except WarehouseError:
        assert part in ("log", "format"), told
        return
    with db:
        got = answers(db)
        if part == "inbox":
            quarantine = db.sql("SELECT reason FROM quotes.quarantine").to_pylist()
            assert ["broken" in str(row["reason"]) for row in quarantine] == [True], told
            assert not any(isinstance(answer, LadleError) for answer in got), told
            return
        wrong = [question for question, one, other in zip(QUESTIONS, got, right, strict=True) if one != other]
        if part in DERIVED:
            assert not wrong, told
        elif wrong:
            errors = [answer for answer in got if isinstance(answer, LadleError)]
            assert len(errors) == len(wrong), told
            assert all(isinstance(error, DamagedFile) for error in errors), told
            assert all(path.name in str(error) for error in errors), told


@pytest.mark.parametrize("part", PLACES)
def test_a_flipped_bit_is_never_a_wrong_answer(original: tuple[Path, list[object]], tmp_path: Path, part: str) -> None:
    for seed in range(3):
        flip(original, tmp_path / "work", part, seed)


@pytest.mark.soak
@pytest.mark.parametrize("part", PLACES)
def test_many_flipped_bits_are_never_a_wrong_answer(
    original: tuple[Path, list[object]], tmp_path: Path, part: str
) -> None:
    for seed in range(1_000, 1_200):
        flip(original, tmp_path / "work", part, seed)


def damage(path: Path) -> bytes:
    """Flip a bit of the values in a Parquet file; what it was."""
    whole = path.read_bytes()
    column = pq.read_metadata(path).row_group(0).column(0)
    at = column.data_page_offset + column.total_compressed_size - 1
    path.write_bytes(whole[:at] + bytes([whole[at] ^ 8]) + whole[at + 1 :])
    return whole


def segments(db: Database) -> list[Path]:
    """The files of the first stream, in order."""
    (stream,) = db.catalog.streams.values()
    return [db.path / "streams" / str(stream.id) / "archive" / file.name for file in stream.files]


def test_a_damaged_segment_is_named_and_all_else_goes_on(open_db: Open) -> None:
    db = open_db(compact_files_min=3)
    db.sql(TICKS)
    db.sql("CREATE QUERY late AS SELECT n FROM ticks [RANGE 2 SECONDS] WHERE n > 0")
    for second in range(8):
        db.push("ticks", ticks([second]), wait=True)
    path = segments(db)[3]
    whole = damage(path)
    shutil.rmtree(db.path / "derived" / "results")
    with pytest.raises(DamagedFile, match=r"stream 'ticks'.*" + re.escape(path.name)) as raised:
        db.sql("SELECT n FROM ticks")
    assert raised.value.hint is not None
    assert "backup" in raised.value.hint
    assert path.name in db.status().problems
    # What does not touch it is answered, taken in, covered, compacted.
    assert values(db.invoke("late")) == [6, 7]
    db.push("ticks", ticks([8]), wait=True)
    db.sql("CREATE QUERY all_of_them AS SELECT n FROM ticks WHERE n >= 0")
    assert db._backfill.run() < 10
    assert db._backfill.run() == 0
    db._maintenance.run()
    db._maintenance.run()
    assert db._maintenance.errors == {}
    assert segments(db) == [segments(db)[0], path, *segments(db)[2:]]
    assert len(segments(db)) < 9, "the others are merged, beside it"
    # With its backup in its place all is there again, and the Delta table has what the log has.
    path.write_bytes(whole)
    assert sorted(values(db.sql("SELECT n FROM ticks"))) == list(range(9))
    db.close()
    db = open_db(compact_files_min=3)
    assert db._backfill.run() > 0
    assert sorted(values(db.invoke("all_of_them"))) == list(range(9))


def test_compaction_passes_no_damage_on(open_db: Open) -> None:
    """Not even in the heads of pages, which have no checksum that Arrow verifies."""
    db = open_db(compact_files_min=3)
    db.sql(TICKS)
    for second in range(3):
        db.push("ticks", ticks([second]), wait=True)
    path = segments(db)[1]
    whole = path.read_bytes()
    for at in range(4, 24):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        db._maintenance.run()
        assert len(segments(db)) == 3
        db._store.damage.forget(())
    path.write_bytes(whole)
    db._maintenance.run()
    assert len(segments(db)) == 1
    assert values(db.sql("SELECT n FROM ticks")) == [0, 1, 2]


def test_retention_lets_go_of_a_damaged_file(open_db: Open) -> None:
    db = open_db()
    db.sql(f"{TICKS} RETAIN 5 SECONDS")
    db.push("ticks", ticks([0]), wait=True)
    damage(segments(db)[0])
    with pytest.raises(DamagedFile):
        db.sql("SELECT n FROM ticks")
    db.push("ticks", ticks([100]), wait=True)
    db._maintenance.run()
    assert values(db.sql("SELECT n FROM ticks")) == [100]
    db._maintenance.run(thorough=True)
    assert db.status().problems == {}


def without_checksums(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on files are written as the version before wrote them."""
    monkeypatch.setattr(DataFile, "to_json", lambda file, own=DataFile.to_json: own(file)[:6])
    monkeypatch.setattr(Checks, "to_json", lambda _: None)
    monkeypatch.setattr(pq, "ParquetWriter", lambda *args, own=pq.ParquetWriter, **how: own(*args, **_plain(how)))


def _plain(how: dict[str, Any]) -> dict[str, Any]:
    return {**how, "write_page_checksum": False}


def test_files_without_checksums_are_read_and_gain_them(open_db: Open) -> None:
    db = open_db()
    with pytest.MonkeyPatch.context() as before:
        without_checksums(db, before)
        db.sql(TICKS)
        db.sql("CREATE TABLE names (n INT, name STRING)")
        db.sql("INSERT INTO names VALUES (1, 'one')")
        for second in range(3):
            db.push("ticks", ticks([second]), wait=True)
        db._ingest.drain_later = lambda *_: None  # type: ignore[method-assign]
        db.push("ticks", ticks([3]))
        db.close()
    for path in db.path.glob("streams/*/inbox/*.arrow"):
        path.rename(path.with_name(re.sub(r"\.[0-9a-f]{8}\.arrow", ".arrow", path.name)))
    form = json.loads((db.path / "FORMAT").read_text())
    del form["checksum"]
    (db.path / "FORMAT").write_text(json.dumps(form))
    with connect_inline(db.path, settings=QUIET, read_only=True) as reader:
        assert values(reader.sql("SELECT n FROM ticks")) == [0, 1, 2]
        report = {row["part"]: row for row in reader.verify().to_pylist()}
        assert {part: row["unprotected"] for part, row in report.items()} == {
            "format": 1, "log": 0, "segments": 3, "tables": 1, "pushes": 1, "numbers": 0,
        }  # fmt: skip
        assert not any(row["damaged"] for row in report.values())
    db = open_db(compact_files_min=3)
    db._ingest.drain(db.catalog.streams["ticks"])
    db.sql("INSERT INTO names VALUES (2, 'two')")
    db._maintenance.run()
    assert values(db.sql("SELECT n FROM ticks")) == [0, 1, 2, 3]
    assert values(db.sql("SELECT name FROM names")) == ["one", "two"]
    unprotected = {row["part"]: row["unprotected"] for row in db.verify().to_pylist()}
    assert unprotected == {"format": 1, "log": 0, "segments": 0, "tables": 0, "numbers": 0}


def test_a_log_that_cannot_be_opened_is_verified_file_by_file(
    open_db: Open, capsys: pytest.CaptureFixture[str]
) -> None:
    from ladle.cli import main

    db = open_db()
    db.sql(TICKS)
    db.push("ticks", ticks([1]), wait=True)
    (path,) = (db.path / "log").glob("*.json")
    db.close()
    assert main(["verify", "-w", str(db.path), "--format", "json"]) == 0
    assert all(json.loads(line)["damaged"] == 0 for line in capsys.readouterr().out.splitlines())
    content = path.read_bytes()
    path.write_bytes(content.replace(b"ticks", b"tocks", 1))
    assert main(["verify", "-w", str(db.path), "--format", "json"]) == 1
    found = {row["part"]: row for row in map(json.loads, capsys.readouterr().out.splitlines())}
    assert found["log"]["damaged"] == 1
    assert path.name in found["log"]["problems"]
    assert (found["segments"]["files"], found["segments"]["damaged"]) == (1, 0)
