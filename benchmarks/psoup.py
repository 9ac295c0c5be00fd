"""The experiments of "PSoup: a system for streaming queries over streaming data" (sections 5.2 and 5.4), on Ladle.

Figures 7 (a), 7 (b) and 8: response time against the window, of selections and of joins; table 2: against the number of
factors; figure 9: arrival rate against the number of queries; figure 11: what composite tuples save when a join query
is new. The modes `none`, `partial` and `complete` are the paper's NoMat, PSoup-P and PSoup-C.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks._bars import make_command, print_bars, versions, write_json
from benchmarks._experiments import (
    SYSTEMS,
    Arrival,
    Response,
    arrivals,
    conditions,
    equalities,
    intervals,
    loaded,
    responses,
    streamed,
)
from benchmarks._join_experiments import (
    BAR_WINDOW,
    WORKLOADS,
    Probed,
    from_scratch,
    inequality_joins,
    join_bars,
    join_responses,
    joined_streams,
    probe_times,
)
from benchmarks._progress import Steps
from benchmarks._psoup_page import STREAMED, Found, draw, write_psoup_page
from ladle.connection import connect
from ladle.engine import Database

DESCRIPTION = "the experiments of the PSoup paper"


@dataclass(frozen=True)
class Sizes:
    windows: tuple[int, ...] = tuple(1 << power for power in range(7, 17))
    """Figure 7."""
    table_window: int = 1 << 15
    factors: tuple[int, ...] = (1, 2, 4, 6, 8)
    """Table 2, which has 2, 4 and 8."""
    asked: int = 128
    """Queries behind each point of figure 7 and table 2."""
    rounds: int = 5
    queries: tuple[int, ...] = tuple(1 << power for power in range(7, 13))
    """Figure 9."""
    arrival_window: int = 1_000
    probe_rows: int = 1 << 18
    epoch: int = 1 << 16
    arrival_rounds: int = 3
    streamed_rows: int = 1 << 19
    streamed_epochs: int = 3
    join_windows: tuple[int, ...] = (64, 128, 256, 384, 512, BAR_WINDOW, 640, 768, 1_024)
    """Figure 8, tuples of each stream."""
    joins: int = 32
    """Queries behind each point of it: more of all windows at once than may be kept complete would measure that."""
    hybrids: tuple[int, ...] = tuple(1 << power for power in range(6, 13))
    """Figure 11."""
    probes: int = 32
    probe_rounds: int = 5


QUICK = Sizes(
    windows=(128, 1_024), table_window=1_024, factors=(2, 8), asked=4, rounds=1, queries=(16, 32),
    probe_rows=1 << 13, epoch=1 << 11, arrival_rounds=1, streamed_rows=1 << 12, streamed_epochs=1,
    join_windows=(64, BAR_WINDOW), joins=3, hybrids=(64, 1_024), probes=4, probe_rounds=1,
)  # fmt: skip


def run(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks psoup", description=DESCRIPTION)
    parser.add_argument("--quick", action="store_true", help="small and short, to see that it runs")
    parser.add_argument("--out", type=Path, metavar="DIR", default=Path("docs/benchmarks"), help="where the figures go")
    args = parser.parse_args(arguments)
    sizes = QUICK if args.quick else Sizes()
    with TemporaryDirectory(prefix="ladle-bench-") as scratch:
        found = measure(Path(scratch), sizes)
    bars = join_bars(found.joins, found.probes)
    name = "psoup-quick" if args.quick else "psoup"
    content = {
        "versions": versions("pyspark", "duckdb", "numpy", "numba"),
        "figure_7a": [asdict(each) for each in found.equality],
        "figure_7b": [asdict(each) for each in found.interval],
        "figure_8": [asdict(each) for each in found.joins],
        "table_2": [asdict(each) for each in found.factors],
        "figure_9": [asdict(each) for each in found.arrivals],
        "figure_11": [asdict(each) for each in found.probes],
        "bars": [bar.to_json() for bar in bars],
    }
    write_json(args.out / f"{name}.json", name, asdict(sizes), content)
    draw(found, args.out / f"{name}.svg")
    command = make_command("psoup", quick=args.quick)
    page = args.out / f"{name}.md"
    sys.stdout.write(write_psoup_page(found, bars, page, command, quick=args.quick, epoch=sizes.epoch))
    print_bars(bars)
    sys.stdout.write(f"written: {', '.join(str(args.out / name) + ending for ending in ('.json', '.svg', '.md'))}\n")
    return 0


def measure(scratch: Path, sizes: Sizes) -> Found:
    steps_total = 4 * len(SYSTEMS) + 1 + 2 * len(sizes.queries) + len(WORKLOADS)
    with Steps(steps_total) as steps, connect(scratch / "warehouse") as db:
        equality = _over_windows(db, steps, "figure_7a", equalities(sizes.asked, seed=21), sizes)
        texts = [selection.condition for selection in intervals(sizes.asked, seed=22)]
        interval = _over_windows(db, steps, "figure_7b", texts, sizes)
        joins = _joins(db, steps, sizes)
        factors = _over_factors(db, steps, sizes)
        rates = [_arrivals(db, steps, scratch, queries, sizes) for queries in sizes.queries]
        probes = [probed for workload in WORKLOADS for probed in _probes(steps, workload, sizes)]
    return Found(equality, interval, factors, rates, joins, probes)


def _over_windows(db: Database, steps: Steps, name: str, texts: Sequence[str], sizes: Sizes) -> list[Response]:
    found: list[Response] = []
    for system in SYSTEMS:
        steps.step(f"{name}, {system}: {len(texts)} queries, {len(sizes.windows)} windows")
        stream = f"{name}_{SYSTEMS[system]}"
        with loaded(db, stream, 2 * max(sizes.windows)):
            found += responses(db, stream, system, texts, sizes.windows, sizes.rounds, name=stream)
    return found


def _joins(db: Database, steps: Steps, sizes: Sizes) -> list[Response]:
    queries = inequality_joins(sizes.joins, seed=24)
    found: list[Response] = []
    for system, mode in SYSTEMS.items():
        steps.step(f"figure 8, {system}: {len(queries)} queries, {len(sizes.join_windows)} windows")
        with joined_streams(db, f"figure_8_{mode}", 2 * max(sizes.join_windows)) as streams:
            found += join_responses(db, streams, system, queries, sizes.join_windows, sizes.rounds)
            if mode == "complete":
                steps.step("figure 8, others from scratch")
                found += from_scratch(db, streams, queries, sizes.join_windows, sizes.rounds)
    return found


def _probes(steps: Steps, workload: str, sizes: Sizes) -> list[Probed]:
    steps.step(f"figure 11, {workload}")
    return [probe_times(workload, hybrids, sizes.probes, sizes.probe_rounds) for hybrids in sizes.hybrids]


def _over_factors(db: Database, steps: Steps, sizes: Sizes) -> list[Response]:
    """Like a window of one size for each number of factors; what is on the x axis is their number."""
    found = []
    for system in SYSTEMS:
        steps.step(f"table 2, {system}: {len(sizes.factors)} numbers of factors")
        stream = f"table_2_{SYSTEMS[system]}"
        with loaded(db, stream, 2 * sizes.table_window):
            for factors in sizes.factors:
                texts = conditions(sizes.asked, seed=30 + factors, factors=factors)
                (one,) = responses(
                    db, stream, system, texts, [sizes.table_window], sizes.rounds, name=f"{stream}_{factors}"
                )
                found.append(Response(system, factors, one.engine_ms, one.wall_ms, one.rows))
    return found


def _arrivals(db: Database, steps: Steps, scratch: Path, queries: int, sizes: Sizes) -> Arrival:
    steps.step(f"figure 9, {queries:,} queries")
    kernels = arrivals(
        db, scratch, queries, rows=sizes.probe_rows, epoch=sizes.epoch, rounds=sizes.arrival_rounds,
        window_tuples=sizes.arrival_window,
    )  # fmt: skip
    steps.step(f"figure 9, {queries:,} queries, streaming path")
    whole = streamed(
        db, scratch, queries, rows=sizes.streamed_rows, epochs=sizes.streamed_epochs,
        window_tuples=sizes.arrival_window,
    )  # fmt: skip
    return Arrival(queries, {**kernels.rates, STREAMED: whole})
