"""Random scalar expressions of equal meaning in Spark (ANSI) and DuckDB, by construction.

Integers carry a bound, so that nothing overflows; divisions are guarded; where the dialects differ
(concatenation of NULL, averages of decimals, null-safe equality) each has its own template.
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from tests.support.generate import DECIMAL, random_value
from tests.support.months import to_us
from tests.support.tree import NAIVE, ZONED, ColumnSpec, Expr, duck_type, is_nested, moment_text, spark_type

INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64())
_BOUND_MAX = 1_000_000_000
_LIKES = ("a%", "%b", "%", "ab%", "_b%", "%a%", "", "x__", "é%", "it''s%", "10%", "A_C", "%日%")


@dataclass(frozen=True)
class Scope:
    """The columns an expression may use, and how they are named."""

    columns: tuple[ColumnSpec, ...]
    alias: str | None

    @staticmethod
    def of(columns: Sequence[ColumnSpec], alias: str | None) -> Scope:
        return Scope(tuple(columns), alias)

    @property
    def flat(self) -> list[ColumnSpec]:
        return [column for column in self.columns if not is_nested(column.type)]

    def ref(self, column: ColumnSpec) -> Expr:
        dot = f"{self.alias}." if self.alias else ""
        return Expr(
            column.type,
            f"{dot}`{column.name}`",
            f'{dot}"{column.name}"',
            bound=column.bound,
            exact=not column.wide and is_number(column.type),
        )


def is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_))


def literal(type_: pa.DataType, value: Any) -> Expr:
    """A constant that has exactly this type in both dialects."""
    spark, duck = _literal_texts(type_, value)
    finite = value is not None and is_number(type_) and math.isfinite(value)
    bound = math.ceil(abs(value)) if finite else 0
    exact = finite and bound <= _BOUND_MAX
    return Expr(type_, _escape(spark), _escape(duck), bound=bound, exact=exact)


def _escape(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _literal_texts(type_: pa.DataType, value: Any) -> tuple[str, str]:
    if value is None:
        return f"CAST(NULL AS {spark_type(type_)})", f"CAST(NULL AS {duck_type(type_)})"
    if type_ == pa.bool_():
        return ("TRUE", "TRUE") if value else ("FALSE", "FALSE")
    if type_ == pa.int32() and abs(value) < 2**31:
        return str(value), str(value)
    if pa.types.is_integer(type_):
        return f"CAST({value} AS {spark_type(type_)})", f"CAST({value} AS {duck_type(type_)})"
    if pa.types.is_floating(type_):
        text = repr(float(value)) if math.isfinite(value) else f"'{_special(value)}'"
        return f"CAST({text} AS {spark_type(type_)})", f"CAST({text} AS {duck_type(type_)})"
    if pa.types.is_decimal(type_):
        return f"CAST({value:f} AS {spark_type(type_)})", f"CAST({value:f} AS {duck_type(type_)})"
    if type_ == pa.string():
        spark = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{spark}'", "'" + value.replace("'", "''") + "'"
    if type_ == pa.binary():
        return f"X'{value.hex().upper()}'", "CAST('" + "".join(f"\\x{byte:02X}" for byte in value) + "' AS BLOB)"
    if type_ == pa.date32():
        assert isinstance(value, date)
        return f"DATE '{value}'", f"DATE '{value}'"
    assert isinstance(value, datetime)
    text = moment_text(to_us(value))
    return f"{spark_type(type_)} '{text}'", f"TIMESTAMP '{text}'"


def _special(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "Infinity" if value > 0 else "-Infinity"


def conjunction(factors: list[Expr], word: str) -> Expr:
    if len(factors) == 1:
        return factors[0]
    template = "(" + f" {word} ".join(f"{{{index}}}" for index in range(len(factors))) + ")"
    return Expr(pa.bool_(), template, template, tuple(factors))


def _same(type_: pa.DataType, template: str, *args: Expr, bound: int = 0, exact: bool = False) -> Expr:
    return Expr(type_, template, template, args, bound, exact)


class ScalarMaker:
    def __init__(self, rng: random.Random, wall_us: int) -> None:
        self.rng = rng
        self.wall_us = wall_us

    # --- values ---

    def constant(self, type_: pa.DataType, *, plain: bool = False) -> Expr:
        column = ColumnSpec("", type_, wide=not plain and self.rng.random() < 0.15, plain=plain)
        return literal(type_, random_value(self.rng, column, self.wall_us))

    def column(self, scope: Scope, *types: pa.DataType, plain: bool = False) -> Expr | None:
        """A random column of one of these types; `plain` ones are numbers that may be computed with, or ASCII."""
        fitting = [
            c
            for c in scope.columns
            if c.type in types and (not plain or (c.plain if c.type == pa.string() else not c.wide))
        ]
        return scope.ref(self.rng.choice(fitting)) if fitting else None

    def scalar(self, type_: pa.DataType, scope: Scope, depth: int) -> Expr:
        rng = self.rng
        dice = rng.random()
        if depth > 0 and dice < 0.5:
            made = self._compound(type_, scope, depth - 1)
            if made is not None:
                return made
        column = self.column(scope, type_)
        if column is not None and (dice < 0.95 or is_nested(type_)):
            return column
        return literal(type_, None) if rng.random() < 0.1 else self.constant(type_)

    def _compound(self, type_: pa.DataType, scope: Scope, depth: int) -> Expr | None:
        rng = self.rng
        if rng.random() < 0.4:
            return self._choice(type_, scope, depth)
        if pa.types.is_integer(type_):
            return self._integer(type_, scope, depth)
        if type_ == pa.float64() or type_ == pa.float32():
            return self._floating(type_, scope, depth)
        if type_ == pa.string():
            return self._string(scope, depth)
        if type_ == pa.bool_():
            return self.predicate(scope, depth)
        if type_ == pa.date32():
            return self._date(scope, depth)
        if type_ in (ZONED, NAIVE):
            return self._moment(type_, scope)
        return None

    def _choice(self, type_: pa.DataType, scope: Scope, depth: int) -> Expr:
        rng = self.rng
        one, other = self.scalar(type_, scope, depth), self.scalar(type_, scope, depth)
        bound, exact = max(one.bound, other.bound), one.exact and other.exact
        dice = rng.random()
        if dice < 0.35:
            test = self.predicate(scope, depth)
            tail = rng.choice((" ELSE {2}", " ELSE {2}", ""))
            return _same(type_, f"CASE WHEN {{0}} THEN {{1}}{tail} END", test, one, other, bound=bound, exact=exact)
        if dice < 0.65:
            return _same(type_, "COALESCE({0}, {1})", one, other, bound=bound, exact=exact)
        if dice < 0.75:
            return _same(type_, "NULLIF({0}, {1})", one, other, bound=one.bound, exact=one.exact)
        if dice < 0.85 and type_ not in (pa.bool_(), pa.binary()):
            return _same(
                type_, f"{rng.choice(('greatest', 'least'))}({{0}}, {{1}})", one, other, bound=bound, exact=exact
            )
        test = self.predicate(scope, depth)
        texts = ("if({0}, {1}, {2})", "CASE WHEN {0} THEN {1} ELSE {2} END")
        return Expr(type_, *texts, (test, one, other), bound, exact)

    def _number(self, type_: pa.DataType, scope: Scope, depth: int) -> Expr:
        """An operand that may be computed with."""
        if depth > 0 and self.rng.random() < 0.4:
            made = self._integer(type_, scope, 0) if pa.types.is_integer(type_) else self._floating(type_, scope, 0)
            if made is not None and made.exact:
                return made
        column = self.column(scope, type_, plain=True)
        if column is not None and self.rng.random() < 0.85:
            return column
        if pa.types.is_integer(type_):
            return literal(type_, self.rng.randint(-5, 9))
        return literal(type_, self.rng.randint(-12, 40) / 4)

    def _integer(self, type_: pa.DataType, scope: Scope, depth: int) -> Expr | None:
        rng = self.rng
        dice = rng.random()
        name = spark_type(type_)
        if type_ == pa.int32() and dice < 0.5 and (made := self._part(scope)) is not None:
            return made
        if dice < 0.6:
            source = self.column(scope, *(t for t in INTEGERS if t != type_), plain=True)
            if source is not None and source.bound <= 100:
                return _same(type_, f"CAST({{0}} AS {name})", source, bound=source.bound, exact=True)
        if type_ not in (pa.int32(), pa.int64()):
            return None
        one, other = self._number(type_, scope, depth), self._number(type_, scope, depth)
        sign = rng.choice(("+", "-", "*", "%"))
        if sign == "%":
            other = literal(type_, rng.choice((2, 3, 7)))
        bound = {"*": one.bound * other.bound, "%": 7}.get(sign, one.bound + other.bound)
        if bound > _BOUND_MAX:
            return None
        if dice > 0.95:
            return _same(type_, rng.choice(("abs({0})", "(- {0})")), one, bound=one.bound, exact=True)
        return _same(type_, f"({{0}} {sign} {{1}})", one, other, bound=bound, exact=True)

    def _part(self, scope: Scope) -> Expr | None:
        """INT from something else: the length of a text, a part of a date."""
        text = self.column(scope, pa.string())
        if text is not None and self.rng.random() < 0.5:
            return _same(pa.int32(), "length({0})", text, bound=1000, exact=True)
        moment = self.column(scope, pa.date32(), ZONED, NAIVE)
        if moment is None:
            return None
        words = ["year", "month", "dayofmonth", "quarter", "dayofyear"]
        if moment.type != pa.date32():
            words += ["hour", "minute"]
        return _same(pa.int32(), f"{self.rng.choice(words)}({{0}})", moment, bound=10_000, exact=True)

    def _floating(self, type_: pa.DataType, scope: Scope, depth: int) -> Expr | None:
        rng = self.rng
        if type_ == pa.float64() and rng.random() < 0.25:
            source = self.column(scope, *INTEGERS, pa.float32(), plain=True)
            if source is not None:
                return _same(type_, "CAST({0} AS DOUBLE)", source, bound=source.bound, exact=True)
        one, other = self._number(type_, scope, depth), self._number(type_, scope, depth)
        if type_ == pa.float64() and rng.random() < 0.2:
            # rounded the same way on both sides, but not to be added up
            return _same(type_, "CASE WHEN {1} <> 0 THEN {0} / {1} END", one, other)
        sign = rng.choice(("+", "-", "*") if type_ == pa.float64() else ("+", "-"))
        bound = one.bound * other.bound if sign == "*" else one.bound + other.bound
        if bound > 1_000_000:
            return None
        return _same(type_, f"({{0}} {sign} {{1}})", one, other, bound=bound, exact=True)

    def _string(self, scope: Scope, depth: int) -> Expr | None:
        rng = self.rng
        dice = rng.random()
        if dice < 0.25:
            plain = self.column(scope, pa.string(), plain=True)
            return None if plain is None else _same(pa.string(), f"{rng.choice(('upper', 'lower'))}({{0}})", plain)
        one = self.scalar(pa.string(), scope, depth)
        if dice < 0.5:
            return _same(pa.string(), f"substring({{0}}, {rng.randint(1, 3)}, {rng.randint(0, 4)})", one)
        if dice < 0.75:
            other = self.scalar(pa.string(), scope, 0)
            spark = rng.choice(("concat({0}, {1})", "({0} || {1})"))
            return Expr(pa.string(), spark, "({0} || {1})", (one, other))
        if dice < 0.9:
            return _same(pa.string(), f"{rng.choice(('trim', 'ltrim', 'rtrim'))}({{0}})", one)
        number = self.column(scope, *INTEGERS)
        texts = ("CAST({0} AS STRING)", "CAST({0} AS VARCHAR)")
        return None if number is None else Expr(pa.string(), *texts, (number,))

    def _date(self, scope: Scope, depth: int) -> Expr | None:
        moment = self.column(scope, ZONED, NAIVE)
        if moment is not None and self.rng.random() < 0.6:
            return _same(pa.date32(), "CAST({0} AS DATE)", moment)
        days = self.rng.randint(-3, 40)
        made = self.scalar(pa.date32(), scope, depth)
        return Expr(pa.date32(), f"date_add({{0}}, {days})", f"CAST({{0}} + CAST({days} AS INTEGER) AS DATE)", (made,))

    def _moment(self, type_: pa.DataType, scope: Scope) -> Expr | None:
        column = self.column(scope, type_)
        if column is None:
            return None
        if type_ == ZONED and self.rng.random() < 0.6:
            unit = self.rng.choice(("minute", "hour", "day", "month"))
            return _same(type_, f"date_trunc('{unit}', {{0}})", column)
        return _same(type_, f"({{0}} {self.rng.choice('+-')} INTERVAL {self.rng.randint(1, 90)} MINUTE)", column)

    # --- predicates ---

    def predicate(self, scope: Scope, depth: int) -> Expr:
        rng = self.rng
        dice = rng.random()
        if depth > 0 and dice < 0.3:
            made = [self.predicate(scope, depth - 1) for _ in range(2)]
            joined = conjunction(made, rng.choice(("AND", "OR", "OR")))
            return _same(pa.bool_(), "(NOT {0})", joined) if rng.random() < 0.3 else joined
        columns = scope.flat
        if not columns:
            return literal(pa.bool_(), True)
        column = rng.choice(columns)
        ref = scope.ref(column)
        if depth > 0 and dice < 0.45:
            column = ColumnSpec("", rng.choice((column.type, pa.int32(), pa.string())))
            ref = self._compound(column.type, scope, depth - 1) or self.scalar(column.type, scope, 0)
        if column.type == pa.bool_() and rng.random() < 0.5:
            return rng.choice((ref, _same(pa.bool_(), "(NOT {0})", ref)))
        if dice > 0.92:
            return _same(pa.bool_(), f"({{0}} IS {rng.choice(('', 'NOT '))}NULL)", ref)
        if dice > 0.85 and (other := self.column(scope, column.type)) is not None:
            return self._comparison(ref, other)
        return self._with_constant(column, ref)

    def _comparison(self, one: Expr, other: Expr) -> Expr:
        words = ("=", "<>", "!=", "<", "<=", ">", ">=")
        if self.rng.random() < 0.06:
            return Expr(pa.bool_(), "({0} <=> {1})", "({0} IS NOT DISTINCT FROM {1})", (one, other))
        return _same(pa.bool_(), f"({{0}} {self.rng.choice(words)} {{1}})", one, other)

    def _with_constant(self, column: ColumnSpec, ref: Expr) -> Expr:
        rng = self.rng
        dice = rng.random()
        if column.type == pa.string() and dice < 0.3:
            pattern = rng.choice(_LIKES)
            word = rng.choice(("LIKE", "LIKE", "NOT LIKE"))
            spark = pattern.replace("''", "\\'")
            return Expr(pa.bool_(), f"({{0}} {word} '{spark}')", f"({{0}} {word} '{pattern}')", (ref,))
        if dice < 0.45:
            values = [self.near(column) for _ in range(rng.choice((1, 2, 3, 4, 12)))]
            if rng.random() < 0.1:
                values.append(Expr(pa.bool_(), "NULL", "NULL"))
            inside = ", ".join(f"{{{index + 1}}}" for index in range(len(values)))
            return _same(pa.bool_(), f"({{0}} {rng.choice(('', '', 'NOT '))}IN ({inside}))", ref, *values)
        if dice < 0.6 and column.type != pa.bool_():
            word = rng.choice(("BETWEEN", "BETWEEN", "NOT BETWEEN"))
            return _same(pa.bool_(), f"({{0}} {word} {{1}} AND {{2}})", ref, self.near(column), self.near(column))
        if rng.random() < 0.15:
            return self._comparison(self.near(column), ref)
        return self._comparison(ref, self.near(column))

    def near(self, column: ColumnSpec) -> Expr:
        """A constant that a column may be compared with, as people write it: numbers mostly without a cast."""
        rng = self.rng
        value = random_value(
            rng, ColumnSpec("", column.type, column.wide and rng.random() < 0.5, column.plain), self.wall_us
        )
        text = None
        if pa.types.is_integer(column.type):
            text = str(value)
            if not column.wide and rng.random() < 0.1:
                text += ".5"
        elif pa.types.is_decimal(column.type) and isinstance(value, Decimal):
            text = f"{value:f}"
        elif column.type == pa.float64() and math.isfinite(value) and rng.random() < 0.6:
            # in Spark a plain 2.5 is a decimal, and becomes a double beside one
            spark = (
                rng.choice((f"{value:.2f}", f"{value:.2f}D")) if abs(value) in range_of_quarters(value) else repr(value)
            )
            return Expr(column.type, spark, f"CAST({value!r} AS DOUBLE)")
        return literal(column.type, value) if text is None or rng.random() < 0.2 else Expr(column.type, text, text)

    # --- aggregates ---

    def group_key(self, scope: Scope) -> Expr:
        """Something to group by that is no constant."""
        rng = self.rng
        column = rng.choice(scope.flat)
        ref = scope.ref(column)
        if rng.random() < 0.35:
            if column.type == ZONED:
                return _same(ZONED, f"date_trunc('{rng.choice(('minute', 'hour'))}', {{0}})", ref)
            if column.type in (pa.int32(), pa.int64()) and not column.wide:
                return _same(column.type, "({0} % {1})", ref, literal(column.type, 3), bound=3, exact=True)
            if column.type == pa.string():
                return _same(pa.string(), "substring({0}, 1, 1)", ref)
        return ref

    def aggregate(self, scope: Scope, depth: int) -> Expr:
        rng = self.rng
        made = self._plain_aggregate(scope, depth)
        if rng.random() < 0.1:
            test = self.predicate(scope, 0)
            return _filtered(made, test)
        if made.type == pa.int64() and made.exact and rng.random() < 0.15:
            return _same(pa.int64(), "({0} + count(*))", made, bound=made.bound + 1_000_000, exact=made.exact)
        return made

    def fold(self, scope: Scope) -> Expr:
        """An aggregate of a column as it is, such as partial aggregates answer."""
        rng = self.rng
        column = rng.choice(scope.flat)
        numbers = [c for c in scope.flat if is_number(c.type) and not c.wide]
        dice = rng.random()
        if dice < 0.4 and numbers:
            value = scope.ref(rng.choice(numbers))
            return self._sum(value) if rng.random() < 0.5 else self._average(value)
        if dice < 0.75:
            return _same(column.type, f"{rng.choice(('min', 'max'))}({{0}})", scope.ref(column))
        counted = "count(*)" if rng.random() < 0.5 else "count({0})"
        return _same(pa.int64(), counted, *((scope.ref(column),) if counted != "count(*)" else ()))

    def _plain_aggregate(self, scope: Scope, depth: int) -> Expr:
        rng = self.rng
        dice = rng.random()
        column = rng.choice(scope.flat)
        if dice < 0.2:
            return _same(pa.int64(), "count(*)", bound=1_000_000, exact=True)
        if dice < 0.35:
            distinct = rng.choice(("", "", "DISTINCT "))
            return _same(pa.int64(), f"count({distinct}{{0}})", scope.ref(column), bound=1_000_000, exact=True)
        if dice < 0.55:
            value = self.scalar(column.type, scope, min(depth, 1))
            if rng.random() < 0.5 or value.type == pa.bool_():
                value = scope.ref(column)
            word = rng.choice(("min", "max"))
            return _same(value.type, f"{word}({{0}})", value, bound=value.bound, exact=value.exact)
        numbers = [c for c in scope.flat if is_number(c.type) and not c.wide]
        if not numbers:
            return _same(pa.int64(), "count(*)", bound=1_000_000, exact=True)
        value = scope.ref(rng.choice(numbers))
        if depth > 0 and rng.random() < 0.3 and not pa.types.is_decimal(value.type):
            value = self._number(value.type, scope, 1)
        return self._sum(value) if rng.random() < 0.6 else self._average(value)

    def _sum(self, value: Expr) -> Expr:
        type_ = value.type
        if pa.types.is_integer(type_):
            return _same(pa.int64(), "sum({0})", value, bound=value.bound * 100_000, exact=value.bound <= 10**7)
        if pa.types.is_floating(type_):
            return _same(pa.float64(), "sum({0})", value, bound=value.bound * 100_000)
        return _same(pa.decimal128(min(38, type_.precision + 10), type_.scale), "sum({0})", value)

    def _average(self, value: Expr) -> Expr:
        if value.type == DECIMAL:
            # Spark rounds half up to four more digits; DuckDB would answer with a double
            cents = "CAST(sum({0}) * 100 AS HUGEINT)"
            rounded = f"sign({cents}) * ((2 * abs({cents}) * 10000 + count({{0}})) // (2 * count({{0}})))"
            duck = (
                f"CASE WHEN count({{0}}) > 0 THEN CAST({rounded} AS DECIMAL(18,0)) "
                "* CAST('0.000001' AS DECIMAL(7,6)) END"
            )
            return Expr(pa.decimal128(13, 6), "avg({0})", duck, (value,))
        if pa.types.is_decimal(value.type):
            return self._sum(value)
        return _same(pa.float64(), "avg({0})", value)

    def having(self, scope: Scope) -> Expr:
        rng = self.rng
        dice = rng.random()
        count = _same(pa.int64(), "count(*)")
        column = rng.choice(scope.flat)
        if dice < 0.4:
            return self._comparison(count, literal(pa.int32(), rng.randint(0, 5)))
        if dice < 0.7 and column.type not in (pa.bool_(), pa.binary()):
            best = _same(column.type, f"{rng.choice(('min', 'max'))}({{0}})", scope.ref(column))
            return self._comparison(best, self.near(column))
        numbers = [c for c in scope.flat if is_number(c.type) and not c.wide]
        if numbers:
            total = self._sum(scope.ref(rng.choice(numbers)))
            return self._comparison(total, literal(pa.int32(), rng.randint(-20, 50)))
        return self._comparison(count, literal(pa.int32(), 1))


def range_of_quarters(value: float) -> set[float]:
    """The value itself when two digits write it exactly."""
    return {abs(value)} if value * 4 == int(value * 4) and abs(value) < 1e6 else set()


def _filtered(made: Expr, test: Expr) -> Expr:
    """`agg(x) FILTER (WHERE test)`; for several calls in one template the dialects' texts stay the plain ones."""
    if made.spark != made.duck or "(" not in made.spark or made.spark.count("(") > 1:
        return made
    template = f"{made.spark} FILTER (WHERE {{{len(made.args)}}})"
    return Expr(made.type, template, template, (*made.args, test), made.bound, made.exact)
