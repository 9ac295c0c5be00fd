"""What a query is: windows, factors, blocks, the residual. Plain frozen data; nothing here parses or runs."""

from ladle.plan.aggregate import Aggregate
from ladle.plan.as_of import AsOf
from ladle.plan.function import Function
from ladle.plan.join import Edge, JoinFactor, JoinKey, PairJoin, Reach, Relop, SharedJoin
from ladle.plan.query import Block, Engine, Factor, JoinedForm, Plan, Residual, Scan, TableRead
from ladle.plan.ranges import Ranges
from ladle.plan.sample import Sample
from ladle.plan.window import Bound, KeyedRowsWindow, RowsWindow, TimeWindow, Window, WindowKind

__all__ = [
    "Aggregate",
    "AsOf",
    "Block",
    "Bound",
    "Edge",
    "Engine",
    "Factor",
    "Function",
    "JoinFactor",
    "JoinKey",
    "JoinedForm",
    "KeyedRowsWindow",
    "PairJoin",
    "Plan",
    "Ranges",
    "Reach",
    "Relop",
    "Residual",
    "RowsWindow",
    "Sample",
    "Scan",
    "SharedJoin",
    "TableRead",
    "TimeWindow",
    "Window",
    "WindowKind",
]
