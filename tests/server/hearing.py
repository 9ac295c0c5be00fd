"""What clients over HTTP hear of a query: deltas, whose pieces they join; and answers that follow them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from ladle import delta as deltas
from ladle.formats.deltas import DeltaPiece, json_piece

Delta = dict[str, Any]


def json_delta(delta: deltas.Delta) -> dict[str, object]:
    """A delta whole, of values that `encoded` has a form for."""
    return json_piece(DeltaPiece(delta))


def joined(pieces: Iterable[Delta]) -> Iterator[Delta]:
    """Deltas of their pieces; those of one that does not come to its end are left out."""
    parts: list[Delta] = []
    for piece in pieces:
        parts.append(piece)
        if piece.get("more"):
            assert "position" not in piece, "a position is told with the last piece alone"
            continue
        rows = {name: [row for part in parts for row in part[name]] for name in _ROWS if name in piece}
        yield {**piece, **rows, "pieces": len(parts)}
        parts = []


_ROWS = ("inserted", "retracted", "inserted_out")


@contextmanager
def events(http: httpx.Client, path: str, **headers: str) -> Iterator[Iterator[tuple[int, str, Any]]]:
    """Server-Sent Events: the epoch, what it is, and the delta or error."""
    with http.stream("GET", path, headers={"Accept": "text/event-stream", **headers}) as reply:
        assert reply.status_code == 200, reply.read()
        kinds: list[str] = []

        def pieces() -> Iterator[Delta]:
            event: dict[str, str] = {}
            for line in reply.iter_lines():
                if line.startswith(":"):
                    continue
                if line:
                    name, _, value = line.partition(": ")
                    event[name] = value
                elif "data" in event:
                    piece = json.loads(event["data"])
                    assert event.get("id") == piece.get("position"), "an id is a position that was told whole"
                    kinds.append(event["event"])
                    yield piece
                    event = {}

        yield ((delta.get("epoch", 0), kinds[-1], delta) for delta in joined(pieces()))


def polled(http: httpx.Client, path: str) -> tuple[list[Delta], str]:
    """What one response tells, and its further pages: the deltas, and the position to go on from."""
    told = list[Delta]()
    while True:
        reply = http.get(path)
        assert reply.status_code == 200, reply.text
        value = reply.json()
        assert ("next" in value) != ("position" in value), "the position comes with the last page"
        told += value["deltas"]
        if "position" in value:
            return list(joined(told)), value["position"]
        path = value["next"]


def messages(socket: Any, seconds: float = 20.0) -> Iterator[Delta]:
    """What comes over a WebSocket."""
    return joined(iter(lambda: json.loads(socket.recv(seconds)), None))


class Copy:
    """An answer that is kept up to date by deltas, as a bag of rows; `expirations` are heeded if rows carry them."""

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()

    def apply(self, delta: Delta) -> None:
        for row in delta["retracted"]:
            self.rows[_text(row)] -= 1
            assert self.rows[_text(row)] >= 0, f"{row} went, and was not there"
        self.rows.update(map(_text, delta["inserted"]))
        self.rows = +self.rows


def _text(row: Delta) -> str:
    return json.dumps(row, sort_keys=True, default=str)


def bag(rows: Iterable[Delta]) -> Counter[str]:
    return Counter(map(_text, rows))
