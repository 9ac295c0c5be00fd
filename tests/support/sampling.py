"""Samples for the oracle: which tuples TABLESAMPLE has, in plain whole numbers of Python.

The hash of a tuple is what Spark's `xxhash64(stream id, seed, tuple id)` says, written down from its description.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from fractions import Fraction

_ALL = (1 << 64) - 1
_ONE, _TWO, _THREE, _FOUR, _FIVE = (
    11400714785074694791,
    14029467366897019727,
    1609587929392839161,
    9650029242287828579,
    2870177450012600261,
)


def _turned(number: int, bits: int) -> int:
    return (number << bits | number >> (64 - bits)) & _ALL


def xxh64(value: int, seed: int) -> int:
    """XXH64 of eight bytes."""
    number = (seed + _FIVE + 8) & _ALL
    number ^= _turned(value * _TWO & _ALL, 31) * _ONE & _ALL
    number = (_turned(number, 27) * _ONE + _FOUR) & _ALL
    number = (number ^ number >> 33) * _TWO & _ALL
    number = (number ^ number >> 29) * _THREE & _ALL
    return number ^ number >> 32


def hashed(stream: int, seed: int, id_: int) -> int:
    """The hash of a tuple; the stream by its id."""
    return xxh64(id_, xxh64(seed, xxh64(stream, 42)))


def sampled(stream: int, seed: int, share: Fraction, id_: int) -> bool:
    """Whether a tuple is in a sample."""
    return Fraction(hashed(stream, seed, id_), 1 << 64) < share


@dataclass(frozen=True)
class Sampling:
    """`TABLESAMPLE` after a stream, as it is written; before or after the bracket of its window."""

    text: str
    share: Fraction
    seed: int = 0
    before: bool = True


_SHARES = (
    ("50 PERCENT", Fraction(1, 2)),
    ("50 PERCENT", Fraction(1, 2)),
    ("12.5 PERCENT", Fraction(1, 8)),
    ("80 PERCENT", Fraction(4, 5)),
    ("BUCKET 2 OUT OF 3", Fraction(2, 3)),
    ("0 PERCENT", Fraction(0)),
    ("100 PERCENT", Fraction(1)),
)


def random_sampling(rng: random.Random) -> Sampling | None:
    """Now and then one. What is drawn after it is what would be drawn without it."""
    rng = random.Random(hash(rng.getstate()))
    if rng.random() > 0.12:
        return None
    (text, share), seed = rng.choice(_SHARES), rng.choice((None, 0, 7, (1 << 63) - 1))
    text = f"TABLESAMPLE ({text})" + ("" if seed is None else f" REPEATABLE ({seed})")
    return Sampling(text, share, seed or 0, rng.random() < 0.5)


@dataclass
class Hashes:
    """The hashes of the tuples of streams, each computed once."""

    streams: dict[str, int] = field(default_factory=dict)
    """The ids of streams."""
    known: dict[tuple[str, int], list[int]] = field(default_factory=dict)

    def ids(self, stream: str, sampling: Sampling, tuples: int) -> list[int]:
        """Which of the first tuples of a stream are in a sample."""
        seed, hashes = sampling.seed, self.known.setdefault((stream, sampling.seed), [])
        hashes += [hashed(self.streams[stream], seed, id_) for id_ in range(len(hashes), tuples)]
        share = sampling.share
        return [id_ for id_ in range(tuples) if hashes[id_] * share.denominator < share.numerator << 64]
