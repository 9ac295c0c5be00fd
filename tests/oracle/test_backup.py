"""Backups against a journal. Method: random pushes, changes of a table, registrations, housekeeping, losses of derived
state and restarts, with backups into one directory in between, by the process that writes or by one that reads beside
it. The journal says, for each backup, what was acknowledged when it was asked for; whatever is restored then, into a
database that may go on in the place of the old one, is exactly that.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.support.faults import SCHEMA, rows_of

import ladle
from ladle.engine import Database
from ladle.testing import connect_inline

pytestmark = pytest.mark.not_at_one_row("its queries have no residual")

STEPS = 60
SETTINGS = {
    "maintenance_seconds": 3_600.0,
    "compact_files_min": 2,
    "grace_seconds": 0.0,
    "checkpoint_entries": 3,
}
STREAMS = ("a", "b")


class Journal:
    """What was acknowledged."""

    def __init__(self) -> None:
        self.rows: dict[str, list[int]] = {name: [] for name in STREAMS}
        self.quarantined: Counter[str] = Counter()
        self.table: list[int] = []
        self.queries: dict[str, tuple[str, int]] = {}

    def copy(self) -> Journal:
        made = Journal()
        made.rows = {name: list(rows) for name, rows in self.rows.items()}
        made.quarantined = Counter(self.quarantined)
        made.table = list(self.table)
        made.queries = dict(self.queries)
        return made

    def check(self, db: Database) -> None:
        """A database whose pushes are all taken in is as the journal says."""
        for stream in STREAMS:
            assert _numbers(db.sql(f"SELECT n FROM {stream}")) == sorted(self.rows[stream])
            assert db.sql(f"SELECT COUNT(*) AS n FROM {stream}.quarantine").to_pylist() == [
                {"n": self.quarantined[stream]}
            ]
        assert _numbers(db.sql("SELECT k FROM t")) == sorted(self.table)
        assert {query.name for query in db.queries()} == self.queries.keys()
        for name, (stream, least) in self.queries.items():
            assert _numbers(db.invoke(name)) == sorted(n for n in self.rows[stream] if n >= least), name


def _numbers(answer: ladle.Answer) -> list[Any]:
    return sorted(answer.table.column(0).to_pylist())


class Run:
    """A database, its journal, and the backup that was made last."""

    def __init__(self, directory: Path, rng: random.Random) -> None:
        self._directory = directory
        self._rng = rng
        self._path = directory / "warehouse0"
        self._backup = directory / "backup"
        self._count = 0
        self._restored = 0
        self.journal = Journal()
        self.backed_up: Journal | None = None
        self.db = self._open(self._path)
        for name in STREAMS:
            self.db.sql(SCHEMA.format(name=name))
        self.db.sql("CREATE TABLE t (k INT)")

    def _open(self, path: Path) -> Database:
        return connect_inline(path, settings=SETTINGS)

    def step(self) -> None:
        acts = {
            self.push: 8,
            self.change_table: 3,
            self.register: 2,
            self.unregister: 1,
            self.maintain: 3,
            self.restart: 1,
            self.lose_derived: 1,
            self.back_up: 4,
            self.restore: 2,
            self.go_on_from_the_backup: 1,
        }
        self._rng.choices(list(acts), list(acts.values()))[0]()

    def push(self) -> None:
        self._count += 1
        stream, rows = self._rng.choice(STREAMS), rows_of(self._count, self._rng.randint(1, 9))
        how = self._rng.choice(["wait", "later", "receive"])
        if self._rng.random() < 0.2:
            rows[0]["at"] = "9999-01-01T00:00:00Z"
            self.journal.quarantined[stream] += 1
        self.journal.rows[stream] += [row["n"] for row in rows if not isinstance(row["at"], str)]
        if how == "receive":
            self.db.receive(stream, rows)
        else:
            self.db.push(stream, rows, wait=how == "wait")

    def change_table(self) -> None:
        number = self._rng.randint(0, 20)
        if self._rng.random() < 0.7:
            self.db.sql(f"INSERT INTO t VALUES ({number})")
            self.journal.table.append(number)
        else:
            self.db.sql(f"DELETE FROM t WHERE k < {number}")
            self.journal.table = [k for k in self.journal.table if k >= number]

    def register(self) -> None:
        name, stream = f"q{self._rng.randint(0, 9)}", self._rng.choice(STREAMS)
        least = self._rng.randint(0, self._count + 1) * 1_000
        mode = self._rng.choice(["none", "partial", "complete", "auto"])
        self.db.register(f"SELECT n FROM {stream} WHERE n >= {least}", name=name, materialize=mode, replace=True)
        self.journal.queries[name] = (stream, least)

    def unregister(self) -> None:
        if self.journal.queries:
            name = self._rng.choice(sorted(self.journal.queries))
            self.db.unregister(name)
            del self.journal.queries[name]

    def maintain(self) -> None:
        self.db.maintain()

    def restart(self) -> None:
        self.db.close()
        self.db = self._open(self._path)

    def lose_derived(self) -> None:
        shutil.rmtree(self._path / "derived", ignore_errors=True)

    def back_up(self) -> None:
        if self._rng.random() < 0.5:
            self.db.backup(self._backup)
        else:
            with connect_inline(self._path, settings=SETTINGS, read_only=True) as reader:
                reader.backup(self._backup)
        self.backed_up = self.journal.copy()

    def restore(self) -> None:
        if self.backed_up is not None:
            path = self._restore()
            with self._open(path) as db:
                _drain(db)
                self.backed_up.check(db)
            shutil.rmtree(path)

    def go_on_from_the_backup(self) -> None:
        """A disaster: the warehouse is gone, and what was backed up takes its place."""
        if self.backed_up is not None:
            self.db.close()
            shutil.rmtree(self._path)
            self._path = self._restore()
            self.journal = self.backed_up.copy()
            self.db = self._open(self._path)

    def _restore(self) -> Path:
        self._restored += 1
        path = self._directory / f"warehouse{self._restored}"
        ladle.restore(self._backup, path)
        return path

    def end(self) -> None:
        _drain(self.db)
        self.journal.check(self.db)
        self.back_up()
        self.restore()
        self.db.close()


def _drain(db: Database) -> None:
    for stream in db.catalog.streams.values():
        db._ingest.drain(stream)


def check(directory: Path, seed: int) -> None:
    run = Run(directory, random.Random(seed))
    for _ in range(STEPS):
        run.step()
    run.end()


@pytest.mark.parametrize("seed", range(4))
def test_whatever_is_restored_is_what_was_backed_up(tmp_path: Path, seed: int) -> None:
    check(tmp_path, seed)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(100, 160))
def test_whatever_is_restored_is_what_was_backed_up_for_long(tmp_path: Path, seed: int) -> None:
    check(tmp_path, seed)
