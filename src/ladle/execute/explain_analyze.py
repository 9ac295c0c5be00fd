"""EXPLAIN ANALYZE: what an invocation cost, and what the eddy has learned about the operators on its streams."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Container, Mapping

from ladle import sql
from ladle.catalog import Catalog, StreamState
from ladle.eddy import Account
from ladle.execute.invoke import Invoker
from ladle.execute.node_state import milliseconds
from ladle.plan import Plan
from ladle.plan.drawing import draw
from ladle.plan.nodes import Node
from ladle.status import OperatorStatus

Tickets = Callable[[StreamState], Mapping[str, Account]]
"""What the eddy knows of the operators of a stream."""


def analysis(plan: Plan, catalog: Catalog, invoker: Invoker, tickets: Tickets) -> str:
    """Answers the plan, and says what that took."""
    before = invoker.joins.found
    answer = invoker.answer(plan, catalog)
    found = invoker.joins.found - before
    took = f"{milliseconds(answer.seconds)}, as of epoch {answer.epoch}"
    lines = ["  analyzed", f"    answer    {len(answer):,} rows in {took}"]
    if found:
        lines.append(f"    joins     {found:,} pairs of data files were not covered, and joined for this answer")
    lines += _node_lines(plan, catalog, invoker)
    own = {factor.sql for scan in plan.scans for factor in scan.block.factors}
    edges = [edge for join in plan.joined.joins for edge in join.edges] if plan.joined is not None else []
    own |= {edge.pair.operator(left=left) for edge in edges for left in (True, False)}
    for name in plan.streams:
        stream = catalog.stream(name)
        if stream is not None:
            lines += eddy_table(stream, tickets(stream), own)
    return "\n".join(lines)


def _node_lines(plan: Plan, catalog: Catalog, invoker: Invoker) -> list[str]:
    """Each node, run by itself: those of one statement one after the other."""
    tree = sql.tree_of(plan, catalog)
    measured = invoker.measured(plan, tree, catalog)

    def note(node: Node) -> str:
        found = measured.get(node.digest)
        return "" if found is None else f"  [{found}]"

    return ["    nodes     each run by itself", *(f"      {line}" for line in draw(tree, note))] if measured else []


def public_name(operator: str, columns: Container[str]) -> str:
    """What everybody may know of an operator: not what queries ask that are not theirs to see."""
    if operator in columns:
        return operator
    digest = hashlib.blake2b(operator.encode(), digest_size=3).hexdigest()
    streams, bar, rest = operator.partition(" | ")
    partners = rest.rpartition(": ")[2]
    return (
        f"join {streams}, {partners} ({digest})"
        if bar and partners.startswith("partners of")
        else f"predicate {digest}"
    )


def operators(
    accounts: Mapping[str, Account], columns: Container[str], own: Container[str] = ()
) -> tuple[OperatorStatus, ...]:
    """In the order in which the eddy visits them; `own` ones are named by what they are."""
    total = sum(account.tickets for account in accounts.values())
    return tuple(
        OperatorStatus(
            name if name in own else public_name(name, columns),
            account.tickets / total,
            account.reached,
            1.0 - account.dropped / account.visited if account.visited else 1.0,
            account.seconds_per_tuple,
        )
        for name, account in sorted(accounts.items(), key=lambda pair: -pair[1].tickets)
    )


def eddy_table(stream: StreamState, accounts: Mapping[str, Account], own: Container[str]) -> list[str]:
    """The operators with what the eddy goes by."""
    if not accounts:
        return [f"    eddy      nothing is known yet of operators on {stream.name}"]
    rows = [("operator", "tickets", "reached", "passes", "ns/tuple")]
    for each in operators(accounts, stream.schema.arrow.names, own):
        figures = (f"{each.tickets:.1%}", f"{each.reached:.0%}", f"{each.passes:.0%}")
        rows.append((each.name, *figures, f"{each.seconds_per_tuple * 1e9:,.0f}"))
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = [f"    eddy      on {stream.name}, over the last epochs"]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("      " + "  ".join(cells))
    return lines
