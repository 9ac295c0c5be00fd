"""What the parts of the benchmark `peers` share: sizes, the database, the files, and the runs of the streaming path."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from benchmarks._flow import Flow, flow
from benchmarks._progress import Steps
from benchmarks._workload import Selection, check_counts, counts_by_duckdb, w1, w1s, write_files
from ladle.engine import Database


@dataclass(frozen=True)
class Sizes:
    """How much of everything. A bar is about the defaults and nothing smaller."""

    rows: int = 1 << 19
    """Tuples of an epoch."""
    epochs: int = 5
    """Measured in each round, after one that warms up."""
    rounds: int = 2
    window: int = 1 << 20
    """Tuples in the windows of queries whose arrival rate is measured."""
    queries: int = 4_096
    few: int = 64
    native: int = 100
    """Native Spark streaming queries."""
    native_epochs: int = 4
    cases: int = 1_000
    """CASE sums over a shared scan; as many as queries are measured too."""
    case_epochs: int = 2
    sliding: int = 100
    sliding_native: int = 10
    sliding_epochs: int = 16
    many: int = 100_000
    many_epochs: int = 2
    one_more: int = 50
    asked_window: int = 1 << 16
    """Tuples in the windows of queries that are invoked."""
    asked_epochs: int = 8
    """Their tuples together are the wide window."""
    odd_rows: int = 12_345
    asked: int = 100
    """Queries that are invoked in turn."""
    turns: int = 20
    flowing_epochs: int = 16
    first: int = 7
    probe_rounds: int = 3

    @property
    def wide_window(self) -> int:
        return self.rows * self.asked_epochs


QUICK = Sizes(
    rows=1 << 13, epochs=1, rounds=1, window=1 << 14, queries=64, few=8, native=3, native_epochs=1, cases=20,
    case_epochs=1, sliding=6, sliding_native=2, sliding_epochs=2, many=1_000, many_epochs=1, one_more=5,
    asked_window=1 << 12, asked_epochs=2, odd_rows=123, asked=5, turns=2, flowing_epochs=3, first=2, probe_rounds=1,
)  # fmt: skip
"""Small and short, to see that everything runs; the figures mean nothing."""


class Load(Enum):
    """What stands while a stream's arrival rate is measured."""

    NOTHING = "no query"
    FEW = "few W1"
    NATIVE = "as many W1 as native queries"
    CASES = "as many W1 as CASE sums"
    W1 = "W1"
    W1S = "W1s"


@dataclass
class Rig:
    db: Database
    sizes: Sizes
    scratch: Path
    steps: Steps
    flows: dict[Load, list[Flow]] = field(default_factory=dict)
    _files: dict[str, list[Path]] = field(default_factory=dict)
    _directories: int = 0

    def inputs(self, name: str, files: int, *, rows: int | None = None, span_us: int | None = None) -> Path:
        """A directory of files, one per epoch, made when it is first asked for."""
        if name not in self._files:
            directory = self.scratch / f"input-{name}"
            self._files[name] = write_files(directory, files, rows or self.sizes.rows, span_us=span_us)
        return self._files[name][0].parent

    def files(self, name: str) -> list[Path]:
        return self._files[name]

    def directory(self) -> Path:
        """One that nobody else uses."""
        self._directories += 1
        path = self.scratch / f"scratch-{self._directories}"
        path.mkdir()
        return path

    def selections(self, load: Load) -> list[Selection]:
        sizes = self.sizes
        match load:
            case Load.NOTHING:
                return []
            case Load.FEW:
                return w1(sizes.few)
            case Load.NATIVE:
                return w1(sizes.native)
            case Load.CASES:
                return w1(sizes.cases)
            case Load.W1:
                return w1(sizes.queries)
            case Load.W1S:
                return w1s(sizes.queries)

    def measure_flows(self, loads: list[Load]) -> None:
        """Runs of the streaming path, the loads taking turns, and each compared with DuckDB."""
        inputs = self.inputs("arrivals", self.sizes.epochs + 1)
        expected: dict[Load, list[int]] = {}
        for number in range(self.sizes.rounds):
            for load in loads:
                selections = self.selections(load)
                self.steps.step(f"arrivals, {load.value}: {len(selections):,} queries, round {number + 1}")
                directory = self.directory()
                measured = flow(
                    self.db, f"s{self._directories}", inputs, self.sizes.rows, selections, directory,
                    window_tuples=self.sizes.window,
                )  # fmt: skip
                shutil.rmtree(directory)
                if load not in expected:
                    expected[load] = counts_by_duckdb(self.files("arrivals"), selections)
                check_counts(f"arrivals, {load.value}", measured.counts, expected[load])
                self.flows.setdefault(load, []).append(measured)

    def rates(self, load: Load) -> list[float]:
        """Tuples per second, a sample for each epoch."""
        return [rate for measured in self.flows[load] for rate in measured.rates]

    def seconds(self, load: Load) -> list[float]:
        """Of each epoch."""
        return [seconds for measured in self.flows[load] for seconds in measured.seconds]


def power(number: int) -> str:
    """A power of two as one."""
    return f"2^{number.bit_length() - 1}" if number & (number - 1) == 0 else f"{number:,}"
