"""What a query is: windows, factors, blocks, the residual. Plain frozen data; nothing here parses or runs."""

from ladle.plan.query import Block, Engine, Factor, Plan, Residual, Scan
from ladle.plan.window import Bound, RowsWindow, TimeWindow, Window, WindowKind

__all__ = [
    "Block",
    "Bound",
    "Engine",
    "Factor",
    "Plan",
    "Residual",
    "RowsWindow",
    "Scan",
    "TimeWindow",
    "Window",
    "WindowKind",
]
