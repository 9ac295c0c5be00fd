"""The part of the list about strings."""

from __future__ import annotations

from ladle.sql.conformant.entries import Entry, String, Stringable
from ladle.sql.conformant.typing import BOOLEAN, INT, STRING

STRINGS: tuple[Entry, ...] = (
    Entry("length", (String,), INT, "CAST(length({0}) AS INTEGER)", "length({0})"),
    Entry("concat", (Stringable,), STRING, lambda a, t: "(" + " || ".join(x.sql for x in a) + ")", "concat({all})", variadic=True),
    Entry("startswith", (String, String), BOOLEAN, "starts_with({0}, {1})", "startswith({0}, {1})"),
    Entry("endswith", (String, String), BOOLEAN, "suffix({0}, {1})", "endswith({0}, {1})"),
    Entry("contains", (String, String), BOOLEAN, "contains({0}, {1})", "contains({0}, {1})"),
)
