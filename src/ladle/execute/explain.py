"""EXPLAIN: the plan's tree, the standing part, the residual, the window's kind, coverage and mode, for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from ladle import sql
from ladle.catalog import Catalog, QueryState
from ladle.catalog.store import Store
from ladle.derived import Level
from ladle.execute.complete_answers import KeptAnswer
from ladle.execute.demands import Demands
from ladle.execute.invoke import Invoker
from ladle.execute.join_answers import Joins
from ladle.execute.node_rows import Nodes
from ladle.execute.node_state import answer_in_memory, fold_states, join_states, scan_in_memory, scan_state
from ladle.execute.past import extent_of, extents_of
from ladle.execute.plan_tree import States, explain_tree
from ladle.execute.reader import Reader
from ladle.handles import PlanTree
from ladle.plan import Engine, Plan
from ladle.plan.answering import Folding
from ladle.sql.statement_types import Materialize

_LEVELS = {
    Level.NOTHING: "computed on invocation",
    Level.RESULTS: "results kept per segment",
    Level.ANSWER: "the current window's rows and answer kept current",
}


def explain_query(
    store: Store,
    catalog: Catalog,
    query: QueryState,
    wall_us: int,
    problem: str | None,
    invoker: Invoker,
    demands: Demands,
    kept: KeptAnswer | None,
) -> str:
    """What EXPLAIN QUERY says of a standing query; `kept` is what is held of its answer, if that is demanded."""
    level = demands.level(query)
    chosen = f"auto: {level.mode} now, because {demands.why(query)}: " if query.materialize is Materialize.AUTO else ""
    lines = [f"standing query {query.name}", f"  mode      {chosen or f'{level.mode}: '}{_LEVELS[level]}"]
    if query.broken is not None:
        hint = query.remedy(query.broken)
        return "\n".join([lines[0], f"  broken    {query.broken}", f"  hint      {hint}", f"  sql       {query.sql}"])
    if problem is not None:
        lines.append(f"  problem   {problem} (some segments stay uncovered and are computed on invocation)")
    return "\n".join(
        [
            *lines,
            *_plan_lines(store, catalog, query.plan, wall_us, _nodes(query, invoker, demands), invoker, query, kept),
        ]
    )


def tree_of_text(
    store: Store,
    catalog: Catalog,
    text: str,
    invoker: Invoker,
    demands: Demands,
    kept_of: Callable[[QueryState], KeptAnswer | None],
    *,
    analyze: bool = False,
) -> PlanTree | None:
    """The tree of a standing query by its name, or of a SELECT, as plain values; with `analyze`, each node is run and
    measured. None of a query that is broken.
    """
    query = catalog.query(text)
    if query is not None and query.broken is not None:
        return None
    plan = query.plan if query is not None else sql.bind(text, catalog, store.settings)
    nodes = invoker.nodes if query is None else _nodes(query, invoker, demands)
    wall_us = store.clock.now_us()
    reader, now_us = Reader(store, catalog, wall_us), catalog.now_us(plan.streams, wall_us)
    tree = sql.tree_of(plan, catalog)
    folding, _ = _folded(reader, catalog, plan, now_us, nodes)
    kept = None if query is None else kept_of(query)
    states = _states(store, catalog, plan, reader, now_us, folding, invoker, kept)
    if analyze:
        states = replace(states, measured=invoker.measured(plan, tree, catalog))
    return explain_tree(catalog, plan, tree, query, _others(catalog, query), states).to_json()


def _states(
    store: Store,
    catalog: Catalog,
    plan: Plan,
    reader: Reader,
    now_us: int | None,
    folding: Folding | None,
    invoker: Invoker,
    kept: KeptAnswer | None,
) -> States:
    """What is kept of a plan's nodes."""
    extents = extents_of(plan, catalog, reader, now_us, check=False)
    scans = {
        number: scan_state(store, catalog, reader, scan, extent)
        for number, (scan, extent) in enumerate(zip(plan.scans, extents, strict=True))
    }
    prepared = invoker.nodes.prepared(plan, catalog)
    folds = {} if folding is None else fold_states(invoker.nodes, prepared, catalog, extents)
    joins = {} if plan.joined is None else join_states(invoker.joins.covered(plan, catalog, reader, extents))
    if kept is None:
        return States(folding, scans, folds, joins)
    held = (
        (number, scan_in_memory(kept, number, reader, scan, extent))
        for number, (scan, extent) in enumerate(zip(plan.scans, extents, strict=True))
    )
    rows = {number: each for number, each in held if each is not None}
    return States(folding, scans, folds, joins, answer_in_memory(kept, catalog, extents, now_us), rows)


def _nodes(query: QueryState, invoker: Invoker, demands: Demands) -> Nodes | None:
    """What answers a standing query by nodes, if anything is demanded for it."""
    return None if demands.level(query) is Level.NOTHING else invoker.nodes


