"""Functions against plain Python. Method: epochs, queries that come and go, replaced functions, backfills, compactions
and restarts are mixed at random; every answer is compared with Python's own evaluation, row by row, of the raw rows.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from ladle.clock import ManualClock
from ladle.engine import Database
from ladle.testing import connect_inline
from ladle.testing.one_row import at_one_row

START = datetime(2023, 11, 14, 12, tzinfo=UTC)
Row = dict[str, Any]
Predicate = Callable[[Row], bool | None]


def digits(modulus: int) -> tuple[str, Predicate]:
    """Whether the digits of `n` and the letters of `s` add up to a multiple; NULL if either is NULL. And in Python."""
    source = f"""
def fits(n, s):
    values = [
        None if a is None or b is None else (sum(map(int, str(abs(a)))) + len(b)) % {modulus} == 0
        for a, b in zip(n.to_pylist(), s.to_pylist())
    ]
    return pa.array(values, pa.bool_())
"""

    def plain(row: Row) -> bool | None:
        if row["n"] is None or row["s"] is None:
            return None
        return (sum(int(digit) for digit in str(abs(row["n"]))) + len(row["s"])) % modulus == 0

    return source, plain


def shifted(by: int) -> tuple[str, Callable[[Row], int | None]]:
    source = f"def moved(n):\n    return pc.bit_wise_xor(n, {by})\n"
    return source, lambda row: None if row["n"] is None else row["n"] ^ by


def rows_of(rng: random.Random, first: int, count: int) -> list[Row]:
    return [
        {
            "k": first + i,
            "n": rng.choice([None, 0, -7, rng.randint(-5_000, 5_000)]),
            "s": rng.choice([None, "", "a", "größe", "b" * rng.randint(0, 9)]),
            "at": START + timedelta(seconds=first + i),
        }
        for i in range(count)
    ]


class Workload:
    def __init__(self, path: Path, seed: int) -> None:
        self.rng = random.Random(seed)
        self.path = path
        self.rows: list[Row] = []
        self.queries: dict[str, tuple[str, Callable[[Row], bool]]] = {}
        self.checked = 0
        self.db = self.connect()
        self.db.sql("CREATE STREAM t (k INT, n INT, s STRING, at TIMESTAMP) TIMESTAMP BY at")
        self.replace()
        self.push()

    def connect(self) -> Database:
        settings = {
            "maintenance_seconds": 3_600.0,
            "compact_files_min": 3,
            "grace_seconds": 0.0,
            "segment_rows_max": 64,
        }
        return connect_inline(self.path, clock=ManualClock(), settings=settings)

    def replace(self) -> None:
        self.fits_source, self.fits = digits(self.rng.randint(2, 5))
        self.moved_source, self.moved = shifted(self.rng.randint(0, 64))
        self.db.create_function(self.fits_source, arguments=["INT", "STRING"], returns="BOOLEAN", replace=True)
        self.db.create_function(self.moved_source, arguments=["INT"], returns="INT", replace=True)

    def push(self) -> None:
        rows = rows_of(self.rng, len(self.rows), self.rng.randint(1, 150))
        self.rows += rows
        self.db.push("t", rows, wait=True)

    def register(self) -> None:
        limit, low = self.rng.randint(-3_000, 3_000), self.rng.randint(0, 200)
        forms: list[tuple[str, Callable[[Row], bool]]] = [
            ("fits(n, s)", lambda row: self.fits(row) is True),
            ("NOT fits(n, s)", lambda row: self.fits(row) is False),
            (f"k >= {low} AND fits(n, s)", lambda row: row["k"] >= low and self.fits(row) is True),
            (f"moved(n) > {limit}", lambda row: (self.moved(row) or -9_999) > limit if row["n"] is not None else False),
            (
                f"fits(n, s) OR k < {low}",
                lambda row: self.fits(row) is True or row["k"] < low,
            ),
            (
                f"fits(moved(n), s) AND moved(n) < {limit}",
                lambda row: (
                    row["n"] is not None
                    and self.fits({**row, "n": self.moved(row)}) is True
                    and (self.moved(row) or 0) < limit
                ),
            ),
        ]
        where, holds = self.rng.choice(forms)
        name = f"q{len(self.queries)}_{self.rng.randrange(1_000_000)}"
        mode = self.rng.choice(["none", "partial", "complete"])
        self.db.register(f"SELECT k, moved(n) AS m FROM t WHERE {where}", name=name, materialize=mode)
        self.queries[name] = (where, holds)

    def unregister(self) -> None:
        if self.queries:
            name = self.rng.choice(list(self.queries))
            self.db.unregister(name)
            del self.queries[name]

    def restart(self) -> None:
        self.db.close()
        self.db = self.connect()

    def step(self) -> None:
        steps = [self.push, self.push, self.register, self.register, self.unregister, self.replace, self.restart]
        self.rng.choice([*steps, self.db.backfill, self.db.maintain])()

    def check(self) -> None:
        for name, (where, holds) in self.queries.items():
            answer = self.db.invoke(name).table.to_pylist()
            expected = [{"k": row["k"], "m": self.moved(row)} for row in self.rows if holds(row)]
            assert sorted(answer, key=lambda row: row["k"]) == expected, where
            self.checked += 1


@pytest.mark.parametrize("seed", range(at_one_row(1, 6)))
def test_functions_agree_with_plain_python(tmp_path: Path, seed: int) -> None:
    workload = Workload(tmp_path / "warehouse", seed)
    workload.register()
    for _ in range(at_one_row(5, 30)):
        workload.step()
        workload.check()
    assert workload.checked > at_one_row(2, 20)
    workload.db.close()
