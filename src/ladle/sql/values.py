"""`INSERT INTO name VALUES (...), ...` of plain literals, read without the parser: a thousand rows take milliseconds.

A regular expression takes a row at a time: strings without escapes, numbers without exponents, TRUE, FALSE, NULL,
`DATE '...'` and `TIMESTAMP '...'`. Whatever else there is in a statement, and whatever is wrong with it, is left to the
parser. Values are cast to their columns' types as Spark casts literals; those that can't be are told by row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Context, Decimal
from functools import cache
from re import ASCII, IGNORECASE, Pattern, compile
from typing import Any

import pyarrow as pa

from ladle.errors import TypeMismatch
from ladle.schema import TIMESTAMP, Column, StreamSchema, TableSchema, type_name
from ladle.sql.conformant.readable import DAY_US, Unreadable, read
from ladle.sql.conformant.spark_types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    STRING,
    NotConformant,
    is_decimal,
    is_integral,
    is_moment,
)
from ladle.sql.names import Names
from ladle.sql.position import Source
from ladle.sql.statements import InsertTableValues, InsertValues, Misfit

_NAME = "(?:[A-Za-z_][A-Za-z0-9_]*|`[^`]+`)"
_HEAD = compile(
    rf"\s*INSERT\s+INTO\s+(?:TABLE\s+)?(?P<target>{_NAME})\s*"
    rf"(?:\(\s*(?P<columns>{_NAME}(?:\s*,\s*{_NAME})*)\s*\)\s*)?VALUES\s*(?=\()",
    ASCII | IGNORECASE,
)
_CELL = r"""('[^'\\]*'|-?[0-9]+(?:\.[0-9]+)?|NULL|TRUE|FALSE|(?:TIMESTAMP|DATE)\s*'[^'\\]*')"""
_FIRST = compile(rf"[(,]\s*{_CELL}\s*(?=[,)])", ASCII | IGNORECASE)
_DIGITS = frozenset("-0123456789")
_DIGITS_MAX = 18
"""Numbers with more digits are left to the parser."""
_ROUNDED = Context(prec=60, rounding=ROUND_HALF_UP)

Group = tuple[list[Any], Mapping[int, Any]]
"""Values of a column (days and microseconds for times), and by position those that are none of its type."""


class _NotPlain(Exception):
    """The parser has to read it."""


@dataclass(frozen=True)
class Scanned:
    """A statement's literals as they are written, and where its rows begin."""

    target: str
    columns: tuple[str, ...] | None
    rows: Sequence[tuple[str, ...]]
    starts: Sequence[int]
    end: int
    closed: bool
    """Whether it ends with a semicolon."""

    def at(self, text: str, row: int, column: int) -> int:
        """The offset of one literal."""
        match = _row(len(self.rows[0])).match(text, self.starts[row])
        assert match is not None
        return match.start(column + 1)


def scan(text: str, begin: int = 0) -> Scanned | None:
    """The statement that begins there, if it is one of plain literals."""
    head = _HEAD.match(text, begin)
    if head is None or head["target"].lower() == "table":
        return None
    row = _row(_width(text, head.end()))
    rows: list[tuple[str, ...]] = []
    starts: list[int] = []
    at, last = head.end(), ","
    while last.startswith(","):
        match = row.match(text, at)
        if match is None:
            return None
        *cells, last = match.groups()
        rows.append(tuple(cells))
        starts.append(at)
        at = match.end()
    columns = None if head["columns"] is None else tuple(map(_unquoted, head["columns"].split(",")))
    return Scanned(_unquoted(head["target"]), columns, rows, starts, at, last == ";")


def _width(text: str, at: int) -> int:
    """How many literals the first row has."""
    width = 0
    while (match := _FIRST.match(text, at)) is not None:
        width, at = width + 1, match.end()
    return width


@cache
def _row(width: int) -> Pattern[str]:
    cells = r"\s*,\s*".join([_CELL] * max(1, width))
    return compile(rf"\(\s*{cells}\s*\)\s*(,\s*(?=\()|;|\Z)", ASCII | IGNORECASE)


def _unquoted(name: str) -> str:
    return name.strip().strip("`")


def values_insert(text: str, names: Names) -> InsertValues | InsertTableValues | None:
    """The statement, if the text is one of plain literals; None when the parser has to read it."""
    scanned = scan(text)
    if scanned is None or text[scanned.end :].strip():
        return None
    stream = names.stream_schema(scanned.target)
    table = None if stream is not None else names.table_schema(scanned.target)
    found = stream or table
    targets = None if found is None else _targets(scanned, found[1])
    if found is None or targets is None:
        return None
    given = list(zip(*scanned.rows, strict=True))
    try:
        columns = [
            _column(cells, each.type, mixed=stream is not None) for cells, each in zip(given, targets, strict=True)
        ]
        arrays = [_array(values, each.type) for (values, _), each in zip(columns, targets, strict=True)]
    except (_NotPlain, NotConformant, pa.ArrowException, UnicodeEncodeError):
        return None
    rows = pa.table(dict(zip([each.name for each in targets], arrays, strict=True)))
    if stream is not None:
        return InsertValues(stream[0], rows, _misfits(scanned, targets, columns))
    for number, (_, misfits) in enumerate(columns):
        for row, value in misfits.items():
            shown = repr(value) if isinstance(value, str) else value
            raise TypeMismatch(
                f"{shown} is no {type_name(targets[number].type)}, as column '{targets[number].name}' is. "
                "None was inserted.",
                position=Source(text).at(scanned.at(text, row, number)),
            )
    return InsertTableValues(found[0], rows)