def _others(catalog: Catalog, query: QueryState | None) -> list[QueryState]:
    standing = (each for each in catalog.standing() if each.broken is None)
    return [each for each in standing if query is None or each.id != query.id]


def _folded(
    reader: Reader, catalog: Catalog, plan: Plan, now_us: int | None, nodes: Nodes | None
) -> tuple[Folding | None, int]:
    """How partial aggregates answer a plan, and over how many segments; None if they don't."""
    if nodes is None:
        return None, 0
    prepared = nodes.prepared(plan, catalog)
    total = 0
    for each in prepared.nodes:
        segments = nodes.aggregates.segments(each, catalog, extent_of(plan, each.scan, catalog, reader, now_us))
        if segments is None:
            return None, 0
        total += segments
    return prepared.folding, total


def explain_plan(store: Store, catalog: Catalog, plan: Plan, wall_us: int, invoker: Invoker) -> str:
    """What EXPLAIN says of a SELECT that does not stand."""
    lines = ["one-off query", "  mode      computed once"]
    return "\n".join([*lines, *_plan_lines(store, catalog, plan, wall_us, invoker.nodes, invoker)])


def _plan_lines(
    store: Store,
    catalog: Catalog,
    plan: Plan,
    wall_us: int,
    nodes: Nodes | None,
    invoker: Invoker,
    query: QueryState | None = None,
    kept: KeptAnswer | None = None,
) -> list[str]:
    reader = Reader(store, catalog, wall_us)
    now_us = catalog.now_us(plan.streams, wall_us)
    others = _others(catalog, query)
    folding, segments = _folded(reader, catalog, plan, now_us, nodes)
    states = _states(store, catalog, plan, reader, now_us, folding, invoker, kept)
    tree = explain_tree(catalog, plan, sql.tree_of(plan, catalog), query, others, states)
    lines = ["  plan", *(f"    {line}" for line in tree.lines(query)), "  standing part"]
    for scan in plan.scans:
        extent = extent_of(plan, scan, catalog, reader, now_us)
        covered, total = reader.count_covered(scan, extent)
        rows = reader.input_rows(scan, extent)
        lines.append(f"    {scan.relation} = {scan.block.stream}")
        if scan.as_of is not None:
            lines.append(f"      moment    {scan.as_of}")
        if scan.sample is not None:
            lines.append(f"      sample    {scan.sample.percent} % of the tuples: {scan.sample}")
        kind, window = scan.window.kind.value, str(scan.window)
        lines.append(f"      window    {kind}" + ("" if window == kind else f": {window}"))
        for number, factor in enumerate(scan.block.factors):
            lines.append(f"      {'factors ' if number == 0 else '     and'}  {factor.sql}")
        if not scan.block.factors:
            lines.append("      factors   none: every tuple of the window")
        lines += _shared(catalog.block_id(scan.block), others, query)
        about = "" if scan.sample is None else "about "
        lines.append(f"      coverage  {covered} of {total} segments ({about}{rows} tuples)")
        lines.append(f"      columns   {', '.join(scan.columns)}")
    if not plan.scans:
        lines.append("    none: no stream is read")
    for number, each in enumerate(plan.tables):
        title = "tables" if number == 0 else "      "
        stands = f"as it stands: {reader.table_rows(each)} rows" if each.as_of is None else str(each.as_of)
        lines.append(f"  {title}    {each.relation} = {each.table}, {stands}")
        lines.append(f"      columns   {', '.join(each.columns)}")
    for as_of in plan.nows:
        of = ", ".join((*as_of.streams, *as_of.tables)) or "nothing"
        lines.append(f"  now       :{as_of.parameter} is NOW as of entry {as_of.entry}, of {of}")
    lines += _join_lines(invoker.joins, catalog, plan, reader, now_us, others)
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
            lines.append(f"    engine    DuckDB in this process; Spark beyond {limit:,} input rows")
        case Engine.SPARK:
            lines.append(f"    engine    Spark: {residual.why_spark}")
    lines.append(f"    sql       {residual.spark_sql}")
    if folding is not None:
        above = "" if folding.above is None else ", and DuckDB over their rows"
        of = "1 segment" if segments == 1 else f"{segments} segments"
        lines.append(f"  answer    partial aggregates in a tree over {of}{above}")
    return lines


def _join_lines(
    joins: Joins, catalog: Catalog, plan: Plan, reader: Reader, now_us: int | None, others: Sequence[QueryState]
) -> list[str]:
    """The joins that are shared, and how far their pairs are known."""
    if plan.joined is None:
        return []
    extents = extents_of(plan, catalog, reader, now_us, check=False)
    lines = ["  joins"]
    for edge, covered, total, *_ in joins.covered(plan, catalog, reader, extents):
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
