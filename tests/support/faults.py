"""Kills: a workload in a process of its own, ended by SIGKILL at any step that touches the disk.

A step is a call that makes or removes something durable (write, fsync, rename, unlink). The child counts them and kills
itself at the one it was told, so a test can go through all of them without a single hook in the engine. What the engine
acknowledged before, the child notes in a journal; after the kill the test opens the warehouse and holds it to that.

    python -m tests.support.faults WAREHOUSE JOURNAL SEED KILL_AT [spark]

Without Spark a child may be forked of a process that has imported everything: `forked`.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

SCHEMA = "CREATE STREAM {name} (n BIGINT, k INT, v STRING, at TIMESTAMP) TIMESTAMP BY at RETAIN INTERVAL 1000 DAYS"
START = datetime(2024, 1, 1, tzinfo=UTC)
_NEEDED = (
    __name__,
    "ladle.testing.inline",
    "ladle.engine.statements",
    "ladle.sql.binder",
    "ladle.stem.kernels",
    "deltalake",
)


class Steps:
    """Counts the calls that touch the disk, and dies at one of them."""

    _CALLS = ("fsync", "replace", "rename", "unlink", "link", "mkdir")

    def __init__(self, kill_at: int) -> None:
        self.count = 0
        self._kill_at = kill_at

    def install(self) -> None:
        for name in self._CALLS:
            setattr(os, name, self._counted(getattr(os, name)))
        import pyarrow.parquet as pq

        pq.ParquetWriter.close = self._counted(pq.ParquetWriter.close)

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **kwargs: Any) -> Any:
            self.step()
            value = call(*args, **kwargs)
            self.step()
            return value

        return counted

    def step(self) -> None:
        self.count += 1
        if self.count == self._kill_at:
            os.kill(os.getpid(), signal.SIGKILL)


class Journal:
    """What was begun and what was acknowledged, written past the counted calls."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)

    def note(self, **fact: Any) -> None:
        os.write(self._descriptor, (json.dumps(fact) + "\n").encode())


def rows_of(push: int, count: int) -> list[dict[str, Any]]:
    """The rows of a push; told by its number, so that a test can make them again."""
    return [
        {
            "n": push * 1_000 + i,
            "k": (push * 7 + i) % 10,
            "v": f"v{i % 3}",
            "at": START + timedelta(seconds=push * 10 + i % 7),
        }
        for i in range(count)
    ]


def queries_of(number: int) -> tuple[str, str]:
    """A query's name and text, told by its number."""
    if number % 3 == 0:
        return f"q{number}", f"SELECT a.n, b.n AS m FROM a, b WHERE a.k = b.k AND a.v = b.v AND a.n % 9 < {number % 10}"
    streams = ("a", "b")
    return f"q{number}", f"SELECT n, k FROM {streams[number % 2]} WHERE k < {number % 10} AND v <> 'v{number % 3}'"


_STEPS = (*["push"] * 3, "push_later", "register", "unregister", "follow", "follow", "maintain", "restart")
FOLLOWED = "followed"
FOLLOWED_SQL = "SELECT n, k, v FROM a [RANGE 90 SECONDS] WHERE k < 7"
"""A query that a subscriber follows, over all kills."""


def _follow(db: Any, journal: Journal, position: str | None) -> str:
    """Hear what changed since a position, and note each delta when it was heard."""
    if FOLLOWED not in {query.name for query in db.queries()}:
        db.register(FOLLOWED_SQL, name=FOLLOWED)
    with db.query(FOLLOWED).subscribe(since=position, snapshot=position is None) as changes:
        while (delta := changes.next(0.0)) is not None:
            told = [[list(row.values()) for row in each.to_pylist()] for each in (delta.inserted, delta.retracted)]
            journal.note(position=delta.position, inserted=told[0], retracted=told[1])
            position = delta.position
    assert position is not None
    return position


def run(warehouse: Path, journal: Journal, seed: int, *, spark: bool) -> None:
    """Push, register, unregister, follow, compact, restart; note each before and after."""
    rng = random.Random(seed)
    connect = _connect(spark=spark)
    settings = {"compact_files_min": 3, "grace_seconds": 0.0, "checkpoint_entries": 5, "maintenance_seconds": 0.2}
    known = _facts(warehouse.parent / "journal")
    pushes = max((fact["push"] for fact in known if "push" in fact), default=0)
    queries = max((fact["query"] for fact in known if "query" in fact), default=0)
    positions = [fact["position"] for fact in known if "position" in fact]
    position = positions[-1] if positions else None
    db = connect(warehouse, settings=settings)
    for name in ("a", "b"):
        if name not in {stream.name for stream in db.streams()}:
            db.sql(SCHEMA.format(name=name))
    for _ in range(12):
        match rng.choice(_STEPS):
            case "push" | "push_later" as kind:
                pushes += 1
                count = rng.randint(1, 40)
                stream = "ab"[pushes % 2]
                journal.note(push=pushes, stream=stream, rows=count, done=False)
                db.push(stream, rows_of(pushes, count), wait=kind == "push")
                journal.note(push=pushes, stream=stream, rows=count, done=True)
            case "register":
                queries += 1
                name, text = queries_of(queries)
                journal.note(query=queries, standing=None)
                db.register(text, name=name, materialize=rng.choice(["none", "partial", "complete"]))
                journal.note(query=queries, standing=True)
            case "unregister":
                standing = [query.name for query in db.queries() if query.name != FOLLOWED]
                if standing:
                    gone = rng.choice(standing)
                    journal.note(query=int(gone[1:]), standing=None)
                    db.unregister(gone)
                    journal.note(query=int(gone[1:]), standing=False)
            case "follow":
                position = _follow(db, journal, position)
            case "maintain":
                db.maintain()
            case "restart":
                db.close()
                db = connect(warehouse, settings=settings)
    db.close()


