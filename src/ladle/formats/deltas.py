"""Deltas, cut into pieces where they are large, and as JSON.

A piece holds whole rows, about `PIECE_BYTES` of them, and one at least. All but a delta's last say `"more": true` and
have nothing but rows; the last has the position. So who loses the connection between two pieces has no position for
what it did not hear whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TypeVar

import pyarrow as pa

from ladle.delta import Delta
from ladle.formats.writing import encoded, json_rows, json_values
from ladle.json_values import JsonObject

PIECE_BYTES = 1 << 16
_FULL = 0.9
"""How full a piece is meant to be, when the number of its rows is guessed from the size of others."""
_TEXT_BYTES = 4
"""How many bytes of text a byte in memory may become, for a first guess: too much is written in vain."""
_GUESSES_MAX = 4
"""Where rows differ so much that guessing does not help, halving does."""

_T = TypeVar("_T")


@dataclass(frozen=True)
class DeltaPiece:
    """Rows of a delta that are told together; the last piece also has what else the delta says."""

    delta: Delta
    """With these rows alone."""
    more: bool = False
    """Whether further rows of the same delta follow."""


@dataclass(frozen=True)
class Deltas:
    """Deltas in order, which can be cut between any two rows. Places in them are counted in rows: first those that
    went, then those that came. A delta without rows counts as one.
    """

    shown: tuple[Delta, ...]
    last: Delta
    """Where to go on from, also when it is not shown."""

    @staticmethod
    def of(deltas: Sequence[Delta], *, progress: bool = True) -> Deltas:
        """Those without rows are shown only with `progress`."""
        return Deltas(tuple(delta for delta in deltas if progress or not delta.progress), deltas[-1])

    def __len__(self) -> int:
        """How many places there are."""
        return sum(map(_places, self.shown))

    @cached_property
    def nbytes(self) -> int:
        """What the rows take in memory."""
        return sum(map(_nbytes, self.shown))

    def between(self, begin: int, end: int) -> list[DeltaPiece]:
        """What lies between two places."""
        pieces, passed = list[DeltaPiece](), 0
        for delta in self.shown:
            start, stop = max(begin - passed, 0), min(end - passed, _places(delta))
            if start < stop:
                pieces.append(_piece(delta, start, stop))
            passed += _places(delta)
        return pieces


def cut(
    deltas: Deltas, begin: int, written: Callable[[list[DeltaPiece]], _T], size: Callable[[_T], int], guess: int = 0
) -> tuple[_T, int]:
    """What fits a piece from a place on, as it is written; and the place where that ends. A row that is larger than a
    piece is one by itself. `guess` says how many rows it may be.
    """
    left = len(deltas) - begin
    guess = guess or PIECE_BYTES * len(deltas) // (_TEXT_BYTES * max(deltas.nbytes, 1))
    count, fits, too_many, tries = min(max(guess, 1), left), 0, left + 1, 0
    while True:
        made = written(deltas.between(begin, begin + count))
        bytes_, tries = size(made), tries + 1
        if bytes_ <= PIECE_BYTES or count <= 1:
            best, fits = made, count
            if fits + 1 >= too_many or 2 * bytes_ > PIECE_BYTES:
                return best, begin + fits
        else:
            too_many = count
            if fits and fits + 1 >= too_many:
                return best, begin + fits
        # An empty table has no size to go by.
        other = int(count * _FULL * PIECE_BYTES / bytes_) if bytes_ and tries < _GUESSES_MAX else (fits + too_many) // 2
        count = min(max(other, fits + 1), too_many - 1)


def cut_all(deltas: Deltas, written: Callable[[list[DeltaPiece]], _T], size: Callable[[_T], int]) -> Iterator[_T]:
    """All of some deltas, a piece after the other, each written when it is asked for."""
    begin, guess = 0, 0
    while begin < len(deltas):
        made, end = cut(deltas, begin, written, size, guess)
        guess = int((end - begin) * _FULL * PIECE_BYTES / max(size(made), 1))
        begin = end
        yield made


def json_piece(piece: DeltaPiece) -> dict[str, object]:
    """A piece, of values that `encoded` has a form for."""
    delta = piece.delta
    rows = {"inserted": json_rows(delta.inserted), "retracted": json_rows(delta.retracted)}
    if delta.inserted_out is not None:
        rows["inserted_out"] = json_values(delta.inserted_out)
    return {**({"more": True} if piece.more else _head(delta)), **rows}


def json_pieces(delta: Delta) -> list[bytes]:
    """A delta as JSON, in one piece or in several. Takes a while for many rows."""
    return list(cut_all(Deltas.of([delta]), lambda pieces: encoded(json_piece(pieces[0])), len))


def tables_nbytes(pieces: Sequence[DeltaPiece]) -> int:
    """What the rows of some pieces take as Arrow."""
    return sum(_nbytes(piece.delta) for piece in pieces)


def _nbytes(delta: Delta) -> int:
    outs = 0 if delta.inserted_out is None else delta.inserted_out.nbytes
    return int(delta.inserted.nbytes + delta.retracted.nbytes + outs)


def _places(delta: Delta) -> int:
    return max(len(delta), 1)


def _piece(delta: Delta, start: int, stop: int) -> DeltaPiece:
    """Some of a delta's places."""
    if start == 0 and stop == _places(delta):
        return DeltaPiece(delta)
    gone = len(delta.retracted)
    left, come = slice(min(start, gone), min(stop, gone)), slice(max(start - gone, 0), max(stop - gone, 0))
    outs = None if delta.inserted_out is None else delta.inserted_out[come]
    rows = {"retracted": _rows(delta.retracted, left), "inserted": _rows(delta.inserted, come)}
    return DeltaPiece(replace(delta, **rows, inserted_out=outs), more=stop < _places(delta))


def _rows(table: pa.Table, which: slice) -> pa.Table:
    return table.slice(which.start, which.stop - which.start)


def _head(delta: Delta) -> JsonObject:
    return {
        "position": delta.position,
        "entry": delta.entry,
        "epoch": delta.epoch,
        "now": None if delta.now is None else delta.now.isoformat(),
        "net": delta.net,
        "progress": delta.progress,
    }
