"""The Query SteM by itself: how long a tuple takes to meet all queries, with predicate indexes and without.

Both alternatives write down which tuples satisfy which query, and both count them.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa

from benchmarks._workload import Selection, arrays_of, check_counts, masks_one_by_one
from ladle import sql
from ladle.eddy import Router
from ladle.engine import Database
from ladle.plan import Block
from ladle.stem.query_stem import PAGE, QueryStem, index_page
from ladle.stem.results import Results, ResultsWriter

SEGMENT = 65_536


class Probe:
    """Some queries, indexed, and the tuples they meet."""

    def __init__(self, db: Database, stream: str, selections: Sequence[Selection], table: pa.Table) -> None:
        catalog = db.catalog
        # Queries without factors are satisfied by every tuple: neither alternative has anything to do for them.
        self._selections = [selection for selection in selections if selection.intervals]
        ids: dict[Block, int] = {}
        self._ids = [
            ids.setdefault(sql.bind(selection.sql(stream), catalog).scans[0].block, len(ids))
            for selection in self._selections
        ]
        blocks = {number: block for block, number in ids.items()}
        pages: dict[int, dict[int, Block]] = {}
        for number, block in blocks.items():
            pages.setdefault(number // PAGE, {})[number] = block
        self._stem = QueryStem([index_page(page) for page in pages.values()])
        self._router = Router()
        self._segments = [table.slice(start, SEGMENT).combine_chunks() for start in range(0, len(table), SEGMENT)]
        self.rows = len(table)
        self._counts: list[int] = []

    def shared(self, scratch: Path) -> float:
        """Seconds per tuple through the index."""
        writer = ResultsWriter(scratch, "shared.parquet", self._stem.blocks)
        began = time.perf_counter()
        for segment in self._segments:
            self._stem.probe(segment, writer, self._router)
        path = writer.finish()
        seconds = time.perf_counter() - began
        assert path is not None
        results = Results(path)
        self._counts = [int(results.counts(block).sum()) for block in self._ids]
        path.unlink()
        return seconds / self.rows

    def unshared(self, scratch: Path) -> float:
        """Seconds per tuple, one query at a time; after `shared`, and checks that both found the same."""
        counts = np.zeros(len(self._selections), dtype=np.int64)
        path = scratch / "unshared.bits"
        began = time.perf_counter()
        with path.open("wb") as sink:
            for segment in self._segments:
                columns = arrays_of(segment)
                for number, mask in enumerate(masks_one_by_one(columns, self._selections)):
                    counts[number] += np.count_nonzero(mask)
                    sink.write(np.packbits(mask, bitorder="little").data)
        seconds = time.perf_counter() - began
        path.unlink()
        check_counts("predicate indexes", self._counts, counts.tolist())
        return seconds / self.rows
