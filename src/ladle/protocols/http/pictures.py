"""A plan as a graph, for whoever draws it: what is read at one end, the answer at the other.

It is the tree of nodes that EXPLAIN shows. A sub-tree that comes again is drawn once, with an edge to each reader.
"""

from __future__ import annotations

from ladle.engine.session import HIDDEN, Session
from ladle.execute.node_state import InMemory, Measured
from ladle.handles import PlanTree
from ladle.json_values import JsonObject


def plan_picture(session: Session, text: str, *, analyze: bool = False) -> JsonObject:
    """The plan of a standing query or a SELECT as nodes and edges; with `analyze`, each node is run and measured."""
    state = session.catalog.query(text)
    picture = _Graph()
    tree = session.explain_tree(text, analyze=analyze)
    answer = state.name if state is not None else "answer"
    if tree is None and state is not None and (why := session.catalog.why_broken(state)) is not None:
        last = picture.node("broken", "broken", why, "", "")
    elif tree is None:
        last = picture.node("hidden", "hidden", HIDDEN, "", "")
    else:
        last = picture.tree(tree)
    picture.edge(last, picture.node("answer", answer, "", "", ""))
    return picture.graph()


class _Graph:
    def __init__(self) -> None:
        self.nodes: list[dict[str, str]] = []
        self.edges: list[list[str]] = []
        self._drawn: dict[str, str] = {}

    def tree(self, tree: PlanTree) -> str:
        """A node of the tree and all below it."""
        if tree["again"]:
            return self._drawn[tree["digest"]]
        below = [self.tree(child) for child in tree["children"]]
        pattern = tree["pattern"] + (", premature" if tree["premature"] else "")
        kind = tree["node"].lower()
        name = self.node(
            kind, tree["answered"], tree["detail"], pattern, _shared(tree), *_kept(tree), _held(tree), _took(tree)
        )
        self._drawn[tree["digest"]] = name
        for child in below:
            self.edge(child, name)
        return name

    def node(
        self,
        kind: str,
        title: str,
        detail: str,
        pattern: str,
        shared: str,
        coverage: str = "",
        kept: str = "",
        held: str = "",
        took: str = "",
    ) -> str:
        name = f"n{len(self.nodes)}"
        said = {"kind": kind, "title": title, "detail": detail, "pattern": pattern, "shared": shared}
        self.nodes.append({"id": name, **said, "coverage": coverage, "kept": kept, "held": held, "took": took})
        return name

    def edge(self, source: str, target: str) -> None:
        self.edges.append([source, target])

    def graph(self) -> JsonObject:
        return {"nodes": self.nodes, "edges": self.edges}


def _kept(tree: PlanTree) -> tuple[str, str]:
    """How far a node is covered, and what is kept of it."""
    coverage, kept = tree["coverage"], tree["kept"]
    if coverage is None or kept is None:
        return "", ""
    covered = f"{coverage['covered']:,} of {coverage['total']:,} {coverage['unit']}"
    return covered, f"{kept['rows']:,} {kept['form']}, {kept['bytes']:,} bytes" if kept["form"] else ""


def _held(tree: PlanTree) -> str:
    return "" if tree["in_memory"] is None else str(InMemory(**tree["in_memory"]))


def _took(tree: PlanTree) -> str:
    return "" if tree["measured"] is None else f"took {Measured(**tree['measured'])}"


def _shared(tree: PlanTree) -> str:
    many = "" if tree["shared_exactly"] else "at least "
    return f"shared by {many}{tree['shared']}" if tree["shared"] else ""
