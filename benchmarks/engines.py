"""Which engine the queries of real suites need: none, DuckDB or Spark, and why Spark.

Nothing is run: each query is bound, and its plan says what runs it. A test compares the answers with Spark's.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks._suites import SUITES, load, needs

DESCRIPTION = "which engine the queries of TPC-H, NEXMark and a file of everyday questions need"
PAGE = Path("docs/benchmarks/engines.md")
_BEGIN, _END = "<!-- counted -->", "<!-- /counted -->"
_ENGINES = ("nothing", "DuckDB", "Spark", "refused")


def run(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks engines", description=DESCRIPTION)
    parser.add_argument("--page", type=Path, help=f"rewrite what is counted in this page, such as {PAGE}")
    options = parser.parse_args(arguments)
    counted = "\n".join(lines())
    sys.stdout.write(counted + "\n")
    if options.page is not None:
        text = options.page.read_text(encoding="utf-8")
        before, after = text.split(_BEGIN)[0], text.split(_END)[1]
        options.page.write_text(f"{before}{_BEGIN}\n{counted}\n{_END}{after}", encoding="utf-8")
    return 0


def lines() -> Iterator[str]:
    """The table of the page, and what needs Spark."""
    yield "| suite | queries | nothing but the index | DuckDB | Spark | refused | no Spark |"
    yield "| --- | --- | --- | --- | --- | --- | --- |"
    reasons: list[str] = []
    total: Counter[str] = Counter()
    for title, file in SUITES.items():
        counts: Counter[str] = Counter()
        for name, plan in load(file).plans.items():
            engine, why = needs(plan)
            counts[engine] += 1
            if why:
                reasons.append(f"| {title} | `{name}` | {engine} | {why.replace('|', ' ')} |")
        total += counts
        yield _row(title, counts)
    yield _row("all", total)
    yield ""
    yield "| suite | query | engine | why |"
    yield "| --- | --- | --- | --- |"
    yield from reasons


def _row(title: str, counts: Counter[str]) -> str:
    queries = counts.total()
    without = counts["nothing"] + counts["DuckDB"]
    each = " | ".join(str(counts[engine]) for engine in _ENGINES)
    return f"| {title} | {queries} | {each} | {100 * without // queries} % |"
