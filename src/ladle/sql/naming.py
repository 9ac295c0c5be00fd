"""Names of unaliased expressions, as near to Spark's as is reasonable: `sum(length)`, `count(1)`, `(a + 1)`.

They are made from the tree as it was written, before names are resolved.
"""

from __future__ import annotations

from sqlglot import exp

from ladle.sql.dialect import DIALECT
from ladle.sql.scopes import NAME

_OPERATORS: dict[type[exp.Expr], str] = {
    exp.Add: "+",
    exp.Sub: "-",
    exp.Mul: "*",
    exp.Div: "/",
    exp.Mod: "%",
    exp.IntDiv: "div",
    exp.EQ: "=",
    exp.GT: ">",
    exp.GTE: ">=",
    exp.LT: "<",
    exp.LTE: "<=",
    exp.NullSafeEQ: "<=>",
    exp.And: "AND",
    exp.Or: "OR",
    exp.BitwiseAnd: "&",
    exp.BitwiseOr: "|",
    exp.BitwiseXor: "^",
}

_TIME_WINDOWS = ("window", "session_window")
"""Calls whose column has the name of the function alone."""


def output_name(node: exp.Expr) -> str:
    """The column name of a projection that has no alias."""
    if isinstance(node, exp.Column | exp.Dot):
        return node.name
    if isinstance(node, exp.Cast) and isinstance(node.this, exp.Column | exp.Dot):
        return node.this.name
    if isinstance(node, exp.Anonymous) and node.name.lower() in _TIME_WINDOWS:
        return node.name.lower()
    return _text(node)


def _text(node: exp.Expr) -> str:
    if NAME in node.meta:
        return str(node.meta[NAME])
    match node:
        case exp.Column() if not isinstance(node.this, exp.Star):
            return node.name
        case exp.Literal() | exp.Identifier() | exp.Var() | exp.RawString():
            return node.name
        case exp.Boolean():
            return "true" if node.this else "false"
        case exp.Paren():
            return _text(node.this)
        case exp.Dot():
            return f"{_text(node.this)}.{node.name}"
        case exp.Anonymous():
            return _call(node)
        case exp.Neg():
            return f"-{node.this.name}" if isinstance(node.this, exp.Literal) else f"(- {_text(node.this)})"
        case exp.Not(this=exp.Is(expression=exp.Null())):
            return f"({_text(node.this.this)} IS NOT NULL)"
        case exp.Not():
            return f"(NOT {_text(node.this)})"
        case exp.NEQ():
            return f"(NOT ({_text(node.this)} = {_text(node.expression)}))"
        case exp.DPipe():
            return f"concat({_text(node.this)}, {_text(node.expression)})"
        case exp.Is() if isinstance(node.expression, exp.Null):
            return f"({_text(node.this)} IS NULL)"
        case exp.Is():
            return f"({_text(node.this)} IS {_text(node.expression)})"
        case exp.In() if node.expressions:
            return f"({_text(node.this)} IN ({', '.join(_text(item) for item in node.expressions)}))"
        case exp.Between():
            return f"between({_text(node.this)}, {_text(node.args['low'])}, {_text(node.args['high'])})"
        case exp.Like():
            text = f"{_text(node.this)} LIKE {_text(node.expression)}"
            return f"(NOT {text})" if node.args.get("negate") else text
        case exp.Cast() if isinstance(node.this, exp.Literal) and node.to.this in _LITERAL_TYPES:
            return f"{node.to.sql(DIALECT)} '{node.this.name}'"
        case exp.Cast():
            call = "TRY_CAST" if isinstance(node, exp.TryCast) and node.args.get("safe") else "CAST"
            return f"{call}({_text(node.this)} AS {node.to.sql(DIALECT)})"
        case exp.Case():
            return _case(node)
        case exp.If() if not isinstance(node.parent, exp.Case):
            other = node.args.get("false")
            return f"(IF({_text(node.this)}, {_text(node.args['true'])}, {_text(other) if other else 'NULL'}))"
        case exp.Distinct():
            return "DISTINCT " + ", ".join(_text(item) for item in node.expressions)
        case exp.CurrentTimestamp() | exp.CurrentDate():
            return "current_timestamp()" if isinstance(node, exp.CurrentTimestamp) else "current_date()"
    operator = _OPERATORS.get(type(node))
    if operator is not None:
        return f"({_text(node.this)} {operator} {_text(node.expression)})"
    return _unquoted(node).sql(DIALECT, normalize_functions="lower")


_LITERAL_TYPES = {exp.DType.TIMESTAMP, exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPNTZ, exp.DType.DATE}


def _call(node: exp.Anonymous) -> str:
    name = node.name.lower()
    if name == "count" and len(node.expressions) == 1 and isinstance(node.expressions[0], exp.Star):
        return "count(1)"
    return f"{name}({', '.join(_text(item) for item in node.expressions)})"


def _case(node: exp.Case) -> str:
    subject = node.this
    text = "CASE"
    for branch in node.args["ifs"]:
        condition = _text(branch.this)
        if subject is not None:
            condition = f"({_text(subject)} = {condition})"
        text += f" WHEN {condition} THEN {_text(branch.args['true'])}"
    default = node.args.get("default")
    return text + (f" ELSE {_text(default)}" if default is not None else "") + " END"


def _unquoted(node: exp.Expr) -> exp.Expr:
    copy = node.copy()
    for identifier in copy.find_all(exp.Identifier):
        identifier.set("quoted", False)
    for column in copy.find_all(exp.Column):
        column.set("table", None)
    return copy
