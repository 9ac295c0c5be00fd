"""Which types Spark's operators take (4.3, ANSI mode), and what becomes of a string beside another type.

A string beside a number is cast to BIGINT or DOUBLE, beside any other scalar to that one's type. What Spark refuses is
refused here, before anything runs; a test asks Spark about every operator over every pair of types.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
from sqlglot import exp

from ladle.errors import TypeMismatch
from ladle.schema import type_name
from ladle.sql.conformant.casts import cast
from ladle.sql.conformant.datatypes import position_of
from ladle.sql.conformant.spark_types import (
    BOOLEAN,
    DATE,
    DOUBLE,
    DURATION,
    INT,
    MONTHS,
    SMALLINT,
    STRING,
    TINYINT,
    VOID,
    NotConformant,
    Refused,
    Typed,
    common_type,
    is_decimal,
    is_integral,
    is_moment,
    is_numeric,
    promoted,
)

COMPARISONS = frozenset({"=", "<>", "<", "<=", ">", ">=", "<=>"})
_BITS = frozenset("&|^")
ARITHMETIC = frozenset({"+", "-", "*", "/", "%", "div"}) | _BITS
_DAYS = (TINYINT, SMALLINT, INT)
"""What can be added to a DATE."""


def check_compared(values: Sequence[Typed]) -> None:
    """Refused if Spark can't compare values of these types with each other."""
    if any(pa.types.is_map(value.type) for value in values):
        raise Refused("MAPs can't be compared.", hint="compare what is in them: map_entries(...)")
    if any(value.type != values[0].type for value in values):
        common_type(values)


def calculated(symbol: str, left: Typed, right: Typed) -> tuple[Typed, Typed]:
    """The operands of an arithmetic operator, a string beside a number cast to what Spark casts it to."""
    if any(each.type in (DURATION, MONTHS) for each in (left, right)):
        return left, right
    if not _takes(symbol, left.type, right.type):
        raise Refused(
            f"{type_name(left.type)} {symbol} {type_name(right.type)}: there is no such operation.",
            hint=_hint(left.type, right.type),
        )
    if VOID in (left.type, right.type):
        return _beside_null(symbol, left, right)
    for text, other in ((left, right), (right, left)):
        if text.type == STRING and is_numeric(other.type):
            type_ = promoted(other.type)
            return cast(left, type_), cast(right, type_)
    return left, right


def _beside_null(symbol: str, left: Typed, right: Typed) -> tuple[Typed, Typed]:
    """NULL has the type of the number beside it, and is DOUBLE before a division."""
    if left.type == VOID:
        left = cast(left, DOUBLE if symbol == "/" or right.type == VOID else right.type)
    if right.type == VOID:
        right = cast(right, left.type)
    if not is_numeric(left.type):
        raise NotConformant(f"{type_name(left.type)} {symbol} NULL")
    return left, right


def _takes(symbol: str, left: pa.DataType, right: pa.DataType) -> bool:
    types = {left, right}
    if symbol in ("+", "-") and any(each == DATE or is_moment(each) for each in types):
        return _takes_time(symbol, left, right)
    others = types - {STRING, VOID}
    if symbol in _BITS:
        fitting = all(is_integral(each) for each in others)
    elif symbol == "div":
        fitting = all(is_integral(each) or (is_decimal(each) and STRING not in types) for each in others)
    else:
        fitting = all(is_numeric(each) for each in others)
    return fitting and (STRING not in types or bool(others))


def _takes_time(symbol: str, left: pa.DataType, right: pa.DataType) -> bool:
    if symbol == "-" and left != VOID:
        if all(each == DATE or is_moment(each) or each in (STRING, VOID) for each in (left, right)):
            return True
        return left == DATE and right in _DAYS
    days = (*_DAYS, VOID) if symbol == "+" else ()
    sides = ((left, right), (right, left))
    return any((time == DATE and other in days) or other == VOID for time, other in sides)


def truth(value: Typed, beside: Typed | None = None) -> Typed:
    """A condition, or an operand of AND, OR and NOT: a string is one beside a BOOLEAN."""
    if value.type == STRING and beside is not None and beside.type == BOOLEAN:
        return cast(value, BOOLEAN)
    if value.type == VOID and (beside is None or beside.type != STRING):
        return cast(value, BOOLEAN)
    if value.type != BOOLEAN:
        raise Refused(f"A condition is BOOLEAN, not {type_name(value.type)}.", hint="compare it with something")
    return value


@contextmanager
def refused_at(node: exp.Expr) -> Iterator[None]:
    """What Spark refuses is an error that points at the node."""
    try:
        yield
    except Refused as refused:
        raise refusal(refused, node) from None


def refusal(refused: Refused, node: exp.Expr) -> TypeMismatch:
    """The error that the user sees."""
    return TypeMismatch(refused.reason, hint=refused.hint, position=position_of(node))


def joined(word: str, terms: Sequence[Typed]) -> Typed:
    """Terms joined by AND or OR; the first that decides hides what the others would raise."""
    decided, other = ("FALSE", "TRUE") if word == "AND" else ("TRUE", "FALSE")
    if not any(term.may_raise for term in terms):
        return Typed("(" + f" {word} ".join(term.sql for term in terms) + ")", BOOLEAN)
    deciding = "".join(f"WHEN {term.sql} IS {decided} THEN {decided} " for term in terms)
    unknown = " OR ".join(f"{term.sql} IS NULL" for term in terms)
    return Typed(f"(CASE {deciding}WHEN {unknown} THEN NULL ELSE {other} END)", BOOLEAN, may_raise=True)


def _hint(left: pa.DataType, right: pa.DataType) -> str:
    if BOOLEAN in (left, right):
        return "count with CASE WHEN condition THEN 1 ELSE 0 END, or sum(CAST(condition AS INT))"
    if any(each == DATE or is_moment(each) for each in (left, right)):
        return "times are moved by intervals, like at + INTERVAL 1 HOUR"
    if STRING in (left, right):
        return "texts are joined by ||, and made numbers by CAST(... AS DOUBLE)"
    return "it is for numbers"
