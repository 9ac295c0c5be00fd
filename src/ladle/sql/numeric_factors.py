"""Factors `column operator constant` made for many constants: of numbers without a tree for each, of texts and times
without a parser.

The text of such a factor, in Spark's SQL and in DuckDB's, is the same for all numbers of one *form* (digits before and
after the point, type) but for the number itself. Which text that is, is not known here: it is taken from factors
that the binder's own functions make, two for each form, and checked on a third.
"""

from __future__ import annotations

from datetime import datetime
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import SqlglotError

from ladle.plan import Factor
from ladle.sql.conform import NotConformant, translate_factor
from ladle.sql.conformant.spark_types import DATE, INT, STRING, is_moment
from ladle.sql.constants import NotConstant, number_constant
from ladle.sql.dialect import DIALECT, LadleParser
from ladle.sql.factor_ranges import comparing, ranges_of
from ladle.sql.split import canonical_factor

DIGITS_MAX = 18
"""Longer numbers are unusual, and left to the binder."""

_FACTORS_MAX = 1 << 16
_OPERATORS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_FIRST_DIGITS = ("1", "2", "9", "7", "0")


class NumberForm(NamedTuple):
    """What the text around a number may depend on."""

    whole: int
    fraction: int
    type: str


class _NumberTemplate(NamedTuple):
    """The texts before and after the number."""

    sql: tuple[str, str]
    duckdb: tuple[str, str]


_INT_DIGITS = 10
"""Integers with fewer digits are INT, and need no look at their type."""
_INT_FORMS = [NumberForm(digits, 0, str(INT)) for digits in range(_INT_DIGITS)]


class NumericFactor:
    """`column operator number`, whatever the number."""

    def __init__(self, column: str, type_: pa.DataType, operator: type[exp.Expression], *, negative: bool) -> None:
        self._column = column
        self._type = type_
        self._operator = operator
        self._sign = "-" if negative else ""
        self._ranges = comparing(operator, column, type_)
        self._factors: dict[str, Factor] = {}
        self._patterns: dict[NumberForm, _NumberTemplate | None] = {}

    def factor(self, number: str) -> Factor | None:
        """The factor with a number, written as in SQL without its sign; None when the binder must see to it."""
        known = self._factors.get(number)
        if known is not None:
            return known
        made = self._make(number)
        if made is not None:
            if len(self._factors) >= _FACTORS_MAX:
                self._factors = {}
            self._factors[number] = made
        return made

    def _make(self, number: str) -> Factor | None:
        form = self._form(number)
        if form is None:
            return None
        if form not in self._patterns:
            self._patterns[form] = self._pattern(form, number)
        pattern = self._patterns[form]
        if pattern is None:
            return self._bound(number)
        ranges = self._ranges(self._sign + number)
        if ranges is None:
            return None
        sql, duckdb = (number.join(around) for around in pattern)
        return Factor(sql, duckdb, (self._column,), ranges)

    def _form(self, number: str) -> NumberForm | None:
        whole, _, fraction = number.partition(".")
        if len(whole) + len(fraction) > DIGITS_MAX or (whole.startswith("0") and whole != "0"):
            return None
        if not fraction and len(whole) < _INT_DIGITS and number != "0":
            return _INT_FORMS[len(whole)]
        try:
            type_ = number_constant(self._sign + number).type
        except NotConstant:
            return None
        # Zero has no digits, and no sign either.
        return NumberForm(len(whole), len(fraction), str(type_) if number.strip("0.") else "zero")

    def _pattern(self, form: NumberForm, number: str) -> _NumberTemplate | None:
        """What is around the number in two factors, if that makes the third."""
        probes = [probe for digit in _FIRST_DIGITS if self._form(probe := _probe(form, digit)) == form][:2]
        made = [self._bound(probe) for probe in (*probes, number)]
        if len(probes) < 2 or made[0] is None or made[1] is None or made[2] is None:
            return None
        sql = _around(made[0].sql, made[1].sql, *probes)
        duckdb = _around(made[0].duckdb, made[1].duckdb, *probes)
        if sql is None or duckdb is None or number.join(sql) != made[2].sql or number.join(duckdb) != made[2].duckdb:
            return None
        return _NumberTemplate(sql, duckdb)

    def _bound(self, number: str) -> Factor | None:
        """The factor as the binder makes it."""
        literal: exp.Expression = exp.Literal.number(number)
        tree = self._operator(
            this=exp.column(exp.to_identifier(self._column, quoted=True)),
            expression=exp.Neg(this=literal) if self._sign else literal,
        )
        return _made(canonical_factor(tree), self._column, self._type)


