"""Expressions: from Spark's tree to DuckDB's text, typed as Spark types them.

One function per shape of node; calls and operators all go through the list. A node without a rule is NotConformant,
so a new kind of expression runs in Spark until it is proven.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from sqlglot import exp

from ladle.errors import TypeMismatch
from ladle.plan import Function
from ladle.schema import TIMESTAMP, type_name
from ladle.sql.conformant.casts import cast, is_ordered, literal, number
from ladle.sql.conformant.datatypes import arrow_type
from ladle.sql.conformant.entries import call
from ladle.sql.conformant.functions import BY_NAME, compared, widened
from ladle.sql.conformant.intervals import interval
from ladle.sql.conformant.nodes import CALLS, FUNCTION, Call, call_of
from ladle.sql.conformant.readable import refuse_unreadable
from ladle.sql.conformant.scope import Scope, quoted
from ladle.sql.conformant.spark_types import (
    BIGINT,
    BINARY,
    BOOLEAN,
    DATE,
    DEFAULT_DECIMAL,
    DOUBLE,
    DURATION,
    FLOAT,
    INT,
    MONTHS,
    SMALLINT,
    STRING,
    TINYINT,
    VOID,
    NotConformant,
    Typed,
    is_fraction,
)

_CASTS = {
    "boolean": BOOLEAN,
    "tinyint": TINYINT,
    "smallint": SMALLINT,
    "int": INT,
    "bigint": BIGINT,
    "float": FLOAT,
    "double": DOUBLE,
    "decimal": DEFAULT_DECIMAL,
    "string": STRING,
    "binary": BINARY,
    "date": DATE,
    "timestamp": TIMESTAMP,
}
"""Functions named as a type are casts to it."""

_COMPARISONS = frozenset({"=", "<>", "<", "<=", ">", ">=", "<=>"})

TEXT_CHARACTERS_MAX = 200_000
"""Checks repeat their operands, so deep nesting grows text; beyond this Spark runs the query."""


def expression(node: exp.Expr, scope: Scope) -> Typed:
    """The node rendered for DuckDB, with Spark's type."""
    if scope.keys is not None:
        key = _grouped(node, scope)
        if key is not None:
            return key
    rule = _RULES.get(type(node))
    if isinstance(node, exp.Anonymous) and FUNCTION in node.meta:
        found = _user_function(node, scope)
    elif rule is not None:
        found = rule(node, scope)
    else:
        called = call_of(node)
        if called is None:
            raise NotConformant(f"{_name(node)} is not proven equal in DuckDB")
        found = _call(called, scope)
    if len(found.sql) > TEXT_CHARACTERS_MAX:
        raise NotConformant("the expression is nested too deeply")
    return found


def condition(node: exp.Expr, scope: Scope) -> Typed:
    """A boolean: WHERE, HAVING, ON, FILTER."""
    found = expression(node, scope)
    if found.type == VOID:
        return cast(found, BOOLEAN)
    if found.type != BOOLEAN:
        raise NotConformant(f"a condition of type {type_name(found.type)}")
    return found


def filtered(node: exp.Expr, scope: Scope) -> Typed:
    """A condition that keeps rows. A term that may raise is only tried on rows that the terms before it keep, as in
    Spark; the others also stand alone, so that DuckDB can join and skip by them."""
    terms = [condition(term, scope) for term in (node.flatten() if isinstance(node, exp.And) else [node])]
    if not any(term.may_raise for term in terms):
        return Typed(" AND ".join(term.sql for term in terms), BOOLEAN)
    steps = " ".join(f"WHEN {term.sql} IS NOT TRUE THEN FALSE" for term in terms)
    plain = [term.sql for term in terms if not term.may_raise]
    return Typed(" AND ".join((*plain, f"(CASE {steps} ELSE TRUE END)")), BOOLEAN, may_raise=True)


