"""Answers by nodes: a node with usable state gives its rows, and the others compute.

Of a plan's tree, group-bys over one scan are given by partial aggregates (`execute/aggregate_trees.py`); what is above
and beside them is one statement in DuckDB over those rows (`ladle.sql.folding_of`). What can't be answered like that,
for any reason, is answered by the residual as a whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from ladle import sql
from ladle.archive.layout import Extent
from ladle.catalog import Catalog
from ladle.catalog.store import Store
from ladle.errors import EvaluationError
from ladle.evaluate import run_above
from ladle.execute.aggregate_trees import Aggregates
from ladle.execute.deadline import seconds_left
from ladle.execute.past import table_rows_at
from ladle.execute.prepared import Prepared
from ladle.execute.reader import Reader
from ladle.plan import Plan
from ladle.plan.answering import Folding
from ladle.plan.as_of import Nows

_PREPARED_MAX = 16_384

Read = Callable[[frozenset[str]], Mapping[str, pa.Table]]
"""Reads relations of a plan, by name."""


class PreparedPlan:
    """A plan that is answered by nodes; it holds the plan, so that the plan's id stays its own."""

    def __init__(self, plan: Plan, folding: Folding | None) -> None:
        self.plan = plan
        self.folding = folding
        self.nodes = () if folding is None else tuple(Prepared(plan.scans[n.scan], n) for n in folding.nodes)


class Nodes:
    """Answers plans by those of their nodes that have state."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._prepared: dict[int, PreparedPlan] = {}
        self.aggregates = Aggregates(store)
        self.answered = 0
        """Invocations that were answered here."""

    def prepared(self, plan: Plan, catalog: Catalog) -> PreparedPlan:
        """What is known of a plan before it is asked. It is kept with the plan."""
        found = self._prepared.get(id(plan))
        if found is None:
            if len(self._prepared) >= _PREPARED_MAX:
                self._prepared.clear()
            found = self._prepared[id(plan)] = PreparedPlan(plan, sql.folding_of(plan, catalog))
        return found

    def answer(
        self,
        plan: Plan,
        catalog: Catalog,
        reader: Reader,
        extents: Sequence[Extent],
        nows: Nows,
        read: Read,
        *,
        in_order: bool = False,
    ) -> pa.Table | None:
        """The answer, or None when the residual has to give it."""
        prepared = self.prepared(plan, catalog)
        folding = prepared.folding
        if folding is None:
            return None
        if folding.above is None:
            table = self.aggregates.rows(prepared.nodes[0], catalog, reader, extents[folding.nodes[0].scan])
            self.answered += table is not None
            return table
        given: dict[str, pa.Table] = {}
        for node, folded in zip(folding.nodes, prepared.nodes, strict=True):
            rows = self.aggregates.rows(folded, catalog, reader, extents[node.scan])
            if rows is None:
                return None
            given[node.relation] = rows
        if self._is_large(plan, folding, given, catalog, reader, extents):
            return None
        table = self._above(plan, folding, {**given, **read(folding.reads)}, nows, in_order=in_order)
        if table is not None:
            self.answered += 1
        return table

    def _above(
        self, plan: Plan, folding: Folding, relations: Mapping[str, pa.Table], nows: Nows, *, in_order: bool
    ) -> pa.Table | None:
        settings = self._store.settings
        try:
            return run_above(
                plan,
                folding,
                relations,
                nows,
                seconds_max=seconds_left(settings),
                memory_bytes_max=settings.residual_memory_bytes_max,
                in_order=in_order,
            )
        except EvaluationError:
            # The statement itself says what is wrong, and whether anything is.
            return None

    def _is_large(
        self,
        plan: Plan,
        folding: Folding,
        given: Mapping[str, pa.Table],
        catalog: Catalog,
        reader: Reader,
        extents: Sequence[Extent],
    ) -> bool:
        """Whether the statement has more input than DuckDB is given."""
        rows = sum(map(len, given.values()))
        for scan, extent in zip(plan.scans, extents, strict=True):
            if scan.relation in folding.reads:
                rows += reader.input_rows(scan, extent)
        rows += sum(table_rows_at(each, catalog) for each in plan.tables)
        return rows > self._store.settings.residual_rows_max
