"""NOW never goes back: it is the highest so far of the lowest clock of a query's streams.

Method: the definition, word for word, over a list of all clocks after every entry (tuples, heartbeats, idleness),
beside what the catalog says; then the same through a database that is closed, opened and checkpointed in between.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Collection
from datetime import timedelta
from itertools import combinations
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.conftest import QUIET, Open
from tests.engine.rows import START, at, values

from ladle import catalog as entries
from ladle.archive.segments import DataFile, Segment
from ladle.catalog import Catalog, ClockAt, may_become_idle, now
from ladle.clock import ManualClock, to_us
from ladle.engine import Database
from ladle.schema import TIMESTAMP, Column, StreamSchema
from ladle.testing import connect_inline

pytestmark = pytest.mark.not_at_one_row("NOW is its subject, not who computes")

WALL_US = 1 << 50
BOTH = "SELECT n FROM a [RANGE 5 SECONDS] UNION ALL SELECT n FROM b [RANGE 5 SECONDS]"


class History:
    """The clocks of streams after each entry, and who is idle; and NOW by its definition."""

    def __init__(self) -> None:
        self.entries: list[dict[str, tuple[int, bool]]] = [{}]

    def add(self, times: dict[str, int]) -> None:
        """Tuples or heartbeats came."""
        before = self.entries[-1]
        self.entries.append(
            {**before, **{name: (max(us, before.get(name, (us,))[0]), False) for name, us in times.items()}}
        )

    def idle(self, stream: str) -> None:
        clock_us, _ = self.entries[-1][stream]
        self.entries.append({**self.entries[-1], stream: (clock_us, True)})

    def is_active(self, stream: str) -> bool:
        return stream in self.entries[-1] and not self.entries[-1][stream][1]

    def forget(self, *streams: str) -> None:
        """A stream is dropped: another that gets its name has no past."""
        self.entries = [{k: clock for k, clock in clocks.items() if k not in streams} for clocks in self.entries]

    def now(self, streams: Collection[str], entry: int | None = None) -> int | None:
        lowest = [
            min((us for us, idle in (clocks[name] for name in streams if name in clocks) if not idle), default=None)
            for clocks in self.entries[: None if entry is None else entry + 1]
        ]
        return max((us for us in lowest if us is not None), default=None)

    def clock_at(self, stream: str, entry: int) -> ClockAt | None:
        """What a stream's clock was after an entry."""
        clocks = self.entries[entry].get(stream)
        if clocks is None:
            return None
        since = next((n for n in range(entry, 0, -1) if not self.entries[n - 1].get(stream, (0, False))[1]), 0)
        return ClockAt(clocks[0], since if clocks[1] else 0)


def created(catalog: Catalog, name: str) -> Catalog:
    schema = StreamSchema((Column("n", pa.int32()), Column("at", TIMESTAMP)), timestamp="at")
    return catalog.apply(catalog.seq + 1, entries.create_stream(name, schema, None, None))


def grown(catalog: Catalog, stream: str, us: int | None, quarantined_us: int | None) -> Catalog:
    files, quarantine = (
        [] if each is None else [DataFile(f"{catalog.seq}-{part}", 1, 0, 0, 0, (Segment(1, each, each),))]
        for part, each in enumerate((us, quarantined_us))
    )
    return catalog.apply(catalog.seq + 1, entries.epoch(stream, "inbox", catalog.seq, 0, files, quarantine))


def stepped(rng: random.Random, catalog: Catalog, history: History, name: str) -> Catalog:
    """One more entry about a stream, here and there: it becomes idle, has a heartbeat, or gets tuples."""
    kind, stream = rng.randrange(5), catalog.streams[name]
    if kind <= 1 and history.is_active(name):
        history.idle(name)
        return catalog.apply(catalog.seq + 1, entries.idle(name, WALL_US))
    if kind == 2:
        us = max(0 if stream.clock_us is None else stream.clock_us + 1, rng.randint(0, 30))
        history.add({name: us})
        return catalog.apply(catalog.seq + 1, entries.heartbeat(name, us, 0))
    times = [rng.choice((None, rng.randint(0, 30), rng.randint(0, 30))) for _ in range(2)]
    names = (name, f"{name}.quarantine")
    history.add({each: us for each, us in zip(names, times, strict=True) if us is not None})
    return grown(catalog, name, *times)


def remembered_ids(catalog: Catalog) -> set[int]:
    """Of whom activations know clocks."""
    return {other for stream in catalog.all_streams() for each in stream.activations for other in each.before}


