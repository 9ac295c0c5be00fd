"""The split of WHERE (PSoup section 3.2): boolean factors that go to the standing part, and what stays in the residual.

WHERE is brought to conjunctive normal form. A conjunct over the columns of one scan that DuckDB evaluates as Spark
would becomes a factor of that scan's block, under a canonical text: equal predicates of many queries are one factor.

A factor that may raise keeps SQL's guard: in `b <> 0 AND a / b > 1` the second is pushed as
`CASE WHEN b <> 0 THEN a / b > 1 ELSE FALSE END`, and only when all before it are pushed too. Where streams are joined
that is left to the residual, but for users' functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import TYPE_CHECKING, cast

from sqlglot import exp

from ladle.plan import Factor
from ladle.sql.conform import NotConformant, translate_factor
from ladle.sql.dialect import DIALECT
from ladle.sql.factor_ranges import ranges_of
from ladle.sql.function_calls import functions_of
from ladle.sql.resolve import scans_of
from ladle.sql.scopes import Scope
from ladle.sql.trees import copied, make_shallow

if TYPE_CHECKING:
    from ladle.sql.scopes import ScanDraft

CLAUSES_MAX = 16
"""A conjunct whose normal form has more clauses than this is kept whole."""

GUARDS_MAX = 32
"""A factor that may raise repeats the conjuncts before it; after more than this many it stays in the residual."""

_FLIPPED: dict[type[exp.Expr], type[exp.Expression]] = {
    exp.EQ: exp.EQ,
    exp.NEQ: exp.NEQ,
    exp.NullSafeEQ: exp.NullSafeEQ,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
}
_NEGATED: dict[type[exp.Expr], type[exp.Expression]] = {
    exp.EQ: exp.NEQ,
    exp.NEQ: exp.EQ,
    exp.LT: exp.GTE,
    exp.LTE: exp.GT,
    exp.GT: exp.LTE,
    exp.GTE: exp.LT,
}


@dataclass(frozen=True)
class _Candidate:
    tree: exp.Expression
    factor: Factor
    may_raise: bool


def push_where(select: exp.Select, scope: Scope, scans: Sequence[ScanDraft]) -> None:
    """Moves what it can of a bound WHERE into the blocks of the FROM clause's scans."""
    pushable = {
        relation.scan: scans[relation.scan]
        for relation in scope.relations
        if relation.scan is not None and relation.pushable
    }
    alone = len(scope.relations) == 1 and not select.args.get("joins")
    remaining: list[exp.Expression] = []
    pushed: dict[int, list[exp.Expression]] = {number: [] for number in pushable}
    guarded_here = alone
    for conjunct in conjuncts(select.args["where"].this):
        if isinstance(conjunct, exp.Boolean) and conjunct.this:
            continue
        owner = _owner(conjunct, pushable)
        candidates = None if owner is None else _candidates(conjunct, owner)
        if owner is None or candidates is None:
            remaining.append(conjunct)
            guarded_here = False
            continue
        before = pushed[next(iter(scans_of(conjunct))) or 0]
        # A user's function goes before the join, as Spark has it: on pairs it would be called again and again.
        before_join = not alone and all(candidate.factor.functions for candidate in candidates)
        if not any(candidate.may_raise for candidate in candidates):
            _add(owner, candidates)
            before.extend(candidate.tree for candidate in candidates)
        elif (guarded_here or before_join) and (guarded := _guarded(candidates[0], before, owner)) is not None:
            _add(owner, [guarded])
            before.append(candidates[0].tree)
        else:
            remaining.append(conjunct)
            guarded_here = False
    select.set("where", exp.Where(this=make_shallow(exp.and_(*remaining, copy=False))) if remaining else None)


def _add(owner: ScanDraft, candidates: Sequence[_Candidate]) -> None:
    known = {factor.sql for factor in owner.factors}
    for candidate in candidates:
        if candidate.factor.sql not in known:
            known.add(candidate.factor.sql)
            owner.factors.append(candidate.factor)


def _owner(conjunct: exp.Expression, pushable: dict[int, ScanDraft]) -> ScanDraft | None:
    """The one scan whose columns a conjunct reads, if it reads nothing else."""
    scans = scans_of(conjunct)
    if len(scans) != 1 or conjunct.find(exp.Query, exp.Window, exp.Placeholder) is not None:
        return None
    return pushable.get(next(iter(scans)) or 0) if None not in scans else None


def _candidates(conjunct: exp.Expression, owner: ScanDraft) -> list[_Candidate] | None:
    """The factors that a conjunct becomes: its clauses when none may raise, else the conjunct whole; or None."""
    clauses = _clauses(conjunct)
    if len(clauses) > 1:
        found = [_candidate(clause, owner) for clause in clauses]
        if all(candidate is not None and not candidate.may_raise for candidate in found):
            return [candidate for candidate in found if candidate is not None]
        # apart, a clause could raise where the whole would not have looked
    whole = _candidate(clauses[0] if len(clauses) == 1 else conjunct, owner)
    return None if whole is None else [whole]


