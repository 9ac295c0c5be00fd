"""The durable timeline. Method: every tuple carries the number of tuples pushed before it, so that what files, entries
and positions say of ids and clocks is compared with a list that the test keeps.
"""

from __future__ import annotations

import random
from datetime import timedelta

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.rows import START

from ladle.archive.segments import read_file
from ladle.catalog import StreamState
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
