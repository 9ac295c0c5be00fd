"""Drives a database and its oracle side by side: every action is done to both, every answer is compared.

Actions take a seed, so that a run is a short list of numbers: Hypothesis shrinks it, and a failure can be typed
in again.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Collection
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from tests.support.follower import Contradiction, Follower
from tests.support.generate import MINUTE_US, WALL_US, PushedRow, random_rows, random_stream
from tests.support.join_oracle import JoinOracle
from tests.support.join_queries import (
    CHANGES,
    IS_ODD,
    LABELS,
    JoinMaker,
    JoinQuery,
    random_join_rows,
    random_join_stream,
)
from tests.support.months import EPOCH, to_us
from tests.support.oracle import Expected, bag_difference, difference, stored
from tests.support.queries import QueryMaker
from tests.support.tree import (
    NamedSource,
    Query,
    Select,
    StreamSource,
    StreamSpec,
    columns_of,
    is_nested,
    query_names,
    to_ladle,
)

from ladle.clock import ManualClock
from ladle.errors import Gone, InUse, PipelineError

if TYPE_CHECKING:
    from ladle.answer import Answer
    from ladle.engine import Database

MODES = ("auto", "none", "partial", "complete")
Connect = Callable[[Path, ManualClock, dict[str, Any]], "Database"]


class Mismatch(AssertionError):
    """The engine's answer is not the oracle's."""


@dataclass(frozen=True)
class Standing:
    name: str
    query: Query | JoinQuery
    mode: str

    @property
    def text(self) -> str:
        return self.query.ladle if isinstance(self.query, JoinQuery) else to_ladle(self.query)


class Driver:
    """One warehouse under test. `without_spark`: residuals that only Spark can run are counted, not compared.

    It counts the answers `checked`, those of them that had rows (`filled`), those left `unanswered`, those that
    partial aggregates gave (`folded`), how often what was asked for was `gone`, and how often what a follower has was
    compared (`followed`).
    """

    def __init__(self, path: Path, connect: Connect, *, seed: int = 0, without_spark: bool = True) -> None:
        self.path = path
        self.clock = ManualClock(WALL_US)
        self.oracle = JoinOracle()
        self.standing: dict[str, Standing] = {}
        self.followers: list[Follower] = []
        self.followed = 0
        self._join_streams: list[StreamSpec] = []
        self.checked = 0
        self.filled = 0
        self.unanswered = 0
        self.gone = 0
        self._connect = connect
        self._without_spark = without_spark
        self._folded_before = 0
        self._numbers = 0
        self._epoch = 0
        self._rng = random.Random(seed)
        self.db = connect(path, self.clock, self._settings(self._rng))
        self.db.sql(IS_ODD)
        self.db.sql(LABELS)

    @staticmethod
    def _settings(rng: random.Random) -> dict[str, Any]:
        """Small limits, so that a hundred rows make segments, compactions and checkpoints."""
        return {
            "segment_rows_max": rng.choice((4, 16, 64, 65_536)),
            "compact_files_min": rng.choice((2, 3, 16)),
            "checkpoint_entries": rng.choice((3, 10, 256)),
            "derived_memory_bytes_max": rng.choice((0, 5_000, 20_000, 1 << 30)),
            "backfill_rows_max": rng.choice((1, 50, 1 << 19)),
            # Only where the driver says so: the oracle has to know when tuples leave that are stamped on arrival.
            "maintenance_seconds": 3_600.0,
        }

    def close(self) -> None:
        self.db.close()
        self.oracle.close()

    @property
    def folded(self) -> int:
        return self._folded_before + self.db._invoker.nodes.answered

    @property
    def wall_us(self) -> int:
        return self.clock.now_us()

    @property
    def streams(self) -> list[StreamSpec]:
        joined = {spec.name for spec in self._join_streams}
        return [stream.spec for stream in self.oracle.streams.values() if stream.spec.name not in joined]

    # --- actions ---

    def create_stream(self, seed: int) -> None:
        self._numbers += 1
        spec = random_stream(random.Random(seed), f"s{self._numbers}")
        self.db.sql(spec.create())
        self.oracle.create(spec, self.db.catalog.streams[spec.name].id)

    def create_join_streams(self, seed: int) -> None:
        """Two streams with keys of the same few values."""
        rng = random.Random(seed)
        for name in "rs":
            spec = random_join_stream(rng, name)
            self.db.sql(spec.create())
            self.oracle.create(spec, self.db.catalog.streams[spec.name].id)
            self._join_streams.append(spec)

    def push_joined(self, seed: int, count: int) -> None:
        rng = random.Random(seed)
        spec = rng.choice(self._join_streams)
        self.push_rows(spec, random_join_rows(rng, spec, self.wall_us, count))

    def change_table(self, seed: int) -> None:
        rng = random.Random(seed)
        statement = rng.choice(CHANGES).format(rng.randint(0, 4), rng.randint(0, 4))
        self.db.sql(statement)
        self.oracle.change_table(statement)

    def push(self, seed: int, count: int) -> None:
        rng = random.Random(seed)
        spec = rng.choice(self.streams)
        as_rows = rng.random() < 0.5
        rows = random_rows(rng, spec, self.wall_us, count, misfits=as_rows)
        self.push_rows(spec, rows, "rows" if as_rows else rng.choice(("arrow", "pandas")))

    def push_rows(self, spec: StreamSpec, rows: list[PushedRow], form: str = "rows") -> None:
        given: Any = [row.values for row in rows] if form == "rows" else _as_arrow(spec, rows)
        if form == "pandas":
            given = given.to_pandas(types_mapper=_arrow_dtype)
        epoch = self.db.push(spec.name, given, wait=True)
        self.oracle.push(spec.name, rows, self.wall_us)
        if epoch is not None:
            assert epoch >= self._epoch, f"epoch {epoch} after {self._epoch}"
            self._epoch = epoch

    def register(self, seed: int, size: int, mode: str) -> str:
        rng = random.Random(seed)
        self._numbers += 1
        name = f"q{self._numbers}"
        query = self._maker(rng, size).query()
        self.register_query(name, query, mode, by_statement=rng.random() < 0.3)
        return name

    def register_query(self, name: str, query: Query, mode: str, *, by_statement: bool = False) -> None:
        text = to_ladle(query)
        if by_statement:
            self.db.sql(f"CREATE QUERY {name} WITH (materialize = '{mode}') AS {text}")
        else:
            self.db.register(text, name=name, materialize=mode)
        self.standing[name] = Standing(name, query, mode)

    def register_join(self, seed: int, mode: str) -> None:
        """A query that joins streams with each other or with the table; what would keep pairs without bound keeps
        nothing.
        """
        self._numbers += 1
        rng = random.Random(seed)
        query = JoinMaker(rng, self._join_streams, self.wall_us).query()
        mode = "none" if query.is_unbounded else mode
        self.db.register(query.ladle, name=f"j{self._numbers}", materialize=mode)
        self.standing[f"j{self._numbers}"] = Standing(f"j{self._numbers}", query, mode)

    def subscribe(self, seed: int) -> None:
        """Somebody follows a query."""
        rng = random.Random(seed)
        name = rng.choice(sorted(self.standing))
        try:
            self.followers.append(Follower(self.db, name, expirations=rng.choice(("retract", "out"))))
        except PipelineError as error:
            if not (self._without_spark and "needs Spark" in str(error)):
                raise
            self.unanswered += 1

    def check_followers(self, *, away: float = 0.0) -> None:
        """Everybody who follows a query, but for some who are away, has its answer."""
        for follower in self.followers:
            if self._rng.random() < away:
                continue
            standing = self.standing[follower.name]
            label = f"follower of {follower.name} ({standing.mode}, {follower.expirations})"
            expected = self._expected(standing.query, None)
            try:
                follower.catch_up(self.db)
            except Gone as error:
                if not any(spec.retain for spec in (*self.streams, *self._join_streams)):
                    raise Mismatch(f"{label}: {error}\nLadle:  {standing.text}") from None
                self.gone += 1
                follower.begin(self.db)
            except Contradiction as error:
                raise Mismatch(f"{label}: {error}\nLadle:  {standing.text}") from error
            self.followed += 1
            problem = bag_difference(follower.answer(), expected)
            if problem is not None:
                raise Mismatch(f"{label}: {problem}\nLadle:  {standing.text}\nDuckDB: {expected.sql}")

    def _expected(self, query: Query | JoinQuery, now: datetime | None) -> Expected:
        if isinstance(query, JoinQuery):
            return self.oracle.judge(query, self.wall_us, None if now is None else to_us(now))
        return self.oracle.answer(query, self.wall_us, now)

    def unregister(self, seed: int) -> None:
        name = random.Random(seed).choice(sorted(self.standing))
        if any(name in _names(other.query) for other in self.standing.values()):
            try:
                self.db.query(name).unregister()
            except InUse:
                return
            raise Mismatch(f"{name} was dropped although other queries read it")
        self.db.query(name).unregister()
        del self.standing[name]
        self.followers = [each for each in self.followers if each.name != name]

    def register_folding(self, seed: int, mode: str) -> None:
        """A query that partial aggregates answer."""
        self._numbers += 1
        query = self._maker(random.Random(seed), 1).folding_query()
        self.register_query(f"q{self._numbers}", query, mode)

    def ask(self, seed: int, size: int) -> None:
        """A SELECT that does not stand."""
        self._numbers += 1
        query = self._maker(random.Random(seed), size).query()
        self._compare("asked once", query, lambda: self.db.sql(to_ladle(query)))

    def read_by_name(self, seed: int) -> None:
        readable = [each for each in self.standing.values() if not isinstance(each.query, JoinQuery)]
        if not readable:
            return
        standing = random.Random(seed).choice(readable)
        assert not isinstance(standing.query, JoinQuery)
        query = Select(NamedSource(standing.name, standing.query, None), ())
        self._compare(f"read by name, {standing.mode}", query, lambda: self.db.sql(to_ladle(query)))

    def invoke_at(self, seed: int) -> None:
        """Another NOW: in the past, at an edge, in the future."""
        rng = random.Random(seed)
        standing = self.standing[rng.choice(sorted(self.standing))]
        us = self.wall_us + rng.choice((-1, -1, 1)) * rng.randint(0, 200) * MINUTE_US // 2
        now = EPOCH + timedelta(microseconds=us)
        moment = now.replace(tzinfo=UTC) if rng.random() < 0.5 else now
        query = self.db.query(standing.name)
        self._compare(
            f"{standing.name} ({standing.mode}) at {now}", standing.query, lambda: query.invoke(now=moment), now
        )

    def advance(self, half_minutes: int) -> None:
        self.clock.advance(half_minutes * (MINUTE_US // 2))

    def heartbeat(self, seed: int) -> None:
        """A stream with a time column advances a little, or does not."""
        rng = random.Random(seed)
        timed = [spec.name for spec in self.streams if spec.time is not None]
        if not timed:
            return
        name = rng.choice(timed)
        us = self.wall_us + rng.randint(-120, 1) * (MINUTE_US // 2)
        epoch = self.db.heartbeat(name, EPOCH + timedelta(microseconds=us))
        if (epoch is not None) != self.oracle.heartbeat(name, us):
            raise Mismatch(f"a heartbeat of {name} gave epoch {epoch}")

    def restart(self, seed: int) -> None:
        rng = random.Random(seed)
        self._folded_before = self.folded
        self.db.close()
        if rng.random() < 0.3:
            self._halve_derived(rng)
        self.db = self._connect(self.path, self.clock, self._settings(rng))

    def maintain(self) -> None:
        self.db._background.beat()  # as housekeeping does in between, which is not left to chance here
        self.db.maintain()
        self.oracle.maintained(self.wall_us)

    def backfill(self) -> None:
        self.db.backfill()

    def delete_derived(self, seed: int) -> None:
        """Derived files vanish while the database is open."""
        rng = random.Random(seed)
        if rng.random() < 0.3:
            for entry in sorted((self.path / "derived").iterdir()):
                shutil.rmtree(entry, ignore_errors=True) if entry.is_dir() else entry.unlink(missing_ok=True)
            return
        share = rng.random()
        for file in self._derived_files():
            if rng.random() < share:
                file.unlink(missing_ok=True)

    def _halve_derived(self, rng: random.Random) -> None:
        """As a crash may leave them: cut short, or empty."""
        for file in self._derived_files():
            if rng.random() < 0.5:
                data = file.read_bytes()
                # a new file: the old one may be mapped by this process, which did not really crash
                file.unlink()
                file.write_bytes(data[: rng.choice((0, len(data) // 2, max(len(data) - 1, 0)))])

    def _derived_files(self) -> list[Path]:
        return sorted(file for file in (self.path / "derived").rglob("*") if file.is_file())

    # --- comparing ---

    def check(self, limit: int | None = None) -> None:
        """Invoke all standing queries, or some of them, and compare."""
        names = sorted(self.standing)
        if limit is not None and len(names) > limit:
            names = self._rng.sample(names, limit)
        for name in names:
            standing = self.standing[name]
            self._compare(f"{name} ({standing.mode})", standing.query, self.db.query(name).invoke)

    def check_catalog(self) -> None:
        """Names, texts, and how many rows each stream's quarantine holds."""
        assert {query.name for query in self.db.queries()} == set(self.standing)
        assert {stream.name for stream in self.db.streams()} >= {spec.name for spec in self.streams}
        for name in self.oracle.streams:
            table = self.db.sql(f"SELECT count(*) AS n, count(reason) AS r FROM {name}.quarantine").table
            (found,) = table.to_pylist()
            least, most = self.oracle.quarantine(name, self.wall_us)
            if not least <= found["n"] == found["r"] <= most:
                raise Mismatch(f"quarantine of {name}: {found}, expected {least} to {most} rows")

    def _compare(
        self, label: str, query: Query | JoinQuery, answer: Callable[[], Answer], now: datetime | None = None
    ) -> None:
        text = query.ladle if isinstance(query, JoinQuery) else to_ladle(query)
        expected = self._expected(query, now)
        read: list[Query] = [] if isinstance(query, JoinQuery) else [query]
        if isinstance(query, JoinQuery):
            read += [Select(mention, (), window=query.window) for mention in query.mentions]
        must, may = (False, False) if now is None else self.oracle.gone(read, self.wall_us, to_us(now))
        try:
            got = answer()
        except PipelineError as error:
            if self._without_spark and "needs Spark" in str(error):
                self.unanswered += 1
                return
            raise
        except Gone as error:
            if not may:
                raise Mismatch(f"{label}: {error}\nLadle:  {text}") from None
            self.gone += 1
            return
        problem = "an answer that lacks tuples" if must else difference(got.table, expected)
        if problem is None and to_us(got.now) != expected.now_us:
            problem = f"NOW is {got.now}, expected {EPOCH + timedelta(microseconds=expected.now_us)}"
        if problem is None and got.epoch < self._epoch:
            problem = f"epoch {got.epoch} after {self._epoch}"
        self.checked += 1
        self.filled += bool(expected.rows)
        if problem is not None:
            raise Mismatch(f"{label}: {problem}\nLadle:  {text}\nDuckDB: {expected.sql}")
        self._epoch = got.epoch

    def _maker(self, rng: random.Random, size: int) -> QueryMaker:
        readable = {
            name: standing.query
            for name, standing in self.standing.items()
            if not isinstance(standing.query, JoinQuery)
            and not any(is_nested(column.type) for column in columns_of(standing.query))
        }
        # names of output columns differ between queries, so that one that reads another repeats none
        return QueryMaker(rng, self.streams, self.wall_us, size, readable, first_name=self._numbers * 100)


def _names(query: Query | JoinQuery) -> Collection[str]:
    return () if isinstance(query, JoinQuery) else query_names(query)


def _as_arrow(spec: StreamSpec, rows: list[PushedRow]) -> pa.Table:
    arrays = [pa.array([stored(row.values.get(c.name), c.type) for row in rows], c.type) for c in spec.columns]
    return pa.table(arrays, [column.name for column in spec.columns])


def _arrow_dtype(type_: pa.DataType) -> Any:
    import pandas as pd

    return pd.ArrowDtype(type_)


def everything(spec: StreamSpec) -> Select:
    return Select(StreamSource(spec, None), ())
