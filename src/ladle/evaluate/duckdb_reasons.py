"""What DuckDB says of a failure, in the words that Spark has for it: an answer does not show who computed it."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

_TYPES = {"INT8": "TINYINT", "INT16": "SMALLINT", "INT32": "INT", "INT64": "BIGINT", "VARCHAR": "STRING"}
_TRY = {"addition": "try_add", "subtraction": "try_subtract", "multiplication": "try_multiply"}
_CLASS = re.compile(r"^[A-Z][A-Za-z ]* Error: ")


def _type(name: str) -> str:
    return _TYPES.get(name, name)


def _overflow(found: re.Match[str]) -> str:
    other = f" Use {_TRY[found[1]]} to tolerate overflow and return NULL instead." if found[1] in _TRY else ""
    return f"[ARITHMETIC_OVERFLOW] Overflow in {found[1]} of {_type(found[2])}: {found[3]}.{other}"


def _overflow_of_operator(found: re.Match[str]) -> str:
    return f"[ARITHMETIC_OVERFLOW] The {found[1]} of {found[2].rstrip('!.')} does not fit its type."


def _overflow_of_call(found: re.Match[str]) -> str:
    return f"[ARITHMETIC_OVERFLOW] {found[1]} does not fit its type."


def _overflow_of_sum(found: re.Match[str]) -> str:
    return (
        f"[ARITHMETIC_OVERFLOW] The sum {found[1]} does not fit {_type(found[2])}. "
        "Use try_sum to tolerate overflow and return NULL instead."
    )


def _does_not_fit(found: re.Match[str]) -> str:
    return (
        f"[CAST_OVERFLOW] The value {found[1]} does not fit {_type(found[2])}. "
        "Use try_cast to tolerate overflow and return NULL instead."
    )


def _malformed(found: re.Match[str]) -> str:
    return (
        f"[CAST_INVALID_INPUT] The value '{found[1]}' can't be cast to {_type(found[2])}. "
        "Use try_cast to tolerate malformed input and return NULL instead."
    )


def _several_rows(found: re.Match[str]) -> str:
    return "[SCALAR_SUBQUERY_TOO_MANY_ROWS] More than one row returned by a subquery used as an expression."


def _too_deep(found: re.Match[str]) -> str:
    return "The statement is nested too deeply to be computed: give parts of it a name with WITH."


_KNOWN: Sequence[tuple[re.Pattern[str], Callable[[re.Match[str]], str]]] = (
    (re.compile(r"Overflow in (\w+) of ([A-Z0-9]+(?:\(\d+(?:,\s*\d+)?\))?) \((.*)\)[!.]"), _overflow),
    (re.compile(r"Overflow on (\w+\(.*\))"), _overflow_of_call),
    (re.compile(r"Type INT128 with value (\S+) can't be cast because .* destination type (\w+)"), _overflow_of_sum),
    (re.compile(r"Type \w+ with value (\S+) can't be cast because .* destination type (\w+)"), _does_not_fit),
    (re.compile(r"Could not cast value (\S+) to (\w+(?:\(\d+,\s*\d+\))?)"), _does_not_fit),
    (re.compile(r"Failed to cast decimal value (\S+) to type (\w+)"), _does_not_fit),
    (
        re.compile(r"Casting value \"(\S+)\" to type (\w+(?:\(\d+,\s*\d+\))?) failed: value is out of range"),
        _does_not_fit,
    ),
    (re.compile(r"Overflow in (negation|division) of (.*)"), _overflow_of_operator),
    (re.compile(r"Could not convert string ['\"](.*)['\"] to (\w+)"), _malformed),
    (re.compile(r"Max expression depth limit"), _too_deep),
    (re.compile(r"More than one row returned by a subquery used as an expression"), _several_rows),
)


def reason_of(text: str) -> str:
    """The reason in an error of DuckDB's, without its class, its excerpt of rendered SQL and its advice."""
    said = text.split("\n\nLINE ", maxsplit=1)[0].strip()
    for pattern, words in _KNOWN:
        if (found := pattern.search(said)) is not None:
            return words(found)
    return _CLASS.sub("", said).split("\n\n")[0]
