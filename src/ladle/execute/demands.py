"""What standing queries demand of derived state. Modes are nothing but demands.

Those of `none`, `partial` and `complete` are fixed; those of `auto` are raised and lowered while the query stands
(`execute/auto.py`). Epochs, backfill, background work and invocations ask here what is wanted, and know no mode.
"""

from __future__ import annotations

import pyarrow as pa

from ladle.catalog import Catalog, QueryState
from ladle.catalog.store import Store
from ladle.derived import Level
from ladle.execute.auto import Auto
from ladle.sql.statement_types import Materialize
from ladle.stem.blocks import BlockSet

_FIXED = {
    Materialize.NONE: Level.NOTHING,
    Materialize.PARTIAL: Level.RESULTS,
    Materialize.COMPLETE: Level.ANSWER,
}


class Demands:
    """Says how much of each standing query is to be kept, by its mode."""

    def __init__(self, store: Store) -> None:
        self._auto = Auto(store)
        self.why = self._auto.why
        self.look = self._auto.look
        self.lower = self._auto.lower

    def level(self, query: QueryState) -> Level:
        """How much is demanded for a query now."""
        fixed = _FIXED.get(query.materialize)
        return self._auto.level(query) if fixed is None else fixed

    def with_answers(self, catalog: Catalog) -> list[QueryState]:
        """The queries whose answers are demanded."""
        return [*catalog.queries.complete.values(), *self._auto.with_answers()]

    @property
    def unwanted(self) -> BlockSet:
        """Blocks of standing queries for which nothing is demanded at the moment."""
        return self._auto.idle_blocks

    def asked(self, query: QueryState, answer: pa.Table) -> bool:
        """Note an invocation; whether more is demanded since, so that there is work to do."""
        return self._auto.asked(query, answer)
