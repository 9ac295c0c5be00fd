"""Joins of streams: random ones interleaved with all that may happen to a warehouse, and what is promised of them.

After every step every standing join is compared with the oracle (DuckDB over all raw tuples). `SOAK_SECONDS` says how
long the soak goes on.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import seed as seeded
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from tests.support.generate import WALL_US, PushedRow
from tests.support.join_queries import COLUMNS, MODES, SECOND_US, JoinQuery
from tests.support.joins import JoinDriver
from tests.support.months import EPOCH
from tests.support.oracle import rows_of
from tests.support.tree import ColumnSpec, Range, Rows, Span, StreamSource, StreamSpec

from ladle.clock import ManualClock
from ladle.engine import Database
from ladle.testing import connect_inline
from ladle.testing.one_row import at_one_row

SEEDS = st.integers(0, 2**32 - 1)
QUERIES_MAX = 6

# a background thread that dies would go unnoticed here: answers are right without it
pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")


def connect(path: Path, clock: ManualClock, settings: dict[str, Any]) -> Database:
    return connect_inline(path, clock=clock, settings=settings)


def with_limits(**limits: Any) -> Callable[[Path, ManualClock, dict[str, Any]], Database]:
    """What the driver draws, but for these."""

    def connect_with(path: Path, clock: ManualClock, settings: dict[str, Any]) -> Database:
        settings |= limits
        return connect(path, clock, settings)

    return connect_with


# --- everything, interleaved ---


class Tally:
    """What a whole run of the machine did."""

    def __init__(self) -> None:
        self.steps = self.checked = self.filled = self.unanswered = self.with_pairs = 0


class JoinMachine(RuleBasedStateMachine):
    tally = Tally()

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp(prefix="joins"))
        self.driver: JoinDriver | None = None

    @initialize(seed=SEEDS)
    def open(self, seed: int) -> None:
        self.driver = JoinDriver(self.directory / "warehouse", connect, seed=seed)
        for number, mode in enumerate(MODES[1:]):
            self.driver.push(seed + number, 8)
            self.driver.register(seed + number, mode)

    @property
    def it(self) -> JoinDriver:
        assert self.driver is not None
        return self.driver

    def has_queries(self) -> bool:
        return bool(self.driver and self.driver.standing)

    def has_room(self) -> bool:
        return bool(self.driver and len(self.driver.standing) < QUERIES_MAX)

    @rule(seed=SEEDS, count=st.integers(0, 4))
    def push_few(self, seed: int, count: int) -> None:
        self.it.push(seed, count)

    @rule(seed=SEEDS, count=st.integers(5, 12))
    def push_many(self, seed: int, count: int) -> None:
        self.it.push(seed, count)

    @rule(seed=SEEDS)
    def change_table(self, seed: int) -> None:
        self.it.change_table(seed)

    @precondition(has_room)
    @rule(seed=SEEDS, mode=st.sampled_from(MODES))
    def register(self, seed: int, mode: str) -> None:
        self.it.register(seed, mode)

    @precondition(has_queries)
    @rule(seed=SEEDS)
    def unregister(self, seed: int) -> None:
        self.it.unregister(seed)

    @precondition(has_queries)
    @rule(seed=SEEDS)
    def invoke_at(self, seed: int) -> None:
        self.it.invoke_at(seed)

    @rule(seed=SEEDS)
    def ask(self, seed: int) -> None:
        self.it.ask(seed)

    @rule(seed=SEEDS)
    def restart(self, seed: int) -> None:
        self.it.restart(seed)

    @rule()
    def maintain(self) -> None:
        self.it.maintain()

    @rule()
    def backfill(self) -> None:
        self.it.db.backfill()

    @rule(seed=SEEDS)
    def delete_derived(self, seed: int) -> None:
        self.it.delete_derived(seed)

    @invariant()
    def answers_are_the_oracles(self) -> None:
        if self.driver is not None:
            self.tally.steps += 1
            self.tally.with_pairs += bool(pairs_files(self.driver.path))
            self.driver.check()

    def teardown(self) -> None:
        if self.driver is not None:
            self.tally.checked += self.driver.checked
            self.tally.filled += self.driver.filled
            self.tally.unanswered += self.driver.unanswered
            self.driver.close()
        shutil.rmtree(self.directory, ignore_errors=True)


def pairs_files(warehouse: Path) -> list[Path]:
    return [file for file in (warehouse / "derived" / "joins").rglob("*") if file.is_file()]


def run_machine(seed: int | None, examples: int, steps: int, *, phases: tuple[Phase, ...]) -> Tally:
    machine = type("JoinMachine", (JoinMachine,), {"tally": Tally()})
    run_state_machine_as_test(
        machine if seed is None else seeded(seed)(machine),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            database=None,
            print_blob=True,
            phases=phases,
            suppress_health_check=list(HealthCheck),
        ),
    )
    return machine.tally


@pytest.mark.parametrize("seed", range(at_one_row(1, 3)))
def test_answers_are_the_oracles(seed: int) -> None:
    # a failure is printed as found: to shrink it takes minutes, and the soak does
    tally = run_machine(seed, at_one_row(2, 6), at_one_row(6, 20), phases=(Phase.generate,))
    assert tally.checked >= 2 * tally.steps
    assert tally.filled > tally.checked / 4, f"only {tally.filled} of {tally.checked} answers had rows"
    assert tally.unanswered < tally.checked / 10, f"{tally.unanswered} answers needed Spark, {tally.checked} did not"
    assert tally.with_pairs > tally.steps / 4, f"pairs were kept at {tally.with_pairs} of {tally.steps} steps"


@pytest.mark.soak
def test_soak() -> None:
    until = time.monotonic() + float(os.environ.get("SOAK_SECONDS", "60"))
    checked = 0
    while time.monotonic() < until:
        checked += run_machine(None, 20, 40, phases=(Phase.generate, Phase.shrink)).checked
    sys.stderr.write(f"{checked} answers of joins compared\n")


# --- one thing at a time ---

R, S = StreamSpec("r", COLUMNS, "at"), StreamSpec("s", COLUMNS, "at")
HOUR = Range(Span(1, "HOUR"))
KEYS = (ColumnSpec("c0", pa.int32()), ColumnSpec("c1", pa.int32()))


def row(second: int, k: int | None, **others: Any) -> PushedRow:
    at = EPOCH + timedelta(microseconds=WALL_US - 60 * SECOND_US + second * SECOND_US)
    return PushedRow({"k": k, "b": None, "t": "a", "d": 0.0, "x": second, "at": at} | others)


def joined(where: str, left: StreamSource | None = None, right: StreamSource | None = None) -> JoinQuery:
    """Which seconds of which streams come together: `x` is the second of a row."""
    mentions = (left or StreamSource(R, "one", HOUR), right or StreamSource(S, "two", HOUR))
    return JoinQuery(f"SELECT one.x AS c0, two.x AS c1 FROM {{0}}, {{1}} WHERE {where}", mentions, KEYS)


IN_MODES = at_one_row(MODES[1:2], MODES)
"""Where Spark joins, it does so in any mode."""


def in_all_modes(driver: JoinDriver, query: JoinQuery) -> None:
    for number, mode in enumerate(IN_MODES):
        driver.register_query(f"{mode}{number}_{len(driver.standing)}", query, mode)


def answers(driver: JoinDriver) -> list[list[tuple[Any, ...]]]:
    return [rows_of(driver.db.query(name).invoke().table) for name in driver.standing]


@pytest.fixture
def driver(tmp_path: Path) -> Any:
    """Four tuples to a segment, and as many pairs as there are."""
    limits = with_limits(segment_rows_max=4, compact_files_min=2, join_pairs_max=16_000_000, backfill_rows_max=1 << 19)
    made = JoinDriver(tmp_path / "warehouse", limits, (R, S))
    yield made
    made.close()


def test_each_pair_comes_once(driver: JoinDriver) -> None:
    """However its tuples arrived: together, one after the other, before the query or after it."""
    driver.push_rows("r", [row(1, 1), row(2, 2)])
    driver.push_rows("s", [row(3, 1)])
    in_all_modes(driver, joined("one.k = two.k"))
    times = at_one_row(2, 6)
    for second in range(4, 4 + 2 * times, 2):
        driver.push_rows("s", [row(second, 1), row(second, 2)])
        driver.push_rows("r", [row(second + 1, 1), row(0, 2)])
        for act in (lambda: None, driver.db.backfill, driver.maintain):
            act()
            driver.check()
    # NOW is the lower of both clocks
    driver.push_rows("s", [row(20, None)])
    for got in answers(driver):
        pairs = [pair for pair in got if pair[0]]  # the late ones are alike
        assert len(pairs) == len(set(pairs)) == (1 + times) * (1 + times) + times


@pytest.mark.not_at_one_row("there Spark joins, and looks at no pairs")
def test_queries_share_pairs_and_miss_none(driver: JoinDriver) -> None:
    """What was found for one query's filter, or within its reach, is not all that the next one wants."""
    wide, narrow = StreamSource(S, "two", HOUR), StreamSource(S, "two", Range(Span(2, "SECOND")))
    several = (
        ("one.k = two.k AND two.k < 1 AND one.k < 3", narrow),
        ("one.k = two.k AND two.k > 2", narrow),
        ("one.k = two.k AND two.k > 2", wide),
        ("one.k = two.k AND one.k IN (0, 2)", wide),
        ("one.k = two.k", wide),
    )
    for second, (where, right) in enumerate(several):
        in_all_modes(driver, joined(where, None, right))
        driver.check()
        driver.push_rows("r", [row(3 * second + number, number % 5) for number in range(10)])
        driver.push_rows("s", [row(3 * second + 9 - number, number % 5) for number in range(10)])
        driver.check()
        driver.db.backfill()
        driver.check()


