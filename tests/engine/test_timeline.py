"""The durable timeline. Method: every tuple carries the number of tuples pushed before it, so that what files, entries
and positions say of ids and clocks is compared with a list that the test keeps.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import timedelta
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.archive.reading import read_file
from tests.engine.conftest import Open
from tests.engine.rows import START, TICKS, at, ticks

from ladle.backup.copying import restore
from ladle.backup.verifying import is_damaged
from ladle.catalog import Record, StreamState, Timeline
from ladle.catalog import timeline as timelines
from ladle.catalog.timeline import NOTHING
from ladle.clock import ManualClock
from ladle.engine import Database, Query
from ladle.errors import Gone
from ladle.testing.inline import connect_inline

pytestmark = pytest.mark.not_at_one_row("test_changes.py asks the same of residuals there")


def ids_on_disk(db: Database, stream: StreamState) -> list[tuple[int, int]]:
    """Of each retained tuple its id, by the files' first ids, and the number that it carries."""
    found = []
    directory = db.path / "streams" / str(stream.id) / "archive"
    for file in stream.files:
        rows = pa.concat_tables(read_file(directory, file, ["n"], stream.schema.arrow))
        found += list(enumerate(rows.column("n").to_pylist(), file.first_id))
    return found


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=15)
def test_files_know_their_first_tuple(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """In epochs, after compaction, retention and restarts; late tuples make retention leave gaps in the middle."""
    rng = random.Random(seed)
    path = tmp_path_factory.mktemp("w") / "warehouse"
    tuning = {
        "compact_files_min": rng.choice((2, 3)),
        "checkpoint_entries": rng.choice((1, 256)),
        "segment_rows_max": 8,
    }
    db = connect_inline(path, settings=tuning)
    db.sql("CREATE STREAM s (n INT, at TIMESTAMP) TIMESTAMP BY at RETAIN INTERVAL 20 SECONDS")
    pushed = 0
    for second in range(0, rng.randint(10, 60), 4):
        late = rng.choice((0, 0, 0, 18))
        rows = [{"n": pushed + i, "at": START + timedelta(seconds=second - late)} for i in range(rng.randint(1, 4))]
        db.push("s", rows, wait=True)
        stream = db.catalog.streams["s"]
        pushed = stream.rows  # what came too late is in the quarantine
        if rng.random() < 0.5:
            db.maintain()
        if rng.random() < 0.2:
            db.close()
            db = connect_inline(path, settings=tuning)
    for id_, number in ids_on_disk(db, db.catalog.streams["s"]):
        assert id_ == number
    db.close()


# -- the timeline itself --


@given(
    gaps=st.lists(st.tuples(st.integers(1, 3), st.integers(0, 2), st.integers(0, 1 << 40)), max_size=60),
    prunes=st.lists(st.integers(0, 120), max_size=3),
    size=st.integers(1, 9),
)
def test_a_timeline_is_a_list_of_records(gaps: list[tuple[int, int, int]], prunes: list[int], size: int) -> None:
    """Against a list: looked up by entry and by epoch, pruned, through JSON, and the old one stays as it was."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timelines, "CHUNK_RECORDS", size)
        timeline, records = Timeline(), [NOTHING]
        for number, (entries_later, epochs_later, value) in enumerate(gaps):
            entry, epoch = records[-1].entry + entries_later, records[-1].epoch + epochs_later
            record = Record(entry, epoch, value, None if number < 3 else value - (1 << 39), value)
            before = list(timeline)
            following = timeline.appended(record)
            assert list(timeline) == before
            timeline = following
            records.append(record)
        for prune in [None, *prunes]:
            if prune is not None:
                base = [record for record in records if record.entry <= prune][-1:] or records[:1]
                records = [*base, *(record for record in records if record.entry > base[0].entry)]
                timeline = timeline.pruned(prune)
            timeline = Timeline.from_json(json.loads(json.dumps(timeline.to_json())))
            assert timeline.base == records[0]
            assert list(timeline) == records[1:]
            for at in range(records[0].entry, records[-1].entry + 2):
                assert timeline.at(at) == [record for record in records if record.entry <= at][-1]
                assert list(timeline.after(at)) == [record for record in records[1:] if record.entry > at]
            for epoch in range(records[0].epoch, records[-1].epoch + 2):
                assert timeline.at_epoch(epoch) == [record for record in records if record.epoch <= epoch][-1]


# -- positions that are no longer promised --


def told(query: Query, since: int) -> list[tuple[int, Counter[str]]]:
    """What a subscriber hears that knows everything up to an epoch, until there is no more."""
    with query.subscribe(since=since, relation="istream") as changes:
        return [(change.epoch, bag(change.inserted)) for change in iter(lambda: changes.next(0.0), None)]


def bag(table: pa.Table) -> Counter[str]:
    return Counter(map(repr, table.to_pylist()))


def test_positions_are_promised_for_a_time(open_db: Open, clock: ManualClock) -> None:
    db = open_db(positions_seconds_max=100.0)
    db.sql(TICKS)
    db.sql("CREATE TABLE names (n INT)")
    queries = [db.register("SELECT n FROM ticks", name="q"), db.register("SELECT n FROM names", name="t")]
    epochs = []
    for second in range(4):
        epochs.append(db.push("ticks", ticks([second]), wait=True) or 0)
        db.sql(f"INSERT INTO names VALUES ({second})")
        db.sql(f"UPDATE names SET n = {second}")
        clock.advance(40_000_000)
    heard = [told(query, 0) for query in queries]
    db.maintain()
    first = db.catalog.streams["ticks"].timeline.base.epoch
    assert first in epochs[1:3]
    for query, all_ in zip(queries, heard, strict=True):
        with pytest.raises(Gone, match="Epochs up to") as gone:
            told(query, 0)
        since = int(str(gone.value).partition("since=")[2].partition(",")[0])
        assert since >= first
        assert told(query, since) == [change for change in all_ if change[0] > since]
    (table,) = db.catalog.tables.values()
    db.maintain()
    assert {path.name for path in db.path.glob("tables/*/*")} == {file.name for file in table.files}
    db.close()
    db = open_db(read_only=True)
    assert told(db.query("t"), since) == [change for change in heard[1] if change[0] > since]
    with pytest.raises(Gone, match="need versions of table 'names' that are no longer kept"):
        told(db.query("t"), 0)


@pytest.mark.parametrize("kept", [1, 3, 15, 16])
def test_a_table_keeps_so_many_versions(open_db: Open, kept: int) -> None:
    db = open_db(table_versions_max=kept)
    db.sql("CREATE TABLE t (n INT)")
    query = db.register("SELECT n FROM t", name="q")
    for number in range(8):
        db.sql(f"INSERT INTO t VALUES ({number})")
        db.sql("UPDATE t SET n = n + 10 WHERE n % 2 = 0")
    (table,) = db.catalog.tables.values()
    assert len(table.replaced) == kept
    first = db.catalog.epoch - kept
    assert [epoch for epoch, _ in told(query, first)] == list(range(first + 1, db.catalog.epoch + 1))
    if first:
        with pytest.raises(Gone, match=f"Epochs up to {first} need versions of table 't'"):
            told(query, first - 1)
    db.maintain()
    assert {path.name for path in db.path.glob("tables/*/*")} == {file.name for file in table.files}


def test_differences_take_no_more_than_a_table_may(open_db: Open) -> None:
    db = open_db(table_bytes_max=4_000)
    db.sql("CREATE TABLE t (n INT, s STRING)")
    db.insert("t", [{"n": number, "s": "x"} for number in range(100)])
    for number in range(12):
        db.sql(f"UPDATE t SET s = 'v{number}' WHERE n < 5")
    (table,) = db.catalog.tables.values()
    assert 0 < len(table.replaced) < 12
    assert sum(each.difference.bytes for each in table.replaced if each.difference is not None) <= 4_000


def test_a_damaged_version_can_be_deleted_and_not_gone_on_from(open_db: Open) -> None:
    db = open_db()
    db.sql("CREATE TABLE t (n INT)")
    query = db.register("SELECT n FROM t", name="q")
    db.sql("INSERT INTO t VALUES (1), (2)")
    since = db.catalog.epoch
    (path,) = db.path.glob("tables/*/*")
    db._store.cache.drop(path.name)
    path.write_bytes(path.read_bytes()[:-9])
    db.sql("DELETE FROM t")
    db.sql("INSERT INTO t VALUES (3)")
    with pytest.raises(Gone, match="need versions of table 't' that are no longer kept"):
        told(query, since)
    assert told(query, since + 1) == [(since + 2, Counter(["{'n': 3}"]))]


# -- what subscribers are told --

_QUERIES = (
    "SELECT n, k FROM s WHERE n % 3 > 0 BEGIN NOW - INTERVAL 9 SECONDS END NOW",
    "SELECT k, v FROM t WHERE v > 1",
    "SELECT count(*) AS c, sum(v) AS u FROM t",
    "SELECT s.n, t.v FROM s [RANGE 9 SECONDS] s JOIN t ON s.k = t.k",
    "SELECT t.k, count(s.n) AS c FROM t LEFT JOIN s [ROWS 5] s ON s.k = t.k GROUP BY t.k",
    "SELECT a.n, t.v FROM a [RANGE 30 SECONDS] a JOIN t ON a.n = t.k",
    "SELECT n FROM s [ROWS 4] WHERE k IN (SELECT k FROM t)",
)


def _change(rng: random.Random) -> str:
    where = rng.choice(("", f" WHERE k = {rng.randint(0, 4)}", f" WHERE v < {rng.randint(0, 4)}"))
    match rng.choice(("insert", "insert", "update", "delete")):
        case "insert":
            rows = [f"({rng.randint(0, 4)}, {rng.choice(('NULL', *range(5)))})" for _ in range(rng.randint(1, 3))]
            return f"INSERT INTO t VALUES {', '.join(rows)}"
        case "update":
            return f"UPDATE t SET {rng.choice(('v = v + 1', 'k = v, v = k', 'v = v', 'v = NULL'))}{where}"
        case _:
            return f"DELETE FROM t{where}"


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=5, deadline=None)
def test_what_is_told_is_what_came_entry_by_entry(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """Late tuples, table changes, compaction, restarts, clean-up and backups, against the answers after each step."""
    rng = random.Random(seed)
    path, clock = tmp_path_factory.mktemp("w") / "warehouse", ManualClock()
    tuning = {
        "compact_files_min": rng.choice((2, 3)),
        "checkpoint_entries": rng.choice((1, 256)),
        "maintenance_seconds": 3_600.0,
        "grace_seconds": 0.0,
    }
    db = connect_inline(path, clock=clock, settings=tuning)
    db.sql("CREATE STREAM s (n INT, k INT, at TIMESTAMP) TIMESTAMP BY at")
    db.sql("CREATE STREAM a (n INT)")
    db.sql("CREATE TABLE t (k INT, v INT)")
    names = [db.register(text, name=f"q{number}").name for number, text in enumerate(_QUERIES)]
    answers = [(0, [bag(db.invoke(name).table) for name in names])]
    number = 0
    for step in range(rng.randint(3, 16)):
        epoch = db.catalog.epoch
        match rng.choice(("push", "push", "stamped", "table", "table", "maintain", "restart")):
            case "push":
                late = [max(step * 2 - rng.choice((0, 0, 1, 5, 12)), 0) for _ in range(rng.randint(1, 5))]
                rows = [{"n": number + i, "k": rng.randint(0, 4), "at": at(second)} for i, second in enumerate(late)]
                number += len(rows)
                db.push("s", rows, wait=True)
            case "stamped":
                clock.advance(rng.randint(1, 20) * 1_000_000)
                db.push("a", [{"n": rng.randint(0, 4)}], wait=True)
            case "table":
                db.sql(_change(rng))
            case "maintain":
                db.maintain()
            case "restart":
                db.close()
                db = connect_inline(path, clock=clock, settings=tuning)
        if db.catalog.epoch > epoch:
            answers.append((db.catalog.epoch, [bag(db.invoke(name).table) for name in names]))
    for place, name in enumerate(names):
        since = rng.choice([epoch for epoch, _ in answers])
        expected = [
            (epoch, after[place] - before[place])
            for (_, before), (epoch, after) in pairwise(answers)
            if epoch > since and after[place] - before[place]
        ]
        assert told(db.query(name), since) == expected, (_QUERIES[place], since)
    assert not is_damaged(db.verify())
    db.backup(path.parent / "backup")
    restore(path.parent / "backup", path.parent / "restored")
    with connect_inline(path.parent / "restored", clock=clock, settings=tuning, read_only=True) as restored:
        assert [told(restored.query(name), 0) for name in names] == [told(db.query(name), 0) for name in names]
    db.close()
