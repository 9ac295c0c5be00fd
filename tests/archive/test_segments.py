"""Segments: what is written comes back, here and in the other tools that open the files."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.archive.reading import read_file
from tests.archive.strategies import TRADES, tables, trades

from ladle.archive.cache import SegmentCache
from ladle.archive.compaction import compact
from ladle.archive.files import MissingFile
from ladle.archive.scan import ArchiveSource, Request, scan
from ladle.archive.segments import (
    DataFile,
    Segment,
    SegmentWriter,
    WrittenFile,
    verify_file,
)
from ladle.derived import Derived
from ladle.errors import DamagedFile, DiskFull, TypeMismatch, WarehouseError
from ladle.schema import TIMESTAMP


def _write(directory: Path, name: str, table: pa.Table, *, epoch: int = 1, rows_max: int = 65_536) -> DataFile:
    with SegmentWriter(directory, name, table.schema, "at", rows_max=rows_max) as writer:
        writer.add(table)
        written = writer.finish()
    assert written is not None
    return _as_file(written, epoch)


def _as_file(written: WrittenFile, epoch: int = 1) -> DataFile:
    return DataFile(written.name, written.bytes, 0, epoch, epoch, written.segments, written.checks)


def _pieces(table: pa.Table, cuts: list[int]) -> Iterator[pa.Table]:
    start = 0
    for cut in sorted({cut for cut in cuts if cut < table.num_rows} | {table.num_rows}):
        yield table.slice(start, cut - start)
        start = cut


@given(table=tables(), cuts=st.lists(st.integers(0, 40), max_size=4), rows_max=st.integers(1, 50))
@settings(max_examples=60, deadline=None)
def test_every_type_comes_back(table: pa.Table, cuts: list[int], rows_max: int) -> None:
    with TemporaryDirectory() as place:
        directory = Path(place)
        writer = SegmentWriter(directory, "x.parquet", table.schema, "at", rows_max=rows_max)
        for piece in _pieces(table, cuts):
            writer.add(piece)
        written = writer.finish()
        if table.num_rows == 0:
            assert written is None
            assert os.listdir(directory) == []
            return
        assert written is not None
        assert os.listdir(directory) == ["x.parquet"]
        path = directory / "x.parquet"
        assert written.bytes == path.stat().st_size
        file = _as_file(written)
        groups = read_file(directory, file, table.schema.names, table.schema)
        assert [group.num_rows for group in groups] == [segment.rows for segment in written.segments]
        assert all(segment.rows == rows_max for segment in written.segments[:-1])
        assert pa.concat_tables(groups).equals(table)
        assert all(group.schema.equals(table.schema) for group in groups)
        asked = list(reversed(table.schema.names))
        others = read_file(directory, file, asked, table.schema)
        for group, other, segment in zip(groups, others, written.segments, strict=True):
            times = group.column("at").cast(pa.int64())
            assert (segment.ts_min_us, segment.ts_max_us) == (pc.min(times).as_py(), pc.max(times).as_py())
            assert other.equals(group.select(asked))


@pytest.fixture(scope="module")
def connection() -> Iterator[duckdb.DuckDBPyConnection]:
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.execute("SET TimeZone = 'UTC'")
        yield connection


@given(table=tables())
@settings(max_examples=30, deadline=None)
def test_duckdb_reads_the_same(connection: duckdb.DuckDBPyConnection, table: pa.Table) -> None:
    if table.num_rows == 0:
        return
    with TemporaryDirectory() as place:
        _write(Path(place), "x.parquet", table, rows_max=7)
        read = connection.sql(f"SELECT * FROM read_parquet('{place}/x.parquet')").to_arrow_table()
        assert read.cast(table.schema).equals(table)


def test_older_files_give_nulls_for_newer_columns(tmp_path: Path) -> None:
    file = _write(tmp_path, "x.parquet", trades(0, 10), rows_max=4)
    schema = TRADES.append(pa.field("venue", pa.string())).append(pa.field("tags", pa.list_(pa.int8())))
    table = read_file(tmp_path, file, ["venue", "size", "tags"], schema)[2]
    assert table.schema.names == ["venue", "size", "tags"]
    assert table.column("venue").null_count == table.column("tags").null_count == 2
    assert table.column("size").to_pylist() == [8, 9]
    assert read_file(tmp_path, file, ["venue"], schema)[0].num_rows == 4
    source = ArchiveSource(tmp_path, schema, "at")
    assert [batch.rows for batch in scan(Request(source, (file,), ()))] == [4, 4, 2]


def test_names_with_dots_are_not_paths(tmp_path: Path) -> None:
    schema = pa.schema([("a", pa.struct([("b", pa.int8())])), ("a.b", pa.int8()), ("at", TIMESTAMP)])
    rows = [{"a": {"b": 1}, "a.b": 2, "at": 3}]
    file = _write(tmp_path, "x.parquet", pa.Table.from_pylist(rows, schema), rows_max=5)
    for columns in (["a"], ["a.b"], ["a.b", "a"]):
        (row,) = read_file(tmp_path, file, columns, schema)[0].to_pylist()
        assert row == {name: rows[0][name] for name in columns}


def test_the_writer_takes_what_spark_hands_over(tmp_path: Path) -> None:
    """Record batches, other column orders, other spellings of the same types, and missing columns."""
    other = pa.table(
        {
            "at": trades(0, 5).column("at").cast(pa.timestamp("us", tz="Etc/UTC")),
            "symbol": trades(0, 5).column("symbol").cast(pa.large_string()),
            "size": trades(0, 5).column("size"),
        }
    )
    with SegmentWriter(tmp_path, "x.parquet", TRADES, "at") as writer:
        for batch in other.to_batches():
            writer.add(batch)
        writer.add(TRADES.empty_table())
        written = writer.finish()
        assert written is not None
    (read,) = read_file(tmp_path, _as_file(written), TRADES.names, TRADES)
    assert read.schema.equals(TRADES)
    assert read.column("price").null_count == 5
    assert read.column("at").equals(trades(0, 5).column("at"))


def test_what_the_file_says_of_itself(tmp_path: Path) -> None:
    table = trades(0, 1_000).append_column("unique", pa.array([f"id-{n}" for n in range(1_000)]))
    with SegmentWriter(tmp_path, "x.parquet", table.schema, "at") as writer:
        writer.add(table)
        writer.finish()
    footer = pq.read_metadata(tmp_path / "x.parquet")
    group = footer.row_group(0)
    columns = {group.column(i).path_in_schema: group.column(i) for i in range(footer.num_columns)}
    assert all(column.statistics.has_min_max for column in columns.values())
    assert "RLE_DICTIONARY" in columns["symbol"].encodings
    assert not any("RLE_DICTIONARY" in columns[name].encodings for name in ("price", "at", "unique"))
    assert json.loads(footer.schema.column(3).logical_type.to_json())["isAdjustedToUTC"] is True


def test_nothing_is_left_by_abort_or_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = SegmentWriter(tmp_path, "x.parquet", TRADES, "at", rows_max=10)
    writer.add(trades(0, 25))
    assert all(name.startswith(".") for name in os.listdir(tmp_path))
    writer.abort()
    writer.abort()
    assert os.listdir(tmp_path) == []

    writer = SegmentWriter(tmp_path, "x.parquet", TRADES, "at", rows_max=10)
    writer.add(trades(0, 25))

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(DiskFull, match="No space"):
            writer.finish()
    assert os.listdir(tmp_path) == []

    writer = SegmentWriter(tmp_path, "x.parquet", TRADES, "at", rows_max=10)
    writer.add(trades(0, 15))
    with pytest.raises(TypeMismatch, match="can't be NULL"):
        writer.add(trades(0, 10).drop_columns(["at"]))
    assert os.listdir(tmp_path) == []


def test_times_that_ascend_take_little_room(tmp_path: Path) -> None:
    with SegmentWriter(tmp_path, "x.parquet", TRADES, "at") as writer:
        writer.add(trades(0, 10_000))
        writer.finish()
    metadata = pq.read_metadata(tmp_path / "x.parquet").row_group(0)
    column = metadata.column(TRADES.get_field_index("at"))
    assert "DELTA_BINARY_PACKED" in column.encodings
    assert column.total_compressed_size < 10_000


def test_a_full_disk_while_writing(tmp_path: Path) -> None:
    """A file size limit stands in for the full disk: Arrow's own writer meets it."""
    code = f"""
import resource, signal
from pathlib import Path
import pyarrow as pa
from ladle.archive.segments import SegmentWriter
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000))
times = [n * n * 2_654_435_761 % (1 << 45) for n in range(9_000)]  # in no order: they take their room
table = pa.table({{"at": pa.array(times, pa.int64()).cast(pa.timestamp("us"))}})
writer = SegmentWriter(Path({str(tmp_path)!r}), "x.parquet", table.schema, "at", rows_max=3_000)
try:
    writer.add(table)
    writer.finish()
except Exception as error:
    print(type(error).__name__)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "WarehouseError\n"
    assert os.listdir(tmp_path) == []


def test_a_missing_or_broken_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match=r"gone\.parquet"):
        read_file(tmp_path, DataFile("gone.parquet", 9, 0, 1, 1, (Segment(1, 0, 0),)), ["at"], TRADES)
    file = _write(tmp_path, "x.parquet", trades(0, 10))
    path = tmp_path / "x.parquet"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(WarehouseError, match=r"x\.parquet.*broken"):
        read_file(tmp_path, replace(file, checks=None), ["at"], TRADES)
    with pytest.raises(WarehouseError, match=r"x\.parquet.*broken"):
        read_file(tmp_path, file, ["at"], TRADES)


@given(
    sizes=st.lists(st.integers(1, 12), min_size=1, max_size=8),
    rows_max=st.integers(1, 20),
    again=st.integers(1, 20),
    data=st.data(),
)
@settings(max_examples=40, deadline=None)
def test_compaction_keeps_rows_order_and_epochs(
    sizes: list[int], rows_max: int, again: int, data: st.DataObject
) -> None:
    with TemporaryDirectory() as place:
        directory = Path(place)
        files, first = [], 0
        for number, rows in enumerate(sizes):
            epoch = 3 + number // 2  # an epoch may have several files
            file = _write(directory, f"f{number}.parquet", trades(first, rows), epoch=epoch, rows_max=5)
            files.append(file)
            first += rows
        schema = TRADES.append(pa.field("venue", pa.string()))
        cut = data.draw(st.integers(1, len(files)))
        one = compact(ArchiveSource(directory, schema, "at"), files[:cut], "one.parquet", rows_max)
        assert (one.level, one.epoch_first, one.epoch_last) == (1, 3, files[cut - 1].epoch_last)
        both = compact(ArchiveSource(directory, schema, "at"), [one, *files[cut:]], "both.parquet", again)
        assert (both.level, both.epoch_last, both.rows) == (2, files[-1].epoch_last, sum(sizes))
        table = pa.concat_tables(read_file(directory, both, schema.names, schema))
        assert table.drop_columns(["venue"]).equals(trades(0, sum(sizes)))
        assert (both.epoch_first, both.first_id) == (3, 0)
        assert all(segment.rows == again for segment in both.segments[:-1])
        assert set(os.listdir(directory)) >= {file.name for file in files}


def test_data_files_survive_json() -> None:
    file = DataFile("x.parquet", 10, 2, 3, 4, (Segment(5, -6, 7), Segment(1, 2, 30)))
    assert DataFile.from_json(json.loads(json.dumps(file.to_json()))) == file
    assert (file.rows, file.ts_min_us, file.ts_max_us) == (6, -6, 30)


def cache_of(bytes_max: int, clock: Callable[[], float] = time.monotonic) -> SegmentCache:
    return SegmentCache(Derived(bytes_max, 0, clock=clock))


def cached(cache: SegmentCache, directory: Path, name: str, row_group: int, names: list[str]) -> pa.Table:
    """What is in the cache, as a table."""
    columns = cache.columns(directory, name, row_group, tuple(names), TRADES)
    return pa.Table.from_arrays(
        [column.array for column in columns], schema=pa.schema([TRADES.field(column) for column in names])
    )


def test_the_cache_reads_each_column_once(tmp_path: Path) -> None:
    file = _write(tmp_path, "x.parquet", trades(0, 10), rows_max=5)
    path, cache = tmp_path / "x.parquet", cache_of(1 << 20)
    first = cached(cache, tmp_path, "x.parquet", 1, ["price", "size"])
    second = cached(cache, tmp_path, "x.parquet", 1, ["at", "size", "price"])
    assert (cache.hits, cache.misses) == (2, 3)
    assert first.equals(read_file(tmp_path, file, ["price", "size"], TRADES)[1])
    assert second.equals(read_file(tmp_path, file, ["at", "size", "price"], TRADES)[1])
    path.unlink()
    assert cached(cache, tmp_path, "x.parquet", 1, ["price"]).num_rows == 5
    cache.drop("x.parquet")
    cache.drop("x.parquet")
    assert cache.bytes == 0
    with pytest.raises(MissingFile):
        cached(cache, tmp_path, "x.parquet", 1, ["price"])


def test_the_cache_stays_within_its_bytes(tmp_path: Path) -> None:
    for number in range(4):
        _write(tmp_path, f"{number}", trades(number, 100))
    now = 0.0
    cache = cache_of(2 * 900, lambda: now)  # two columns of 100 doubles

    def price(number: int) -> pa.Table:
        nonlocal now
        now += 1.0
        return cached(cache, tmp_path, str(number), 0, ["price"])

    for number in (0, 1, 0, 2):  # 1 is the one not used for longest
        assert price(number).equals(trades(number, 100).select(["price"]))
        assert cache.bytes <= 1_800
    hits = cache.hits
    price(0), price(2)
    assert cache.hits == hits + 2
    price(1)
    assert cache.hits == hits + 2
    tiny = cache_of(10)
    assert cached(tiny, tmp_path, "0", 0, ["price"]).num_rows == 100
    assert tiny.columns(tmp_path, "0", 0, (), TRADES) == []
    assert tiny.bytes == 0


def test_what_was_not_used_for_longest_goes_first(tmp_path: Path) -> None:
    """Where the clock stands still while columns are read, all cost the same, and only their last use counts."""
    for number in range(4):
        _write(tmp_path, f"{number}", trades(number, 100))
    now = 0.0
    size = cache_of(1 << 20).columns(tmp_path, "0", 0, ("price",), TRADES)[0].nbytes
    cache, used, there = cache_of(4 * size, lambda: now), dict[tuple[int, str], float](), set[tuple[int, str]]()
    drawn = random.Random(5)
    for _ in range(500):
        now += 1.0
        number, names = drawn.randrange(4), drawn.choice([("price",), ("at",), ("at", "price")])
        hits = cache.hits
        cache.columns(tmp_path, str(number), 0, names, TRADES)
        asked = {(number, name) for name in names}
        assert cache.hits == hits + len(asked & there)
        used |= dict.fromkeys(asked, now)
        before = there | asked
        there = kept_columns(cache)
        assert len(there) == min(len(before), 4)
        assert max((used[each] for each in before - there), default=0.0) <= min(used[each] for each in there)


def kept_columns(cache: SegmentCache) -> set[tuple[int, str]]:
    return {(int(name), column) for (name, _, column), _ in cache._columns.items()}


def test_threads_share_the_cache(tmp_path: Path) -> None:
    for number in range(6):
        _write(tmp_path, f"{number}", trades(number * 100, 100), rows_max=30)
    cache = cache_of(5_000)

    def read(seed: int) -> None:
        for step in range(60):
            number, group = (step * seed) % 6, step % 3
            table = cached(cache, tmp_path, str(number), group, ["size", "symbol"])
            assert table.equals(trades(number * 100 + group * 30, 30).select(["size", "symbol"]))
            if step % 20 == 0:
                cache.drop(str(number))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(read, (1, 5, 7, 11)))
    assert 0 <= cache.bytes <= 5_000
    for number in range(6):
        cache.drop(str(number))
    assert cache.bytes == 0


@pytest.mark.spark
def test_spark_reads_every_type(tmp_path: Path, spark: Any) -> None:
    table = pa.table(
        {
            "b": pa.array([True, None]),
            "i8": pa.array([-128, None], pa.int8()),
            "i16": pa.array([-32768, None], pa.int16()),
            "i64": pa.array([2**62, None], pa.int64()),
            "f": pa.array([0.5, None], pa.float32()),
            "d": pa.array([None, "1.50"]).cast(pa.decimal128(10, 2)),
            "s": pa.array(["x", None]),
            "bin": pa.array([b"x", None]),
            "dt": pa.array([-1, None], pa.int32()).cast(pa.date32()),
            "ntz": pa.array([-1, None], pa.int64()).cast(pa.timestamp("us")),
            "l": pa.array([[1, None], None], pa.list_(pa.int16())),
            "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int8())),
            "st": pa.array([{"x": 1}, None], pa.struct([("x", pa.int8())])),
            "at": pa.array([1, 2], pa.int64()).cast(TIMESTAMP),
        }
    )
    _write(tmp_path, "x.parquet", table, rows_max=1)
    read = spark.read.parquet(str(tmp_path))
    assert read.schema.simpleString() == (
        "struct<b:boolean,i8:tinyint,i16:smallint,i64:bigint,f:float,d:decimal(10,2),s:string,bin:binary,"
        "dt:date,ntz:timestamp_ntz,l:array<smallint>,m:map<string,tinyint>,st:struct<x:tinyint>,at:timestamp>"
    )
    assert read.toArrow().sort_by("at").cast(table.schema).equals(table)


@pytest.mark.parametrize("step", [61, pytest.param(1, marks=pytest.mark.soak)])
def test_no_bit_of_a_file_can_flip_unseen(tmp_path: Path, step: int) -> None:
    """Every bit of a small file, or one of so many: what is read is what was written, or an error; also in the heads of
    pages, which have no checksums.
    """
    table = trades(0, 300).append_column("seen", pa.array([n % 7 == 0 if n % 5 else None for n in range(300)]))
    file = _write(tmp_path, "x.parquet", table, rows_max=150)
    path = tmp_path / file.name
    whole = path.read_bytes()
    right = pa.concat_tables(read_file(tmp_path, file, table.column_names, table.schema))
    assert right.equals(table)
    for bit in range(0, 8 * len(whole), step):
        damaged = bytearray(whole)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        try:
            found = pa.concat_tables(read_file(tmp_path, file, table.column_names, table.schema))
        except DamagedFile:
            found = right
        assert found.equals(right), f"bit {bit}"
        with pytest.raises(DamagedFile):
            verify_file(path, file)