def test_null_keys_never_match(driver: JoinDriver) -> None:
    for where in ("one.k = two.k", "one.b = two.k", "one.t = two.t AND one.k <= two.k", "one.t < two.t"):
        in_all_modes(driver, joined(where))
    driver.push_rows("r", [row(1, None), row(2, None, t=None)])
    driver.push_rows("s", [row(3, None), row(4, 1), row(4, None, t=None)])
    driver.check()
    driver.db.backfill()
    driver.check()
    assert all(got == [] for got in answers(driver))


def test_a_tuple_is_joined_with_itself(driver: JoinDriver) -> None:
    again = StreamSource(R, "one", HOUR), StreamSource(R, "two", HOUR)
    in_all_modes(driver, joined("one.k = two.k", *again))
    in_all_modes(driver, joined("one.x >= two.x", *again))
    in_all_modes(driver, joined("one.k = two.k AND one.x < two.x", *again))
    driver.push_rows("r", [row(1, 7), row(2, 7), row(3, None)])
    driver.db.backfill()
    driver.check()
    both, upwards, strictly = map(sorted, answers(driver)[:: len(IN_MODES)])
    assert both == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert upwards == [(1, 1), (2, 1), (2, 2), (3, 1), (3, 2), (3, 3)]
    assert strictly == [(1, 2)]


