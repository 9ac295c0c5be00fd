"""Found by the machine: DuckDB makes a join of a long IN list, and with several threads a join does not keep the order.

A factor's mask must be in the order of the rows whatever else the machine is doing, or wrong tuples are answered.
"""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from ladle.clock import ManualClock
from ladle.testing import connect_inline

LISTED = (36, 21, -2, 9, 7, 11)


@pytest.mark.not_at_one_row("no residual takes part")
def test_long_in_lists_pick_the_right_rows(tmp_path: Path) -> None:
    rng = random.Random(1)
    db = connect_inline(tmp_path / "warehouse", clock=ManualClock(), settings={"segment_rows_max": 8})
    db.sql("CREATE STREAM s (a INT, n INT)")
    rows = [{"a": rng.choice((*LISTED, 1, 2, 3, 4, 5)), "n": number} for number in range(200)]
    db.push("s", rows, wait=True)
    expected = [row["n"] for row in rows if row["a"] in LISTED]
    sql = f"SELECT n FROM s WHERE a IN ({', '.join(map(str, LISTED))}, NULL)"
    stop = threading.Event()

    def burn() -> None:
        while not stop.is_set():
            sum(range(1_000))

    busy = [threading.Thread(target=burn) for _ in range(3)]
    for thread in busy:
        thread.start()
    try:
        for _ in range(40):
            assert sorted(db.sql(sql).table.column("n").to_pylist()) == expected
    finally:
        stop.set()
        for thread in busy:
            thread.join()
        db.close()
