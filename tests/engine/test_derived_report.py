"""What is told of derived state is what there is, also after some of it was dropped for want of room."""

from __future__ import annotations

from typing import Any

import pytest
from tests.engine.conftest import Open
from tests.engine.rows import TICKS, ticks

from ladle.derived import Derived, Rates, Shelf
from ladle.engine import Database

pytestmark = pytest.mark.not_at_one_row("there Spark joins, and looks at no pairs")


def told(db: Database) -> dict[str, dict[str, Any]]:
    return {row["kind"]: row for row in db.sql("SHOW DERIVED").to_pylist()}


def test_files_that_were_dropped_are_not_told_as_covered(open_db: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ladle.housekeeping.background.Background._work_loop", lambda _: None)
    db = open_db(derived_disk_bytes_max=1)
    db.sql(TICKS)
    db.sql("CREATE STREAM other (n INT, at TIMESTAMP) TIMESTAMP BY at")
    db.register("SELECT at FROM ticks WHERE n % 3 = 0", name="q", materialize="partial")
    joined = "SELECT a.n FROM ticks [RANGE 1 HOUR] a JOIN other [RANGE 1 HOUR] b ON a.n = b.n"
    db.register(joined, name="joined", materialize="partial")
    for first in range(0, 90, 30):
        db.push("ticks", ticks(range(first, first + 30)), wait=True)
        db.push("other", ticks(range(first, first + 30)), wait=True)
    db.backfill()
    assert told(db)["results"]["coverage"] == 1.0
    db.maintain()
    after = told(db)
    for kind in ("results", "pairs"):
        assert {key: after[kind][key] for key in ("things", "disk_bytes", "coverage", "rebuild_seconds")} == {
            "things": 0,
            "disk_bytes": 0,
            "coverage": 0.0,
            "rebuild_seconds": 0.0,
        }
        assert after[kind]["evictions"] > 0


def test_nothing_takes_no_time_to_make_anew() -> None:
    shelf: Shelf[int, str] = Shelf("some", Derived(1_000, 0))
    for number in range(3):
        shelf.put(number, "x", 1, 0.1 * (number + 1))
    for number in range(3):
        shelf.pop(number)
    assert shelf.account().seconds == 0.0


def test_what_things_took_to_make_is_known_after_a_restart(open_db: Open) -> None:
    """Otherwise files would go by constants, however long a backfill had taken for them."""
    db = open_db()
    db.sql(TICKS)
    db.push("ticks", ticks(range(5)), wait=True)
    db._store.rates.note("results", 1, 10, 70.0)
    db._store.rates.note("pairs", "join", 1, 3.0)
    db._store.rates.note("query sets", None, 2, 1.0)
    db.close()
    db = open_db()
    assert [db._store.rates.seconds("results", stream, 2) for stream in (1, 99)] == [14.0, 14.0]
    assert db._store.rates.seconds("pairs", "join", 2) == 6.0
    assert db._store.rates.seconds("query sets", None, 4) == 2.0
    db.close()
    path = db.path / "derived" / "rates"
    path.write_bytes(path.read_bytes().replace(b"70.0", b"90.0"))
    assert open_db()._store.rates.seconds("results", 1, 2) is None


def test_rates_of_what_is_gone_do_not_add_up() -> None:
    rates, other = Rates(), Rates()
    for number in range(5_000):
        rates.note("pairs", f"join {number}", 1, 1.0)
    other.decode(rates.encoded())
    assert other._known.keys() == {("pairs", None), *(("pairs", f"join {number}") for number in range(904, 5_000))}
    other.decode(b"")
