"""Binding of expressions: every column qualified by the relation it comes from, NOW as a parameter.

`now()`, `current_timestamp` and the bare word NOW are the invocation's NOW, the parameter `:now`; a column called `now`
wins over the word. What the tree holds afterwards are names that exist and nothing that a user could have put a
parameter of their own into.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from sqlglot import exp

from ladle.errors import SqlError, Unsupported
from ladle.plan.as_of import NOW
from ladle.sql.naming import output_name
from ladle.sql.scopes import NAME, SCAN, Scope, parts_of

_AGGREGATES_TEXT = """
    any any_value approx_count_distinct approx_percentile array_agg avg bit_and bit_or bit_xor bool_and bool_or
    collect_list collect_set corr count count_if count_min_sketch covar_pop covar_samp every first first_value grouping
    grouping_id histogram_numeric kurtosis last last_value listagg max max_by mean median min min_by mode percentile
    percentile_approx percentile_cont percentile_disc regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope
    regr_sxx regr_sxy regr_syy skewness some std stddev stddev_pop stddev_samp string_agg sum try_avg try_sum var_pop
    var_samp variance
"""
AGGREGATES = frozenset(_AGGREGATES_TEXT.split())

GENERATORS = frozenset(
    ["explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack", "json_tuple"]
)
"""Functions that make rows (`sql/row_makers.py`)."""

# Calls whose first argument is the name of a unit, not a column.
_UNIT_FIRST = {"dateadd", "date_add", "timestampadd", "datediff", "date_diff", "timestampdiff"}

BindQuery = Callable[[exp.Expression, Scope], exp.Expression]


@dataclass(frozen=True)
class Aliases:
    """Names of the SELECT list that an expression may use, and when they win over columns."""

    expressions: Mapping[str, exp.Expression] = field(default_factory=dict)
    first: bool = False
    grouped: frozenset[exp.Expression] | None = None
    """HAVING: a column that is not grouped by, outside an aggregate, gives way to an alias of its name."""
    windows: Mapping[str, exp.Expression] = field(default_factory=dict)
    """Time windows that are grouped by, and may be named."""


def bind_expression(
    root: exp.Expression, scope: Scope, bind_query: BindQuery, aliases: Aliases | None = None
) -> exp.Expression:
    """`root` bound; the result takes its place in the tree."""
    holder = exp.Tuple(expressions=[root]) if root.parent is None else None
    result = root
    stack = [root]
    while stack:
        node = stack.pop()
        bound = _bind_node(node, scope, bind_query, aliases or Aliases())
        if bound is None:
            stack.extend(node.iter_expressions())
            continue
        if bound is not node:
            node.replace(bound)
        if node is root:
            result = bound
    if holder is not None:
        result = result.pop()
    return result


def _bind_node(node: exp.Expression, scope: Scope, bind_query: BindQuery, aliases: Aliases) -> exp.Expression | None:
    """What stands for a node; None to look at its children."""
    match node:
        case exp.Query():
            return bind_query(node, scope)
        case exp.Column() if isinstance(node.this, exp.Star):
            raise SqlError("A star can't stand here.", hint="name the columns", position=scope.source.of(node))
        case exp.Column():
            return _bind_column(node, scope, aliases)
        case exp.Anonymous():
            _bind_call(node, scope)
        case exp.Placeholder():
            return node
        case exp.Star() if not isinstance(node.parent, exp.Anonymous):
            raise SqlError("A star can't stand here.", hint="name the columns", position=scope.source.of(node))
    return None


def _bind_column(node: exp.Column, scope: Scope, aliases: Aliases) -> exp.Expression:
    parts = parts_of(node)
    name = parts[0].name.lower()
    alias = aliases.expressions.get(name)
    local = scope.lookup(parts) if alias is None or not aliases.first else None
    hidden = alias is not None and aliases.grouped is not None and local not in aliases.grouped
    if hidden and not in_aggregate(node):
        local = None
    if local is not None:
        return _placed(local, parts[0])
    if alias is None and name in aliases.windows:
        return _fields(aliases.windows[name].copy(), parts[1:])
    if alias is not None:
        return _fields(wrapped(alias.copy()), parts[1:])
    for outer in scope.chain():
        if outer is not scope and (found := outer.lookup(parts)) is not None:
            return _placed(found, parts[0])
    if len(parts) == 1 and name == NOW and not parts[0].quoted:
        return now_parameter()
    raise scope.unknown_column(parts)


def _placed(node: exp.Expression, identifier: exp.Identifier) -> exp.Expression:
    """A bound column keeps the place where it was written, for errors found later."""
    node.meta.update({key: identifier.meta[key] for key in ("line", "col", "start", "end") if key in identifier.meta})
    return node


def _bind_call(node: exp.Anonymous, scope: Scope) -> None:
    name = node.name.lower()
    arguments = node.expressions
    if name in GENERATORS:
        raise Unsupported(
            f"{name} makes rows: it stands in the SELECT list by itself, or in FROM.",
            hint=f"write LATERAL VIEW {name}(x) t AS a",
            position=scope.source.of(node),
        )
    if name in _UNIT_FIRST and len(arguments) == 3 and isinstance(arguments[0], exp.Column):
        arguments[0].replace(exp.var(arguments[0].name.upper()))
    if any(_is_star(argument) for argument in arguments) and not (name == "count" and _plain_star(arguments)):
        if name == "count":
            raise SqlError("Rows are counted by count(*).", position=scope.source.of(node))
        _expand_arguments(node, scope)


def fix_now(tree: exp.Expression) -> exp.Expression:
    """Every call that reads the clock as the parameter; what is left is the bare word, which a column may have."""
    holder = exp.Tuple(expressions=[tree])
    for node in list(tree.walk()):
        if (fixed := _clock_call(node)) is not None:
            fixed.meta[NAME] = output_name(node)
            node.replace(fixed)
    result: exp.Expression = holder.expressions[0].pop()
    return result


def _clock_call(node: exp.Expr) -> exp.Expression | None:
    match node:
        case exp.CurrentTimestamp():
            return now_parameter()
        case exp.CurrentDate():
            return exp.cast(now_parameter(), "date")
        case exp.Localtimestamp():
            return exp.cast(now_parameter(), "timestamp_ntz", dialect="spark")
        case exp.Anonymous() if not node.expressions:
            match node.name.lower():
                case "now" | "current_timestamp":
                    return now_parameter()
                case "current_date" | "curdate":
                    return exp.cast(now_parameter(), "date")
                case "localtimestamp":
                    return exp.cast(now_parameter(), "timestamp_ntz", dialect="spark")
                case "unix_timestamp":
                    return exp.Anonymous(this=node.name, expressions=[now_parameter()])
    return None


def _plain_star(arguments: list[exp.Expression]) -> bool:
    return len(arguments) == 1 and isinstance(arguments[0], exp.Star) and not any(arguments[0].args.values())


def _is_star(node: exp.Expression) -> bool:
    return isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star))


def _expand_arguments(node: exp.Anonymous, scope: Scope) -> None:
    """`struct(*)` and `count(t.*)` take the columns that the star stands for, named as they are."""
    arguments: list[exp.Expression] = []
    for argument in node.expressions:
        if not _is_star(argument):
            arguments.append(argument)
            continue
        names = node.name.lower() == "struct"
        for name, column in star_columns(argument, scope):
            reference = exp.column(
                exp.to_identifier(column.name, quoted=True),
                table=exp.to_identifier(column.text("table"), quoted=True),
            )
            alias = exp.to_identifier(name, quoted=True)
            arguments.append(exp.Alias(this=reference, alias=alias) if names else reference)
    if not arguments:
        raise SqlError("EXCEPT leaves out every column of the star.", position=scope.source.of(node))
    node.set("expressions", arguments)


def star_columns(node: exp.Expression, scope: Scope) -> list[tuple[str, exp.Expression]]:
    """The columns of `*`, `t.*` and `* EXCEPT (a, t.b)`, with their names."""
    star = node.this if isinstance(node, exp.Column) else node
    if isinstance(node, exp.Column):
        qualifier = parts_of(node)
        relation = scope.relation(qualifier)
        if relation is None:
            raise scope.unknown_column([*qualifier, exp.to_identifier("*")])
        columns: list[tuple[str, exp.Expression]] = [(item.name, relation.column(item)) for item in relation.fields]
    else:
        if not scope.relations:
            raise SqlError("SELECT * needs a FROM.", position=scope.source.of(node))
        columns = list(scope.star())
    left_out: set[int] = set()
    for item in star.args.get("except_") or ():
        parts = parts_of(item) if isinstance(item, exp.Column) else [item]
        number = scope.starred(columns, parts)
        if number in left_out:
            name = ".".join(part.name for part in parts)
            raise SqlError(f"Column '{name}' is left out twice.", position=scope.source.of(parts[0]))
        left_out.add(number)
    return [column for number, column in enumerate(columns) if number not in left_out]


def in_aggregate(node: exp.Expr) -> bool:
    """Whether a node is part of an aggregate's arguments."""
    parent = node.parent
    while parent is not None and not isinstance(parent, exp.Query):
        if is_aggregate_call(parent) or isinstance(parent, exp.WithinGroup):
            return True
        parent = parent.parent
    return False


