"""Lateness, heartbeats and idle streams.

Method: random steps (tuples, heartbeats, silence, restarts, housekeeping) through a database, and beside it a list of
what each step brought, from which clocks, NOW, late tuples, answers and what subscribers are told are computed anew.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tests.engine.conftest import QUIET, Open
from tests.engine.rows import START, at, values
from tests.engine.test_now import History

from ladle.catalog import now as catalog_now
from ladle.clock import ManualClock, to_us
from ladle.delta import ChangeOptions, ToStream
from ladle.engine import Database
from ladle.errors import Gone, LadleError, TypeMismatch, UnknownName, Unsupported
from ladle.schema import TIMESTAMP, Column, StreamSchema
from ladle.stem.epoch_kernel import EpochTask, Manifest
from ladle.testing import connect_inline
from ladle.testing.inline import InlinePipeline

pytestmark = pytest.mark.not_at_one_row("NOW is its subject, not who computes")

SECOND_US = 1_000_000
IDLE_SECONDS = 30

INSERTIONS = ChangeOptions(relation=ToStream.ISTREAM)


def create(db: Database, name: str, clauses: str = "") -> None:
    db.sql(f"CREATE STREAM {name} (n INT, at TIMESTAMP) TIMESTAMP BY at {clauses}")


def push(db: Database, stream: str, *seconds: int) -> int | None:
    return db.push(stream, [{"n": second, "at": at(second)} for second in seconds], wait=True)


def quarantined(db: Database, stream: str) -> list[str]:
    return [str(reason) for reason in values(db.sql(f"SELECT reason FROM {stream}.quarantine"))]


# -- lateness --


@settings(max_examples=15)
@given(
    steps=st.lists(
        st.one_of(
            st.lists(st.integers(0, 40), min_size=1, max_size=5),
            st.integers(0, 40),
            st.sampled_from(["reopen", "maintain"]),
        ),
        min_size=1,
        max_size=12,
    ),
    lateness=st.integers(1, 20),
)
def test_late_tuples_are_quarantined(tmp_path_factory: pytest.TempPathFactory, steps: list[Any], lateness: int) -> None:
    """A list is a push, a number a heartbeat. The clock that counts is that of the commit before."""
    path, clock = tmp_path_factory.mktemp("late") / "w", ManualClock()
    db = connect_inline(path, clock=clock, settings=QUIET)
    create(db, "s", f"LATENESS INTERVAL {lateness} SECONDS")
    taken, late, reached = Counter[int](), 0, None
    for step in steps:
        if isinstance(step, list):
            push(db, "s", *step)
            fitting = [second for second in step if reached is None or second > reached - lateness]
            taken.update(fitting)
            late += len(step) - len(fitting)
            reached = max([*fitting, *([] if reached is None else [reached])], default=None)
        elif isinstance(step, int):
            epoch = db.heartbeat("s", at(step))
            assert (epoch is None) == (reached is not None and step <= reached)
            reached = step if reached is None else max(reached, step)
        elif step == "maintain":
            db.maintain()
        else:
            db.close()
            db = connect_inline(path, clock=clock, settings=QUIET)
        assert Counter(values(db.sql("SELECT n FROM s"))) == taken
        assert len(quarantined(db, "s")) == late
        assert db.streams()[0].clock == (None if reached is None else at(reached))
    db.close()


def test_the_reason_names_lateness(db: Database) -> None:
    create(db, "s", "LATENESS INTERVAL 5 SECONDS")
    push(db, "s", 20)
    push(db, "s", 15, 16)
    assert quarantined(db, "s") == ["at: not after 2023-11-14 12:00:15+00:00 (the stream's clock less LATENESS)"]
    assert values(db.sql("SELECT n FROM s")) == [20, 16]


def test_lateness_is_changed(db: Database) -> None:
    create(db, "s", "LATENESS INTERVAL 5 SECONDS")
    push(db, "s", 20)
    said = db.sql("ALTER STREAM s SET LATENESS UNBOUNDED").message
    assert said == "stream s takes tuples however late they are"
    push(db, "s", 1)
    said = db.sql("ALTER STREAM s SET LATENESS INTERVAL 10 SECONDS").message
    assert said == "stream s takes tuples less than 10 seconds late"
    push(db, "s", 10, 11)
    assert values(db.sql("SELECT n FROM s")) == [20, 1, 11]
    assert [stream.lateness_us for stream in db.streams()] == [10 * SECOND_US]


class Overtaking(InlinePipeline):
    """While a batch is looked at, the stream's clock is moved."""

    def __init__(self) -> None:
        super().__init__()
        self.db: Database | None = None
        self.beats: list[int] = []

    def run_pushed(self, task: EpochTask, files: Sequence[Path]) -> list[Manifest]:
        manifests = super().run_pushed(task, files)
        if self.db is not None and self.beats:
            self.db.heartbeat("s", at(self.beats.pop(0)))
        return manifests


