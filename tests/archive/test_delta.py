"""The Delta table against the log's list of files, read with other tools and after interruptions."""

from __future__ import annotations

import json
import os
import shutil
import time
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, write_deltalake
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.archive.strategies import TRADES, tables, trades

from ladle.archive.compaction import compact
from ladle.archive.delta_table import DeltaFollower
from ladle.archive.scan import ArchiveSource
from ladle.archive.segments import DataFile, SegmentWriter
from ladle.errors import WarehouseError


def _write(root: Path, name: str, table: pa.Table, epoch: int) -> DataFile:
    root.mkdir(exist_ok=True)
    with SegmentWriter(root, name, table.schema, "at") as writer:
        writer.add(table)
        written = writer.finish()
    assert written is not None
    return DataFile(written.name, written.bytes, 0, epoch, epoch, written.segments)


def _epochs(root: Path, count: int, first: int = 0) -> list[DataFile]:
    return [_write(root, f"e{n}.parquet", trades(n * 10, 10), n) for n in range(first, first + count)]


def _follower(root: Path) -> DeltaFollower:
    return DeltaFollower(root, ts_column="at")


def _numbers(root: Path) -> list[int]:
    table = DeltaTable(root).to_pyarrow_table()
    return sorted(int(price * 4) for price in table.column("price").to_pylist())


def _commits(root: Path) -> list[list[dict[str, Any]]]:
    paths = sorted((root / "_delta_log").glob("*.json"))
    return [[json.loads(line) for line in path.read_text().splitlines()] for path in paths]


def test_follows_epoch_by_epoch(tmp_path: Path) -> None:
    follower = _follower(tmp_path)
    assert follower.position() == 0
    follower.follow(1, TRADES, [])
    assert follower.position() == 1
    assert _numbers(tmp_path) == []
    files: list[DataFile] = []
    for epoch in range(3):
        files += _epochs(tmp_path, 1, epoch)
        follower.follow(epoch + 2, TRADES, files)
        assert follower.position() == epoch + 2
        assert _numbers(tmp_path) == list(range((epoch + 1) * 10))
        assert DeltaTable(tmp_path).transaction_version("ladle") == epoch + 2


def test_nothing_to_do_commits_nothing_but_advances(tmp_path: Path) -> None:
    files, follower = _epochs(tmp_path, 2), _follower(tmp_path)
    follower.follow(5, TRADES, files)
    follower.follow(9, TRADES, files)
    assert follower.position() == 9
    assert DeltaTable(tmp_path).version() == 0
    again = _follower(tmp_path)
    assert again.position() == 5
    again.follow(9, TRADES, files)
    assert (again.position(), DeltaTable(tmp_path).version()) == (9, 0)


def test_a_late_call_changes_nothing(tmp_path: Path) -> None:
    files, follower = _epochs(tmp_path, 3), _follower(tmp_path)
    follower.follow(8, TRADES, files)
    follower.follow(7, TRADES, files[:2])
    assert follower.position() == 8
    assert _numbers(tmp_path) == list(range(30))


def test_a_log_put_back_takes_the_table_back(tmp_path: Path) -> None:
    files = _epochs(tmp_path, 3)
    _follower(tmp_path).follow(8, TRADES, files)
    follower = _follower(tmp_path)
    follower.follow(7, TRADES, files[:2])
    assert follower.position() == 7
    assert _numbers(tmp_path) == list(range(20))
    assert _follower(tmp_path).position() == 7


def test_a_position_goes_back_also_when_no_file_does(tmp_path: Path) -> None:
    files = _epochs(tmp_path, 1)
    _follower(tmp_path).follow(8, TRADES, files)
    _follower(tmp_path).follow(7, TRADES, files)
    assert _follower(tmp_path).position() == 7


def test_delta_s_own_log_stays_small(tmp_path: Path) -> None:
    """Old commits go when the next of Delta's checkpoints (every hundred commits) is written."""
    files, follower = _epochs(tmp_path, 2), _follower(tmp_path)
    log = tmp_path / "_delta_log"
    for seq in range(1, 230):
        follower.follow(seq, TRADES, files[seq % 2 :])
        if seq == 150:
            for path in log.iterdir():
                os.utime(path, (time.time() - 7_200,) * 2)
    assert len(list(log.iterdir())) < 180
    assert _follower(tmp_path).position() == 229
    assert _numbers(tmp_path) == list(range(10, 20))


