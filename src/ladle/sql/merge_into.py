"""MERGE: one statement that updates, deletes and inserts rows of a table, as a SELECT over a full join.

The target, with a number for each row, is joined with the source. Each pair says which clause takes it, and what the
columns of the row are afterwards. So expressions mean there what they mean in every query.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from ladle.errors import SqlError, Unsupported
from ladle.plan.query import ROW
from ladle.schema import Column, TableSchema
from ladle.sql.binder import Binder
from ladle.sql.changes import aliased, cast_to, quoted_name, target_column, target_table
from ladle.sql.defaults import is_default, written_default
from ladle.sql.drafts import MergeClauseDraft, MergeDraft, QueryDraft
from ladle.sql.names import Names
from ladle.sql.planning import bound, finish
from ladle.sql.position import SourceText
from ladle.sql.resolve import has_aggregate
from ladle.sql.scopes import NUMBERED
from ladle.sql.statement_types import MergeAction, MergeKind, MergeRows

_FOUND, _ACTION = "_of_source", "_action"


def lower_merge(merge: MergeDraft, names: Names, source: SourceText) -> MergeRows:
    """The plan's answer has the table's columns, the number of the clause that took a row (0: none), and the row's."""
    name, schema = target_table(merge.table, "MERGE", names, source)
    target, other = merge.alias or merge.table, merge.source_alias
    if target.name.lower() == other.name.lower():
        raise SqlError(f"Target and source are both called '{other.name}'.", position=source.of(other))
    _check(merge, source)
    clauses = [_Clause(clause, schema, target, other, source) for clause in merge.clauses]
    action = _action(clauses, target, other)
    outer = exp.Select()
    for column in schema.columns:
        kept = exp.column(quoted_name(column.name), table=target.copy())
        taken = [
            exp.If(this=_equals(action, number), true=cast_to(exp.Paren(this=clause.values[column.name]), column.type))
            for number, clause in enumerate(clauses, 1)
            if column.name in clause.values
        ]
        value: exp.Expression = exp.Case(ifs=taken, default=kept) if taken else kept
        outer.append("expressions", aliased(value, column.name))
    outer.append("expressions", aliased(action, _ACTION))
    outer.append("expressions", aliased(_row(target), ROW))
    own = exp.Table(this=merge.table.copy(), alias=exp.TableAlias(this=target.copy()))
    own.meta[NUMBERED] = True
    below = merge.source.tree
    below.append("expressions", aliased(exp.true(), _FOUND))
    joined = exp.Subquery(this=below, alias=exp.TableAlias(this=other.copy()))
    outer.set("from_", exp.From(this=own))
    outer.append("joins", exp.Join(this=joined, side="FULL", kind="OUTER", on=_value(merge.on)))
    binder = Binder(names, source)
    tree, _ = bound(binder, outer)
    matched = [clause for clause in clauses if clause.kind is MergeKind.MATCHED]
    alone = len(matched) == 1 and matched[0].action is MergeAction.DELETE and matched[0].condition is None
    actions = tuple(clause.action for clause in clauses)
    return MergeRows(name, finish(merge.sql, binder, tree), actions, bool(matched) and not alone)


