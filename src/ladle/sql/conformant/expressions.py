"""Expressions: from Spark's tree to DuckDB's text, typed as Spark types them.

One function per shape of node; calls and operators all go through the list. A node without a rule is NotConformant,
so a new kind of expression runs in Spark until it is proven.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from sqlglot import exp

from ladle.errors import TypeMismatch
from ladle.plan import Function
from ladle.schema import TIMESTAMP, type_name
from ladle.sql.conformant.casts import cast, is_ordered, literal, number, try_cast
from ladle.sql.conformant.datatypes import arrow_type
from ladle.sql.conformant.intervals import interval
from ladle.sql.conformant.literals import folded_intervals, hexadecimal, parameter, written
from ladle.sql.conformant.operands import (
    ARITHMETIC,
    COMPARISONS,
    calculated,
    check_compared,
    joined,
    refusal,
    refused_at,
    truth,
)
from ladle.sql.conformant.parser_names import CALLS, FUNCTION, Call, call_of
from ladle.sql.conformant.readable import is_readable, refuse_unreadable, unreadable
from ladle.sql.conformant.scope import TypedScope, quoted
from ladle.sql.conformant.signatures import call
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
    Refused,
    Typed,
    common_type,
    is_fraction,
)
from ladle.sql.conformant.the_list import BY_NAME, compared, widened
from ladle.sql.conformant.window_structs import field, is_time_window, time_window

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
    "to_timestamp": TIMESTAMP,
}
"""Functions named as a type are casts to it."""

_OF_ONE_TYPE = {"coalesce": 0, "greatest": 0, "least": 0, "if": 1, "nvl2": 1}
"""Functions whose arguments, from this one on, become one type."""

TEXT_CHARACTERS_MAX = 200_000
"""Checks repeat operands, so nesting grows text: beyond this Spark runs the query, unless it was written so long."""
_CHARACTERS_PER_NODE_MAX = 200


def expression(node: exp.Expr, scope: TypedScope) -> Typed:
    """The node rendered for DuckDB, with Spark's type."""
    if scope.keys is not None:
        key = _grouped(node, scope)
        if key is not None:
            return key
    try:
        found = _rendered(node, scope)
    except Refused as refused:
        raise refusal(refused, node) from None
    length = len(found.sql)
    if length > TEXT_CHARACTERS_MAX and length > _CHARACTERS_PER_NODE_MAX * sum(1 for _ in node.walk()):
        raise NotConformant("the expression is nested too deeply")
    return found


def each_expression(nodes: Iterable[exp.Expr], scope: TypedScope) -> list[Typed]:
    """All of them. When one is not conformant the rest is looked at first: Spark is not asked what is refused here."""
    found: list[Typed] = []
    unproven: NotConformant | None = None
    for node in nodes:
        try:
            found.append(expression(node, scope))
        except NotConformant as reason:
            unproven = unproven or reason
    if unproven is not None:
        raise unproven
    return found


def _rendered(node: exp.Expr, scope: TypedScope) -> Typed:
    if isinstance(node, exp.Anonymous) and FUNCTION in node.meta:
        return _user_function(node, scope)
    if isinstance(node, exp.Anonymous) and is_time_window(node):
        return _time_window(node, scope)
    rule = _RULES.get(type(node))
    if rule is not None:
        return rule(node, scope)
    called = call_of(node)
    if called is None:
        raise NotConformant(f"{name_of(node)} is not proven equal in DuckDB")
    return _call(called, scope)


def condition(node: exp.Expr, scope: TypedScope) -> Typed:
    """A boolean: WHERE, HAVING, ON, FILTER."""
    found = expression(node, scope)
    with refused_at(node):
        return truth(found)


def filtered(node: exp.Expr, scope: TypedScope) -> Typed:
    """A condition that keeps rows. A term that may raise is only tried on rows that the terms before it keep, as in
    Spark; the others also stand alone, so that DuckDB can join and skip by them."""
    if isinstance(node, exp.And):
        with refused_at(node):
            terms = _terms(node, scope)
    else:
        terms = [condition(node, scope)]
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


def name_of(node: exp.Expr) -> str:
    """What an expression is called in messages."""
    if isinstance(node, exp.Func):
        return f"function {node.sql_name().lower()}"
    return f"the expression {node.sql(dialect='spark')[:60]}"


def _grouped(node: exp.Expr, scope: TypedScope) -> Typed | None:
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


