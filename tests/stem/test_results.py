"""The Results Structure against plain sets of row ids."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from ladle.stem.coverage import Coverage
from ladle.stem.results import Results, ResultsBuilder

Matches = dict[int, set[int] | None]


@st.composite
def segments(draw: st.DrawFn) -> list[tuple[int, Matches]]:
    blocks = draw(st.sets(st.integers(1, 2**62), max_size=6))
    found = []
    for rows in draw(st.lists(st.integers(1, 300), min_size=1, max_size=4)):
        ids = st.one_of(st.none(), st.sets(st.integers(0, rows - 1)))
        found.append((rows, {block: draw(ids) for block in blocks}))
    return found


@given(segments())
def test_what_is_written_is_read(found: list[tuple[int, Matches]]) -> None:
    builder = ResultsBuilder()
    for number, (rows, matches) in enumerate(found):
        encoded = {b: None if ids is None else np.array(sorted(ids), dtype=np.uint32) for b, ids in matches.items()}
        builder.add(number, rows, encoded)
    with TemporaryDirectory() as directory:
        path = builder.write(Path(directory), "data.parquet")
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
        assert not results.covers(2**62 + 1)
        coverage = Coverage(Path(directory))
        coverage.refresh()
        assert all(coverage.find("data.parquet", block) is not None for block in found[0][1])
        path.unlink()
        assert coverage.find("other.parquet", 1) is None


def test_a_block_that_failed_on_one_segment_is_uncovered() -> None:
    builder = ResultsBuilder()
    builder.add(0, 10, {1: None, 2: None})
    builder.add(1, 10, {1: None})
    with TemporaryDirectory() as directory:
        path = builder.write(Path(directory), "data.parquet")
        assert path is not None
        results = Results(path)
        assert results.covers(1)
        assert not results.covers(2)


def test_a_broken_results_file_is_uncovered() -> None:
    builder = ResultsBuilder()
    builder.add(0, 10, {1: None})
    with TemporaryDirectory() as directory:
        path = builder.write(Path(directory), "data.parquet")
        assert path is not None
        path.write_bytes(path.read_bytes()[:40])
        coverage = Coverage(Path(directory))
        coverage.refresh()
        assert coverage.find("data.parquet", 1) is None
