"""Nothing that the parser reads is accepted and ignored.

The parser's whole vocabulary is walked: every argument of every class of nodes is listed as acted on or as refused, and
what is not listed as acted on is refused. An argument that a new version of sqlglot adds fails here.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlglot import exp
from tests.sql.names import Catalog

from ladle.errors import LadleError, Unsupported
from ladle.sql import parse_one
from ladle.sql.drafts import QueryDraft, SelectDraft
from ladle.sql.position import SourceText
from ladle.sql.understood import check_draft
from ladle.sql.vocabulary import HANDLED, REFUSED

OURS = {"bounds", "with_", "level"}
"""Arguments that this dialect's parser sets on nodes that sqlglot has none of."""


def _classes(base: type[exp.Expr] = exp.Expression) -> Iterator[type[exp.Expr]]:
    for each in base.__subclasses__():
        yield each
        yield from _classes(each)


def _check(tree: exp.Expr) -> None:
    check_draft(SelectDraft(QueryDraft(exp.Paren(this=tree), "", [])), SourceText(""), [])


def test_every_argument_of_a_listed_class_is_acted_on_or_refused() -> None:
    for each, handled in HANDLED.items():
        refused, known = set(REFUSED.get(each, {})), set(each.arg_types)
        assert known - handled - refused == set(), f"{each.__name__}: act on these, or refuse them"
        assert (handled | refused) - known <= OURS, f"{each.__name__} has no such arguments"
        assert not handled & refused, each.__name__


def test_only_listed_classes_are_refused_in_parts() -> None:
    assert set(REFUSED) <= set(HANDLED)


def test_classes_that_are_not_listed_are_refused() -> None:
    others = {each for each in _classes() if each not in HANDLED}
    assert len(others) > 800
    for each in others:
        with pytest.raises(LadleError):
            _check(each())


def test_arguments_that_are_not_acted_on_are_refused_by_name() -> None:
    count = 0
    for each, arguments in REFUSED.items():
        for name in arguments:
            for value in (True, "x", [exp.Null()], exp.Null()):
                with pytest.raises(Unsupported, match="is not part of Ladle's SQL"):
                    _check(each(**{name: value}))
            count += 1
    assert count > 150


@pytest.mark.parametrize("node", [exp.Lateral(cross_apply=False), exp.CTE(materialized=False), exp.Window(first=False)])
def test_false_may_be_a_word(node: exp.Expr) -> None:
    """OUTER APPLY, NOT MATERIALIZED and LAST are False in the tree."""
    with pytest.raises(Unsupported):
        _check(node)


@pytest.mark.parametrize(
    "text",
    [
        "SELECT /*+ BROADCAST(t), REPARTITION(3) */ symbol FROM trades t",
        "SELECT ALL symbol FROM trades WHERE (size > 1) IS NOT UNKNOWN",
        "SELECT 5L, 5S, 5Y, 1.5BD, 1.5F, 1e3, X'0F', r'\\d', 'a' 'b', \"q\", DATE'2024-01-01', CAST(1 AS VARCHAR(10))",
        "SELECT INTERVAL 1 DAY 2 HOURS, INTERVAL -1 DAY, INTERVAL '3 days 007 hours', INTERVAL '1-2' YEAR TO MONTH",
        "SELECT CAST(s AS STRUCT<f: BIGINT>), s.f, tags[0], transform(tags, x -> upper(x)) FROM sensors [ROWS 007]",
        "SELECT position('a' IN room), substring(room FROM 1 FOR 2), trim(LEADING 'x' FROM room) FROM sensors",
        "SELECT symbol, grouping(symbol) FROM trades GROUP BY symbol, size WITH ROLLUP",
        "SELECT count(*) FILTER (WHERE size > 1), percentile_cont(0.5) WITHIN GROUP (ORDER BY size) FROM trades",
        "SELECT array_agg(size ORDER BY at DESC NULLS LAST, 'x'), string_agg(symbol, ',' ORDER BY at) FROM trades",
        "SELECT last(size, true ORDER BY at) FILTER (WHERE size > 1), first(size IGNORE NULLS ORDER BY at) FROM trades",
        "SELECT first_value(symbol) IGNORE NULLS OVER (ORDER BY at ROWS UNBOUNDED PRECEDING) FROM trades",
        "SELECT make_interval(hours => 1), symbol COLLATE UTF8_LCASE, size::string::INT, 5 DIV 2, ! true FROM trades",
        "SELECT 1.75D, 5L AS x, d, l FROM (SELECT size AS d, size AS l FROM trades) AS t WHERE d < 2.5D",
        "SELECT .5, -.5, .5D, .5e1, .25BD, 5., size * .1 FROM trades WHERE price BETWEEN .25 AND .75",
        "UPDATE companies SET name = 'x' WHERE length(name) > .5",
        "SELECT array(NULL, 1), struct(NULL, 1), map(NULL, 1), struct(int(1), 2), array(NULL, size) FROM trades",
        "SELECT array(date, 1), map(date, 1), struct(text, 'x') FROM (SELECT 1 AS date, 2 AS text) AS t",
        "SELECT max_by(symbol, (at, -size)), aggregate(array(1, 2), 0, (x, y) -> x + y) FROM trades",
        "SELECT sum(size) OVER (DISTRIBUTE BY symbol SORT BY at), max(at) OVER (SORT BY at) FROM trades",
        "SELECT * FROM sensors LATERAL VIEW OUTER posexplode(tags) e AS p, tag",
        "SELECT room, posexplode(tags) AS (p, tag) FROM sensors",
        "SELECT json_tuple(room, 'a', 'b'), stack.x FROM sensors, LATERAL stack(2, 1, 2) AS stack(x)",
        "SELECT room FROM sensors WHERE room LIKE ANY ('a', 'b') AND room NOT RLIKE 'c' AND room LIKE 'd' ESCAPE '/'",
        "SELECT size AS percent, 2 AS of FROM trades TABLESAMPLE BERNOULLI (.5 PERCENT) REPEATABLE (7) [ROWS 5] bucket",
        "SELECT out.size FROM trades [RANGE 1 HOUR] TABLESAMPLE (BUCKET 3 OUT OF 16) AS out",
        "WITH RECURSIVE level(max) MAX RECURSION LEVEL 7 AS (SELECT 1 UNION ALL SELECT max + 1 FROM level) SELECT 2",
        "SELECT include, exclude FROM trades UNPIVOT INCLUDE NULLS ((include) FOR exclude IN (price AS nulls)) AS u",
        "SELECT v FROM trades AS t UNPIVOT EXCLUDE NULLS ((v, w) FOR n IN ((t.price, t.size), (size, price) AS other))",
        "SELECT symbol AS cluster, size AS distribute FROM trades DISTRIBUTE BY cluster, distribute SORT BY size DESC",
        "SELECT symbol FROM trades UNION ALL (SELECT room FROM sensors CLUSTER BY length(room)) CLUSTER BY symbol",
        "SELECT * FROM trades PIVOT (max(price) FOR (symbol, size) IN (('a', 1), ('b', -2) AS b, (NULL, 3)))",
        "UPDATE companies SET name = upper(name) || 'x', listed = DATE '2024-01-01' WHERE symbol IN ('a', 'b')",
        "DELETE FROM companies WHERE listed < now() - INTERVAL 1 YEAR",
    ],
)
def test_what_spark_has_is_understood(text: str) -> None:
    parse_one(text, Catalog())
