"""Trees of the parser, as large as users make them: copied in one pass, chains of operands made shallow, SELECTs
put around others.
"""

from __future__ import annotations

from typing import TypeVar

from sqlglot import exp

Node = TypeVar("Node", bound=exp.Expr)

_CHAIN_MIN = 16
"""Shorter chains stay as they were parsed."""


def copied(tree: Node) -> Node:
    """A copy of a tree. sqlglot also copies deeply what is noted beside nodes, which takes most of its time."""
    root = tree.__class__()
    stack: list[tuple[exp.Expr, exp.Expr]] = [(tree, root)]
    while stack:
        node, copy = stack.pop()
        copy.comments = node.comments
        copy._type = node._type
        copy._meta = None if node._meta is None else dict(node._meta)
        for key, value in node.args.items():
            if isinstance(value, exp.Expr):
                child = value.__class__()
                stack.append((value, child))
                _adopt(copy, key, child, None)
                copy.args[key] = child
            elif type(value) is list:
                children = []
                for place, each in enumerate(value):
                    if isinstance(each, exp.Expr):
                        child = each.__class__()
                        stack.append((each, child))
                        _adopt(copy, key, child, place)
                        children.append(child)
                    else:
                        children.append(each)
                copy.args[key] = children
            else:
                copy.args[key] = value
    return root


def aliased(tree: exp.Expr, name: str) -> exp.Alias:
    """An expression of a SELECT list, with the name of its column."""
    return exp.Alias(this=tree, alias=exp.to_identifier(name, quoted=True))


def wrapped(select: exp.Select) -> exp.Select:
    """An empty SELECT to go around another, which takes over what the whole of it says."""
    outer = exp.Select()
    for key in ("distinct", "order", "limit", "offset", "with_"):
        if (value := select.args.get(key)) is not None:
            select.set(key, None)
            outer.set(key, value)
    return outer


def _adopt(parent: exp.Expr, key: str, child: exp.Expr, place: int | None) -> None:
    child.parent, child.arg_key, child.index = parent, key, place


def make_shallow(tree: Node) -> Node:
    """Make long chains of AND, OR, UNION ALL and UNION as deep as the logarithm of their lengths, in place.

    The parser nests `a OR b OR c ...` to the left, so every walk along it would be as deep as the chain is long, and
    every text of its parts as long. The operands stay in order, and the text of the whole is the same.
    """
    found = [node for node in tree.find_all(exp.And, exp.Or, exp.Union) if not _goes_on(node.parent, node)]
    for top in found:
        operators, operands = _chain(top)
        if len(operands) >= _CHAIN_MIN:
            _rebuild(operators, operands)
    return tree


def _goes_on(parent: exp.Expr | None, node: exp.Expr) -> bool:
    """Whether a node is a left operand of a chain that its parent is part of."""
    return parent is not None and parent.this is node and _same(parent, node)


def _same(one: exp.Expr, other: exp.Expr) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, exp.Union):
        # The clauses of a whole union are those of its topmost operation.
        return _plain(other) and one.args.get("distinct") == other.args.get("distinct")
    return True


def _plain(union: exp.Expr) -> bool:
    return all(not value or key in ("this", "expression", "distinct") for key, value in union.args.items())


def _chain(top: exp.Expr) -> tuple[list[exp.Expr], list[exp.Expr]]:
    """The operators of a chain, topmost first, and its operands in order."""
    operators, operands = [top], [top.expression]
    while _same(operators[-1], operators[-1].this):
        operators.append(operators[-1].this)
        operands.append(operators[-1].expression)
    operands.append(operators[-1].this)
    return operators, operands[::-1]


def _rebuild(operators: list[exp.Expr], operands: list[exp.Expr]) -> None:
    """Connect the operands by the same operators, half of them on each side of every one."""
    free = iter(operators)
    waiting = [(next(free), 0, len(operands))]
    while waiting:
        operator, first, last = waiting.pop()
        middle = (first + last + 1) // 2
        for key, start, stop in (("this", first, middle), ("expression", middle, last)):
            if stop - start == 1:
                operator.set(key, operands[start])
            else:
                below = next(free)
                operator.set(key, below)
                waiting.append((below, start, stop))
