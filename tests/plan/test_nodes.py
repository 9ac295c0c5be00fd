"""What is kept is kept of a node's identity: nodes that differ in anything have two."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

import pytest

from ladle.plan.drawing import detail
from ladle.plan.join import Relop
from ladle.plan.nodes import Binary, Filter, Fragment, Join, JoinKind, Node, OutputColumn, Unary, scalars
from ladle.plan.scalars import Comparison, Scalar, SortKey

PLAIN = {"columns", "child", "left", "right"}
"""Fields that are in every identity, or in none: names and types of columns are for people."""
OWN = {"StreamScan", "TableScan", "Join", "Fragment"}
"""Nodes that say themselves what their identity is made of; see the tests below, and those of trees."""


def kinds(of: type[Node] = Node) -> list[type[Node]]:
    """The nodes there are, of the product's own."""
    found = [each for each in of.__subclasses__() if each.__module__ == Node.__module__]
    return [*found, *(each for one in found for each in kinds(one))]


def test_fields_of_nodes_are_their_identity() -> None:
    assert {kind.__name__ for kind in kinds() if "content" in vars(kind)} == OWN
    assert len(kinds()) > 15


ONE, TWO = Scalar("{0}", ((0, 0),)), Scalar("{0} + 1", ((0, 1),))


@dataclass(frozen=True, eq=False)
class Sampled(Unary):
    """A node that says nothing of itself but its fields."""

    percent: int
    kind: JoinKind
    keys: tuple[SortKey, ...]
    rows: tuple[tuple[Scalar, ...], ...]
    comparisons: tuple[Comparison, ...]


def test_a_node_needs_to_say_nothing_but_its_fields() -> None:
    leaf = Node((OutputColumn("a"), OutputColumn("b")))
    given = (1, JoinKind.LEFT, (SortKey(TWO),), ((ONE, TWO), (TWO, ONE)), (Comparison(ONE, Relop.LT, TWO),))
    one = Sampled((), leaf, *given)
    assert one == Sampled((OutputColumn("n"),), leaf, *given)
    assert scalars(one) == (TWO, ONE, TWO, TWO, ONE, ONE, TWO)
    assert detail(one) == "1 | left | b + 1 ASC NULLS FIRST | (a, b + 1), (b + 1, a) | a < b + 1"
    others: tuple[object, ...] = (
        2,
        JoinKind.RIGHT,
        (SortKey(TWO, descending=True),),
        ((ONE, TWO, TWO, ONE),),
        (Comparison(TWO, Relop.LT, ONE),),
    )
    for at, other in enumerate(others):
        assert one != Sampled((), leaf, *given[:at], other, *given[at + 1 :])  # type: ignore[arg-type]


def test_what_is_no_value_of_json_is_refused() -> None:
    with pytest.raises(TypeError, match="say what object is as JSON"):
        _ = Sampled((), Node(()), object(), JoinKind.LEFT, (), (), ()).digest  # type: ignore[arg-type]


def test_joins_and_fragments_differ_in_every_field() -> None:
    leaf = Node((OutputColumn("a"),))
    join = Join((), leaf, leaf, JoinKind.LEFT, (Comparison(ONE, Relop.LT, TWO),), ONE)
    changes: tuple[dict[str, object], ...] = (
        {"kind": JoinKind.RIGHT},
        {"comparisons": ()},
        {"condition": None},
        {"left": Filter((), leaf, (ONE,))},
    )
    for change in changes:
        assert join != replace(join, **change)  # type: ignore[arg-type]
    part = Fragment((), (leaf,), "SELECT 1", None, "why")
    assert part != replace(part, sql="SELECT 2")
    assert part != replace(part, inputs=(Node((OutputColumn("b"),)),))


def test_expressions_of_nodes_are_told() -> None:
    """Labels, costs and proofs ask `scalars`."""
    for kind in kinds():
        has = [field.name for field in fields(kind) if "Scalar" in str(field.type) or "SortKey" in str(field.type)]
        if not has:
            continue
        one = Scalar("{0}", ((0, 0),))
        given: dict[str, object] = {"columns": ()}
        for field in fields(kind):
            if field.name in ("child", "left", "right"):
                given[field.name] = Node(())
            elif field.name in has:
                value: object = SortKey(one, False, False) if "SortKey" in str(field.type) else one
                for _ in range(str(field.type).count("tuple[")):
                    value = (value,)
                given[field.name] = value
            elif field.name != "columns":
                given[field.name] = ()
        assert one in scalars(kind(**given)), kind.__name__  # type: ignore[arg-type]


def test_binary_nodes_have_both_children() -> None:
    left, right = Node(()), Node(())
    assert Binary((), left, right).children == (left, right)
