"""A tree, run node by node, gives what the whole query gives over the same rows.

Two implementations: `tests/sql/tree_evaluator.py` runs nodes, DuckDB the residual that the binder made. The queries are
those of the generators that the oracle uses. Windows and factors belong to leaves, and leaves are given random rows.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.sql.names import Catalog, Names
from tests.sql.tree_evaluator import Evaluator
from tests.support.generate import WALL_US, random_rows, random_stream
from tests.support.join_queries import JoinMaker, random_join_rows, random_join_stream
from tests.support.oracle import Expected, difference, rows_of, stored
from tests.support.queries import QueryMaker
from tests.support.tree import ColumnSpec, StreamSpec, is_ordered, to_ladle

from ladle.errors import EvaluationError
from ladle.evaluate import duck
from ladle.evaluate.residual import run_above, run_residual
from ladle.plan import Function, Plan
from ladle.plan.aggregate import Make
from ladle.plan.answering import FoldedNode
from ladle.plan.as_of import NOW
from ladle.plan.nodes import Node, StreamScan, TableScan, leaves
from ladle.schema import ARRIVAL, TIMESTAMP, Column, StreamSchema, TableSchema
from ladle.sql import bind, folding_of
from ladle.sql.peel import relations_of, tree_of

_IS_ODD = Function(
    3,
    "is_odd",
    (Column("n", pa.int32()),),
    pa.bool_(),
    "def is_odd(n):\n    return pc.equal(pc.bit_wise_and(n, 1), 1)\n",
)
_LABELS = TableSchema((Column("k", pa.int32()), Column("label", pa.string())))


def names_of(specs: list[StreamSpec], queries: Mapping[str, str] | None = None) -> Names:
    streams = {
        spec.name: StreamSchema(tuple(Column(c.name, c.type) for c in spec.columns), spec.time) for spec in specs
    }
    return Names(streams, queries, [_IS_ODD], {"labels": _LABELS})


def check(plan: Plan, names: Names, rows: Callable[[Node], pa.Table], *, ordered: bool) -> Node:
    """Compare, and give the tree for a look at what it is made of."""
    tree = tree_of(plan, names)
    if plan.schema is None or (plan.residual.duckdb_sql is None and plan.residual.projection is None):
        return tree
    assert tree.names == tuple(plan.schema.names)
    assert [column.type for column in tree.columns] == plan.schema.types
    made = {leaf.digest: rows(leaf) for leaf in leaves(tree) if isinstance(leaf, StreamScan | TableScan)}
    relations = {}
    for relation, leaf, columns in _relations(plan, names):
        relations[relation] = made.setdefault(leaf.digest, rows(leaf)).select(columns)
    try:
        whole = run_residual(plan, relations, {NOW: WALL_US})
    except EvaluationError:
        return tree
    got = Evaluator(plan, lambda leaf: made[leaf.digest], WALL_US).answer(tree)
    specs = tuple(ColumnSpec(f"{at} {field.name}", field.type) for at, field in enumerate(whole.schema))
    expected = Expected(specs, rows_of(whole), ordered, WALL_US, plan.residual.spark_sql)
    wrong = difference(got, expected)
    assert wrong is None, f"{wrong}\n{plan.sql}\n{plan.residual.spark_sql}"
    check_above(plan, names, relations, expected)
    return tree


def check_above(plan: Plan, names: Names, relations: Mapping[str, pa.Table], expected: Expected) -> None:
    """The statement above the nodes that partial aggregates may give, over their rows as DuckDB computes them."""
    folding = folding_of(plan, names)
    if folding is None or folding.above is None:
        return
    given = dict(relations)
    for node in folding.nodes:
        rows = grouped(node, relations[plan.scans[node.scan].relation])
        given[node.relation] = rows
    got = run_above(plan, folding, given, {NOW: WALL_US})
    wrong = difference(got.rename_columns([spec.name for spec in expected.columns]), expected)
    assert wrong is None, f"{wrong}\n{plan.sql}\n{folding.above}"
    CHECKED["above"] += 1


CHECKED: Counter[str] = Counter()


def grouped(node: FoldedNode, rows: pa.Table) -> pa.Table:
    """The rows of a GroupBy, written in DuckDB's SQL from what is to be folded."""
    aggregate = node.aggregate
    outputs = []
    for output, field in zip(aggregate.outputs, node.schema, strict=True):
        if output.make is Make.WINDOW:
            text = 'struct_pack("start" := "_s", "end" := "_e")'
        elif output.make is Make.GROUP:
            text = f'"{aggregate.groups[output.at]}"'
        else:
            partial = aggregate.partials[output.at]
            word = "avg" if output.make is Make.AVERAGE else partial.fold.value.replace("rows", "count")
            text = f"{word}(*)" if partial.column is None else f'{word}("{partial.column}")'
        outputs.append(f'{text} AS "{field.name}"')
    keys = [f'"{name}"' for name in aggregate.groups]
    source = '"rows"'
    if aggregate.windows is not None:
        windows, time = aggregate.windows, f'"{aggregate.windows.column}"'
        keys += ['"_s"', '"_e"']
        starts = f"epoch_us({time}) - (epoch_us({time}) % {windows.slide_us}) + {windows.offset_us}"
        source = f"""(SELECT r.*, make_timestamp(s) AS "_s", make_timestamp(s + {windows.size_us}) AS "_e"
            FROM "rows" r, LATERAL (SELECT {starts} + i * {windows.slide_us} AS s
            FROM range(-{windows.size_us // windows.slide_us + 2}, 3) x(i))
            WHERE s <= epoch_us({time}) AND epoch_us({time}) < s + {windows.size_us})"""
    text = f"SELECT {', '.join(outputs)} FROM {source}" + (f" GROUP BY {', '.join(keys)}" if keys else "")
    answer = duck.run(text, {"rows": rows})
    columns = [column.cast(field.type) for column, field in zip(answer.columns, node.schema, strict=True)]
    return pa.Table.from_arrays(columns, schema=node.schema)


