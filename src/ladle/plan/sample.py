"""TABLESAMPLE: which share of a stream one mention of it reads.

A tuple is in a sample by a hash of its id (`ladle.archive.levels`), so a sample is a property of tuples: whatever else
is read, and whenever, the same ones are in it. What is in a sample is in every larger one with its seed.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from ladle.json_values import JsonRow


@dataclass(frozen=True)
class Sample:
    """Less than all tuples of a stream: about `share` of them, chosen by `seed`."""

    share: Fraction
    seed: int = 0

    @property
    def percent(self) -> str:
        """The share for people, exact where a few digits can be."""
        text = self._digits
        return text if self._is_exact(text) else f"about {float(self.share * 100):.4g}"

    @property
    def _digits(self) -> str:
        return f"{float(self.share * 100):.6f}".rstrip("0").rstrip(".")

    def _is_exact(self, percent: str) -> bool:
        return Fraction(percent) == self.share * 100

    def __str__(self) -> str:
        text = f"{self._digits} PERCENT"
        if not self._is_exact(self._digits):
            text = f"BUCKET {self.share.numerator} OUT OF {self.share.denominator}"
        return f"TABLESAMPLE ({text})" + (f" REPEATABLE ({self.seed})" if self.seed else "")


def sample_to_json(sample: Sample) -> list[int]:
    """Encode a sample."""
    return [sample.share.numerator, sample.share.denominator, sample.seed]


def sample_from_json(value: JsonRow | None) -> Sample | None:
    """None for plans that have none, and for those of versions that knew of none."""
    if value is None:
        return None
    numerator, denominator, seed = value
    return Sample(Fraction(numerator, denominator), seed)
