"""Subscriptions: the new rows of each epoch, in order, none missed and none twice."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.conftest import Open
from tests.engine.rows import START, TICKS, ticks, values

from ladle.clock import ManualClock
from ladle.delta import ChangeOptions, Delta
from ladle.engine import Database, Query
from ladle.errors import EvaluationError, Gone, UnknownName, Unsupported
from ladle.testing.inline import connect_inline
from ladle.testing.one_row import at_one_row


def told(query: Query, since: int) -> list[tuple[int, list[Any]]]:
    """What a subscriber hears that knows everything up to an epoch, until there is no more."""
    with query.subscribe(since=since, relation="istream") as changes:
        found = []
        while (change := changes.next(0.0)) is not None:
            found.append((change.epoch, values(change)))
        return found


def test_each_epoch_adds_its_rows(db: Database) -> None:
    db.sql(TICKS)
    query = db.register("SELECT n FROM ticks WHERE n % 2 = 0", name="even")
    first = db.push("ticks", ticks([0, 1, 2]), wait=True)
    db.push("ticks", ticks([3]), wait=True)
    last = db.push("ticks", ticks([4, 5]), wait=True)
    assert told(query, 0) == [(first, [0, 2]), (last, [4])]
    assert told(query, first or 0) == [(last, [4])]
    assert told(query, last or 0) == []


def test_from_now_on_and_after_a_restart(open_db: Open) -> None:
    db = open_db()
    db.sql(TICKS)
    db.push("ticks", ticks([1]), wait=True)
    query = db.register("SELECT n FROM ticks", name="q")
    changes = query.subscribe()
    assert changes.next(0.0) is None
    db.push("ticks", ticks([2]), wait=True)
    heard = changes.next(0.0)
    assert heard is not None
    assert values(heard) == [2]
    db.push("ticks", ticks([3]), wait=True)
    db.close()
    db = open_db()
    assert [rows for _, rows in told(db.query("q"), changes.epoch)] == [[3]]


def test_what_is_printed_of_a_subscription_is_short(db: Database) -> None:
    db.sql(TICKS)
    changes = db.register("SELECT n FROM ticks", name="q").subscribe()
    assert repr(changes) == f"<Subscription to 'q', position {changes.position}>"
    epoch = db.push("ticks", ticks([1, 2]), wait=True)
    delta = changes.next(0.0)
    assert delta is not None
    assert delta.now is not None
    now = delta.now.isoformat()
    told = f"<Delta: 2 inserted, 0 retracted, epoch {epoch}, now {now}, position {delta.position}>"
    assert repr(delta) == told
    changes.close()
    assert repr(changes).endswith(", closed>")


def test_compaction_changes_nothing_of_it(open_db: Open) -> None:
    db = open_db(compact_files_min=2)
    db.sql(TICKS)
    query = db.register("SELECT n FROM ticks WHERE n <> 3 BEGIN NOW - INTERVAL 4 SECONDS END NOW", name="q")
    for second in range(9):
        db.push("ticks", ticks([second, second - 3 if second > 5 else second]), wait=True)
    before = told(query, 0)
    assert len(before) > 6
    files = len(db.catalog.streams["ticks"].files)
    while True:
        db.maintain()
        if len(db.catalog.streams["ticks"].files) == files:
            break
        files = len(db.catalog.streams["ticks"].files)
    assert files < 9
    for since in range(db.catalog.epoch + 1):
        assert told(query, since) == [change for change in before if change[0] > since]


def test_rows_that_a_moving_end_lets_in(db: Database) -> None:
    """With an end before NOW a tuple counts epochs after it came."""
    db.sql(TICKS)
    query = db.register("SELECT n FROM ticks BEGIN NOW - INTERVAL 10 SECONDS END NOW - INTERVAL 2 SECONDS", name="q")
    for second in range(6):
        db.push("ticks", ticks([second]), wait=True)
    assert [rows for _, rows in told(query, 0)] == [[0], [1], [2], [3]]


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=25)
def test_the_sum_of_changes_is_the_difference_of_answers(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """Rows in an answer that were not in the one before: for windows of all kinds, with late tuples and compaction."""
    rng = random.Random(seed)
    windows = [
        "",
        "BEGIN NOW - INTERVAL 5 SECONDS END NOW",
        "BEGIN NOW - INTERVAL 20 SECONDS END NOW - INTERVAL 4 SECONDS",
        f"BEGIN TIMESTAMP '{START + timedelta(seconds=6):%Y-%m-%d %H:%M:%S}' END NOW",
        f"BEGIN TIMESTAMP '{START:%Y-%m-%d %H:%M:%S}' END TIMESTAMP '{START + timedelta(seconds=9):%Y-%m-%d %H:%M:%S}'",
    ]
    compact = {"compact_files_min": rng.choice((2, 3, 100))}
    with connect_inline(tmp_path_factory.mktemp("w") / "warehouse", settings=compact) as db:
        db.sql("CREATE STREAM ticks (id INT, n INT, at TIMESTAMP) TIMESTAMP BY at")
        queries = [
            db.register(f"SELECT id FROM ticks WHERE n < 7 {window}", name=f"q{i}") for i, window in enumerate(windows)
        ]
        queries.append(db.register(f"SELECT id FROM ticks [ROWS {rng.randint(1, 8)}] WHERE n < 7", name="rows"))
        answers: list[dict[str, set[Any]]] = [{query.name: set() for query in queries}]
        epochs = [0]
        number = 0
        for step in range(rng.randint(1, 8)):
            rows = []
            for _ in range(rng.randint(1, 6)):
                second = max(step * 3 - rng.choice((0, 0, 0, 1, 5, 12)), 0)
                rows.append({"id": number, "n": rng.randint(0, 9), "at": START + timedelta(seconds=second)})
                number += 1
            epochs.append(db.push("ticks", rows, wait=True) or 0)
            answers.append({query.name: set(values(query.invoke())) for query in queries})
            if rng.random() < 0.3:
                db.maintain()
        for query in queries:
            since = rng.choice([0, *epochs])
            expected = [
                (epoch, sorted(after[query.name] - before[query.name]))
                for epoch, before, after in zip(epochs[1:], answers, answers[1:], strict=False)
                if epoch > since and after[query.name] - before[query.name]
            ]
            assert [(epoch, sorted(rows)) for epoch, rows in told(query, since)] == expected, query.sql


def test_a_subscriber_waits_and_a_slow_one_slows_nobody(db: Database) -> None:
    db.sql(TICKS)
    query = db.register("SELECT n FROM ticks", name="q")
    heard: list[int] = []
    fast, slow = query.subscribe(), query.subscribe()

    def listen() -> None:
        for change in fast:
            heard.extend(values(change))

    thread = threading.Thread(target=listen)
    thread.start()
    for second in range(5):
        begin = time.monotonic()
        db.push("ticks", ticks([second]), wait=True)
        while len(heard) <= second:
            assert time.monotonic() - begin < 5
            time.sleep(0.001)
    fast.close()
    thread.join(5)
    assert not thread.is_alive()
    assert heard == [0, 1, 2, 3, 4]
    assert [values(change) for change in iter(lambda: slow.next(0.0), None)] == [[0], [1], [2], [3], [4]]


def test_one_that_was_away_is_told_everything_in_few_steps(open_db: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    db = open_db(compact_files_min=4)
    db.sql(TICKS)
    picked = db.register("SELECT n FROM ticks", name="picked")
    counted = db.register("SELECT count(*) AS n FROM ticks [ROWS 1000]", name="counted")
    epochs = at_one_row(3, 150)
    for second in range(epochs):
        db.push("ticks", ticks([second]), wait=True)
    db.maintain()
    steps: list[int] = []
    step = db.changes

    def counting(
        name: str, *, since: int | str | None = None, seconds: float = 0.0, options: ChangeOptions | None = None
    ) -> list[Delta]:
        deltas = step(name, since=since, seconds=seconds, options=options)
        steps.append(len(deltas))
        return deltas

    monkeypatch.setattr(db, "changes", counting)
    assert [rows for _, rows in told(picked, 0)] == [[second] for second in range(epochs)]
    assert [rows for _, rows in told(counted, 0)] == [[second + 1] for second in range(epochs)]
    assert len(steps) <= 2 * (2 + epochs // 64)


def test_an_epoch_counts_as_told_when_it_is_handed_out(db: Database) -> None:
    """Whoever stops in the middle of what was told at once goes on from there."""
    db.sql(TICKS)
    query = db.register("SELECT n FROM ticks", name="q")
    epochs = [db.push("ticks", ticks([second]), wait=True) or 0 for second in range(3)]
    changes = query.subscribe(since=0)
    assert changes.epoch == 0
    for epoch in epochs[:2]:
        assert changes.next(0.0) is not None
        assert changes.epoch == epoch
    assert told(query, changes.epoch) == [(epochs[2], [2])]


def test_what_retention_took_is_said(open_db: Open, clock: ManualClock) -> None:
    db = open_db()
    db.sql(TICKS + " RETAIN INTERVAL 10 SECONDS")
    query = db.register("SELECT n FROM ticks", name="q")
    first = db.push("ticks", ticks([0]), wait=True) or 0
    last = db.push("ticks", ticks([100]), wait=True) or 0
    db.maintain()
    assert len(db.catalog.streams["ticks"].files) == 1
    for since in (0, first):
        with pytest.raises(Gone, match=f"Epochs up to {last} of stream 'ticks' are beyond") as gone:
            told(query, since)
        assert "snapshot=True" in str(gone.value)
    assert told(query, last) == []
    db.close()
    db = open_db()
    with pytest.raises(Gone):
        told(db.query("q"), 0)


def test_a_reader_in_another_process_hears_too(open_db: Open) -> None:
    db = open_db()
    db.sql(TICKS)
    db.register("SELECT n FROM ticks", name="q")
    with connect_inline(db.path, read_only=True) as reader, reader.query("q").subscribe() as changes:
        assert changes.next(0.0) is None
        db.push("ticks", ticks([7]), wait=True)
        change = changes.next(5.0)
        assert change is not None
        assert values(change) == [7]


def test_a_tuple_that_a_query_fails_at_stops_nobody_for_good(db: Database) -> None:
    """While there is no answer that is an error; after it the difference is told in one."""
    db.sql(TICKS)
    query = db.register("SELECT 10 / n AS x FROM ticks [RANGE 3 SECONDS]", name="q")
    db.push("ticks", [{"n": 1, "at": START}], wait=True)
    heard = {relation: query.subscribe(relation=relation) for relation in ("changes", "rstream")}
    db.push("ticks", [{"n": 2, "at": START + timedelta(seconds=1)}], wait=True)
    db.push("ticks", [{"n": 0, "at": START + timedelta(seconds=2)}], wait=True)
    for each in heard.values():
        with pytest.raises(EvaluationError, match="Division by zero"):
            list(iter(lambda heard=each: heard.next(0.0), None))  # type: ignore[misc]
    db.push("ticks", [{"n": 5, "at": START + timedelta(seconds=3)}], wait=True)
    db.push("ticks", [{"n": 4, "at": START + timedelta(seconds=9)}], wait=True)
    for relation, gone in (("changes", [5.0, 10.0]), ("rstream", [])):
        told: list[Delta] = list(iter(lambda each=heard[relation]: each.next(0.0), None))  # type: ignore[misc]
        assert told[-1].inserted.column("x").to_pylist() == [2.5]
        assert told[-1].net
        assert sorted(x for delta in told for x in delta.retracted.column("x").to_pylist()) == gone
    assert query.subscribe(since=heard["changes"].position).next(0.0) is None


def test_what_can_not_be_subscribed_to(db: Database) -> None:
    db.sql(TICKS)
    db.register("SELECT count(*) AS c FROM ticks", name="counted")
    with pytest.raises(Unsupported, match="goes on for as long as somebody listens"):
        db.sql("SUBSCRIBE counted")
    with pytest.raises(UnknownName, match="counted"):
        db.changes("cuonted", since=0)
    query = db.register("SELECT n FROM ticks", name="q")
    changes = query.subscribe()
    query.unregister()
    with pytest.raises(UnknownName):
        changes.next(0.0)


def test_columns_have_the_names_of_the_query(db: Database) -> None:
    db.sql(TICKS)
    query = db.register("SELECT at AS moment, n AS number FROM ticks WHERE n > 1", name="q")
    db.push("ticks", ticks([1, 2]), wait=True)
    change = query.subscribe(since=0).next(0.0)
    assert change is not None
    assert change.inserted.schema == query.invoke().table.schema
    assert change.retracted.schema == change.inserted.schema
    assert isinstance(change.inserted, pa.Table)


@settings(max_examples=at_one_row(1, 12), deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_what_is_computed_is_told_as_the_difference_of_answers(
    seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Aggregates, expressions and joins of two streams, against the answers that were read at each epoch."""
    rng = random.Random(seed)
    texts = [
        "SELECT count(*) AS c, sum(n) AS s FROM ticks BEGIN NOW - INTERVAL 6 SECONDS END NOW",
        "SELECT n, count(*) AS c FROM ticks [RANGE 9 SECONDS] GROUP BY n HAVING count(*) > 1",
        "SELECT id, n + 1 AS m FROM ticks [RANGE 5 SECONDS] WHERE n < 7",
        f"SELECT max(id) AS m FROM ticks [ROWS {rng.randint(1, 5)}]",
        "SELECT DISTINCT n FROM ticks [RANGE 4 SECONDS]",
        "SELECT a.id, b.id AS o FROM ticks [RANGE 5 SECONDS] a, tocks [RANGE 8 SECONDS] b WHERE a.n = b.n AND a.n < 7",
        "SELECT a.id, b.id AS other FROM ticks [ROWS 4] a, tocks [RANGE 8 SECONDS] b WHERE a.n > b.n - 2 AND a.n < b.n",
        "SELECT count(*) AS c FROM ticks [RANGE 6 SECONDS] a, ticks [RANGE 3 SECONDS] b WHERE a.n = b.n",
    ]
    compact = {"compact_files_min": rng.choice((2, 3, 100))}
    with connect_inline(tmp_path_factory.mktemp("w") / "warehouse", settings=compact) as db:
        for stream in ("ticks", "tocks"):
            db.sql(f"CREATE STREAM {stream} (id INT, n INT, at TIMESTAMP) TIMESTAMP BY at")
        queries = [db.register(text, name=f"q{number}") for number, text in enumerate(texts)]
        answers: list[list[Counter[str]]] = [[bag(query.invoke().table) for query in queries]]
        epochs = [0]
        number = 0
        for step in range(rng.randint(1, 7)):
            rows = []
            for _ in range(rng.randint(1, 6)):
                second = max(step * 2 - rng.choice((0, 0, 0, 1, 5, 12)), 0)
                rows.append({"id": number, "n": rng.randint(0, 9), "at": START + timedelta(seconds=second)})
                number += 1
            epochs.append(db.push(rng.choice(("ticks", "tocks")), rows, wait=True) or 0)
            answers.append([bag(query.invoke().table) for query in queries])
            if rng.random() < 0.3:
                db.maintain()
        for at, query in enumerate(queries):
            since = rng.choice([*epochs])
            expected = [
                (epoch, after[at] - before[at])
                for epoch, before, after in zip(epochs[1:], answers, answers[1:], strict=False)
                if epoch > since and after[at] - before[at]
            ]
            with query.subscribe(since=since, relation="istream") as changes:
                heard = [(change.epoch, bag(change.inserted)) for change in iter(lambda: changes.next(0.0), None)]
            # An answer over nothing, as count(*) has, is no row that an epoch added.
            assert heard == expected, query.sql


