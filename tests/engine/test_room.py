"""Pauses of a backfill whose results can't be kept."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ladle.housekeeping.room import Room


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_pauses_grow_and_end(tmp_path: Path, clock: Clock) -> None:
    room = Room(tmp_path, 5.0, clock)
    assert room.pause_seconds_left == 0.0
    pauses = []
    for _ in range(5):
        room.failed()
        pauses.append(room.pause_seconds_left)
        clock.now += room.pause_seconds_left
        assert room.pause_seconds_left == 0.0, "then it is tried again"
    assert pauses == [1.0, 2.0, 4.0, 5.0, 5.0]
    room.failed()
    room.succeeded()
    assert (room.pause_seconds_left, room.trouble) == (0.0, None)
    room.failed()
    assert room.pause_seconds_left == 1.0, "from the beginning"
    assert list(tmp_path.iterdir()) == [], "nothing is left of looking"


def test_one_failure_without_a_reason_is_not_told(tmp_path: Path, clock: Clock) -> None:
    """Somebody may have deleted what was just written."""
    room = Room(tmp_path, 5.0, clock)
    room.failed()
    assert room.trouble is None
    room.failed()
    assert room.trouble is not None
    assert "could not be kept" in room.trouble


def test_why_is_told(tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "derived").write_text("no directory")
    room = Room(tmp_path / "derived", 60.0, clock)
    with caplog.at_level(logging.INFO):
        room.failed()
        assert room.trouble is not None
        assert "It is tried again in 1 s" in room.trouble
        room.failed("Spark is away.")
        (tmp_path / "derived").unlink()
        room.failed("Spark is away.")
        assert room.trouble.startswith("Spark is away. It is tried again in 4 s")
        room.succeeded()
    assert [record.levelname for record in caplog.records] == ["WARNING", "WARNING", "WARNING", "INFO"]
