"""The Results Structure against plain sets of row ids."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladle.plan import Block, Factor
from ladle.stem.coverage import Coverage
from ladle.stem.query_stem import index_page, load_stem, save_page
from ladle.stem.results import DamagedResults, Results, ResultsWriter, file_names
from ladle.stem.tiles import TILE

Matches = dict[int, set[int] | None]


@st.composite
def segments(draw: st.DrawFn) -> list[tuple[int, Matches]]:
    blocks = draw(st.sets(st.integers(1, 2**62), max_size=6))
    found = []
    for rows in draw(st.lists(st.integers(1, 300), min_size=1, max_size=4)):
        ids = st.one_of(st.none(), st.sets(st.integers(0, rows - 1)))
        found.append((rows, {block: draw(ids) for block in blocks}))
    return found


def put(writer: ResultsWriter, rows: int, matches: Matches) -> None:
    """One segment of one tile, encoded by hand."""
    counts, offsets, payload = [], [], []
    for _, ids in sorted(matches.items()):
        offsets.append(writer.end + len(payload))
        counts.append(rows if ids is None else len(ids))
        if ids is None or len(ids) in (0, rows):
            continue
        if len(ids) * 16 <= rows:
            words = np.zeros(-(-len(ids) // 4), dtype=np.uint64)
            words.view(np.uint16)[: len(ids)] = sorted(ids)
        else:
            words = np.zeros(-(-rows // 64), dtype=np.uint64)
            for row in ids:
                words[row // 64] |= np.uint64(1 << row % 64)
        payload += words.tolist()
    writer.segment(rows)
    writer.write(np.array(payload, dtype=np.uint64))
    writer.tile(np.array(counts, dtype=np.uint16), np.array(offsets, dtype=np.uint32))


def writer_for(directory: Path, data_file: str, blocks: Iterable[int]) -> ResultsWriter:
    return ResultsWriter(directory, data_file, np.array(sorted(blocks), dtype=np.int64))


@given(segments())
def test_what_is_written_is_read(found: list[tuple[int, Matches]]) -> None:
    with TemporaryDirectory() as directory:
        writer = writer_for(Path(directory), "data.parquet", found[0][1])
        for rows, matches in found:
            put(writer, rows, matches)
        path = writer.finish()
        if path is None:
            assert not found[0][1]
            return
        results = Results(path)
        for number, (rows, matches) in enumerate(found):
            for block, ids in matches.items():
                assert results.covers(block)
                got = results.rows(block, number)
                everything = set(range(rows))
                assert (everything if got is None else set(got.tolist())) == (everything if ids is None else ids)
                assert results.counts(block)[number] == (rows if ids is None else len(ids))
        assert not results.covers(2**62 + 1)
        coverage = Coverage(Path(directory))
        coverage.refresh()
        assert all(coverage.find("data.parquet", block) is not None for block in found[0][1])
        path.unlink()
        assert coverage.find("other.parquet", 1) is None


def test_a_block_that_failed_on_one_segment_is_uncovered(tmp_path: Path) -> None:
    writer = writer_for(tmp_path, "data.parquet", [1, 2, 3])
    put(writer, 10, {1: None, 2: None, 3: {4}})
    put(writer, 10, {1: None, 2: None, 3: {5, 6}})
    writer.fail([2])
    path = writer.finish()
    assert path is not None
    results = Results(path)
    assert results.covers(1)
    assert not results.covers(2)
    assert results.counts(3).tolist() == [1, 2]
    rows = results.rows(3, 1)
    assert rows is not None
    assert rows.tolist() == [5, 6]


@pytest.mark.parametrize("keep", [0, 20, 40, -1])
def test_a_broken_results_file_is_uncovered(tmp_path: Path, keep: int) -> None:
    path = write(tmp_path, "data.parquet", 1)
    path.write_bytes(path.read_bytes()[:keep])
    coverage = Coverage(tmp_path)
    coverage.refresh()
    assert coverage.find("data.parquet", 1) is None
    assert not path.exists()


def test_a_foot_with_other_bytes_is_uncovered(tmp_path: Path) -> None:
    path = write(tmp_path, "data.parquet", 1, 2, 3)
    content = bytearray(path.read_bytes())
    content[0] ^= 1
    path.write_bytes(content)
    coverage = Coverage(tmp_path)
    coverage.refresh()
    assert coverage.find("data.parquet", 1) is None


def write(directory: Path, data_file: str, *blocks: int) -> Path:
    writer = writer_for(directory, data_file, blocks)
    put(writer, 10, dict.fromkeys(blocks))
    path = writer.finish()
    assert path is not None
    return path


def test_results_that_come_in_the_same_tick_are_seen(tmp_path: Path) -> None:
    """A directory's time ticks in milliseconds: a change right after a listing may leave it as it was."""
    coverage = Coverage(tmp_path)
    for number in range(50):
        coverage.refresh()
        write(tmp_path, f"{number}.parquet", number)
        coverage.refresh()
        assert coverage.find(f"{number}.parquet", number) is not None
        assert coverage.covered(f"{number}.parquet") == {number}


