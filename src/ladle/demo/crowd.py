"""The many: standing queries beside those that the demonstration names, variations of what people ask.

Each watches something of its own (a stock, a mote, a port) beyond some threshold through some window, so that a
thousand of them have hundreds of different blocks; the Query SteM takes them all in with one pass over the tuples.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice

from ladle.demo.generators import LISTED

_SLIDING_MINUTES = (1, 2, 5, 10)
_PORTS = (22, 23, 25, 53, 80, 110, 123, 143, 443, 445, 587, 993, 1883, 3306, 3389, 5060, 5432, 6379, 8080, 8443)
_STATES = ("SF", "S0", "S1", "REJ", "RSTO", "RSTR", "OTH", "SH")
_MOTES = 52

Named = Iterator[tuple[str, str]]


def crowd(count: int) -> dict[str, str]:
    """So many queries by name, the same each time."""
    many = dict(islice(chain(_joins(), _trades(), _quotes(), _links(), _levels(), _motes(), _sizes()), count))
    assert len(many) == count, "there are not so many variations"
    return many


def _joins() -> Named:
    """Large trades beside large offers of the same stock: few tuples on either side, and their pairs."""
    for size in (2_000, 3_000, 5_000):
        for seconds in (10, 30):
            yield (
                f"through_{size}_{seconds}s",
                "SELECT t.symbol, t.price, t.size, q.ask FROM trades "
                f"[RANGE {seconds} SECONDS] AS t JOIN quotes [RANGE {seconds} SECONDS] AS q "
                f"ON t.symbol = q.symbol AND t.price > q.ask WHERE t.size >= {size} AND q.ask_size >= 2500",
            )


def _trades() -> Named:
    for symbol, price, *_ in LISTED:
        name = symbol.lower()
        for minutes in _SLIDING_MINUTES:
            yield (
                f"volume_{name}_{minutes}m",
                "SELECT count(*) AS trades, sum(size) AS shares, min(price) AS low, max(price) AS high FROM trades "
                f"WHERE symbol = '{symbol}' BEGIN NOW - INTERVAL {minutes} MINUTES END NOW",
            )
        for permille in (-3, -1, 1, 3):
            limit, compared = round(price * (1 + permille / 1_000), 2), ">" if permille > 0 else "<"
            yield (
                f"{'above' if permille > 0 else 'below'}_{name}_{abs(permille)}",
                f"SELECT price, size, at FROM trades WHERE symbol = '{symbol}' AND price {compared} {limit} "
                "BEGIN NOW - INTERVAL 5 MINUTES END NOW",
            )


def _quotes() -> Named:
    for symbol, *_ in LISTED:
        name = symbol.lower()
        for rows in (1_000, 5_000):
            yield (
                f"spread_{name}_{rows}",
                "SELECT count(*) AS quotes, round(avg(ask) - avg(bid), 4) AS spread "
                f"FROM quotes [ROWS {rows}] WHERE symbol = '{symbol}'",
            )
        for size in (1_000, 2_000):
            yield (
                f"bids_{name}_{size}",
                f"SELECT bid, bid_size, exchange FROM quotes [RANGE 1 MINUTE] WHERE symbol = '{symbol}' "
                f"AND bid_size >= {size}",
            )


def _links() -> Named:
    for minutes in _SLIDING_MINUTES:
        window = f"BEGIN NOW - INTERVAL {minutes} MINUTES END NOW"
        for port in _PORTS:
            yield (
                f"port_{port}_{minutes}m",
                "SELECT count(*) AS connections, sum(sent) AS sent, sum(received) AS received FROM connections "
                f"WHERE dst_port = {port} {window}",
            )
        for state in _STATES:
            yield (
                f"state_{state.lower()}_{minutes}m",
                "SELECT proto, count(*) AS connections FROM connections "
                f"WHERE state = '{state}' GROUP BY proto {window}",
            )


def _levels() -> Named:
    """Thresholds over the whole of a stream."""
    levels = (
        ("hotter", "sensors", "mote, temperature, at", "temperature", range(20, 40)),
        ("damper", "sensors", "mote, humidity, at", "humidity", range(30, 70, 2)),
        ("brighter", "sensors", "mote, light, at", "light", range(100, 1_500, 100)),
        ("sent", "connections", "src, dst, sent, at", "sent", range(10_000, 310_000, 10_000)),
        ("received", "connections", "src, dst, received, at", "received", range(50_000, 1_550_000, 50_000)),
        ("longer", "connections", "src, dst, duration, at", "duration", range(5, 155, 5)),
    )
    for name, stream, columns, column, limits in levels:
        for limit in limits:
            yield f"{name}_{limit}", f"SELECT {columns} FROM {stream} [RANGE 2 MINUTES] WHERE {column} > {limit}"


def _motes() -> Named:
    for mote in range(1, _MOTES + 1):
        for minutes in (1, 10):
            yield (
                f"climate_{mote}_{minutes}m",
                "SELECT count(*) AS readings, avg(temperature) AS celsius, min(voltage) AS volts FROM sensors "
                f"WHERE mote = {mote} BEGIN NOW - INTERVAL {minutes} MINUTES END NOW",
            )


def _sizes() -> Named:
    """As many as are wanted of these."""
    for size in range(100, 40_100, 100):
        yield (
            f"larger_{size}",
            f"SELECT symbol, price, size, at FROM trades WHERE size > {size} BEGIN NOW - INTERVAL 1 MINUTE END NOW",
        )
