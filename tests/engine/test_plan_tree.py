"""The plan's tree in EXPLAIN: what answers each node, its pattern as the data are, and who shares it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import pytest
from tests.engine.rows import TICKS, ticks, values

from ladle.engine import Database, plan_tree

pytestmark = pytest.mark.not_at_one_row("trees are its subject, not who computes")


def nodes(tree: dict[str, Any] | None) -> Iterator[dict[str, Any]]:
    assert tree is not None
    yield tree
    for child in tree["children"]:
        yield from nodes(child)


def told(db: Database, text: str, key: str) -> list[Any]:
    """What is said of each node, from the root down."""
    return [node[key] for node in nodes(db.explain_tree(text))]


@pytest.fixture
def filled(db: Database) -> Database:
    db.sql(TICKS)
    db.sql("CREATE TABLE names (n INT, label STRING)")
    db.push("ticks", ticks(range(5)), wait=True)
    return db


@pytest.mark.parametrize(
    ("text", "answered"),
    [
        ("SELECT n FROM ticks WHERE n > 1", ["columns are picked", "index"]),
        ("SELECT n FROM ticks WHERE n % 2 = 1", ["columns are picked", "predicate list"]),
        ("SELECT n FROM ticks WHERE n % 2 = 1 AND n > 1", ["columns are picked", "index and predicate list"]),
        ("SELECT n + 1 AS m FROM ticks", ["residual on DuckDB", "every tuple"]),
        ("SELECT count(*) FROM ticks", ["tree of aggregates", "every tuple"]),
        ("SELECT count(*) FROM ticks HAVING count(*) > 1", ["residual on DuckDB", "residual on DuckDB", "every tuple"]),
        ("SELECT label FROM names", ["residual on DuckDB", "its newest version"]),
        (
            "SELECT a.n FROM ticks [RANGE 1 MINUTE] a, ticks [RANGE 1 MINUTE] b WHERE a.n = b.n",
            ["columns are picked", "pairs of the SteMs", "every tuple", "every tuple"],
        ),
        (
            "SELECT a.n FROM ticks [RANGE 1 MINUTE] a LEFT JOIN ticks [RANGE 1 MINUTE] b ON a.n = b.n",
            ["residual on DuckDB", "residual on DuckDB", "every tuple", "every tuple"],
        ),
        ("SELECT rank() OVER (ORDER BY n) AS r FROM ticks", ["fragment on DuckDB", "every tuple"]),
        (
            "SELECT soundex('x') AS s, rank() OVER (ORDER BY n) AS r FROM ticks",
            ["fragment on Spark: function soundex is not proven equal in DuckDB", "every tuple"],
        ),
    ],
)
def test_what_answers_each_node(filled: Database, text: str, answered: list[str]) -> None:
    assert told(filled, text, "answered") == answered


def test_a_mode_that_keeps_nothing_has_no_tree_of_aggregates(filled: Database) -> None:
    filled.register("SELECT count(*) FROM ticks", name="kept")
    filled.register("SELECT count(*) FROM ticks", name="computed", materialize="none")
    assert told(filled, "kept", "answered")[0] == "tree of aggregates"
    assert told(filled, "computed", "answered")[0] == "residual on DuckDB"


def test_the_pattern_of_a_window_is_weak_when_tuples_came_late(filled: Database) -> None:
    text = "SELECT * FROM ticks [RANGE 1 HOUR]"
    assert told(filled, text, "pattern") == ["weakest"]
    filled.push("ticks", ticks([9]), wait=True)
    assert told(filled, text, "pattern") == ["weakest"]
    filled.push("ticks", ticks([2]), wait=True)
    assert told(filled, text, "pattern") == ["weak"]
    assert told(filled, "SELECT * FROM ticks", "pattern") == ["monotonic"]
    filled.sql("ALTER STREAM ticks SET RETAIN INTERVAL 1 DAY")
    assert told(filled, "SELECT * FROM ticks", "pattern") == ["weak"]


def test_a_stream_that_forgets_is_a_window(db: Database) -> None:
    db.sql("CREATE STREAM s (v INT) RETAIN INTERVAL 1 DAY")
    assert told(db, "SELECT v FROM s", "pattern") == ["weakest", "weakest"]


def test_who_shares_a_node(filled: Database) -> None:
    text = "SELECT n, count(*) AS k FROM ticks [RANGE 1 HOUR] WHERE n > 1 GROUP BY n"
    filled.register(text, name="groups")
    filled.register(f"{text} HAVING k > 1", name="some")
    filled.register("SELECT at FROM ticks [RANGE 1 HOUR] t WHERE t.n > 1", name="times")
    filled.register("SELECT at FROM ticks [RANGE 2 HOURS] WHERE n > 1", name="longer")
    assert told(filled, "groups", "shared") == [1, 2]
    assert told(filled, "some", "shared") == [0, 1, 2]
    assert told(filled, text, "shared") == [2, 3]
    assert told(filled, "longer", "shared") == [0, 0]
    said = values(filled.sql("EXPLAIN QUERY groups"))
    assert "    GroupBy n | COUNT(*)  [weak, premature; tree of aggregates; shared with 1 other standing query]" in said
    filled.unregister("some")
    assert told(filled, "groups", "shared") == [0, 1]


def test_of_many_that_may_share_not_all_are_looked_at(filled: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(4):
        filled.register(f"SELECT DISTINCT n, {number} AS m FROM (SELECT n FROM ticks WHERE n > 7)", name=f"q{number}")
    monkeypatch.setattr(plan_tree, "_nodes", OrderedDict())
    monkeypatch.setattr(plan_tree, "_TREES_MAX", 3)
    text = "SELECT n FROM ticks WHERE n > 7"
    said = filled.explain(text)
    assert "; shared with at least 3 standing queries]" in said
    assert "; index; shared with 4 standing queries]" in said
    # Those that were looked at are remembered, so there is time for the others.
    assert (told(filled, text, "shared"), told(filled, text, "shared_exactly")) == ([4, 4], [True, True])


def test_a_query_and_its_handle_say_the_same(filled: Database) -> None:
    query = filled.register("SELECT DISTINCT n FROM ticks", name="q")
    assert query.explain_tree() == filled.explain_tree("q")
    assert [node["node"] for node in nodes(query.explain_tree())] == ["Distinct", "Project", "StreamScan"]