class _Clause:
    """WHEN ... THEN ...: what it does, and the values of the columns that it gives."""

    def __init__(
        self,
        clause: MergeClauseDraft,
        schema: TableSchema,
        target: exp.Identifier,
        other: exp.Identifier,
        source: SourceText,
    ) -> None:
        self.kind, self.action = clause.kind, clause.action
        self._target, self._other, self._source = target, other, source
        self.condition = None if clause.condition is None else self._seen(_value(clause.condition))
        self.values: dict[str, exp.Expression] = {}
        if clause.assignments is None:
            wanted = () if clause.action is MergeAction.DELETE else schema.columns
            self.values = {each.name: exp.column(quoted_name(each.name), table=other.copy()) for each in wanted}
            return
        for identifier, value in clause.assignments:
            column = target_column(identifier, schema, source)
            if column.name in self.values:
                raise SqlError(f"Column '{column.name}' is given twice.", position=source.of(identifier))
            self.values[column.name] = self._given(_value(value), column)
        if clause.action is MergeAction.INSERT:
            for column in schema.columns:
                if column.name not in self.values:
                    self.values[column.name] = _default(column)

    def _given(self, value: exp.Expression, column: Column) -> exp.Expression:
        return _default(column) if is_default(value) else self._seen(value)

    def _seen(self, value: exp.Expression) -> exp.Expression:
        """An expression that sees one side alone where the other has no row."""
        if self.kind is MergeKind.MATCHED:
            return value
        own, hidden = self._target, self._other
        if self.kind is MergeKind.NOT_MATCHED:
            own, hidden = hidden, own
        for node in list(value.find_all(exp.Column)):
            if len(node.parts) == 1:
                node.set("table", own.copy())
            elif node.parts[0].name.lower() == hidden.name.lower():
                raise SqlError(
                    f"'{hidden.name}' has no row in WHEN {self.kind.value}.", position=self._source.of(node.parts[0])
                )
        return value


def _check(merge: MergeDraft, source: SourceText) -> None:
    """Refuse what a part of MERGE can't have, and clauses that no row could reach."""
    conditions = [merge.on, *(each.condition for each in merge.clauses if each.condition is not None)]
    values = [value for each in merge.clauses for _, value in each.assignments or ()]
    for each in (*conditions, *values):
        value = each.tree.expressions[0]
        if (found := value.find(exp.Query)) is not None:
            raise Unsupported(
                "A condition or value of MERGE can't be a subquery.",
                hint="make it a column of the source: USING (SELECT ...) AS s",
                position=source.of(found),
            )
        if has_aggregate(value) or value.find(exp.Window) is not None:
            raise SqlError(
                "An aggregate can't stand in MERGE, which is about single rows.",
                hint="make it a column of the source: USING (SELECT ...) AS s",
                position=source.of(value),
            )
    for kind in MergeKind:
        own = [each for each in merge.clauses if each.kind is kind]
        if any(each.condition is None for each in own[:-1]):
            raise SqlError(
                f"Only the last WHEN {kind.value} may be without a condition: none after it is reached.",
                position=source.of(merge.table),
            )


def _action(clauses: Sequence[_Clause], target: exp.Identifier, other: exp.Identifier) -> exp.Expression:
    """The number of the first clause that takes a row."""
    found = exp.column(quoted_name(_FOUND), table=other.copy())
    no_target = exp.Is(this=_row(target), expression=exp.null())
    no_source = exp.Is(this=found, expression=exp.null())
    sides = {
        MergeKind.NOT_MATCHED: no_target,
        MergeKind.NOT_MATCHED_BY_SOURCE: no_source,
        MergeKind.MATCHED: exp.true(),
    }
    ifs = []
    for kind, side in sides.items():
        own = [(number, clause) for number, clause in enumerate(clauses, 1) if clause.kind is kind]
        inner: exp.Expression = exp.Literal.number(0)
        for number, clause in reversed(own):
            if clause.condition is None:
                inner = exp.Literal.number(number)
            else:
                taken = exp.If(this=exp.Paren(this=clause.condition), true=exp.Literal.number(number))
                inner = exp.Case(ifs=[taken], default=inner)
        ifs.append(exp.If(this=side, true=inner))
    return exp.Case(ifs=ifs, default=exp.Literal.number(0))


def _equals(action: exp.Expression, number: int) -> exp.EQ:
    return exp.EQ(this=exp.Paren(this=action.copy()), expression=exp.Literal.number(number))


def _row(target: exp.Identifier) -> exp.Column:
    return exp.column(quoted_name(ROW), table=target.copy())


def _default(column: Column) -> exp.Expression:
    value = written_default(column)
    return exp.Paren(this=value.pop() if value.parent is not None else value)


def _value(query: QueryDraft) -> exp.Expression:
    value: exp.Expression = query.tree.expressions[0]
    return value.copy()
