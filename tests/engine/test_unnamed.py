"""Queries that are registered without a name get one: readable, free, and never that of a query that was dropped."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor

import pytest
from tests.engine.conftest import Open
from tests.engine.rows import TICKS, ticks, values

from ladle.access import Role, User
from ladle.engine import Database
from ladle.errors import LadleError, ReadOnly, SqlError


def test_it_stands_under_a_name_of_its_own(db: Database, open_db: Open) -> None:
    db.sql(TICKS)
    db.push("ticks", ticks([1, 2, 3]), wait=True)
    query = db.register("SELECT n FROM ticks WHERE n > 1")
    assert re.fullmatch(r"query_\d+", query.name)
    assert values(query.invoke()) == [2, 3]
    assert values(db.sql(f"SELECT * FROM {query.name}")) == [2, 3]
    other = db.register("SELECT n FROM ticks WHERE n > 1", materialize="complete")
    assert other.name != query.name
    db.close()
    assert {each.name: each.materialize for each in open_db().queries()} == {
        query.name: "auto",
        other.name: "complete",
    }


def test_a_name_that_was_dropped_does_not_come_back(db: Database) -> None:
    first = db.register("SELECT 1 AS one")
    first.unregister()
    assert db.register("SELECT 1 AS one").name != first.name


def test_names_that_others_chose_are_passed_over(db: Database) -> None:
    taken = {f"Query_{number}": "SELECT 1 AS one" for number in range(1, 20)}
    db.register_many(taken)
    assert db.register("SELECT 2 AS two").name.lower() not in {name.lower() for name in taken}


def test_many_at_once_have_each_their_own(db: Database) -> None:
    with ThreadPoolExecutor(8) as threads:
        names = list(threads.map(lambda n: db.register(f"SELECT {n} AS n").name, range(40)))
    assert len(set(names)) == 40
    assert {query.name for query in db.queries()} == set(names)


def test_sql_has_it_too(db: Database) -> None:
    said = db.sql("CREATE QUERY AS SELECT 1 AS one").message
    assert said is not None
    assert db.query(said.split()[1]).invoke()[0] == {"one": 1}
    db.sql("CREATE QUERY WITH (materialize = 'none') AS WITH t AS (SELECT 2 AS two) SELECT * FROM t")
    assert [query.materialize for query in db.queries()] == ["auto", "none"]
    for text in ("CREATE QUERY IF NOT EXISTS AS SELECT 1 AS one", "CREATE OR REPLACE QUERY AS SELECT 1 AS one"):
        with pytest.raises(SqlError, match="name"):
            db.sql(text)


def test_a_user_owns_it(db: Database) -> None:
    session = db.session(User("ann", Role.WRITER))
    name = session.register_unnamed("SELECT 1 AS one", materialize="auto")
    assert db.catalog.access.owner(name) == "ann"


def test_what_becomes_of_a_name_needs_one(db: Database) -> None:
    for how in ({"if_not_exists": True}, {"replace": True}):
        with pytest.raises(LadleError, match="without a name"):
            db.register("SELECT 1 AS one", **how)


def test_a_reader_can_register_none(db: Database, open_db: Open) -> None:
    with pytest.raises(ReadOnly):
        open_db(read_only=True).register("SELECT 1 AS one")
