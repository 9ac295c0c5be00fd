"""A plan as a graph, for whoever draws it: streams and tables at one end, the answer at the other."""

from __future__ import annotations

from typing import Any

from ladle import sql
from ladle.engine.session import HIDDEN, Session
from ladle.plan import Plan


def plan_picture(session: Session, text: str) -> dict[str, Any]:
    """Of a standing query by its name, or of a SELECT."""
    catalog = session.catalog
    state = catalog.query(text)
    plan = state.plan if state is not None else sql.bind(text, catalog, session.settings)
    picture = _Picture()
    title = state.name if state is not None else "answer"
    if session.hides(plan):
        picture.edge(picture.node("residual", "hidden", HIDDEN), picture.node("answer", title, ""))
        return picture.graph()
    residual = picture.node("residual", _engine(plan), plan.residual.spark_sql)
    joined = set(plan.joined.scans) if plan.joined is not None else set()
    filtered: dict[int, str] = {}
    for number, scan in enumerate(plan.scans):
        stream = picture.node("stream", scan.block.stream, "")
        window = picture.node("window", scan.window.kind.value, str(scan.window))
        picture.edge(stream, window)
        last = window
        if scan.block.factors:
            factors = " AND ".join(factor.sql for factor in scan.block.factors)
            last = picture.node("filter", _counted(len(scan.block.factors), "factor"), factors)
            picture.edge(window, last)
        filtered[number] = last
        if number not in joined:
            picture.edge(last, residual)
    if plan.joined is not None:
        for each in plan.joined.joins:
            join = picture.node("join", "shared join", "; ".join(edge.pair.text for edge in each.edges))
            for number in each.scans:
                picture.edge(filtered[number], join)
            picture.edge(join, residual)
    for table in plan.tables:
        picture.edge(picture.node("table", table.table, ""), residual)
    picture.edge(residual, picture.node("answer", title, ""))
    return picture.graph()


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _engine(plan: Plan) -> str:
    aggregate = " of partial aggregates" if plan.residual.aggregate is not None else ""
    return f"{plan.residual.engine.value}{aggregate}"


class _Picture:
    def __init__(self) -> None:
        self.nodes: list[dict[str, str]] = []
        self.edges: list[list[str]] = []

    def node(self, kind: str, title: str, detail: str) -> str:
        name = f"n{len(self.nodes)}"
        self.nodes.append({"id": name, "kind": kind, "title": title, "detail": detail})
        return name

    def edge(self, source: str, target: str) -> None:
        self.edges.append([source, target])

    def graph(self) -> dict[str, Any]:
        return {"nodes": self.nodes, "edges": self.edges}