def _owner(node: exp.Column, scope: TypedScope) -> TypedScope | None:
    found: TypedScope | None = scope
    while found is not None and node.table.lower() not in found.sources:
        found = found.parent
    return found


def _column(node: exp.Column, scope: TypedScope) -> Typed:
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


def _negative(node: exp.Expr, scope: TypedScope) -> Typed:
    inner = node.this
    if isinstance(inner, exp.Literal) and not inner.is_string:
        # -9223372036854775808 is one literal, and a negated literal keeps the digits that typing looks at.
        return number("-" + str(inner.this))
    value = expression(inner, scope)
    if value.type in (DURATION, MONTHS) and isinstance(value.constant, int):
        return replace(value, sql=str(-value.constant), constant=-value.constant)
    if value.type == STRING:
        refuse_unreadable([inner, node], [value, Typed("", DOUBLE)], "calculated")
        value = cast(value, DOUBLE)
    return call(BY_NAME["negative"], "negative", [value])


def _binary(symbol: str) -> Callable[[exp.Expr, TypedScope], Typed]:
    def rule(node: exp.Expr, scope: TypedScope) -> Typed:
        left, right = operands = each_expression((node.this, node.expression), scope)
        if symbol in COMPARISONS:
            check_compared(operands)
            refuse_unreadable([node.this, node.expression], operands)
        elif symbol in ARITHMETIC:
            refuse_unreadable([node.this, node.expression], operands, "calculated")
            left, right = calculated(symbol, left, right)
        if symbol in ("+", "-") and left.type in (DURATION, MONTHS) and right.type == left.type:
            return folded_intervals(symbol, left, right)
        if symbol == "+" and left.type in (DURATION, MONTHS):
            left, right = right, left
        return call(BY_NAME[symbol], symbol, [left, right])

    return rule


def _distinct_from(node: exp.Expr, scope: TypedScope) -> Typed:
    equal = _binary("<=>")(node, scope)
    return replace(equal, sql=f"(NOT {equal.sql})")


def _is(node: exp.Is, scope: TypedScope) -> Typed:
    value = expression(node.this, scope)
    if isinstance(node.expression, exp.Null):
        return call(BY_NAME["isnull"], "IS NULL", [value])
    if isinstance(node.expression, exp.Boolean) and value.type == BOOLEAN:
        return replace(value, sql=f"({value.sql} IS {'TRUE' if node.expression.this else 'FALSE'})", constant=None)
    raise NotConformant(f"{name_of(node)} is not proven equal in DuckDB")


def _terms(node: exp.Connector, scope: TypedScope) -> list[Typed]:
    """The operands of AND or OR."""
    nodes = list(node.flatten())
    found = each_expression(nodes, scope)
    terms = [truth(found[0], found[1])]
    for term, value in zip(nodes[1:], found[1:], strict=True):
        terms.append(truth(value, terms[0]))
        refuse_unreadable([nodes[0], term], [found[0], value])
    return terms


def _connector(node: exp.Connector, scope: TypedScope) -> Typed:
    """Spark skips the right side once the left decides; DuckDB may compute both, so what can raise becomes a CASE."""
    return joined("AND" if isinstance(node, exp.And) else "OR", _terms(node, scope))


def _not(node: exp.Not, scope: TypedScope) -> Typed:
    value = expression(node.this, scope)
    refuse_unreadable([node.this, node], [value, Typed("", BOOLEAN)])
    value = truth(value, Typed("", BOOLEAN))
    return Typed(f"(NOT {value.sql})", BOOLEAN, value.may_raise)


def _between(node: exp.Between, scope: TypedScope) -> Typed:
    if node.args.get("symmetric"):
        raise NotConformant("BETWEEN SYMMETRIC is not proven equal in DuckDB")
    parts = [node.args[part] for part in ("this", "low", "high")]
    value, low, high = each_expression(parts, scope)
    for part, other in ((parts[1], low), (parts[2], high)):
        check_compared([value, other])
        refuse_unreadable([parts[0], part], [value, other])
    lower, upper = call(BY_NAME[">="], ">=", [value, low]), call(BY_NAME["<="], "<=", [value, high])
    return joined("AND", (lower, upper))


