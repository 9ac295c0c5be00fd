"""What an entry of the list is: parameters, Spark's result type, DuckDB's text, and the call that tests make of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from ladle.schema import type_name
from ladle.sql.conformant.casts import DECIMALS, MOMENTS, cast
from ladle.sql.conformant.spark_types import (
    BINARY,
    BOOLEAN,
    DATE,
    DOUBLE,
    FRACTIONS,
    INT,
    INTEGRALS,
    SMALLINT,
    STRING,
    TINYINT,
    VOID,
    NotConformant,
    Typed,
    is_decimal,
)

Arguments = Sequence[Typed]


@dataclass(frozen=True)
class Param:
    """Types of an argument; `to` is what Spark casts it to. With `literals` it must be one, and tests try these."""

    types: tuple[pa.DataType, ...]
    to: pa.DataType | None = None
    literals: tuple[str, ...] = ()

    def accepts(self, value: Typed) -> bool:
        """Whether a value may be given for this parameter."""
        if self.literals and value.constant is None:
            return False
        if value.type == VOID:
            return not self.literals
        return value.type in self.types or (is_decimal(value.type) and any(is_decimal(each) for each in self.types))


@dataclass(frozen=True)
class Signature:
    """One function or operator over one class of argument types."""

    name: str
    params: tuple[Param, ...]
    result: pa.DataType | Callable[[Arguments], pa.DataType]
    duckdb: str | Callable[[Arguments, pa.DataType], str]
    spark: str = ""
    may_raise: bool | Callable[[Arguments], bool] = False
    coerce: Callable[[Arguments], Arguments] | None = None
    variadic: bool = False
    """The last parameter repeats."""
    aggregate: bool = False
    approximate: bool = False
    """Sums of doubles depend on the order of rows, in Spark too: equal to within rounding."""
    distinct: bool = False
    """An aggregate that is proven over DISTINCT values too."""
    over: bool = True
    """An aggregate that is proven over windows too."""
    first: int | None = None
    """The operand that is looked at first. If it is NULL the other is not looked at, and can't raise."""

    def matches(self, arguments: Arguments) -> bool:
        """Whether the entry is for these arguments."""
        if self.variadic:
            fixed = len(self.params) - 1
            if len(arguments) < fixed:
                return False
            params = (*self.params[:fixed], *([self.params[-1]] * (len(arguments) - fixed)))
        else:
            params = self.params
        return len(params) == len(arguments) and all(p.accepts(a) for p, a in zip(params, arguments, strict=True))

    def render(self, arguments: Arguments, *, distinct: str = "", tail: str = "") -> Typed:
        """The call in DuckDB's SQL; an aggregate has slots for DISTINCT and for what follows it (OVER)."""
        if not self.matches(arguments):
            raise NotConformant(f"{self.name} does not take these types")
        last = self.params[-1] if self.params else None
        cast_to = [p.to for p in self.params] + [last.to if last else None] * (len(arguments) - len(self.params))
        given = [cast(a, to) if to is not None else a for a, to in zip(arguments, cast_to, strict=True)]
        if self.coerce is not None:
            given = list(self.coerce(given))
        type_ = self.result(given) if callable(self.result) else self.result
        sql = self.duckdb(given, type_) if callable(self.duckdb) else self.duckdb
        if self.aggregate or not callable(self.duckdb):
            sql = sql.format(*(a.sql for a in given), all=", ".join(a.sql for a in given), distinct=distinct, tail=tail)
        if self.first is not None and given[1 - self.first].may_raise and given[self.first].constant is None:
            sql = f"(CASE WHEN {given[self.first].sql} IS NULL THEN NULL ELSE {sql} END)"
        raises = self.may_raise(given) if callable(self.may_raise) else self.may_raise
        summed = is_decimal(type_) and (self.name == "sum" or any(a.summed for a in arguments))
        return Typed(sql, type_, raises or any(a.may_raise for a in given), summed=summed)


def call(entries: Sequence[Signature], name: str, arguments: Arguments) -> Typed:
    """The call rendered by the first entry that takes these types."""
    for entry in entries:
        if entry.matches(arguments):
            return entry.render(arguments)
    types = ", ".join(type_name(a.type) for a in arguments)
    raise NotConformant(f"{name}({types}) is not proven equal in DuckDB")


NUMBERS = (*INTEGRALS, *FRACTIONS, *DECIMALS)
ANY_TYPES = (BOOLEAN, *NUMBERS, STRING, BINARY, DATE, *MOMENTS)

Boolean = Param((BOOLEAN,))
Integral = Param(INTEGRALS)
Fraction = Param(FRACTIONS)
AsDouble = Param((*INTEGRALS, *FRACTIONS), to=DOUBLE)
Exact = Param((*INTEGRALS, *DECIMALS))
Number = Param(NUMBERS)
String = Param((STRING,))
Stringable = Param((STRING, *INTEGRALS, *DECIMALS, BOOLEAN, DATE, *MOMENTS), to=STRING)
Int = Param((TINYINT, SMALLINT, INT), to=INT)
Moment = Param(MOMENTS)
DateOrMoment = Param((DATE, *MOMENTS))
AsDate = Param((DATE, *MOMENTS), to=DATE)
AnyType = Param(ANY_TYPES)
DecimalParam = Param(DECIMALS)
Double = Param((DOUBLE,))


def literal_of(*texts: str, types: tuple[pa.DataType, ...]) -> Param:
    """A parameter that must be one of these literals."""
    return Param(types, literals=texts)


def first_type(arguments: Arguments) -> pa.DataType:
    """The result type of functions that give what their first argument is."""
    return arguments[0].type
