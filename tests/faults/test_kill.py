"""Kills. Method: a child process pushes, registers, compacts and restarts, and is killed with SIGKILL at a step that
touches the disk; then the warehouse is opened and compared with DuckDB over the rows that the journal says were pushed.

Acknowledged means there, exactly once, in every column. Begun and not acknowledged means wholly there or not at all. A
subscriber notes each delta that it hears: these, and what it hears when it goes on from the last position, make up the
answer. The journal is written by the child, past Ladle, and all that is expected is made from it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from tests.support.faults import FOLLOWED, FOLLOWED_SQL, forked, queries_of, rows_of, run_until
from tests.waiting import wait_until

from ladle.engine import Database
from ladle.testing import connect_inline


def killed_at(step: int, warehouse: Path, journal: Path, seed: int) -> bool:
    """Whether the child came as far as that step."""
    code = forked(run_until, step, warehouse, journal, seed)
    assert code in (0, -signal.SIGKILL)
    return code != 0


def child_on_spark(warehouse: Path, journal: Path, seed: int) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "tests.support.faults", str(warehouse), str(journal), str(seed), "0", "spark"],
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
    tables = {stream: check_stream(db, stream, known) for stream in ("a", "b")}
    standing: dict[int, bool | None] = {}
    for fact in known:
        if "query" in fact:
            standing[fact["query"]] = fact["standing"]
    there = {query.name for query in db.queries()}
    for number, stands in standing.items():
        name, text = queries_of(number)
        assert stands is None or (name in there) == stands, f"query {name}"
        if name in there:
            expected = judged(seen(tables) if " a, b " in text else tables, text)
            assert sorted(rows(db.invoke(name).table)) == sorted(expected)
    check_follower(db, known, tables)


def check_stream(db: Database, stream: str, known: list[dict[str, Any]]) -> pa.Table:
    """Every column of every tuple; gives the tuples that there are, as the journal has them."""
    pushed = {fact["push"]: fact["rows"] for fact in known if fact.get("stream") == stream}
    acknowledged = {fact["push"] for fact in known if fact.get("stream") == stream and fact["done"]}
    wait_for_inbox(db, stream)
    table = db.sql(f"SELECT * FROM {stream}").table
    numbers = [int(str(n)) for n in table.column("n").to_pylist()]
    assert len(numbers) == len(set(numbers)), "a tuple is doubled"
    found = {n // 1_000 for n in numbers}
    assert acknowledged <= found <= set(pushed)
    order = list(dict.fromkeys(n // 1_000 for n in numbers))
    assert order == sorted(order), "pushes changed their order"
    expected = [row for push in order for row in rows_of(push, pushed[push])]
    assert table.to_pylist() == expected
    return pa.Table.from_pylist(expected, schema=table.schema)


def check_follower(db: Database, known: list[dict[str, Any]], tables: dict[str, pa.Table]) -> None:
    """What was told before the kill, and what is told since its position, is the answer."""
    heard: Counter[tuple[Any, ...]] = Counter()
    position = None
    for fact in known:
        if "position" in fact:
            heard.update(map(tuple, fact["inserted"]))
            heard.subtract(map(tuple, fact["retracted"]))
            position = fact["position"]
            assert min(heard.values(), default=0) >= 0, "what went was not there"
    if position is None:
        return
    with db.query(FOLLOWED).subscribe(since=position) as changes:
        while (delta := changes.next(0.0)) is not None:
            heard.update(rows(delta.inserted))
            heard.subtract(rows(delta.retracted))
    window = 'WHERE "at" > (SELECT max("at") FROM a) - INTERVAL 90 SECONDS AND'
    expected = judged(tables, FOLLOWED_SQL.replace(" [RANGE 90 SECONDS]", "").replace("WHERE", window))
    assert +heard == Counter(expected)
    assert sorted(rows(db.invoke(FOLLOWED).table)) == sorted(expected)


def wait_for_inbox(db: Database, stream: str) -> None:
    wait_until(
        lambda: not any(s.pending for s in db.status().streams if s.name == stream),
        "pushes that were received are not taken in",
    )


def seen(tables: dict[str, pa.Table]) -> dict[str, pa.Table]:
    """What a query over both streams sees of them: nothing later than NOW, the lower of their clocks."""
    latest = [pc.max(table["at"]) for table in tables.values() if len(table)]
    if not latest:
        return tables
    now = min(latest, key=lambda moment: moment.as_py())
    return {name: table.filter(pc.less_equal(table["at"], now)) for name, table in tables.items()}


def judged(tables: dict[str, pa.Table], text: str) -> list[tuple[Any, ...]]:
    """What DuckDB says."""
    with duckdb.connect() as oracle:
        for stream, table in tables.items():
            oracle.register(stream, table)
        return rows(oracle.sql(text).to_arrow_table())


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
