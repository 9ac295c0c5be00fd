"""Java's regular expressions and formats of times, as far as DuckDB has the same: from Spark's constants to DuckDB's.

A pattern is read character by character. What is not known to mean the same in both (classes in classes, quantifiers of
groups, look-around, letters of formats without a twin) is NotConformant, so Spark runs it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ladle.sql.conformant.spark_types import NotConformant

_LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
_CLASSES = {"d": "0-9", "w": "a-zA-Z0-9_", "s": r"\t\n\x{0b}\f\r "}
_QUANTIFIED = re.compile(r"([*+?]|\{\d{1,3}(,\d{0,3})?\})\??")


@dataclass(frozen=True)
class TranslatedPattern:
    """A regular expression for DuckDB."""

    text: str
    groups: int
    may_be_empty: bool
    """Whether it matches the empty text, which the engines then replace differently."""
    ends: bool
    """Whether it has a `$`, which also matches before the last line's end."""


def pattern(text: str) -> TranslatedPattern:
    """Of Java's pattern; NotConformant where RE2 may see another meaning."""
    if not text.isascii() or len(text) > 200:
        raise NotConformant("a regular expression that is long or not ASCII")
    found: list[str] = []
    at = groups = 0
    ends = False
    while at < len(text):
        letter = text[at]
        at += 1
        if letter == "\\":
            found.append(_escaped(text, at, inside=False))
            at += 1
        elif letter == "[":
            at = _class(text, at, found)
        elif letter == "(":
            plain = text.startswith("?:", at)
            if text.startswith("?", at) and not plain:
                raise NotConformant("a regular expression with (?...)")
            found.append("(?:" if plain else "(")
            groups += not plain
            at += 2 * plain
            continue
        elif letter == ".":
            found.append(f"[^{_LINE_ENDS}]")
        elif letter == "$":
            found.append(rf"(?:\r\n|[{_LINE_ENDS}])?\z")
            ends = True
            if at < len(text) and text[at] not in ")|":
                raise NotConformant("a regular expression with $ inside")
            continue
        elif letter in "^|":
            found.append(r"\A" if letter == "^" else "|")
            continue
        elif letter == ")":
            found.append(")")
            if _QUANTIFIED.match(text, at):
                raise NotConformant("a regular expression with a quantifier of a group")
            continue
        elif letter in "*+?{}]":
            raise NotConformant(f"a regular expression with {letter} here")
        else:
            found.append(letter)
        at = _quantifier(text, at, found)
    try:
        may_be_empty = re.compile(text).search("") is not None
    except re.error:
        raise NotConformant("a regular expression that can't be read") from None
    return TranslatedPattern("".join(found), groups, may_be_empty, ends)


def _quantifier(text: str, at: int, found: list[str]) -> int:
    quantifier = _QUANTIFIED.match(text, at)
    if quantifier is None:
        return at
    found.append(quantifier.group())
    if text[quantifier.end() : quantifier.end() + 1] in ("+", "*", "?", "{"):
        raise NotConformant("a regular expression with a possessive quantifier")
    return quantifier.end()


def _escaped(text: str, at: int, *, inside: bool) -> str:
    if at == len(text):
        raise NotConformant("a regular expression that ends in \\")
    letter = text[at]
    if letter in _CLASSES:
        return _CLASSES[letter] if inside else f"[{_CLASSES[letter]}]"
    if letter in "DWS" and not inside:
        return f"[^{_CLASSES[letter.lower()]}]"
    if letter in "tnr" or not letter.isalnum():
        return f"\\{letter}"
    raise NotConformant(f"a regular expression with \\{letter}")


def _class(text: str, at: int, found: list[str]) -> int:
    """`[...]`; a class inside of one, and `&&`, are Java's own."""
    parts = ["["]
    if text.startswith("^", at):
        parts.append("^")
        at += 1
    first = at
    while at < len(text) and text[at] != "]":
        if text[at] == "[" or text.startswith("&&", at) or (text[at] == "-" and at == first):
            raise NotConformant("a regular expression with a class of this form")
        if text[at] == "\\":
            parts.append(_escaped(text, at + 1, inside=True))
            at += 2
        else:
            parts.append(f"\\{text[at]}" if text[at] in "^." else text[at])
            at += 1
    if at == len(text) or at == first:
        raise NotConformant("a regular expression with a class of this form")
    found.append("".join(parts) + "]")
    return at + 1


def _year(moment: str) -> str:
    """Four digits of the year of its era, and a sign before more."""
    shown = f"CAST((CASE WHEN year({moment}) > 0 THEN year({moment}) ELSE 1 - year({moment}) END) AS VARCHAR)"
    return f"(CASE WHEN length({shown}) > 4 THEN '+' || {shown} ELSE lpad({shown}, 4, '0') END)"


def _part(code: str) -> Callable[[str], str]:
    return lambda moment: f"strftime({moment}, '{code}')"


_LETTERS: Mapping[str, Callable[[str], str]] = {
    "yyyy": _year,
    "MM": _part("%m"),
    "M": _part("%-m"),
    "MMM": _part("%b"),
    "MMMM": _part("%B"),
    "dd": _part("%d"),
    "d": _part("%-d"),
    "HH": _part("%H"),
    "H": _part("%-H"),
    "hh": _part("%I"),
    "h": _part("%-I"),
    "mm": _part("%M"),
    "m": _part("%-M"),
    "ss": _part("%S"),
    "s": _part("%-S"),
    "SSS": _part("%g"),
    "SSSSSS": _part("%f"),
    "a": _part("%p"),
    "E": _part("%a"),
    "EEE": _part("%a"),
    "EEEE": _part("%A"),
}


def formatted(moment: str, form: str) -> str:
    """DuckDB's text of `date_format(moment, form)`."""
    parts: list[str] = []
    at = 0
    while at < len(form):
        letter = form[at]
        if letter == "'":
            end = form.find("'", at + 1)
            if end < 0:
                raise NotConformant("a format with an open quote")
            parts.append(_text(form[at + 1 : end] or "'"))
            at = end + 1
        elif letter.isalpha():
            run = re.match(re.escape(letter) + "+", form[at:])
            assert run is not None
            if run.group() not in _LETTERS:
                raise NotConformant(f"the format '{run.group()}' is not proven equal in DuckDB")
            parts.append(_LETTERS[run.group()](moment))
            at += len(run.group())
        elif letter in "[]{}#":
            raise NotConformant(f"a format with {letter}")
        else:
            parts.append(_text(letter))
            at += 1
    if not parts:
        raise NotConformant("an empty format")
    return f"({' || '.join(parts)})"


def _text(text: str) -> str:
    quoted = text.replace("'", "''")
    return f"'{quoted}'"