def normalized(value: Typed) -> Typed:
    """Spark turns -0.0 into 0.0 in the keys of groups, DISTINCT, partitions and sorting."""
    if is_fraction(value.type):
        return replace(value, sql=f"({value.sql} + 0)", constant=None)
    return value


def _name(node: exp.Expr) -> str:
    if isinstance(node, exp.Func):
        return f"function {node.sql_name().lower()}"
    return f"the expression {node.sql(dialect='spark')[:60]}"


def _grouped(node: exp.Expr, scope: Scope) -> Typed | None:
    """A node that is a GROUP BY expression is its key; a column that is not one may not stand outside an aggregate."""
    assert scope.keys is not None
    if isinstance(node, exp.Literal | exp.Boolean | exp.Null | exp.Placeholder):
        return None
    try:
        row_wise = expression(node, replace(scope, keys=None, aliases={}, windows=False))
    except NotConformant:
        row_wise = None
    if row_wise is not None and row_wise.sql in scope.keys:
        return scope.keys[row_wise.sql]
    if isinstance(node, exp.Column) and node.table and _owner(node, scope) is scope:
        raise NotConformant(f"column {node.name} is neither grouped nor aggregated")
    return None


def _owner(node: exp.Column, scope: Scope) -> Scope | None:
    found: Scope | None = scope
    while found is not None and node.table.lower() not in found.sources:
        found = found.parent
    return found


def _column(node: exp.Column, scope: Scope) -> Typed:
    name = node.name.lower()
    if not node.table:
        if name in scope.aliases:
            return scope.aliases[name]
        raise NotConformant(f"column {node.name} has no relation")
    owner = _owner(node, scope)
    if node.args.get("db") is not None or owner is None or name not in owner.sources[node.table.lower()]:
        raise NotConformant(f"column {node.sql(dialect='spark')} is not a column of a relation in scope")
    if owner is not scope and owner.keys is not None:
        raise NotConformant("a subquery that refers to a grouped query")
    return owner.sources[node.table.lower()][name]


def _literal(node: exp.Literal, scope: Scope) -> Typed:
    return literal(str(node.this), STRING) if node.is_string else number(str(node.this))


def _hex(node: exp.HexString, scope: Scope) -> Typed:
    digits = str(node.this)
    if len(digits) % 2:
        raise NotConformant("a binary literal with an odd number of digits")
    return Typed(f"unhex('{digits}')", BINARY)


def _placeholder(node: exp.Placeholder, scope: Scope) -> Typed:
    if node.this != "now":
        raise NotConformant(f"the parameter :{node.this}")
    return Typed("CAST($now AS TIMESTAMP)", TIMESTAMP)


def _negative(node: exp.Expr, scope: Scope) -> Typed:
    inner = node.this
    if isinstance(inner, exp.Literal) and not inner.is_string:
        # -9223372036854775808 is one literal, and a negated literal keeps the digits that typing looks at.
        return number("-" + str(inner.this))
    value = expression(inner, scope)
    if value.type in (DURATION, MONTHS) and isinstance(value.constant, int):
        return replace(value, sql=str(-value.constant), constant=-value.constant)
    return call(BY_NAME["negative"], "negative", [value])


def _binary(symbol: str) -> Callable[[exp.Expr, Scope], Typed]:
    def rule(node: exp.Expr, scope: Scope) -> Typed:
        left, right = expression(node.this, scope), expression(node.expression, scope)
        if symbol in _COMPARISONS:
            refuse_unreadable([node.this, node.expression], [left, right])
        if symbol in ("+", "-") and left.type in (DURATION, MONTHS) and right.type == left.type:
            return _fold_intervals(symbol, left, right)
        if symbol == "+" and left.type in (DURATION, MONTHS):
            left, right = right, left
        return call(BY_NAME[symbol], symbol, [left, right])

    return rule