@settings(max_examples=40)
@given(st.randoms(use_true_random=False), st.integers(1, 5), st.integers(1, 40), st.sampled_from((1, 64)))
def test_the_catalog_knows_now_of_every_set_of_streams(
    rng: random.Random, count: int, steps: int, remembered: int
) -> None:
    """Also if it remembers only those activations that still count."""
    catalog, history = Catalog(), History()
    names = [f"s{number}" for number in range(count)]
    for name in names:
        catalog = created(catalog, name)
    known = [*names, *(f"{name}.quarantine" for name in names)]
    subsets = [chosen for size in range(1, 5) for chosen in combinations(names[:4], size)]
    with patch.object(now, "ACTIVATIONS_MAX", remembered):
        for _ in range(steps):
            name = rng.choice(names)
            match rng.randrange(16):
                case 0:
                    # a checkpoint is written and read
                    catalog = Catalog.from_json(json.loads(json.dumps(catalog.to_json())))
                case 1:
                    catalog = created(catalog.apply(catalog.seq + 1, entries.drop_stream(name)), name)
                    history.forget(name, f"{name}.quarantine")
                    assert remembered_ids(catalog) <= {stream.id for stream in catalog.all_streams()}
                case _:
                    catalog = stepped(rng, catalog, history, name)
            for chosen in [*subsets, *(rng.sample(known, rng.randint(1, min(4, len(known)))) for _ in range(4))]:
                assert catalog.now_us(chosen, WALL_US) == history.now(chosen), chosen


@settings(max_examples=30)
@given(st.randoms(use_true_random=False), st.integers(1, 40), st.sampled_from((2, 64)))
def test_now_as_of_every_epoch(rng: random.Random, steps: int, remembered: int) -> None:
    """For as long as a stream says that it is known."""
    catalog, history = Catalog(), History()
    names = ["s0", "s1", "s2", "s3"]
    for name in names:
        catalog = created(catalog, name)
    with patch.object(now, "ACTIVATIONS_MAX", remembered):
        for _ in range(steps):
            catalog = stepped(rng, catalog, history, rng.choice(names))
    catalog = Catalog.from_json(json.loads(json.dumps(catalog.to_json())))
    for size in range(1, 5):
        for chosen in combinations(names, size):
            states = [catalog.streams[name] for name in chosen]
            for epoch in range(max(state.now_from for state in states), catalog.epoch + 1):
                clocks = [(state, history.clock_at(state.name, epoch)) for state in states]
                assert now.now_of_clocks(clocks, epoch) == history.now(chosen, epoch), (chosen, epoch)
    if remembered == 64:
        assert all(state.now_from == 0 for state in catalog.streams.values())


def test_activations_are_let_go_while_clocks_advance() -> None:
    """Streams that are idle now and then, each behind the others when it comes back, are not remembered for ever."""
    catalog, rng = Catalog(), random.Random(7)
    names = ["s0", "s1", "s2", "s3"]
    for name in names:
        catalog = created(catalog, name)
    for step in range(2_000):
        name = rng.choice(names)
        stream = catalog.streams[name]
        if stream.clock_us is not None and not stream.idle_since and rng.random() < 0.3:
            catalog = catalog.apply(catalog.seq + 1, entries.idle(name, WALL_US))
        else:
            catalog = grown(catalog, name, 10 * step - rng.randint(0, 100), None)
        for each in catalog.streams.values():
            assert sum(activation.until is None for activation in each.activations) <= 4
            assert may_become_idle(each)
    kept = [stream.activations for stream in catalog.streams.values()]
    assert all(0 < len(each) <= now.ACTIVATIONS_MAX for each in kept)


def test_a_checkpoint_that_knows_no_activations_opens() -> None:
    catalog = created(created(Catalog(), "a"), "b")
    catalog = grown(grown(catalog, "a", 10, None), "b", 2, None)
    assert catalog.now_us(["a", "b"], WALL_US) == 10
    opened = created(Catalog.from_json(as_before(catalog, {})), "c")
    assert opened.now_us(["a", "b"], WALL_US) == 2
    opened = grown(grown(opened, "b", 7, None), "c", 1, None)
    assert opened.now_us(["a", "b", "c"], WALL_US) == 7
    assert opened.now_us(["a", "c"], WALL_US) == 10


def test_a_checkpoint_that_knows_who_was_ahead_opens() -> None:
    """As the version before wrote it: the epoch of each stream's first tuple, and the clocks of those ahead then."""
    catalog = Catalog()
    for name in "abc":
        catalog = created(catalog, name)
    for name, us in (("a", 10), ("b", 3), ("c", 5), ("b", 4), ("c", 6)):
        catalog = grown(catalog, name, us, None)
    a, b = catalog.streams["a"].id, catalog.streams["b"].id
    old = as_before(catalog, {"a": [1, []], "b": [2, [[a, 10]]], "c": [3, [[a, 10]]]})
    opened = Catalog.from_json(old)
    assert b not in dict(old["streams"][2]["activation"][1])
    for size in range(1, 4):
        for chosen in combinations("abc", size):
            assert opened.now_us(chosen, WALL_US) == catalog.now_us(chosen, WALL_US), chosen


def as_before(catalog: Catalog, activations: dict[str, list[Any]]) -> dict[str, Any]:
    """A checkpoint in the form of the version before, with what that knew of first tuples."""
    old: dict[str, Any] = json.loads(json.dumps(catalog.to_json()))
    new = ("lateness_us", "idle_after_us", "touched_us", "idle_since", "activations", "now_from", "timeline")
    for stream in old["streams"]:
        for part in (stream, stream["quarantine"]):
            for name in new:
                del part[name]
            if part["name"] in activations:
                part["activation"] = activations[part["name"]]
    return old