def test_a_clock_that_moves_while_a_batch_is_looked_at(tmp_path: Path, clock: ManualClock) -> None:
    """Another source, or a heartbeat, was faster: what is late by then is late, and nothing is taken in twice."""
    pipeline = Overtaking()
    with Database(tmp_path / "w", pipeline=pipeline, read_only=False, clock=clock, settings=QUIET) as db:
        create(db, "s", "LATENESS INTERVAL 5 SECONDS")
        pipeline.db, pipeline.beats = db, [10, 20]
        push(db, "s", 3, 12, 30)
        assert values(db.sql("SELECT n FROM s")) == [30]
        assert len(quarantined(db, "s")) == 2
        pipeline.beats = [32]
        push(db, "s", 31)
        assert values(db.sql("SELECT n FROM s")) == [30, 31]
        assert db.catalog.streams["s"].epochs == 2


# -- heartbeats --


def test_windows_and_retention_follow_heartbeats(db: Database, clock: ManualClock) -> None:
    create(db, "s", "RETAIN INTERVAL 1 MINUTE")
    query = db.register("SELECT n FROM s [RANGE 10 SECONDS]", name="q", materialize="complete")
    behind = db.register("SELECT n FROM s BEGIN NOW - INTERVAL 20 SECONDS END NOW - INTERVAL 10 SECONDS", name="b")
    push(db, "s", 1, 2)
    assert values(query.invoke()) == [1, 2]
    epoch = db.heartbeat("s", at(11))
    assert epoch == 2
    assert (values(query.invoke()), query.invoke().now) == ([2], at(11))
    assert values(behind.invoke()) == [1]
    assert db.heartbeat("s", at(11)) is None
    assert db.heartbeat("s", at(5).isoformat()) is None
    assert db.catalog.epoch == 2
    db.heartbeat("s", at(61))
    assert values(db.sql("SELECT n FROM s")) == [2]
    db.heartbeat("s", at(90))
    db.maintain()
    assert (values(db.sql("SELECT n FROM s")), db.catalog.streams["s"].files) == ([], ())
    push(db, "s", 29, 91)
    assert values(db.sql("SELECT n FROM s")) == [91]


def test_what_is_beyond_retention_when_the_window_reaches_it_is_not_told(db: Database) -> None:
    create(db, "s", "RETAIN INTERVAL 50 SECONDS")
    query = db.register("SELECT n FROM s BEGIN NOW - INTERVAL 100 SECONDS END NOW - INTERVAL 10 SECONDS", name="q")
    heard = query.subscribe(since=0, relation="istream")
    push(db, "s", 1, 60)
    db.heartbeat("s", at(100))
    assert values(query.invoke()) == [60]
    change = heard.next(0.0)
    assert change is not None
    assert (change.epoch, values(change)) == (2, [60])
    assert heard.next(0.0) is None


def test_a_heartbeat_is_the_first_that_comes(open_db: Open) -> None:
    db = open_db()
    create(db, "s")
    assert db.heartbeat("s", at(5)) == 1
    assert db.sql("SELECT n FROM s [RANGE 1 SECOND]").now == at(5)
    db.close()
    db = open_db()
    assert db.streams()[0].clock == at(5)
    push(db, "s", 2)
    assert db.sql("SELECT n FROM s [RANGE 10 SECOND]").now == at(5)


