"""EXPLAIN: the plan's tree, the standing part, the residual, the window's kind, coverage and mode, for people."""

from __future__ import annotations

from collections.abc import Sequence

from ladle import sql
from ladle.catalog import Catalog, QueryState
from ladle.engine.aggregates import Aggregates
from ladle.engine.auto import Auto
from ladle.engine.invoke import Invoker
from ladle.engine.joins import Joins
from ladle.engine.plan_tree import ExplainedNode, explain_tree
from ladle.engine.reader import Reader
from ladle.engine.store import Store
from ladle.plan import Engine, Plan
from ladle.sql.statements import Materialize

_MODES = {
    Materialize.NONE: "computed on invocation",
    Materialize.PARTIAL: "results kept per segment",
    Materialize.COMPLETE: "the current window's rows and answer kept current",
}


def explain_query(
    store: Store,
    catalog: Catalog,
    query: QueryState,
    wall_us: int,
    problem: str | None,
    invoker: Invoker,
    auto: Auto,
) -> str:
    mode = auto.mode(query)
    chosen = f"auto: {mode.value} now, because {auto.why(query)}: " if query.materialize is Materialize.AUTO else ""
    lines = [f"standing query {query.name}", f"  mode      {chosen or f'{mode.value}: '}{_MODES[mode]}"]
    if problem is not None:
        lines.append(f"  problem   {problem} (some segments stay uncovered and are computed on invocation)")
    return "\n".join(
        [
            *lines,
            *_plan_lines(store, catalog, query.plan, wall_us, _folding(query, invoker, auto), invoker.joins, query),
        ]
    )


def tree_of_text(store: Store, catalog: Catalog, text: str, invoker: Invoker, auto: Auto) -> ExplainedNode:
    """The tree of a standing query by its name, or of a SELECT."""
    query = catalog.query(text)
    plan = query.plan if query is not None else sql.bind(text, catalog, store.settings)
    aggregates = invoker.aggregates if query is None else _folding(query, invoker, auto)
    wall_us = store.clock.now_us()
    now_us = catalog.now_us(plan.streams, wall_us)
    folded = _folded(Reader(store, catalog, wall_us), catalog, plan, now_us, aggregates)
    return explain_tree(catalog, plan, query, _others(catalog, query), folded=folded is not None)


def _folding(query: QueryState, invoker: Invoker, auto: Auto) -> Aggregates | None:
    """What folds a standing query's tuples, if its mode allows to keep that."""
    return None if auto.mode(query) is Materialize.NONE else invoker.aggregates


def _others(catalog: Catalog, query: QueryState | None) -> list[QueryState]:
    return [each for each in catalog.standing() if query is None or each.id != query.id]


def _folded(
    reader: Reader, catalog: Catalog, plan: Plan, now_us: int | None, aggregates: Aggregates | None
) -> int | None:
    """How many segments there are partial aggregates of; None if they don't answer it."""
    if plan.residual.aggregate is None or plan.joined is not None or aggregates is None:
        return None
    return aggregates.segments(plan, catalog, reader.extent(plan.scans[0], now_us))


def explain_plan(store: Store, catalog: Catalog, plan: Plan, wall_us: int, invoker: Invoker) -> str:
    lines = ["one-off query", "  mode      computed once"]
    return "\n".join([*lines, *_plan_lines(store, catalog, plan, wall_us, invoker.aggregates, invoker.joins)])