def is_aggregate_call(node: exp.Expr) -> bool:
    """Whether a node calls an aggregate that the parser does not know as one."""
    return isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES


def has_aggregate(node: exp.Expression) -> bool:
    """Whether an aggregate is computed in an expression itself (not in a subquery, nor OVER a window)."""
    stack = [node]
    while stack:
        part = stack.pop()
        if is_aggregate_call(part) or isinstance(part, exp.Any | exp.WithinGroup):
            return True
        if isinstance(part, exp.Window):
            stack.extend(child for child in part.iter_expressions() if child is not part.this)
        elif not isinstance(part, exp.Query):
            stack.extend(part.iter_expressions())
    return False


def now_parameter() -> exp.Placeholder:
    """The parameter that NOW is bound to."""
    return exp.Placeholder(this=NOW)


def wrapped(node: exp.Expression) -> exp.Expression:
    """In parentheses, unless nothing around it could bind tighter."""
    atoms = exp.Column | exp.Literal | exp.Anonymous | exp.Paren | exp.Dot | exp.Placeholder | exp.Cast | exp.Subquery
    return node if isinstance(node, atoms) else exp.Paren(this=node)


def _fields(node: exp.Expression, parts: list[exp.Identifier]) -> exp.Expression:
    for part in parts:
        node = exp.Dot(this=node, expression=exp.to_identifier(part.name, quoted=True))
    return node


def scans_of(node: exp.Expression) -> set[int | None]:
    """Which scans an expression's columns come from; None stands for columns of anything else."""
    return {column.meta.get(SCAN) for column in node.find_all(exp.Column)}
