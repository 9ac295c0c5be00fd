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
from tests.warehouses.content import DEFINED, QUIET, answers

from ladle.archive.warehouse import boot_id
from ladle.backup.copying import restore
from ladle.catalog.dependents import queries_calling, queries_over, queries_reading
from ladle.clock import ManualClock
from ladle.engine import Database
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
    said = json.loads((HERE / f"{request.param}.json").read_text())
    # Those versions bound the text of a query that was read by name once more, to what its stream had become.
    answers = said["answers"]
    answers["SELECT * FROM dear"] = [row.replace(", 'exchange': None", "") for row in answers["SELECT * FROM dear"]]
    return warehouse, {**said, "version": request.param}


def opened(warehouse: Path, said: dict[str, Any], *, read_only: bool = False) -> Database:
    return connect_inline(warehouse, clock=ManualClock(said["clock_us"]), settings=QUIET, read_only=read_only)


def test_versions_are_kept() -> None:
    """0.1.0; and 0.1.1, whose log had bound plans, as entries and as a checkpoint."""
    assert {"0.1.0", "0.1.1", "0.1.1-checkpoint"} <= set(VERSIONS)


def test_all_answers_are_what_they_were(kept: tuple[Path, dict[str, Any]]) -> None:
    warehouse, said = kept
    with opened(warehouse, said, read_only=True) as db:
        assert answers(db) == said["answers"]


def test_standing_queries_have_the_columns_they_had(kept: tuple[Path, dict[str, Any]]) -> None:
    """Their stream has one more by now; invoked and read by name they are the same."""
    warehouse, said = kept
    with opened(warehouse, said, read_only=True) as db:
        for query in db.queries():
            invoked = db.invoke(query.name)
            assert sorted(map(repr, invoked.to_pylist())) == said["answers"][f"SELECT * FROM {query.name}"]
        assert db.invoke("dear").table.column_names == ["symbol", "price", "size", "paid", "at"]


def test_everything_that_was_defined_is_there(kept: tuple[Path, dict[str, Any]]) -> None:
    warehouse, said = kept
    with opened(warehouse, said, read_only=True) as db:
        catalog = db.catalog
        told = {
            stream.name: ([column.name for column in stream.schema.columns], stream.retain_us, stream.event_time)
            for stream in catalog.streams.values()
        }
        assert told == {
            "trades": (["symbol", "price", "size", "paid", "at", "exchange"], 7 * 86_400_000_000, True),
            "orders": (["id", "symbol", "shares", "at"], 7 * 86_400_000_000, True),
            "notes": (["body", "raw", "flag"], None, False),
            "never": (["n"], None, False),
        }
        created = {}
        for statement in (each.strip() for each in DEFINED.split(";\n")):
            if statement.startswith("CREATE QUERY"):
                head, text = statement[: statement.index("SELECT")], statement[statement.index("SELECT") :]
                mode = "complete" if "'complete'" in head else "none" if "'none'" in head else "auto"
                created[head.split()[2]] = (text, mode)
        # Of a text 0.1.0 had no line ends.
        said_now = {query.name: (" ".join(query.sql.split()), query.materialize.value) for query in catalog.standing()}
        assert said_now == {name: (" ".join(text.split()), mode) for name, (text, mode) in created.items()}
        assert list(catalog.queries) == [name.lower() for name in created]
        assert all(query.broken is None for query in catalog.standing())
        assert queries_reading(catalog, "dear") == ["over_dear"]
        assert queries_calling(catalog, "is_even") == ["even"]
        assert queries_over(catalog, "companies") == ["traded"]
        (table,) = catalog.tables.values()
        assert [column.name for column in table.schema.columns] == ["symbol", "country", "listed"]
        (function,) = catalog.functions.values()
        assert (function.signature, "bit_wise_and(n, 1)" in function.source) == ("is_even(n INT) RETURNS BOOLEAN", True)
        (source,) = catalog.sources.values()
        assert (source.name, source.stream, source.format) == ("files", "trades", "csv")
        assert dict(source.options) == {"path": "/data/trades", "header": "true"}
        assert {token.name: token.role.value for token in catalog.access.tokens.values()} == {
            "ann": "reader",
            "bob": "writer",
        }
        assert catalog.shared_with("dear") == ["ann"]


def test_new_streams_get_directories_of_their_own(kept: tuple[Path, dict[str, Any]]) -> None:
    """Ids were shared with blocks then: those that were given must not be given again, nor differ from process to
    process.
    """
    warehouse, said = kept
    with opened(warehouse, said) as db:
        known = {path.name for path in (warehouse / "streams").iterdir()}
        db.sql("CREATE STREAM more (n INT)")
        assert str(db.catalog.streams["more"].id) not in known
        ids = {stream.name: stream.id for stream in db.catalog.all_streams()}
        db.register("SELECT n FROM more WHERE n > 7", name="of_more")
        with opened(warehouse, said, read_only=True) as reader:
            assert {stream.name: stream.id for stream in reader.catalog.all_streams()} == ids
            assert len(reader.invoke("of_more")) == 0


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
    """Its log has all entries: so positions in streams are known. Older versions of tables 0.1.0 did not keep."""
    warehouse, said = kept
    with opened(warehouse, said) as db:
        for stream in db.catalog.all_streams():
            assert not stream.files or stream.files[-1].next_id == stream.rows
            assert all(one.next_id <= other.first_id for one, other in pairwise(stream.files))
        orders = db.register("SELECT id FROM orders", name="late_orders")
        companies = db.register("SELECT symbol FROM companies", name="late_companies")
        since = db.catalog.epoch
        if said["version"] == "0.1.0":
            with pytest.raises(Gone, match="need versions of table 'companies' that are no longer kept") as gone:
                companies.subscribe(since=0).next(0.0)
            since = int(str(gone.value).partition("since=")[2].partition(",")[0])
        changes = companies.subscribe(since=since)
        db.push("orders", [{"id": 1_000, "symbol": "KO", "shares": 2, "at": "2023-11-14 22:06:00"}], wait=True)
        db.sql("INSERT INTO companies VALUES ('MS', 'US', NULL)")
        db.sql("UPDATE companies SET symbol = 'GS' WHERE symbol = 'MS'")
        assert [each.inserted.to_pylist() for each in iter(partial(changes.next, 0.0), None)] == [
            [{"symbol": "MS"}],
            [{"symbol": "GS"}],
        ]
        told = [each.inserted.to_pylist() for each in iter(partial(orders.subscribe(since=0).next, 0.0), None)]
        assert len(told) > 2
        assert [row for change in told for row in change] == orders.invoke().to_pylist()
