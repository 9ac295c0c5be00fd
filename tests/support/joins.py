"""Joins of streams, judged: a driver that compares every answer with DuckDB's."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.driver import Connect, Mismatch
from tests.support.generate import WALL_US, PushedRow
from tests.support.join_oracle import JoinOracle
from tests.support.join_queries import (
    CHANGES,
    IS_ODD,
    LABELS,
    POLICIES,
    SECOND_US,
    JoinMaker,
    JoinQuery,
    random_join_rows,
    random_join_stream,
)
from tests.support.months import EPOCH, to_us
from tests.support.oracle import difference
from tests.support.tree import Select, StreamSpec

from ladle.clock import ManualClock
from ladle.errors import Gone, PipelineError, SqlError, Unsupported

if TYPE_CHECKING:
    from ladle.answer import Answer


class JoinDriver:
    """One warehouse under test: what is done to it is done to the oracle, and every answer is compared.

    It counts the answers `checked`, those of them that had rows (`filled`), those left `unanswered` (only Spark has
    them), and the queries `refused` for the state that they would keep.
    """

    def __init__(self, path: Path, connect: Connect, streams: Sequence[StreamSpec] = (), *, seed: int = 0) -> None:
        self.path = path
        self.clock = ManualClock(WALL_US)
        self.oracle = JoinOracle()
        self.standing: dict[str, tuple[JoinQuery, str]] = {}
        self.checked = self.filled = self.refused = self.unanswered = self._numbers = 0
        self._connect = connect
        rng = random.Random(seed)
        self.settings = self._settings(rng)
        self.db = connect(path, self.clock, self.settings)
        self.db.sql(IS_ODD)
        self.db.sql(LABELS)
        for spec in streams or [random_join_stream(rng, name) for name in "rsu"[: rng.choice((2, 2, 3))]]:
            self.db.sql(spec.create())
            self.oracle.create(spec, self.db.catalog.streams[spec.name].id)

    @staticmethod
    def _settings(rng: random.Random) -> dict[str, Any]:
        """Small limits, so that a few rows make segments, compactions and joins that are too large."""
        return {
            "segment_rows_max": rng.choice((1, 4, 16, 64)),
            "eddy_policy": rng.choice(POLICIES),
            "compact_files_min": rng.choice((2, 3, 16)),
            "derived_memory_bytes_max": rng.choice((0, 20_000, 1 << 30, 1 << 30)),
            "backfill_rows_max": rng.choice((1, 1 << 19)),
            "join_pairs_max": rng.choice((3, 100, 16_000_000, 16_000_000)),
            # Only where the driver says so: the oracle has to know when tuples leave that are stamped on arrival.
            "maintenance_seconds": 3_600.0,
        }

    def close(self) -> None:
        self.db.close()
        self.oracle.close()

    @property
    def streams(self) -> list[StreamSpec]:
        return [stream.spec for stream in self.oracle.streams.values()]

    # --- actions ---

    def push(self, seed: int, count: int) -> None:
        rng = random.Random(seed)
        spec = rng.choice(self.streams)
        self.clock.advance(rng.randint(0, 5) * SECOND_US)
        self.push_rows(spec.name, random_join_rows(rng, spec, self.clock.now_us(), count))
        if rng.random() < 0.3:
            self.heartbeat(rng.randrange(1_000))

    def push_rows(self, name: str, rows: list[PushedRow]) -> None:
        self.db.push(name, [row.values for row in rows], wait=True)
        self.oracle.push(name, rows, self.clock.now_us())

    def heartbeat(self, seed: int) -> None:
        """A stream with a time column advances a little, or does not."""
        rng = random.Random(seed)
        timed = [spec.name for spec in self.streams if spec.time is not None]
        if not timed:
            return
        name, us = rng.choice(timed), self.clock.now_us() + rng.randint(-20, 5) * SECOND_US
        epoch = self.db.heartbeat(name, EPOCH + timedelta(microseconds=us))
        if (epoch is not None) != self.oracle.heartbeat(name, us):
            raise Mismatch(f"a heartbeat of {name} gave epoch {epoch}")

    def change_table(self, seed: int) -> None:
        rng = random.Random(seed)
        statement = rng.choice(CHANGES).format(rng.randint(0, 4), rng.randint(0, 4))
        self.db.sql(statement)
        self.oracle.change_table(statement)

    def register(self, seed: int, mode: str) -> None:
        self._numbers += 1
        self.register_query(f"q{self._numbers}", self._made(random.Random(seed)), mode)

    def register_query(self, name: str, query: JoinQuery, mode: str) -> None:
        try:
            self.db.register(query.ladle, name=name, materialize=mode)
        except (SqlError, Unsupported) as error:
            if "unbounded" not in str(error).lower():
                raise
            if mode == "none" or not query.is_unbounded:
                raise Mismatch(f"refused although its state is bounded: {query.ladle}") from error
            self.refused += 1
            mode = "none"
            self.db.register(query.ladle, name=name, materialize=mode)
        self.standing[name] = (query, mode)

    def unregister(self, seed: int) -> None:
        name = random.Random(seed).choice(sorted(self.standing))
        self.db.query(name).unregister()
        del self.standing[name]

    def ask(self, seed: int) -> None:
        """A SELECT that does not stand."""
        query = self._made(random.Random(seed))
        self._compare("asked once", query, lambda: self.db.sql(query.ladle))

    def invoke_at(self, seed: int) -> None:
        """Another NOW: in the past, at an edge, in the future."""
        rng = random.Random(seed)
        name = rng.choice(sorted(self.standing))
        us = self.clock.now_us() + rng.randint(-40, 20) * SECOND_US + rng.choice((0, 0, 1, -1))
        now = (EPOCH + timedelta(microseconds=us)).replace(tzinfo=UTC)
        query, mode = self.standing[name]
        self._compare(f"{name} ({mode}) at {now}", query, lambda: self.db.query(name).invoke(now=now), now)

    def restart(self, seed: int) -> None:
        """With other limits, and sometimes after a crash that cut derived files short."""
        rng = random.Random(seed)
        self.db.close()
        if rng.random() < 0.3:
            for file in self._derived_files():
                if rng.random() < 0.5:
                    data = file.read_bytes()
                    # a new file: the old one may be mapped by this process, which did not really crash
                    file.unlink()
                    file.write_bytes(data[: rng.choice((0, len(data) // 2, max(len(data) - 1, 0)))])
        self.settings = self._settings(rng)
        self.db = self._connect(self.path, self.clock, self.settings)

    def maintain(self) -> None:
        self.db._background.beat()  # as housekeeping does in between, which is not left to chance here
        self.db.maintain()
        self.oracle.maintained(self.clock.now_us())

    def delete_derived(self, seed: int) -> None:
        """Derived files vanish while the database is open: all, all of one kind, or some."""
        rng = random.Random(seed)
        if rng.random() < 0.4:
            for kind in rng.choice((("joins",), ("results",), ("joins", "results", "querysets"))):
                shutil.rmtree(self.path / "derived" / kind, ignore_errors=True)
            return
        share = rng.random()
        for file in self._derived_files():
            if rng.random() < share:
                file.unlink(missing_ok=True)

    def _derived_files(self) -> list[Path]:
        return sorted(file for file in (self.path / "derived").rglob("*") if file.is_file())

    def _made(self, rng: random.Random) -> JoinQuery:
        maker = JoinMaker(rng, self.streams, self.clock.now_us())
        if self.standing and rng.random() < 0.35:
            return maker.variation(self.standing[rng.choice(sorted(self.standing))][0])
        return maker.query()

    # --- comparing ---

    def check(self) -> None:
        """Invoke all standing queries and compare."""
        for name, (query, mode) in self.standing.items():
            self._compare(f"{name} ({mode})", query, self.db.query(name).invoke)

    def _compare(self, label: str, query: JoinQuery, answer: Callable[[], Answer], now: datetime | None = None) -> None:
        expected = self.oracle.judge(query, self.clock.now_us(), None if now is None else to_us(now))
        mentioned = [Select(mention, (), window=query.window) for mention in query.mentions]
        must, may = False, False
        if now is not None:
            must, may = self.oracle.gone(mentioned, self.clock.now_us(), to_us(now))
        try:
            got = answer()
        except PipelineError as error:
            if "needs Spark" in str(error):
                self.unanswered += 1
                return
            raise
        except Gone as error:
            if not may:
                raise Mismatch(f"{label}, {self.settings}: {error}\nLadle:  {query.ladle}") from None
            return
        problem = "an answer that lacks tuples" if must else difference(got.table, expected)
        if problem is None and to_us(got.now) != expected.now_us:
            problem = f"NOW is {got.now}, expected {EPOCH + timedelta(microseconds=expected.now_us)}"
        self.checked += 1
        self.filled += bool(expected.rows)
        if problem is not None:
            raise Mismatch(f"{label}, {self.settings}: {problem}\nLadle:  {query.ladle}\nDuckDB: {expected.sql}")
