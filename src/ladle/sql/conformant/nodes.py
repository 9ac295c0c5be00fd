"""From the parser's node classes to names of the list: sqlglot has a class for many functions, Spark several names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from ladle.sql.typing import NotConformant


@dataclass(frozen=True)
class Call:
    """A function of the list and its arguments, in Spark's order."""

    name: str
    arguments: tuple[exp.Expression, ...]
    distinct: bool = False
    star: bool = False


Maker = Callable[[exp.Expression], Call]

_ALIASES: Mapping[str, str] = {
    "char_length": "length",
    "character_length": "length",
    "len": "length",
    "lcase": "lower",
    "ucase": "upper",
    "substr": "substring",
    "ceiling": "ceil",
    "pow": "power",
    "dayofmonth": "day",
    "date_diff": "datediff",
    "mean": "avg",
    "every": "bool_and",
    "some": "bool_or",
    "any": "bool_or",
    "signum": "sign",
    "equal_null": "<=>",
    "mod": "%",
    "now": "current_timestamp",
    "bit_count": "bit_count",
    "std": "stddev",
    "std_samp": "stddev",
    "var_samp": "variance",
}


def _of(name: str, *parts: str) -> Maker:
    """The call whose arguments are these parts of the node; a part that is a list is spread, a missing one dropped."""

    def make(node: exp.Expression) -> Call:
        arguments: list[exp.Expression] = []
        for part in parts:
            value = node.args.get(part)
            if isinstance(value, list):
                arguments.extend(value)
            elif value is not None:
                arguments.append(value)
        return Call(name, tuple(arguments))

    return make


def _day(name: str) -> Maker:
    """Parts of a date: the parser wraps the argument in a cast to DATE, which changes nothing for what is listed."""

    def make(node: exp.Expression) -> Call:
        inner = node.this
        return Call(name, (inner.this if isinstance(inner, exp.TsOrDsToDate) else inner,))

    return make


def _anonymous(node: exp.Expression) -> Call:
    name = str(node.this).lower()
    return Call(_ALIASES.get(name, name), tuple(node.expressions))


def _fold(name: str) -> Maker:
    """An aggregate, perhaps of DISTINCT values."""

    def make(node: exp.Expression) -> Call:
        inner = node.this
        more = tuple(node.args.get("expressions") or ())
        if isinstance(inner, exp.Star):
            return Call(name, (), star=True)
        if isinstance(inner, exp.Distinct):
            return Call(name, tuple(inner.expressions), distinct=True)
        while isinstance(inner, exp.Paren):
            inner = inner.this
        return Call(name, (inner, *more))

    return make