def _in(node: exp.In, scope: TypedScope) -> Typed:
    query = node.args.get("query")
    if isinstance(node.this, exp.Tuple) or (query is None and not node.expressions):
        raise NotConformant("this form of IN is not proven equal in DuckDB")
    if query is None:
        values = each_expression((node.this, *node.expressions), scope)
        check_compared(values)
        refuse_unreadable([node.this, *node.expressions], values)
        return call(BY_NAME["in"], "in", values)
    value = expression(node.this, scope)
    found = scope.query(query, scope)
    if len(found.columns) != 1:
        raise NotConformant("IN over several columns is not proven equal in DuckDB")
    name, type_ = found.columns[0]
    left, right = compared([replace(value, constant=None), Typed(f"q.{quoted(name)}", type_)])
    if not is_ordered(left.type):
        raise NotConformant(f"IN over {type_name(left.type)} is not proven equal in DuckDB")
    inner = found.sql if right.type == type_ else f"SELECT {right.sql} FROM ({found.sql}) AS q({quoted(name)})"
    return Typed(f"({left.sql} IN ({inner}))", BOOLEAN, left.may_raise or found.may_raise or right.may_raise)


def _exists(node: exp.Exists, scope: TypedScope) -> Typed:
    if not isinstance(node.this, exp.Query):
        raise NotConformant("function exists is not proven equal in DuckDB")
    found = scope.query(node.this, scope)
    return Typed(f"EXISTS ({found.sql})", BOOLEAN, found.may_raise)


def _scalar(node: exp.Expr, scope: TypedScope) -> Typed:
    found = scope.query(node, scope)
    if len(found.columns) != 1:
        raise NotConformant("a scalar subquery of several columns")
    if found.correlated and not found.one_row:
        raise NotConformant("a correlated scalar subquery that is not an aggregate")
    return Typed(f"({found.sql})", found.columns[0][1], found.may_raise or not found.one_row)


def _case(node: exp.Case, scope: TypedScope) -> Typed:
    subject = expression(node.this, scope) if node.this is not None else None
    scope = replace(scope, conditional=True)
    conditions: list[Typed] = []
    values: list[Typed] = []
    for branch in node.args["ifs"]:
        if subject is None:
            conditions.append(condition(branch.this, scope))
        else:
            compared_with = expression(branch.this, scope)
            check_compared([subject, compared_with])
            refuse_unreadable([node.this, branch.this], [subject, compared_with])
            conditions.append(call(BY_NAME["="], "=", [subject, compared_with]))
        values.append(expression(branch.args["true"], scope))
    default = node.args.get("default")
    values.append(expression(default, scope) if default is not None else Typed("NULL", VOID))
    values = list(widened(values))
    branches = " ".join(f"WHEN {c.sql} THEN {v.sql}" for c, v in zip(conditions, values, strict=False))
    may_raise = any(each.may_raise for each in (*conditions, *values))
    return Typed(f"(CASE {branches} ELSE {values[-1].sql} END)", values[-1].type, may_raise)


def _if(node: exp.If, scope: TypedScope) -> Typed:
    otherwise = node.args.get("false")
    branches = replace(scope, conditional=True)
    values = [expression(node.args["true"], branches)]
    values.append(expression(otherwise, branches) if otherwise is not None else Typed("NULL", VOID))
    common_type(values)
    return call(BY_NAME["if"], "if", [condition(node.this, scope), *values])


def _cast(node: exp.Cast, scope: TypedScope) -> Typed:
    if node.args.get("format") is not None:
        raise NotConformant("CAST with a format is not proven equal in DuckDB")
    try:
        target = arrow_type(node.to)
    except TypeMismatch as mismatch:
        raise NotConformant(mismatch.message) from None
    if isinstance(node.this, exp.Literal) and not node.this.is_string and target == DOUBLE:
        return Typed(f"CAST('{node.this.this}' AS DOUBLE)", DOUBLE)
    value = expression(node.this, scope)
    if node.args.get("safe"):
        return try_cast(value, target)
    if isinstance(value.constant, str) and not scope.conditional and not is_readable(value.constant, target):
        raise unreadable(node.this, value.constant, target)
    return cast(value, target)


def _like(node: exp.Expr, scope: TypedScope) -> Typed:
    """LIKE and ILIKE; the parser keeps NOT as a property of the node."""
    quantified = node.expression
    if isinstance(quantified, exp.Any | exp.All) and isinstance(node, exp.Like | exp.ILike):
        return _like_each(node, quantified, scope)
    matched = _call(CALLS[type(node)](node), scope)
    like = node.this if isinstance(node, exp.Escape) else node
    return replace(matched, sql=f"(NOT {matched.sql})") if like.args.get("negate") else matched


