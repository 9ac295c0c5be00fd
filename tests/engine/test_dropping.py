"""Who drops a stream that is in use is told all that depends on it, at once."""

from __future__ import annotations

import re

import pytest
from tests.engine.rows import TICKS

from ladle.engine import Database
from ladle.errors import InUse

DEPENDENT = {
    "plain": "SELECT n FROM ticks",
    "Over_plain": "SELECT n FROM plain WHERE n > 1",
    "over_over": "SELECT max(n) AS m FROM Over_plain",
    "joined": "SELECT a.n FROM ticks [RANGE 1 MINUTE] a JOIN other [RANGE 1 MINUTE] b ON a.n = b.n",
    "inside": "SELECT n FROM other WHERE n IN (SELECT n FROM ticks)",
    "rejected": "SELECT reason FROM ticks.quarantine",
}


@pytest.fixture
def ticks(db: Database) -> Database:
    db.execute(f"{TICKS}; {TICKS.replace('ticks', 'other')}")
    for name, text in DEPENDENT.items():
        db.register(text, name=name)
    db.register("SELECT n FROM other", name="apart")
    return db


def test_all_that_depends_on_a_stream_is_named(ticks: Database) -> None:
    ticks.create_source("exchange", stream="ticks", format="rate")
    ticks.create_source("floor", stream="ticks", format="rate")
    with pytest.raises(InUse) as told:
        ticks.sql("DROP STREAM ticks")
    assert told.value.message == (
        "Stream 'ticks' can't be dropped: sources are defined for it: exchange, floor; "
        "queries stand on it: Over_plain, inside, joined, over_over, plain, rejected."
    )
    assert "DROP STREAM ticks CASCADE" in str(told.value)
    ticks.sql("DROP STREAM ticks CASCADE")
    assert [query.name for query in ticks.queries()] == ["apart"]
    assert ticks.sources() == []


def test_of_very_many_the_first_are_named_and_the_others_counted(ticks: Database) -> None:
    ticks.register_many({f"z{number:04}": f"SELECT n FROM ticks WHERE n > {number}" for number in range(1_500)})
    with pytest.raises(InUse, match=re.escape("z0013 and 1,486 more.")) as told:
        ticks.drop_stream("ticks")
    assert len(told.value.message) < 1_000


def test_tables_and_queries_name_them_too(ticks: Database) -> None:
    ticks.create_table("limits", {"n": "INT"})
    ticks.register("SELECT n FROM limits", name="Reader")
    ticks.register("SELECT n FROM reader", name="reader_of_reader")
    with pytest.raises(InUse, match="queries read it: Reader, reader_of_reader"):
        ticks.drop_table("limits")
    with pytest.raises(InUse, match="others read it: Over_plain, over_over"):
        ticks.unregister("plain")
