"""What checksums cost: epochs and cold answers with them, and with them left out, in turns.

An epoch is a push, from the call until it is visible: the inbox, a Spark job, the commit. A cold answer is that of a
process that was just started, as `ladle invoke` does it: imports, opening, parsing, reading, decoding. What the first
answer takes in a process that is warm, with all files in the operating system's memory, is told beside it: there
verifying has the largest share that it can have. All are processor seconds of all processes:
verifying waits for nothing, and the clock of a shared machine varies by more than it takes.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks._figures import Figure, write
from benchmarks._processor import timed
from ladle.archive import cache, inbox, segments
from ladle.archive.checks import Checks
from ladle.connection import connect
from ladle.stem import pairs, results
from ladle.stem.epoch_kernel import EpochTask
from ladle.testing import connect_inline

DESCRIPTION = "epochs and cold answers with checksums, and without"

_WITH, _WITHOUT = "checked", "unchecked"
_SHORT = 5
"""How many turns of what is short there are for one of what is long."""
SETTINGS = {"maintenance_seconds": 3_600.0, "compact_files_min": 1_000_000, "residual_rows_max": 1 << 40}
_STREAM = "CREATE STREAM {} (a INT, b INT, x DOUBLE, symbol STRING, ts TIMESTAMP) TIMESTAMP BY ts RETAIN 1000 DAYS"
_STANDING = "SELECT a, x FROM trades WHERE a < 8 AND b > 128"
_JOINED = (
    "SELECT t.x, q.x AS y FROM trades [RANGE 1 HOUR] t JOIN quotes [RANGE 1 HOUR] q "
    "ON t.symbol = q.symbol AND t.a = q.a AND t.ts = q.ts"
)
_QUESTIONS = {
    "a standing query's rows": "SELECT * FROM standing",
    "a join's rows": "SELECT * FROM joined",
    "SUM of a column": "SELECT sum(x) AS total FROM trades",
    "a scan of all columns": "SELECT * FROM trades WHERE x > 0.99",
}


def run(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks checks", description=DESCRIPTION)
    parser.add_argument("--rows", type=int, default=1 << 19, help="tuples of an epoch")
    parser.add_argument("--queries", type=int, default=256, help="queries that an epoch is probed with")
    parser.add_argument(
        "--turns", type=int, default=20, help="turns that each alternative has; of short ones, five times"
    )
    parser.add_argument("--quick", action="store_true", help="small and short, to see that it runs")
    parser.add_argument("--out", type=Path, default=Path("docs/benchmarks"), help="where the figures go")
    args = parser.parse_args(arguments)
    if args.quick:
        args.rows, args.queries, args.turns = 1 << 13, 16, 2
    with TemporaryDirectory(prefix="ladle-bench-") as scratch:
        figures = [*_epochs(Path(scratch), args), *_answers(Path(scratch), args)]
    name = "checks-quick" if args.quick else "checks"
    write(figures, name, args.out, {name: value for name, value in vars(args).items() if name != "out"})
    return 0


def _epochs(scratch: Path, args: argparse.Namespace) -> Iterator[Figure]:
    rng = np.random.default_rng(1)
    with connect(scratch / "epochs", settings=SETTINGS) as db:
        for queries in (0, args.queries):
            _say(f"epochs of {args.rows:,} tuples with {queries} queries")
            for name in (_WITH, _WITHOUT):
                db.sql(_STREAM.format(f"{name}{queries}"))
                db.register_many({f"{name}_{n}": _selection(f"{name}{queries}", rng) for n in range(queries)})
            tuples = [_tuples(rng, args.rows, number) for number in range(8)]
            make_task = db._ingest._task

            def epoch(name: str, number: int) -> float:
                def switched(*arguments: Any) -> _Switched:
                    task = make_task(*arguments)  # noqa: B023 -- called in this round
                    own = {each.name: getattr(task, each.name) for each in fields(task)}
                    return (_Checked if name == _WITH else _Unchecked)(**own)

                with patch.object(db._ingest, "_task", switched):
                    return timed(lambda: db.push(f"{name}{queries}", tuples[number % len(tuples)], wait=True))  # noqa: B023

            title = f"an epoch of {args.rows:,} tuples, {queries} queries"
            yield Figure(title, "processor s", _in_turns(epoch, args.turns * _SHORT), (_WITH, _WITHOUT))


@dataclass(frozen=True)
class _Switched(EpochTask):
    """A task that says, where it arrives, whether checksums are left out: workers are processes of their own."""

    def __reduce__(self) -> tuple[Any, ...]:
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        return _arrived, (isinstance(self, _Checked), own)


class _Checked(_Switched):
    pass


class _Unchecked(_Switched):
    pass


_left_out: ExitStack | None = None


def _arrived(checked: bool, own: dict[str, Any]) -> EpochTask:
    global _left_out  # noqa: PLW0603 -- a worker is switched once for each task
    if checked and _left_out is not None:
        _left_out.close()
        _left_out = None
    elif not checked and _left_out is None:
        _left_out = ExitStack()
        _left_out.enter_context(without_checks())
    return EpochTask(**own)


def _answers(scratch: Path, args: argparse.Namespace) -> Iterator[Figure]:
    path = scratch / "answers"
    rng = np.random.default_rng(2)
    with connect_inline(path, settings=SETTINGS) as db:
        for name in ("trades", "quotes"):
            db.sql(_STREAM.format(name))
        db.register(_STANDING, name="standing", materialize="partial")
        db.register(_JOINED, name="joined", materialize="partial")
        for number in range(4):
            for name in ("trades", "quotes"):
                db.push(name, _tuples(rng, args.rows, number), wait=True)
        db.backfill()
    for title, question in _QUESTIONS.items():
        _say(f"cold answers: {title}")

        def cold(name: str, _: int) -> float:
            program = [sys.executable, "-m", "benchmarks._cold_answer", str(path), question, name]  # noqa: B023
            return float(subprocess.run(program, check=True, capture_output=True, text=True).stdout) * 1e3

        def warm(_: str, __: int) -> float:
            with connect_inline(path, settings=SETTINGS, read_only=True) as db:
                return timed(lambda: db.sql(question)) * 1e3  # noqa: B023 -- called in this round

        for name, measure, turns in (
            ("a cold answer", cold, args.turns),
            ("the first in a warm process", warm, args.turns * _SHORT),
        ):
            yield Figure(f"{name}: {title}", "processor ms", _in_turns(measure, turns), (_WITH, _WITHOUT))


def _in_turns(measure: Callable[[str, int], float], turns: int) -> dict[str, list[float]]:
    """Samples with and without, one after the other, the first to begin changing; the first of each is not counted."""
    samples: dict[str, list[float]] = {_WITHOUT: [], _WITH: []}
    for number in range(turns + 1):
        for name in (_WITHOUT, _WITH) if number % 2 else (_WITH, _WITHOUT):
            if name == _WITHOUT:
                with without_checks():
                    seconds = measure(name, number)
            else:
                seconds = measure(name, number)
            if number:
                samples[name].append(seconds)
    return samples


@contextmanager
def without_checks() -> Iterator[None]:
    """Neither compute nor verify a checksum, in this process. For measuring: the product has no such switch."""
    unverified = {"page_checksum_verification": False}
    plain_writer = pq.ParquetWriter

    def opened(path: Path, footer: pq.FileMetaData) -> pq.ParquetFile:
        return pq.ParquetFile(str(path), metadata=footer, **unverified)

    def parsed(path: Path, _: Checks | None) -> pq.FileMetaData:
        with pq.ParquetFile(str(path)) as file:
            return file.metadata

    def writer(*arguments: Any, **options: Any) -> pq.ParquetWriter:
        return plain_writer(*arguments, **{**options, "write_page_checksum": False})

    class NoSums:
        def __init__(self) -> None:
            self._words = 0

        def add(self, payload: results.Words) -> None:
            self._words += len(payload)

        def finish(self) -> list[int]:
            return [0] * -(-self._words // results.PAGE)

    with ExitStack() as patches:
        for module, name, value in (
            (segments, "checks_of", lambda _: Checks(0, 0, 0)),
            (cache, "opened_file", opened),
            (cache, "parse_footer", parsed),
            (pq, "ParquetWriter", writer),
            (inbox, "crc32", _no_sum),
            (results, "PageSums", NoSums),
            (results.Results, "_check", lambda *_: None),
            (pairs.MappedPair, "check", lambda _: None),
            (pairs, "checksum", lambda _: 0),
        ):
            patches.enter_context(patch.object(module, name, value))
        yield


def _no_sum(_: object, start: int = 0) -> int:
    return start


def _selection(stream: str, rng: np.random.Generator) -> str:
    low, high = sorted(rng.integers(0, 256, 2).tolist())
    return f"SELECT a FROM {stream} WHERE a > {low} AND a <= {high} AND b < {int(rng.integers(0, 64))}"


def _tuples(rng: np.random.Generator, rows: int, number: int) -> pa.Table:
    first_us = 1_700_000_000_000_000 + number * rows
    return pa.table(
        {
            **{name: rng.integers(0, 256, rows, dtype=np.int32) for name in "ab"},
            "x": rng.random(rows),
            "symbol": pa.array([f"S{n:03d}" for n in range(256)]).take(pa.array(rng.integers(0, 256, rows))),
            "ts": pa.array(np.arange(first_us, first_us + rows), pa.timestamp("us", "UTC")),
        }
    )


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")
