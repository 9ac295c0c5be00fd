"""Pushes: what may be pushed, what is refused whole, what is sorted out row by row, order, and waiting."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from tests.engine.conftest import Open
from tests.engine.rows import TICKS, at, ticks, values
from tests.waiting import wait_until

from ladle.clock import ManualClock
from ladle.engine import Database
from ladle.errors import Closed, LadleError, PipelineError, TypeMismatch, UnknownName

pytestmark = pytest.mark.not_at_one_row("its queries have no residual")


def quarantine(db: Database, stream: str = "ticks") -> list[tuple[str, str]]:
    rows = db.sql(f"SELECT reason, row FROM {stream}.quarantine").to_pylist()
    return [(str(row["reason"]), str(row["row"])) for row in rows]


def inbox(db: Database) -> list[Path]:
    return sorted((db.path / "streams").glob("*/inbox/*.arrow"))


@pytest.fixture
def asleep(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody takes pushes in unless told."""
    monkeypatch.setattr("ladle.ingest.epochs.Ingest.drain_later", lambda *_: None)


@pytest.mark.parametrize(
    "rows",
    [
        ticks([1, 2]),
        iter(ticks([1, 2])),
        tuple(ticks([1, 2])),
        (row for row in ticks([1, 2])),
        pa.Table.from_pylist(ticks([1, 2])),
        pa.Table.from_pylist(ticks([1, 2])).to_batches()[0],
        pa.Table.from_pylist(ticks([1, 2])).to_reader(),
        pd.DataFrame(ticks([1, 2])),
        pd.DataFrame(ticks([1, 2]))[["at", "n"]].iloc[::1],
        pd.DataFrame(ticks([0, 1, 2])).iloc[1:],
        pd.DataFrame({"n": [1.0, 2.0], "at": ["2023-11-14 12:00:01", "2023-11-14T12:00:02Z"]}),
        [{"N": "1", "AT": "2023-11-14T12:00:01+00:00"}, {"n": np.int64(2), "at": np.datetime64("2023-11-14T12:00:02")}],
        pa.table({"n": pa.array(["1", "2"]).dictionary_encode(), "at": pa.array([at(1), at(2)], pa.timestamp("ns"))}),
    ],
    ids=range(13),
)
def test_what_rows_may_be(db: Database, rows: Any) -> None:
    db.sql(TICKS)
    assert db.push("ticks", rows, wait=True) == 1
    assert db.sql("SELECT * FROM ticks").to_pylist() == ticks([1, 2])
    assert quarantine(db) == []


def test_one_row_alone(db: Database) -> None:
    db.sql(TICKS)
    db.push("ticks", {"n": 1, "at": at(1)}, wait=True)
    db.push("ticks", {"at": at(2)}, wait=True)
    assert values(db.sql("SELECT n FROM ticks")) == [1, None]


@pytest.mark.parametrize("rows", [[], iter(()), pa.Table.from_pylist(ticks([1])).slice(1)])
def test_nothing_is_no_epoch(db: Database, rows: Any) -> None:
    db.sql(TICKS)
    assert db.push("ticks", rows, wait=True) == 0
    assert db.push("ticks", []) is None
    assert inbox(db) == []
    assert db.catalog.epoch == 0


@pytest.mark.parametrize(
    ("rows", "error"),
    [
        (pa.table({"n": [1], "at": [at(1)], "more": [1]}), "more"),
        (pa.table({"n": [1]}), "lack at"),
        (pa.table({"n": [[1]], "at": [at(1)]}), "n"),
        (pa.table({"n": [True], "at": [at(1)]}), "n"),
        (pa.table({"n": [1], "at": [1]}), "at"),
        (pa.table({"n": [1], "at": [at(1)], "_ts": [at(1)]}), "_ts"),
        (pd.DataFrame({"x": [1]}), "x"),
        ([1, 2], "not a dictionary"),
        (["a"], "not a dictionary"),
        ("text", "str"),
        (b"bytes", "bytes"),
        (7, "int"),
        (None, "NoneType"),
    ],
)
def test_what_cannot_fit_is_refused_whole(db: Database, rows: Any, error: str) -> None:
    db.sql(TICKS)
    with pytest.raises(TypeMismatch, match=error):
        db.push("ticks", rows, wait=True)
    assert inbox(db) == []
    assert db.catalog.epoch == 0


