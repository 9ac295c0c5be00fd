"""0.0 and -0.0 are equal and have other bits: which of them an answer has must not depend on how it is computed, or a
change that is none would be told.
"""

from __future__ import annotations

import struct
from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from tests.engine.rows import at

from ladle.clock import ManualClock
from ladle.testing import connect_inline

pytestmark = pytest.mark.not_at_one_row("who computes is its subject")

QUERIES = (
    "SELECT max(x) AS m, min(x) AS l, max(f) AS h FROM s",
    "SELECT k, max(x) AS m, min(f) AS l FROM s GROUP BY k",
    "SELECT k, max(x) AS m FROM s GROUP BY k HAVING max(x) >= 0 ORDER BY m LIMIT 5",
    "SELECT max(-x) AS m, min(x) FILTER (WHERE k = 1) AS l FROM s",
    "SELECT any_value(x) AS a, max_by(x, k) AS b, min_by(x, k) AS c FROM s",
    "SELECT median(x) AS m, percentile(x, 0.5) AS p FROM s",
    "SELECT k, max(x) OVER (PARTITION BY k) AS m FROM s",
    "SELECT x FROM s ORDER BY x LIMIT 1",
    "SELECT -f AS x FROM s ORDER BY x DESC LIMIT 2",
    "SELECT DISTINCT x FROM s ORDER BY x LIMIT 1",
    "SELECT x FROM s UNION ALL SELECT x + 1 FROM s ORDER BY x LIMIT 1",
)


def bits(table: pa.Table) -> list[list[Any]]:
    rows = [list(row.values()) for row in table.to_pylist()]
    return sorted([struct.pack("<d", value) if isinstance(value, float) else value for value in row] for row in rows)


@pytest.mark.parametrize("text", QUERIES)
def test_zeros_are_the_same_in_any_order_and_on_every_path(tmp_path: Path, clock: ManualClock, text: str) -> None:
    """In either order of arrival, by partial aggregates and without, and as a subscriber is told."""
    found = []
    for number, values in enumerate(permutations((-0.0, 0.0, -0.0))):
        with connect_inline(tmp_path / str(number), clock=clock) as db:
            db.sql("CREATE STREAM s (k INT, x DOUBLE, f FLOAT, at TIMESTAMP) TIMESTAMP BY at")
            db.register(text, name="q")
            following = db.query("q").subscribe()
            rows = [{"k": 1, "x": value, "f": value, "at": at(second)} for second, value in enumerate(values)]
            db.push("s", rows, wait=True)
            with db._store.pin() as catalog:
                plan = catalog.queries["q"].plan
                found.append(db._invoker.answer(plan, catalog, keep_nothing=True).table)
            found.append(db.invoke("q").table)
            delta = following.next(0.0)
            assert delta is not None
            found.append(delta.inserted)
    assert all(bits(table) == bits(found[0]) for table in found), [table.to_pylist() for table in found]
