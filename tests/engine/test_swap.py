"""Complete queries share a bounded memory with all derived state: what is worth least is dropped, and comes back when
somebody asks.
"""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from tests.waiting import wait_until

from ladle.engine import Database
from ladle.testing import connect_inline

ROOM = 60_000
"""Enough for one of the answers and its rows, not for two."""


def kept(db: Database) -> dict[str, int]:
    return {query.name: query.kept_bytes for query in db.status().queries}


def test_complete_queries_are_swapped_out_and_back(tmp_path: Path) -> None:
    with connect_inline(tmp_path / "warehouse", settings={"derived_memory_bytes_max": ROOM}) as db:
        db.sql("CREATE STREAM s (n BIGINT)")
        names = ("a", "b", "c")
        for name in names:
            db.register(f"SELECT n FROM s WHERE n >= 0 AND '{name}' = '{name}'", name=name, materialize="complete")
        # also where its rows are not kept because Spark reads the files, three answers are more than the room
        rows = 3_000
        db.push("s", [{"n": n} for n in range(rows)], wait=True)
        out, back = set[str](), set[str]()
        deadline = time.monotonic() + 20
        while back != set(names):
            assert time.monotonic() < deadline, (out, back)
            for name in names:
                assert len(db.invoke(name)) == rows
                sizes = kept(db)
                # the background may be about to drop what it has just kept
                wait_until(lambda: sum(row.memory_bytes for row in db.derived()) <= ROOM, "it is over the budget")
                back |= out & {each for each, size in sizes.items() if size}
                out |= {each for each, size in sizes.items() if not size}
            db.push("s", [{"n": 1}], wait=True)
            rows += 1
        (answers,) = (row for row in db.derived() if row.kind == "answers")
        assert answers.evictions
        assert answers.coverage is not None
        assert answers.coverage < 1.0


def test_what_was_dropped_is_not_kept_current_until_somebody_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or else each commit would compute it, and drop it again."""
    monkeypatch.setattr("ladle.housekeeping.background.Background._work_loop", lambda _: None)
    with connect_inline(tmp_path / "warehouse") as db:
        db.sql("CREATE STREAM s (n BIGINT)")
        db.register("SELECT n FROM s WHERE n >= 0", name="q", materialize="complete")
        db.push("s", [{"n": n} for n in range(100)], wait=True)
        db.invoke("q")
        answers, state = db._background.answers, db.catalog.queries["q"]
        assert kept(db)["q"] > 0
        assert list(answers.current([state]))
        assert answers.drop(answers.things()) > 0
        assert (kept(db)["q"], answers.bytes) == (0, 0)
        assert not list(answers.current([state]))
        assert len(db.invoke("q")) == 100
        assert list(answers.current([state]))
        assert answers.bytes == kept(db)["q"] > 0
