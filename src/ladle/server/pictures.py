"""A plan as a graph, for whoever draws it: what is read at one end, the answer at the other.

It is the tree of nodes that EXPLAIN shows. A sub-tree that comes again is drawn once, with an edge to each reader.
"""

from __future__ import annotations

from typing import Any

from ladle.engine.session import HIDDEN, Session


def plan_picture(session: Session, text: str) -> dict[str, Any]:
    """Of a standing query by its name, or of a SELECT."""
    state = session.catalog.query(text)
    picture = _Picture()
    tree = session.explain_tree(text)
    answer = state.name if state is not None else "answer"
    if tree is None:
        last = picture.node("hidden", "hidden", HIDDEN, "", "")
    else:
        last = picture.tree(tree)
    picture.edge(last, picture.node("answer", answer, "", "", ""))
    return picture.graph()


class _Picture:
    def __init__(self) -> None:
        self.nodes: list[dict[str, str]] = []
        self.edges: list[list[str]] = []
        self._drawn: dict[str, str] = {}

    def tree(self, tree: dict[str, Any]) -> str:
        """A node of the tree and all below it."""
        if tree["again"]:
            return self._drawn[tree["digest"]]
        below = [self.tree(child) for child in tree["children"]]
        pattern = tree["pattern"] + (", premature" if tree["premature"] else "")
        name = self.node(tree["node"].lower(), tree["answered"], tree["detail"], pattern, _shared(tree))
        self._drawn[tree["digest"]] = name
        for child in below:
            self.edge(child, name)
        return name

    def node(self, kind: str, title: str, detail: str, pattern: str, shared: str) -> str:
        name = f"n{len(self.nodes)}"
        node = {"id": name, "kind": kind, "title": title, "detail": detail, "pattern": pattern, "shared": shared}
        self.nodes.append(node)
        return name

    def edge(self, source: str, target: str) -> None:
        self.edges.append([source, target])

    def graph(self) -> dict[str, Any]:
        return {"nodes": self.nodes, "edges": self.edges}


def _shared(tree: dict[str, Any]) -> str:
    many = "" if tree["shared_exactly"] else "at least "
    return f"shared by {many}{tree['shared']}" if tree["shared"] else ""