def _trim(node: exp.Expression) -> Call:
    names = {None: "trim", "BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}
    position = node.args.get("position")
    name = names.get(position.upper() if isinstance(position, str) else position)
    if name is None:
        raise NotConformant(f"trim {position} is not proven equal in DuckDB")
    characters = node.args.get("expression")
    return Call(name, (node.this,) if characters is None else (node.this, characters))


def _pad(node: exp.Expression) -> Call:
    fill = node.args.get("fill_pattern") or exp.Literal.string(" ")
    return Call("lpad" if node.args.get("is_left") else "rpad", (node.this, node.expression, fill))


def _unit(name: str, part: str = "unit") -> Maker:
    def make(node: exp.Expression) -> Call:
        unit = node.args.get(part)
        if not isinstance(unit, exp.Var | exp.Literal):
            raise NotConformant(f"{name} without a constant unit is not proven equal in DuckDB")
        return Call(name, (exp.Literal.string(str(unit.this).lower()), node.expression if part == "this" else node.this))

    return make


def _day_shift(node: exp.Expression) -> Call:
    unit = node.args.get("unit")
    if unit is not None and str(unit.this).upper() != "DAY":
        raise NotConformant(f"date_add of {unit} is not proven equal in DuckDB")
    amount = node.expression
    # The parser writes date_sub(d, n) as an addition of n * -1.
    if isinstance(amount, exp.Mul) and amount.expression == exp.Neg(this=exp.Literal.number(1)):
        return Call("date_sub", (node.this, amount.this))
    return Call("date_add", (node.this, amount))


def _like(name: str) -> Maker:
    def make(node: exp.Expression) -> Call:
        if isinstance(node.expression, exp.Any | exp.All):
            raise NotConformant("LIKE ANY and LIKE ALL are not proven equal in DuckDB")
        return Call(name, (node.this, node.expression))

    return make


def _escape(node: exp.Expression) -> Call:
    if not isinstance(node.this, exp.Like | exp.ILike):
        raise NotConformant("this use of ESCAPE is not proven equal in DuckDB")
    inner = CALLS[type(node.this)](node.this)
    return Call(inner.name, (*inner.arguments, node.expression))


def _concat_ws(node: exp.Expression) -> Call:
    return Call("concat_ws", tuple(node.expressions))


CALLS: Mapping[type[exp.Expression], Maker] = {
    exp.Anonymous: _anonymous,
    exp.AnonymousAggFunc: _anonymous,
    exp.Coalesce: _of("coalesce", "this", "expressions"),
    exp.Nullif: _of("nullif", "this", "expression"),
    exp.Nvl2: _of("nvl2", "this", "true", "false"),
    exp.Greatest: _of("greatest", "this", "expressions"),
    exp.Least: _of("least", "this", "expressions"),
    exp.BitwiseNot: _of("~", "this"),
    exp.BitwiseLeftShift: _of("shiftleft", "this", "expression"),
    exp.BitwiseRightShift: _of("shiftright", "this", "expression"),
    exp.Abs: _of("abs", "this"),
    exp.Round: _of("round", "this", "decimals"),
    exp.Ceil: _of("ceil", "this", "decimals"),
    exp.Floor: _of("floor", "this", "decimals"),
    exp.Sqrt: _of("sqrt", "this"),
    exp.Cbrt: _of("cbrt", "this"),
    exp.Exp: _of("exp", "this"),
    exp.Ln: _of("ln", "this"),
    exp.Pow: _of("power", "this", "expression"),
    exp.Sign: _of("sign", "this"),
    exp.Degrees: _of("degrees", "this"),
    exp.Radians: _of("radians", "this"),
    exp.IsNan: _of("isnan", "this"),
    exp.Nanvl: _of("nanvl", "this", "expression"),
    exp.SafeDivide: _of("try_divide", "this", "expression"),
    exp.Length: _of("length", "this"),
    exp.Upper: _of("upper", "this"),
    exp.Lower: _of("lower", "this"),
    exp.Initcap: _of("initcap", "this"),
    exp.Reverse: _of("reverse", "this"),
    exp.Repeat: _of("repeat", "this", "times"),
    exp.Substring: _of("substring", "this", "start", "length"),
    exp.Left: _of("left", "this", "expression"),
    exp.Right: _of("right", "this", "expression"),
    exp.Concat: _of("concat", "expressions"),
    exp.ConcatWs: _concat_ws,
    exp.DPipe: _of("concat", "this", "expression"),
    exp.Replace: _of("replace", "this", "expression", "replacement"),
    exp.Translate: _of("translate", "this", "from_", "to"),
    exp.StrPosition: _of("instr", "this", "substr", "position"),
    exp.StartsWith: _of("startswith", "this", "expression"),
    exp.EndsWith: _of("endswith", "this", "expression"),
    exp.Contains: _of("contains", "this", "expression"),
    exp.SplitPart: _of("split_part", "this", "delimiter", "part_index"),
    exp.Ascii: _of("ascii", "this"),
    exp.MD5: _of("md5", "this"),
    exp.BitLength: _of("bit_length", "this"),
    exp.Trim: _trim,
    exp.Pad: _pad,
    exp.Like: _like("like"),
    exp.ILike: _like("ilike"),
    exp.RegexpLike: _of("rlike", "this", "expression"),
    exp.Escape: _escape,
    exp.Year: _day("year"),
    exp.Quarter: _day("quarter"),
    exp.Month: _day("month"),
    exp.Day: _day("day"),
    exp.DayOfMonth: _day("day"),
    exp.DayOfWeek: _day("dayofweek"),
    exp.DayOfYear: _day("dayofyear"),
    exp.WeekOfYear: _day("weekofyear"),
    exp.Hour: _of("hour", "this"),
    exp.Minute: _of("minute", "this"),
    exp.Second: _of("second", "this"),
    exp.TsOrDsToDate: _of("to_date", "this", "format"),
    exp.TimestampTrunc: _unit("date_trunc"),
    exp.DateTrunc: _unit("trunc"),
    exp.Extract: _unit("extract", "this"),
    exp.TsOrDsAdd: _day_shift,
    exp.DateAdd: _day_shift,
    exp.AddMonths: _of("add_months", "this", "expression"),
    exp.DateDiff: _of("datediff", "this", "expression"),
    exp.LastDay: _of("last_day", "this"),
    exp.Count: _fold("count"),
    exp.CountIf: _fold("count_if"),
    exp.Sum: _fold("sum"),
    exp.Avg: _fold("avg"),
    exp.Min: _fold("min"),
    exp.Max: _fold("max"),
    exp.LogicalAnd: _fold("bool_and"),
    exp.LogicalOr: _fold("bool_or"),
    exp.Any: _fold("bool_or"),
    exp.ArgMin: _of("min_by", "this", "expression"),
    exp.ArgMax: _of("max_by", "this", "expression"),
}
