"""Levels: the tuples of a stream whose ids hash below a bound (the levels of fidelity of OSCAR).

Every tuple has a hash, salted per stream, of its id, and a level is a range of hashes. Ids and the salt are in the log,
so a level has the same tuples in every file, segment and layout, before and after compaction, and in every process; and
of two levels with one salt the smaller is within the larger. TABLESAMPLE reads a level; reduced copies of the archive
(OnWriteReplicate, RandomizeThenSort) are to be cut by the same hashes.

The hash is XXH64 (Yann Collet) of whole numbers, chained as Spark's `xxhash64(stream id, seed, tuple id)`, so that
Spark's own reader chooses the same tuples. The salt of a stream is its id, which the log gives once and for all.
"""

from __future__ import annotations

from fractions import Fraction
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Hashes = npt.NDArray[np.uint64]
Int64s = npt.NDArray[np.int64]

HASHES = 1 << 64
"""How many hashes there are: they are the whole numbers below it."""

_PRIMES = tuple(
    np.uint64(prime)
    for prime in (
        0x9E3779B185EBCA87,
        0xC2B2AE3D27D4EB4F,
        0x165667B19E3779F9,
        0x85EBCA77C2B2AE63,
        0x27D4EB2F165667C5,
    )
)
_LENGTH = np.uint64(8)
"""Bytes of what is hashed."""
_AT_ONCE = 1 << 14
"""So many numbers are hashed at once: they stay in the processor's cache meanwhile."""
_SPARK_SEED = 42
"""What Spark's `xxhash64` begins with."""


class HashLevel(NamedTuple):
    """The tuples of one stream whose ids hash below a bound."""

    stream: int
    seed: int
    below: int

    @staticmethod
    def of(stream: int, share: Fraction, seed: int) -> HashLevel:
        """The level that has about a share of a stream's tuples; the stream by its id."""
        return HashLevel(stream, seed, share.numerator * HASHES // share.denominator)

    @property
    def share(self) -> float:
        """About which part of the tuples it has."""
        return self.below / HASHES

    def has(self, ids: Int64s) -> npt.NDArray[np.bool_]:
        """Which tuples are in it, by their ids."""
        if self.below >= HASHES:
            return np.ones(len(ids), dtype=np.bool_)
        mask: npt.NDArray[np.bool_] = hashes(self.stream, self.seed, ids) < np.uint64(self.below)
        return mask


def hashes(stream: int, seed: int, ids: Int64s) -> Hashes:
    """The hashes of tuples by their ids; another seed gives others, as if they had nothing to do with each other."""
    salt = np.full(1, _SPARK_SEED, dtype=np.uint64)
    for each in (stream, seed):
        salt = _xxh64(np.full(1, each, dtype=np.uint64), salt)
    return _xxh64(np.ascontiguousarray(ids, dtype=np.int64).view(np.uint64), salt)


def _xxh64(values: Hashes, seed: Hashes) -> Hashes:
    """XXH64 of values of eight bytes. NumPy's whole numbers go round at 2**64, as the hash wants it."""
    one, two, three, four, five = _PRIMES
    made, key = np.empty(len(values), dtype=np.uint64), seed + five + _LENGTH
    other = np.empty(min(len(values), _AT_ONCE), dtype=np.uint64)
    for start in range(0, len(values), _AT_ONCE):
        mixed = made[start : start + _AT_ONCE]
        spare = other[: len(mixed)]
        np.multiply(values[start : start + _AT_ONCE], two, out=mixed)
        _rotate(mixed, 31, spare)
        mixed *= one
        mixed ^= key
        _rotate(mixed, 27, spare)
        mixed *= one
        mixed += four
        for shift, prime in ((33, two), (29, three)):
            mixed ^= np.right_shift(mixed, np.uint64(shift), out=spare)
            mixed *= prime
        mixed ^= np.right_shift(mixed, np.uint64(32), out=spare)
    return made


def _rotate(values: Hashes, bits: int, spare: Hashes) -> None:
    """Turn each number's bits to the left, in place."""
    np.right_shift(values, np.uint64(64 - bits), out=spare)
    np.left_shift(values, np.uint64(bits), out=values)
    values |= spare
