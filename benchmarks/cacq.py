"""The experiments of "Continuously Adaptive Continuous Queries over Streams" (CACQ), on Ladle.

Throughput against queries and sources, shared and with one eddy per query (section 3.1); filters per tuple by policy,
and tickets over time (section 3.3); NiagaraCQ's two plans (section 4).
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks._bars import (
    Bar,
    Quantity,
    Sense,
    absolute,
    at_most,
    faster,
    make_command,
    print_bars,
    versions,
    write_json,
)
from benchmarks._cacq_eddy import (
    OPTIMUM,
    TICKETS_SMALL,
    WITHIN,
    flip,
    hypothetical_optimum,
    over_queries,
    over_sources,
    policies,
    tickets,
)
from benchmarks._cacq_niagara import ENGINE, JOIN_FIRST, OURS, calls, create_functions, create_market, selections
from benchmarks._cacq_page import Found, claims, draw, write_cacq_page
from benchmarks._cacq_workload import create
from benchmarks._progress import Steps
from ladle.connection import connect

DESCRIPTION = "the experiments of the CACQ paper"

_SETTINGS = {"maintenance_seconds": 3_600.0, "factor_seconds_max": 20.0}
"""No compaction beside a measurement; and time for functions that are meant to be slow."""


@dataclass(frozen=True)
class Sizes:
    queries: tuple[int, ...] = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)
    sources: tuple[int, ...] = (1, 2, 4, 6, 8, 10)
    source_queries: int = 100
    rows: int = 1 << 18
    rounds: int = 5
    epoch: int = 1 << 19
    small: int = 1 << 16
    epochs: int = 4
    """Of the larger size, for each policy."""
    policy_runs: int = 7
    settle_epochs: int = 8
    flip_epochs: int = 12
    flip_runs: int = 11
    tickets_epoch: int = 1 << 16
    tickets_seconds: int = 30
    stocks: int = 2_250
    selections: tuple[int, ...] = (1, 5, 10, 25, 50, 100, 150, 200)
    selection_rounds: int = 15
    engine_rounds: int = 3
    articles: tuple[int, ...] = (1, 2, 4, 6, 8, 10)
    functions: int = 10
    call_rounds: int = 3


QUICK = Sizes(
    queries=(1, 20), sources=(1, 2), source_queries=10, rows=1 << 14, rounds=1, epoch=1 << 17, small=1 << 15, epochs=1,
    policy_runs=1, settle_epochs=2, flip_epochs=3, flip_runs=1, tickets_epoch=1 << 13, stocks=200,
    selections=(1, 10), selection_rounds=1, engine_rounds=1, articles=(1, 10), functions=2, call_rounds=1,
)  # fmt: skip


def run(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks cacq", description=DESCRIPTION)
    parser.add_argument("--quick", action="store_true", help="small and short, to see that it runs")
    parser.add_argument("--out", type=Path, metavar="DIR", default=Path("docs/benchmarks"), help="where the figures go")
    args = parser.parse_args(arguments)
    sizes = QUICK if args.quick else Sizes()
    with TemporaryDirectory(prefix="ladle-bench-") as scratch:
        found = measure(Path(scratch), sizes)
    bars = bars_of(found, sizes)
    name = "cacq-quick" if args.quick else "cacq"
    content = {
        "versions": versions("pyspark", "duckdb", "numpy", "numba"),
        "bars": [bar.to_json() for bar in bars],
        "claims": [asdict(claim) for claim in claims(found)],
        "hypothetical_optimum": hypothetical_optimum(),
        **asdict(found),
    }
    write_json(args.out / f"{name}.json", name, asdict(sizes), content)
    draw(found, args.out / f"{name}.svg")
    command = make_command("cacq", quick=args.quick)
    said = write_cacq_page(
        found, bars, args.out / f"{name}.md", command, quick=args.quick, rows=f"{sizes.rows:,}",
        queries=f"{sizes.source_queries:,}", epoch=f"{sizes.epoch:,}", small=f"{sizes.small:,}",
        tickets_epoch=f"{sizes.tickets_epoch:,}", stocks=f"{sizes.stocks:,}", functions=f"{sizes.functions}",
        seconds_max=_SETTINGS["factor_seconds_max"],
    )  # fmt: skip
    sys.stdout.write(said)
    print_bars(bars)
    sys.stdout.write(f"written: {', '.join(str(args.out / name) + ending for ending in ('.json', '.svg', '.md'))}\n")
    return 0


def measure(scratch: Path, sizes: Sizes) -> Found:
    total = len(sizes.queries) + len(sizes.sources) + 1 + sizes.flip_runs + 3 + 1
    total += len(sizes.selections) + len(sizes.articles)
    with Steps(total) as steps, connect(scratch / "warehouse", settings=_SETTINGS) as db:
        create(db)
        throughput = []
        for queries in sizes.queries:
            steps.step(f"throughput, {queries:,} queries")
            throughput.append(over_queries(db, scratch, queries, rows=sizes.rows, rounds=sizes.rounds))
        sources = []
        for number in sizes.sources:
            steps.step(f"throughput, {number} sources")
            sources.append(over_sources(
                db, scratch, number, queries=sizes.source_queries, rows=sizes.rows, rounds=sizes.rounds
            ))  # fmt: skip
        steps.step("filters per tuple by policy")
        visits = policies(
            db, scratch, epoch=sizes.epoch, small=sizes.small, epochs=sizes.epochs, runs=sizes.policy_runs
        )
        flips = []
        for seed in range(sizes.flip_runs):
            steps.step(f"selectivities flip, run {seed + 1}")
            flips.append(flip(
                db, scratch, epoch=sizes.small, before=sizes.settle_epochs, after=sizes.flip_epochs, seed=seed
            ))  # fmt: skip
        shares = []
        for workload in (1, 2, 3):
            steps.step(f"tickets over time, workload {workload}")
            shares.append(tickets(db, scratch, workload, epoch=sizes.tickets_epoch, seconds=sizes.tickets_seconds))
        create_market(db)
        steps.step("starting Spark")
        selections(db, scratch, 1, stocks=sizes.stocks, rounds=1, engine_rounds=1)
        plain = []
        for queries in sizes.selections:
            steps.step(f"NiagaraCQ's plans, {queries} queries")
            plain.append(selections(
                db, scratch, queries, stocks=sizes.stocks, rounds=sizes.selection_rounds,
                engine_rounds=sizes.engine_rounds,
            ))  # fmt: skip
        functions = create_functions(db, sizes.functions)
        called = []
        for articles in sizes.articles:
            steps.step(f"NiagaraCQ's plans, functions, {articles} articles per quote")
            called.append(calls(
                db, scratch, functions, articles, stocks=sizes.stocks,
                rounds=sizes.call_rounds if articles == max(sizes.articles) else 1,
            ))  # fmt: skip
    return Found(throughput, sources, visits, flips, shares, plain, called)


def bars_of(found: Found, sizes: Sizes) -> list[Bar]:
    unit = "filters/tuple"
    own, small = found.policy("tickets"), found.policy(TICKETS_SMALL)
    routed = at_most(
        "filters", f"tickets: filters visited per tuple against the best order known, epochs of {sizes.epoch:,} tuples",
        Quantity("tickets", unit, own.per_tuple),
        Quantity(f"order {OPTIMUM}", unit, found.policy(OPTIMUM).per_tuple), 1.1, 1.02,
    )  # fmt: skip
    what = f"tickets after a flip of selectivities: epochs until within {WITHIN} x of the new best"
    flipped = Quantity("tickets", "epochs", [each.epochs for each in found.flips])
    top = found.calls[-1]
    kernels = Quantity("kernels", "s", top.seconds[OURS])
    return [
        replace(routed, beside=f"epochs of {small.epoch:,}: {small.mean:.3f}"),
        absolute("flip", what, flipped, Sense.AT_MOST, 5, 2, beside=f"the most: {max(flipped.samples):g}"),
        faster(
            "calls", f"UDF before a fan-out-{top.x} join, against the fixed plan with the join first",
            Quantity(ENGINE, "s", top.seconds[ENGINE]), Quantity(JOIN_FIRST, "s", top.seconds[JOIN_FIRST]), 5, 10,
            beside=f"{kernels.text}, {top.median(JOIN_FIRST) / kernels.value:.1f} x",
        ),
    ]  # fmt: skip
