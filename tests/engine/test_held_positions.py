"""Positions hold the tuples that their answers had, for as long as they are promised, also over a restart."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from ladle.archive import files
from ladle.clock import ManualClock
from ladle.engine import Database
from ladle.errors import Gone, WarehouseError
from ladle.execute import held_positions
from ladle.execute.held_positions import HeldPositions
from ladle.testing import connect_inline

pytestmark = pytest.mark.not_at_one_row("it computes no residual")

T0 = datetime(2026, 1, 30, 14, 30, tzinfo=UTC)
RETAIN = 10
SETTINGS = {"maintenance_seconds": 3_600.0, "compact_files_min": 1_000}


class Copy:
    """What a subscriber has: a snapshot and the deltas since."""

    def __init__(self, db: Database) -> None:
        self.rows: set[int] = set()
        self._hear(db, snapshot=True)

    def go_on(self, db: Database) -> None:
        self._hear(db, since=self.position)

    def _hear(self, db: Database, **how: Any) -> None:
        with db.query("q").subscribe(**how) as changes:
            while (delta := changes.next(0.0)) is not None:
                self.rows |= {row["id"] for row in delta.inserted.to_pylist()}
                self.rows -= {row["id"] for row in delta.retracted.to_pylist()}
            self.position = str(changes.position)


class Steps:
    """A stream that retains ten seconds, and takes a tuple a second."""

    def __init__(self, path: Path, *, stamped: bool) -> None:
        self.path = path
        self.stamped = stamped
        self.clock = ManualClock(T0)
        self.seconds = 0
        self.db = self.open()
        time = "" if stamped else ", at TIMESTAMP) TIMESTAMP BY at"
        self.db.sql(f"CREATE STREAM s (id INT{time or ')'} RETAIN INTERVAL {RETAIN} SECONDS")
        self.db.register("SELECT id FROM s", name="q")

    def open(self) -> Database:
        return connect_inline(self.path, clock=self.clock, settings=SETTINGS)

    def restart(self) -> None:
        self.db.close()
        self.db = self.open()

    def go(self, seconds: int) -> None:
        for _ in range(seconds):
            self.seconds += 1
            self.clock.advance(timedelta(seconds=1))
            row: dict[str, Any] = {"id": self.seconds}
            if not self.stamped:
                row["at"] = T0 + timedelta(seconds=self.seconds)
            self.db.push("s", [row], wait=True)
            self.db.maintain()

    @property
    def rows(self) -> set[int]:
        return {row["id"] for row in self.db.query("q").invoke()}

    @property
    def kept(self) -> int:
        return sum(file.rows for file in self.db.catalog.streams["s"].files)


@pytest.fixture(params=["own time", "stamped"])
def steps(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Steps]:
    # What is promised is promised by the stream's clock alone here, and not for a minute by the wall clock.
    with patch.object(held_positions, "HOLD_SECONDS", 0.0), patch.object(held_positions, "_SAVE_SECONDS", 0.0):
        made = Steps(tmp_path / "warehouse", stamped=request.param == "stamped")
        yield made
        made.db.close()


@pytest.mark.parametrize("away", [1, RETAIN // 2, RETAIN - 1])
def test_a_position_is_gone_on_from_after_a_restart(steps: Steps, away: int) -> None:
    steps.go(RETAIN + 2)
    copy = Copy(steps.db)
    assert copy.rows == steps.rows
    steps.restart()
    steps.go(away)
    copy.go_on(steps.db)
    assert copy.rows == steps.rows


def test_over_several_restarts_and_for_each_of_several_followers(steps: Steps) -> None:
    steps.go(RETAIN + 2)
    copies = []
    for _ in range(3):
        copies.append(Copy(steps.db))
        steps.go(2)
        steps.restart()
        steps.go(1)
    for copy in copies:
        copy.go_on(steps.db)
        assert copy.rows == steps.rows


def test_it_is_promised_no_longer_than_without_a_restart(steps: Steps) -> None:
    steps.go(RETAIN + 2)
    copy = Copy(steps.db)
    steps.restart()
    steps.go(RETAIN + 3)
    with pytest.raises(Gone):
        copy.go_on(steps.db)
    steps.go(RETAIN)
    assert steps.kept <= RETAIN + 1


def test_where_nobody_follows_nothing_is_kept_longer(steps: Steps) -> None:
    steps.go(RETAIN + 2)
    steps.restart()
    steps.go(RETAIN)
    assert steps.kept <= RETAIN + 1
    assert not (steps.path / "positions").exists()


def test_who_follows_no_more_is_forgotten_on_disk_too(steps: Steps) -> None:
    steps.go(2)
    Copy(steps.db)
    assert json.loads((steps.path / "positions").read_bytes())
    steps.go(2 * RETAIN)
    assert json.loads((steps.path / "positions").read_bytes()) == {}


def test_streams_that_are_dropped_are_forgotten(steps: Steps) -> None:
    steps.db.sql("CREATE STREAM other (id INT)")
    steps.db.register("SELECT id FROM other", name="o").subscribe(snapshot=True).next(0.0)
    steps.go(2)
    Copy(steps.db)
    assert json.loads((steps.path / "positions").read_bytes()).keys() == {"s", "other"}
    steps.db.sql("DROP STREAM other CASCADE")
    steps.restart()
    steps.db.maintain()
    assert json.loads((steps.path / "positions").read_bytes()).keys() == {"s"}


@pytest.mark.parametrize("damaged", [b"", b"{", b"[]", b'{"s": "x"}', b"\xff"])
def test_a_file_that_cannot_be_read_holds_nothing(steps: Steps, damaged: bytes) -> None:
    steps.go(RETAIN + 2)
    Copy(steps.db)
    steps.db.close()
    (steps.path / "positions").write_bytes(damaged)
    steps.db = steps.open()
    steps.go(RETAIN)
    assert steps.kept <= RETAIN + 1
    assert Copy(steps.db).rows == steps.rows


def test_a_subscriber_is_told_although_the_disk_is_full(steps: Steps) -> None:
    steps.go(2)
    with patch.object(held_positions, "write_durably", side_effect=WarehouseError("No space left.")):
        assert Copy(steps.db).rows == {1, 2}
    assert not (steps.path / "positions").exists()
    assert Copy(steps.db).rows == {1, 2}
    assert (steps.path / "positions").exists()


def test_the_file_is_written_once_for_those_that_follow_on(tmp_path: Path) -> None:
    held = HeldPositions(0.0, tmp_path / "positions")
    with patch.object(held_positions, "write_durably", wraps=files.write_durably) as written:
        for entry in (7, 8, 9, 8):
            held.note(("S", "t"), entry)
        assert written.call_count == 1
        held.note(("s",), 6)
        held.note(("u",), 1, promised=False)
        assert written.call_count == 2
    assert json.loads((tmp_path / "positions").read_bytes()) == {"s": 6, "t": 7}
