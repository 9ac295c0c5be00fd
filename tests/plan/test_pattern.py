"""Update patterns: the paper's five rules (UPA section 5.2), one test each with its examples, and what it leaves out.

W1 and W2 are the paper's sliding windows over two streams.
"""

from __future__ import annotations

import pytest

from ladle.plan.join import Relop
from ladle.plan.nodes import (
    Distinct,
    Except,
    Filter,
    Fragment,
    GroupBy,
    Intersect,
    Join,
    JoinKind,
    Limit,
    Node,
    OutputColumn,
    Project,
    RelationJoin,
    Sort,
    StreamScan,
    TableScan,
    TopK,
    Union,
)
from ladle.plan.pattern import Label, Pattern, StreamFacts, labels
from ladle.plan.scalars import Comparison, Scalar, SortKey
from ladle.plan.window import Bound, RowsWindow, TimeWindow, Window

COLUMNS = (OutputColumn("x"),)
X = Scalar("{0}", ((0, 0),))
Y = Scalar("{0}", ((1, 0),))
EQUAL = (Comparison(X, Relop.EQ, Y),)
MINUTE = TimeWindow(Bound(-60_000_000, relative=True), Bound(0, relative=True))
HOUR = TimeWindow(Bound(-3_600_000_000, relative=True), Bound(0, relative=True))
LAGGING = TimeWindow(Bound(-60_000_000, relative=True), Bound(-10_000_000, relative=True))


def scan(stream: str, window: Window = MINUTE) -> StreamScan:
    return StreamScan(COLUMNS, stream, window, (), "_s0")


W1, W2 = scan("s1"), scan("s2")
ENDLESS = scan("s1", TimeWindow())
TABLE = TableScan(COLUMNS, "t")


def selected(child: Node) -> Node:
    return Filter(COLUMNS, child, (Scalar("{0} > 1", ((0, 0),)),))


def projected(child: Node) -> Node:
    return Project(COLUMNS, child, (X,))


def joined(left: Node, right: Node, kind: JoinKind = JoinKind.INNER) -> Node:
    return Join(COLUMNS, left, right, kind, EQUAL, None)


def with_table(left: Node) -> Node:
    return RelationJoin(COLUMNS, left, TABLE, JoinKind.INNER, EQUAL, None)


def grouped(child: Node) -> Node:
    return GroupBy(COLUMNS, child, (X,), ())


def negated(left: Node, right: Node) -> Node:
    return Except(COLUMNS, left, right, all=True)


def union(left: Node, right: Node, *, every: bool = True) -> Node:
    return Union(COLUMNS, left, right, all=every)


def label(node: Node, facts: StreamFacts | None = None) -> Label:
    return labels(node, facts or StreamFacts())[node.digest]


def pattern(node: Node, facts: StreamFacts | None = None) -> Pattern:
    return label(node, facts).pattern


def test_patterns_are_ordered() -> None:
    assert Pattern.MONOTONIC < Pattern.WEAKEST < Pattern.WEAK < Pattern.STRICT


def test_rule_1_unary_operators_without_state_give_what_they_get() -> None:
    for below in (W1, joined(W1, W2), negated(W1, W2), ENDLESS):
        for made in (selected(below), projected(below), Sort(COLUMNS, below, (SortKey(X),))):
            assert label(made) == label(below)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        (W1, W2, Pattern.WEAKEST),
        (selected(W1), projected(W2), Pattern.WEAKEST),
        (W1, joined(W1, W2), Pattern.WEAK),
        (joined(W1, W2), joined(W1, W2), Pattern.WEAK),
        (W1, negated(W1, W2), Pattern.STRICT),
        (negated(W1, W2), joined(W1, W2), Pattern.STRICT),
    ],
)
def test_rule_2_merge_union_has_the_harder_of_its_inputs(left: Node, right: Node, expected: Pattern) -> None:
    assert pattern(union(left, right)) is expected
    assert pattern(union(right, left)) is expected


@pytest.mark.parametrize("kind", [JoinKind.INNER, JoinKind.SEMI])
def test_rule_3_join_intersection_and_duplicate_elimination_are_at_least_weak(kind: JoinKind) -> None:
    def weak(left: Node, right: Node) -> list[Node]:
        made = [joined(left, right, kind), Intersect(COLUMNS, left, right, all=True), union(left, right, every=False)]
        return [*made, Distinct(COLUMNS, left)]

    assert {pattern(node) for node in weak(W1, W2)} == {Pattern.WEAK}
    assert {pattern(node) for node in weak(joined(W1, W2), W2)} == {Pattern.WEAK}
    assert {label(node) for node in weak(negated(W1, W2), W2)} == {Label(Pattern.STRICT, premature=True)}


def test_rule_4_group_by_is_weak_whatever_comes_in() -> None:
    for below in (W1, joined(W1, W2), negated(W1, W2), ENDLESS, TABLE):
        assert pattern(grouped(below)) is Pattern.WEAK


@pytest.mark.parametrize("below", [W1, joined(W1, W2), negated(W1, W2), ENDLESS])
def test_rule_5_negation_and_joins_with_relations_are_strict(below: Node) -> None:
    for made in (negated(below, W2), negated(W2, below), joined(below, W2, JoinKind.ANTI), with_table(below)):
        assert label(made) == Label(Pattern.STRICT, premature=True)
    assert pattern(Except(COLUMNS, below, W2, all=False)) is Pattern.STRICT


