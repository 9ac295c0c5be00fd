"""The Query SteM (PSoup section 4.2.2): all blocks that stand on one stream, probed by chunks of tuples.

Distinct factors are evaluated once per chunk; a block's matches are the AND of its factors. A factor that raises or
does not end leaves its blocks out of the answer, which makes them uncovered there and nothing else.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import pyarrow as pa

from ladle.archive.files import temporary_path
from ladle.evaluate import Failure, evaluate_factors
from ladle.plan import Block, Factor
from ladle.stem.results import RowIds


@dataclass(frozen=True)
class Probe:
    """For each block that could be evaluated its row ids (None: all rows); for the others the reason."""

    matches: dict[int, RowIds | None]
    failures: dict[int, Failure]


class QueryStem:
    """Blocks by id."""

    def __init__(self, blocks: Mapping[int, Block]) -> None:
        self.blocks = dict(blocks)
        self._factors = list({f.sql: f for block in self.blocks.values() for f in block.factors}.values())

    def without(self, block_ids: Iterable[int]) -> QueryStem:
        gone = set(block_ids)
        return QueryStem({block_id: block for block_id, block in self.blocks.items() if block_id not in gone})

    def probe(self, table: pa.Table, *, seconds_max: float | None = None) -> Probe:
        result = evaluate_factors(table, self._factors, seconds_max=seconds_max)
        probe = Probe({}, {})
        for block_id, block in self.blocks.items():
            failed = next((f.sql for f in block.factors if f.sql in result.failures), None)
            if failed is not None:
                probe.failures[block_id] = result.failures[failed]
            elif not block.factors:
                probe.matches[block_id] = None
            else:
                mask = result.masks[block.factors[0].sql]
                for factor in block.factors[1:]:
                    mask = mask & result.masks[factor.sql]
                probe.matches[block_id] = np.flatnonzero(mask).astype(np.uint32)
        return probe


def save_blocks(path: Path, blocks: Mapping[int, Block]) -> None:
    """Write a query set for the workers; it is derived, so it needs no fsync, but must appear whole."""
    value = [
        [block_id, block.stream, [[f.sql, f.duckdb, list(f.columns)] for f in block.factors]]
        for block_id, block in blocks.items()
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = temporary_path(path)
    partial.write_text(json.dumps(value))
    partial.replace(path)


def load_stem(path: str) -> QueryStem:
    """The query set of a file, read once per worker process. A file that is gone covers nothing, this time."""
    try:
        return _read_stem(path)
    except FileNotFoundError:
        return QueryStem({})


@lru_cache(maxsize=8)
def _read_stem(path: str) -> QueryStem:
    value = json.loads(Path(path).read_text())
    return QueryStem(
        {
            block_id: Block(stream, tuple(Factor(sql, duckdb, tuple(columns)) for sql, duckdb, columns in factors))
            for block_id, stream, factors in value
        }
    )
