"""The access method for history. Method: all tuples are kept in one Arrow table with their ids, times and files, and
what a scan gives is compared with a plain filter over it.
"""

from __future__ import annotations

import math
import random
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ladle.archive.cache import SegmentCache
from ladle.archive.files import MissingFile
from ladle.archive.layout import EVERYTHING, NOTHING, Extent
from ladle.archive.scan import ArchiveSource, Counts, Request, scan, stored_bytes
from ladle.archive.segments import DataFile, SegmentWriter
from ladle.derived import Derived
from ladle.errors import DamagedFile
from ladle.plan.keys import float_key
from ladle.plan.ranges import Ranges
from ladle.schema import TIMESTAMP

OLD = pa.schema([("at", TIMESTAMP), ("n", pa.int32()), ("gone", pa.string()), ("x", pa.float64())])
NEW = pa.schema([("at", TIMESTAMP), ("n", pa.int32()), ("x", pa.float64()), ("added", pa.int64())])
"""Today's schema: a column was dropped, and one was added."""

Tuple = dict[str, object]


class History(NamedTuple):
    source: ArchiveSource
    files: tuple[DataFile, ...]
    tuples: list[Tuple]
    """All that the files have, in arrival order, with `id` and `file`."""

    def expected(self, extent: Extent) -> list[Tuple]:
        last = math.inf if extent.next_id is None else extent.next_id
        return [
            each
            for each in self.tuples
            if extent.begin_us < each["at"] <= extent.end_us and extent.first_id <= each["id"] < last  # type: ignore[operator]
        ]


def written(directory: Path, rng: random.Random) -> History:
    """Files of random tuples; retention let go of some, so that ids have gaps, and times are mixed or ascend."""
    files: list[DataFile] = []
    tuples: list[Tuple] = []
    next_id, mixed = 0, rng.random() < 0.5
    for number in range(rng.randint(0, 6)):
        schema = OLD if number < 3 else NEW
        rows: list[Tuple] = []
        for at in range(rng.randint(1, 25)):
            us = rng.randrange(100) if mixed else next_id + at
            n = None if rng.random() < 0.1 else rng.randint(0, 9) + 10 * number
            x = rng.choice((None, math.nan, math.inf, -0.0, 0.0, number + 0.5, -3.5))
            rows.append({"at": us, "n": n, "x": x, "gone": "g", "added": rng.choice((None, 4))})
        with SegmentWriter(directory, f"f{number}", schema, "at", rows_max=rng.randint(1, 9)) as writer:
            writer.add(pa.Table.from_pylist([{name: row[name] for name in schema.names} for row in rows], schema))
            done = writer.finish()
        assert done is not None
        if rng.random() < 0.75:
            files.append(DataFile(done.name, done.bytes, 0, 1, 1, done.segments, done.checks, next_id))
            for id_, row in enumerate(rows, next_id):
                added = row["added"] if "added" in schema.names else None
                tuples.append({**row, "added": added, "id": id_, "file": done.name})
        next_id += len(rows)
    return History(ArchiveSource(directory, NEW, "at"), tuple(files), tuples)


def extents(rng: random.Random) -> Extent:
    begin, first = rng.randint(-5, 110), rng.randrange(120)
    times = rng.choice(((EVERYTHING.begin_us, EVERYTHING.end_us), (begin, begin + rng.randint(0, 60)), (begin, begin)))
    return Extent(*times, rng.choice((0, first)), rng.choice((None, 0, first + rng.randint(-5, 60))))


def values(tuples: list[Tuple], names: tuple[str, ...]) -> list[str]:
    return [repr([each[name] for name in names]) for each in tuples]


