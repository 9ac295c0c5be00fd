"""Factors over one column and constants, as the values of the column for which they are true (`plan/ranges.py`).

SQL's logic has three values, so each part of a predicate is a pair of sets, where it is true and where it is false,
and its value for NULL; NOT swaps them. A comparison is made in the type that Spark compares in: the column's cast to it
is monotone, so a constant cuts the column's keys at two places and all six comparisons lie between them. What is not
sure to be exactly Spark's (4.3, ANSI mode) has no ranges, and DuckDB evaluates it as before.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import NamedTuple

import pyarrow as pa
from sqlglot import exp

from ladle.plan.keys import Key, decimal_key, float_key, key_domain, key_kind, key_of, successor
from ladle.plan.ranges import EVERYTHING, NOTHING, Interval, Intervals, Ranges, complement, normal, union
from ladle.sql.conformant.readable import DAY_US
from ladle.sql.conformant.spark_types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    STRING,
    VOID,
    NotConformant,
    decimal_of,
    is_decimal,
    is_fraction,
    is_integral,
    is_moment,
    is_numeric,
    promoted,
    wider_decimal,
)
from ladle.sql.conformant.the_list import beyond_bigint
from ladle.sql.constants import Constant, NotConstant, cast_constant, constant_of, number_constant, utf8

DOUBLE_EXACT = 1 << 53
"""Integers up to this are doubles."""


@dataclass(frozen=True)
class _Truth:
    """Where a predicate is true, where it is false (elsewhere it is NULL), and what it is for NULL."""

    true: Intervals
    false: Intervals
    null: bool | None = None

    @property
    def negated(self) -> _Truth:
        return _Truth(self.false, self.true, None if self.null is None else not self.null)


class _ConstantKeys(NamedTuple):
    """The least key whose value is not below a constant, and the least whose value is above."""

    at: Key
    above: Key


@dataclass(frozen=True)
class _FactorColumn:
    name: str
    type: pa.DataType
    domain: tuple[Key, Key] | None

    def is_named(self, node: exp.Expr) -> bool:
        while isinstance(node, exp.Paren):
            node = node.this
        return isinstance(node, exp.Column) and node.name == self.name

    def span(self, lo: Key | None, hi: Key | None) -> Intervals:
        return self.spans([(lo, hi)])

    def spans(self, intervals: Iterable[Interval]) -> Intervals:
        """Intervals in normal form, unbounded on a side where the column has no values."""
        if self.domain is None:
            return normal(intervals)
        least, greatest = self.domain
        found: list[Interval] = []
        for lo, hi in intervals:
            if (lo is None or lo <= greatest) and (hi is None or hi > least):  # type: ignore[operator]
                lo = None if lo is not None and lo <= least else lo  # type: ignore[operator]
                hi = None if hi is not None and hi > greatest else hi  # type: ignore[operator]
                found.append((lo, hi))
        return normal(found)


def ranges_of(tree: exp.Expr, columns: Mapping[str, pa.DataType]) -> Ranges | None:
    """The values for which a canonical factor is true, or None when it is not of a form that is understood."""
    first = tree.find(exp.Column)
    type_ = None if first is None else columns.get(first.name)
    if first is None or type_ is None or key_kind(type_) is None:
        return None
    try:
        truth = _truth(tree, _FactorColumn(first.name, type_, key_domain(type_)))
    except NotConstant:
        return None
    return Ranges(first.name, truth.true, truth.null is True)


def comparing(operator: type[exp.Expr], name: str, type_: pa.DataType) -> Callable[[str], Ranges | None]:
    """The ranges of `column operator number` for many numbers, written as in SQL, without a tree for each."""
    column = _FactorColumn(name, type_, key_domain(type_))

    def ranges(number: str) -> Ranges | None:
        try:
            truth = _compared_with(operator, column, number_constant(number))
        except (NotConstant, NotConformant):
            return None
        return Ranges(name, truth.true, truth.null is True)

    return ranges


def _truth(node: exp.Expr, column: _FactorColumn) -> _Truth:
    rule = _RULES.get(type(node))
    if rule is None:
        raise NotConstant
    return rule(node, column)


# Connectives


def _and(node: exp.Expr, column: _FactorColumn) -> _Truth:
    return _all([_truth(part, column) for part in node.flatten()])


def _or(node: exp.Expr, column: _FactorColumn) -> _Truth:
    return _all([_truth(part, column).negated for part in node.flatten()]).negated


def _all(parts: Sequence[_Truth]) -> _Truth:
    """Their AND: false where one is, true where none is false or NULL."""
    nulls = {part.null for part in parts}
    missing = normal(interval for part in parts for interval in complement(part.true))
    false = normal(interval for part in parts for interval in part.false)
    return _Truth(complement(missing), false, False if False in nulls else None if None in nulls else True)


def _is(node: exp.Expr, column: _FactorColumn) -> _Truth:
    asked = node.expression
    if isinstance(asked, exp.Null):
        return _is_null(node.this, column)
    if not isinstance(asked, exp.Boolean):
        raise NotConstant
    truth = _truth(node.this, column)
    truth = truth if asked.this else truth.negated
    return _Truth(truth.true, complement(truth.true), truth.null is True)


def _is_null(node: exp.Expr, column: _FactorColumn) -> _Truth:
    if column.is_named(node):
        return _Truth(NOTHING, EVERYTHING, True)
    truth = _truth(node, column)
    known = union(truth.true, truth.false)
    return _Truth(complement(known), known, truth.null is None)


def _constant(value: bool | None) -> _Truth:
    return _Truth(EVERYTHING if value else NOTHING, EVERYTHING if value is False else NOTHING, value)


def _bare(node: exp.Expr, column: _FactorColumn) -> _Truth:
    if column.type != BOOLEAN or not column.is_named(node):
        raise NotConstant
    return _Truth(column.span(1, None), column.span(None, 1))


# Comparisons

Between = Callable[[_FactorColumn, _ConstantKeys], Intervals]

_COMPARISONS: Mapping[type[exp.Expr], tuple[Between, type[exp.Expr]]] = {
    exp.EQ: (lambda column, cut: column.span(cut.at, cut.above), exp.EQ),
    exp.NEQ: (lambda column, cut: complement(column.span(cut.at, cut.above)), exp.NEQ),
    exp.LT: (lambda column, cut: column.span(None, cut.at), exp.GT),
    exp.LTE: (lambda column, cut: column.span(None, cut.above), exp.GTE),
    exp.GT: (lambda column, cut: column.span(cut.above, None), exp.LT),
    exp.GTE: (lambda column, cut: column.span(cut.at, None), exp.LTE),
}
"""What each is between the places of a cut, and what it is with its sides exchanged."""

_EQUALITIES = (exp.EQ, exp.NEQ)


def _comparison(node: exp.Expr, column: _FactorColumn) -> _Truth:
    if column.is_named(node.this):
        return _compared(type(node), column, node.expression)
    if column.is_named(node.expression):
        return _compared(_COMPARISONS[type(node)][1], column, node.this)
    raise NotConstant


def _compared(operator: type[exp.Expr], column: _FactorColumn, other: exp.Expr) -> _Truth:
    return _compared_with(operator, column, constant_of(other))


def _compared_with(operator: type[exp.Expr], column: _FactorColumn, constant: Constant) -> _Truth:
    (constant,) = _comparable(column, [constant])
    if constant.value is None:
        return _constant(None)
    if is_integral(column.type) and constant.literal and beyond_bigint(constant.value) and operator not in _EQUALITIES:
        raise NotConstant
    found = _COMPARISONS[operator][0](column, _cut(column.type, constant))
    return _Truth(found, complement(found))


def _null_safe(node: exp.Expr, column: _FactorColumn) -> _Truth:
    sides = (node.this, node.expression)
    other = next((b for a, b in (sides, sides[::-1]) if column.is_named(a)), None)
    if other is None:
        raise NotConstant
    (constant,) = _comparable(column, [constant_of(other)])
    if constant.value is None:
        return _Truth(NOTHING, EVERYTHING, True)
    equal = _compared(exp.EQ, column, other)
    return _Truth(equal.true, equal.false, False)


def _between(node: exp.Expr, column: _FactorColumn) -> _Truth:
    if node.args.get("symmetric") or not column.is_named(node.this):
        raise NotConstant
    return _all([_compared(exp.GTE, column, node.args["low"]), _compared(exp.LTE, column, node.args["high"])])


def _in(node: exp.Expr, column: _FactorColumn) -> _Truth:
    if not column.is_named(node.this) or not node.expressions or node.args.get("query") is not None:
        raise NotConstant
    constants = _comparable(column, [constant_of(each) for each in node.expressions])
    cuts = [_cut(column.type, each) for each in constants if each.value is not None]
    found = column.spans(cuts)
    # in none of the others, it is unknown whether it is the NULL
    return _Truth(found, complement(found) if len(cuts) == len(constants) else NOTHING)


def _comparable(column: _FactorColumn, constants: Sequence[Constant]) -> Sequence[Constant]:
    """Constants as the type in which Spark compares them all with the column; a string is read as what it is beside.

    Integers and decimals are compared as they are, all in doubles when one is.
    """
    type_ = column.type
    # by identity: types are few and hashing one means writing it out
    types = [type_, *{id(each.type): each.type for each in constants}.values()]
    others = [each for each in types if each not in (type_, VOID)]
    if not others or (_is_time(type_) and all(map(_is_time, others))):
        return constants
    if STRING in others:
        texts = [each for each in constants if each.type == STRING]
        if others != [STRING] or not all(each.literal for each in texts):
            raise NotConstant
        return [cast_constant(each, promoted(type_)) for each in constants]
    if not is_numeric(type_) or not all(map(is_numeric, others)):
        raise NotConstant
    if is_fraction(type_) or any(map(is_fraction, others)):
        return [each if each.value is None else Constant(each.double, DOUBLE) for each in constants]
    if is_decimal(type_) or any(map(is_decimal, others)):
        _check_digits(type_, constants)
    return constants


def _is_time(type_: pa.DataType) -> bool:
    return type_ == DATE or is_moment(type_)


def _check_digits(type_: pa.DataType, constants: Iterable[Constant]) -> None:
    """Beyond 38 digits Spark would round before it compares."""
    try:
        common = decimal_of(type_)
        for constant in constants:
            if constant.value is not None:
                common = wider_decimal(common, decimal_of(constant.typed))
    except NotConformant:
        raise NotConstant from None


def _cut(type_: pa.DataType, constant: Constant) -> _ConstantKeys:
    value = constant.value
    match value:
        case float():
            return _cut_doubles(type_, value)
        case str():
            return _at(utf8(value))
        case bytes() | bool():
            return _at(key_of(value, type_))
        case Decimal():
            return _cut_exact(type_, constant)
        case int() if constant.type == type_:
            return _at(value)
        case int() if type_ == DATE and is_moment(constant.type):
            return _cut_rational(type_, value, DAY_US)
        case int() if is_moment(type_) and constant.type == DATE:
            return _at(value * DAY_US)
        case int() if is_decimal(type_):
            return _cut_exact(type_, constant)
        case int():
            return _at(value)
    raise NotConstant


def _cut_exact(type_: pa.DataType, constant: Constant) -> _ConstantKeys:
    digits, scale = constant.unscaled
    own = type_.scale if is_decimal(type_) else 0
    return _cut_rational(type_, digits * 10**own, 10**scale)


def _at(key: Key) -> _ConstantKeys:
    return _ConstantKeys(key, successor(key))


def _cut_rational(type_: pa.DataType, numerator: int, denominator: int) -> _ConstantKeys:
    """Cuts keys that are numbers at any rational."""
    return _cut_numbers(type_, -(-numerator // denominator), numerator // denominator + 1)


def _cut_numbers(type_: pa.DataType, at: int, above: int) -> _ConstantKeys:
    if not is_decimal(type_):
        return _ConstantKeys(at, above)
    limit: int = 10**type_.precision
    first, second = (decimal_key(min(max(number, -limit), limit), type_) for number in (at, above))
    return _ConstantKeys(first, second)


def _cut_doubles(type_: pa.DataType, value: float) -> _ConstantKeys:
    """Compared as doubles: FLOAT and short integers are exactly that, BIGINT and decimals become the nearest one."""
    if is_fraction(type_):
        return _at(float_key(value))
    least, greatest = _numbers(type_)
    if math.isnan(value):
        return _cut_numbers(type_, greatest + 1, greatest + 1)
    if is_integral(type_) and abs(value) < DOUBLE_EXACT:
        return _cut_rational(type_, *value.as_integer_ratio())
    step = 10**type_.scale if is_decimal(type_) else 1
    at = _first(least, greatest, lambda number: number / step >= value)
    above = _first(at, greatest, lambda number: number / step > value)
    return _cut_numbers(type_, at, above)


def _numbers(type_: pa.DataType) -> tuple[int, int]:
    """The least and the greatest number of an integer or decimal type, unscaled."""
    if is_decimal(type_):
        limit: int = 10**type_.precision - 1
        return -limit, limit
    if not is_integral(type_):
        raise NotConstant
    limit = 1 << (type_.bit_width - 1)
    return -limit, limit - 1


def _first(least: int, greatest: int, holds: Callable[[int], bool]) -> int:
    """The least number from which on a monotone predicate holds, or one above the greatest."""
    low, high = least, greatest + 1
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


# Text


def _like(node: exp.Expr, column: _FactorColumn) -> _Truth:
    escape = "\\"
    like = node
    if isinstance(node, exp.Escape):
        like = node.this
        escape = _text(node.expression)
    if not isinstance(like, exp.Like) or not column.is_named(like.this) or column.type != STRING:
        raise NotConstant
    if len(escape) != 1 or escape in "%_":
        raise NotConstant
    text, is_prefix = _prefix(_text(like.expression), escape)
    key = utf8(text)
    found = _starting(key) if is_prefix else column.span(key, successor(key))
    truth = _Truth(found, complement(found))
    return truth.negated if like.args.get("negate") else truth


def _prefix(pattern: str, escape: str) -> tuple[str, bool]:
    """The text of a pattern without wildcards but at its end, and whether there is one."""
    text: list[str] = []
    at = 0
    while at < len(pattern):
        letter = pattern[at]
        if letter == escape:
            at += 1
            if at == len(pattern) or pattern[at] not in ("%", "_", escape):
                raise NotConstant
            letter = pattern[at]
        elif letter == "%" and not pattern[at:].strip("%"):
            return "".join(text), True
        elif letter in "%_":
            raise NotConstant
        text.append(letter)
        at += 1
    return "".join(text), False


def _starting(prefix: bytes) -> Intervals:
    if not prefix:
        return EVERYTHING
    # no byte of UTF-8 is 255
    return ((prefix, prefix[:-1] + bytes([prefix[-1] + 1])),)


def _text(node: exp.Expr) -> str:
    constant = constant_of(node)
    if constant.type != STRING or not isinstance(constant.value, str):
        raise NotConstant
    return constant.value


def _call(node: exp.Expr, column: _FactorColumn) -> _Truth:
    name, arguments = str(node.this).lower(), node.expressions
    match name, len(arguments):
        case "isnull", 1:
            return _is_null(arguments[0], column)
        case "isnotnull", 1:
            return _is_null(arguments[0], column).negated
        case "startswith", 2 if column.type == STRING and column.is_named(arguments[0]):
            found = _starting(utf8(_text(arguments[1])))
            return _Truth(found, complement(found))
    raise NotConstant


_RULES: Mapping[type[exp.Expr], Callable[[exp.Expr, _FactorColumn], _Truth]] = {
    exp.Paren: lambda node, column: _truth(node.this, column),
    exp.And: _and,
    exp.Or: _or,
    exp.Not: lambda node, column: _truth(node.this, column).negated,
    exp.Boolean: lambda node, column: _constant(bool(node.this)),
    exp.Null: lambda node, column: _constant(None),
    exp.Column: _bare,
    exp.Is: _is,
    **dict.fromkeys(_COMPARISONS, _comparison),
    exp.NullSafeEQ: _null_safe,
    exp.NullSafeNEQ: lambda node, column: _null_safe(node, column).negated,
    exp.Between: _between,
    exp.In: _in,
    exp.Like: _like,
    exp.Escape: _like,
    exp.Anonymous: _call,
}
