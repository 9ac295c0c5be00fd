"""Trees as text: each block of `fixtures/trees.txt` is a query and its tree, each node with its update pattern.

`test_tree_answers.py` runs every one of them, node by node.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from tests.sql.names import Catalog, Names

from ladle.plan.drawing import draw
from ladle.plan.nodes import Fragment, Join, Node, StreamScan, TableScan, walk
from ladle.plan.pattern import StreamFacts, labels
from ladle.sql import bind
from ladle.sql.peel import RULES, tree_of

_TEXT = (Path(__file__).parent / "fixtures" / "trees.txt").read_text(encoding="utf-8")
_BLOCKS = [block.strip() for block in _TEXT.split("\n\n") if block.strip() and not block.startswith("#")]


def drawn(tree: Node) -> str:
    found = labels(tree, StreamFacts())
    return "\n".join(draw(tree, lambda node: f"  [{found[node.digest]}]"))


def tree(query: str) -> Node:
    return tree_of(bind(query, Catalog()), Catalog())


@pytest.mark.parametrize("block", _BLOCKS, ids=[block.splitlines()[0][:60] for block in _BLOCKS])
def test_tree(block: str) -> None:
    query, _, expected = block.partition("\n")
    assert drawn(tree(query)) == expected


def test_every_rule_is_a_file_of_its_name() -> None:
    assert [rule.__module__ for rule in RULES] == [f"ladle.sql.peel.{rule.__name__}" for rule in RULES]


def test_equal_trees_are_one_node_whoever_wrote_them() -> None:
    one = tree("SELECT t.symbol AS s, max(price) m FROM trades [RANGE 5 MINUTES] t WHERE size > 1 GROUP BY t.symbol")
    other = tree("SELECT symbol, MAX(Trades.price) FROM Trades [RANGE 300 SECONDS] WHERE 1 < size GROUP BY 1")
    assert one == other
    assert one.names != other.names
    assert one != tree("SELECT symbol, min(price) FROM trades [RANGE 5 MINUTES] WHERE size > 1 GROUP BY 1")
    assert one != tree("SELECT symbol, max(price) FROM trades [RANGE 6 MINUTES] WHERE size > 1 GROUP BY 1")
    assert one != tree("SELECT symbol, max(price) FROM trades [RANGE 5 MINUTES] WHERE size > 2 GROUP BY 1")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            "SELECT symbol, price FROM expensive",
            "SELECT symbol, price FROM trades [RANGE 10 MINUTES] WHERE price > 100",
        ),
        ("WITH c AS (SELECT v FROM stamped) SELECT v FROM c", "SELECT x.v FROM (SELECT v AS v FROM stamped) x"),
        (
            "SELECT a.v FROM stamped a JOIN stamped [ROWS 2] b ON a.v = b.v AND a.ts < b.ts",
            "SELECT p.v AS q FROM stamped p, stamped [ROWS 2] r WHERE r.ts > p.ts AND p.v = r.v",
        ),
        (
            "SELECT v, row_number() OVER (ORDER BY v) AS n FROM stamped",
            "SELECT v, row_number() OVER (ORDER BY x.v) AS n FROM stamped x",
        ),
    ],
)
def test_how_a_relation_is_named_does_not_matter(one: str, other: str) -> None:
    assert tree(one) == tree(other)


def test_equal_samples_are_one_node() -> None:
    one = tree("SELECT v FROM stamped TABLESAMPLE (10 PERCENT)")
    assert one == tree("SELECT v FROM stamped TABLESAMPLE (BUCKET 2 OUT OF 20) REPEATABLE (0)")
    others = ("", " TABLESAMPLE (0 PERCENT)", " TABLESAMPLE (11 PERCENT)", " TABLESAMPLE (10 PERCENT) REPEATABLE (1)")
    found = {tree(f"SELECT v FROM stamped{other}").digest for other in others}
    assert len(found) == len(others)
    assert one.digest not in found
    assert tree("SELECT v FROM stamped TABLESAMPLE (100 PERCENT)") == tree("SELECT v FROM stamped")


def test_sub_trees_are_shared_within_a_query_and_between_queries() -> None:
    joined = "SELECT a.v FROM stamped a JOIN stamped [ROWS 2] b ON a.v = b.v"
    below = {node.digest for node in walk(tree(f"SELECT v, count(*) FROM ({joined}) GROUP BY v"))}
    (join,) = (node for node in walk(tree(joined)) if isinstance(node, Join))
    assert join.digest in below


def test_what_cannot_be_read_again_is_a_fragment() -> None:
    plan = bind("SELECT v FROM stamped WHERE hash(v) > 1", Catalog())
    residual = replace(plan.residual, spark_sql="SELECT ) FROM `_s0`", duckdb_sql=None)
    found = tree_of(replace(plan, residual=residual), Catalog())
    assert isinstance(found, Fragment)
    assert "can't be read" in found.why
    assert [type(child) for child in found.children] == [StreamScan]


def test_what_nests_deep_has_a_tree() -> None:
    plan = bind(f"SELECT {'(' * 90}v{' + 1)' * 90} AS w FROM stamped", Catalog())
    found = tree_of(plan, Catalog())
    assert [type(node).__name__ for node in walk(found)] == ["Project", "StreamScan"]


def test_queries_that_read_each_other_twice_have_a_tree_that_can_be_read() -> None:
    queries = {
        f"q{level}": f"SELECT v FROM q{level - 1} UNION ALL SELECT v FROM q{level - 1}" for level in range(1, 25)
    }
    names = Names(Catalog().streams, {"q0": "SELECT v FROM stamped", **queries})
    found = tree_of(bind("SELECT v FROM q24", names), names)
    lines = draw(found, lambda node: f" {labels(node, StreamFacts())[node.digest]}")
    assert len(lines) < 100
    assert len({node.digest for node in walk(found)}) == 26


def test_leaves_are_all_that_a_query_reads() -> None:
    for block in _BLOCKS:
        plan = bind(block.splitlines()[0], Catalog())
        below = list(walk(tree_of(plan, Catalog())))
        assert {leaf.relation for leaf in below if isinstance(leaf, StreamScan)} == {s.relation for s in plan.scans}
        assert {leaf.table for leaf in below if isinstance(leaf, TableScan)} == {t.table for t in plan.tables}
