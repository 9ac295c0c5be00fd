"""What goes first: cheapest to make anew per byte, and longest unused."""

from __future__ import annotations

import random

import pytest

from ladle.derived import Thing, worth
from ladle.derived.policy import victims


def chosen(things: list[Thing], excess: int, now: float = 100.0) -> list[object]:
    return [things[number].identity for number in victims(things, excess, now)]


def test_what_is_cheapest_to_make_anew_per_byte_goes_first() -> None:
    things = [Thing("dear", 100, 5.0, 0.0), Thing("cheap", 100, 0.1, 0.0), Thing("large", 1_000, 5.0, 0.0)]
    assert chosen(things, 1_200) == ["cheap", "large", "dear"]
    assert chosen(things, 1_100) == ["cheap", "large"]


def test_what_is_unused_for_longest_goes_first_where_costs_are_alike() -> None:
    things = [Thing(at, 100, 1.0, float(at)) for at in (50, 10, 99, 30)]
    assert chosen(things, 301) == [10, 30, 50, 99]


def test_both_count() -> None:
    """Ten times as dear is worth as much as used ten times as lately."""
    dear_and_old = Thing("dear", 100, 10.0, 1.0)
    cheap_and_new = Thing("cheap", 100, 1.0, 95.0)
    assert chosen([dear_and_old, cheap_and_new], 1) == ["dear"]
    dear_and_old.used = 50.0
    assert chosen([dear_and_old, cheap_and_new], 1) == ["cheap"]


def test_no_more_goes_than_must() -> None:
    things = [Thing(number, 10, 1.0, float(number)) for number in range(10)]
    assert chosen(things, 1) == [0]
    assert chosen(things, 10) == [0]
    assert chosen(things, 11) == [0, 1]
    assert len(chosen(things, 1_000)) == 10


def test_what_takes_no_room_frees_none() -> None:
    assert chosen([Thing("empty", 0, 0.0, 0.0), Thing("full", 1, 1.0, 99.0)], 1) == ["full"]
    assert chosen([Thing("empty", 0, 0.0, 0.0)], 1) == []
    assert chosen([], 1) == []


@pytest.mark.parametrize("seed", range(20))
def test_victims_are_those_worth_least(seed: int) -> None:
    rng = random.Random(seed)
    things = [
        Thing(number, rng.randint(1, 1_000), rng.choice((0.0, rng.random())), rng.uniform(0, 100))
        for number in range(rng.randint(1, 60))
    ]
    excess = rng.randint(1, 20_000)
    gone = set(victims(things, excess, 100.0).tolist())
    left = [thing for number, thing in enumerate(things) if number not in gone]
    values = [worth(things[number].seconds, things[number].bytes, 100.0 - things[number].used) for number in gone]
    kept = [worth(thing.seconds, thing.bytes, 100.0 - thing.used) for thing in left]
    assert max(values) <= min(kept, default=float("inf")) * (1 + 1e-12)
    freed = sum(things[number].bytes for number in gone)
    assert freed >= excess or not left
    assert freed - max(things[number].bytes for number in gone) < excess
