"""Real traces replayed: the same streams as the generators', from files that the user has (`LADLE_DATA`).

A trace is sped up and its times are shifted so that its tuples happen now; when it ends it starts again.
Folders looked for: `stock_ticks` (US equities, 2013), `intel_lab` (52 motes, 2004) and `net_zeek_conn_ctu`
(Zeek connection logs, 2022).
"""

from __future__ import annotations

import io
import os
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from ladle.errors import LadleError
from ladle.schema import TIMESTAMP

_PLACE = "../shared/data"


def data_folder() -> Path | None:
    """Where real traces are, if there are any: `LADLE_DATA`, or a folder beside the project."""
    named = os.environ.get("LADLE_DATA")
    folder = Path(named) if named else Path(_PLACE)
    if named and not folder.is_dir():
        raise LadleError(f"LADLE_DATA is '{named}', which is not a folder.", hint="correct it, or unset it")
    return folder if folder.is_dir() else None


@dataclass
class Trace:
    """Tuples of one or more streams with one time line, played `speed` times faster than they happened."""

    description: str
    tables: dict[str, pa.Table]
    """Each sorted by `at`, whose values are microseconds since the trace began (BIGINT)."""
    length_us: int
    speed: float
    begin_us: int | None = None
    history_seconds: int = 120

    def between(self, begin_us: int, end_us: int) -> dict[str, pa.Table]:
        """The recorded rows that fall into this span, moved to it, by stream."""
        if self.begin_us is None:
            self.begin_us = begin_us
        first, last = (int((us - self.begin_us) * self.speed) for us in (begin_us, end_us))
        return {name: self._stretch(table, first, last) for name, table in self.tables.items()}

    def _stretch(self, table: pa.Table, first: int, last: int) -> pa.Table:
        """The rows of (first, last] of the endless repetition of the trace, in the time of the replay."""
        assert self.begin_us is not None
        at = table["at"].to_numpy()
        parts = []
        for lap in range(first // self.length_us, last // self.length_us + 1):
            offset = lap * self.length_us
            low, high = np.searchsorted(at, (first - offset, last - offset), side="right")
            played = self.begin_us + ((at[low:high] + offset) / self.speed).astype(np.int64)
            times = pa.array(played, pa.int64()).cast(TIMESTAMP)
            parts.append(table.slice(low, high - low).set_column(table.schema.get_field_index("at"), "at", times))
        return pa.concat_tables(parts)


def stock_ticks(folder: Path, *, day: str = "20131007", speed: float = 60.0) -> Trace:
    """BAC and IBM, regular hours of one day."""
    open_ms, close_ms = 34_200_000, 57_600_000
    trades, quotes = [], []
    for symbol in ("bac", "ibm"):
        trade = _read_zip(folder / symbol / f"{day}_trade.zip", ["ms", "price", "size", "exchange", "c", "s"])
        trades.append(
            pa.table(
                {
                    "symbol": pa.repeat(symbol.upper(), trade.num_rows),
                    "price": pc.divide(trade["price"].cast(pa.float64()), 10_000.0),
                    "size": trade["size"].cast(pa.int32()),
                    "exchange": trade["exchange"].cast(pa.string()),
                    "at": pc.multiply(pc.subtract(trade["ms"], open_ms), 1_000),
                }
            )
        )
        names = ["ms", "bid", "bid_size", "ask", "ask_size", "exchange", "c", "s"]
        quote = _read_zip(folder / symbol / f"{day}_quote.zip", names)
        quotes.append(
            pa.table(
                {
                    "symbol": pa.repeat(symbol.upper(), quote.num_rows),
                    **{name: _side(quote, name) for name in ("bid", "bid_size", "ask", "ask_size")},
                    "exchange": quote["exchange"].cast(pa.string()),
                    "at": pc.multiply(pc.subtract(quote["ms"], open_ms), 1_000),
                }
            )
        )
    length_us = (close_ms - open_ms) * 1_000
    tables = {"trades": trades, "quotes": quotes}
    return Trace(
        f"BAC and IBM ticks of 2013 (real, {speed:g}x)",
        {name: _in_hours(pa.concat_tables(parts), length_us) for name, parts in tables.items()},
        length_us,
        speed,
    )


def intel_lab(folder: Path, *, speed: float = 60.0) -> Trace:
    """Temperature, humidity, light and voltage of 52 motes, five days of March 2004."""
    path = next(iter(sorted(folder.glob("intel_lab_*.txt.gz"))))
    names = ["date", "time", "epoch", "mote", "temperature", "humidity", "light", "voltage"]
    rows = csv.read_csv(
        path,
        read_options=csv.ReadOptions(column_names=names),
        parse_options=csv.ParseOptions(delimiter=" "),
        convert_options=csv.ConvertOptions(column_types=dict.fromkeys(names[:2], pa.string())),
    )
    stamp = pc.binary_join_element_wise(rows["date"].cast(pa.string()), rows["time"].cast(pa.string()), " ")
    at = stamp.cast(pa.timestamp("us")).cast(pa.int64())
    at = pc.subtract(at, pc.min(at))
    table = pa.table(
        {
            "mote": rows["mote"].cast(pa.int32()),
            **{name: rows[name].cast(pa.float64()) for name in names[4:]},
            "at": at,
        }
    ).sort_by("at")
    length_us = table["at"][-1].as_py() + 1_000_000
    return Trace(f"52 motes of 2004 (real, {speed:g}x)", {"sensors": table}, length_us, speed)


def zeek_connections(folder: Path, *, speed: float = 600.0) -> Trace:
    """Two links of one day (captures 008 and 011), merged."""
    parts = [_zeek(path) for path in sorted(folder.glob("0[01][18]-zeek-mixed.conn.csv.gz"))]
    table = pa.concat_tables(parts)
    at = pc.subtract(table["at"], pc.min(table["at"]))
    table = table.set_column(0, "at", at).sort_by("at")
    length_us = table["at"][-1].as_py() + 1_000_000
    words = f"connections of 2022 (real, {speed:g}x)"
    return Trace(words, {"connections": table}, length_us, speed)


def _zeek(path: Path) -> pa.Table:
    texts = {"id.orig_h": pa.string(), "id.resp_h": pa.string(), "service": pa.string()}
    rows = csv.read_csv(
        path,
        convert_options=csv.ConvertOptions(
            null_values=["-", ""], column_types={**texts, "ts": pa.float64(), "duration": pa.float64()}
        ),
    )
    return pa.table(
        {
            "at": pc.multiply(rows["ts"], 1e6).cast(pa.int64(), safe=False),
            "duration": rows["duration"],
            "proto": rows["proto"].cast(pa.string()),
            "service": pc.fill_null(rows["service"], "-"),
            "src": rows["id.orig_h"],
            "src_port": rows["id.orig_p"].cast(pa.int32()),
            "dst": rows["id.resp_h"],
            "dst_port": rows["id.resp_p"].cast(pa.int32()),
            "sent": rows["orig_bytes"].cast(pa.int64()),
            "received": rows["resp_bytes"].cast(pa.int64()),
            "state": rows["conn_state"].cast(pa.string()),
        }
    )


def _read_zip(path: Path, names: list[str]) -> pa.Table:
    with zipfile.ZipFile(path) as archive:
        content = archive.read(archive.namelist()[0])
    types = {"exchange": pa.string(), "c": pa.string(), "s": pa.string()}
    return csv.read_csv(
        io.BytesIO(content),
        read_options=csv.ReadOptions(column_names=names),
        convert_options=csv.ConvertOptions(column_types=types),
    )


def _side(quote: pa.Table, name: str) -> pa.ChunkedArray:
    """One side of a quote; zero means that the side was not quoted."""
    values = quote[name]
    if name in ("bid", "ask"):
        values = pc.divide(values.cast(pa.float64()), 10_000.0)
    else:
        values = values.cast(pa.int32())
    return pc.if_else(pc.equal(values, 0), pa.scalar(None, values.type), values)


def _in_hours(table: pa.Table, length_us: int) -> pa.Table:
    inside = pc.and_(pc.greater_equal(table["at"], 0), pc.less(table["at"], length_us))
    return table.filter(inside).sort_by("at")
