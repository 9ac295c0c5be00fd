"""The part of the list about dates and timestamps. Everything is UTC, so days have 24 hours."""

from __future__ import annotations

from ladle.sql.conformant.entries import DateOrMoment, Entry, Moment
from ladle.sql.conformant.typing import INT

TIMES: tuple[Entry, ...] = (
    *(
        Entry(name, (DateOrMoment,), INT, f"CAST({name}({{0}}) AS INTEGER)", f"{name}({{0}})")
        for name in ("year", "quarter", "month", "day", "dayofyear", "weekofyear")
    ),
    *(
        Entry(name, (Moment,), INT, f"CAST({name}({{0}}) AS INTEGER)", f"{name}({{0}})")
        for name in ("hour", "minute", "second")
    ),
    Entry("dayofweek", (DateOrMoment,), INT, "CAST(dayofweek({0}) + 1 AS INTEGER)", "dayofweek({0})"),
)
