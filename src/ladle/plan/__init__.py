"""What a query is: windows, factors, blocks, the residual. Plain frozen data; nothing here parses or runs."""

from ladle.plan.aggregate import Aggregate
from ladle.plan.function import Function
from ladle.plan.join import Edge, Join, JoinFactor, JoinKey, PairJoin, Reach, Relop
from ladle.plan.query import Block, Engine, Factor, Joined, Plan, Residual, Scan, TableScan
from ladle.plan.ranges import Ranges
from ladle.plan.window import Bound, RowsWindow, TimeWindow, Window, WindowKind

__all__ = [
    "Aggregate",
    "Block",
    "Bound",
    "Edge",
    "Engine",
    "Factor",
    "Function",
    "Join",
    "JoinFactor",
    "JoinKey",
    "Joined",
    "PairJoin",
    "Plan",
    "Ranges",
    "Reach",
    "Relop",
    "Residual",
    "RowsWindow",
    "Scan",
    "TableScan",
    "TimeWindow",
    "Window",
    "WindowKind",
]
