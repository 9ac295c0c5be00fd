"""Kills while a table changes. Method: a child inserts, updates and deletes, again and again, and is killed (SIGKILL)
at a step that touches the disk: while a version's file is written, between the file and the entry that names it, while
old versions are removed. Afterwards the table is as the last acknowledged statement left it, or the one begun, by
DuckDB, and nothing else is left on disk.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

import duckdb
import pytest
from tests.support.faults import change_of, change_tables_until, forked

from ladle.testing import connect_inline

QUIET = {"maintenance_seconds": 3_600.0}


def table_after(count: int) -> list[tuple[int, int]]:
    """What so many statements make of the table."""
    with duckdb.connect() as other:
        other.execute("CREATE TABLE t (k INT, v INT)")
        for number in range(1, count + 1):
            other.execute(change_of(number))
        return sorted(other.sql("SELECT k, v FROM t").fetchall())


@pytest.mark.parametrize("kill_at", [1, *range(4, 18), 25, 40, 61, 91, 130])
def test_killed_while_a_table_changes(tmp_path: Path, kill_at: int) -> None:
    warehouse, journal = tmp_path / "warehouse", tmp_path / "journal"
    assert forked(change_tables_until, kill_at, warehouse, journal) == -signal.SIGKILL
    facts = [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []
    begun, done = (max((fact[word] for fact in facts if word in fact), default=0) for word in ("begun", "done"))
    assert begun - done <= 1
    with connect_inline(warehouse, settings=QUIET) as db:
        tables = db.tables()
        assert tables or not facts, "what was acknowledged is there"
        if not tables:
            return
        found = sorted(tuple(row.values()) for row in db.sql("SELECT k, v FROM t").table.to_pylist())
        assert found in (table_after(done), table_after(begun))
        db.maintain()
        named = {file.name for file in db.catalog.tables["t"].files}
        assert {path.name for path in warehouse.glob("tables/*/*")} == named
        if db.queries():
            assert sorted(tuple(row.values()) for row in db.invoke("q").table.to_pylist()) == found
        db.sql("INSERT INTO t VALUES (999, 999)")
        assert (999, 999) in [tuple(row.values()) for row in db.sql("SELECT k, v FROM t").table.to_pylist()]
        assert db.status().problems == {}
