"""Windows resolved to moments, against the definition: a tuple is in when begin < ts <= end."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from tests.sql.names import Catalog

from ladle.clock import to_us
from ladle.plan import RowsWindow, TimeWindow, Window, WindowKind
from ladle.sql import bind

NOW = datetime(2024, 3, 31, 12, 0, tzinfo=UTC)
FEBRUARYS_END = (2024, 2, 29, 23, 59, 59, 999_999)
"""A month before NOW: bounds that move never go back, so 30 and 31 March are at it."""


def window(clause: str) -> Window:
    return bind(f"SELECT * FROM trades {clause}", Catalog()).scans[0].window


def moment(*fields: int) -> int:
    return to_us(datetime(*fields, tzinfo=UTC))  # type: ignore[misc,arg-type]


@pytest.mark.parametrize(
    ("clause", "begin", "end", "kind"),
    [
        ("BEGIN NOW - INTERVAL 10 MINUTES END NOW", (2024, 3, 31, 11, 50), (2024, 3, 31, 12), WindowKind.SLIDING),
        ("BEGIN NOW - INTERVAL '10' MINUTE END NOW", (2024, 3, 31, 11, 50), (2024, 3, 31, 12), WindowKind.SLIDING),
        ("begin now - interval '1 hour 30 minutes'", (2024, 3, 31, 10, 30), (2024, 3, 31, 12), WindowKind.SLIDING),
        ("BEGIN NOW - INTERVAL 1 DAY 2 HOURS END NOW", (2024, 3, 30, 10), (2024, 3, 31, 12), WindowKind.SLIDING),
        ("BEGIN (NOW() - INTERVAL 1 WEEK) END (NOW)", (2024, 3, 24, 12), (2024, 3, 31, 12), WindowKind.SLIDING),
        ("BEGIN NOW - INTERVAL 1 MONTH END NOW", FEBRUARYS_END, (2024, 3, 31, 12), WindowKind.SLIDING),
        ("BEGIN NOW - INTERVAL 1 YEAR", (2023, 3, 31, 12), (2024, 3, 31, 12), WindowKind.SLIDING),
        (
            "BEGIN NOW - INTERVAL 2 DAYS + INTERVAL 1 HOUR END NOW - INTERVAL 1 DAY",
            (2024, 3, 29, 13),
            (2024, 3, 30, 12),
            WindowKind.SLIDING,
        ),
        ("BEGIN NOW END NOW + INTERVAL 1.5 SECONDS", (2024, 3, 31, 12), (2024, 3, 31, 12, 0, 1, 500000), None),
        ("BEGIN '2024-01-01' END NOW", (2024, 1, 1), (2024, 3, 31, 12), WindowKind.LANDMARK),
        ("BEGIN '2024-1-1 9:30:00' END NOW", (2024, 1, 1, 9, 30), (2024, 3, 31, 12), WindowKind.LANDMARK),
        ("BEGIN '0001-01-01' END NOW", (1, 1, 1), (2024, 3, 31, 12), WindowKind.LANDMARK),
        ("BEGIN TIMESTAMP '2024-01-01T10:00:00+02:00'", (2024, 1, 1, 8), (2024, 3, 31, 12), WindowKind.LANDMARK),
        ("BEGIN '2024-01-01 10:00:00 Europe/Paris'", (2024, 1, 1, 9), (2024, 3, 31, 12), WindowKind.LANDMARK),
        (
            "BEGIN DATE '2024-01-01' END CAST('2024-01-02 03:04:05.678' AS TIMESTAMP)",
            (2024, 1, 1),
            (2024, 1, 2, 3, 4, 5, 678000),
            WindowKind.SNAPSHOT,
        ),
        (
            "BEGIN '2024-03-31' - INTERVAL 1 MONTH END '2024-04-01 00:00:00Z'",
            (2024, 2, 29),
            (2024, 4, 1),
            None,
        ),
        ("[RANGE 10 MINUTES]", (2024, 3, 31, 11, 50), (2024, 3, 31, 12), WindowKind.SLIDING),
        ("[RANGE INTERVAL '1' DAY] AS t", (2024, 3, 30, 12), (2024, 3, 31, 12), WindowKind.SLIDING),
        ("t [RANGE 1 MONTH]", FEBRUARYS_END, (2024, 3, 31, 12), WindowKind.SLIDING),
        ("AS t [RANGE 1 HOUR] BEGIN NOW - INTERVAL 1 DAY END NOW", (2024, 3, 31, 11), (2024, 3, 31, 12), None),
    ],
)
def test_window(clause: str, begin: tuple[int, ...], end: tuple[int, ...], kind: WindowKind | None) -> None:
    found = window(clause)
    assert isinstance(found, TimeWindow)
    assert found.resolve(to_us(NOW)) == (moment(*begin), moment(*end))
    assert kind is None or found.kind is kind


def test_no_window_is_everything() -> None:
    assert window("") == TimeWindow()


def test_end_alone_begins_with_the_first_tuple() -> None:
    found = window("END NOW - INTERVAL 1 DAY")
    assert isinstance(found, TimeWindow)
    assert found.begin is None
    assert found.resolve(to_us(NOW))[1] == moment(2024, 3, 30, 12)


@pytest.mark.parametrize("clause", ["[ROWS 1000]", "[ROWS 1000] t", "AS t [ROWS 1000]", "[ROWS 1000] END NOW"])
def test_rows(clause: str) -> None:
    assert window(clause) == RowsWindow(1000)


@pytest.mark.parametrize("place", range(6))
def test_begin_end_may_stand_anywhere_after_from(place: int) -> None:
    clauses = ["WHERE price > 1", "GROUP BY symbol", "HAVING count(*) > 1", "ORDER BY symbol", "LIMIT 3"]
    clauses.insert(place, "BEGIN NOW - INTERVAL 1 HOUR END NOW")
    plan = bind(f"SELECT symbol FROM trades {' '.join(clauses)}", Catalog())
    assert plan.scans[0].window == window("[RANGE 1 HOUR]")
    assert plan.residual.spark_sql.endswith("HAVING COUNT(*) > 1 ORDER BY 1 LIMIT 3")


@pytest.mark.parametrize(
    "text",
    [
        "SELECT symbol AS symbol, count(*) FROM trades GROUP BY symbol",
        "SELECT (size) AS symbol, symbol AS size, count(*) FROM trades GROUP BY trades.symbol, size, (symbol)",
        "SELECT window(at, '1 hour') AS w, symbol AS symbol, count(*) FROM trades GROUP BY w, symbol",
    ],
)
def test_a_key_may_be_selected_under_any_name(text: str) -> None:
    assert bind(text, Catalog()).residual.why_spark is None