def test_compaction_is_no_change_of_data(tmp_path: Path) -> None:
    files, follower = _epochs(tmp_path, 4), _follower(tmp_path)
    follower.follow(4, TRADES, files)
    one = compact(ArchiveSource(tmp_path, TRADES, "at"), files[:2], "one.parquet", 65_536)
    # In the same step an epoch arrives, and retention lets the last of the old files go.
    arrived = _epochs(tmp_path, 1, 4)
    follower.follow(6, TRADES, [one, files[2], *arrived])
    changes = {
        action[kind]["path"]: action[kind]["dataChange"]
        for action in _commits(tmp_path)[-1]
        for kind in ("add", "remove")
        if kind in action
    }
    assert changes == {
        "one.parquet": False,
        "e0.parquet": False,
        "e1.parquet": False,
        "e3.parquet": True,
        "e4.parquet": True,
    }
    for file in (*files[:2], files[3]):
        (tmp_path / file.name).unlink()
    assert _numbers(tmp_path) == [*range(30), *range(40, 50)]


def test_columns_are_added(tmp_path: Path) -> None:
    files = _epochs(tmp_path, 1)
    follower = _follower(tmp_path)
    follower.follow(1, TRADES, files)
    schema = TRADES.append(pa.field("local", pa.timestamp("us"))).append(pa.field("tiny", pa.int8()))
    follower.follow(2, schema, files)
    assert follower.position() == 2
    table = DeltaTable(tmp_path)
    assert table.to_pyarrow_table().schema.names == schema.names
    assert "timestampNtz" in (table.protocol().reader_features or [])
    wider = trades(10, 10).append_column("local", pa.array([datetime(2024, 1, 1)] * 10, pa.timestamp("us")))
    files.append(_write(tmp_path, "w.parquet", wider.append_column("tiny", pa.array([7] * 10, pa.int8())), 2))
    _follower(tmp_path).follow(3, schema, files)
    assert DeltaTable(tmp_path).to_pyarrow_table().column("tiny").null_count == 10
    dataset = DeltaTable(tmp_path).to_pyarrow_dataset()
    assert dataset.to_table(filter=ds.field("tiny").is_null()).num_rows == 10
    assert dataset.to_table(filter=ds.field("tiny") == 7).num_rows == 10


@pytest.mark.parametrize("nested", [pa.list_, lambda type_: pa.map_(pa.string(), pa.struct([("x", type_)]))])
def test_a_local_time_within_a_nested_column(tmp_path: Path, nested: Any) -> None:
    """Which deltalake does not notice by itself, at creation or later."""
    schema = TRADES.append(pa.field("n1", nested(pa.timestamp("us"))))
    file = _write(
        tmp_path, "x.parquet", trades(0, 10).append_column(schema.field("n1"), pa.nulls(10, schema.field("n1").type)), 1
    )
    _follower(tmp_path).follow(1, schema, [file])
    assert (_follower(tmp_path).position(), _numbers(tmp_path)) == (1, list(range(10)))
    shutil.rmtree(tmp_path / "_delta_log")
    follower = _follower(tmp_path)
    follower.follow(1, TRADES, [])
    follower.follow(2, schema, [file])
    assert (_follower(tmp_path).position(), _numbers(tmp_path)) == (2, list(range(10)))
    assert DeltaTable(tmp_path).schema().to_arrow().names == schema.names