def replace_functions(warehouse: Path, journal: Journal, steps: Steps) -> None:
    """Replace a function that a query calls, again and again; note each before and after."""
    db = _connect(spark=False)(warehouse, settings={"checkpoint_entries": 2, "maintenance_seconds": 3_600.0})
    db.sql("CREATE STREAM t (n INT, at TIMESTAMP) TIMESTAMP BY at")
    source = "def enough(n):\n    return pc.greater_equal(n, {})\n"
    db.create_function(source.format(0), arguments=["INT"], returns="BOOLEAN")
    db.register("SELECT n FROM t WHERE enough(n)", name="q")
    db.push("t", [{"n": n, "at": START} for n in range(20)], wait=True)
    steps.install()
    for limit in range(1, 6):
        journal.note(begun=limit)
        db.create_function(source.format(limit), arguments=["INT"], returns="BOOLEAN", replace=True)
        journal.note(done=limit)
        db.backfill()
        db.maintain()
    db.close()


def change_of(number: int) -> str:
    """A statement that changes table `t`, told by its number."""
    match number % 4:
        case 0:
            return f"UPDATE t SET v = v + {number} WHERE k % 2 = 0"
        case 3:
            return f"DELETE FROM t WHERE k = {number - 2}"
        case _:
            return f"INSERT INTO t VALUES ({number}, 0), ({number + 100}, {number})"


def change_tables(warehouse: Path, journal: Journal, steps: Steps) -> None:
    """Change a table that a query reads, again and again; note each before and after."""
    settings = {"checkpoint_entries": 3, "maintenance_seconds": 3_600.0}
    connect = _connect(spark=False)
    db = connect(warehouse, settings=settings)
    steps.install()
    db.sql("CREATE TABLE t (k INT, v INT)")
    db.register("SELECT k, v FROM t WHERE v >= 0", name="q", materialize="complete")
    journal.note(done=0)
    for number in range(1, 13):
        journal.note(begun=number)
        db.sql(change_of(number))
        journal.note(done=number)
        if number % 3 == 0:
            db.maintain()
        if number % 5 == 0:
            db.close()
            db = connect(warehouse, settings=settings)
    db.close()


def forked(work: Callable[..., None], *arguments: Any) -> int:
    """Do something in a child that has nothing to import: that takes longer than what it does until it is killed.

    Returns its exit code.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(_NEEDED))
    process = context.Process(target=work, args=arguments)
    process.start()
    process.join(120)
    if process.exitcode is None:
        process.kill()
        raise TimeoutError("the child neither ended nor was killed")
    return process.exitcode


def run_until(kill_at: int, warehouse: Path, journal: Path, seed: int) -> None:
    Steps(kill_at).install()
    run(warehouse, Journal(journal), seed, spark=False)


def replace_functions_until(kill_at: int, warehouse: Path, journal: Path) -> None:
    replace_functions(warehouse, Journal(journal), Steps(kill_at))


def change_tables_until(kill_at: int, warehouse: Path, journal: Path) -> None:
    change_tables(warehouse, Journal(journal), Steps(kill_at))


def back_up_until(kill_at: int, warehouse: Path, backup: Path) -> None:
    """Back a warehouse up that nobody else has open."""
    with _connect(spark=False)(warehouse, read_only=True) as db:
        Steps(kill_at).install()
        db.backup(backup)


def restore_until(kill_at: int, backup: Path, warehouse: Path) -> None:
    from ladle.backup.copying import restore

    Steps(kill_at).install()
    restore(backup, warehouse)


def _facts(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _connect(*, spark: bool) -> Callable[..., Any]:
    if spark:
        from ladle.connection import connect

        return connect
    from ladle.testing.inline import connect_inline

    return connect_inline


def main() -> None:
    warehouse, journal, seed, kill_at, *rest = sys.argv[1:]
    steps = Steps(int(kill_at))
    steps.install()
    run(Path(warehouse), Journal(Path(journal)), int(seed), spark=rest == ["spark"])
    sys.stdout.write(f"{steps.count}\n")


if __name__ == "__main__":
    main()
