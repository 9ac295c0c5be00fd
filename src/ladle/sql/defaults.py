"""DEFAULT: what a column has in rows that don't give it.

A default is an expression without columns and subqueries. The log keeps its text; a statement that inserts rows binds
that text again, as it binds what people wrote into its place.
"""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from ladle.errors import SqlError, Unsupported
from ladle.plan import Plan
from ladle.schema import Column, type_name
from ladle.sql.binder import Binder
from ladle.sql.dialect import DIALECT
from ladle.sql.drafts import QueryDraft, SelectDraft
from ladle.sql.names import Names
from ladle.sql.planning import bound, plan_of
from ladle.sql.position import SourceText
from ladle.sql.resolve import has_aggregate
from ladle.sql.script import draft, only_chunk

_WORD = "DEFAULT"


def check_default(query: QueryDraft, column: Column, names: Names, source: SourceText) -> None:
    """Refuse what is no default, at its place."""
    (value,) = query.tree.expressions
    found = value.find(exp.Query)
    if found is not None:
        raise Unsupported("A default can't be a subquery.", hint="write a constant", position=source.of(found))
    if has_aggregate(value) or value.find(exp.Window) is not None:
        raise SqlError("A default can't be an aggregate: it is of one row.", position=source.of(value))
    checked = QueryDraft(_select(value.copy(), column), query.sql, query.tokens)
    _check(plan_of(checked, names, source), column)


def default_plan(column: Column, names: Names) -> Plan:
    """A plan whose answer is the default of a column, cast to its type."""
    assert column.default is not None
    text = f"SELECT {column.default.sql}"
    parsed = draft(only_chunk(text))
    if not isinstance(parsed, SelectDraft) or len(parsed.query.tree.expressions) != 1:
        raise SqlError(f"The default of column '{column.name}' is not one expression.")
    check_default(parsed.query, column, names, SourceText(text))
    value = parsed.query.tree.expressions[0]
    plan = plan_of(QueryDraft(_select(value, column), text, parsed.query.tokens), names, SourceText(text))
    _check(plan, column)
    return plan


def default_value(column: Column, names: Names) -> exp.Expression:
    """The default of a column as a bound expression; NULL if it has none."""
    if column.default is None:
        return exp.null()
    binder = Binder(names, SourceText(f"SELECT {column.default.sql}"))
    tree, _ = bound(binder, _select(written_default(column).pop(), column))
    value: exp.Expression = tree.expressions[0].this
    return value.pop()


def written_default(column: Column) -> exp.Expression:
    """The default of a column as it was written, for a place where an expression of a statement stood."""
    if column.default is None:
        return exp.null()
    parsed = draft(only_chunk(f"SELECT {column.default.sql}"))
    assert isinstance(parsed, SelectDraft)
    value: exp.Expression = parsed.query.tree.expressions[0]
    return value


def split_default(text: str) -> tuple[str, str | None]:
    """`INT DEFAULT 3` as type and expression."""
    tokens = DIALECT.tokenize(text)
    place = next((token for token in tokens if token.token_type == TokenType.DEFAULT), None)
    return (text, None) if place is None else (text[: place.start], text[place.end + 1 :].strip())


def is_default(node: exp.Expression) -> bool:
    """Whether an expression is the word DEFAULT."""
    if isinstance(node, exp.Var):  # what the parser makes of it in VALUES
        return node.name.upper() == _WORD
    name = node.this if isinstance(node, exp.Column) and len(node.parts) == 1 else None
    return isinstance(name, exp.Identifier) and not name.quoted and name.name.upper() == _WORD


def write_defaults(query: exp.Expression, targets: list[Column]) -> None:
    """Puts the defaults of columns where a statement has the word, as a value of its own."""
    rows = query.expressions if isinstance(query, exp.Values) else [query]
    for row in rows:
        values = row.expressions if isinstance(row, exp.Tuple | exp.Select) else [row]
        for value, column in zip(list(values), targets, strict=False):
            if is_default(value):
                value.replace(exp.Paren(this=written_default(column).pop()))


def _select(value: exp.Expression, column: Column) -> exp.Select:
    to = exp.DataType.build(type_name(column.type), dialect="spark")
    return exp.Select(expressions=[exp.alias_(exp.Cast(this=exp.Paren(this=value), to=to), "value", quoted=True)])


def _check(plan: Plan, column: Column) -> None:
    if plan.functions:
        raise Unsupported(
            f"The default of column '{column.name}' can't call function '{plan.functions[0].name}'.",
            hint="write a constant, or give the value with each row",
        )
