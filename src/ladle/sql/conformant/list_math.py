"""The part of the list about numbers."""

from __future__ import annotations

from ladle.sql.conformant.entries import Boolean, Entry, Fraction, Integral, first_type
from ladle.sql.conformant.typing import BIGINT, DOUBLE

MATH: tuple[Entry, ...] = (
    Entry("negative", (Integral,), first_type, "(- {0})", "(- {0})", may_raise=True),
    Entry("negative", (Fraction,), first_type, "(- {0})", "(- {0})"),
    Entry("abs", (Integral,), first_type, "abs({0})", "abs({0})", may_raise=True),
    Entry("abs", (Fraction,), first_type, "abs({0})", "abs({0})"),
)
