"""Reading rows by tuple ids. Method: every tuple carries the number of tuples pushed before it, which is its id."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.rows import START

from ladle.archive.layout import EVERYTHING, Extent
from ladle.clock import to_us
from ladle.execute.reader import Reader
from ladle.testing.inline import connect_inline


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=15)
def test_rows_between_two_ids(tmp_path_factory: pytest.TempPathFactory, seed: int) -> None:
    """After compaction and retention, with gaps in the middle; of covered and uncovered blocks."""
    rng = random.Random(seed)
    tuning = {"compact_files_min": rng.choice((2, 3)), "segment_rows_max": 4}
    with connect_inline(tmp_path_factory.mktemp("w") / "warehouse", settings=tuning) as db:
        db.sql("CREATE STREAM s (n INT, v INT, at TIMESTAMP) TIMESTAMP BY at RETAIN INTERVAL 20 SECONDS")
        db.register("SELECT n FROM s WHERE v > 4", name="q")
        db.register("SELECT n, at FROM s", name="r")
        times: list[int] = []
        values: list[int] = []
        for second in range(0, rng.randint(10, 60), 4):
            at = START + timedelta(seconds=second - rng.choice((0, 0, 0, 18)))
            rows = [{"n": len(times) + i, "v": rng.randrange(10), "at": at} for i in range(rng.randint(1, 7))]
            times += [to_us(at)] * len(rows)
            values += [row["v"] for row in rows]
            db.push("s", rows)
            if rng.random() < 0.3:
                db.maintain()
        if rng.random() < 0.3:
            db.backfill()
        with db._store.pin() as catalog:
            stream = catalog.streams["s"]
            reader = Reader(db._store, catalog, db.now_us())
            query, other = (catalog.queries[name].plan.scans[0] for name in ("q", "r"))
            retained = {id_ for file in stream.files for id_ in range(file.first_id, file.next_id)}
            for _ in range(12):
                first, last = rng.randrange(len(times) + 2), rng.choice((None, rng.randrange(len(times) + 5)))
                begin = rng.choice(times) - rng.randint(0, 1)
                extent = rng.choice((EVERYTHING, Extent(begin, begin + rng.randrange(30_000_000))))
                for scan, low in ((query, 5), (other, 0)):
                    found = reader.read(scan, extent._replace(first_id=first, next_id=last))
                    expected = [
                        id_
                        for id_, (us, value) in enumerate(zip(times, values, strict=True))
                        if id_ in retained and first <= id_ < (len(times) if last is None else last)
                        if extent.begin_us < us <= extent.end_us and value >= low
                    ]
                    assert found.column("n").to_pylist() == expected
                    assert found.column_names == list(scan.columns)
