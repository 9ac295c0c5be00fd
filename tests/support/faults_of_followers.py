"""Kills of a process whose stream lets tuples go while somebody follows it, and that is fed by a source."""

from __future__ import annotations

import json
import random
from datetime import timedelta
from pathlib import Path
from typing import Any

from tests.support.faults import START, Journal, Steps

RETAINED_SECONDS = 60
SECONDS_A_PUSH = 7
FOLLOWED = "followed"
_STEPS = (*["push"] * 4, "feed", "follow", "follow", "maintain", "maintain", "restart")


def row_of(push: int) -> dict[str, Any]:
    """The row of a push; told by its number, so that a test can make it again."""
    return {"id": push, "v": None if push % 5 == 0 else f"v{push % 3}", "at": START + push * _A_PUSH}


_A_PUSH = timedelta(seconds=SECONDS_A_PUSH)


def batch_of(number: int) -> list[dict[str, Any]]:
    """A batch of the source."""
    return [{"n": number * 100 + i, "x": None if i == 1 else number / 4, "v": f"v{i}"} for i in range(1 + number % 4)]


def follow(db: Any, position: str | None, journal: Journal | None) -> list[dict[str, Any]]:
    """What is told after a position, each delta noted when it was heard."""
    found = []
    with db.query(FOLLOWED).subscribe(since=position, snapshot=position is None) as changes:
        while (delta := changes.next(0.0)) is not None:
            inserted, retracted = (
                [list(row.values()) for row in each.to_pylist()] for each in (delta.inserted, delta.retracted)
            )
            found.append({"position": delta.position, "inserted": inserted, "retracted": retracted})
            if journal is not None:
                journal.note(**found[-1])
    return found


def notes(journal: Path) -> list[dict[str, Any]]:
    """What the children noted."""
    return [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []


def last(known: list[dict[str, Any]], what: str) -> Any:
    """The last of one kind of note; None if there is none."""
    return next((fact[what] for fact in reversed(known) if what in fact), None)


def follow_until(kill_at: int, warehouse: Path, journal_path: Path, seed: int) -> None:
    """Push, feed, follow, keep house and restart, up to a step that touches the disk."""
    from ladle.testing.inline import connect_inline
    from ladle.testing.scripted import ScriptedSource

    Steps(kill_at).install()
    rng, journal, known = random.Random(seed), Journal(journal_path), notes(journal_path)
    settings = {"compact_files_min": 4, "grace_seconds": 0.0, "checkpoint_entries": 5, "maintenance_seconds": 3_600.0}
    pushes, batches, position = (last(known, what) for what in ("push", "batches", "position"))
    pushes, batches = pushes or 0, batches or 0
    db = connect_inline(warehouse, settings=settings)
    if "r" not in {stream.name for stream in db.streams()}:
        retain = f"RETAIN INTERVAL {RETAINED_SECONDS} SECONDS"
        db.sql(f"CREATE STREAM r (id BIGINT, v STRING, at TIMESTAMP) TIMESTAMP BY at {retain}")
    if "fed" not in {stream.name for stream in db.streams()}:
        db.sql("CREATE STREAM fed (n BIGINT, x DOUBLE, v STRING)")
    if FOLLOWED not in {query.name for query in db.queries()}:
        db.register("SELECT id, v FROM r", name=FOLLOWED)
    for _ in range(14):
        match rng.choice(_STEPS):
            case "push":
                pushes += 1
                journal.note(push=pushes)
                db.push("r", [row_of(pushes)], wait=True)
                journal.note(pushed=pushes)
            case "feed":
                batches += rng.randint(1, 2)
                journal.note(batches=batches)
                db.attach("fed", ScriptedSource([batch_of(number) for number in range(batches)]))
                journal.note(taken_in=batches)
            case "follow":
                told = follow(db, position, journal)
                position = told[-1]["position"] if told else position
            case "maintain":
                db.maintain()
            case "restart":
                db.close()
                db = connect_inline(warehouse, settings=settings)
    db.close()
