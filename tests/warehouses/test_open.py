"""A warehouse of each version before opens with this one: tuples, tables, queries, functions, sources, tokens.

The kept answers are those that the version gave which wrote the warehouse; what came by another way since is looked at
on its own.
"""

from __future__ import annotations

import json
import shutil
import tarfile
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.warehouses.content import QUIET, answers

from ladle.archive.warehouse import boot_id
from ladle.clock import ManualClock
from ladle.engine import Database
from ladle.engine.backup import restore
from ladle.errors import Gone
from ladle.testing import connect_inline

HERE = Path(__file__).parent
VERSIONS = sorted(file.name.removesuffix(".tar.gz") for file in HERE.glob("*.tar.gz"))
PENDING = {"id": 999, "symbol": "IBM", "shares": 1}


@pytest.fixture(params=VERSIONS)
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    """A warehouse, and what its version said of it."""
    with tarfile.open(HERE / f"{request.param}.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    warehouse = tmp_path / "warehouse"
    # Derived files are read only in the run of the machine that wrote them: so that they are read here too.
    (warehouse / "boot").write_text(boot_id())
    return warehouse, json.loads((HERE / f"{request.param}.json").read_text())


def opened(warehouse: Path, said: dict[str, Any], *, read_only: bool = False) -> Database:
    return connect_inline(warehouse, clock=ManualClock(said["clock_us"]), settings=QUIET, read_only=read_only)


def test_versions_are_kept() -> None:
    assert "0.1.0" in VERSIONS


def test_all_answers_are_what_they_were(kept: tuple[Path, dict[str, Any]]) -> None:
    warehouse, said = kept
    with opened(warehouse, said, read_only=True) as db:
        assert answers(db) == said["answers"]


def test_answers_stay_without_derived_state(kept: tuple[Path, dict[str, Any]]) -> None:
    warehouse, said = kept
    shutil.rmtree(warehouse / "derived")
    with opened(warehouse, said, read_only=True) as db:
        assert answers(db) == said["answers"]


def test_what_was_pushed_is_taken_in(kept: tuple[Path, dict[str, Any]]) -> None:
    warehouse, said = kept
    with opened(warehouse, said) as db:
        db.push("orders", [{"id": 1_000, "symbol": "KO", "shares": 2, "at": "2023-11-14 22:06:00"}], wait=True)
        rows = db.sql("SELECT id, symbol, shares FROM orders WHERE id = 999").to_pylist()
        assert rows == [PENDING]
        assert db.sql("SELECT count(*) AS n FROM trades.quarantine").to_pylist() == [{"n": 12}]


def test_definitions_are_there_and_work_on(kept: tuple[Path, dict[str, Any]]) -> None:
    warehouse, said = kept
    with opened(warehouse, said) as db:
        tokens = {each["name"]: each["role"] for each in db.sql("SHOW TOKENS").to_pylist()}
        assert tokens == {"ann": "reader", "bob": "writer"}
        assert [each.name for each in db.sources()] == ["files"]
        assert [each.name for each in db.functions()] == ["is_even"]
        db.sql("INSERT INTO companies VALUES ('MS', 'US', NULL)")
        assert db.sql("SELECT count(*) AS n FROM companies").to_pylist() == [{"n": 5}]
        db.sql("INSERT INTO trades (symbol, price, size, at) VALUES ('GS', 498.0, 12, TIMESTAMP '2023-11-14 22:00:00')")
        assert {"symbol": "GS", "size": 12} in db.sql("SELECT * FROM even").to_pylist()
        db.sql("DROP QUERY over_dear")
        db.sql("DROP QUERY dear")


def test_maintained_it_answers_the_same(kept: tuple[Path, dict[str, Any]]) -> None:
    """Compacted and backfilled by this version, and opened again."""
    warehouse, said = kept
    with opened(warehouse, said) as db:
        db.push("orders", [{"id": 1_000, "symbol": "KO", "shares": 2, "at": "2023-11-14 22:06:00"}], wait=True)
        before = answers(db)
        db.maintain()
        db.backfill()
        assert answers(db) == before
    with opened(warehouse, said) as db:
        assert answers(db) == before
    with opened(warehouse, said, read_only=True) as db:
        assert answers(db) == before


def test_backed_up_and_restored_it_answers_the_same(kept: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    """By this version, before it has written anything there."""
    warehouse, said = kept
    with opened(warehouse, said, read_only=True) as db:
        db.backup(tmp_path / "backup")
    restore(tmp_path / "backup", tmp_path / "restored")
    with opened(tmp_path / "restored", said, read_only=True) as db:
        assert answers(db) == said["answers"]
    with opened(tmp_path / "restored", said) as db:
        db._ingest.drain(db.catalog.streams["orders"])
        assert db.sql("SELECT id, symbol, shares FROM orders WHERE id = 999").to_pylist() == [PENDING]


def test_subscribers_hear_what_came_before_and_what_comes(kept: tuple[Path, dict[str, Any]]) -> None:
    """Its log has all entries: so positions in streams are known. Older versions of tables it did not keep."""
    warehouse, said = kept
    with opened(warehouse, said) as db:
        for stream in db.catalog.all_streams():
            assert not stream.files or stream.files[-1].next_id == stream.rows
            assert all(one.next_id <= other.first_id for one, other in pairwise(stream.files))
        orders = db.register("SELECT id FROM orders", name="late_orders")
        companies = db.register("SELECT symbol FROM companies", name="late_companies")
        with pytest.raises(Gone, match="need versions of table 'companies' that are no longer kept") as gone:
            companies.subscribe(since=0).next(0.0)
        since = int(str(gone.value).partition("since=")[2].partition(",")[0])
        changes = companies.subscribe(since=since)
        db.push("orders", [{"id": 1_000, "symbol": "KO", "shares": 2, "at": "2023-11-14 22:06:00"}], wait=True)
        db.sql("INSERT INTO companies VALUES ('MS', 'US', NULL)")
        db.sql("UPDATE companies SET symbol = 'GS' WHERE symbol = 'MS'")
        assert [each.to_pylist() for each in iter(partial(changes.next, 0.0), None)] == [
            [{"symbol": "MS"}],
            [{"symbol": "GS"}],
        ]
        told = [each.to_pylist() for each in iter(partial(orders.subscribe(since=0).next, 0.0), None)]
        assert len(told) > 2
        assert [row for change in told for row in change] == orders.invoke().to_pylist()
