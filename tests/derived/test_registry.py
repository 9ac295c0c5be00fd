"""The registry holds all kinds to one budget of memory and one of disk, and reports on them. No Spark, no database."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ladle.derived import Derived, Place, Rates, Shelf
from ladle.derived.file_kind import FileId, Files


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def derived(clock: Clock) -> Derived:
    return Derived(1_000, 1_000, clock=clock)


def test_kinds_share_one_budget(derived: Derived, clock: Clock) -> None:
    trees: Shelf[str, str] = Shelf("trees", derived)
    answers: Shelf[int, str] = Shelf("answers", derived)
    for number in range(6):
        clock.now += 1
        assert trees.put(f"t{number}", "tree", 100, 1.0)
    for number in range(6):
        clock.now += 1
        answers.put(number, "answer", 100, 10.0)
        assert derived.bytes(Place.MEMORY) <= 1_000
    # The cheaper kind gave way, the longest unused of it first.
    assert len(answers) == 6
    assert [key for key, _ in trees.items()] == ["t2", "t3", "t4", "t5"]
    (first, second) = derived.report()
    assert (first.kind, first.evictions, first.account.things, first.account.bytes) == ("trees", 2, 4, 400)
    assert (second.kind, second.evictions, second.account.seconds) == ("answers", 0, 60.0)


def test_a_hit_is_a_use(derived: Derived, clock: Clock) -> None:
    shelf: Shelf[int, int] = Shelf("kind", derived)
    for number in range(10):
        shelf.put(number, number, 100, 1.0)
    clock.now = 50.0
    assert shelf.get(0) == 0
    assert shelf.get(99) is None
    clock.now = 60.0
    shelf.put(10, 10, 100, 1.0)
    assert shelf.get(0) == 0
    assert shelf.get(1) is None
    assert derived.report()[0].account.used == 60.0


def test_what_is_larger_than_the_budget_is_not_kept(derived: Derived) -> None:
    shelf: Shelf[str, int] = Shelf("kind", derived)
    shelf.put("small", 1, 900)
    assert not shelf.put("large", 2, 1_001)
    assert shelf.get("small") == 1, "and nothing goes for it"
    assert shelf.bytes == 900


def test_without_a_budget_nothing_is_kept(clock: Clock) -> None:
    shelf: Shelf[str, int] = Shelf("kind", Derived(0, 0, clock=clock))
    assert not shelf.put("x", 1, 1)
    assert shelf.get("x") is None
    assert shelf.bytes == 0


def test_bytes_and_seconds_are_those_of_what_is_there(derived: Derived) -> None:
    shelf: Shelf[str, int] = Shelf("kind", derived)
    shelf.put("x", 1, 100, 1.0)
    shelf.grow("x", 1, 300, 2.0)
    shelf.put("y", 1, 200, 4.0)
    account = shelf.account()
    assert (account.things, account.bytes, account.seconds) == (2, 500, 7.0)
    shelf.put("x", 2, 50, 0.5)
    assert (shelf.bytes, shelf.account().seconds) == (250, 4.5)
    assert shelf.pop("y") == 1
    assert shelf.pop("y") is None
    assert (shelf.bytes, shelf.account().seconds) == (50, 0.5)


def test_a_kind_is_registered_once(derived: Derived) -> None:
    Shelf[int, int]("kind", derived)
    with pytest.raises(ValueError, match="two kinds"):
        Shelf[int, int]("kind", derived)


def test_with_many_things_a_round_frees_room_in_advance(clock: Clock) -> None:
    """So that rounds, which look at all things, are rare."""
    derived = Derived(100_000, 0, clock=clock)
    shelf: Shelf[int, int] = Shelf("kind", derived)
    looked = 0
    things = shelf.things

    def counted() -> list[object]:
        nonlocal looked
        looked += 1
        return things()  # type: ignore[return-value]

    shelf.things = counted  # type: ignore[method-assign, assignment]
    for number in range(20_000):
        clock.now += 0.001
        shelf.put(number, number, 10, 1e-3)
        assert shelf.bytes <= 100_000
    assert looked <= 20
    assert shelf.bytes > 80_000


def test_a_thing_in_use_is_not_corrupted_by_being_dropped(derived: Derived) -> None:
    shelf: Shelf[str, list[int]] = Shelf("kind", derived)
    shelf.put("x", [1, 2, 3], 600)
    used = shelf.get("x")
    shelf.put("y", [4], 900, 1.0)
    assert shelf.get("x") is None
    assert used == [1, 2, 3]


def test_those_who_hold_on_to_things_are_told(derived: Derived) -> None:
    told: list[str] = []
    shelf: Shelf[str, int] = Shelf("kind", derived, dropped=told.append)
    shelf.put("x", 1, 600)
    shelf.pop("x")
    shelf.put("y", 1, 600)
    shelf.put("z", 1, 600, 1.0)
    assert told == ["y"], "what is forgotten for other reasons is not dropped"


def test_threads_keep_and_drop_at_once() -> None:
    derived = Derived(5_000, 0)
    shelves: list[Shelf[int, int]] = [Shelf(f"kind{number}", derived) for number in range(3)]
    over: list[int] = []

    def work(seed: int) -> None:
        rng = random.Random(seed)
        for _ in range(400):
            shelf, key = rng.choice(shelves), rng.randrange(50)
            found = shelf.get(key)
            assert found is None or found == key
            match rng.randrange(4):
                case 0:
                    shelf.pop(key)
                case 1:
                    shelf.drop(rng.sample(things, min(3, len(things))) if (things := shelf.things()) else [])
                case _:
                    shelf.put(key, key, rng.randint(1, 400), rng.random())
        derived.settle()
        over.append(derived.bytes(Place.MEMORY))

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(work, range(8)))
    derived.settle()
    assert derived.bytes(Place.MEMORY) <= 5_000
    for shelf in shelves:
        assert shelf.bytes == sum(thing.bytes for thing in shelf.things())
        assert shelf.account().seconds == pytest.approx(sum(thing.seconds for thing in shelf.things()))


class Sized:
    """Files whose cost is what a test says."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.seconds: dict[str, float] = {}
        self.uses: dict[str, float] = {}
        self.sticky = False

    def costs(self) -> Callable[[FileId, int], float]:
        return lambda file, _: self.seconds.get(file[1], 1.0)

    def used(self, file: FileId) -> float | None:
        return self.uses.get(file[1])

    def remove(self, file: FileId) -> None:
        if not self.sticky:
            (self.root / file[0] / file[1]).unlink(missing_ok=True)

    def covered(self) -> tuple[int, int]:
        return 3, 4