@pytest.mark.parametrize("step", ["_add_columns", "_replace_files"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_killed_between_any_two_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, when: str) -> None:
    files = _epochs(tmp_path, 2)
    schema = TRADES.append(pa.field("venue", pa.string()))
    _follower(tmp_path).follow(1, TRADES, files[:1])
    real = getattr(DeltaFollower, step)

    class Killed(BaseException):
        pass

    def killed(*arguments: Any) -> None:
        if when == "after":
            real(*arguments)
        raise Killed

    with monkeypatch.context() as patch:
        patch.setattr(DeltaFollower, step, killed)
        with pytest.raises(Killed):
            _follower(tmp_path).follow(2, schema, files)
    # It may lag, it never leads: the position is told only with the files that belong to it.
    position = _follower(tmp_path).position()
    assert position == (2 if (step, when) == ("_replace_files", "after") else 1)
    assert _numbers(tmp_path) == list(range(10 * position))
    _follower(tmp_path).follow(2, schema, files)
    assert _follower(tmp_path).position() == 2
    assert _numbers(tmp_path) == list(range(20))
    assert DeltaTable(tmp_path).schema().to_arrow().names == schema.names


@pytest.mark.parametrize("restart", [True, False])
@pytest.mark.parametrize("harm", ["delete", "empty", "garble", "foreign"])
def test_a_harmed_table_is_rebuilt(tmp_path: Path, harm: str, *, restart: bool) -> None:
    files, follower = _epochs(tmp_path, 3), _follower(tmp_path)
    for seq in (1, 2, 3):
        follower.follow(seq, TRADES, files[:seq])
    log = tmp_path / "_delta_log"
    match harm:
        case "delete":
            shutil.rmtree(log)
        case "empty":
            shutil.rmtree(log)
            log.mkdir()
        case "garble":
            restart = True  # a running follower notices only when it reads
            (log / f"{1:020d}.json").write_text("{")
        case "foreign":
            write_deltalake(tmp_path, trades(900, 3), mode="append")
    if restart:
        follower = _follower(tmp_path)
    files += _epochs(tmp_path, 1, 3)
    follower.follow(4, TRADES, files)
    assert follower.position() == 4
    assert _numbers(tmp_path) == list(range(40))
    assert DeltaTable(tmp_path).transaction_version("ladle") == 4


def test_a_failure_is_told_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files, follower = _epochs(tmp_path, 2), _follower(tmp_path)
    follower.follow(1, TRADES, files[:1])

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(DeltaTable, "create_write_transaction", full)
        with pytest.raises(WarehouseError, match="rolled forward") as caught:
            follower.follow(2, TRADES, files)
        assert "commits don't depend on it" in str(caught.value)
    assert follower.position() == 1
    follower.follow(2, TRADES, files)
    assert follower.position() == 2
    assert _numbers(tmp_path) == list(range(20))


@given(table=tables(rows_max=8), named=st.booleans())
@settings(max_examples=25, deadline=None)
def test_every_type_is_read_by_other_tools(table: pa.Table, named: bool) -> None:
    if table.num_rows == 0:
        return
    with TemporaryDirectory() as place:
        root = Path(place)
        file = _write(root, "x.parquet", table, 1)
        DeltaFollower(root, ts_column="at" if named else None).follow(1, table.schema, [file])
        opened = DeltaTable(root)
        assert opened.to_pyarrow_table().select(table.schema.names).cast(table.schema).equals(table)
        (path,) = opened.file_uris()
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            read = connection.sql(f"SELECT * FROM read_parquet('{path}')").to_arrow_table()
        assert read.cast(table.schema).equals(table)
        dataset = opened.to_pyarrow_dataset()
        for field in table.schema:
            # No filter loses a row, whatever a column's statistics could not say.
            nulls = dataset.to_table(filter=ds.field(field.name).is_null()).num_rows
            assert nulls == table.column(field.name).null_count
            if not pa.types.is_nested(field.type):
                for value in table.column(field.name).drop_null().unique()[:3]:
                    assert dataset.to_table(filter=ds.field(field.name) == value).num_rows > 0


def test_pandas_and_duckdb_while_ladle_runs(tmp_path: Path) -> None:
    files, follower = _epochs(tmp_path, 3), _follower(tmp_path)
    for seq in (1, 2, 3):
        follower.follow(seq, TRADES, files[:seq])
        frame = DeltaTable(tmp_path).to_pandas()
        assert sorted(frame["price"] * 4) == list(range(seq * 10))
        dataset = DeltaTable(tmp_path).to_pyarrow_dataset()
        with duckdb.connect() as connection:
            connection.register("trades", dataset)
            query = "SELECT count(*), max(price) FROM trades WHERE symbol = 'S0' AND size > 0"
            expected = [n for n in range(seq * 10) if n % 7 == 0 and n % 5 != 0]
            assert connection.sql(query).fetchall() == [(len(expected), max(expected) / 4)]


def test_files_are_skipped_by_time(tmp_path: Path) -> None:
    _follower(tmp_path).follow(1, TRADES, _epochs(tmp_path, 3))
    dataset = DeltaTable(tmp_path).to_pyarrow_dataset()
    late = ds.field("at") > datetime.fromtimestamp(25, UTC)
    assert len(list(dataset.get_fragments(filter=late))) == 1
    assert dataset.to_table(filter=late).num_rows == 4


def test_cheap_with_many_files(tmp_path: Path) -> None:
    """Ten thousand names of one file: a step reads no footer, lists no directory, and takes milliseconds."""
    (file,) = _epochs(tmp_path, 1)
    files = [DataFile(f"f{n}.parquet", file.bytes, 0, n, n, file.segments) for n in range(10_000)]
    for number in (*range(3), 9_999):
        os.link(tmp_path / file.name, tmp_path / f"f{number}.parquet")
    follower = _follower(tmp_path)
    follower.follow(1, TRADES, files[:-1])
    started = _cpu()
    follower.follow(2, TRADES, files)
    assert _cpu() - started < 0.5
    started = _cpu()
    follower.follow(3, TRADES, files)
    assert _cpu() - started < 0.1
    again = _follower(tmp_path)
    started = _cpu()
    assert again.position() == 2
    assert _cpu() - started < 1


def _cpu() -> float:
    times = os.times()
    return times.user + times.system
