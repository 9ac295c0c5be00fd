"""Kills while functions are replaced. Method: a child replaces a function that a query calls, again and again, and is
killed with SIGKILL at a step that touches the disk. Afterwards the function is the last one acknowledged or the one
begun, and the query's answer is that function's, never of another.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ladle.testing import connect_inline

CHILD = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from ladle.testing import connect_inline
from ladle.testing.faults import Journal, Steps

warehouse, journal, kill_at = sys.argv[1:]
db = connect_inline(warehouse, settings={"checkpoint_entries": 2, "maintenance_seconds": 3_600.0})
at = datetime(2024, 1, 1, tzinfo=UTC)
db.sql("CREATE STREAM t (n INT, at TIMESTAMP) TIMESTAMP BY at")
db.create_function("def enough(n):\\n    return pc.greater_equal(n, 0)\\n", arguments=["INT"], returns="BOOLEAN")
db.register("SELECT n FROM t WHERE enough(n)", name="q")
db.push("t", [{"n": n, "at": at} for n in range(20)], wait=True)
journal = Journal(Path(journal))
steps = Steps(int(kill_at))
steps.install()
for limit in range(1, 6):
    journal.note(begun=limit)
    source = f"def enough(n):\\n    return pc.greater_equal(n, {limit})\\n"
    db.create_function(source, arguments=["INT"], returns="BOOLEAN", replace=True)
    journal.note(done=limit)
    db.backfill()
    db.maintain()
db.close()
"""


@pytest.mark.parametrize("kill_at", [1, 2, 3, 4, 5, 8, 13, 21, 34])
def test_killed_while_a_function_is_replaced(tmp_path: Path, kill_at: int) -> None:
    warehouse, journal = tmp_path / "warehouse", tmp_path / "journal"
    arguments = [str(warehouse), str(journal), str(kill_at)]
    child = subprocess.run([sys.executable, "-c", CHILD, *arguments], capture_output=True, check=False, timeout=120)
    assert child.returncode == -signal.SIGKILL, child.stderr.decode()
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
