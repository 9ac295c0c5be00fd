"""Results that move with their tuples, against the results of probing the new file."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.stem.test_results import put, writer_for

from ladle.stem.blocks import BlockSet
from ladle.stem.coverage import Coverage
from ladle.stem.moving import move_results
from ladle.stem.results import Results
from ladle.stem.tiles import TILE

ODD_SIZES = [1, 63, 64, 65, 300, TILE - 1, TILE]


@st.composite
def files(draw: st.DrawFn) -> list[list[int]]:
    """The sizes of the segments of some files."""
    sizes = st.one_of(st.integers(1, 200), st.sampled_from(ODD_SIZES))
    return draw(st.lists(st.lists(sizes, min_size=1, max_size=2), min_size=1, max_size=4))


@given(
    files(), st.integers(1, 2 * TILE), st.integers(0, 2**32), st.lists(st.sampled_from([0, 1e-3, 0.05, 0.5, 0.99, 1]))
)
def test_what_is_moved_is_what_was_there(
    sizes: list[list[int]], rows_max: int, seed: int, densities: list[float]
) -> None:
    random = np.random.default_rng(seed)
    blocks = [-3, *range(1, 1 + len(densities))]
    with TemporaryDirectory() as directory:
        there: dict[int, list[np.ndarray]] = {block: [] for block in blocks}
        for number, own in enumerate(sizes):
            masks = {
                block: [random.random(rows) < density for rows in own]
                for block, density in zip(blocks, [0.3, *densities], strict=True)
            }
            # Two results files, which share a block; and one that only the first file has.
            for some in (blocks[:2], [*blocks[1:], *([99] if number == 0 else [])]):
                writer = writer_for(Path(directory), f"{number}.parquet", some)
                for at, rows in enumerate(own):
                    put(writer, rows, {b: set(np.flatnonzero(masks.get(b, masks[-3])[at]).tolist()) for b in some})
                writer.finish()
            for block in blocks:
                there[block] += masks[block]
        total = sum(rows for own in sizes for rows in own)
        segments = [min(rows_max, total - start) for start in range(0, total, rows_max)]
        coverage = Coverage(Path(directory))
        coverage.refresh()
        names = [f"{number}.parquet" for number in range(len(sizes))]
        path = move_results(
            coverage, Path(directory), names, "new.parquet", segments, BlockSet.of([*blocks[1:], 2, 99])
        )
        assert path is not None
        moved = Results(path)
        assert moved.covered.tolist() == (blocks if len(sizes) > 1 else [*blocks, 99])
        assert moved.segment_rows.tolist() == segments
        for block in blocks:
            assert np.array_equal(moved.mask(block), np.concatenate(there[block]))


def test_nothing_is_written_where_one_file_is_uncovered(tmp_path: Path) -> None:
    writer = writer_for(tmp_path, "a.parquet", [1])
    put(writer, 3, {1: {0}})
    writer.finish()
    coverage = Coverage(tmp_path)
    coverage.refresh()
    assert move_results(coverage, tmp_path, ["a.parquet", "b.parquet"], "new.parquet", [6], BlockSet.of([1])) is None
    assert len(list(tmp_path.iterdir())) == 1
