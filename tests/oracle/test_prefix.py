"""Stream-prefix consistency (PSoup section 3.4): transfers balance at every epoch that any reader can see.

Each push moves amounts between accounts, so the total over any prefix of epochs is zero; an answer that held half an
epoch, or an epoch twice, would not balance. Readers run beside the pushes, compaction, backfill and deletion of
derived state.
"""

from __future__ import annotations

import random
import shutil
import threading
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.driver import MODES

from ladle.clock import ManualClock
from ladle.engine import Database
from ladle.testing import connect_inline
from ladle.testing.one_row import at_one_row

# a background thread that dies would go unnoticed here: answers are right without it
pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")

PUSHES = at_one_row(12, 40)
QUERY = "SELECT sum(amount) AS total, count(*) AS tuples FROM transfers WHERE account <> 'none'"

Seen = list[tuple[int, int | None, int]]
"""(epoch, total, tuples)"""


def _transfers(rng: random.Random, at_us: int) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for _ in range(rng.randint(1, 40)):
        amount = rng.randint(1, 1000)
        for sign in (1, -1):
            rows.append({"account": rng.choice("abcdef"), "amount": sign * amount})
    rng.shuffle(rows)
    return rows


def _watch(
    ask: Callable[[], tuple[int, int | None, int]], seen: Seen, errors: list[BaseException], stop: threading.Event
) -> None:
    try:
        while not stop.is_set():
            seen.append(ask())
            stop.wait(0.002)
    except BaseException as error:
        errors.append(error)
        raise


def _run(path: Path, disturb: Callable[[Database, int], None]) -> tuple[list[Seen], list[tuple[int, int]]]:
    """What each reader saw, and (epoch, tuples so far) of each push."""
    db = connect_inline(path, clock=ManualClock(), settings={"segment_rows_max": 16, "compact_files_min": 4})
    db.sql("CREATE STREAM transfers (account STRING, amount BIGINT)")
    for mode in MODES:
        db.register(QUERY, name=mode, materialize=mode)

    def asker(mode: str | None) -> Callable[[], tuple[int, int | None, int]]:
        def ask() -> tuple[int, int | None, int]:
            answer = db.sql(QUERY) if mode is None else db.query(mode).invoke()
            row = answer.table.to_pylist()[0]
            return answer.epoch, row["total"], row["tuples"]

        return ask

    stop = threading.Event()
    seen: list[Seen] = [[] for _ in range(len(MODES) + 1)]
    errors: list[BaseException] = []
    threads = [
        threading.Thread(target=_watch, args=(asker(mode), found, errors, stop))
        for mode, found in zip((*MODES, None), seen, strict=True)
    ]
    for thread in threads:
        thread.start()
    rng = random.Random(7)
    history: list[tuple[int, int]] = []
    tuples = 0
    try:
        for number in range(PUSHES):
            rows = _transfers(rng, number)
            looks = sum(map(len, seen))
            epoch = db.push("transfers", rows, wait=True)
            assert epoch is not None
            tuples += len(rows)
            history.append((epoch, tuples))
            disturb(db, number)
            # a Spark job takes longer than a push: without a look in between, readers would see only the last
            while sum(map(len, seen)) == looks and not errors:
                stop.wait(0.002)
    finally:
        stop.set()
        for thread in threads:
            thread.join()
        db.close()
    assert not errors, errors
    return seen, history


def _verify(seen: list[Seen], history: list[tuple[int, int]]) -> None:
    epochs = [epoch for epoch, _ in history]
    for found in seen:
        assert found
        assert [epoch for epoch, _, _ in found] == sorted(epoch for epoch, _, _ in found), "epochs went back"
        for epoch, total, tuples in found:
            pushed = bisect_right(epochs, epoch)
            expected = history[pushed - 1][1] if pushed else 0
            assert tuples == expected, f"{tuples} tuples at epoch {epoch}, expected {expected}"
            assert total == (0 if tuples else None), f"total {total} at epoch {epoch}"
    assert sum(len({epoch for epoch, _, _ in found}) for found in seen) > len(seen), "readers saw only one epoch"


def test_transfers_balance_at_every_epoch(tmp_path: Path) -> None:
    _verify(*_run(tmp_path / "warehouse", lambda db, number: None))


def test_transfers_balance_while_the_warehouse_is_reorganised(tmp_path: Path) -> None:
    rng = random.Random(11)

    def disturb(db: Database, number: int) -> None:
        if number % 7 == 3:
            db.maintain()
        if number % 11 == 5:
            db.backfill()
        if number % 13 == 8:
            for entry in (tmp_path / "warehouse" / "derived").iterdir():
                if rng.random() < 0.7:
                    shutil.rmtree(entry, ignore_errors=True)

    _verify(*_run(tmp_path / "warehouse", disturb))


def test_a_batch_is_one_epoch_also_over_partitions(tmp_path: Path) -> None:
    """Rows pushed without waiting are taken in in their order, several pushes at once: still whole pushes."""
    db = connect_inline(tmp_path / "warehouse", clock=ManualClock(), settings={"segment_rows_max": 8})
    db.sql("CREATE STREAM transfers (account STRING, amount BIGINT)")
    rng = random.Random(3)
    for number in range(PUSHES):
        db.push("transfers", _transfers(rng, number))
        row = db.sql(QUERY).table.to_pylist()[0]
        assert not row["total"]
        assert row["tuples"] % 2 == 0
    db.close()