@pytest.fixture
def files(tmp_path: Path) -> tuple[Derived, Sized, Path]:
    derived, about = Derived(0, 1_000), Sized(tmp_path)
    Files("files", derived, tmp_path, ".results", about, rebuilt="by the backfill")
    directory = tmp_path / "7"
    directory.mkdir()
    for number in range(8):
        write(directory / f"{number}.results", age_seconds=100 - number)
    (directory / "other.masks").write_bytes(bytes(5_000))
    (directory / ".partial.results").write_bytes(bytes(5_000))
    return derived, about, directory


def write(path: Path, *, age_seconds: float, size: int = 200) -> None:
    path.write_bytes(bytes(size))
    os.utime(path, (time.time() - age_seconds,) * 2)


def left(directory: Path) -> set[int]:
    return {int(path.stem) for path in directory.glob("[0-9]*.results")}


def test_files_are_held_to_the_budget_of_disk(files: tuple[Derived, Sized, Path]) -> None:
    derived, _, directory = files
    assert derived.excess(Place.DISK) == 600
    assert derived.settle(Place.DISK) == 600
    assert left(directory) == {3, 4, 5, 6, 7}, "those written longest ago are gone"
    assert derived.bytes(Place.DISK) == 1_000
    assert derived.settle(Place.DISK) == 0
    (row,) = derived.report()
    assert (row.place, row.account.things, row.account.covered, row.account.wanted) == (Place.DISK, 5, 3, 4)
    assert row.evictions == 3


def test_files_that_were_used_or_are_dear_stay(files: tuple[Derived, Sized, Path]) -> None:
    derived, about, directory = files
    about.uses["0.results"] = derived.clock()
    about.seconds["1.results"] = 1_000.0
    derived.settle(Place.DISK)
    assert left(directory) == {0, 1, 5, 6, 7}


def test_files_may_vanish_at_any_moment(files: tuple[Derived, Sized, Path]) -> None:
    derived, _, directory = files
    derived.excess(Place.DISK)
    for number in range(4):
        (directory / f"{number}.results").unlink()
    assert derived.settle(Place.DISK) == 0
    assert derived.bytes(Place.DISK) == 800
    for path in directory.iterdir():
        path.unlink()
    directory.rmdir()
    assert derived.excess(Place.DISK) == -1_000


def test_a_file_that_can_not_be_removed_is_no_endless_loop(files: tuple[Derived, Sized, Path]) -> None:
    derived, about, directory = files
    about.sticky = True
    assert derived.settle(Place.DISK) == 0
    assert len(left(directory)) == 8


def test_demands_that_are_too_much_are_tried_again_when_they_change(files: tuple[Derived, Sized, Path]) -> None:
    derived, _, directory = files
    first, second = object(), object()
    derived.settle(Place.DISK)
    derived.note_demands(first, over=True, lowered=True)
    assert not derived.unmet
    derived.note_demands(first, over=True, lowered=False)
    assert derived.unmet
    derived.note_demands(first, over=False, lowered=False)
    assert derived.unmet, "nothing changed: it would be too much again"
    for number in (3, 4):
        (directory / f"{number}.results").unlink()
    derived.excess(Place.DISK)
    derived.note_demands(first, over=False, lowered=False)
    assert not derived.unmet, "files went for another reason"
    derived.note_demands(first, over=True, lowered=False)
    derived.note_demands(second, over=False, lowered=False)
    assert not derived.unmet


def test_costs_are_measured() -> None:
    rates = Rates()
    assert rates.seconds("results", 1, 10) is None
    rates.note("results", 1, 100, 1.0)
    assert rates.seconds("results", 1, 10) == pytest.approx(0.1)
    assert rates.seconds("results", 2, 10) == pytest.approx(0.1), "as elsewhere, where nothing is known"
    assert rates.seconds("pairs", 1, 10) is None
    for _ in range(30):
        rates.note("results", 1, 100, 3.0)
    assert rates.seconds("results", 1, 10) == pytest.approx(0.3, rel=0.02), "what was long ago fades"
    rates.note("results", 3, 0, 1.0)
    assert rates.seconds("results", 3, 1) is not None


def test_one_round_at_a_time(derived: Derived) -> None:
    """Two threads that overflow together free what is too much once."""
    shelf: Shelf[int, int] = Shelf("kind", derived)
    for number in range(10):
        shelf.put(number, 0, 100, settle=False)
    barrier = threading.Barrier(2)

    def overflow(number: int) -> None:
        barrier.wait()
        shelf.put(number, 0, 100, 1.0)

    with ThreadPoolExecutor(2) as threads:
        list(threads.map(overflow, (10, 11)))
    assert shelf.bytes == 1_000
