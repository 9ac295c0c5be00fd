"""Constant expressions of a factor, computed as Spark 4.3 computes them in ANSI mode.

Literals, casts of constants and arithmetic of numbers. What might raise, lose digits, or is not sure to be exactly
Spark's is NotConstant: its factor has no ranges then, and is evaluated like any other.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

import pyarrow as pa
from sqlglot import exp

from ladle.errors import TypeMismatch
from ladle.plan.keys import unscaled
from ladle.sql.conformant.casts import number
from ladle.sql.conformant.datatypes import arrow_type
from ladle.sql.conformant.readable import DAY_US, Unreadable, read
from ladle.sql.conformant.spark_types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FLOAT,
    INT,
    INTEGRALS,
    PRECISION_MAX,
    STRING,
    VOID,
    NotConformant,
    Typed,
    arithmetic_type,
    is_decimal,
    is_fraction,
    is_integral,
    is_moment,
    is_numeric,
)

_NEGATED_DIGITS_MAX = 34
"""Spark negates decimals in so many digits."""

Value = bool | int | float | Decimal | str | bytes


class NotConstant(Exception):
    """No constant, or not sure to be Spark's."""


class Constant(NamedTuple):
    """A value and its type in Spark. Dates are days and timestamps microseconds since 1970; None is NULL."""

    value: Value | None
    type: pa.DataType
    literal: bool = False
    """Written as a literal: an integer has only its own digits then when it is taken for a decimal."""

    @property
    def typed(self) -> Typed:
        """What the rules of types look at."""
        digits = self.value if self.literal and isinstance(self.value, int) else None
        return Typed("", self.type, constant=digits)

    @property
    def unscaled(self) -> tuple[int, int]:
        """An integer or decimal as digits and scale."""
        if isinstance(self.value, Decimal):
            return unscaled(self.value, self.type.scale), self.type.scale
        assert isinstance(self.value, int)
        return self.value, 0

    @property
    def double(self) -> float:
        """A number as Spark casts it to DOUBLE: the nearest one."""
        assert isinstance(self.value, int | float | Decimal)
        try:
            return float(self.value)
        except OverflowError:
            raise NotConstant from None


def constant_of(node: exp.Expr) -> Constant:
    """The value of an expression without columns; NotConstant when it can't be told here."""
    rule = _RULES.get(type(node))
    if rule is None:
        raise NotConstant
    try:
        return rule(node)
    except NotConformant:
        raise NotConstant from None


