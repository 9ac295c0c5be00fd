"""What is kept of a node, and what it took: how far it is covered, how many rows and bytes that are, for EXPLAIN."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ladle.archive.layout import Extent
from ladle.catalog import Catalog
from ladle.catalog.store import Store
from ladle.execute.complete_answers import KeptAnswer
from ladle.execute.join_answers import CoveredPairs
from ladle.execute.node_rows import Nodes, PreparedPlan
from ladle.execute.reader import Reader
from ladle.json_values import JsonObject
from ladle.plan import Scan


@dataclass(frozen=True)
class NodeState:
    """`form` is how rows are kept: as ids or bits of tuples, as pairs, as partial aggregates."""

    covered: int
    total: int
    unit: str
    rows: int
    bytes: int
    form: str

    def __str__(self) -> str:
        kept = f": {self.rows:,} {self.form}, {self.bytes:,} bytes" if self.form else ""
        return f"{self.covered:,} of {self.total:,} {self.unit} covered{kept}"

    @property
    def coverage(self) -> JsonObject:
        """The coverage, for EXPLAIN."""
        return {"covered": self.covered, "total": self.total, "unit": self.unit}

    @property
    def kept(self) -> JsonObject:
        """What is kept, for EXPLAIN."""
        return {"rows": self.rows, "bytes": self.bytes, "form": self.form}


@dataclass(frozen=True)
class InMemory:
    """What is held of a node in memory because the answer of its query is demanded: the answer itself (of one that is
    wanted), or the rows that a scan has of the segments in its window.
    """

    covered: int
    total: int
    unit: str
    rows: int
    bytes: int

    @property
    def is_answer(self) -> bool:
        """Whether it is an answer, and that of the moment that is looked at."""
        return self.unit == ANSWERS and self.covered > 0

    def __str__(self) -> str:
        if self.unit == ANSWERS:
            what = "answer" if self.covered else "answer of another moment"
        else:
            what = f"{self.covered:,} of {self.total:,} {self.unit}"
        return f"{what} in memory: {self.rows:,} rows, {self.bytes:,} bytes"


ANSWERS = "answers"


@dataclass(frozen=True)
class Measured:
    """What a node took, and the rows that it gave."""

    rows: int
    bytes: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.rows:,} rows, {self.bytes:,} bytes, {milliseconds(self.seconds)}"


def milliseconds(seconds: float) -> str:
    """A time for people: three digits, and all of those before the point."""
    ms = seconds * 1e3
    return f"{ms:,.0f} ms" if ms >= 100 else f"{ms:.3g} ms"


def scan_state(store: Store, catalog: Catalog, reader: Reader, scan: Scan, extent: Extent) -> NodeState:
    """What is kept of a scan: which tuples of its segments match, as ids or bits, whichever is smaller in a tile."""
    covered, total = reader.count_covered(scan, extent)
    stream, block_id = catalog.stream(scan.block.stream), catalog.block_id(scan.block)
    rows = size = ids = bits = 0
    if stream is not None and block_id is not None and scan.block.factors:
        coverage = store.coverage(stream)
        for name in dict.fromkeys(stream.files[int(number)].name for number in reader.files(scan, extent)):
            results = coverage.find(name, block_id)
            if results is None:
                continue
            ((counts,), _) = results.layout(np.array([block_id]))
            counts, sizes = counts.astype(np.int64), results.tile_rows
            some = (counts > 0) & (counts < sizes)
            as_bits = some & (counts * 16 > sizes)
            as_ids = some & ~as_bits
            rows += int(counts.sum())
            size += int((-(-sizes[as_bits] // 64)).sum() * 8 + (-(-counts[as_ids] // 4)).sum() * 8)
            ids, bits = ids + int(as_ids.sum()), bits + int(as_bits.sum())
    form = " and ".join([word for word, many in (("ids", ids), ("bits", bits)) if many])
    whole = "rows" if scan.block.factors and covered else ""
    return NodeState(covered, total, "segments", rows, size, f"rows as {form}" if form else whole)


def answer_in_memory(kept: KeptAnswer, catalog: Catalog, extents: list[Extent], now_us: int | None) -> InMemory | None:
    """The answer that is held of a query."""
    held = kept.held_answer(catalog, extents, now_us)
    if held is None:
        return None
    table, current = held
    return InMemory(int(current), 1, ANSWERS, len(table), table.nbytes)


def scan_in_memory(kept: KeptAnswer, number: int, reader: Reader, scan: Scan, extent: Extent) -> InMemory | None:
    """The rows that are held of a scan, where they are what the answer is made of."""
    held = kept.held_rows(number)
    if not held:
        return None
    wanted = [(piece.file.name, piece.row_group) for piece in reader.pieces(scan, extent)]
    tables = [held[key] for key in wanted if key in held]
    rows, size = sum(map(len, tables)), sum(table.nbytes for table in tables)
    return InMemory(len(tables), len(wanted), "segments", rows, size)


def fold_states(nodes: Nodes, prepared: PreparedPlan, catalog: Catalog, extents: list[Extent]) -> dict[int, NodeState]:
    """What is kept of the nodes that partial aggregates give, by place in the tree: leaves of trees of aggregates."""
    found: dict[int, NodeState] = {}
    if prepared.folding is None:
        return found
    for node, each in zip(prepared.folding.nodes, prepared.nodes, strict=True):
        kept = nodes.aggregates.kept(each, catalog, extents[node.scan])
        if kept is not None:
            known, total, rows, size = kept
            found[node.place] = NodeState(known, total, "segments", rows, size, "partial aggregates")
    return found


def join_states(covered: list[CoveredPairs]) -> dict[tuple[int, int], NodeState]:
    """What is kept of joins that are shared, by the numbers of their scans: pairs per pair of data files."""
    return {
        (each.edge.left, each.edge.right): NodeState(
            each.covered, each.total, "pairs of data files", each.pairs, each.bytes, "pairs"
        )
        for each in covered
    }
