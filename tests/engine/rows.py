"""Rows and moments for the engine's tests."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from ladle.answer import Answer
from ladle.delta import Delta

START = datetime(2023, 11, 14, 12, tzinfo=UTC)
TICKS = "CREATE STREAM ticks (n INT, at TIMESTAMP) TIMESTAMP BY at"


def at(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def ticks(seconds: Iterable[float]) -> list[dict[str, Any]]:
    """One tuple per second named, whose number is that second."""
    return [{"n": int(second), "at": at(second)} for second in seconds]


def values(told: Answer | Delta, column: str | None = None) -> list[Any]:
    """One column of an answer, or of the rows that a delta inserts."""
    table = told.inserted if isinstance(told, Delta) else told.table
    return table.column(column or table.column_names[0]).to_pylist()
