"""The server under load: the bars of "The server, the client and the console".

The server is `ladle serve` in a process of its own, with Spark; the clients are processes too, all on this machine. The
time of an epoch is how long a push of the flow takes until it is visible.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks._bars import Bar, Quantity, Sense, absolute, at_most, make_command, print_bars, write_bars
from benchmarks._progress import Steps
from ladle.connection import connect
from ladle.errors import LadleError

DESCRIPTION = "invocations, pushes and subscribers over HTTP, while a stream flows"

_STREAM = "flow"
_ASKED_RATE = 330
"""Questions a second, while the time of an epoch is compared with that when nobody asks; a few come late."""
_ROUNDS = 3
"""How often they take turns: what the machine does meanwhile is then in all of them."""
_IDLE = 100
"""Queries that idle subscribers listen to, all of them different."""
_PAGE = """# The server under load

Written by `{command}`. {machine}. With {versions}.{quick}

A stream of four attributes, uniform in [0, 255], flows in over HTTP at {rate} tuples/s, in Arrow; {queries} standing
queries select about 100 rows each of the last ten seconds. Server and clients share the machine's cores.

{met} of {total} bars are met{missed}

{table}

![values against their bars]({name}.svg)

- An invocation is a request over a connection that stays open, its answer as JSON, any of the queries at random.
- The time of an epoch is how long a push of the flow takes until it is visible: its way over HTTP, its Spark job and
  commit. Beside nothing, beside answers and beside subscribers it is measured in turns, three rounds of each.
- Pushes are acknowledged when they are durable. What was pushed is visible a little later: in brackets, the rate up to
  then.
- Subscribers have Server-Sent Events; idle ones listen to queries that select nothing, slow ones to one that selects
  every row, and read none of it. The server's memory before and with them is in brackets.