def _fold_intervals(symbol: str, left: Typed, right: Typed) -> Typed:
    if not isinstance(left.constant, int) or not isinstance(right.constant, int):
        raise NotConformant("arithmetic of intervals that are not constant")
    total = left.constant + right.constant if symbol == "+" else left.constant - right.constant
    return replace(left, sql=str(total), constant=total, days_only=left.days_only and right.days_only)


def _distinct_from(node: exp.Expr, scope: Scope) -> Typed:
    equal = _binary("<=>")(node, scope)
    return replace(equal, sql=f"(NOT {equal.sql})")


def _is(node: exp.Is, scope: Scope) -> Typed:
    value = expression(node.this, scope)
    if isinstance(node.expression, exp.Null):
        return call(BY_NAME["isnull"], "IS NULL", [value])
    if isinstance(node.expression, exp.Boolean) and value.type == BOOLEAN:
        return replace(value, sql=f"({value.sql} IS {'TRUE' if node.expression.this else 'FALSE'})", constant=None)
    raise NotConformant(f"{_name(node)} is not proven equal in DuckDB")


def _connector(node: exp.Connector, scope: Scope) -> Typed:
    """Spark skips the right side once the left decides; DuckDB may compute both, so what can raise becomes a CASE."""
    terms = [condition(term, scope) for term in node.flatten()]
    word, decided, other = ("AND", "FALSE", "TRUE") if isinstance(node, exp.And) else ("OR", "TRUE", "FALSE")
    may_raise = any(term.may_raise for term in terms)
    if not may_raise:
        return Typed("(" + f" {word} ".join(term.sql for term in terms) + ")", BOOLEAN)
    deciding = "".join(f"WHEN {term.sql} IS {decided} THEN {decided} " for term in terms)
    unknown = " OR ".join(f"{term.sql} IS NULL" for term in terms)
    return Typed(f"(CASE {deciding}WHEN {unknown} THEN NULL ELSE {other} END)", BOOLEAN, may_raise)


def _not(node: exp.Not, scope: Scope) -> Typed:
    value = condition(node.this, scope)
    return Typed(f"(NOT {value.sql})", BOOLEAN, value.may_raise)


def _between(node: exp.Between, scope: Scope) -> Typed:
    if node.args.get("symmetric"):
        raise NotConformant("BETWEEN SYMMETRIC is not proven equal in DuckDB")
    parts = [node.args[part] for part in ("this", "low", "high")]
    value, low, high = values = [expression(part, scope) for part in parts]
    refuse_unreadable(parts, values)
    lower, upper = call(BY_NAME[">="], ">=", [value, low]), call(BY_NAME["<="], "<=", [value, high])
    return Typed(f"({lower.sql} AND {upper.sql})", BOOLEAN, lower.may_raise or upper.may_raise)


def _in(node: exp.In, scope: Scope) -> Typed:
    query = node.args.get("query")
    if isinstance(node.this, exp.Tuple) or (query is None and not node.expressions):
        raise NotConformant("this form of IN is not proven equal in DuckDB")
    value = expression(node.this, scope)
    if query is None:
        values = [value, *(expression(each, scope) for each in node.expressions)]
        refuse_unreadable([node.this, *node.expressions], values)
        return call(BY_NAME["in"], "in", values)
    found = scope.query(query, scope)
    if len(found.columns) != 1:
        raise NotConformant("IN over several columns is not proven equal in DuckDB")
    name, type_ = found.columns[0]
    left, right = compared([replace(value, constant=None), Typed(f"q.{quoted(name)}", type_)])
    if not is_ordered(left.type):
        raise NotConformant(f"IN over {type_name(left.type)} is not proven equal in DuckDB")
    inner = found.sql if right.type == type_ else f"SELECT {right.sql} FROM ({found.sql}) AS q({quoted(name)})"
    return Typed(f"({left.sql} IN ({inner}))", BOOLEAN, left.may_raise or found.may_raise or right.may_raise)


