"""Changes up to a position that was told: so those who share what is told meet, and what is read again is the same."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.engine.rows import TICKS, ticks

from ladle.delta import Delta, Moment
from ladle.engine import Database
from ladle.errors import TypeMismatch
from ladle.testing import ManualClock, connect_inline


def applied(answer: Counter[Any], deltas: list[Delta]) -> Counter[Any]:
    """An answer after some deltas, as a bag."""
    found = Counter(answer)
    for delta in deltas:
        found.update(row["n"] for row in delta.inserted.to_pylist())
        found.subtract(row["n"] for row in delta.retracted.to_pylist())
    assert min(found.values(), default=0) >= 0, "a row went that was not there"
    return +found


def test_nothing_is_told_beyond_it(tmp_path: Path) -> None:
    """Over arrival times NOW moves between entries: from each position to each later one, told at once or again."""
    clock = ManualClock()
    with connect_inline(tmp_path / "w", clock=clock) as db:
        db.sql("CREATE STREAM s (n INT)")
        db.register("SELECT n FROM s [RANGE 10 SECONDS]", name="q")
        assert db.parts.following.ticks("q")
        told, answers = [db.changes("q")[-1].position], [Counter[Any]()]
        for number in range(9):
            if number % 3:
                db.push("s", [{"n": number}], wait=True)
            clock.advance(timedelta(seconds=4))
            found = db.changes("q", since=told[-1])
            answers.append(applied(answers[-1], found))
            told.append(found[-1].position)
            assert answers[-1] == Counter(row["n"] for row in db.invoke("q").to_pylist())
        for first in range(len(told)):
            for last in range(first, len(told)):
                found = db.changes("q", since=told[first], upto=told[last])
                assert applied(answers[first], found) == answers[last]
                assert found[-1].position == told[last]
            snapshot = db.changes("q", snapshot=True, upto=told[first])
            assert applied(Counter(), snapshot) == answers[first]
            assert snapshot[-1].position == told[first]
        assert db.changes("q", since=told[4], upto=told[2])[-1].entry == Moment.parse(told[4]).entry
        with pytest.raises(TypeMismatch, match="has not been yet"):
            db.changes("q", since=told[0], upto="e99999n0")


def test_of_streams_with_a_time_of_their_own(db: Database) -> None:
    db.sql(TICKS)
    db.register("SELECT n FROM ticks [RANGE 3 SECONDS]", name="q")
    assert not db.parts.following.ticks("q")
    told, answers = [db.changes("q")[-1].position], [Counter[Any]()]
    for second in range(6):
        db.push("ticks", ticks([second]), wait=True)
        found = db.changes("q", since=told[-1])
        answers.append(applied(answers[-1], found))
        told.append(found[-1].position)
    for first in range(len(told)):
        for last in range(first, len(told)):
            found = db.changes("q", since=told[first], upto=told[last])
            assert applied(answers[first], found) == answers[last]
            assert found[-1].position == told[last]
