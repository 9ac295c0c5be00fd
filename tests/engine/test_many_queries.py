"""Very many standing queries: what one more touches, and that the answers are right all the same."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from benchmarks import registration

from ladle.catalog.dependents import queries_reading
from ladle.engine import Database
from ladle.plan import Block
from ladle.stem.query_stem import index_page
from ladle.testing import connect_inline

pytestmark = pytest.mark.not_at_one_row("its queries have no residual")

START_US = 1_700_000_000_000_000


def tuples(rows: int, first: int = 0) -> pa.Table:
    rng = np.random.default_rng(first)
    times = pa.array(np.arange(START_US + first, START_US + first + rows), pa.timestamp("us", "UTC"))
    return pa.table({"ts": times, **{name: rng.integers(0, 256, rows, dtype=np.int32) for name in "abcd"}})


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Database]:
    with connect_inline(tmp_path / "warehouse", settings={"maintenance_seconds": 3_600.0}) as database:
        database.sql("CREATE STREAM r (ts TIMESTAMP, a INT, b INT, c INT, d INT) TIMESTAMP BY ts")
        yield database


def test_an_epoch_indexes_only_the_page_that_changed(db: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ladle.catalog.standing.PAGE", 8)
    indexed: list[int] = []

    def counted(blocks: Mapping[int, Block]) -> Any:
        indexed.append(len(blocks))
        return index_page(blocks)

    monkeypatch.setattr("ladle.ingest.epochs.index_page", counted)

    def epoch() -> list[int]:
        indexed.clear()
        catalog = db.catalog
        task = db._ingest._task(catalog, catalog.streams["r"], "test")
        assert len(task.query_set) == len(catalog.queries.kept_on("r").pages)
        return list(indexed)

    db.register_many({f"q{n}": f"SELECT * FROM r WHERE a > {n}" for n in range(30)})
    assert sum(epoch()) == 30
    assert epoch() == []
    db.register("SELECT * FROM r WHERE b > 7", name="more")
    assert len(epoch()) == 1
    db.register("SELECT b FROM r WHERE b > 7", name="shares_its_block")
    assert epoch() == []
    db.unregister("q0")
    assert len(epoch()) == 1
    db.unregister("more")
    assert epoch() == [], "another query still has the block"


def test_many_at_once_answer_as_each_would(db: Database) -> None:
    rng = np.random.default_rng(5)
    texts = {f"q{n}": registration.selective_query(rng) for n in range(2_000)}
    db.register_many(texts)
    rows = tuples(5_000)
    db.push("r", rows, wait=True)
    columns = {name: np.asarray(rows[name]) for name in "abcd"}
    for name in list(texts)[::97]:
        plan = db.catalog.queries[name.lower()].plan
        mask = np.ones(len(rows), dtype=bool)
        for factor in plan.scans[0].block.factors:
            assert factor.ranges is not None
            ((low, high),) = factor.ranges.intervals
            values = columns[factor.ranges.column]
            mask &= (values >= low if low is not None else True) & (values < high if high is not None else True)
        assert len(db.invoke(name)) == np.count_nonzero(mask)
    status = db.status()
    assert [query.name for query in status.queries] == list(texts)
    assert {query.coverage for query in status.queries} == {1.0}


def test_they_are_there_after_a_restart(tmp_path: Path) -> None:
    rng = np.random.default_rng(6)
    texts = {f"q{n}": registration.selective_query(rng) for n in range(300)}
    with connect_inline(tmp_path / "w") as db:
        db.sql("CREATE STREAM r (ts TIMESTAMP, a INT, b INT, c INT, d INT) TIMESTAMP BY ts")
        db.register_many(texts)
        db.register("SELECT count(*) AS c FROM q7 WHERE a > 100", name="reader")
        db.push("r", tuples(500), wait=True)
        before = {name: query.blocks for name, query in db.catalog.queries.items()}
        answers = {name: len(db.invoke(name)) for name in texts}
    with connect_inline(tmp_path / "w") as db:
        assert {name: query.blocks for name, query in db.catalog.queries.items()} == before
        assert {name: query.sql for name, query in db.catalog.queries.items() if name != "reader"} == texts
        assert queries_reading(db.catalog, "q7") == ["reader"]
        assert {name: len(db.invoke(name)) for name in texts} == answers
        assert {query.coverage for query in db.status().queries} == {1.0}


def test_the_benchmark_runs() -> None:
    figures = registration.run(quick=True)
    assert figures["queries"] == 2_000
    assert all(value > 0 for value in figures.values())
    # Bars of the issue, far below what is measured, so that a busy machine keeps them.
    assert figures["register_one_more_cpu_s"] < 0.02
    assert figures["unregister_one_cpu_s"] < 0.02
    assert figures["epoch_task_cpu_s"] < 0.05
