"""Kills. Method: a child process pushes, registers, compacts and restarts, and is killed with SIGKILL at a step that
touches the disk; then the warehouse is opened and compared with DuckDB over the rows that the journal says were pushed.

Acknowledged means there, exactly once. Begun and not acknowledged means wholly there or not at all.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from ladle.engine import Database
from ladle.testing import connect_inline
from ladle.testing.faults import forked, queries_of, rows_of, run_until


def killed_at(step: int, warehouse: Path, journal: Path, seed: int) -> bool:
    """Whether the child came as far as that step."""
    code = forked(run_until, step, warehouse, journal, seed)
    assert code in (0, -signal.SIGKILL)
    return code != 0


def child_on_spark(warehouse: Path, journal: Path, seed: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "ladle.testing.faults", str(warehouse), str(journal), str(seed), "0", "spark"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def facts(journal: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in journal.read_text().splitlines()] if journal.exists() else []


def check(db: Database, journal: Path) -> None:
    """Hold a reopened warehouse to what was acknowledged."""
    known = facts(journal)
    if not {"a", "b"} <= {stream.name for stream in db.streams()}:
        assert not any(fact.get("done") or fact.get("standing") for fact in known)
        return
    db.push("a", [], wait=True)
    for stream in ("a", "b"):
        check_stream(db, stream, known)
    standing: dict[int, bool | None] = {}
    for fact in known:
        if "query" in fact:
            standing[fact["query"]] = fact["standing"]
    there = {query.name for query in db.queries()}
    for number, stands in standing.items():
        name, text = queries_of(number)
        assert stands is None or (name in there) == stands, f"query {name}"
        if name in there:
            assert_same_as_oracle(db, name, text)


def check_stream(db: Database, stream: str, known: list[dict[str, Any]]) -> None:
    pushed = {fact["push"]: fact["rows"] for fact in known if fact.get("stream") == stream}
    acknowledged = {fact["push"] for fact in known if fact.get("stream") == stream and fact["done"]}
    wait_for_inbox(db, stream)
    numbers = [int(str(n)) for n in db.sql(f"SELECT n FROM {stream}").table.column("n").to_pylist()]
    assert len(numbers) == len(set(numbers)), "a tuple is doubled"
    found: dict[int, set[int]] = {}
    for n in numbers:
        found.setdefault(n // 1_000, set()).add(n)
    for push, rows in pushed.items():
        expected = {row["n"] for row in rows_of(push, rows)}
        assert found.get(push, set()) in ([expected] if push in acknowledged else [expected, set()]), f"push {push}"
    assert set(found) <= set(pushed)
    order = list(dict.fromkeys(n // 1_000 for n in numbers))
    assert order == sorted(order), "pushes changed their order"


def wait_for_inbox(db: Database, stream: str) -> None:
    deadline = time.monotonic() + 60
    while any(s.pending for s in db.status().streams if s.name == stream):
        assert time.monotonic() < deadline, "pushes that were received are not taken in"
        time.sleep(0.02)


def assert_same_as_oracle(db: Database, name: str, text: str) -> None:
    tables = {s: db.sql(f"SELECT * FROM {s}").table for s in ("a", "b")}
    with duckdb.connect() as oracle:
        for stream, table in tables.items():
            oracle.register(stream, table)
        expected = oracle.sql(text).to_arrow_table()
    assert sorted(rows(db.invoke(name).table)) == sorted(rows(expected))


def rows(table: pa.Table) -> list[tuple[Any, ...]]:
    return list(zip(*table.to_pydict().values(), strict=True))


def test_killed_at_a_step_again_and_again(tmp_path: Path) -> None:
    """One warehouse, killed over and over: each kill meets what the last one left."""
    rng = random.Random(20_240_101)
    warehouse, journal = tmp_path / "warehouse", tmp_path / "journal"
    kills = 0
    for round_ in range(24):
        kills += killed_at(rng.randint(5, 160), warehouse, journal, round_)
        if round_ % 4 == 3:
            with connect_inline(warehouse) as db:
                check(db, journal)
    with connect_inline(warehouse) as db:
        check(db, journal)
    assert kills >= 20, f"only {kills} kills hit"


@pytest.mark.parametrize("kill_at", [1, 2, 3, 4, 6, 9, 14, 21])
def test_killed_while_it_is_made(tmp_path: Path, kill_at: int) -> None:
    """The first steps: the directory, the format file, the first log entries."""
    warehouse, journal = tmp_path / "warehouse", tmp_path / "journal"
    assert killed_at(kill_at, warehouse, journal, 1)
    with connect_inline(warehouse) as db:
        check(db, journal)


@pytest.mark.spark
def test_killed_at_random_moments_on_spark(tmp_path: Path) -> None:
    """The whole process, with its JVM, while pushes and epochs are in flight."""
    rng = random.Random(7)
    warehouse, journal = tmp_path / "warehouse", tmp_path / "journal"
    kills = 0
    for round_ in range(3):
        process = child_on_spark(warehouse, journal, round_)
        noted = len(facts(journal))
        deadline = time.monotonic() + 90
        while len(facts(journal)) < noted + 3 and process.poll() is None and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(rng.uniform(0, 1.0))
        if process.poll() is None:
            os.kill(process.pid, signal.SIGKILL)
        output, errors = process.communicate(timeout=120)
        assert process.returncode in (0, -signal.SIGKILL), f"{output}\n{errors}"
        kills += process.returncode != 0
        with connect_inline(warehouse) as db:
            check(db, journal)
    assert kills >= 2


@pytest.mark.soak
def test_killed_two_hundred_times(tmp_path: Path) -> None:
    seed = int(os.environ.get("SOAK_SEED", "1"))
    rng = random.Random(seed)
    warehouse, journal = tmp_path / "warehouse", tmp_path / "journal"
    kills = rounds = 0
    while kills < 200:
        kills += killed_at(rng.randint(1, 200), warehouse, journal, seed * 10_000 + rounds)
        rounds += 1
        if rounds % 5 == 0:
            with connect_inline(warehouse) as db:
                check(db, journal)
        assert rounds < 600
