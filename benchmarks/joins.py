"""Joins beside Spark's own: the bars of "Joins, and the eddy that routes them" that are about W2.

All alternatives run in one process group, on the same tuples, one after the other, and each compares the number of
pairs of every query with DuckDB's.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks._bars import (
    Bar,
    Quantity,
    at_most,
    higher,
    make_command,
    print_bars,
    write_bars,
)  # fmt: skip
from benchmarks._joining import (
    BAND,
    EQUALITY,
    STEP_US,
    WINDOW_US,
    JoinQuery,
    check_pairs,
    join_flow,
    join_queries,
    joined_tuples,
    native_joins,
    pairs_by_duckdb,
    shared_join,
    write_streams,
)
from benchmarks._progress import Steps
from ladle.connection import connect
from ladle.engine import Database
from ladle.plan import JoinFactor, JoinKey, PairJoin, Reach, Relop
from ladle.stem.data_stem import DataStem, join

DESCRIPTION = "joins of streams, beside Spark's own stream-stream joins"

_RATE = "tuples/s"
_SETTINGS = {"maintenance_seconds": 3_600.0}
"""Pairs beyond every window stay, so that all of them can be counted in the end."""

_PAGE = """# Joins beside Spark's own

Written by `{command}`. Ratios of alternatives measured in one run on one machine: {machine}.
With {versions}.{quick}

W2: `r(ts, a, x)` and `s(ts, b, y)`, keys uniform in [0, 9999], {rows} tuples of each in an epoch, windows of the last
10,000 tuples of each by time; a query has filters `x < c1` and `y < c2` that each pass about half.

{met} of {total} bars are met{missed}

{table}

![values against their bars]({name}.svg)

- Tuples per second are those of both streams. Ladle's time runs from the end of the first epoch of both to the moment
  when the pairs of all tuples are found and kept. The bars are about tuples that two clients push, a table for each
  epoch, durable before it is acknowledged and visible before the next; in brackets, the same through two Spark file
  sources, a file for each epoch, whose micro-batches cost more than the epochs in them. Native Spark reads the files,
  one of each stream per micro-batch: it has no pushes.
- Native joins throw their rows away (`noop`), and the time to start them is not counted. One join with CASE sums is
  measured between the ends of micro-batches.
