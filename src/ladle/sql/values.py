"""`INSERT INTO name VALUES (...), ...` of plain literals, read without the parser: a thousand rows take milliseconds.

The literals are found by `literal_rows`. Whatever else there is in a statement, and whatever is wrong with it, is left
to the parser. Values are cast to their columns' types as Spark casts literals; those that can't be are told by row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import TypeAlias

import pyarrow as pa

from ladle.clock import FIRST_US, LAST_US
from ladle.columns import Value
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
from ladle.sql.literal_rows import LiteralRows, literal_rows
from ladle.sql.names import Names
from ladle.sql.position import SourceText
from ladle.sql.statement_types import InsertTableValues, InsertValues, Misfit

_DIGITS = frozenset("-0123456789")
_DIGITS_MAX = 18
"""Numbers with more digits are left to the parser."""
_ROUNDED = Context(prec=60, rounding=ROUND_HALF_UP)

Group: TypeAlias = tuple[list[Value], Mapping[int, Value]]
"""Values of a column (days and microseconds for times), and by position those that are none of its type."""


class _NotPlain(Exception):
    """The parser has to read it."""


def values_insert(text: str, names: Names) -> InsertValues | InsertTableValues | None:
    """The statement, if the text is one of plain literals; None when the parser has to read it."""
    scanned = literal_rows(text)
    if scanned is None or text[scanned.end :].strip():
        return None
    stream = names.stream_schema(scanned.target)
    table = None if stream is not None else names.table_schema(scanned.target)
    found = stream or table
    targets = None if found is None else _targets(scanned, found[1])
    if found is None or targets is None:
        return None
    given = [scanned.column(number) for number in range(scanned.width)]
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
                position=SourceText(text).at(scanned.at(text, row, number)),
            )
    return InsertTableValues(found[0], rows)


def _targets(scanned: LiteralRows, schema: StreamSchema | TableSchema) -> list[Column] | None:
    names = scanned.columns if scanned.columns is not None else [each.name for each in schema.columns]
    targets = [schema.column(name) for name in names]
    known = [each for each in targets if each is not None]
    if len(known) != scanned.width or len(known) != len(targets) or len(set(known)) != len(known):
        return None
    return known


def _misfits(scanned: LiteralRows, targets: Sequence[Column], columns: Sequence[Group]) -> tuple[Misfit, ...]:
    """The rows that don't fit, each with its first reason."""
    found: dict[int, Misfit] = {}
    for column, (_, misfits) in zip(targets, columns, strict=True):
        for row, value in misfits.items():
            if row not in found:
                cells = zip(targets, scanned.row(row), strict=True)
                given = {each.name: _given(cell) for each, cell in cells}
                found[row] = Misfit(row, column, value, given)
    return tuple(found[row] for row in sorted(found))


def _given(cell: str) -> str | int | float | None:
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
    values: list[Value] = [None] * len(cells)
    misfits: dict[int, Value] = {}
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
    values: list[Value] = []
    misfits = {}
    for number, text in enumerate(texts):
        try:
            value = read(text, type_)
            _require_year(value, type_)
            values.append(value)
        except Unreadable:
            values.append(None)
            misfits[number] = text
    return values, misfits


def _require_year(value: Value, type_: pa.DataType) -> None:
    """Leaves what is not in the years 1 to 9999 to the parser, which says what is wrong with it."""
    unit = 1 if is_moment(type_) else DAY_US if type_ == DATE else 0
    if unit and not FIRST_US <= value * unit <= LAST_US:
        raise _NotPlain


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


def _within(texts: Sequence[str], values: list[Value], least: int | Decimal, limit: int | Decimal) -> Group:
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
    values: list[Value] = []
    for cell in cells:
        source = DATE if cell[0] in "dD" else TIMESTAMP
        try:
            value = read(cell[cell.index("'") + 1 : -1], source)
        except Unreadable:
            raise _NotPlain from None
        _require_year(value, source)
        assert isinstance(value, int)
        if is_moment(type_):
            values.append(value * DAY_US if source == DATE else value)
        elif type_ == DATE:
            values.append(value if source == DATE else value // DAY_US)
        else:
            raise _NotPlain
    return values, {}


def _array(values: list[Value], type_: pa.DataType) -> pa.Array:
    if type_ == DATE:
        return pa.array(values, pa.int32()).cast(DATE)
    return pa.array(values, pa.int64()).cast(type_) if is_moment(type_) else pa.array(values, type_)