def test_heartbeats_in_sql(db: Database) -> None:
    create(db, "s")
    said = db.sql("ALTER STREAM s ADVANCE TO TIMESTAMP '2023-11-14 12:00:05'").message
    assert said == "stream s advanced to 2023-11-14 12:00:05+00:00, epoch 1"
    said = db.sql("ALTER STREAM s ADVANCE TO '2023-11-14 12:00:05'").message
    assert said == "the clock of stream s was there already"
    assert db.sql("DESCRIBE s").message == (
        "Delta table: streams/1/archive\nclock: 2023-11-14 12:00:05+00:00; lateness: unbounded; idle: never"
    )


def test_what_heartbeats_can_not_be(db: Database, clock: ManualClock) -> None:
    create(db, "s", "MAX AHEAD INTERVAL 10 SECONDS")
    db.sql("CREATE STREAM arrivals (n INT)")
    with pytest.raises(LadleError, match="that is after 2023-11-14 22:13:30\\+00:00, the wall clock plus MAX AHEAD"):
        db.heartbeat("s", "2023-11-14 22:13:31")
    assert db.heartbeat("s", "2023-11-14 22:13:30") == 1
    with pytest.raises(Unsupported, match="it takes no heartbeat"):
        db.heartbeat("arrivals", at(1))
    with pytest.raises(UnknownName):
        db.heartbeat("nothing", at(1))
    with pytest.raises(LadleError, match="filled by Ladle alone"):
        db.heartbeat("s.quarantine", at(1))
    with pytest.raises(TypeMismatch, match="years 1 to 9999"):
        db.heartbeat("s", "0001-01-01T00:00:00+01:00")
    assert db.catalog.epoch == 1


def test_what_is_stamped_on_arrival_has_none_of_it(db: Database) -> None:
    schema = StreamSchema((Column("n", TIMESTAMP),))
    for clause in ("LATENESS", "IDLE AFTER"):
        with pytest.raises(Unsupported, match=f"takes no {clause}") as refused:
            db.sql(f"CREATE STREAM a (n INT) {clause} INTERVAL 1 SECOND")
        assert refused.value.position is not None
    with pytest.raises(Unsupported, match="takes no LATENESS"):
        db.create_stream("a", schema, lateness_us=1)
    with pytest.raises(Unsupported, match="takes no IDLE AFTER"):
        db.create_stream("a", schema, idle_after_us=1)
    db.create_stream("a", schema)
    with pytest.raises(Unsupported, match="takes no LATENESS"):
        db.set_lateness("a", 1)
    with pytest.raises(Unsupported, match="takes no IDLE AFTER"):
        db.set_idle_after("a", 1)
    with pytest.raises(Unsupported, match="takes no heartbeat") as refused:
        db.sql("ALTER STREAM a ADVANCE TO TIMESTAMP '2023-11-14 12:00:05'")
    assert refused.value.position is not None


# -- idleness --


def test_an_idle_stream_holds_nobody_back(open_db: Open, clock: ManualClock) -> None:
    db = open_db()
    create(db, "a", f"IDLE AFTER INTERVAL {IDLE_SECONDS} SECONDS")
    create(db, "b")
    query = db.register(
        "SELECT n FROM a [RANGE 5 SECONDS] UNION ALL SELECT n FROM b BEGIN NOW - INTERVAL 5 SECONDS END NOW", name="q"
    )
    heard = query.subscribe(since=0, relation="istream")
    push(db, "a", 1)
    push(db, "b", 10)
    assert (query.invoke().now, values(query.invoke())) == (at(1), [1])
    clock.advance((IDLE_SECONDS - 1) * SECOND_US)
    db.maintain()
    assert not db.streams()[0].idle
    clock.advance(SECOND_US)
    db.maintain()
    assert [stream.idle for stream in db.streams()] == [True, False]
    assert (query.invoke().now, values(query.invoke())) == (at(10), [10])
    db.maintain()
    assert db.catalog.epoch == 3
    told = []
    while (change := heard.next(0.0)) is not None:
        told.append((change.epoch, change.now, values(change)))
    assert told == [(1, at(1), [1]), (3, at(10), [10])]
    assert db.sql("SHOW STREAMS").to_pylist()[0]["idle"] == "after 30 seconds; idle since epoch 3"
    assert [stream.idle for stream in db.status().streams] == [True, False]
    push(db, "a", 3)
    push(db, "b", 20)
    assert not db.streams()[0].idle
    assert query.invoke().now == at(10)
    db.close()
    clock.advance(10 * IDLE_SECONDS * SECOND_US)
    db = open_db()
    db.maintain()
    assert not db.streams()[0].idle, "while nobody has it open, nothing can come"
    db.heartbeat("a", at(15))
    assert query_now(db) == at(15)
    clock.advance(IDLE_SECONDS * SECOND_US)
    db.maintain()
    assert query_now(db) == at(20)
    db.sql("ALTER STREAM a SET IDLE NEVER")
    db.heartbeat("a", at(16))
    clock.advance(IDLE_SECONDS * SECOND_US)
    db.maintain()
    assert not db.streams()[0].idle
    db.sql("ALTER STREAM a SET IDLE AFTER INTERVAL 1 SECOND")
    db.maintain()
    assert db.streams()[0].idle