- Every run, Ladle's and Spark's, compared the number of pairs of each query over all tuples with DuckDB's.
- The band join is measured as the kernel that finds pairs, over two SteMs of {rows} tuples in memory: time per pair.
- All samples are in `{name}.json`, which the command writes beside this page, and which git leaves out.
"""


@dataclass(frozen=True)
class Sizes:
    rows: int = 1 << 16
    epochs: int = 16
    rounds: int = 2
    native_epochs: int = 8
    many: int = 100
    native: int = 10
    kernel_rounds: int = 7


QUICK = Sizes(rows=1 << 12, epochs=3, rounds=1, native_epochs=2, many=5, native=2, kernel_rounds=1)


def run(arguments: Sequence[str]) -> int:
    args = _parser().parse_args(arguments)
    sizes = QUICK if args.quick else Sizes()
    with TemporaryDirectory(prefix="ladle-bench-") as scratch:
        bars = measure(Path(scratch), sizes)
    print_bars(bars)
    command = make_command("joins", quick=args.quick)
    write_bars(
        bars, "joins", _PAGE, args.out, command, {**asdict(sizes), "step_us": STEP_US}, quick=args.quick,
        packages=("pyspark", "duckdb", "numpy", "pyarrow"), rows=f"{sizes.rows:,}",
    )  # fmt: skip
    return 0


def measure(scratch: Path, sizes: Sizes) -> list[Bar]:
    inputs = write_streams(scratch / "inputs", sizes.epochs, sizes.rows)
    fewer = write_streams(scratch / "fewer", sizes.native_epochs, sizes.rows)
    many, some, one = (join_queries(count) for count in (sizes.many, sizes.native, 1))
    with Steps(6 * sizes.rounds + 4) as steps, connect(scratch / "warehouse", settings=_SETTINGS) as db:
        ours: dict[tuple[int, bool], list[float]] = {}
        for number in range(sizes.rounds):
            for queries in (one, some, many):
                for pushed in (True, False):
                    how = "pushed" if pushed else "file sources"
                    steps.step(f"{len(queries)} join queries, {how}, round {number + 1}")
                    name = f"j{number}x{len(queries)}{'p' if pushed else 'f'}"
                    flow = join_flow(db, name, inputs, sizes.rows, queries, pushed=pushed)
                    check_pairs(f"{len(queries)} joins, {how}", flow.pairs, pairs_by_duckdb(inputs, queries))
                    ours.setdefault((len(queries), pushed), []).append(flow.seconds)
        rates = {
            key: Quantity("Ladle", _RATE, [2 * sizes.rows / seconds for seconds in own]) for key, own in ours.items()
        }

        def measured(queries: Sequence[JoinQuery]) -> tuple[Quantity, str]:
            return rates[len(queries), True], f"file sources {rates[len(queries), False].text}"

        steps.step("one native stream-stream join")
        bars = [_beside_native(db, fewer, scratch / "one", one, *measured(one), 5, 20)]
        bars.append(_growth(sizes, ours))
        steps.step(f"{sizes.native} native stream-stream joins")
        bars.append(_beside_native(db, fewer, scratch / "some", some, *measured(some), 30, 100))
        steps.step("one native join, and a CASE per query")
        bars.append(_beside_cases(db, fewer, scratch / "cases", sizes, many, *measured(many)))
        steps.step("band join")
        bars.append(_band(sizes))
    return bars


def _growth(sizes: Sizes, ours: dict[tuple[int, bool], list[float]]) -> Bar:
    many, one = (Quantity(f"{count} queries", "s/epoch", ours[count, True]) for count in (sizes.many, 1))
    return at_most("growth", f"{sizes.many} join queries with different filters against one, time", many, one, 2, 1.2)


def _beside_native(
    db: Database,
    inputs: Path,
    scratch: Path,
    queries: Sequence[JoinQuery],
    ours: Quantity,
    beside: str,
    bar: float,
    aim: float,
) -> Bar:
    scratch.mkdir()
    native = native_joins(db.spark, inputs, queries, scratch)
    check_pairs("native joins", native.counts, pairs_by_duckdb(inputs, queries))
    count = f"{len(queries)} join queries" if len(queries) > 1 else "one join query"
    theirs = Quantity("Spark", _RATE, [native.rate])
    what = f"{count}, against as many native Spark stream-stream joins"
    return replace(higher("native", what, ours, theirs, bar, aim), beside=beside)


def _beside_cases(
    db: Database, inputs: Path, scratch: Path, sizes: Sizes, queries: Sequence[JoinQuery], ours: Quantity, beside: str
) -> Bar:
    scratch.mkdir()
    rate, counts = shared_join(db.spark, inputs, sizes.rows, queries, scratch)
    check_pairs("one native join", counts, pairs_by_duckdb(inputs, queries))
    what = f"{len(queries)} join queries, against one native stream-stream join and a CASE per query"
    return replace(higher("cases", what, ours, Quantity("Spark", _RATE, [rate]), 4, 8), beside=beside)


def _band(sizes: Sizes) -> Bar:
    """The kernel alone: nanoseconds per pair."""
    r, s = (joined_tuples(name, sizes.rows, 0) for name in "rs")
    reach = Reach(-WINDOW_US, WINDOW_US)
    measured = {}
    for name, pair in (("equality", _pair(EQUALITY)), ("band", _pair(BAND))):
        samples = []
        for _ in range(sizes.kernel_rounds + 1):
            began = time.perf_counter()
            left = DataStem.of(r, "ts", pair.keys(left=True))
            right = DataStem.of(s, "ts", pair.keys(left=False))
            found = join(left, right, pair, reach, pairs_max=1 << 30)
            samples.append((time.perf_counter() - began) / max(len(found.left), 1) * 1e9)
        measured[name] = Quantity(name, "ns/pair", samples[1:])
    what = "band join r.a > s.b - 5 AND r.a < s.b + 5 against equality join, per pair"
    return at_most("band", what, measured["band"], measured["equality"], 3, 1.5)


def _pair(on: str) -> PairJoin:
    a, b = JoinKey("`a`", ("a",)), JoinKey("`b`", ("b",))
    if on == EQUALITY:
        return PairJoin("r", "s", (JoinFactor(a, Relop.EQ, b),))
    low, high = JoinKey("`b` - 5", ("b",), '"b" - 5'), JoinKey("`b` + 5", ("b",), '"b" + 5')
    return PairJoin("r", "s", (JoinFactor(a, Relop.GT, low), JoinFactor(a, Relop.LT, high)))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks joins", description=DESCRIPTION)
    parser.add_argument("--quick", action="store_true", help="small and short, to see that it runs")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the figures go (default: docs/benchmarks)")
    return parser
