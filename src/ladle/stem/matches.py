"""The rows of one segment that satisfy a block: all of them, their numbers, or bits, whichever is smallest."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Ids = npt.NDArray[np.intp]
"""Row numbers as NumPy likes them best for taking."""
Mask = npt.NDArray[np.bool_]
Rows = slice | Ids
"""Which rows of a segment: a range, or their numbers in order."""


class Matches:
    """The rows of one segment that satisfy a block, in the smallest of three forms."""

    __slots__ = ("_bits", "_numbers", "rows")

    def __init__(self, rows: int, *, bits: npt.NDArray[np.uint8] | None = None, numbers: Ids | None = None) -> None:
        self.rows = rows
        self._bits = bits
        self._numbers = numbers

    @staticmethod
    def of(ids: Ids | None, rows: int) -> Matches:
        """From their numbers, or None for all."""
        if ids is None:
            return Matches(rows)
        if len(ids) * 64 <= rows:
            return Matches(rows, numbers=ids.astype(np.intp, copy=False))
        mask = np.zeros(rows, dtype=np.bool_)
        mask[ids] = True
        return Matches(rows, bits=np.packbits(mask, bitorder="little"))

    @property
    def nbytes(self) -> int:
        """How many bytes it takes."""
        kept = self._bits if self._numbers is None else self._numbers
        return 0 if kept is None else kept.nbytes

    @property
    def numbers(self) -> Ids | None:
        """All of them by number, if there are so few that they are kept like that."""
        return self._numbers

    @property
    def mask(self) -> Mask | None:
        """Whether each row is one of them; None where every row is."""
        if self._bits is not None:
            return np.unpackbits(self._bits, count=self.rows, bitorder="little").view(np.bool_)
        if self._numbers is None:
            return None
        mask = np.zeros(self.rows, dtype=np.bool_)
        mask[self._numbers] = True
        return mask

    def counts(self, size: int) -> list[int]:
        """How many are in each stretch of so many rows, a multiple of eight, where they are kept as bits or are all."""
        starts = np.arange(0, self.rows, size)
        sizes = np.minimum(self.rows - starts, size)
        if self._bits is None:
            return sizes.tolist()
        # Behind the last row there may be ones.
        bits = self._bits[: -(-self.rows // 8)]
        return np.minimum(np.add.reduceat(np.bitwise_count(bits), starts // 8, dtype=np.int64), sizes).tolist()

    def between(self, first: int, last: int) -> Rows:
        """Those from row `first` to before row `last`."""
        if self._numbers is not None:
            start, stop = self._numbers.searchsorted((first, last))
            return self._numbers[start:stop]
        if self._bits is None:
            return slice(first, last)
        octet = first >> 3
        bits = np.unpackbits(self._bits[octet : (last + 7) >> 3], bitorder="little")
        octet <<= 3
        return bits[first - octet : last - octet].view(np.bool_).nonzero()[0] + first

    def among(self, first: int, mask: Mask) -> Rows:
        """Those for which the mask, which begins at row `first`, holds."""
        rows = self.between(first, first + len(mask))
        return mask.nonzero()[0] + first if isinstance(rows, slice) else rows[mask[rows - first]]
