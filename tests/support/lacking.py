"""What an answer at a NOW in the past lacks, because retention let go of it: decision 16, written down for DuckDB."""

from __future__ import annotations

from tests.support.tree import (
    ARRIVAL_TIME,
    At,
    Bracket,
    Dialect,
    KeyedRows,
    Moment,
    Query,
    Range,
    Rows,
    StreamSource,
    TimeSpan,
    Writer,
)


def lacks(query: Query, at: At) -> str:
    """A SELECT for DuckDB: whether an answer at a NOW in the past lacks tuples that retention let go of."""
    writer = Writer(Dialect.DUCKDB, at)
    writer.query(query, None)
    return "SELECT " + " OR ".join(["FALSE", *(_window_lacks(writer, *mention) for mention in writer.mentions)])


def _window_lacks(writer: Writer, source: StreamSource, window: TimeSpan | None) -> str:
    """Whether a window lacks tuples at a NOW in the past, because retention let go of them (decision 16)."""
    assert writer.at is not None
    stream, ts, now = source.stream, writer.name(ARRIVAL_TIME), writer.constant(writer.at.now_us)
    floor = writer.at.floors.get(stream.name)
    own = source.window
    if isinstance(own, TimeSpan):
        own, window = None, own
    elif own is Bracket.UNBOUNDED:
        own, window = None, None
    still = own is None and window is not None and not window.moves
    if floor is None or stream.retain is None or still:
        return "FALSE"
    lost = f"SELECT max({ts}) FROM raw_{stream.name} WHERE {ts} <= {writer.constant(floor)}"
    begin, end, moving = None, now, False
    match own:
        case KeyedRows():
            return f"({lost}) IS NOT NULL"
        case Bracket.NOW:
            begin, moving = f"({now} - INTERVAL 1 MICROSECOND)", True
        case Rows(rows):
            seen = f"SELECT count(*) FROM raw_{stream.name} WHERE {ts} > {writer.constant(floor)} AND {ts} <= {now}"
            return f"(({lost}) IS NOT NULL AND ({seen}) < {rows})"
        case Range(span):
            begin, moving = f"({now} - INTERVAL {span.amount} {span.unit})", True
        case None if window is not None:
            begin = None if window.begin is None else f"({writer.moment(window.begin)})"
            moving = window.begin is not None and window.begin.us is None
            end = f"({writer.moment(window.end or Moment())})"
    after = "" if begin is None else f" AND {ts} > {begin}"
    nothing_left = f"coalesce({end} <= ({lost}{after}), FALSE)"
    if not moving:
        return nothing_left
    kept = f"INTERVAL {stream.retain.amount} {stream.retain.unit}"
    some_lost = f"({lost}{after} AND {ts} <= {end}) IS NOT NULL"
    return f"(CASE WHEN {now} - {kept} < {begin} THEN {some_lost} ELSE {nothing_left} END)"