def _like_each(node: exp.Expr, quantified: exp.Expr, scope: TypedScope) -> Typed:
    """LIKE ANY and LIKE ALL of some patterns."""
    patterns = quantified.this.expressions if isinstance(quantified.this, exp.Tuple) else [quantified.this.unnest()]
    if node.args.get("negate") or not patterns:
        raise NotConformant("NOT LIKE ANY and NOT LIKE ALL are not proven equal in DuckDB")
    name = "like" if isinstance(node, exp.Like) else "ilike"
    terms = [_call(Call(name, (node.this, each)), scope) for each in patterns]
    return joined("OR" if isinstance(quantified, exp.Any) else "AND", terms)


def _call(called: Call, scope: TypedScope) -> Typed:
    if called.name in _CASTS and len(called.arguments) == 1 and not called.distinct:
        return cast(expression(called.arguments[0], scope), _CASTS[called.name])
    entries = BY_NAME.get(called.name)
    if entries is not None and entries[0].aggregate:
        return _aggregate(called, scope)
    # Also of a function that only Spark has: what is wrong in its arguments is said here.
    conditional = scope.conditional or called.name in _OF_ONE_TYPE
    inside = replace(scope, conditional=conditional)
    if entries is None:
        with suppress(NotConformant):
            each_expression(called.arguments, inside)
        raise NotConformant(f"function {called.name} is not proven equal in DuckDB")
    arguments = each_expression(called.arguments, inside)
    if called.distinct or called.star:
        raise NotConformant(f"{called.name} of DISTINCT or * is not proven equal in DuckDB")
    if called.name in ("greatest", "least", "nullif") and arguments:
        check_compared(arguments)
    if called.name in _OF_ONE_TYPE:
        common_type(arguments[_OF_ONE_TYPE[called.name] :], strings=called.name not in ("greatest", "least"))
    return call(entries, called.name, arguments)


def _user_function(node: exp.Anonymous, scope: TypedScope) -> Typed:
    """The same Python runs in both engines; its arguments were cast to their types when the call was resolved."""
    function: Function = node.meta[FUNCTION]
    given = ", ".join(expression(each, scope).sql for each in node.expressions)
    return Typed(f"{function.symbol}({given})", function.returns, may_raise=True)


def _time_window(node: exp.Anonymous, scope: TypedScope) -> Typed:
    return time_window(node, scope, lambda each: expression(each, scope))


def _dot(node: exp.Dot, scope: TypedScope) -> Typed:
    if not isinstance(node.expression, exp.Identifier):
        raise NotConformant(f"{name_of(node)} is not proven equal in DuckDB")
    return field(expression(node.this, scope), node.expression.name)


def _aggregate(called: Call, scope: TypedScope) -> Typed:
    from ladle.sql.conformant.aggregating import aggregate

    return aggregate(called, scope)


def _filter(node: exp.Filter, scope: TypedScope) -> Typed:
    from ladle.sql.conformant.aggregating import filtered_aggregate

    return filtered_aggregate(node, scope)


def _within_group(node: exp.WithinGroup, scope: TypedScope) -> Typed:
    from ladle.sql.conformant.aggregating import within_group

    return within_group(node, scope)


def _window(node: exp.Window, scope: TypedScope) -> Typed:
    from ladle.sql.conformant.aggregating import aggregate
    from ladle.sql.conformant.windows import window

    if not scope.windows:
        raise NotConformant("a window function in this clause")
    return window(node, scope, aggregate)


_RULES: Mapping[type[exp.Expr], Callable[..., Typed]] = {
    exp.Column: _column,
    exp.Literal: lambda node, scope: written(node),
    exp.HexString: lambda node, scope: hexadecimal(node),
    exp.Boolean: lambda node, scope: literal(bool(node.this), BOOLEAN),
    exp.Null: lambda node, scope: Typed("NULL", VOID),
    exp.Placeholder: lambda node, scope: parameter(node),
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
    **dict.fromkeys((exp.Like, exp.ILike, exp.Escape), _like),
    exp.Filter: _filter,
    exp.WithinGroup: _within_group,
    exp.Window: _window,
    exp.Dot: _dot,
}
