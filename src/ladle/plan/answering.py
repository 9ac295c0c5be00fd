"""How a query is answered by nodes: which of its nodes partial aggregates give, and the statement over their rows.

"A node with usable state gives it, another computes": the nodes above those that are given, and the branches beside
them, are one statement in DuckDB, which reads the given rows, scans and tables by name. Derived from a plan's tree when
the plan is bound (`ladle.sql.folding_of`), and a part of it like all that binding finds: a process that only reads need
not load the parser to answer.
"""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from ladle.json_values import Json, JsonRow
from ladle.plan.aggregate import Aggregate
from ladle.schema import decode_schema, encode_schema


@dataclass(frozen=True)
class FoldedNode:
    """A GroupBy over one scan, whose rows partial aggregates can give."""

    relation: str
    """The name of its rows in the statement above."""
    scan: int
    """The number of the scan that it folds."""
    aggregate: Aggregate
    schema: pa.Schema
    place: int = 0
    """Its place in the tree, in the order of `walk`: trees of one text have one form, whatever their constants."""


@dataclass(frozen=True)
class Folding:
    """How a plan is answered by its nodes: those that give groups, and the statement above them."""

    nodes: tuple[FoldedNode, ...]
    above: str | None
    """DuckDB's text; None: the answer is the rows of the one node."""
    uses_now: bool = False
    reads: frozenset[str] = frozenset()
    """The relations of scans and tables that the statement reads beside the nodes' rows."""

    def to_json(self, schema: pa.Schema | None) -> list[Json]:
        """`schema` is the answer's, which is not written down again."""
        nodes = [
            [
                each.relation,
                each.scan,
                each.aggregate.to_json(),
                None if each.schema == schema else encode_schema(each.schema),
                each.place,
            ]
            for each in self.nodes
        ]
        return [nodes, self.above, self.uses_now, sorted(self.reads)]

    @staticmethod
    def from_json(value: JsonRow, schema: pa.Schema | None) -> Folding:
        """Decode the folding of a plan with this schema."""
        assert schema is not None, "only Spark runs a plan without one"
        nodes, above, uses_now, reads = value
        made = [
            FoldedNode(
                name, scan, Aggregate.from_json(aggregate), schema if own is None else decode_schema(own), *place
            )
            for name, scan, aggregate, own, *place in nodes
        ]
        return Folding(tuple(made), above, uses_now, frozenset(reads))
