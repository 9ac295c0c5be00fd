"""Keys: an order-preserving encoding of column values, so that every comparison is one of integers or of bytes.

int64 are booleans, integers, dates (days), timestamps (microseconds), decimals of up to 18 digits (unscaled) and
floating point (the bits of the double, negative numbers flipped; -0.0 is 0.0, and every NaN is one key above infinity,
as Spark orders them). Bytes are strings (UTF-8), binary and longer decimals (the unscaled value in 16 big-endian bytes,
sign flipped). Types that nest have no keys. `stem/column_keys.py` encodes whole columns; this is what its keys mean.
"""

from __future__ import annotations

import math
import struct
from datetime import date, datetime
from decimal import Decimal
from enum import Enum

import pyarrow as pa

from ladle.clock import to_us

Key = int | bytes

INT64_MIN = -(1 << 63)
INT64_MAX = (1 << 63) - 1

DIGITS_MAX = 18
"""A decimal of more digits than this has bytes for keys."""

NAN_KEY = 0x7FF8_0000_0000_0000

_EPOCH_DAY = date(1970, 1, 1).toordinal()


class KeyKind(Enum):
    """What the keys of a column are."""

    INT64 = "int64"
    BYTES = "bytes"


def key_kind(type_: pa.DataType) -> KeyKind | None:
    """The kind of the keys of a column, or None when values of this type have no keys."""
    if pa.types.is_decimal128(type_):
        return KeyKind.INT64 if type_.precision <= DIGITS_MAX else KeyKind.BYTES
    if pa.types.is_string(type_) or pa.types.is_binary(type_):
        return KeyKind.BYTES
    if (
        pa.types.is_boolean(type_)
        or pa.types.is_signed_integer(type_)
        or type_ in (pa.float32(), pa.float64(), pa.date32())
        or (pa.types.is_timestamp(type_) and type_.unit == "us")
    ):
        return KeyKind.INT64
    return None


def key_domain(type_: pa.DataType) -> tuple[Key, Key] | None:
    """The least and the greatest key that a value of this type can have, where they are not the limits of the kind."""
    if pa.types.is_boolean(type_):
        return 0, 1
    if pa.types.is_signed_integer(type_):
        limit = 1 << (type_.bit_width - 1)
        return -limit, limit - 1
    if pa.types.is_floating(type_):
        return float_key(-math.inf), NAN_KEY
    if pa.types.is_decimal128(type_):
        limit = 10**type_.precision - 1
        return decimal_key(-limit, type_), decimal_key(limit, type_)
    return None


def key_of(value: object, type_: pa.DataType) -> Key:
    """The key of a constant that is exactly of the type of the column."""
    match value:
        case bool() | int():
            return int(value)
        case float():
            return float_key(value)
        case str():
            return value.encode()
        case bytes():
            return value
        case Decimal():
            return decimal_key(unscaled(value, type_.scale), type_)
        case datetime():
            return to_us(value)
        case date():
            return value.toordinal() - _EPOCH_DAY
        case _:
            raise TypeError(f"a {type(value).__name__} has no key")


def float_key(value: float) -> int:
    """The key of a floating point number. NaN is greater than every number, as in Spark."""
    if math.isnan(value):
        return NAN_KEY
    bits: int = struct.unpack("<q", struct.pack("<d", value))[0]
    # a negative number is minus its magnitude, so that -0.0 is 0
    return bits if bits >= 0 else INT64_MIN - bits


def unscaled(value: Decimal, scale: int) -> int:
    """The integer that is `value` at this scale; ValueError when there is none."""
    sign, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int)
    number = int("".join(map(str, digits)) or "0")
    shift = exponent + scale
    if shift >= 0:
        number *= 10**shift
    else:
        number, rest = divmod(number, 10**-shift)
        if rest:
            raise ValueError(f"{value} has more than {scale} digits after the point")
    return -number if sign else number


def decimal_key(number: int, type_: pa.DataType) -> Key:
    """The key of the decimal with this unscaled value."""
    if type_.precision <= DIGITS_MAX:
        return number
    return (number + (1 << 127)).to_bytes(16, "big")


def successor(key: Key) -> Key:
    """The least key that is greater. It may be one above the greatest int64."""
    return key + b"\0" if isinstance(key, bytes) else key + 1
