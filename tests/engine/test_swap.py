"""Complete queries share a bounded memory: those asked least recently are swapped out, and come back when asked."""

from __future__ import annotations

import time
from pathlib import Path

from ladle.engine import Database
from ladle.testing import connect_inline


def kept(db: Database) -> dict[str, int]:
    return {query.name: query.kept_bytes for query in db.status().queries}


def test_idle_complete_queries_are_swapped_out_and_back(tmp_path: Path) -> None:
    # one query's answer is more than this, also where its rows are not kept because Spark reads the files
    with connect_inline(tmp_path / "warehouse", settings={"kept_bytes_max": 10_000}) as db:
        db.sql("CREATE STREAM s (n BIGINT)")
        for name in ("a", "b", "c"):
            db.register(f"SELECT n FROM s WHERE n >= 0 AND '{name}' = '{name}'", name=name, materialize="complete")
        db.push("s", [{"n": n} for n in range(2_000)], wait=True)
        for name in ("a", "b", "c", "a"):
            assert len(db.invoke(name)) == 2_000
        db.push("s", [{"n": 1}], wait=True)
        deadline = time.monotonic() + 20
        while sum(size > 0 for size in kept(db).values()) != 1:
            assert time.monotonic() < deadline, kept(db)
            time.sleep(0.02)
        assert kept(db)["a"] > 0
        for name in ("a", "b", "c"):
            assert len(db.invoke(name)) == 2_001
        assert kept(db)["b"] > 0
