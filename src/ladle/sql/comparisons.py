"""Factors `column operator number` made for many numbers, without a tree for each.

The text of such a factor, in Spark's SQL and in DuckDB's, is the same for all numbers of one *form* (digits before and
after the point, type) but for the number itself. Which text that is, is not known here: it is taken from factors
that the binder's own functions make, two for each form, and checked on a third.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import SqlglotError

from ladle.plan import Factor
from ladle.sql.conform import NotConformant, translate_factor
from ladle.sql.conformant.spark_types import INT
from ladle.sql.constants import NotConstant, number_constant
from ladle.sql.dialect import DIALECT, LadleParser
from ladle.sql.ranges import comparing, ranges_of
from ladle.sql.split import canonical_factor

DIGITS_MAX = 18
"""Longer numbers are unusual, and left to the binder."""

_FACTORS_MAX = 1 << 16
_OPERATORS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE)
_FIRST_DIGITS = ("1", "2", "9", "7", "0")


class Form(NamedTuple):
    """What the text around a number may depend on."""

    whole: int
    fraction: int
    type: str


class _Pattern(NamedTuple):
    """The texts before and after the number."""

    sql: tuple[str, str]
    duckdb: tuple[str, str]


_INT_DIGITS = 10
"""Integers with fewer digits are INT, and need no look at their type."""
_INT_FORMS = [Form(digits, 0, str(INT)) for digits in range(_INT_DIGITS)]


class Comparison:
    """`column operator number`, whatever the number."""

    def __init__(self, column: str, type_: pa.DataType, operator: type[exp.Expression], *, negative: bool) -> None:
        self._column = column
        self._type = type_
        self._operator = operator
        self._sign = "-" if negative else ""
        self._ranges = comparing(operator, column, type_)
        self._factors: dict[str, Factor] = {}
        self._patterns: dict[Form, _Pattern | None] = {}

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

    def _form(self, number: str) -> Form | None:
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
        return Form(len(whole), len(fraction), str(type_) if number.strip("0.") else "zero")

    def _pattern(self, form: Form, number: str) -> _Pattern | None:
        """What is around the number in two factors, if that makes the third."""
        probes = [probe for digit in _FIRST_DIGITS if self._form(probe := _probe(form, digit)) == form][:2]
        made = [self._bound(probe) for probe in (*probes, number)]
        if len(probes) < 2 or made[0] is None or made[1] is None or made[2] is None:
            return None
        sql = _around(made[0].sql, made[1].sql, *probes)
        duckdb = _around(made[0].duckdb, made[1].duckdb, *probes)
        if sql is None or duckdb is None or number.join(sql) != made[2].sql or number.join(duckdb) != made[2].duckdb:
            return None
        return _Pattern(sql, duckdb)

    def _bound(self, number: str) -> Factor | None:
        """The factor as the binder makes it."""
        literal: exp.Expression = exp.Literal.number(number)
        tree = self._operator(
            this=exp.column(exp.to_identifier(self._column, quoted=True)),
            expression=exp.Neg(this=literal) if self._sign else literal,
        )
        canonical = canonical_factor(tree)
        types = {self._column: self._type}
        try:
            translated = translate_factor(canonical.copy(), types)
        except NotConformant:
            return None
        ranges = ranges_of(canonical, types)
        if ranges is None:
            return None
        return Factor(canonical.sql(DIALECT), translated.sql, (self._column,), ranges)


def comparison_of(factor: Factor, schema: pa.Schema) -> tuple[Comparison, str] | None:
    """What a factor compares with which number, without its sign; None when it is of another form."""
    if factor.ranges is None or len(factor.columns) != 1:
        return None
    try:
        (tree,) = LadleParser(dialect=DIALECT).parse(DIALECT.tokenize(factor.sql), factor.sql)
    except SqlglotError:
        return None
    if not isinstance(tree, _OPERATORS) or not isinstance(tree.this, exp.Column):
        return None
    number, negative = tree.expression, False
    if isinstance(number, exp.Neg):
        number, negative = number.this, True
    if not isinstance(number, exp.Literal) or number.is_string:
        return None
    (column,) = factor.columns
    operator = _OPERATORS.index(type(tree))
    return _comparison(column, schema.field(column).type, operator, negative), str(number.this)


@lru_cache(maxsize=1_024)
def _comparison(column: str, type_: pa.DataType, operator: int, negative: bool) -> Comparison:
    return Comparison(column, type_, _OPERATORS[operator], negative=negative)


def _probe(form: Form, digit: str) -> str:
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
