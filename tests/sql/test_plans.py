"""Bound plans as text: each block of `fixtures/plans.txt` is a query, its scans and its residual.

A scan reads `_s0 stream | factor & factor | window | columns`, a table `_t0 table | columns`, the residual is Spark's
text; where streams are joined, `_j0: left scan, right scan left stream * right stream | comparisons`, and the statement
over joins. Everything that must hold for every plan (it survives JSON, every column of the text is one that its scan
brings) is checked for each block too.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.sql.names import Catalog

from ladle.plan import AsOf, Plan
from ladle.plan.query import plan_from_json, plan_to_json
from ladle.sql import bind

_TEXT = (Path(__file__).parent / "fixtures" / "plans.txt").read_text(encoding="utf-8")
_BLOCKS = [block.strip() for block in _TEXT.split("\n\n") if block.strip() and not block.startswith("#")]


def render(plan: Plan) -> str:
    lines = [
        f"{scan.relation} {scan.block.stream} | {' & '.join(factor.sql for factor in scan.block.factors) or '-'} | "
        f"{scan.window} | {', '.join(scan.columns)}{_moment(scan.as_of)}"
        + ("" if scan.sample is None else f" | {scan.sample}")
        for scan in plan.scans
    ]
    lines += [
        f"{table.relation} {table.table} | {', '.join(table.columns)}{_moment(table.as_of)}" for table in plan.tables
    ]
    residual = plan.residual
    if residual.projection is not None:
        lines.append("projection " + ", ".join(f"{column} AS {name}" for name, column in residual.projection))
    else:
        lines.append(residual.spark_sql)
    if plan.joined is not None:
        lines += [
            f"{join.relation}: {e.left}, {e.right} {e.pair.text}" for join in plan.joined.joins for e in join.edges
        ]
        lines.append(plan.joined.residual.spark_sql)
    return "\n".join(lines)


def _moment(as_of: AsOf | None) -> str:
    if as_of is None:
        return ""
    return f" | {as_of}" + "".join(f" | of {name}" for name in (*as_of.streams, *as_of.tables))


@pytest.mark.parametrize("block", _BLOCKS, ids=[block.splitlines()[0][:60] for block in _BLOCKS])
def test_plan(block: str) -> None:
    query, _, expected = block.partition("\n")
    plan = bind(query, Catalog())
    assert render(plan) == expected
    assert plan_from_json(plan_to_json(plan)) == plan
    assert plan.sql == query


def test_there_are_fixtures() -> None:
    assert len(_BLOCKS) > 40


def test_queries_that_are_read_are_named_as_declared() -> None:
    plan = bind("SELECT n.symbol FROM NESTED n, expensive e", Catalog())
    assert set(plan.queries) == {"Nested", "Expensive"}
    assert plan.streams == ("trades",)


def test_binding_is_deterministic() -> None:
    for block in _BLOCKS[:20]:
        query = block.splitlines()[0]
        assert plan_to_json(bind(query, Catalog())) == plan_to_json(bind(query, Catalog()))
