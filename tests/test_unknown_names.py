"""What is said of a name that does not exist: all names when they are few, the nearest when they are many."""

from __future__ import annotations

import pytest
from tests.sql.names import Names

from ladle.errors import UnknownName, unknown
from ladle.schema import StreamSchema
from ladle.sql import bind

MANY = [f"sensor_{number}" for number in range(50)]


def test_few_are_listed() -> None:
    error = unknown("query", "larg", ["small", "large"])
    assert str(error) == "Query 'larg' not found. Queries: large, small.\n  hint: did you mean 'large'?"
    assert unknown("stream", "x", []).message == "Stream 'x' not found. Streams: none."
    assert unknown("stream, table or query", "x", ["y"]).message.endswith("Streams, tables, queries: y.")


def test_of_many_the_nearest() -> None:
    error = unknown("stream", "Trade", [*MANY, "Trades", "trade_2"])
    assert str(error) == "Stream 'Trade' not found. Near ones: Trades, trade_2.\n  hint: did you mean 'Trades'?"


def test_of_many_that_are_all_far_the_first() -> None:
    error = unknown("stream", "x", MANY)
    assert error.message.endswith("sensor_15, sensor_16, sensor_17, and 40 more.")
    assert error.hint is None


def test_of_very_many_one_that_begins_alike() -> None:
    error = unknown("query", "trades_of_ibn", [*(f"q{number}" for number in range(100_000)), "trades_of_ibm"])
    assert error.hint == "did you mean 'trades_of_ibm'?"


@pytest.mark.parametrize(
    ("name", "message", "hint"),
    [
        ("trade", "Near ones: trades.", "did you mean 'trades'?"),
        ("zzz", "There are 51 streams and 1 query.", "SHOW STREAMS and SHOW QUERIES list them"),
    ],
)
def test_in_from(name: str, message: str, hint: str) -> None:
    names = Names({each: StreamSchema(()) for each in [*MANY, "trades"]}, {"large": "SELECT 1"})
    with pytest.raises(UnknownName) as caught:
        bind(f"SELECT * FROM {name}", names)
    assert caught.value.message == f"There is no stream, table or query '{name}'. {message}"
    assert caught.value.hint == hint
