"""What the demonstration shows: four streams, and standing queries of each window kind over them."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

STREAMS: dict[str, str] = {
    "trades": """CREATE STREAM trades (symbol STRING, price DOUBLE, size INT, exchange STRING, at TIMESTAMP)
        TIMESTAMP BY at RETAIN INTERVAL 1 DAY""",
    "quotes": """CREATE STREAM quotes (symbol STRING, bid DOUBLE, bid_size INT, ask DOUBLE, ask_size INT,
        exchange STRING) RETAIN INTERVAL 1 HOUR""",
    "sensors": """CREATE STREAM sensors (mote INT, temperature DOUBLE, humidity DOUBLE, light DOUBLE,
        voltage DOUBLE, at TIMESTAMP) TIMESTAMP BY at RETAIN INTERVAL 7 DAYS""",
    "connections": """CREATE STREAM connections (at TIMESTAMP, duration DOUBLE, proto STRING, service STRING,
        src STRING, src_port INT, dst STRING, dst_port INT, sent BIGINT, received BIGINT, state STRING)
        TIMESTAMP BY at RETAIN INTERVAL 1 DAY""",
}

FILE_STREAMS: dict[str, str] = {
    "trades": "symbol STRING, price DOUBLE, size INT, exchange STRING, at TIMESTAMP",
    "connections": "at TIMESTAMP, duration DOUBLE, proto STRING, service STRING, src STRING, src_port INT, "
    "dst STRING, dst_port INT, sent BIGINT, received BIGINT, state STRING",
}
"""Streams that come from a Spark file source, with what the files hold; the others are pushed by a client."""


@dataclass(frozen=True)
class Standing:
    """A query of the demonstration."""

    name: str
    sql: str
    question: str
    materialize: str = "partial"


def standing_queries(started: datetime) -> list[Standing]:
    """The queries that are registered before the first tuple arrives."""
    opening = f"{started:%Y-%m-%d %H:%M:%S}"
    opened = f"{started + timedelta(seconds=30):%Y-%m-%d %H:%M:%S}"
    return [
        Standing(
            "movers",
            "SELECT symbol, count(*) AS trades, sum(size) AS shares, round(avg(price), 2) AS average "
            "FROM trades GROUP BY symbol ORDER BY shares DESC LIMIT 5 "
            "BEGIN NOW - INTERVAL 1 MINUTE END NOW",
            "the busiest stocks of the last minute",
        ),
        Standing(
            "big_trades",
            "SELECT symbol, price, size, at FROM trades WHERE price * size > 1500000 "
            "BEGIN NOW - INTERVAL 2 MINUTES END NOW",
            "trades over 1.5 million in the last two minutes",
            "complete",
        ),
        Standing(
            "since_start",
            "SELECT symbol, min(price) AS low, max(price) AS high, sum(size) AS volume FROM trades "
            f"GROUP BY symbol ORDER BY volume DESC BEGIN TIMESTAMP '{opening}' END NOW",
            "range and volume since the demo began",
        ),
        Standing(
            "first_half_minute",
            "SELECT count(*) AS trades, sum(size) AS shares FROM trades "
            f"BEGIN TIMESTAMP '{opening}' END TIMESTAMP '{opened}'",
            "the first half minute, for ever",
        ),
        Standing(
            "spreads",
            "SELECT symbol, round(avg(ask) - avg(bid), 4) AS spread, count(*) AS quotes FROM quotes [ROWS 5000] "
            "GROUP BY symbol ORDER BY spread DESC LIMIT 5",
            "the widest spreads of the last 5,000 quotes",
        ),
        Standing(
            "hot_motes",
            "SELECT mote, round(avg(temperature), 1) AS celsius, round(min(voltage), 2) AS volts "
            "FROM sensors [RANGE 1 MINUTE] GROUP BY mote HAVING count(*) > 5 ORDER BY celsius DESC LIMIT 5",
            "the hottest motes of the last minute, with their batteries",
        ),
        Standing(
            "load",
            "SELECT date_trunc('minute', at) AS minute, sum(sent + received) AS bytes FROM connections "
            "GROUP BY date_trunc('minute', at) HAVING sum(sent + received) > 1000000 ORDER BY minute DESC "
            "BEGIN NOW - INTERVAL 5 MINUTES END NOW",
            "minutes with more than a megabyte on the link",
        ),
        Standing(
            "scans",
            "SELECT src, dst, count(DISTINCT dst_port) AS ports FROM connections [RANGE 2 MINUTES] "
            "WHERE state IN ('S0', 'REJ') GROUP BY src, dst HAVING count(DISTINCT dst_port) > 20 "
            "ORDER BY ports DESC",
            "who scans ports, and whose",
            "none",
        ),
    ]


LATE = Standing(
    "blocks",
    "SELECT symbol, count(*) AS blocks, sum(size) AS shares FROM trades WHERE size >= 2000 "
    "GROUP BY symbol ORDER BY shares DESC LIMIT 5 BEGIN NOW - INTERVAL 10 MINUTES END NOW",
    "block trades of ten minutes, most of them before this query existed",
)
"""Registered when the streams have been flowing for a while: it answers for the past at once."""