def cast_constant(constant: Constant, target: pa.DataType) -> Constant:
    """`CAST(constant AS target)`."""
    value, source = constant.value, constant.type
    if source == target:
        return constant
    if value is None:
        return Constant(None, target)
    match value:
        case str():
            return Constant(_read(value, target), target)
        case bool():
            if is_integral(target):
                return Constant(int(value), target)
        case int() if source == DATE and is_moment(target):
            return Constant(value * DAY_US, target)
        case int() if is_moment(source) and target == DATE:
            return Constant(value // DAY_US, target)
        case int() if is_moment(source) and is_moment(target):
            return Constant(value, target)
        case int() | float() | Decimal() if is_numeric(source):
            return Constant(_cast_number(constant, target), target)
    raise NotConstant


def _read(text: str, target: pa.DataType) -> Value:
    try:
        return read(text, target)
    except (Unreadable, NotConformant):
        raise NotConstant from None


def utf8(text: str) -> bytes:
    """The bytes of a text. One with half a surrogate pair has none."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        raise NotConstant from None


def _cast_number(constant: Constant, target: pa.DataType) -> Value:
    value = constant.value
    assert isinstance(value, int | float | Decimal)
    if is_integral(target):
        if isinstance(value, float) and not abs(value) < 1 << 63:
            raise NotConstant
        return _in_range(math.trunc(value), target)
    if target == DOUBLE:
        return constant.double
    if target == FLOAT and not isinstance(value, float):
        return _nearest_float(Fraction(value))
    if is_decimal(target) and not isinstance(value, float):
        return _rounded(*constant.unscaled, target)
    raise NotConstant


def _in_range(value: int, type_: pa.DataType) -> int:
    limit = 1 << (type_.bit_width - 1)
    if not -limit <= value < limit:
        raise NotConstant
    return value


def _nearest_float(value: Fraction) -> float:
    """The nearest FLOAT, in one rounding."""
    nearest = value.numerator / value.denominator
    try:
        rounded: float = struct.unpack("<f", struct.pack("<f", nearest))[0]
    except OverflowError:
        raise NotConstant from None
    if Fraction(nearest) != value and Fraction(rounded) != Fraction(nearest):
        # the double may be the very middle of two floats, where the number is not
        (bits,) = struct.unpack("<q", struct.pack("<d", nearest))
        if abs(nearest) < 2.0**-126 or bits & 0x1FFF_FFFF == 0x1000_0000:
            raise NotConstant
    return rounded


def _rounded(number_: int, scale: int, target: pa.DataType) -> Decimal:
    """Half up, away from zero, at the target's scale."""
    if target.scale >= scale:
        number_ *= 10 ** (target.scale - scale)
    else:
        step = 10 ** (scale - target.scale)
        whole = (2 * abs(number_) + step) // (2 * step)
        number_ = whole if number_ >= 0 else -whole
    if abs(number_) >= 10**target.precision:
        raise NotConstant
    return _decimal(number_, target.scale)


def _decimal(number_: int, scale: int) -> Decimal:
    return Decimal((int(number_ < 0), tuple(map(int, str(abs(number_)))), -scale))


def _literal(node: exp.Expr) -> Constant:
    return Constant(str(node.this), STRING, literal=True) if node.is_string else number_constant(str(node.this))


def number_constant(text: str) -> Constant:
    """The constant that a number in a text is, with Spark's type for it."""
    if len(text) < 10 and text.isdecimal():
        return Constant(int(text), INT, literal=True)
    typed = number(text)
    if typed.type != DOUBLE:
        assert isinstance(typed.constant, int | Decimal)
        return Constant(typed.constant, typed.type, literal=True)
    value = float(text)
    if math.isinf(value):
        raise NotConstant
    return Constant(value, DOUBLE)


def _hex(node: exp.Expr) -> Constant:
    digits = str(node.this)
    if len(digits) % 2:
        raise NotConstant
    return Constant(bytes.fromhex(digits), BINARY)


def _negative(node: exp.Expr) -> Constant:
    inner = node.this
    if isinstance(inner, exp.Literal) and not inner.is_string:
        return number_constant("-" + str(inner.this))
    found = constant_of(inner)
    match found.value:
        case bool() | str() | bytes():
            raise NotConstant
        case None:
            return found
        case Decimal() if found.type.precision <= _NEGATED_DIGITS_MAX:
            digits, scale = found.unscaled
            return Constant(_decimal(-digits, scale), found.type)
        case int() if is_integral(found.type):
            return Constant(_in_range(-found.value, found.type), found.type)
        case float():
            return Constant(-found.value, found.type)
    raise NotConstant


def _cast(node: exp.Expr) -> Constant:
    if node.args.get("format") is not None or node.args.get("safe"):
        raise NotConstant
    try:
        target = arrow_type(node.args["to"])
    except TypeMismatch:
        raise NotConstant from None
    return cast_constant(constant_of(node.this), target)


def _arithmetic(symbol: str) -> Callable[[exp.Expr], Constant]:
    def rule(node: exp.Expr) -> Constant:
        left, right = constant_of(node.args["this"]), constant_of(node.args["expression"])
        if not is_numeric(left.type) or not is_numeric(right.type) or left.value is None or right.value is None:
            raise NotConstant
        if is_integral(left.type) and is_integral(right.type):
            return _integers(symbol, left, right)
        if is_fraction(left.type) or is_fraction(right.type):
            return _doubles(symbol, left, right)
        return _decimals(symbol, left, right)

    return rule


def _integers(symbol: str, left: Constant, right: Constant) -> Constant:
    type_ = INTEGRALS[max(INTEGRALS.index(left.type), INTEGRALS.index(right.type))]
    a, b = left.value, right.value
    assert isinstance(a, int)
    assert isinstance(b, int)
    match symbol:
        case "+":
            return Constant(_in_range(a + b, type_), type_)
        case "-":
            return Constant(_in_range(a - b, type_), type_)
        case "*":
            return Constant(_in_range(a * b, type_), type_)
        case "/":
            return _doubles(symbol, left, right)
        case "%" if b != 0:
            # the sign is the dividend's
            return Constant(abs(a) % abs(b) * (-1 if a < 0 else 1), type_)
        case "div" if b != 0:
            quotient = abs(a) // abs(b)
            return Constant(_in_range(quotient if (a < 0) == (b < 0) else -quotient, BIGINT), BIGINT)
    raise NotConstant


def _doubles(symbol: str, left: Constant, right: Constant) -> Constant:
    if FLOAT in (left.type, right.type):
        raise NotConstant
    a, b = left.double, right.double
    match symbol:
        case "+":
            return Constant(a + b, DOUBLE)
        case "-":
            return Constant(a - b, DOUBLE)
        case "*":
            return Constant(a * b, DOUBLE)
        case "/" if b != 0:
            return Constant(a / b, DOUBLE)
    raise NotConstant


def _decimals(symbol: str, left: Constant, right: Constant) -> Constant:
    """Sums and products of decimals; where Spark would make room by giving up digits it is left to others."""
    type_ = arithmetic_type(symbol, left.typed, right.typed)
    if type_.precision >= PRECISION_MAX:
        raise NotConstant
    (a, a_scale), (b, b_scale) = left.unscaled, right.unscaled
    if symbol == "*":
        return Constant(_decimal(a * b, a_scale + b_scale), type_)
    if symbol not in "+-":
        raise NotConstant
    a, b = a * 10 ** (type_.scale - a_scale), b * 10 ** (type_.scale - b_scale)
    return Constant(_decimal(a + b if symbol == "+" else a - b, type_.scale), type_)


_RULES: Mapping[type[exp.Expr], Callable[[exp.Expr], Constant]] = {
    exp.Literal: _literal,
    exp.HexString: _hex,
    exp.Boolean: lambda node: Constant(bool(node.this), BOOLEAN),
    exp.Null: lambda node: Constant(None, VOID),
    exp.Paren: lambda node: constant_of(node.this),
    exp.Neg: _negative,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Add: _arithmetic("+"),
    exp.Sub: _arithmetic("-"),
    exp.Mul: _arithmetic("*"),
    exp.Div: _arithmetic("/"),
    exp.Mod: _arithmetic("%"),
    exp.IntDiv: _arithmetic("div"),
}