def query_now(db: Database) -> Any:
    return db.invoke("q").now


def test_a_stream_whose_pushes_wait_is_not_idle(db: Database, clock: ManualClock) -> None:
    create(db, "s", "IDLE AFTER INTERVAL 1 SECOND")
    push(db, "s", 1)
    db.receive("s", [{"n": 2, "at": at(2)}])
    clock.advance(SECOND_US)
    db.maintain()
    assert not db.streams()[0].idle
    push(db, "s", 3)
    clock.advance(SECOND_US)
    db.maintain()
    assert db.streams()[0].idle


def test_what_can_not_be_remembered_does_not_become_idle(db: Database, clock: ManualClock) -> None:
    create(db, "s", "IDLE AFTER INTERVAL 1 SECOND")
    push(db, "s", 1)
    clock.advance(SECOND_US)
    with patch("ladle.ingest.clocks.may_become_idle", return_value=False):
        db.maintain()
    assert not db.streams()[0].idle
    assert "These streams stay active: s." in db.status().problems["idleness"]
    db.maintain()
    assert db.streams()[0].idle
    assert "idleness" not in db.status().problems


# -- all together --


@dataclass
class Model:
    """What came, step by step, and what follows from it."""

    history: History = field(default_factory=History)
    rows: dict[str, list[tuple[int, int, int]]] = field(default_factory=dict)
    """By stream: (epoch, second, number)."""

    def push(self, epoch: int, stream: str, second: int, number: int) -> None:
        self.rows.setdefault(stream, []).append((epoch, second, number))
        self.history.add({stream: to_us(at(second))})

    def now(self, streams: str, epoch: int) -> int | None:
        """In seconds."""
        now_us = self.history.now(streams, epoch)
        return None if now_us is None else (now_us - to_us(START)) // SECOND_US

    def answer(self, streams: str, epoch: int, begin: int, end: int, retain: int | None) -> Counter[int]:
        now, found = self.now(streams, epoch), Counter[int]()
        for stream in streams if now is not None else "":
            clock = self.history.entries[epoch].get(stream)
            floor = -100 if retain is None or clock is None else (clock[0] - to_us(START)) // SECOND_US - retain
            for came, second, number in self.rows.get(stream, ()):
                if came <= epoch and max(now - begin, floor) < second <= now - end:
                    found[number] += 1
        return found


KINDS = ("push", "push", "push", "heartbeat", "heartbeat", "silence", "silence", "reopen")