def _exists(node: exp.Exists, scope: Scope) -> Typed:
    if not isinstance(node.this, exp.Query):
        raise NotConformant("function exists is not proven equal in DuckDB")
    found = scope.query(node.this, scope)
    return Typed(f"EXISTS ({found.sql})", BOOLEAN, found.may_raise)


def _scalar(node: exp.Expr, scope: Scope) -> Typed:
    found = scope.query(node, scope)
    if len(found.columns) != 1:
        raise NotConformant("a scalar subquery of several columns")
    if found.correlated and not found.one_row:
        raise NotConformant("a correlated scalar subquery that is not an aggregate")
    return Typed(f"({found.sql})", found.columns[0][1], found.may_raise or not found.one_row)


def _case(node: exp.Case, scope: Scope) -> Typed:
    subject = expression(node.this, scope) if node.this is not None else None
    conditions: list[Typed] = []
    values: list[Typed] = []
    for branch in node.args["ifs"]:
        if subject is None:
            conditions.append(condition(branch.this, scope))
        else:
            compared_with = expression(branch.this, scope)
            refuse_unreadable([node.this, branch.this], [subject, compared_with])
            conditions.append(call(BY_NAME["="], "=", [subject, compared_with]))
        values.append(expression(branch.args["true"], scope))
    default = node.args.get("default")
    values.append(expression(default, scope) if default is not None else Typed("NULL", VOID))
    values = list(widened(values))
    branches = " ".join(f"WHEN {c.sql} THEN {v.sql}" for c, v in zip(conditions, values, strict=False))
    may_raise = any(each.may_raise for each in (*conditions, *values))
    return Typed(f"(CASE {branches} ELSE {values[-1].sql} END)", values[-1].type, may_raise)


def _if(node: exp.If, scope: Scope) -> Typed:
    otherwise = node.args.get("false")
    values = [expression(node.args["true"], scope)]
    values.append(expression(otherwise, scope) if otherwise is not None else Typed("NULL", VOID))
    return call(BY_NAME["if"], "if", [condition(node.this, scope), *values])


def _cast(node: exp.Cast, scope: Scope) -> Typed:
    if node.args.get("format") is not None or node.args.get("safe"):
        raise NotConformant("try_cast is not proven equal in DuckDB")
    try:
        target = arrow_type(node.to)
    except TypeMismatch as mismatch:
        raise NotConformant(mismatch.message) from None
    if isinstance(node.this, exp.Literal) and not node.this.is_string and target == DOUBLE:
        return Typed(f"CAST('{node.this.this}' AS DOUBLE)", DOUBLE)
    return cast(expression(node.this, scope), target)


def _like(node: exp.Expr, scope: Scope) -> Typed:
    """LIKE and ILIKE; the parser keeps NOT as a property of the node."""
    matched = _call(CALLS[type(node)](node), scope)
    like = node.this if isinstance(node, exp.Escape) else node
    return replace(matched, sql=f"(NOT {matched.sql})") if like.args.get("negate") else matched


def _call(called: Call, scope: Scope) -> Typed:
    if called.name in _CASTS and len(called.arguments) == 1:
        return cast(expression(called.arguments[0], scope), _CASTS[called.name])
    entries = BY_NAME.get(called.name)
    if entries is None:
        raise NotConformant(f"function {called.name} is not proven equal in DuckDB")
    if entries[0].aggregate:
        return _aggregate(called, scope)
    if called.distinct or called.star:
        raise NotConformant(f"{called.name} of DISTINCT or * is not proven equal in DuckDB")
    return call(entries, called.name, [expression(each, scope) for each in called.arguments])


def _user_function(node: exp.Anonymous, scope: Scope) -> Typed:
    """The same Python runs in both engines; its arguments were cast to their types when the call was resolved."""
    function: Function = node.meta[FUNCTION]
    given = ", ".join(expression(each, scope).sql for each in node.expressions)
    return Typed(f"{function.symbol}({given})", function.returns, may_raise=True)


