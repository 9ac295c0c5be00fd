"""Results move with their tuples: when data files are put together, so is what is known of them, without evaluation.

Tuples keep their order, so the rows of a block in the new file are those of the old ones, one after the other; only the
tiles are cut anew. A block is covered on the new file when it was on all of the old ones; for the others the backfill
covers it, like anything that is missing. So it is with the pairs of joins: tuples get other numbers, and that is all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import numpy as np

from ladle.stem.blocks import BlockIds, BlockSet, candidates
from ladle.stem.coverage import Coverage
from ladle.stem.data_stem import Pairs
from ladle.stem.masks import SPARED, TRUE, FactorMask, States, write_masks
from ladle.stem.pairs import Cover, FoundPairs, MappedPair
from ladle.stem.results import Results, ResultsWriter
from ladle.stem.tiles import TILE, WORDS, Array

_BLOCKS_AT_ONCE = 4_096
_PAYLOAD_WORDS = 1 << 17


def move_results(
    coverage: Coverage, directory: Path, files: Sequence[str], name: str, segments: Sequence[int], wanted: BlockSet
) -> Path | None:
    """Write the results of a data file that has the tuples of others, in their order, in segments of so many rows; None
    when none of the wanted blocks is covered on all of them.
    """
    known = [coverage.results(file) for file in files]
    covered = [BlockSet.union([BlockSet(np.array(each.covered)) for each in results]) for results in known]
    with_candidates = BlockSet.of([*wanted, *candidates(wanted.ids).tolist()])
    blocks = reduce(BlockSet.__and__, covered, with_candidates).ids
    if not len(blocks):
        return None
    writer = ResultsWriter(directory, name, blocks)
    try:
        _Move(known, segments).run(blocks, writer)
    except BaseException:
        writer.abort()
        raise
    return writer.finish()


class _Move:
    """What is kept of some data files, on its way to the tiles of one."""

    def __init__(self, known: Sequence[Sequence[Results]], segments: Sequence[int]) -> None:
        self._known = known
        self._segments = segments
        self._starts, self._stops = _tiles(segments)
        self._bounds = np.cumsum(np.concatenate([[0], *(results[0].tile_rows for results in known)]))
        payloads = [each.payload for results in known for each in results]
        self._begins = np.cumsum([0, *map(len, payloads)]).tolist()
        """Where the payload of each results file begins among all of them."""
        self._words = np.concatenate([*payloads, np.zeros(1, dtype=np.uint64)])

    def run(self, blocks: BlockIds, writer: ResultsWriter) -> None:
        from ladle.stem import kernels

        tiles = len(self._starts)
        counts = np.empty((len(blocks), tiles), dtype=np.uint16)
        offsets = np.empty((len(blocks), tiles), dtype=np.uint32)
        lineage = np.zeros(WORDS, dtype=np.uint64)
        payload = np.zeros(max(_PAYLOAD_WORDS, tiles * (WORDS + 4)), dtype=np.uint64)
        for at in range(0, len(blocks), _BLOCKS_AT_ONCE):
            some = slice(at, at + _BLOCKS_AT_ONCE)
            old_counts, old_offsets = self._gathered(blocks[some])
            block = 0
            while block < len(old_counts):
                block, used = kernels.move(
                    block, self._words, self._bounds, old_counts, old_offsets, self._starts, self._stops, lineage,
                    counts[some], offsets[some], writer.end, payload,
                )  # fmt: skip
                writer.write(payload[:used])
        for rows in self._segments:
            writer.segment(rows)
        for tile in range(tiles):
            writer.tile(counts[:, tile], offsets[:, tile])

    def _gathered(self, blocks: BlockIds) -> tuple[Array, Array]:
        """The counts of some blocks in all old tiles, and where their rows begin."""
        counts: list[Array] = []
        offsets: list[Array] = []
        begins = iter(self._begins)
        for results in self._known:
            shape = len(blocks), len(results[0].tile_rows)
            own_counts, own_offsets = np.zeros(shape, dtype=np.uint16), np.zeros(shape, dtype=np.int64)
            for each in results:
                begin = next(begins)
                own = np.isin(blocks, each.covered)
                own_counts[own], own_offsets[own] = each.layout(blocks[own])
                own_offsets[own] += begin
            counts.append(own_counts)
            offsets.append(own_offsets)
        return np.concatenate(counts, axis=1), np.concatenate(offsets, axis=1)


def _tiles(segments: Sequence[int]) -> tuple[Array, Array]:
    """Where the tiles of some segments begin and end."""
    starts: list[int] = []
    stops: list[int] = []
    before = 0
    for rows in segments:
        for start in range(0, rows, TILE):
            starts.append(before + start)
            stops.append(before + min(start + TILE, rows))
        before += rows
    return np.array(starts, dtype=np.int64), np.array(stops, dtype=np.int64)


def move_masks(
    coverage: Coverage, directory: Path, files: Mapping[str, int], name: str, lacking: Mapping[str, frozenset[int]]
) -> None:
    """Keep what dear factors have said of a data file's parts, which are given by name with their numbers of tuples.
    `lacking` has the factors of blocks that are not covered on all parts, with those blocks.
    """
    found: dict[str, FactorMask] = {}
    known = {file: coverage.masks(file) for file in files}
    for sql, blocks in lacking.items():
        states = [
            known[file][sql].known_to(blocks) if sql in known[file] else _decided(coverage, file, blocks, rows)
            for file, rows in files.items()
        ]
        padded = [np.pad(own, (0, rows - len(own))) for own, rows in zip(states, files.values(), strict=True)]
        mask = FactorMask(np.concatenate(padded), blocks)
        if mask.states.any():
            found[sql] = mask
    if found:
        write_masks(directory, name, found)


def _decided(coverage: Coverage, file: str, blocks: frozenset[int], rows: int) -> States:
    """What is known of a factor where all blocks that have it are covered: it holds for their tuples, and about others
    nobody has to ask it.
    """
    states = np.full(rows, SPARED, dtype=np.uint8)
    for block in blocks:
        results = coverage.find(file, block)
        if results is None:
            return np.zeros(rows, dtype=np.uint8)
        states[results.mask(block)] = TRUE
    return states


@dataclass(frozen=True)
class MovedPairs:
    """What is known of one pair of data files, which are now parts of others, and where they begin in those."""

    entry: MappedPair
    left_start: int
    right_start: int


def move_pairs(cover: Cover, parts: Sequence[MovedPairs]) -> FoundPairs | None:
    """The pairs of two data files, from those of all their parts that can have any; None where the functions of a
    block were postponed on some parts alone.
    """
    postponed = {key for part in parts for key in part.entry.lineages}
    if any(part.entry.lineages != postponed for part in parts):
        return None
    lefts = np.concatenate([part.entry.left.astype(np.int64) + part.left_start for part in parts])
    rights = np.concatenate([part.entry.right.astype(np.int64) + part.right_start for part in parts])
    order = np.argsort(lefts, kind="stable")
    lineages = {
        (side, block): np.unique(
            np.concatenate(
                [
                    part.entry.lineage_of(side, block).astype(np.int64)
                    + (part.right_start if side else part.left_start)
                    for part in parts
                ]
            )
        )
        for side, block in postponed
    }
    return FoundPairs(cover, Pairs(lefts[order], rights[order]), lineages)
