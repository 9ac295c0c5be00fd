"""One invocation of a node that partial aggregates give: what is prepared for it, and what it takes of a stream."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping

from ladle.archive.layout import Extent, Layout
from ladle.catalog import Catalog, StreamState
from ladle.execute.partials import Columns, KeyColumns, Leaf, Tree, TreeNode
from ladle.operators.aggregates import COMBINE, EMPTY, finisher
from ladle.plan import Scan
from ladle.plan.answering import FoldedNode

GroupsKey = tuple[int, KeyColumns, tuple[str, ...]]
"""A block, what its rows are grouped by, and the partials."""
TreeKey = tuple[int, str] | GroupsKey


def key_of_all(stream: StreamState) -> int:
    """What partials of all tuples of a stream are kept under, as if that were a block: no block has such a number."""
    return -stream.id


class Prepared:
    """What does not change from one invocation of a node to the next."""

    def __init__(self, scan: Scan, node: FoldedNode) -> None:
        self.aggregate = aggregate = node.aggregate
        self.schema = schema = node.schema
        self.scan = scan
        self.folds = tuple(
            (partial.fold, name, partial.column, COMBINE[partial.fold], EMPTY[partial.fold])
            for partial, name in zip(aggregate.partials, aggregate.names, strict=True)
        )
        self.columns = tuple({partial.column: None for partial in aggregate.partials if partial.column is not None})
        self.needed = frozenset(self.columns)
        outputs = () if aggregate.is_grouped else tuple(zip(aggregate.outputs, schema, strict=True))
        self.finishers = [finisher(aggregate, output, field.type) for output, field in outputs]
        self._queries: Mapping[str, object] | None = None
        self._block_id: int | None = None

    def block_id(self, catalog: Catalog, stream: StreamState) -> int | None:
        """The id under which the block's partials are kept; None when it does not stand."""
        if not self.scan.block.factors:
            return key_of_all(stream)
        if self._block_id is None or self._queries is not catalog.queries:
            self._block_id = catalog.block_id(self.scan.block)
            self._queries = catalog.queries
        return self._block_id


Edge = tuple[int, int, int | None]
"""A segment that is not wholly inside: rows before the second number, and from the third on, are outside."""


def _until(
    layout: Layout, runs: list[tuple[int, int]], edges: list[Edge], last_row: int
) -> tuple[list[tuple[int, int]], list[Edge]]:
    """What a window takes of the first `last_row` tuples of a stream."""
    at = bisect_right(layout.order.ends, last_row)
    rows = last_row - (layout.order.ends[at - 1] if at else 0)
    whole = [(first, min(last, at)) for first, last in runs if first < at]
    cut: list[Edge] = [edge for edge in edges if edge[0] < at]
    if rows:
        cut += [(at, 0, rows) for first, last in runs if first <= at < last]
        cut += [(at, skip, rows) for number, skip, _ in edges if number == at and skip < rows]
    return whole, cut


class Ask:
    """One invocation: its window in a stream's layout, and what it lacks so far."""

    def __init__(
        self,
        prepared: Prepared,
        stream: StreamState,
        block_id: int,
        extent: Extent,
        layout: Layout,
    ) -> None:
        self.prepared = prepared
        self.stream = stream
        self.block_id = block_id
        self.extent = extent
        self.layout = layout
        # Its cut is that of all who ask for this window; what had not arrived yet is taken off.
        next_id = extent.next_id
        self.cut = layout.cut(extent if next_id is None else extent._replace(next_id=None))
        self.runs: list[tuple[int, int]] = self.cut.runs
        self.edges: list[Edge] = [(at, skip, None) for at, skip in self.cut.edges]
        if next_id is not None and next_id < stream.rows:
            self.runs, self.edges = _until(layout, self.runs, self.edges, layout.place(next_id))
        self.unknown: set[int] = set()
        """Segments whose leaves are not known."""
        self.lacking: set[int] = set()
        """Segments at the edges that lack something."""
        # What this invocation uses, though it be evicted meanwhile.
        self.trees: dict[TreeKey, Tree[TreeNode]] = {}
        self.columns: dict[int, Columns] = {}
        self.leaves: dict[int, Leaf] = {}
