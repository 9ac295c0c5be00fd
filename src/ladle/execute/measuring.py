"""EXPLAIN ANALYZE per node: each node of a tree is run by itself, over the rows that its children gave.

An answer runs its nodes together where it can, so the sum of these is more than what the answer takes; what each is
worth beside the others shows. A node that has state gives it, as in an answer.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from ladle import sql
from ladle.archive.layout import Extent
from ladle.catalog import Catalog
from ladle.config import Settings
from ladle.errors import EvaluationError, LadleError
from ladle.evaluate import duck
from ladle.evaluate.residual import parameters
from ladle.execute.deadline import seconds_left
from ladle.execute.join_answers import Joins
from ladle.execute.node_rows import Nodes
from ladle.execute.node_state import Measured
from ladle.execute.plan_tree import given_nodes
from ladle.execute.reader import Reader
from ladle.plan import Plan, SharedJoin
from ladle.plan.answering import FoldedNode
from ladle.plan.as_of import Nows
from ladle.plan.nodes import GroupBy, Join, JoinKind, Node, Project, StreamScan, TableScan, leaves, walk
from ladle.plan.rendering import fused


class _NotMeasured(Exception):
    """A node that is not run here, and so none above it is."""


_Rows = tuple[pa.Table, Mapping[int, str]]
"""Rows, and the names of their columns by position in the node."""


class Measuring:
    """Runs the nodes of one plan, as of one snapshot."""

    def __init__(
        self,
        settings: Settings,
        nodes: Nodes,
        joins: Joins,
        plan: Plan,
        catalog: Catalog,
        reader: Reader,
        extents: Sequence[Extent],
        tables: Mapping[str, pa.Table],
        nows: Nows,
    ) -> None:
        self._settings = settings
        self._nodes = nodes
        self._joins = joins
        self._plan = plan
        self._catalog = catalog
        self._reader = reader
        self._extents = extents
        self._tables = tables
        self._nows = nows
        self._prepared = nodes.prepared(plan, catalog)
        self._known: dict[int, _Rows] = {}
        self._columns: dict[int, Mapping[int, str]] = {}
        self._folded: Mapping[int, FoldedNode] = {}
        self.found: dict[str, Measured] = {}
        """By the digests of nodes. Those that are missing were not run by themselves."""

    def run(self, tree: Node) -> Mapping[str, Measured]:
        """Run each node of a tree by itself; what each gave, and what it took, by digest."""
        folding = self._prepared.folding
        self._folded = given_nodes(tree, folding)
        try:
            if folding is not None and folding.above is None and self._gives(tree, 0) is not None:
                if isinstance(tree, Project):
                    self.found[tree.child.digest] = self.found[tree.digest]
            else:
                self._rows(tree)
        except (_NotMeasured, LadleError, pa.ArrowException):
            pass  # what raises, or takes Spark, has been told by the answer itself
        return self.found

    def _rows(self, node: Node) -> _Rows:
        known = self._known.get(id(node))
        if known is None:
            known = self._known[id(node)] = self._given(node) or self._timed(node, self._work(node))
        return known

    def _timed(self, node: Node, work: Callable[[], pa.Table]) -> _Rows:
        began = time.perf_counter()
        table = work()
        self.found[node.digest] = Measured(len(table), table.nbytes, time.perf_counter() - began)
        return table, self._columns[id(node)]

    def _given(self, node: Node) -> _Rows | None:
        """The rows of a node that has state."""
        if isinstance(node, Join):
            shared = self._shared(node)
            return None if shared is None else self._pairs(node, shared)
        folding = self._prepared.folding
        if folding is None or folding.above is None or not isinstance(node, GroupBy):
            return None
        given = self._folded.get(id(node))
        table = None if given is None else self._gives(node, folding.nodes.index(given))
        return None if table is None else (table, dict(enumerate(table.schema.names)))

    def _gives(self, node: Node, number: int) -> pa.Table | None:
        assert self._prepared.folding is not None
        extent = self._extents[self._prepared.folding.nodes[number].scan]
        began = time.perf_counter()
        table = self._nodes.aggregates.rows(self._prepared.nodes[number], self._catalog, self._reader, extent)
        if table is not None:
            self.found[node.digest] = Measured(len(table), table.nbytes, time.perf_counter() - began)
        return table

    def _work(self, node: Node) -> Callable[[], pa.Table]:
        """What gives a node's rows, after its children have given theirs; the names of its columns are noted."""
        match node:
            case StreamScan():
                return self._scan(node)
            case TableScan():
                return self._table(node)
        inputs = [self._rows(child) for child in (fused(node) or node).children]
        if isinstance(node, Project) and fused(node) is None and all(each.column for each in node.outputs):
            table, columns = inputs[0]
            picked = [columns[each.columns[0][1]] for each in node.outputs]
            names = self._columns[id(node)] = {at: f"c{at}" for at in range(len(picked))}
            return lambda: pa.Table.from_arrays([table.column(name) for name in picked], names=list(names.values()))
        return self._computed(node, inputs)

    def _shared(self, node: Join) -> SharedJoin | None:
        """The shared join that this and those below it are, if pairs give all that it says."""
        below = list(walk(node))
        joins = [each for each in below if isinstance(each, Join) and each.kind is JoinKind.INNER]
        scans = [each for each in below if isinstance(each, StreamScan)]
        if self._plan.joined is None or len(joins) + len(scans) < len(below) or any(each.condition for each in joins):
            return None
        wanted = {self._number(scan) for scan in scans}
        shared = next((each for each in self._plan.joined.joins if set(each.scans) == wanted), None)
        told = sum(len(each.comparisons) for each in joins)
        found = 0 if shared is None else sum(len(edge.pair.factors) for edge in shared.edges)
        return shared if told == found else None

    def _pairs(self, node: Join, shared: SharedJoin) -> _Rows | None:
        """The rows of a shared join, from pairs: kept ones are read, the others are found. Joins of three streams and
        more are one. None where there are too many: then DuckDB joins, as in an answer.
        """
        first: dict[int, int] = {}
        names: dict[int, Sequence[str]] = {}
        width = 0
        for scan in leaves(node):
            assert isinstance(scan, StreamScan)
            self._rows(scan)
            number = self._number(scan)
            first[number], names[number] = width, scan.names
            width += len(scan.names)
        self._columns[id(node)] = {
            first[scan] + names[scan].index(column): name for name, scan, column in shared.columns
        }
        began = time.perf_counter()
        try:
            table = self._joins.relation(self._plan, self._catalog, self._reader, self._extents, shared)
        except EvaluationError:
            return None
        self.found[node.digest] = Measured(len(table), table.nbytes, time.perf_counter() - began)
        return table, self._columns[id(node)]

    def _scan(self, node: StreamScan) -> Callable[[], pa.Table]:
        number = self._number(node)
        scan = self._plan.scans[number]
        self._columns[id(node)] = {at: name for at, name in enumerate(node.names) if name in scan.columns}
        return lambda: self._reader.read(scan, self._extents[number])

    def _number(self, node: StreamScan) -> int:
        return next(at for at, scan in enumerate(self._plan.scans) if scan.relation == node.relation)

    def _table(self, node: TableScan) -> Callable[[], pa.Table]:
        wanted = node.table.lower(), node.as_of
        scan = next(each for each in self._plan.tables if (each.table.lower(), each.as_of) == wanted)
        self._columns[id(node)] = {at: name for at, name in enumerate(node.names) if name in scan.columns}
        return lambda: self._tables[scan.relation]

    def _computed(self, node: Node, inputs: Sequence[_Rows]) -> Callable[[], pa.Table]:
        if sum(len(table) for table, _ in inputs) > self._settings.residual_rows_max:
            raise _NotMeasured
        found = sql.node_statement(self._plan, node, [(columns, table.schema) for table, columns in inputs])
        if found is None:
            raise _NotMeasured
        text, columns = found
        self._columns[id(node)] = columns
        tables = {f"_m{at}": table for at, (table, _) in enumerate(inputs)}
        types = [column.type for column in node.columns]
        given = parameters(text, self._nows, uses_now="$now" in text)

        def work() -> pa.Table:
            table = duck.run(
                text,
                tables,
                parameters=given,
                seconds_max=seconds_left(self._settings),
                memory_bytes_max=self._settings.residual_memory_bytes_max,
                functions=self._plan.functions,
            )
            known = [types[at] for at in columns]
            arrays = [a if type_ is None else a.cast(type_) for a, type_ in zip(table.columns, known, strict=True)]
            return pa.Table.from_arrays(arrays, names=list(columns.values()))

        return work
