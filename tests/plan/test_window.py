"""Windows as data: which bounds they have at NOW, what kind they are, and that they survive the log."""

from __future__ import annotations

import json
import random
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.months import months_before

from ladle.clock import FIRST_US, LAST_US, to_us
from ladle.plan import Block, Bound, Factor, Plan, Residual, RowsWindow, Scan, TimeWindow, WindowKind
from ladle.plan.query import plan_from_json, plan_to_json
from ladle.plan.window import MAX_US, MIN_US, window_from_json, window_to_json

BOUNDS = st.one_of(
    st.none(),
    st.builds(Bound, st.integers(-(10**15), 10**15)),
    st.builds(Bound, st.integers(-(10**15), 10**15), st.just(value=True), st.integers(-100_000, 100_000)),
)
WINDOWS = st.one_of(st.builds(TimeWindow, BOUNDS, BOUNDS), st.builds(RowsWindow, st.integers(1, 10**9)))


def us(text: str) -> int:
    return to_us(datetime.fromisoformat(text).replace(tzinfo=UTC))


@given(WINDOWS)
def test_a_window_survives_the_log(window: TimeWindow | RowsWindow) -> None:
    again = window_from_json(json.loads(json.dumps(window_to_json(window))))
    assert again == window
    assert hash(again) == hash(window)
    assert str(window)


@given(st.builds(TimeWindow, BOUNDS, BOUNDS), st.integers(FIRST_US, LAST_US))
def test_every_now_has_bounds(window: TimeWindow, now_us: int) -> None:
    """Also where no calendar goes."""
    begin_us, end_us = window.resolve(now_us)
    assert begin_us >= MIN_US
    assert end_us <= MAX_US
    for bound, value in ((window.begin, begin_us), (window.end, end_us)):
        if bound is not None and not bound.relative:
            assert value == bound.us
        if bound is not None and bound.relative and bound.months == 0:
            assert value == now_us + bound.us


@pytest.mark.parametrize(
    ("begin", "end", "kind"),
    [
        (None, None, WindowKind.EVERYTHING),
        (Bound(1), Bound(2), WindowKind.SNAPSHOT),
        (Bound(1), None, WindowKind.SNAPSHOT),
        (None, Bound(2), WindowKind.SNAPSHOT),
        (Bound(1), Bound(0, relative=True), WindowKind.LANDMARK),
        (None, Bound(0, relative=True), WindowKind.LANDMARK),
        (Bound(-1, relative=True), Bound(0, relative=True), WindowKind.SLIDING),
        (Bound(-1, relative=True), None, WindowKind.SLIDING),
    ],
)
def test_kinds(begin: Bound | None, end: Bound | None, kind: WindowKind) -> None:
    assert TimeWindow(begin, end).kind is kind


@pytest.mark.parametrize(
    ("now", "months", "expected"),
    [
        ("2024-03-31 12:00:00", -1, "2024-02-29 23:59:59.999999"),
        ("2023-03-31 12:00:00", -1, "2023-02-28 23:59:59.999999"),
        ("2023-03-28 12:00:00", -1, "2023-02-28 12:00:00"),
        ("2024-01-31 00:00:00", 1, "2024-02-29 23:59:59.999999"),
        ("2024-01-15 00:00:00", -13, "2022-12-15 00:00:00"),
        ("2024-02-29 00:00:00", 12, "2025-02-28 23:59:59.999999"),
    ],
)
def test_months_are_of_the_calendar_and_never_go_back(now: str, months: int, expected: str) -> None:
    assert Bound(0, relative=True, months=months).resolve(us(now)) == us(expected)


