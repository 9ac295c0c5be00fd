"""EXPLAIN ANALYZE: what an invocation cost, and what the eddy has learned about the operators on its streams."""

from __future__ import annotations

from collections.abc import Mapping

from ladle.catalog import Catalog
from ladle.eddy import Account
from ladle.engine.ingest import Ingest
from ladle.engine.invoke import Invoker
from ladle.plan import Plan
from ladle.status import OperatorStatus


def analysis(plan: Plan, catalog: Catalog, invoker: Invoker, ingest: Ingest) -> str:
    """Answers the plan, and says what that took."""
    before = invoker.joins.found
    answer = invoker.answer(plan, catalog)
    found = invoker.joins.found - before
    took = f"{answer.seconds * 1e3:.3g} ms, as of epoch {answer.epoch}"
    lines = ["  analyzed", f"    answer    {len(answer):,} rows in {took}"]
    if found:
        lines.append(f"    joins     {found:,} pairs of data files were not covered, and joined for this answer")
    for name in plan.streams:
        stream = catalog.stream(name)
        if stream is not None:
            lines += eddy_table(name, ingest.tickets(stream))
    return "\n".join(lines)


def operators(accounts: Mapping[str, Account]) -> tuple[OperatorStatus, ...]:
    """In the order in which the eddy visits them."""
    total = sum(account.tickets for account in accounts.values())
    return tuple(
        OperatorStatus(
            name,
            account.tickets / total,
            account.reached,
            1.0 - account.dropped / account.visited if account.visited else 1.0,
            account.seconds_per_tuple,
        )
        for name, account in sorted(accounts.items(), key=lambda pair: -pair[1].tickets)
    )


def eddy_table(stream: str, accounts: Mapping[str, Account]) -> list[str]:
    """The operators with what the eddy goes by."""
    if not accounts:
        return [f"    eddy      nothing is known yet of operators on {stream}"]
    rows = [("operator", "tickets", "reached", "passes", "ns/tuple")]
    for each in operators(accounts):
        figures = (f"{each.tickets:.1%}", f"{each.reached:.0%}", f"{each.passes:.0%}")
        rows.append((each.name, *figures, f"{each.seconds_per_tuple * 1e9:,.0f}"))
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = [f"    eddy      on {stream}, over the last epochs"]
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("      " + "  ".join(cells))
    return lines