def found(request: Request, **how: object) -> tuple[list[int], list[str]]:
    """The ids and values of a scan."""
    ids: list[int] = []
    rows: list[str] = []
    for batch in scan(request, **how):  # type: ignore[arg-type]
        assert batch.rows == len(batch.ids) > 0
        ids += batch.ids.tolist()
        table = batch.table
        if "at" in table.column_names:
            times = table.column("at").cast(pa.int64())
            table = table.set_column(table.column_names.index("at"), "at", times)
        rows += [repr(list(row.values())) for row in table.to_pylist()]
    return ids, rows


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=60, deadline=None)
def test_a_scan_is_a_filter_over_all_tuples(seed: int) -> None:
    rng = random.Random(seed)
    with TemporaryDirectory() as place:
        history = written(Path(place), rng)
        cache = SegmentCache(Derived(rng.choice((0, 300, 1 << 20)), 0))
        for _ in range(8):
            extent = extents(rng)
            names = tuple(rng.sample(NEW.names, rng.randint(0, len(NEW.names))))
            expected = history.expected(extent)
            request = Request(history.source, history.files, names, extent)
            how = rng.choice(({}, {"cache": cache}))
            ids, rows = found(request, **how)
            assert ids == [each["id"] for each in expected]
            assert rows == (values(expected, names) if names else rows)
        assert found(Request(history.source, history.files, ("n",), NOTHING)) == ([], [])


def interval(rng: random.Random, column: str) -> Ranges:
    """Random ranges of a column."""
    key = float_key if column == "x" else int
    low = rng.choice((None, rng.randint(-5, 70)))
    high = rng.choice((None, (low or 0) + rng.choice((0, 1, 30))))
    ends = (None if low is None else key(low), None if high is None else key(high))
    return Ranges.of(column, [ends], null=rng.random() < 0.3)


def holds(value: object, ranges: Ranges) -> bool:
    if value is None:
        return ranges.holds(None)
    return ranges.holds(float_key(value) if isinstance(value, float) else int(value))  # type: ignore[call-overload]


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=60, deadline=None)
def test_a_segment_that_is_skipped_has_nothing_that_is_wanted(seed: int) -> None:
    """NULLs, NaN, both zeros, and columns that files don't have."""
    rng = random.Random(seed)
    with TemporaryDirectory() as place:
        history = written(Path(place), rng)
        for _ in range(8):
            extent = extents(rng)
            ranges = {name: interval(rng, name) for name in rng.sample(("n", "x", "added"), rng.randint(1, 3))}
            counts = Counts()
            request = Request(history.source, history.files, ("n", "x"), extent, ranges)
            ids = set(found(request, counts=counts)[0])
            expected = history.expected(extent)
            wanted = {each["id"] for each in expected if all(holds(each[name], of) for name, of in ranges.items())}
            assert wanted <= ids <= {each["id"] for each in expected}


def test_least_and_greatest_values_rule_segments_out(tmp_path: Path) -> None:
    rows = pa.table({"at": pa.array(range(100), pa.int64()).cast(TIMESTAMP), "n": pa.array(range(100), pa.int32())})
    with SegmentWriter(tmp_path, "f", rows.schema, "at", rows_max=10) as writer:
        writer.add(rows)
        done = writer.finish()
    assert done is not None
    file = DataFile(done.name, done.bytes, 0, 1, 1, done.segments, done.checks)
    request = Request(
        ArchiveSource(tmp_path, rows.schema, "at"), (file,), ("n",), ranges={"n": Ranges.of("n", [(37, 52)])}
    )
    counts = Counts()
    assert [batch.piece.row_group for batch in scan(request, counts=counts)] == [3, 4, 5]
    assert (len(counts.segments), counts.segments_skipped) == (3, 7)


