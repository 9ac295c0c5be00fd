"""The durable timeline. Method: every tuple carries the number of tuples pushed before it, so that what files, entries
and positions say of ids and clocks is compared with a list that the test keeps.
"""

from __future__ import annotations

import json
import random
from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.rows import START

from ladle.archive.segments import read_file
from ladle.catalog import Record, StreamState, Timeline
from ladle.catalog import timeline as timelines
from ladle.catalog.timeline import NOTHING
from ladle.engine import Database
from ladle.testing.inline import connect_inline

pytestmark = pytest.mark.not_at_one_row("its queries have no residual")


def ids_on_disk(db: Database, stream: StreamState) -> list[tuple[int, int]]:
    """Of each retained tuple its id, by the files' first ids, and the number that it carries."""
    found = []
    directory = db.path / "streams" / str(stream.id) / "archive"
    for file in stream.files:
        rows = pa.concat_tables(read_file(directory / file.name, ["n"], stream.schema.arrow, file.checks))
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
            for epoch in range(records[0].epoch, records[-1].epoch + 2):
                assert timeline.at_epoch(epoch) == [record for record in records if record.epoch <= epoch][-1]
                assert list(timeline.after_epoch(epoch)) == [record for record in records[1:] if record.epoch > epoch]
