"""Derived state: one contract for all of it, one budget of memory, one of disk (decision 28).

Everything here may be thrown away at any moment. A *kind* is what is kept for one purpose (results, pairs, partial
aggregates, answers ...); a *thing* is what is kept or dropped as a whole. `Derived` knows all kinds, holds them to the
two budgets, and reports on them. What is kept in memory by key is a `Shelf`, and that is all a new kind needs.
"""

from __future__ import annotations

from ladle.derived.contract import Kind, KindAccount, Place, Thing
from ladle.derived.demand import Demand, Level
from ladle.derived.measured import Rates
from ladle.derived.policy import worth
from ladle.derived.registry import Derived, Row
from ladle.derived.shelf import Shelf, ShelfThing

__all__ = [
    "Demand",
    "Derived",
    "Kind",
    "KindAccount",
    "Level",
    "Place",
    "Rates",
    "Row",
    "Shelf",
    "ShelfThing",
    "Thing",
    "worth",
]
