"""The split is right when factors and residual together keep exactly the rows of the WHERE clause as it was written.

DuckDB evaluates random predicates over all combinations of small values and NULL, once whole and once split; the whole
one is rendered by the generator here, not by the binder.
"""

from __future__ import annotations

from itertools import product

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sql.names import Names

from ladle.errors import SqlError
from ladle.plan import Plan
from ladle.schema import Column, StreamSchema
from ladle.sql import bind
from ladle.sql.split import CLAUSES_MAX

VALUES = (None, 0, 1, 2)
ROWS = pa.Table.from_pylist(
    [{"a": a, "b": b, "c": c} for a, b, c in product(VALUES, repeat=3)],
    schema=pa.schema([(name, pa.int32()) for name in "abc"]),
)
DUCK = duckdb.connect(config={"threads": 1})
DUCK.register("s", ROWS)


NAMES = Names({"s": StreamSchema(tuple(Column(name, pa.int32()) for name in "abc"))})


def split_rows(plan: Plan, table: pa.Table) -> list[tuple[object, ...]]:
    """Rows that the plan gives: each factor over all rows, as the engine evaluates them, then the residual."""
    DUCK.register("source", table)
    kept = pa.array([True] * table.num_rows)
    for factor in plan.scans[0].block.factors:
        column = DUCK.sql(f"SELECT {factor.duckdb} AS holds FROM source").to_arrow_table()["holds"]
        kept = pc.and_(kept, pc.fill_null(column, fill_value=False))
    DUCK.register("_s0", table.filter(kept).select(list(plan.scans[0].columns)))
    assert plan.residual.duckdb_sql is not None
    return sorted(DUCK.sql(plan.residual.duckdb_sql).fetchall(), key=repr)


atoms = st.builds(
    "{} {} {}".format,
    st.sampled_from(["a", "b", "s.c", "A", "0", "1"]),
    st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>", "=="]),
    st.sampled_from(["a", "B", "c", "1", "2", "NULL"]),
) | st.sampled_from(
    ["a IS NULL", "b IS NOT NULL", "c IN (1, 2)", "a NOT IN (0, 1)", "b BETWEEN 1 AND 2", "NOT a > 1", "true", "false"]
)
predicates = st.recursive(
    atoms,
    lambda inner: (
        st.builds("({} AND {})".format, inner, inner)
        | st.builds("({} OR {})".format, inner, inner)
        | st.builds("(NOT ({}))".format, inner)
    ),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(predicates)
def test_split_keeps_the_rows_of_where(predicate: str) -> None:
    plan = bind(f"SELECT a, b, c FROM s WHERE {predicate}", NAMES)
    whole = predicate.replace("<=>", "IS NOT DISTINCT FROM")
    expected = DUCK.sql(f"SELECT a, b, c FROM s WHERE {whole}").fetchall()
    assert split_rows(plan, ROWS) == sorted(expected, key=repr)


def factors(where: str) -> list[str]:
    return [factor.sql for factor in bind(f"SELECT a FROM s WHERE {where}", NAMES).scans[0].block.factors]


@pytest.mark.parametrize(
    "where", ["5 < a", "A>5", "s.a > 5", "(a) > (5)", "`a` > 5", "NOT a <= 5", "a > 5 AND a > 5", "((a > 5))"]
)
def test_equal_predicates_are_one_factor(where: str) -> None:
    assert factors(where) == ["`a` > 5"]


@pytest.mark.parametrize("where", ["a < b", "b > a", "NOT b <= a"])
def test_two_columns_have_one_order(where: str) -> None:
    assert factors(where) == ["`a` < `b`"]


def test_normal_form_does_not_explode() -> None:
    where = " OR ".join(f"(a = {n} AND b = {n})" for n in range(CLAUSES_MAX))
    assert len(factors(where)) == 1
    assert len(factors("(a = 1 AND b = 1) OR (a = 2 AND b = 2)")) == 4


@pytest.mark.parametrize(
    "where",
    [
        "b <> 0 AND a / b >= 1",
        "b <> 0 AND c > 0 AND a / b >= 1 AND 1 / b > 0 AND 2 / c > 0",
        "b <> 0 AND (a / b >= 1 OR c = 1)",
        "b <> 0 AND NOT (a / b < 1 AND c = 1)",
        "b = 1 OR (b <> 0 AND a / b >= 1)",
        "b <> 0 AND a IN (SELECT 1) AND a / b >= 1",
        "CASE WHEN b = 0 THEN false ELSE a / b >= 1 END",
    ],
)
def test_what_is_guarded_does_not_raise(where: str) -> None:
    plan = bind(f"SELECT a, b, c FROM s WHERE {where}", NAMES)
    rows = split_rows(plan, ROWS)
    # without ANSI mode DuckDB's own division never raises
    assert rows == sorted(DUCK.sql(f"SELECT a, b, c FROM s WHERE {where}").fetchall(), key=repr)


def test_what_is_not_guarded_raises() -> None:
    plan = bind("SELECT a, b, c FROM s WHERE a / b >= 1 AND b <> 0", NAMES)
    with pytest.raises(duckdb.Error, match="DIVIDE_BY_ZERO"):
        split_rows(plan, ROWS)


def test_after_one_that_stays_nothing_that_may_raise_is_pushed() -> None:
    where = "a IN (SELECT 1) AND 1 / b > 0 AND c = 1"
    plan = bind(f"SELECT a FROM s WHERE {where}", NAMES)
    assert [factor.sql for factor in plan.scans[0].block.factors] == ["`c` = 1"]
    assert "1 / `s`.`b` > 0" in plan.residual.spark_sql


def test_nesting_is_an_answer_up_to_a_depth_and_then_an_error() -> None:
    assert factors("(" * 20 + "a = 1" + ")" * 20) == ["`a` = 1"]
    depth = 5000
    text = "SELECT a FROM s WHERE " + "(" * depth + "a = 1" + ")" * depth
    with pytest.raises(SqlError, match="nested too deeply"):
        bind(text, NAMES)


def test_long_texts_are_quick_enough() -> None:
    assert len(factors(" AND ".join(f"a <> {n}" for n in range(500)))) == 500
    assert len(factors(" OR ".join(f"a = {n}" for n in range(500)))) == 1
