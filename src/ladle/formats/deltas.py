"""Deltas as JSON, cut into pieces where they are large.

A piece holds whole rows, about `PIECE_BYTES` of them. All but the last say `"more": true` and have nothing but rows;
the last has the position. So who loses the connection between two pieces has no position for what it did not hear
whole.
"""

from __future__ import annotations

from collections.abc import Iterator

import orjson
import pyarrow as pa

from ladle.columns import Value
from ladle.delta import Delta
from ladle.formats.writing import encoded, json_values, row_batches
from ladle.json_values import JsonObject

PIECE_BYTES = 1 << 16
_GROUP_BYTES = PIECE_BYTES >> 3


def json_delta(delta: Delta) -> dict[str, object]:
    """A delta whole, of values that `encoded` has a form for."""
    return {**_head(delta), **_rows(delta)}


def json_pieces(delta: Delta) -> list[bytes]:
    """A delta as JSON, in one piece or in several. Takes a while for many rows."""
    pieces, size = list[bytes](), 0
    parts: dict[str, list[bytes]] = {name: [] for name in _no_rows(delta)}
    outs = None if delta.inserted_out is None else json_values(delta.inserted_out)
    for name, table, own_outs in (("retracted", delta.retracted, None), ("inserted", delta.inserted, outs)):
        for texts in _groups(name, table, own_outs):
            added = sum(len(text) + 1 for text in texts.values())
            if size and size + added > PIECE_BYTES:
                pieces.append(_piece({"more": True}, parts))
                parts, size = {part: [] for part in parts}, 0
            size += added
            for part, text in texts.items():
                parts[part].append(text)
    return [*pieces, _piece(_head(delta), parts)]


def _groups(name: str, table: pa.Table, outs: list[Value] | None) -> Iterator[dict[str, bytes]]:
    """Rows as JSON, a few at a time: as many as are small beside a piece, and one at least. To encode each alone takes
    half as long again.
    """
    count, told = 1, 0
    for rows in row_batches(table):
        begin = 0
        while begin < len(rows):
            text = encoded(rows[begin : begin + count])[1:-1]
            if len(text) > _GROUP_BYTES and count > 1:
                count //= 2
                continue
            done = min(count, len(rows) - begin)
            texts = {name: text}
            if outs is not None:
                texts["inserted_out"] = encoded(outs[told : told + done])[1:-1]
            yield texts
            begin, told = begin + done, told + done
            count = count * 2 if 3 * len(text) < _GROUP_BYTES else count


def _head(delta: Delta) -> JsonObject:
    return {
        "position": delta.position,
        "entry": delta.entry,
        "epoch": delta.epoch,
        "now": None if delta.now is None else delta.now.isoformat(),
        "net": delta.net,
        "progress": delta.progress,
    }


def _no_rows(delta: Delta) -> dict[str, list[Value]]:
    outs = {} if delta.inserted_out is None else {"inserted_out": list[Value]()}
    return {"inserted": [], "retracted": [], **outs}


def _rows(delta: Delta) -> dict[str, list[Value]]:
    tables = {"inserted": delta.inserted, "retracted": delta.retracted}
    rows = {name: [row for rows in row_batches(table) for row in rows] for name, table in tables.items()}
    if delta.inserted_out is not None:
        rows["inserted_out"] = json_values(delta.inserted_out)
    return rows


def _piece(head: JsonObject, parts: dict[str, list[bytes]]) -> bytes:
    rows = {name: orjson.Fragment(b"[%b]" % b",".join(texts)) for name, texts in parts.items()}
    return encoded({**head, **rows})
