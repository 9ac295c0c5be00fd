"""Kills while functions are replaced. Method: a child replaces a function that a query calls, again and again, and is
killed with SIGKILL at a step that touches the disk. Afterwards the function is the last one acknowledged or the one
begun, and the query's answer is that function's, never of another.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from tests.support.faults import forked, replace_functions_until

from ladle.testing import connect_inline


@pytest.mark.parametrize("kill_at", [1, 2, 3, 4, 5, 8, 13, 21, 34])
def test_killed_while_a_function_is_replaced(tmp_path: Path, kill_at: int) -> None:
    warehouse, journal = tmp_path / "warehouse", tmp_path / "journal"
    assert forked(replace_functions_until, kill_at, warehouse, journal) == -signal.SIGKILL
    notes = journal.read_text()
    begun, done = (max([0, *(n for n in range(1, 6) if f'"{word}": {n}}}' in notes)]) for word in ("begun", "done"))
    assert begun - done <= 1
    with connect_inline(warehouse, settings={"maintenance_seconds": 3_600.0}) as db:
        (function,) = db.functions()
        limit = int(function.source.rpartition(", ")[2].rstrip(")\n"))
        assert limit in (done, begun)
        for _ in range(2):
            assert db.invoke("q").table.column("n").to_pylist() == list(range(limit, 20))
            db.backfill()
        db.create_function(
            function.source.replace(f" {limit})", " 19)"), arguments=["INT"], returns="BOOLEAN", replace=True
        )
        assert db.invoke("q").table.column("n").to_pylist() == [19]