def _aggregate(called: Call, scope: Scope, *, tail: str = "", filter_: exp.Expr | None = None) -> Typed:
    """An aggregate of groups, or with `tail` (OVER) of a window."""
    if scope.keys is None and not tail:
        raise NotConformant(f"{called.name} outside a grouped query")
    rows = replace(scope, keys=None, aliases={}, windows=False)
    entries = BY_NAME[called.name]
    where = condition(filter_, rows) if filter_ is not None else None
    if called.star:
        sql = "count(*)" + (f" FILTER (WHERE {where.sql})" if where else "") + tail
        return Typed(sql, BIGINT, bool(where and where.may_raise))
    arguments = [expression(each, rows) for each in called.arguments]
    if called.distinct:
        if not entries[0].distinct or tail or any(not is_ordered(each.type) for each in arguments):
            raise NotConformant(f"{called.name}(DISTINCT) here is not proven equal in DuckDB")
        arguments = [normalized(each) for each in arguments]
    if where is not None:
        # Only rows that pass may be evaluated (they could raise), so the condition is part of the argument.
        arguments = [
            Typed(f"(CASE WHEN {where.sql} THEN {a.sql} END)", a.type, a.may_raise or where.may_raise)
            for a in arguments
        ]
    for entry in entries:
        if entry.matches(arguments):
            return entry.render(arguments, distinct="DISTINCT " if called.distinct else "", tail=tail)
    return call((), called.name, arguments)


def _filter(node: exp.Filter, scope: Scope) -> Typed:
    called = call_of(node.this)
    entries = BY_NAME.get(called.name) if called is not None else None
    if called is None or entries is None or not entries[0].aggregate:
        raise NotConformant(f"FILTER on {node.this.sql(dialect='spark')[:40]} is not proven equal in DuckDB")
    return _aggregate(called, scope, filter_=node.expression.this)


def _window(node: exp.Window, scope: Scope) -> Typed:
    from ladle.sql.conformant.windows import window

    if not scope.windows:
        raise NotConformant("a window function in this clause")
    return window(node, scope, _aggregate)


_RULES: Mapping[type[exp.Expr], Callable[..., Typed]] = {
    exp.Column: _column,
    exp.Literal: _literal,
    exp.HexString: _hex,
    exp.Boolean: lambda node, scope: literal(bool(node.this), BOOLEAN),
    exp.Null: lambda node, scope: Typed("NULL", VOID),
    exp.Placeholder: _placeholder,
    exp.Paren: lambda node, scope: expression(node.this, scope),
    exp.Alias: lambda node, scope: expression(node.this, scope),
    exp.Neg: _negative,
    exp.Add: _binary("+"),
    exp.Sub: _binary("-"),
    exp.Mul: _binary("*"),
    exp.Div: _binary("/"),
    exp.Mod: _binary("%"),
    exp.IntDiv: _binary("div"),
    exp.EQ: _binary("="),
    exp.NEQ: _binary("<>"),
    exp.LT: _binary("<"),
    exp.LTE: _binary("<="),
    exp.GT: _binary(">"),
    exp.GTE: _binary(">="),
    exp.NullSafeEQ: _binary("<=>"),
    exp.NullSafeNEQ: _distinct_from,
    exp.BitwiseAnd: _binary("&"),
    exp.BitwiseOr: _binary("|"),
    exp.BitwiseXor: _binary("^"),
    exp.Is: _is,
    exp.And: _connector,
    exp.Or: _connector,
    exp.Not: _not,
    exp.Between: _between,
    exp.In: _in,
    exp.Exists: _exists,
    exp.Subquery: _scalar,
    exp.Case: _case,
    exp.If: _if,
    exp.Cast: _cast,
    exp.TryCast: _cast,
    exp.Interval: lambda node, scope: interval(node),
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _like,
    exp.Filter: _filter,
    exp.Window: _window,
}