@given(
    month=st.datetimes(datetime(1999, 1, 1), datetime(2030, 1, 1)),
    minutes=st.lists(st.integers(0, 5 * 24 * 60), min_size=2, max_size=20),
    months=st.integers(-30, 12),
    offset=st.integers(-(10**11), 10**11),
)
def test_a_bound_with_months_is_its_running_maximum(
    month: datetime, minutes: list[int], months: int, offset: int
) -> None:
    """Spark's own arithmetic, tried at every day's end up to NOW, never gets later than this bound."""
    bound = Bound(offset, relative=True, months=months)
    first = month.replace(day=27)
    moments = [to_us(first + timedelta(minutes=each)) for each in sorted(minutes)]
    resolved = [bound.resolve(moment) for moment in moments]
    assert resolved == sorted(resolved)
    assert resolved == [months_before(moment, -months) + offset for moment in moments]


@given(
    time=st.datetimes(datetime(1999, 1, 1), datetime(2030, 1, 1)),
    months=st.integers(-30, 0),
    offset=st.integers(-(10**11), 10**11),
)
def test_when_a_bound_reaches_a_time(time: datetime, months: int, offset: int) -> None:
    bound, time_us = Bound(offset, relative=True, months=months), to_us(time)
    reached = int(bound.reached(np.array([time_us]))[0])
    assert bound.resolve(reached) >= time_us > bound.resolve(reached - 1)


def test_beyond_the_calendar() -> None:
    now_us = us("2024-01-01 00:00:00")
    assert Bound(0, relative=True, months=-12 * 2_024).resolve(now_us) < FIRST_US
    assert Bound(0, relative=True, months=12 * 8_000).resolve(now_us) == LAST_US


NAMES = st.text("abc", min_size=1, max_size=3)
MANY_NAMES = st.lists(NAMES).map(tuple)
FACTORS = st.builds(Factor, st.text(max_size=5), st.text(max_size=5), MANY_NAMES)
BLOCKS = st.builds(Block, NAMES, st.lists(FACTORS).map(tuple))
SCANS = st.lists(st.builds(Scan, NAMES, BLOCKS, WINDOWS, MANY_NAMES), max_size=3).map(tuple)
RESIDUALS = st.builds(
    Residual,
    st.text(),
    st.one_of(st.none(), st.text()),
    st.one_of(st.none(), st.lists(st.tuples(NAMES, NAMES)).map(tuple)),
    st.one_of(st.none(), st.text()),
    st.booleans(),
)


@given(st.builds(Plan, st.text(), SCANS, RESIDUALS, st.none(), MANY_NAMES))
def test_a_plan_survives_the_log(plan: Plan) -> None:
    assert plan_from_json(json.loads(json.dumps(plan_to_json(plan)))) == plan


@given(st.lists(FACTORS, max_size=4), st.randoms())
def test_a_block_is_its_factors_in_any_order(factors: list[Factor], rng: random.Random) -> None:
    shuffled = list(factors)
    rng.shuffle(shuffled)
    block = Block("s", tuple(factors))
    assert block.text == Block("s", tuple(shuffled)).text
    assert block.text == Block("s", (*factors, *factors)).text
    assert block.text != Block("t", tuple(factors)).text


@pytest.mark.parametrize(
    ("bound", "text"),
    [
        (Bound(0, relative=True), "NOW"),
        (Bound(-600_000_000, relative=True), "NOW - INTERVAL 10 MINUTES"),
        (Bound(-5_400_000_000, relative=True), "NOW - INTERVAL 90 MINUTES"),
        (Bound(3_600_000_000, relative=True), "NOW + INTERVAL 1 HOUR"),
        (Bound(-7 * 86_400_000_000, relative=True), "NOW - INTERVAL 7 DAYS"),
        (Bound(-1_500_000, relative=True), "NOW - INTERVAL 1.5 SECONDS"),
        (Bound(-86_400_000_001, relative=True), "NOW - INTERVAL 86400.000001 SECONDS"),
        (Bound(1_000_000, relative=True, months=-3), "NOW - INTERVAL 3 MONTHS + INTERVAL 1 SECOND"),
        (Bound(0, relative=True, months=-12), "NOW - INTERVAL 1 YEAR"),
    ],
)
def test_an_interval_is_shown_as_people_write_it(bound: Bound, text: str) -> None:
    assert str(bound) == text