def _candidate(tree: exp.Expression, owner: ScanDraft) -> _Candidate | None:
    schema = owner.schema.arrow
    canonical = canonical_factor(tree)
    text = canonical.sql(DIALECT)
    types = {field.name: field.type for field in schema}
    try:
        translated = translate_factor(copied(canonical), types)
    except NotConformant:
        return None
    used = {column.name for column in canonical.find_all(exp.Column)}
    columns = tuple(name for name in schema.names if name in used)
    functions = functions_of(canonical)
    ranges = ranges_of(canonical, types) if len(columns) == 1 and not functions else None
    # what has ranges raises for no value: its constants are computed already
    may_raise = translated.may_raise and ranges is None
    return _Candidate(canonical, Factor(text, translated.sql, columns, ranges, functions), may_raise)


def _guarded(candidate: _Candidate, before: Sequence[exp.Expression], owner: ScanDraft) -> _Candidate | None:
    if not before:
        return candidate
    if len(before) > GUARDS_MAX:
        return None
    condition = exp.and_(*before)
    case = exp.Case(ifs=[exp.If(this=condition, true=copied(candidate.tree))], default=exp.false())
    return _candidate(case, owner)


def conjuncts(node: exp.Expression) -> list[exp.Expression]:
    """The operands of AND, left to right, through parentheses."""
    found: list[exp.Expression] = []
    stack = [node]
    while stack:
        part = stack.pop()
        match part:
            case exp.And():
                stack.extend((part.expression, part.this))
            case exp.Paren():
                stack.append(part.this)
            case _:
                found.append(part)
    return found


def _clauses(node: exp.Expression) -> list[exp.Expression]:
    """Conjunctive normal form; the distributive and De Morgan's laws hold with NULLs too."""
    match node:
        case exp.Paren():
            return _clauses(node.this)
        case exp.And():
            return [clause for part in conjuncts(node) for clause in _clauses(part)]
        case exp.Or():
            operands = [_clauses(part) for part in _disjuncts(node)]
            if prod(len(clauses) for clauses in operands) > CLAUSES_MAX:
                return [node]
            return [_or(choice) for choice in product(*operands)]
        case exp.Not():
            return _negation(node)
    return [node]


def _negation(node: exp.Not) -> list[exp.Expression]:
    inner = node.this
    while isinstance(inner, exp.Paren):
        inner = inner.this
    match inner:
        case exp.Not():
            return _clauses(inner.this)
        case exp.Or():
            return [clause for part in _disjuncts(inner) for clause in _clauses(exp.not_(part))]
        case exp.And():
            return _clauses(_or([exp.not_(part) for part in conjuncts(inner)]))
        case _ if type(inner) in _NEGATED:
            return [_NEGATED[type(inner)](this=inner.this.copy(), expression=inner.expression.copy())]
    return [node]


def _or(parts: Sequence[exp.Expr]) -> exp.Expression:
    return cast(exp.Expression, make_shallow(exp.or_(*parts)) if len(parts) > 1 else parts[0])


def _disjuncts(node: exp.Expression) -> list[exp.Expression]:
    found: list[exp.Expression] = []
    stack = [node]
    while stack:
        part = stack.pop()
        match part:
            case exp.Or():
                stack.extend((part.expression, part.this))
            case exp.Paren(this=exp.Or() | exp.Paren()):
                stack.append(part.this)
            case _:
                found.append(part)
    return found


def canonical_factor(node: exp.Expression) -> exp.Expression:
    """One text for predicates that differ in case, spacing, qualification or the order of operands."""
    holder = exp.Tuple(expressions=[copied(node)])
    for part in list(holder.walk(bfs=True))[::-1]:
        match part:
            case exp.Column():
                column = exp.column(exp.to_identifier(part.name, quoted=True))
                column.meta.update(part.meta)  # an error found later says where it was written
                part.replace(column)
            case exp.Paren() if isinstance(part.this, _ATOMS) or part.parent is holder:
                part.replace(part.this)
            case _ if type(part) in _FLIPPED and _comes_after(part.this, part.expression):
                part.replace(_FLIPPED[type(part)](this=part.expression, expression=part.this))
    result: exp.Expression = holder.expressions[0].pop()
    return result


_ATOMS = (exp.Column, exp.Literal, exp.Anonymous, exp.Paren, exp.Cast, exp.Null, exp.Boolean, exp.Is)


def _comes_after(left: exp.Expression, right: exp.Expression) -> bool:
    """Columns stand before constants, and otherwise the text decides."""
    left_constant, right_constant = left.find(exp.Column) is None, right.find(exp.Column) is None
    if left_constant != right_constant:
        return left_constant
    return not left_constant and left.sql(DIALECT) > right.sql(DIALECT)
