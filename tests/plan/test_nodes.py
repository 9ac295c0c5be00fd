"""What is kept is kept of a node's identity: nodes that differ in anything have two."""

from __future__ import annotations

from dataclasses import dataclass, fields

from ladle.plan.nodes import Binary, Node, Unary, scalars
from ladle.plan.scalars import Scalar, SortKey

PLAIN = {"columns", "child", "left", "right"}
"""Fields that are in every identity, or in none: names and types of columns are for people."""


def kinds(of: type[Node] = Node) -> list[type[Node]]:
    """The nodes there are, of the product's own."""
    found = [each for each in of.__subclasses__() if each.__module__ == Node.__module__]
    return [*found, *(each for one in found for each in kinds(one))]


def lacks_content(kind: type[Node]) -> bool:
    """Whether it, or the class that it has its fields from, forgot to say what its identity is made of."""
    own = {field.name for field in fields(kind)} - PLAIN
    return bool(own) and kind.content is Node.content


def test_nodes_with_fields_have_them_in_their_identity() -> None:
    assert [kind.__name__ for kind in kinds() if lacks_content(kind)] == []
    assert len(kinds()) > 15


def test_one_that_forgets_is_found() -> None:
    @dataclass(frozen=True, eq=False)
    class Sampled(Unary):
        percent: int

    leaf = Node(())
    assert lacks_content(Sampled)
    assert Sampled((), leaf, 1) == Sampled((), leaf, 2)  # which is why


def test_expressions_of_nodes_are_told() -> None:
    """Labels, costs and proofs ask `scalars`: without a case there it has no expressions."""
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
                given[field.name] = (value,) if "tuple" in str(field.type) else value
            elif field.name != "columns":
                given[field.name] = ()
        assert one in scalars(kind(**given)), kind.__name__  # type: ignore[arg-type]


def test_binary_nodes_have_both_children() -> None:
    left, right = Node(()), Node(())
    assert Binary((), left, right).children == (left, right)