def test_doubles_are_compared_as_by_spark(driver: JoinDriver) -> None:
    """NaN equals NaN and is greater than all else, and there is one zero."""
    in_all_modes(driver, joined("one.d = two.d"))
    in_all_modes(driver, joined("one.d > two.d"))
    nan = float("nan")
    driver.push_rows("r", [row(1, 0, d=nan), row(2, 0, d=-0.0), row(3, 0, d=None)])
    driver.push_rows("s", [row(11, 0, d=nan), row(12, 0, d=0.0), row(13, 0, d=float("inf")), row(14, 0, d=None)])
    driver.db.backfill()
    driver.push_rows("r", [row(20, 0, d=None)])
    driver.check()
    equal, greater = map(sorted, answers(driver)[:: len(IN_MODES)])
    assert equal == [(1, 11), (2, 12)]
    assert greater == [(1, 12), (1, 13)]


@pytest.mark.parametrize("where", ["one.k = two.k", "one.x > two.x - 4 AND one.x < two.x + 4", "one.k < two.k"])
@pytest.mark.not_at_one_row("the order is ours; Spark's answer has none")
def test_pairs_are_ordered_by_their_oldest_part(driver: JoinDriver, where: str) -> None:
    in_all_modes(driver, joined(where))
    for seconds in ((9, 2, 5), (1, 8, 3), (4, 7, 6)):
        driver.push_rows("r", [row(second, second % 2) for second in seconds])
        driver.push_rows("s", [row(second + 1, second % 3) for second in seconds])
        for act in (lambda: None, driver.db.backfill, driver.maintain):
            act()
            for got in answers(driver):
                oldest = [min(pair) for pair in got]
                assert oldest == sorted(oldest)
    assert all(len(got) > 5 for got in answers(driver))
    driver.check()


@pytest.mark.not_at_one_row("there Spark joins, and looks at no pairs")
def test_compaction_changes_no_answer(driver: JoinDriver) -> None:
    """Pairs are known by numbers in files, and the files are others now."""
    rows = StreamSource(R, "one", Rows(7)), StreamSource(S, "two", Range(Span(9, "SECOND")))
    in_all_modes(driver, joined("one.k = two.k"))
    in_all_modes(driver, joined("one.k = two.k AND one.x < 12", *rows))
    for second in range(at_one_row(4, 12)):
        driver.push_rows("r", [row(second, second % 3), row(max(second - 5, 0), 2)])
        driver.push_rows("s", [row(second, second % 4)])
        if second % 4 == 3:
            before = data_files(driver.path)
            driver.maintain()
            assert data_files(driver.path) > before, "nothing was compacted"
            driver.check()
            driver.db.backfill()
        driver.check()
    assert pairs_files(driver.path)


def data_files(warehouse: Path) -> int:
    return len(list(warehouse.glob("streams/*/archive/*compact*.parquet")))


@pytest.mark.not_at_one_row("there Spark joins, and looks at no pairs")
@pytest.mark.parametrize("kind", ["joins", "results", "*"])
def test_deleting_derived_files_changes_no_answer(driver: JoinDriver, kind: str) -> None:
    """Pairs without results, results without pairs, and neither; with filters that few tuples pass, and windows."""
    in_all_modes(driver, joined("one.k = two.k AND two.k < 1"))
    in_all_modes(driver, joined("one.k = two.k AND two.k < 1", None, StreamSource(S, "two", Range(Span(8, "SECOND")))))
    in_all_modes(driver, joined("one.x <= two.x AND one.k IN (1, 2)"))
    for second in range(0, at_one_row(4, 12), 4):
        driver.push_rows("r", [row(second + number, number % 5) for number in range(10)])
        driver.push_rows("s", [row(second + 9 - number, number % 5) for number in range(10)])
        driver.db.backfill()
        assert pairs_files(driver.path)
        driver.check()
        for directory in sorted((driver.path / "derived").glob(kind)):
            shutil.rmtree(directory) if directory.is_dir() else directory.unlink()
        driver.check()