def test_arrival_time_is_not_for_pushers_to_say(db: Database) -> None:
    db.sql("CREATE STREAM s (n INT)")
    for name in ("_ts", "_TS"):
        with pytest.raises(TypeMismatch, match=name):
            db.push("s", pa.table({"n": [1], name: [at(1)]}))
    db.push("s", [{"n": 1, "_ts": at(1)}], wait=True)
    assert quarantine(db, "s")[0][0].startswith("unknown column '_ts'")


def test_tuples_are_stamped_when_they_are_pushed(
    open_db: Open, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not when they are taken in, be it after a failure, a restart, or a push that is sent again with its key."""
    db = open_db()
    db.sql("CREATE STREAM s (n INT)")
    stamps = []
    with monkeypatch.context() as patch:
        patch.setattr("ladle.ingest.epochs.Ingest.drain_later", lambda *_: None)
        for number in range(3):
            clock.advance(1_000_000)
            stamps.append(clock.now_us())
            db.push("s", [{"n": number}], key=str(number))
    clock.advance(60_000_000)

    def fails(*_: Any) -> Any:
        raise PipelineError("Spark is away.")

    with monkeypatch.context() as patch:
        patch.setattr(db._pipeline, "run_pushed", fails)
        with pytest.raises(PipelineError):
            db.push("s", [{"n": 1}], key="1", wait=True)
        db.close()
    db = open_db()
    clock.advance(60_000_000)
    db.push("s", [{"n": 2}], key="2", wait=True)
    assert db.sql("SELECT n, unix_micros(ts) AS us FROM s").to_pylist() == [
        {"n": number, "us": stamp} for number, stamp in enumerate(stamps)
    ]
    (stream,) = db.catalog.streams.values()
    assert stream.timeline.at(db.catalog.seq).clock_us == stamps[-1]


def test_rows_that_do_not_fit_are_sorted_out(db: Database) -> None:
    db.sql(TICKS)
    db.push(
        "ticks",
        [
            {"n": 1, "at": at(1)},
            {"n": "x", "at": at(2)},
            {"n": 3, "at": None},
            {"n": 4},
            {"n": 5, "at": "yesterday"},
            {"n": 1 << 40, "at": at(6)},
            {"n": 1.5, "at": at(7)},
            {"n": 8, "at": at(8), "colour": "red"},
            {"n": object(), "at": at(9)},
            {"n": "10", "at": str(at(10))},
        ],
        wait=True,
    )
    assert values(db.sql("SELECT n FROM ticks")) == [1, 10]
    found = quarantine(db)
    assert len(found) == 8
    reasons = [reason for reason, _ in found]
    assert "'x' is not a INT" in reasons[0]
    assert reasons[1] == reasons[2] == "at: the timestamp is NULL"
    assert "yesterday" in reasons[3]
    assert "unknown column 'colour'; columns: n, at" in reasons[6]
    assert '"colour": "red"' in found[6][1]
    assert db.status().streams[0].quarantined == 8


def test_a_batch_of_nothing_but_misfits_is_an_epoch(db: Database) -> None:
    db.sql(TICKS)
    assert db.push("ticks", [{"n": 1}], wait=True) == 1
    assert db.push("ticks", ticks([2]), wait=True) == 2
    assert len(quarantine(db)) == 1


@pytest.mark.parametrize("us", [(1 << 63) - 1, -(1 << 63), -(1 << 62), 1 << 60, -62_135_596_800_000_001])
@pytest.mark.parametrize("ahead", ["", " MAX AHEAD INTERVAL 3000000 DAYS"])
def test_times_that_no_calendar_has(db: Database, us: int, ahead: str) -> None:
    """One such row must neither stop the stream nor become its clock."""
    db.sql(f"CREATE STREAM s (n INT, at TIMESTAMP, other TIMESTAMP) TIMESTAMP BY at{ahead}")
    moments = pa.array([us, 0], pa.int64()).cast(pa.timestamp("us", "UTC"))
    db.push("s", pa.table({"n": [1, 2], "at": moments, "other": moments.take(pa.array([1, 0]))}), wait=True)
    assert values(db.sql("SELECT n FROM s")) == [2]
    assert db.sql("SELECT n FROM s").now == datetime(1970, 1, 1, tzinfo=UTC)
    assert len(quarantine(db, "s")) == 1
    assert str(us) in quarantine(db, "s")[0][1]
    assert db.status().streams[0].rows == 1


def test_a_push_beyond_the_inbox_leaves_nothing(open_db: Open, asleep: None) -> None:
    db = open_db(push_bytes_max=3_000)
    db.sql(TICKS)
    db.push("ticks", ticks([1]))
    before = inbox(db)
    with pytest.raises(LadleError, match="does not fit") as raised:
        db.push("ticks", ticks(range(10_000)))
    assert raised.value.hint is not None
    assert "push_bytes_max" in raised.value.hint
    assert inbox(db) == before
    db.push("ticks", ticks([2]), wait=True)
    assert values(db.sql("SELECT n FROM ticks")) == [1, 2]
    assert inbox(db) == []


def test_pushes_keep_their_order_and_wait_for_a_reopen(open_db: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    db = open_db()
    db.sql(TICKS)
    with monkeypatch.context() as patch:
        patch.setattr("ladle.ingest.epochs.Ingest.drain_later", lambda *_: None)
        for second in range(20):
            assert db.push("ticks", ticks([second])) is None
        assert db.status().streams[0].pending == 20
        assert values(db.sql("SELECT n FROM ticks")) == []
        db.close()
    reader = open_db(read_only=True)
    assert reader.status().streams[0].pending == 20
    db = open_db()
    wait_until(lambda: db.status().streams[0].pending == 0, "pushes that waited were not taken in")
    assert values(db.sql("SELECT n FROM ticks")) == list(range(20))
    assert db.catalog.epoch == 1, "what waits together is taken in together"
    assert values(reader.sql("SELECT n FROM ticks")) == list(range(20))


def test_waiting_takes_in_what_came_before(open_db: Open, asleep: None) -> None:
    db = open_db()
    db.sql(TICKS)
    for second in range(5):
        db.push("ticks", ticks([second]))
    assert db.push("ticks", ticks([5]), wait=True) == 1
    assert values(db.sql("SELECT n FROM ticks")) == [0, 1, 2, 3, 4, 5]


def test_a_failed_epoch_loses_nothing_and_says_so(open_db: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    db = open_db()
    db.sql(TICKS)
    trouble = iter([PipelineError("the cluster is away"), RuntimeError("a bug"), OSError(5, "I/O")])
    run = db._pipeline.run_pushed

    def fail_three_times(*args: Any) -> Any:
        error = next(trouble, None)
        if error is not None:
            raise error
        return run(*args)

    monkeypatch.setattr(db._pipeline, "run_pushed", fail_three_times)
    with pytest.raises(PipelineError, match="away") as raised:
        db.push("ticks", ticks([1]), wait=True)
    assert raised.value.hint is not None
    assert "safe in the inbox" in raised.value.hint
    # The worker meets the other two, whatever kind they are, and goes on.
    wait_until(lambda: db.status().streams[0].error is not None, "the error is not shown")
    wait_until(lambda: values(db.sql("SELECT n FROM ticks")) == [1], "the push was not taken in")
    wait_until(lambda: db.status().streams[0].error is None, "the error stays")
    db.push("ticks", ticks([2]), wait=True)
    assert values(db.sql("SELECT n FROM ticks")) == [1, 2]


def flipped_offset(data: bytes) -> bytes:
    """One bit of the rows."""
    at = len(data) // 2
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


UNCHECKED = re.compile(r"\.[0-9a-f]{8}\.arrow$")


@pytest.mark.parametrize("checked", [True, False])
def test_a_broken_push_is_set_aside_and_holds_up_no_other(open_db: Open, asleep: None, checked: bool) -> None:
    """Also one that was received by a version that kept no checksums."""
    db = open_db()
    db.sql(TICKS)
    db.push("ticks", ticks([1]), key="a")
    db.push("ticks", ticks([2, 3]), key="b")
    first, second = sorted(inbox(db))
    broken = flipped_offset(first.read_bytes()) if checked else first.read_bytes()[:-20]
    first.write_bytes(broken)
    if not checked:
        db.close()
        first, second = (path.rename(path.with_name(UNCHECKED.sub(".arrow", path.name))) for path in (first, second))
        db = open_db()
    db.push("ticks", ticks([4]), wait=True)
    assert values(db.sql("SELECT n FROM ticks")) == [2, 3, 4]
    assert not inbox(db)
    (told,) = db.sql("SELECT reason, row FROM ticks.quarantine").to_pylist()
    assert "broken" in str(told["reason"])
    assert "set aside" in str(told["reason"])
    assert json.loads(str(told["row"])) == {"file": first.name}
    assert (first.parent / "damaged" / first.name).read_bytes() == broken
    # Whoever has the rows still may send them again.
    db.push("ticks", ticks([1]), key="a", wait=True)
    db.push("ticks", ticks([2, 3]), key="b", wait=True)
    assert sorted(values(db.sql("SELECT n FROM ticks"))) == [1, 2, 3, 4]


def test_the_quarantine_cannot_be_pushed_to(db: Database) -> None:
    db.sql(TICKS)
    with pytest.raises(LadleError, match="filled by Ladle alone"):
        db.push("ticks.quarantine", [{"reason": "x"}])
    with pytest.raises(UnknownName, match="Streams: ticks"):
        db.push("nothing", [{"n": 1}])
    with pytest.raises(UnknownName):
        db.push("ticks.nothing", [{"n": 1}])


def test_a_closed_database_takes_nothing(open_db: Open) -> None:
    db = open_db()
    db.sql(TICKS)
    db.close()
    db.close()
    for act in (
        lambda: db.push("ticks", ticks([1])),
        lambda: db.sql("SELECT n FROM ticks"),
        lambda: db.sql("CREATE STREAM s (a INT)"),
        lambda: db.create_stream("s", db.streams()[0].schema),
        lambda: db.drop_stream("ticks"),
        lambda: db.set_retain("ticks", None),
        lambda: db.register("SELECT 1", name="q"),
        lambda: db.unregister("q"),
        db.queries,
        db.status,
        db.maintain,
        db.backfill,
    ):
        with pytest.raises(Closed, match="closed"):
            act()


def test_large_rows_in_many_segments(open_db: Open) -> None:
    db = open_db(segment_rows_max=1_000)
    db.sql("CREATE STREAM s (n INT, word STRING, at TIMESTAMP) TIMESTAMP BY at")
    db.register("SELECT n FROM s WHERE word LIKE '%7'", name="q")
    table = pa.table(
        {
            "n": list(range(5_500)),
            "word": [f"w{n}" for n in range(5_500)],
            "at": pa.array(range(5_500), pa.int64()).cast(pa.timestamp("us", "UTC")),
        }
    )
    db.push("s", table, wait=True)
    (file,) = db.catalog.streams["s"].files
    assert [segment.rows for segment in file.segments] == [1_000] * 5 + [500]
    assert values(db.invoke("q")) == list(range(7, 5_500, 10))


def test_rows_that_are_only_received_wait_for_the_next_process(open_db: Open) -> None:
    db = open_db()
    db.sql(TICKS)
    db.receive("ticks", ticks(range(3)))
    assert db.status().streams[0].pending == 1
    assert len(db.sql("SELECT n FROM ticks")) == 0
    db.close()
    again = open_db()
    again.push("ticks", ticks(range(3, 4)), wait=True)
    assert values(again.sql("SELECT n FROM ticks")) == [0, 1, 2, 3]


# --- pushes that are sent again ---


@pytest.mark.usefixtures("asleep")
def test_a_push_with_a_key_counts_once_while_it_waits_and_after_a_restart(open_db: Open) -> None:
    db = open_db()
    db.sql(TICKS)
    db.push("ticks", ticks([1]), key="one")
    db.push("ticks", ticks([1]), key="one")
    assert len(inbox(db)) == 1
    db.close()
    db = open_db()
    assert db.push("ticks", ticks([1]), key="one", wait=True) == 1
    assert inbox(db) == []
    assert db.push("ticks", ticks([1]), key="one", wait=True) == 1
    db.push("ticks", ticks([1]), key="one")
    assert inbox(db) == []
    assert db.push("ticks", ticks([2]), key="two", wait=True) == 2
    db.close()
    db = open_db(checkpoint_entries=1)
    assert db.push("ticks", ticks([2]), key="two", wait=True) == 2
    db.sql("CREATE STREAM others (n INT)")
    db.close()
    db = open_db()
    assert db.push("ticks", ticks([1]), key="one", wait=True) == 1
    assert values(db.sql("SELECT n FROM ticks ORDER BY n")) == [1, 2]


def test_keys_are_a_streams_own(db: Database) -> None:
    db.sql(TICKS)
    db.sql("CREATE STREAM tocks (n INT, at TIMESTAMP) TIMESTAMP BY at")
    assert db.push("ticks", ticks([1]), key="k", wait=True) == 1
    assert db.push("tocks", ticks([1]), key="k", wait=True) == 2
    assert db.push("ticks", ticks([1]), key="K", wait=True) == 3, "keys are compared as they are"


def test_a_push_with_a_key_that_fails_may_come_again(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was not received is not known."""
    db.sql(TICKS)
    with monkeypatch.context() as full:
        full.setattr("ladle.archive.inbox.write_durably", _no_room)
        with pytest.raises(LadleError):
            db.push("ticks", ticks([1]), key="k")
    assert db.push("ticks", ticks([1]), key="k", wait=True) == 1


def _no_room(*_: Any) -> None:
    raise LadleError("no room")


def test_the_oldest_keys_are_forgotten(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ladle.catalog.streams.KEYS_MAX", 3)
    db.sql(TICKS)
    for second in range(5):
        db.push("ticks", ticks([second]), key=f"k{second}", wait=True)
    assert len(db.catalog.streams["ticks"].keys) == 3
    assert db.push("ticks", ticks([4]), key="k4", wait=True) == 5
    assert db.push("ticks", ticks([0]), key="k0", wait=True) == 6


def test_the_same_push_by_many_at_once(db: Database) -> None:
    from concurrent.futures import ThreadPoolExecutor

    db.sql(TICKS)
    with ThreadPoolExecutor(8) as threads:
        epochs = [
            threads.submit(db.push, "ticks", ticks([second // 8]), wait=True, key=f"k{second // 8}")
            for second in range(80)
        ]
        found = [each.result() for each in epochs]
    assert values(db.sql("SELECT n FROM ticks ORDER BY n")) == list(range(10))
    assert all(len({*found[8 * n : 8 * n + 8]}) == 1 for n in range(10))


@pytest.mark.usefixtures("asleep")
def test_rows_that_do_not_come_back_from_their_job_stay_in_the_inbox(
    db: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the JVM dies while it hands over what its tasks did: that looks like a job without any."""
    db.sql(TICKS)
    with monkeypatch.context() as dying:
        dying.setattr("ladle.testing.inline.InlinePipeline.run_pushed", lambda *_: [])
        with pytest.raises(PipelineError, match="Of 2 pushed rows 0 came back"):
            db.push("ticks", ticks([1, 2]), wait=True)
    assert len(inbox(db)) == 1
    assert db.push("ticks", ticks([3]), wait=True) == 1
    assert values(db.sql("SELECT n FROM ticks")) == [1, 2, 3]


def test_a_decimal_that_its_own_type_can_t_hold_goes_to_the_quarantine(db: Database) -> None:
    """Arrow makes such arrays of buffers, and by casts that are not safe."""
    db.sql("CREATE STREAM paid (v DECIMAL(5, 2))")
    wide = pa.array([1_234_567_890, 150], pa.decimal128(38, 0)).buffers()
    table = pa.table({"v": pa.Array.from_buffers(pa.decimal128(5, 2), 2, wide)})
    db.push("paid", table, wait=True)
    db.push("paid", [{"v": "2.50"}], wait=True)
    assert [str(row["v"]) for row in db.sql("SELECT v FROM paid")] == ["1.50", "2.50"]
    (rejected,) = db.sql("SELECT reason FROM paid.quarantine")
    assert "12345678.90" in str(rejected["reason"])