class TextComparison:
    """`column operator 'text'` for a column of texts, whatever the text. Each is made by the binder's own functions."""

    def __init__(self, column: str, operator: type[exp.Expression]) -> None:
        self._column = column
        self._operator = operator

    def factor(self, text: str) -> Factor | None:
        """The factor with a text in its place."""
        tree = self._operator(
            this=exp.column(exp.to_identifier(self._column, quoted=True)), expression=exp.Literal.string(text)
        )
        return _made(canonical_factor(tree), self._column, STRING)


class TimeComparison:
    """`column operator 'time'` for a column of times, whatever the time; a type may stand before it. Each is made by
    the binder's own functions, if it is written in the usual way.
    """

    def __init__(
        self, column: str, type_: pa.DataType, operator: type[exp.Expression], to: exp.DataType | None
    ) -> None:
        self._column = column
        self._type = type_
        self._operator = operator
        self._to = to

    def factor(self, text: str) -> Factor | None:
        """The factor with a time in its place; None when the binder must see to it."""
        is_day = self._type == DATE or (self._to is not None and self._to.this == exp.DataType.Type.DATE)
        if not _is_usual_time(text) or (is_day and len(text) > _DAY_LENGTH):
            return None
        literal: exp.Expression = exp.Literal.string(text)
        tree = self._operator(
            this=exp.column(exp.to_identifier(self._column, quoted=True)),
            expression=literal if self._to is None else exp.Cast(this=literal, to=self._to.copy()),
        )
        return _made(canonical_factor(tree), self._column, self._type)


_DAY_LENGTH = len("2024-01-01")
_USUAL = ("0000-00-00", "0000-00-00 00:00:00", *(f"0000-00-00 00:00:00.{'0' * digits}" for digits in range(1, 7)))
_ZEROS = str.maketrans("123456789", "000000000")


def _is_usual_time(text: str) -> bool:
    """Whether a text is a day of the years 1 to 9999, maybe with a time of at most six digits after the point."""
    if text.translate(_ZEROS) not in _USUAL:
        return False
    try:
        datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


Comparison = NumericFactor | TextComparison | TimeComparison
"""What makes a factor of a constant."""


def _made(canonical: exp.Expression, column: str, type_: pa.DataType) -> Factor | None:
    """A factor as the binder makes it; None when it has no ranges, or only Spark runs it."""
    types = {column: type_}
    try:
        translated = translate_factor(canonical.copy(), types)
    except NotConformant:
        return None
    ranges = ranges_of(canonical, types)
    if ranges is None:
        return None
    return Factor(canonical.sql(DIALECT), translated.sql, (column,), ranges)


def comparison_of(factor: Factor, schema: pa.Schema) -> tuple[Comparison, str] | None:
    """What a factor compares with which text, time, or number without its sign; None when it is of another form."""
    if factor.ranges is None or len(factor.columns) != 1:
        return None
    try:
        (tree,) = LadleParser(dialect=DIALECT).parse(DIALECT.tokenize(factor.sql), factor.sql)
    except SqlglotError:
        return None
    if not isinstance(tree, _OPERATORS) or not isinstance(tree.this, exp.Column):
        return None
    (column,) = factor.columns
    type_, operator = schema.field(column).type, type(tree)
    match tree.expression:
        case exp.Cast(this=exp.Literal(this=text, is_string=True), to=exp.DataType() as to):
            return (TimeComparison(column, type_, operator, to), text) if _is_time(type_) else None
        case exp.Literal(this=text, is_string=True):
            if type_ == STRING:
                return TextComparison(column, operator), text
            return (TimeComparison(column, type_, operator, None), text) if _is_time(type_) else None
        case exp.Literal(this=number):
            return _comparison(column, type_, _OPERATORS.index(operator), negative=False), number
        case exp.Neg(this=exp.Literal(this=number, is_string=False)):
            return _comparison(column, type_, _OPERATORS.index(operator), negative=True), number
    return None


def _is_time(type_: pa.DataType) -> bool:
    return type_ == DATE or is_moment(type_)


@lru_cache(maxsize=1_024)
def _comparison(column: str, type_: pa.DataType, operator: int, *, negative: bool) -> NumericFactor:
    return NumericFactor(column, type_, _OPERATORS[operator], negative=negative)


def _probe(form: NumberForm, digit: str) -> str:
    """A number of a form that begins with a digit, and has no digit twice beside each other where it can."""
    whole = digit + "1357902468135790246"[: form.whole - 1]
    return whole if not form.fraction else f"{whole}.{'8642097531864209753'[: form.fraction - 1]}{digit}"


def _around(one: str, other: str, number: str, another: str) -> tuple[str, str] | None:
    """What is before and after the one place where a number makes the difference between two texts."""
    found = []
    at = one.find(number)
    while at >= 0:
        before, after = one[:at], one[at + len(number) :]
        if before + another + after == other:
            found.append((before, after))
        at = one.find(number, at + 1)
    return found[0] if len(found) == 1 else None
