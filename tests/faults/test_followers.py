"""Kills while tuples leave by retention and somebody follows. Method: a child pushes, takes in batches of a source,
follows a query and keeps house, and is killed with SIGKILL at a step that touches the disk, again and again. What its
follower was told before and is told since is the answer, and never `Gone`: a position holds its tuples over a kill. Of
the source there is every batch once, in every column.
"""

from __future__ import annotations

import random
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.support.faults import forked
from tests.support.faults_of_followers import (
    FOLLOWED,
    RETAINED_SECONDS,
    SECONDS_A_PUSH,
    batch_of,
    follow,
    follow_until,
    last,
    notes,
    row_of,
)
from tests.waiting import wait_until

from ladle.engine import Database
from ladle.testing import connect_inline

QUIET = {"maintenance_seconds": 3_600.0}


def check(db: Database, journal: Path) -> None:
    """Hold a reopened warehouse to what was noted."""
    known = notes(journal)
    there = {stream.name for stream in db.streams()}
    if {"r", "fed"} <= there:
        check_rows(db, known)
        check_source(db, known)
    else:
        assert not any("pushed" in fact or "taken_in" in fact for fact in known)


def check_rows(db: Database, known: list[dict[str, Any]]) -> None:
    waiting = "pushes that were received are not taken in"
    wait_until(lambda: not any(stream.pending for stream in db.status().streams), waiting)
    rows = db.sql("SELECT id, v, at FROM r").table.to_pylist()
    begun, done = last(known, "push") or 0, last(known, "pushed") or 0
    newest = max((row["id"] for row in rows), default=0)
    assert done <= newest <= begun
    oldest = newest - (RETAINED_SECONDS - 1) // SECONDS_A_PUSH
    # A push that was begun and not acknowledged is wholly there or not at all.
    begun_only = {fact["push"] for fact in known if "push" in fact} - {
        fact["pushed"] for fact in known if "pushed" in fact
    }
    expected = [row_of(push) for push in range(max(oldest, 1), newest + 1)]
    found = {row["id"] for row in rows}
    assert rows == [row for row in expected if row["id"] in found]
    assert {row["id"] for row in expected} - found <= begun_only
    if FOLLOWED not in {query.name for query in db.queries()}:
        assert last(known, "position") is None
        return
    heard: Counter[tuple[Any, ...]] = Counter()
    told = [fact for fact in known if "position" in fact]
    for fact in (*told, *follow(db, told[-1]["position"] if told else None, None)):
        heard.update(map(tuple, fact["inserted"]))
        heard.subtract(map(tuple, fact["retracted"]))
        assert min(heard.values(), default=0) >= 0, "what went was not there"
    assert +heard == Counter((row["id"], row["v"]) for row in rows)


def check_source(db: Database, known: list[dict[str, Any]]) -> None:
    rows = db.sql("SELECT * FROM fed").table.to_pylist()
    begun, done = last(known, "batches") or 0, last(known, "taken_in") or 0
    batches = len({row["n"] // 100 for row in rows})
    assert done <= batches <= begun
    assert rows == [row for number in range(batches) for row in batch_of(number)]


@pytest.mark.parametrize("part", range(2))
def test_killed_while_it_is_followed(tmp_path: Path, part: int) -> None:
    rng = random.Random(20_260_130 + part)
    warehouse, journal = tmp_path / "warehouse", tmp_path / "journal"
    kills = 0
    for round_ in range(9):
        code = forked(follow_until, rng.randint(5, 150), warehouse, journal, 100 * part + round_)
        assert code in (0, -signal.SIGKILL)
        kills += code != 0
        if round_ % 3 == 2:
            with connect_inline(warehouse, settings=QUIET) as db:
                check(db, journal)
    assert kills >= 5, f"only {kills} kills hit"
    assert last(notes(journal), "position") is not None