def bag(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, table.to_pylist()))


def test_a_callback_hears_everything_once_and_in_order(db: Database) -> None:
    db.sql(TICKS)
    query = db.register("SELECT n FROM ticks", name="q")
    heard: list[int] = []
    done = threading.Event()

    def hear(change: Delta) -> None:
        heard.extend(values(change))
        if heard[-1] == 4:
            done.set()

    with query.subscribe(since=0).call(hear) as listener:
        for second in range(5):
            db.push("ticks", ticks([second]), wait=True)
        assert done.wait(10)
    assert heard == [0, 1, 2, 3, 4]
    assert listener.epoch == db.catalog.epoch


def test_a_callback_that_raises_is_told_again(db: Database) -> None:
    db.sql(TICKS)
    query = db.register("SELECT n FROM ticks", name="q")
    first = db.push("ticks", ticks([1]), wait=True)
    db.push("ticks", ticks([2]), wait=True)

    def hear(change: Delta) -> None:
        if values(change) == [2]:
            raise ValueError("two is too much")

    listener = query.subscribe(since=0).call(hear)
    deadline = time.monotonic() + 10
    while listener.error is None:
        assert time.monotonic() < deadline
        time.sleep(0.001)
    with pytest.raises(ValueError, match="two is too much"):
        listener.stop()
    assert listener.epoch == first
    assert [rows for _, rows in told(query, listener.epoch)] == [[2]]


def test_answers_of_queries_that_are_dropped_are_let_go(db: Database) -> None:
    """Also where room is left: a server is asked for new queries all the time."""
    db.sql(TICKS)
    answers = db._following._recent
    for number in range(200):
        query = db.register("SELECT count(*) AS n FROM ticks", name=f"q{number}")
        with query.subscribe() as changes:
            db.push("ticks", ticks([number]), wait=True)
            assert changes.next(0.0) is not None
        query.unregister()
    assert len(answers._moments) <= len(answers._names) <= 64
    assert len(answers._kept) <= 4 * 64


def test_a_snapshot_that_was_not_handed_out_has_no_position(db: Database) -> None:
    """Who went on from a position without it would miss the rows of the snapshot."""
    db.sql(TICKS)
    query = db.register("SELECT n FROM ticks", name="all")
    db.push("ticks", ticks([1, 2]), wait=True)
    with query.subscribe(snapshot=True) as changes:
        assert changes.position is None
        first = changes.next(0.0)
        assert first is not None
        assert (values(first), changes.position) == ([1, 2], first.position)
    with query.subscribe() as changes:
        assert changes.position is not None, "what comes from now on is all that it tells"