def _targets(scanned: Scanned, schema: StreamSchema | TableSchema) -> list[Column] | None:
    names = scanned.columns if scanned.columns is not None else [each.name for each in schema.columns]
    targets = [schema.column(name) for name in names]
    known = [each for each in targets if each is not None]
    if len(known) != len(scanned.rows[0]) or len(known) != len(targets) or len(set(known)) != len(known):
        return None
    return known


def _misfits(scanned: Scanned, targets: Sequence[Column], columns: Sequence[Group]) -> tuple[Misfit, ...]:
    """The rows that don't fit, each with its first reason."""
    found: dict[int, Misfit] = {}
    for column, (_, misfits) in zip(targets, columns, strict=True):
        for row, value in misfits.items():
            if row not in found:
                cells = zip(targets, scanned.rows[row], strict=True)
                given = {each.name: _given(cell) for each, cell in cells}
                found[row] = Misfit(row, column, value, given)
    return tuple(found[row] for row in sorted(found))


def _given(cell: str) -> Any:
    """A literal as JSON has it."""
    if "'" in cell:
        return cell[cell.index("'") + 1 : -1]
    word = {"NULL": None, "TRUE": True, "FALSE": False}
    return word[cell.upper()] if cell.upper() in word else _number(cell)


def _number(text: str) -> int | float:
    return float(text) if "." in text else int(text)


# Columns


def _column(cells: Sequence[str], type_: pa.DataType, *, mixed: bool) -> Group:
    """The cells of one column as values of its type. Kinds of literals that differ are each cast alone, if they may."""
    firsts = {cell[0] for cell in cells}
    if firsts == {"'"}:
        return _texts([cell[1:-1] for cell in cells], type_)
    if firsts <= _DIGITS:
        return _numbers(cells, type_)
    positions: dict[Callable[[list[str], pa.DataType], Group], list[int]] = {}
    for position, cell in enumerate(cells):
        if (kind := _kind(cell)) is not None:
            positions.setdefault(kind, []).append(position)
    if len(positions) > 1 and not mixed:
        raise _NotPlain
    values: list[Any] = [None] * len(cells)
    misfits: dict[int, Any] = {}
    for kind, those in positions.items():
        found, wrong = kind([cells[position] for position in those], type_)
        for position, value in zip(those, found, strict=True):
            values[position] = value
        misfits.update((those[number], value) for number, value in wrong.items())
    return values, misfits


def _kind(cell: str) -> Callable[[list[str], pa.DataType], Group] | None:
    first = cell[0]
    if first == "'":
        return _quoted
    if first in _DIGITS:
        return _numbers
    if first in "nN":
        return None
    return _times if cell.endswith("'") else _booleans


def _quoted(cells: list[str], type_: pa.DataType) -> Group:
    return _texts([cell[1:-1] for cell in cells], type_)


def _texts(texts: list[str], type_: pa.DataType) -> Group:
    if type_ == STRING:
        return texts, {}
    values: list[Any] = []
    misfits = {}
    for number, text in enumerate(texts):
        try:
            values.append(read(text, type_))
        except Unreadable:
            values.append(None)
            misfits[number] = text
    return values, misfits


def _numbers(texts: Sequence[str], type_: pa.DataType) -> Group:
    if max(map(len, texts)) > _DIGITS_MAX:
        raise _NotPlain
    whole = not any("." in text for text in texts)
    if type_ == DOUBLE:
        # -0 is an integer, which has one zero
        return [float(text) + 0.0 for text in texts], {}
    if type_ == FLOAT:
        # in one rounding, as Spark
        return [value + 0.0 for value in pa.array(texts, pa.string()).cast(FLOAT).to_pylist()], {}
    if type_ == STRING and whole:
        return [str(int(text)) for text in texts], {}
    if is_integral(type_):
        limit = 1 << (type_.bit_width - 1)
        integers = list(map(int, texts)) if whole else [int(Decimal(text)) for text in texts]
        return _within(texts, integers, -limit, limit)
    if is_decimal(type_):
        unit = Decimal(1).scaleb(-type_.scale)
        limit = Decimal(10) ** (type_.precision - type_.scale)
        return _within(texts, [Decimal(text).quantize(unit, context=_ROUNDED) for text in texts], unit - limit, limit)
    raise _NotPlain


def _within(texts: Sequence[str], values: list[Any], least: Any, limit: Any) -> Group:
    """The values from the least up to the limit; others are none."""
    if least <= min(values) and max(values) < limit:
        return values, {}
    misfits = {number: _number(texts[number]) for number, value in enumerate(values) if not least <= value < limit}
    return [None if number in misfits else value for number, value in enumerate(values)], misfits


def _booleans(cells: list[str], type_: pa.DataType) -> Group:
    if type_ != BOOLEAN:
        raise _NotPlain
    return [cell[0] in "tT" for cell in cells], {}


def _times(cells: list[str], type_: pa.DataType) -> Group:
    """DATE '...' and TIMESTAMP '...': one that is none is an error of the statement, which the parser tells."""
    values: list[Any] = []
    for cell in cells:
        source = DATE if cell[0] in "dD" else TIMESTAMP
        try:
            value = read(cell[cell.index("'") + 1 : -1], source)
        except Unreadable:
            raise _NotPlain from None
        assert isinstance(value, int)
        if is_moment(type_):
            values.append(value * DAY_US if source == DATE else value)
        elif type_ == DATE:
            values.append(value if source == DATE else value // DAY_US)
        else:
            raise _NotPlain
    return values, {}


def _array(values: list[Any], type_: pa.DataType) -> pa.Array:
    if type_ == DATE:
        return pa.array(values, pa.int32()).cast(DATE)
    return pa.array(values, pa.int64()).cast(type_) if is_moment(type_) else pa.array(values, type_)