def test_a_directory_that_has_settled_is_not_listed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, "a.parquet", 1)
    long_ago = time.time() - 10
    os.utime(tmp_path, (long_ago, long_ago))
    listed: list[Path] = []

    def noted(path: Path) -> Iterable[str]:
        listed.append(path)
        return file_names(path)

    monkeypatch.setattr("ladle.stem.listed_directory.file_names", noted)
    coverage = Coverage(tmp_path)
    for _ in range(5):
        coverage.refresh()
    assert len(listed) == 1
    write(tmp_path, "a.parquet", 2)
    coverage.refresh()
    assert len(listed) == 2
    assert coverage.covered("a.parquet") == {1, 2}


def test_files_covered_alike_share_a_set(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        write(tmp_path, name, 1, 2)
    write(tmp_path, "c", 3)
    coverage = Coverage(tmp_path)
    coverage.refresh()
    assert coverage.covered("a") is coverage.covered("b")
    assert coverage.covered("c") == {1, 2, 3}
    (name,) = coverage.names("a")
    coverage.remove("a", name)
    assert coverage.covered("a") == frozenset()
    assert coverage.covered("nothing") == frozenset()
    assert not (tmp_path / name).exists()


def test_results_that_cannot_be_written_are_done_without(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    writer = writer_for(tmp_path / "file" / "results", "a.parquet", [1])
    put(writer, 10, {1: None})
    assert writer.finish() is None
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_results_that_are_given_up_leave_nothing(tmp_path: Path) -> None:
    writer = writer_for(tmp_path, "a.parquet", [1])
    put(writer, 10, {1: {3}})
    writer.abort()
    assert list(tmp_path.iterdir()) == []


def test_a_page_that_was_not_there_is_looked_for_again(tmp_path: Path) -> None:
    path = tmp_path / "sets" / "1-x.page"
    assert load_stem([str(path)]).blocks.tolist() == []
    save_page(path, index_page({7: Block("s", (Factor("`n` > 1", '"n" > 1', ("n",)),))}))
    assert load_stem([str(path)]).blocks.tolist() == [7]
    assert [found.name for found in path.parent.iterdir()] == ["1-x.page"]


def test_more_results_than_offsets_can_tell_are_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ladle.stem.results._WORDS_MAX", 1)
    writer = writer_for(tmp_path, "a.parquet", [1])
    for _ in range(3):
        put(writer, 100, {1: set(range(50))})
    assert writer.finish() is None
    assert list(tmp_path.iterdir()) == []


def test_rows_that_are_damaged_are_uncovered(tmp_path: Path) -> None:
    """A block whose own rows are whole is read, whatever became of another's."""
    writer = writer_for(tmp_path, "data.parquet", [1, 2])
    for _ in range(40):
        put(writer, TILE, {1: set(range(0, TILE, 3)), 2: set(range(0, TILE, 5))})
    path = writer.finish()
    assert path is not None
    whole = path.read_bytes()
    path.write_bytes(whole[:100] + bytes([whole[100] ^ 4]) + whole[101:])
    results = Results(path)
    found = [block for block in (1, 2) if _whole(results, block)]
    assert found != [1, 2]
    with pytest.raises(DamagedResults):
        results.check()
    coverage = Coverage(tmp_path)
    coverage.refresh()
    damaged = next(block for block in (1, 2) if block not in found)
    assert coverage.find("data.parquet", damaged) is None
    assert not path.exists(), "the backfill makes it anew"


def _whole(results: Results, block: int) -> bool:
    try:
        return results.has(block)
    except DamagedResults:
        return False