def _plan_lines(
    store: Store,
    catalog: Catalog,
    plan: Plan,
    wall_us: int,
    aggregates: Aggregates | None,
    joins: Joins,
    query: QueryState | None = None,
) -> list[str]:
    reader = Reader(store, catalog, wall_us)
    now_us = catalog.now_us(plan.streams, wall_us)
    others = _others(catalog, query)
    segments = _folded(reader, catalog, plan, now_us, aggregates)
    tree = explain_tree(catalog, plan, query, others, folded=segments is not None)
    lines = ["  plan", *(f"    {line}" for line in tree.lines(query)), "  standing part"]
    for scan in plan.scans:
        extent = reader.extent(scan, now_us)
        covered, total = reader.count_covered(scan, extent)
        rows = reader.input_rows(scan, extent)
        lines.append(f"    {scan.relation} = {scan.block.stream}")
        kind, window = scan.window.kind.value, str(scan.window)
        lines.append(f"      window    {kind}" + ("" if window == kind else f": {window}"))
        for number, factor in enumerate(scan.block.factors):
            lines.append(f"      {'factors ' if number == 0 else '     and'}  {factor.sql}")
        if not scan.block.factors:
            lines.append("      factors   none: every tuple of the window")
        lines += _shared(catalog.block_id(scan.block), others, query)
        lines.append(f"      coverage  {covered} of {total} segments ({rows} tuples)")
        lines.append(f"      columns   {', '.join(scan.columns)}")
    if not plan.scans:
        lines.append("    none: no stream is read")
    for number, each in enumerate(plan.tables):
        rows = reader.table_rows(each)
        title = "tables" if number == 0 else "      "
        lines.append(f"  {title}    {each.relation} = {each.table}, as it stands: {rows} rows")
        lines.append(f"      columns   {', '.join(each.columns)}")
    lines += _join_lines(joins, catalog, plan, reader, now_us, others)
    for number, function in enumerate(plan.functions):
        lines.append(f"  {'functions' if number == 0 else '         '} {function.symbol} = {function.signature}")
    lines.append("  residual")
    residual = plan.residual if plan.joined is None else plan.joined.residual
    match residual.engine:
        case Engine.PROJECTION:
            of = "the standing part" if plan.joined is None else "the joins"
            lines.append(f"    engine    none: columns are picked from {of}")
        case Engine.DUCKDB:
            limit = store.settings.residual_rows_max
            lines.append(f"    engine    DuckDB in this process; Spark beyond {limit} input rows")
        case Engine.SPARK:
            lines.append(f"    engine    Spark: {residual.why_spark}")
    lines.append(f"    sql       {residual.spark_sql}")
    if segments is not None:
        lines.append(f"  answer    partial aggregates in a tree over {segments} segments")
    return lines


def _join_lines(
    joins: Joins, catalog: Catalog, plan: Plan, reader: Reader, now_us: int | None, others: Sequence[QueryState]
) -> list[str]:
    """The joins that are shared, and how far their pairs are known."""
    if plan.joined is None:
        return []
    extents = [reader.extent(scan, now_us) for scan in plan.scans]
    lines = ["  joins"]
    for edge, covered, total in joins.covered(plan, catalog, reader, extents):
        left, right = plan.scans[edge.left].relation, plan.scans[edge.right].relation
        on = " AND ".join(
            f"{left}.{factor.left.sql} {factor.relop.value} {right}.{factor.right.sql}" for factor in edge.pair.factors
        )
        lines.append(f"    {left}, {right}  {on}")
        sharing = sum(
            any(other.pair == edge.pair for join in each.shape.joined.joins for other in join.edges)
            for each in others
            if each.shape.joined is not None and each.name.lower() in catalog.queries.joining
        )
        if sharing:
            lines.append(f"      shared    with {sharing} other standing quer{'y' if sharing == 1 else 'ies'}")
        lines.append(f"      coverage  {covered} of {total} pairs of data files")
    return lines


def _shared(block_id: int | None, standing: Sequence[QueryState], asked: QueryState | None) -> list[str]:
    """Which queries have the same block: it is evaluated, and its results are kept, once for all of them."""
    others = sum(block_id in each.blocks for each in standing)
    if not others:
        return []
    queries = f"{others}{'' if asked is None else ' other'} standing quer{'y' if others == 1 else 'ies'}"
    return [f"      shared    with {queries}"]