def streams(db: Database, names: str = "ab") -> None:
    for name in names:
        db.sql(f"CREATE STREAM {name} (n INT, at TIMESTAMP) TIMESTAMP BY at")


def push(db: Database, stream: str, second: int) -> None:
    db.push(stream, [{"n": second, "at": at(second)}], wait=True)


@pytest.mark.parametrize("mode", ["none", "partial", "complete", "auto"])
def test_a_stream_that_was_empty_takes_no_query_back(open_db: Open, mode: str) -> None:
    db = open_db(checkpoint_entries=2)
    streams(db)
    query = db.register(BOTH, name="q", materialize=mode)
    heard = query.subscribe(since=0, relation="istream")
    nows = []
    for stream, second in (("a", 1), ("a", 10), ("b", 2), ("b", 10)):
        push(db, stream, second)
        answer = db.invoke("q")
        nows.append(answer.now)
        assert answer.now == db.sql(BOTH).now
    assert nows == [at(1), at(10), at(10), at(10)]
    assert sorted(values(db.invoke("q"))) == [10, 10]
    told = []
    while (change := heard.next(0.0)) is not None:
        told.append((change.now, values(change)))
    assert told == [(at(1), [1]), (at(10), [10]), (at(10), [10])]
    db.maintain()
    db.close()
    db = open_db()
    assert db.invoke("q").now == at(10)
    push(db, "b", 12)
    assert db.invoke("q").now == at(10)
    push(db, "a", 13)
    assert db.invoke("q").now == at(12)


def test_windows_are_empty_while_now_is_undefined(open_db: Open, clock: ManualClock) -> None:
    """Else the first tuple with a time of its own would take the query back from the wall clock to that time."""
    db = open_db()
    db.sql("CREATE STREAM arrivals (n INT)")
    streams(db, "b")
    moving = db.register("SELECT n FROM arrivals [RANGE 1 DAY] UNION ALL SELECT n FROM b [ROWS 5]", name="moving")
    whole = db.register("SELECT n FROM arrivals UNION ALL SELECT n FROM b", name="whole")
    heard = moving.subscribe(since=0, relation="istream")
    db.push("arrivals", [{"n": 1}], wait=True)
    assert values(moving.invoke()) == []
    assert values(whole.invoke()) == [1]
    push(db, "b", 7)
    assert moving.invoke().now == at(7)
    assert values(moving.invoke()) == [7]
    db.push("b", [{"n": 8, "at": (START + timedelta(hours=10, minutes=30))}], wait=True)
    assert sorted(values(moving.invoke())) == [1, 7, 8]
    told = []
    while (change := heard.next(0.0)) is not None:
        told.append(sorted(values(change)))
    assert told == [[7], [1, 8]]


def test_a_wall_clock_that_is_set_back_takes_no_query_back(open_db: Open, clock: ManualClock) -> None:
    db = open_db()
    db.sql("CREATE STREAM s (n INT)")
    query = db.register("SELECT n FROM s [RANGE 1 MINUTE]", name="q")
    stamped_us = clock.now_us()
    db.push("s", [{"n": 1}], wait=True)
    clock.advance(-3_600_000_000)
    answer = query.invoke()
    assert values(answer) == [1]
    assert to_us(answer.now) == stamped_us


@settings(max_examples=12)
@given(
    steps=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 40), st.integers(0, 9)), min_size=1, max_size=14),
    wanted=st.sampled_from(["ab", "bc", "abc"]),
)
def test_through_restarts_and_checkpoints(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int, int]], wanted: str
) -> None:
    """Against the definition; and a subscriber that is away in between is told no row twice."""
    text = " UNION ALL ".join(f"SELECT n FROM {name} [RANGE 5 SECONDS]" for name in wanted)
    path, clock, history = tmp_path_factory.mktemp("now") / "w", ManualClock(), History()
    limits = {**QUIET, "checkpoint_entries": 2, "segment_rows_max": 2, "compact_files_min": 2, "grace_seconds": 0.0}
    db = connect_inline(path, clock=clock, settings=limits)
    streams(db, "abc")
    db.register(text, name="q", materialize="partial")
    since, told = 0, Counter[int]()
    for number, (stream, second, chance) in enumerate(steps):
        db.push(stream, [{"n": number, "at": at(second)}], wait=True)
        history.add({stream: to_us(at(second))})
        if chance == 0:
            db.maintain()
        if chance <= 2:
            db.close()
            db = connect_inline(path, clock=clock, settings=limits)
        now_us = history.now(wanted)
        assert to_us(db.invoke("q").now) == (clock.now_us() if now_us is None else now_us)
        if chance >= 6:
            with db.query("q").subscribe(since=since, relation="istream") as changes:
                while (change := changes.next(0.0)) is not None:
                    told.update(values(change))
                    since = change.epoch
    db.close()
    assert all(times == 1 for times in told.values()), told