def test_figure_6_pulling_negation_up_makes_the_plan_below_it_easier() -> None:
    """The paper's two plans of one query: a join above a negation, and the negation above the join."""
    low = joined(negated(W1, W2), selected(scan("s3")))
    assert [pattern(node) for node in (low, *low.children)] == [Pattern.STRICT, Pattern.STRICT, Pattern.WEAKEST]
    high = negated(joined(W1, selected(scan("s3"))), W2)
    assert [pattern(node) for node in (high, *high.children)] == [Pattern.STRICT, Pattern.WEAK, Pattern.WEAKEST]


def test_what_a_group_by_replaces_is_premature_above_it() -> None:
    assert not label(joined(W1, W2)).premature
    groups = grouped(W1)
    assert label(groups) == Label(Pattern.WEAK, premature=True)
    for above in (selected(groups), joined(groups, W2), Distinct(COLUMNS, groups), union(groups, W2)):
        assert label(above) == Label(Pattern.WEAK, premature=True)
    assert label(TopK(COLUMNS, groups, (SortKey(X),), 3, 0)).pattern is Pattern.STRICT


def test_leaves() -> None:
    landmark = TimeWindow(Bound(0), Bound(0, relative=True))
    for window in (TimeWindow(), landmark, TimeWindow(Bound(0), Bound(5))):
        assert label(scan("s1", window)) == Label(Pattern.MONOTONIC)
    assert pattern(scan("s1", RowsWindow(5))) is Pattern.WEAKEST
    assert pattern(W1) is Pattern.WEAKEST
    assert pattern(scan("s1", LAGGING)) is Pattern.WEAKEST
    assert label(TABLE) == Label(Pattern.STRICT, premature=True)


def test_a_stream_that_took_in_late_tuples_is_weak() -> None:
    late = StreamFacts(late=frozenset(["s1"]))
    assert label(scan("S1"), late) == Label(Pattern.WEAK)
    assert pattern(W2, late) is Pattern.WEAKEST
    assert pattern(union(W1, W2), late) is Pattern.WEAK
    # Arrivals end the life of these, and nothing else.
    assert pattern(scan("s1", RowsWindow(5)), late) is Pattern.WEAKEST
    assert pattern(ENDLESS, late) is Pattern.MONOTONIC


def test_retention_is_a_window() -> None:
    forgetful = StreamFacts(retain_us={"s1": 5})
    assert pattern(ENDLESS, forgetful) is Pattern.WEAKEST
    assert pattern(scan("s2", TimeWindow()), forgetful) is Pattern.MONOTONIC
    assert pattern(union(ENDLESS, scan("s2", TimeWindow())), forgetful) is Pattern.WEAK
    both = StreamFacts(retain_us={"s1": 5, "s2": 5})
    assert pattern(union(ENDLESS, scan("s2", TimeWindow())), both) is Pattern.WEAKEST
    late = StreamFacts(frozenset(["s1"]), {"s1": 5})
    assert pattern(ENDLESS, late) is Pattern.WEAK
    assert pattern(scan("s1", RowsWindow(5)), late) is Pattern.WEAK


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (W1, scan("s2", HOUR)),
        (W1, scan("s2", LAGGING)),
        (W1, scan("s2", TimeWindow())),
        (scan("s1", RowsWindow(5)), scan("s1", RowsWindow(6))),
        (scan("s1", RowsWindow(5)), scan("s2", RowsWindow(5))),
        (scan("s1", RowsWindow(5)), W1),
    ],
)
def test_a_union_of_unequal_windows_is_weak(left: Node, right: Node) -> None:
    assert label(union(left, right)) == Label(Pattern.WEAK)
    assert label(union(selected(right), left)) == Label(Pattern.WEAK)


def test_operators_over_what_never_leaves() -> None:
    other = scan("s2", TimeWindow())
    kept = [joined(ENDLESS, other), joined(ENDLESS, other, JoinKind.SEMI), Intersect(COLUMNS, ENDLESS, other, all=True)]
    for node in (*kept, union(ENDLESS, other), union(ENDLESS, other, every=False), Distinct(COLUMNS, ENDLESS)):
        assert label(node) == Label(Pattern.MONOTONIC)
    assert pattern(joined(ENDLESS, W2)) is Pattern.WEAK


def test_operators_that_the_paper_does_not_have() -> None:
    strict = Label(Pattern.STRICT, premature=True)
    for kind in (JoinKind.LEFT, JoinKind.RIGHT, JoinKind.FULL):
        assert label(joined(ENDLESS, W2, kind)) == strict
    assert label(Limit(COLUMNS, ENDLESS, 3, 0)) == strict
    assert label(Fragment(COLUMNS, (ENDLESS,), "SELECT ...", None, "why")) == strict
    constants = Fragment(COLUMNS, (), "SELECT 1", None, "why")
    assert label(constants) == Label(Pattern.MONOTONIC)
    assert label(Fragment(COLUMNS, (), "SELECT :now", None, "why", uses_now=True)) == strict


def test_what_is_computed_of_now_changes_at_every_moment() -> None:
    recent = Scalar("{0} > :now", ((0, 0),), uses_now=True)
    assert label(Filter(COLUMNS, ENDLESS, (recent,))) == Label(Pattern.STRICT, premature=True)
    assert label(Project(COLUMNS, W1, (recent,))) == Label(Pattern.STRICT, premature=True)
    assert label(Join(COLUMNS, W1, W2, JoinKind.INNER, (), recent)) == Label(Pattern.STRICT, premature=True)
    assert label(GroupBy(COLUMNS, W1, (recent,), ())) == Label(Pattern.WEAK, premature=True)
