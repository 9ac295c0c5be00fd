"""The plan's tree in EXPLAIN: what answers each node, its pattern as the data are, and who shares it."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import pytest
from tests.engine.conftest import Open
from tests.engine.rows import TICKS, ticks, values

from ladle.engine import Database
from ladle.execute import plan_tree
from ladle.execute.join_answers import Joins
from ladle.execute.node_state import milliseconds

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
        ("SELECT count(*) FROM ticks HAVING count(*) > 1", ["residual on DuckDB", "tree of aggregates", "every tuple"]),
        (
            "SELECT sum(m) + 1 AS t FROM (SELECT n AS m FROM ticks)",
            ["residual on DuckDB", "tree of aggregates", "tree of aggregates", "every tuple"],
        ),
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
    noted = "    GroupBy n | COUNT(*)  [weak, premature; tree of aggregates; shared with 1 other standing query] (0 of"
    assert any(line.startswith(noted) for line in said)
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


def test_what_is_kept_of_each_node(filled: Database) -> None:
    """Coverage by segments, rows as ids or bits, and leaves of the trees of aggregates once they are folded."""
    text = "SELECT n, count(*) AS c FROM ticks WHERE n > 1 GROUP BY n HAVING c > 0"
    filled.register(text, name="groups", materialize="partial")
    filled.register("SELECT n FROM ticks WHERE n < 2", name="rows", materialize="partial")
    filled.backfill()
    filled.push("ticks", ticks(range(5, 205)), wait=True)
    (having, groups, scan) = nodes(filled.explain_tree("groups"))
    assert having["kept"] is None
    assert scan["coverage"] == {"covered": 2, "total": 2, "unit": "segments"}
    assert scan["kept"] == {"rows": 203, "bytes": 8, "form": "rows as bits"}
    assert groups["coverage"] == {"covered": 0, "total": 2, "unit": "segments"}
    filled.invoke("groups")
    (_, groups, _) = nodes(filled.explain_tree("groups"))
    assert groups["coverage"] == {"covered": 2, "total": 2, "unit": "segments"}
    assert groups["kept"]["rows"] == 203
    assert groups["kept"]["bytes"] > 203 * 8
    said = values(filled.sql("EXPLAIN QUERY rows"))
    assert any("(2 of 2 segments covered: 2 rows as bits, 8 bytes)" in line for line in said)
    told_json = filled.explain_tree("rows")
    assert told_json["measured"] is None


def test_joins_say_how_many_pairs_are_kept(filled: Database) -> None:
    text = "SELECT a.n FROM ticks [RANGE 1 MINUTE] a JOIN ticks [RANGE 1 MINUTE] b ON a.n = b.n"
    filled.register(text, name="q", materialize="partial")
    filled.backfill()
    join = next(node for node in nodes(filled.explain_tree("q")) if node["node"] == "Join")
    assert join["coverage"]["unit"] == "pairs of data files"
    assert join["coverage"]["covered"] == join["coverage"]["total"] == 1
    assert join["kept"]["rows"] == 5


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ("SELECT n FROM ticks WHERE n > 1", [3, 3]),
        ("SELECT n + 1 AS m FROM ticks WHERE n > 1 ORDER BY m LIMIT 2", [2, 3, 3]),
        ("SELECT count(*) AS c FROM ticks", [1, None]),
        ("SELECT n % 2 AS odd, count(*) AS c FROM ticks GROUP BY n % 2 HAVING c > 2", [1, 2, 5]),
        ("SELECT count(*) AS c FROM ticks HAVING c > 7", [0, 1, None]),
        ("SELECT label FROM ticks t JOIN names m ON t.n = m.n", [1, 1, 5, 1]),
        ("SELECT n FROM ticks EXCEPT SELECT n FROM names", [4, 5, 5, 1, 1]),
        ("SELECT rank() OVER (ORDER BY n) AS r FROM ticks", [5, 5]),
        ("SELECT window.start AS w, count(*) AS c FROM ticks GROUP BY window(at, '2 seconds') ORDER BY c, w", None),
        ("SELECT session_window.end AS e, n FROM ticks GROUP BY session_window(at, '1 second'), n", [5, 5, None, 5]),
        ("SELECT soundex('x') AS s, n FROM ticks", [None, 5]),
        ("SELECT t.n, v.l FROM ticks t JOIN VALUES (1, 'one'), (2, 'two') v(n, l) ON v.n = t.n", [2, 2, 5, 2]),
        ("VALUES (1, NULL), (NULL, current_date())", [2]),
    ],
)
def test_each_node_is_measured(filled: Database, text: str, rows: list[int | None] | None) -> None:
    filled.sql("INSERT INTO names VALUES (3, 'three')")
    tree = filled.explain_tree(text, analyze=True)
    measured = [node["measured"] for node in nodes(tree)]
    if rows is not None:
        assert [None if each is None else each["rows"] for each in measured] == rows
    assert all(each["seconds"] > 0 and each["bytes"] >= 0 for each in measured if each is not None)
    assert any(measured)


def test_analyze_draws_what_each_node_took(filled: Database) -> None:
    filled.register("SELECT n FROM ticks WHERE n > 1 ORDER BY n", name="q")
    said = filled.explain("q", analyze=True).splitlines()
    at = said.index("    nodes     each run by itself")
    assert said[at + 1].startswith("      Sort n ASC NULLS FIRST  [3 rows, ")
    assert said[at + 3].startswith("          StreamScan ticks | everything retained | `n` > 1  [3 rows, ")


@pytest.mark.parametrize(
    ("seconds", "said"),
    [(0.000_012_34, "0.0123 ms"), (0.0356, "35.6 ms"), (0.0999, "99.9 ms"), (0.222, "222 ms"), (16.1, "16,100 ms")],
)
def test_times_are_written_out(seconds: float, said: str) -> None:
    assert milliseconds(seconds) == said


@pytest.fixture
def undisturbed(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Database:
    """`filled`, where nothing is brought up to date in the background."""
    monkeypatch.setattr("ladle.housekeeping.background.Background._work_loop", lambda _: None)
    database: Database = request.getfixturevalue("filled")
    return database


def test_the_kept_answer_of_a_complete_query_is_shown_at_its_node(undisturbed: Database) -> None:
    """Also the rows that its scans hold, as long as they are those of the moment that is looked at."""
    filled = undisturbed
    filled.register("SELECT n + 1 AS m FROM ticks WHERE n > 1", name="q", materialize="complete")
    (project, scan) = nodes(filled.explain_tree("q"))
    assert (project["answered"], project["in_memory"], scan["in_memory"]) == ("residual on DuckDB", None, None)
    answer = filled.invoke("q").table
    (project, scan) = nodes(filled.explain_tree("q"))
    assert project["answered"] == "kept answer"
    held = {"covered": 1, "total": 1, "rows": 3, "bytes": answer.nbytes}
    assert project["in_memory"] == {**held, "unit": "answers"}
    assert {key: scan["in_memory"][key] for key in ("covered", "total", "unit", "rows")} == {
        **{key: held[key] for key in ("covered", "total", "rows")},
        "unit": "segments",
    }
    said = values(filled.sql("EXPLAIN QUERY q"))
    noted = f"kept answer] (answer in memory: 3 rows, {answer.nbytes} bytes)"
    assert any(line.startswith("    Project n + 1 AS m  [") and line.endswith(noted) for line in said)
    assert any("; 1 of 1 segments in memory: 3 rows, " in line for line in said)
    filled.push("ticks", ticks([7]), wait=True)
    (project, scan) = nodes(filled.explain_tree("q"))
    assert project["answered"] == "residual on DuckDB"
    assert project["in_memory"]["covered"] == 0
    assert (scan["in_memory"]["covered"], scan["in_memory"]["total"]) == (1, 2)
    assert any("(answer of another moment in memory: 3 rows" in line for line in values(filled.sql("EXPLAIN QUERY q")))
    # The text alone demands nothing.
    assert told(filled, "SELECT n + 1 AS m FROM ticks WHERE n > 1", "in_memory") == [None, None]


def test_the_kept_answer_is_beside_what_is_kept_of_its_node(undisturbed: Database) -> None:
    filled = undisturbed
    filled.register("SELECT n, count(*) AS c FROM ticks GROUP BY n", name="q", materialize="complete")
    filled.invoke("q")
    (groups, scan) = nodes(filled.explain_tree("q"))
    assert (groups["answered"], groups["in_memory"]["rows"]) == ("kept answer", 5)
    assert groups["kept"]["form"] == "partial aggregates"
    assert scan["in_memory"] is None


@pytest.mark.parametrize(
    ("text", "rows", "by_pairs"),
    [
        ("SELECT b.n AS x, a.at FROM {t} a JOIN {t} b ON a.n = b.n WHERE a.n > 1", [3, 3, 3, 5], True),
        ("SELECT b.n + a.n AS x FROM {t} a JOIN {t} b ON a.n < b.n AND a.n + b.n > 3", [6, 6, 10, 5, 5], True),
        ("SELECT a.n FROM {t} a LEFT JOIN {t} b ON a.n < b.n", [11, 11, 5, 5], False),
        (
            "SELECT c.n + b.n AS x FROM {t} a JOIN {t} b ON a.n = b.n JOIN {t} c ON c.n = a.n WHERE b.n > 2",
            [2, 2, None, 5, 2, 5],
            True,
        ),
    ],
)
def test_shared_joins_are_measured_as_pairs(
    filled: Database, monkeypatch: pytest.MonkeyPatch, text: str, rows: list[int | None], by_pairs: bool
) -> None:
    """As they are answered: what is put together of pairs is one join, whose parts are not run by themselves."""
    text = text.format(t="ticks [RANGE 1 MINUTE]")
    given = []
    real = Joins.relation

    def relation(*args: Any, **more: Any) -> Any:
        given.append(len(found := real(*args, **more)))
        return found

    monkeypatch.setattr(Joins, "relation", relation)
    measured = [node["measured"] for node in nodes(filled.explain_tree(text, analyze=True))]
    assert [None if each is None else each["rows"] for each in measured] == rows
    assert bool(given) == by_pairs
    assert len(filled.sql(text)) == rows[0]


def test_a_join_of_too_many_pairs_is_measured_as_it_is_answered(open_db: Open) -> None:
    db = open_db(join_pairs_max=10)
    db.sql(TICKS)
    db.push("ticks", ticks(range(8)), wait=True)
    text = "SELECT b.n FROM ticks [RANGE 1 MINUTE] a JOIN ticks [RANGE 1 MINUTE] b ON a.n < b.n"
    (_, join, *_) = nodes(db.explain_tree(text, analyze=True))
    assert join["measured"]["rows"] == 28