# A failure is printed as found: to shrink it takes minutes.
@settings(max_examples=10, phases=(Phase.generate,))
@given(
    seed=st.integers(0, 1 << 32),
    wanted=st.sampled_from(["a", "ab", "bc", "abc"]),
    length=st.integers(3, 8),
    end=st.integers(0, 4),
    retain=st.sampled_from([None, None, 6, 12]),
    mode=st.sampled_from(["none", "partial", "complete"]),
)
def test_answers_and_changes(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    wanted: str,
    length: int,
    end: int,
    retain: int | None,
    mode: str,
) -> None:
    """Every answer, and what every epoch adds to it, told at once and told again from each epoch on."""
    rng, begin = random.Random(seed), end + length
    window = f"BEGIN NOW - INTERVAL {begin} SECONDS END NOW - INTERVAL {end} SECONDS"
    text = " UNION ALL ".join(f"SELECT n FROM {name} {window}" for name in wanted)
    path, clock, model = tmp_path_factory.mktemp("clocks") / "w", ManualClock(), Model()
    limits = {**QUIET, "checkpoint_entries": 2, "segment_rows_max": 2, "compact_files_min": 2, "grace_seconds": 0.0}
    db = connect_inline(path, clock=clock, settings=limits)
    kept = "" if retain is None else f"RETAIN INTERVAL {retain} SECONDS"
    for name in "abc":
        create(db, name, f"IDLE AFTER INTERVAL {IDLE_SECONDS} SECONDS {kept}")
    db.register(text, name="q", materialize=mode)
    answers, first = [Counter[int]()], 0
    forgotten: list[int | None] = [None] * len(wanted)
    for number in range(20):
        epoch, kind, stream = db.catalog.epoch + 1, rng.choice(KINDS), rng.choice("aabbc")
        second = max(0, number // 2 + rng.randint(-4, 3))
        if kind == "push":
            floor = db.catalog.streams[stream].floor_us(clock.now_us())
            if floor is None or to_us(at(second)) > floor:
                db.push(stream, [{"n": number, "at": at(second)}], wait=True)
                model.push(epoch, stream, second, number)
        elif kind == "heartbeat":
            if db.heartbeat(stream, at(second)) is not None:
                model.history.add({stream: to_us(at(second))})
        elif kind == "silence":
            clock.advance(IDLE_SECONDS * SECOND_US // 2)
            db.maintain()
            for name in "abc":
                if db.catalog.streams[name].idle_since >= epoch:
                    model.history.idle(name)
        else:
            db.close()
            db = connect_inline(path, clock=clock, settings=limits)
        for each in range(len(answers), db.catalog.epoch + 1):
            answers.append(model.answer(wanted, each, begin, end, retain))
        assert len(model.history.entries) == db.catalog.epoch + 1
        answer, now = db.invoke("q"), model.now(wanted, db.catalog.epoch)
        assert answer.now == (at(now) if now is not None else answer.now)
        assert Counter(values(answer)) == answers[-1]
        # A row that came into the answer after its own epoch, and that retention let go of since, is not told again.
        removed = [db.catalog.streams[name].lost_us for name in wanted]
        forgotten, first = removed, db.catalog.epoch if removed != forgotten else first
    for since in range(first, db.catalog.epoch + 1):
        told = [each for each in db.changes("q", since=since, options=INSERTIONS) if not each.progress]
        expected = {
            epoch: answers[epoch] - answers[epoch - 1]
            for epoch in range(since + 1, len(answers))
            if answers[epoch] - answers[epoch - 1]
        }
        assert {each.epoch: Counter(values(each)) for each in told} == expected
        assert all(to_us(each.now) == model.history.now(wanted, each.epoch) for each in told)
    db.close()


def test_a_now_that_is_not_known_any_more_is_gone(db: Database, clock: ManualClock) -> None:
    """A stream remembers so many activations; what a subscriber missed before them is refused, and not guessed."""
    for name in "ab":
        create(db, name, f"IDLE AFTER INTERVAL {IDLE_SECONDS} SECONDS")
    both = " UNION ALL ".join(f"SELECT n FROM {name} [RANGE 3 SECONDS]" for name in "ab")
    query, alone = db.register(both, name="q"), db.register("SELECT n FROM b [RANGE 3 SECONDS]", name="alone")
    with patch.object(catalog_now, "ACTIVATIONS_MAX", 1):
        for second in (10, 20, 30):
            push(db, "a", second)
            push(db, "b", second - 5)
            clock.advance(IDLE_SECONDS * SECOND_US)
            db.maintain()
    first = db.catalog.streams["b"].now_from
    assert first > 0
    newest = push(db, "a", 40)
    with pytest.raises(Gone, match="'b' was idle so often") as gone:
        query.subscribe(since=first - 1).next(0.0)
    assert gone.value.hint is not None
    assert f"since={first}" in gone.value.hint
    change = query.subscribe(since=first).next(0.0)
    assert change is not None
    assert (change.epoch, values(change)) == (newest, [40])
    assert alone.subscribe(since=0).next(0.0) is not None