def _relations(plan: Plan, names: Names) -> list[tuple[str, Node, list[str]]]:
    nodes = relations_of(plan, names)
    return [(each.relation, nodes[each.relation], list(each.columns)) for each in (*plan.scans, *plan.tables)]


def stream_rows(rng: random.Random, specs: list[StreamSpec], make: Callable[..., Any]) -> Callable[[Node], pa.Table]:
    by_name = {spec.name: spec for spec in specs}

    def rows(leaf: Node) -> pa.Table:
        if isinstance(leaf, TableScan):
            keys = [rng.choice((None, 0, 1, 2, 3)) for _ in range(rng.randint(0, 4))]
            labels = [rng.choice((None, "a", "b")) for _ in keys]
            return pa.table([pa.array(keys, pa.int32()), pa.array(labels, pa.string())], ["k", "label"])
        assert isinstance(leaf, StreamScan)
        spec = by_name[leaf.stream]
        given = [each.values for each in make(rng, spec, WALL_US, rng.randint(0, 12))]
        arrays = [pa.array([stored(each.get(c.name), c.type) for each in given], c.type) for c in spec.columns]
        columns = [c.name for c in spec.columns]
        if spec.time is None:
            arrays.append(pa.array([WALL_US] * len(given), pa.int64()).cast(pa.timestamp("us", "UTC")))
            columns.append(ARRIVAL)
        return pa.table(arrays, columns)

    return rows


def _plain_rows(rng: random.Random, spec: StreamSpec, wall_us: int, count: int) -> Any:
    return random_rows(rng, spec, wall_us, count, misfits=False)


@settings(max_examples=40)
@given(st.integers(0, 2**32))
def test_trees_of_random_queries(seed: int) -> None:
    rng = random.Random(seed)
    specs = [random_stream(rng, f"s{number}") for number in range(2)]
    size = rng.randint(0, 3)
    below = QueryMaker(rng, specs, WALL_US, 1).query()
    query = QueryMaker(rng, specs, WALL_US, size, {"below": below}, first_name=100).query()
    names = names_of(specs, {"below": to_ladle(below)})
    rows = stream_rows(rng, specs, _plain_rows)
    check(bind(to_ladle(query), names), names, rows, ordered=is_ordered(query))


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_trees_of_random_groups(seed: int) -> None:
    """Queries that partial aggregates answer, and queries over these."""
    rng = random.Random(seed)
    specs = [random_stream(rng, f"s{number}") for number in range(2)]
    below = QueryMaker(rng, specs, WALL_US, 1).folding_query()
    query = QueryMaker(rng, specs, WALL_US, rng.randint(0, 2), {"below": below}, first_name=100).query()
    names = names_of(specs, {"below": to_ladle(below)})
    rows = stream_rows(rng, specs, _plain_rows)
    for each in (below, query):
        check(bind(to_ladle(each), names), names, rows, ordered=is_ordered(each))


@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_trees_of_random_joins(seed: int) -> None:
    rng = random.Random(seed)
    specs = [random_join_stream(rng, f"s{number}") for number in range(2)]
    query = JoinMaker(rng, specs, WALL_US).query()
    names = names_of(specs)
    check(bind(query.ladle, names), names, stream_rows(rng, specs, random_join_rows), ordered=False)


_HAS_SEVERAL_ANSWERS = re.compile(r"\b(LIMIT|OFFSET|FETCH|OVER)\b", re.I)
"""Rows that are equal in the keys of an order may come in any; the generators' orders are total."""


def _fixtures(name: str) -> list[str]:
    text = (Path(__file__).parent / "fixtures" / name).read_text(encoding="utf-8")
    return [block.splitlines()[0] for block in text.split("\n\n") if block.strip() and not block.startswith("#")]


@pytest.mark.parametrize("fixture", ["plans.txt", "trees.txt"])
def test_trees_of_fixtures(fixture: str) -> None:
    """Over rows of few values, with NULLs, so that keys meet and groups have several rows."""
    names = Catalog()
    values: dict[pa.DataType, tuple[Any, ...]] = {
        pa.string(): (None, "a", "b", "x"),
        pa.float64(): (None, 0.5, 1.0, 150.0),
        pa.int32(): (None, 0, 1, 2, 7),
        pa.int64(): (None, 0, 1, 2),
        pa.date32(): (None, date(2024, 1, 1)),
        TIMESTAMP: (datetime(2024, 1, 1, 0, 5, tzinfo=UTC), datetime(2024, 1, 1, 0, 25, tzinfo=UTC)),
    }
    compared = 0
    for number, query in enumerate(_fixtures(fixture)):
        rng = random.Random(number)

        def rows(leaf: Node, rng: random.Random = rng) -> pa.Table:
            known = names.table_schema(leaf.table) if isinstance(leaf, TableScan) else names.stream_schema(leaf.stream)
            fields = known[1].arrow
            count = rng.randint(0, 6)
            arrays = [pa.array([rng.choice(values.get(f.type, (None,))) for _ in range(count)], f.type) for f in fields]
            return pa.table(arrays, fields.names)

        plan = bind(query, names)
        if plan.residual.projection is None and not _HAS_SEVERAL_ANSWERS.search(query):
            check(plan, names, rows, ordered=False)
            compared += plan.residual.duckdb_sql is not None
    assert compared > 50
    if fixture == "trees.txt":
        assert CHECKED["above"] > 5
