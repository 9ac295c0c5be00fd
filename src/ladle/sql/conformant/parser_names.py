"""From the parser's nodes to names of the list.

Ladle's dialect keeps calls as they were written (`exp.Anonymous`); only calls with a grammar of their own have a class.
Spark has several names for many functions, the list has one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from sqlglot import exp

from ladle.sql.conformant.spark_types import NotConformant


@dataclass(frozen=True)
class Call:
    """A function of the list and its arguments."""

    name: str
    arguments: tuple[exp.Expr, ...]
    distinct: bool = False
    star: bool = False


Maker = Callable[[exp.Expr], Call]

ALIASES: Mapping[str, str] = {
    "any": "bool_or",
    "ceiling": "ceil",
    "char_length": "length",
    "character_length": "length",
    "date_diff": "datediff",
    "date_part": "extract",
    "datepart": "extract",
    "dayofmonth": "day",
    "equal_null": "<=>",
    "every": "bool_and",
    "ifnull": "coalesce",
    "lcase": "lower",
    "len": "length",
    "mean": "avg",
    "mod": "%",
    "nvl": "coalesce",
    "pow": "power",
    "percentile_cont": "percentile",
    "regexp": "rlike",
    "regexp_like": "rlike",
    "sha": "sha1",
    "signum": "sign",
    "some": "bool_or",
    "std": "stddev",
    "string_agg": "listagg",
    "substr": "substring",
    "ucase": "upper",
}


def _named(node: exp.Expr) -> Call:
    """A call by name; DISTINCT and * are arguments of aggregates."""
    name = str(node.this).lower()
    name = ALIASES.get(name, name)
    arguments = tuple(node.expressions)
    if len(arguments) == 1 and isinstance(arguments[0], exp.Distinct):
        return Call(name, tuple(arguments[0].expressions), distinct=True)
    if len(arguments) == 1 and isinstance(arguments[0], exp.Star):
        return Call(name, (), star=True)
    if name in ("position", "locate", "charindex") and len(arguments) in (2, 3):
        return Call("locate", arguments)
    if name in ("max_by", "min_by") and len(arguments) == 2:
        return Call(name, (arguments[0], *_fields(arguments[1])))
    if name in _OF_UNITS and len(arguments) == 3:
        name, unit = _OF_UNITS[name], arguments[0]
        word = unit.name if isinstance(unit, exp.Column | exp.Var) else ""
        return Call(name, (exp.Literal.string(word), *arguments[1:]))
    if name == "extract" and len(arguments) == 2 and isinstance(arguments[0], exp.Literal):
        return _field(str(arguments[0].this), arguments[1])
    return Call(name, arguments)


_OF_UNITS = {
    "timestampdiff": "timestampdiff",
    "datediff": "timestampdiff",
    "date_diff": "timestampdiff",
    "timestampadd": "timestampadd",
    "dateadd": "timestampadd",
    "date_add": "timestampadd",
}
"""Functions whose first argument is the name of a unit."""


def _fields(node: exp.Expr) -> tuple[exp.Expr, ...]:
    """What a struct of several fields is made of, else the node itself."""
    if isinstance(node, exp.Anonymous) and node.name.lower() == "struct" and len(node.expressions) > 1:
        return tuple(each.this if isinstance(each, exp.Alias) else each for each in node.expressions)
    return (node,)


def _any(node: exp.Expr) -> Call:
    inner = node.this
    while isinstance(inner, exp.Paren):
        inner = inner.this
    return Call("bool_or", (inner,))


def _of(name: str, *parts: str) -> Maker:
    def make(node: exp.Expr) -> Call:
        return Call(name, tuple(node.args[part] for part in parts if node.args.get(part) is not None))

    return make


def _position(node: exp.Expr) -> Call:
    more = (node.args["position"],) if node.args.get("position") is not None else ()
    return Call("locate", (node.args["substr"], node.this, *more))


def _trim(node: exp.Expr) -> Call:
    position = str(node.args.get("position") or "BOTH").upper()
    name = {"BOTH": "trim", "LEADING": "ltrim", "TRAILING": "rtrim"}[position]
    characters = node.args.get("expression")
    return Call(name, (node.this,) if characters is None else (characters, node.this))


_FIELDS: Mapping[str, str] = {
    "year": "year",
    "quarter": "quarter",
    "month": "month",
    "week": "weekofyear",
    "day": "day",
    "dayofweek": "dayofweek",
    "dow": "dayofweek",
    "doy": "dayofyear",
    "hour": "hour",
    "minute": "minute",
    "second": "extract_second",
}


def _field(field: str, source: exp.Expr) -> Call:
    """EXTRACT of a field is the function of that field."""
    name = _FIELDS.get(field.lower())
    if name is None:
        raise NotConformant(f"EXTRACT({field}) is not proven equal in DuckDB")
    return Call(name, (source,))


def _extract(node: exp.Expr) -> Call:
    return _field(str(node.this.this), node.expression)


def _like(name: str) -> Maker:
    def make(node: exp.Expr) -> Call:
        if isinstance(node.expression, exp.Any | exp.All):
            raise NotConformant("LIKE ANY and LIKE ALL are not proven equal in DuckDB")
        return Call(name, (node.this, node.expression))

    return make


def _escape(node: exp.Expr) -> Call:
    if not isinstance(node.this, exp.Like | exp.ILike):
        raise NotConformant("this use of ESCAPE is not proven equal in DuckDB")
    inner = CALLS[type(node.this)](node.this)
    return Call(inner.name, (*inner.arguments, node.expression))


MIXED = "ladle mixed"
"""In the notes of a table: its rows come in an order that depends on how they were found."""

FUNCTION = "ladle_function"
"""Key in a call's `meta`: the user's function that it calls."""

CALLS: Mapping[type[exp.Expr], Maker] = {
    exp.Anonymous: _named,
    exp.Any: _any,
    exp.DPipe: _of("concat", "this", "expression"),
    exp.BitwiseNot: _of("~", "this"),
    exp.BitwiseLeftShift: _of("shiftleft", "this", "expression"),
    exp.BitwiseRightShift: _of("shiftright", "this", "expression"),
    exp.Substring: _of("substring", "this", "start", "length"),
    exp.StrPosition: _position,
    exp.Trim: _trim,
    exp.Extract: _extract,
    exp.Like: _like("like"),
    exp.ILike: _like("ilike"),
    exp.Escape: _escape,
    exp.RegexpLike: _of("rlike", "this", "expression"),
}


def call_of(node: exp.Expr) -> Call | None:
    """The call of a function of the list that a node of the parser stands for; None if there is none."""
    maker = CALLS.get(type(node))
    return maker(node) if maker is not None else None


def only(tree: exp.Expr, parts: frozenset[str]) -> None:
    """Refuse a node that has other parts than these."""
    for part, value in tree.args.items():
        if value and part not in parts:
            words = "LATERAL VIEW" if part == "laterals" else part.rstrip("_").upper().replace("_", " ")
            raise NotConformant(f"{words} is not proven equal in DuckDB")