def test_what_is_read_is_counted(tmp_path: Path) -> None:
    rows = pa.table(
        {
            "at": pa.array(range(1_000), pa.int64()).cast(TIMESTAMP),
            "n": pa.array(random.Random(1).choices(range(1 << 30), k=1_000), pa.int32()),
            "s": pa.array([{"a": n, "b": [n, 1]} for n in range(1_000)]),
        }
    )
    with SegmentWriter(tmp_path, "f", rows.schema, "at", rows_max=400) as writer:
        writer.add(rows)
        done = writer.finish()
    assert done is not None
    source = ArchiveSource(tmp_path, rows.schema, "at")
    files = (DataFile(done.name, done.bytes, 0, 1, 1, done.segments, done.checks),)
    sizes = {}
    for names in (("n",), ("s",), ("n", "s"), ("at", "n", "s"), ()):
        counts = Counts()
        assert sum(batch.rows for batch in scan(Request(source, files, names), counts=counts)) == 1_000
        sizes[names] = counts.bytes_read
        assert stored_bytes(Request(source, files, names), SegmentCache(Derived(0, 0))) == counts.bytes_read
        assert len(counts.segments) == (3 if names else 0)
    assert sizes["n",] + sizes["s",] == sizes["n", "s"]
    assert 4_000 < sizes["n",] < sizes["at", "n", "s"] < done.bytes
    assert sizes[()] == 0
    cache, first, second = SegmentCache(Derived(1 << 20, 0)), Counts(), Counts()
    list(scan(Request(source, files, ("n",)), cache=cache, counts=first))
    list(scan(Request(source, files, ("n",)), cache=cache, counts=second))
    assert (first.bytes_read, first.bytes_cached) == (sizes["n",], 0)
    assert (second.bytes_read, second.bytes_cached, len(second.segments)) == (0, cache.bytes, 0)
    assert (cache.bytes_read, cache.bytes_served) == (sizes["n",], cache.bytes)
    assert cache.bytes >= 4_000
    counts = Counts()
    assert [batch.rows for batch in scan(Request(source, files, ("n",), Extent(399, 799)), counts=counts)] == [400]
    assert counts.segments == {("f", 1)}


@pytest.mark.parametrize("cached", [False, True])
def test_a_damaged_file_is_named_and_the_others_are_read(tmp_path: Path, *, cached: bool) -> None:
    files = []
    for number in range(3):
        rows = pa.table(
            {"at": pa.array(range(50), pa.int64()).cast(TIMESTAMP), "n": pa.array([number] * 50, pa.int32())}
        )
        with SegmentWriter(tmp_path, f"f{number}", rows.schema, "at") as writer:
            writer.add(rows)
            done = writer.finish()
        assert done is not None
        files.append(DataFile(done.name, done.bytes, 0, 1, 1, done.segments, done.checks, number * 50))
    source = ArchiveSource(tmp_path, rows.schema, "at")
    path = tmp_path / "f1"
    whole = path.read_bytes()
    column = pq.read_metadata(path).row_group(0).column(1)
    for place in (column.data_page_offset + column.total_compressed_size - 2, len(whole) - 30):  # a page, the footer
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        cache = SegmentCache(Derived(1 << 20, 0)) if cached else None
        batches = scan(Request(source, tuple(files), ("at", "n")), cache=cache)
        assert next(batches).ids.tolist() == list(range(50))
        with pytest.raises(DamagedFile, match="f1"):
            next(batches)
        others = Request(source, (files[0], files[2]), ("n",))
        assert [batch.table.column("n")[0].as_py() for batch in scan(others, cache=cache)] == [0, 2]
        early = Request(source, tuple(files), ("n",), EVERYTHING.arrived(50))
        assert sum(batch.rows for batch in scan(early, cache=cache)) == 50
    path.unlink()
    with pytest.raises(MissingFile, match="f1"):
        list(scan(Request(source, tuple(files), ("n",))))


@given(seed=st.integers(0, 1 << 32))
@settings(max_examples=30, deadline=None)
def test_cut_files_are_those_whose_ids_are_cut(seed: int) -> None:
    """What Spark is told: by file, which rows count."""
    rng = random.Random(seed)
    with TemporaryDirectory() as place:
        history = written(Path(place), rng)
        for _ in range(8):
            extent = extents(rng)._replace(begin_us=EVERYTHING.begin_us, end_us=EVERYTHING.end_us)
            cut = Request(history.source, history.files, (), extent).cut_files
            ids = []
            for file in history.files:
                first, last = cut.get(file.name, (0, file.rows))
                ids += [file.first_id + row for row in range(file.rows) if first <= row < last]
            assert ids == [each["id"] for each in history.expected(extent)]
            assert all(bounds != (0, file.rows) for file in history.files for bounds in [cut.get(file.name)])
