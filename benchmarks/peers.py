"""Ladle beside native Spark, DuckDB and Polars: every bar of "Thousands of standing queries at the price of one".

All alternatives run in one process group, on the same tuples, one after the other. A run that claims an arrival rate of
W1 or W1s compares its counts per query and over all tuples with DuckDB's, and fails if one differs.
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks._bars import Bar, make_command, print_bars, write_bars
from benchmarks._parts import PARTS
from benchmarks._progress import Steps
from benchmarks._rig import QUICK, Load, Rig, Sizes
from ladle.connection import connect
from ladle.errors import LadleError, unknown

DESCRIPTION = "every bar, beside native Spark, DuckDB and Polars"

_PAGE = """# Ladle beside its peers

Written by `{command}`. Ratios of alternatives measured in one run on one machine: {machine}.
With {versions}.{quick}

W1: a stream of four attributes, integers uniform in [0, 255]; a query has, per attribute with probability 0.6, an
interval `lo < x AND x <= lo + w`, lo and w uniform in [0, 255]. W1s: all four attributes, w uniform in [60, 140].
Windows of queries whose arrival rate is measured hold {window} tuples.

{met} of {total} bars are met{missed}

{table}

![values against their bars]({name}.svg)

- A rate of the streaming path is measured between the ends of neighbouring micro-batches of an attached Parquet source,
  one file each, so it includes Spark's own overhead on both sides. Ladle's numbers of queries take turns; plain Spark
  runs after them, on the first of the same files.
- Every arrival rate of W1 and W1s, Ladle's and plain Spark's, compared the counts of each query over all tuples with
  DuckDB's. The probe alone is compared with NumPy's counts; W3 with DuckDB at the last second read, and Spark's W3 not
  at all; answers of invocations with DuckDB once for each query, but not those given while the stream flows.
- Native Spark's rates, W3, invocations while the stream flows and `registering` are one sample each.
- Invocations: engine time as the answer says it; the wall time around the call is in brackets. DuckDB and Polars
  execute the same query over exactly the window's tuples, in memory and in their own format.
- Native Spark queries throw their rows away (`noop`), and the time to start them is not counted.
- All samples are in `{name}.json`, which the command writes beside this page, and which git leaves out.
"""


def run(arguments: Sequence[str]) -> int:
    args = _parser().parse_args(arguments)
    for name in args.only or ():
        if name not in PARTS:
            raise unknown("part", name, list(PARTS))
    _require_polars()
    sizes = QUICK if args.quick else Sizes()
    chosen = [name for name in PARTS if not args.only or name in args.only]
    with TemporaryDirectory(prefix="ladle-bench-") as scratch:
        bars = measure(Path(scratch), sizes, chosen)
    print_bars(bars)
    if args.only and args.out is None:
        sys.stdout.write("nothing written: with --only, say --out DIR\n")
        return 0
    command = make_command("peers", quick=args.quick)
    write_bars(
        bars, "peers", _PAGE, args.out, command, asdict(sizes), quick=args.quick,
        packages=("pyspark", "duckdb", "polars", "numpy", "numba"), window=f"{sizes.window:,}",
    )  # fmt: skip
    return 0


def measure(scratch: Path, sizes: Sizes, parts: Sequence[str]) -> list[Bar]:
    """The bars of some parts."""
    needed = {load for name in parts for load in PARTS[name].loads}
    loads = [load for load in Load if load in needed]
    with Steps(len(loads) * sizes.rounds + len(parts)) as steps, connect(scratch / "warehouse") as db:
        rig = Rig(db, sizes, scratch, steps)
        if loads:
            rig.measure_flows(loads)
        bars = []
        for name in parts:
            steps.step(name)
            # What the part before it left to be cleaned up is not done beside its measurement.
            db.maintain()
            gc.collect()
            bars += PARTS[name].measure(rig)
    return bars


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks peers", description=DESCRIPTION)
    parser.add_argument("--quick", action="store_true", help="small and short, to see that it runs")
    parser.add_argument("--only", nargs="+", metavar="PART", help=f"some parts of it: {', '.join(PARTS)}")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the figures go (default: docs/benchmarks)")
    return parser


def _require_polars() -> None:
    from importlib.util import find_spec

    if find_spec("polars") is None:
        raise LadleError(
            "This benchmark compares with Polars, which is not installed.", hint="pip install 'ladle[bench]'"
        )