- Kills under load are a test, `tests/server/test_kill.py`; requests of nonsense another, `tests/server/test_fuzz.py`.
- All samples are in `{name}.json`, which the command writes beside this page, and which git leaves out.
"""


@dataclass(frozen=True)
class Sizes:
    queries: int = 1_000
    rate: int = 50_000
    every: float = 1.0
    """Seconds of the flow in one push."""
    warm_seconds: float = 20.0
    seconds: float = 20.0
    clients: int = 16
    pushers: int = 4
    push_rows: int = 10_000
    subscribers: int = 1_000
    slow: int = 100


QUICK = Sizes(
    queries=20, rate=5_000, every=0.5, warm_seconds=1.0, seconds=1.5, clients=2, pushers=2, push_rows=1_000,
    subscribers=20, slow=2,
)  # fmt: skip


def run(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks server", description=DESCRIPTION)
    parser.add_argument("--quick", action="store_true", help="small and short, to see that it runs")
    parser.add_argument("--out", type=Path, metavar="DIR", help="where the figures go (default: docs/benchmarks)")
    args = parser.parse_args(arguments)
    sizes = QUICK if args.quick else Sizes()
    with TemporaryDirectory(prefix="ladle-bench-") as scratch:
        bars = measure(Path(scratch), sizes)
    print_bars(bars)
    command = make_command("server", quick=args.quick)
    write_bars(
        bars, "server", _PAGE, args.out, command, asdict(sizes), quick=args.quick,
        packages=("pyspark", "fastapi", "uvicorn", "pyarrow"), rate=f"{sizes.rate:,}", queries=f"{sizes.queries:,}",
    )  # fmt: skip
    return 0


def measure(scratch: Path, sizes: Sizes) -> list[Bar]:
    with Steps(6) as steps:
        steps.step("starting the server, and Spark")
        with served(scratch / "warehouse") as (url, process):
            names = _prepare(url, sizes)
            flow = {"stream": _STREAM, "rate": sizes.rate, "every": sizes.every}
            steps.step("warming up, the stream flowing")
            with client("flowing", url, flow):
                time.sleep(sizes.warm_seconds)
            steps.step("one client asks")
            with client("flowing", url, flow), client("invoking", url, {"names": names, "clients": 1}) as one:
                time.sleep(sizes.seconds)
            steps.step(f"{sizes.clients} clients ask")
            asking = {"names": names, "clients": sizes.clients}
            with client("flowing", url, flow) as pressed, client("invoking", url, asking) as many:
                time.sleep(sizes.seconds)
            steps.step(
                f"nobody, {sizes.clients} clients that ask {_ASKED_RATE} times a second, and {sizes.subscribers:,} "
                "subscribers, in turns"
            )
            listening = {
                "subscribers": sizes.subscribers,
                "slow": sizes.slow,
                "names": [f"nothing_{number}" for number in range(_IDLE)],
                "slow_name": "everything",
            }
            alone, asked, paced, subscribed = list[float](), list[float](), list[float](), list[float]()
            before = _memory_bytes(process)
            for _ in range(_ROUNDS):
                alone += _epochs(url, flow, sizes)
                with client("invoking", url, {**asking, "rate": _ASKED_RATE}) as asks:
                    asked += _epochs(url, flow, sizes)
                paced += asks["seconds"]
                with client("subscribing", url, listening) as _:
                    subscribed += _epochs(url, flow, sizes)
                    after = _memory_bytes(process)
            steps.step(f"{sizes.pushers} clients push")
            pushed = _pushes(url, sizes)
    return [
        *_invocations(one, many, paced, sizes),
        _growth(alone, asked, pressed["seconds"], len(paced) / (_ROUNDS * sizes.seconds)),
        _push_bar(pushed, sizes),
        _subscriber_bar(alone, subscribed, before, after, sizes),
    ]


@contextmanager
def served(warehouse: Path) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """`ladle serve` with a port of its own."""
    command = [sys.executable, "-m", "ladle.cli", "serve", "-w", str(warehouse), "--port", "0", "--log", "warning"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        if " at http" not in first:
            raise LadleError(f"The server did not start: {first!r}.")
        yield first.partition(" at ")[2].split()[0], process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


@contextmanager
def client(role: str, url: str, how: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """A process of clients; what it measured is in the dictionary afterwards."""
    command = [sys.executable, "-m", "benchmarks._clients", role, url, json.dumps(how)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    if role == "subscribing":
        process.stdout.readline()
    result: dict[str, Any] = {}
    try:
        yield result
    finally:
        output, _ = process.communicate(timeout=180)
    if process.returncode:
        raise LadleError(f"The clients that were {role} failed.")
    result |= json.loads(output.splitlines()[-1])


def _prepare(url: str, sizes: Sizes) -> list[str]:
    """The stream, and queries of about a hundred rows each."""
    rng = np.random.default_rng(5)
    rows = sizes.rate * 10
    width = max(round(100 * 256 * 256 / rows), 1)
    texts = {}
    for number in range(sizes.queries):
        a, b = int(rng.integers(256)), int(rng.integers(max(256 - width, 1)))
        condition = f"a = {a} AND b >= {b} AND b < {b + width}"
        texts[f"q{number}"] = f"SELECT * FROM {_STREAM} [RANGE 10 SECONDS] WHERE {condition}"
    nothing = {f"nothing_{number}": f"SELECT * FROM {_STREAM} WHERE a > {300 + number}" for number in range(_IDLE)}
    with connect(url) as db:
        db.sql(
            f"CREATE STREAM {_STREAM} (ts TIMESTAMP, a INT, b INT, c INT, d INT) TIMESTAMP BY ts RETAIN INTERVAL 1 DAY"
        )
        db.sql("CREATE STREAM pushed (ts TIMESTAMP, a INT, b INT, c INT, d INT) TIMESTAMP BY ts")
        db.register_many(texts, materialize="partial")
        db.register_many({**nothing, "everything": f"SELECT * FROM {_STREAM}"}, materialize="partial")
        for stream in (_STREAM, "pushed"):  # which also waits for Spark
            db.push(stream, [{"ts": "2020-01-01 00:00:00", "a": 1}], wait=True)
    return list(texts)


def _epochs(url: str, flow: dict[str, Any], sizes: Sizes) -> list[float]:
    with client("flowing", url, flow) as flowed:
        time.sleep(sizes.seconds)
    return list(flowed["seconds"][1:] or flowed["seconds"])


def _pushes(url: str, sizes: Sizes) -> dict[str, Any]:
    how = {"stream": "pushed", "clients": sizes.pushers, "rows": sizes.push_rows}
    began = time.perf_counter()
    with client("pushing", url, how) as pushed:
        time.sleep(sizes.seconds)
    with connect(url) as db:
        db.push("pushed", [{"ts": "2020-01-01 00:00:00", "a": 1}], wait=True)
        pushed["visible_seconds"] = time.perf_counter() - began
        there = int(db.sql("SELECT count(*) AS n FROM pushed").table.column("n")[0].as_py())
    if there != pushed["rows"] + 2:
        raise LadleError(f"{pushed['rows']:,} rows were acknowledged, and {there - 2:,} are there.")
    return pushed


def _memory_bytes(process: subprocess.Popen[str]) -> int:
    status = Path(f"/proc/{process.pid}/status").read_text()
    line = next(line for line in status.splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) * 1_024


def _invocations(one: dict[str, Any], many: dict[str, Any], paced: list[float], sizes: Sizes) -> list[Bar]:
    ms = [1e3 * seconds for seconds in one["seconds"]]
    what = f"invoke over HTTP, {np.mean(one['rows']):.0f} rows, {sizes.queries:,} queries, {sizes.rate:,} tuples/s"
    rate = Quantity(f"{sizes.clients} clients", "/s", [len(many["seconds"]) / sizes.seconds])
    waited = [f"{np.median(each) * 1e3:.3g} ms" for each in (many["seconds"], paced)]
    return [
        absolute("invoke", f"{what}, p50", Quantity("one client", "ms", ms), Sense.AT_MOST, 5, None),
        absolute("invoke", f"{what}, p99", Quantity("one client", "ms", ms, 99.0), Sense.AT_MOST, 50, None),
        absolute(
            "invoke", f"invocations from {sizes.clients} clients, as fast as they come", rate, Sense.AT_LEAST, 300,
            None, beside=f"p50 {waited[0]}; at {_ASKED_RATE}/s {waited[1]}",
        ),
    ]  # fmt: skip


def _growth(alone: list[float], asked: list[float], pressed: list[float], rate: float) -> Bar:
    bar = at_most(
        "invoke", f"time of an epoch while {rate:.0f} answers a second are given",
        Quantity("asked", "s", asked), Quantity("nobody asks", "s", alone), 1.3, None,
    )  # fmt: skip
    return replace(bar, beside=f"as fast as they come: {np.median(pressed[1:] or pressed):.3g} s")


def _push_bar(pushed: dict[str, Any], sizes: Sizes) -> Bar:
    visible = pushed["rows"] / pushed["visible_seconds"]
    return absolute(
        "push",
        f"push over HTTP, Arrow batches of {sizes.push_rows:,} rows from {sizes.pushers} clients, durable",
        Quantity("acknowledged", "rows/s", [pushed["rows"] / pushed["seconds"]]),
        Sense.AT_LEAST,
        200_000,
        None,
        beside=f"visible: {visible:,.0f} rows/s; refused for a moment: {pushed['refused']}",
    )


def _subscriber_bar(alone: list[float], subscribed: list[float], before: int, after: int, sizes: Sizes) -> Bar:
    what = f"time of an epoch with {sizes.subscribers:,} subscribers, {sizes.slow} of them slow"
    bar = at_most("subscribers", what, Quantity("with", "s", subscribed), Quantity("without", "s", alone), 1.2, None)
    return replace(bar, beside=f"memory {before >> 20} MiB before, {after >> 20} MiB with them")
