"""Windows after standing queries in FROM, against DuckDB over raw tuples: a row is in the window that the newest tuple
it is made of is in. And windows by key, which count each key's tuples in the order of arrival.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from datetime import timedelta
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from tests.engine.conftest import Open
from tests.engine.rows import START, at, values

from ladle.clock import ManualClock
from ladle.engine import Database
from ladle.errors import Gone, Unsupported
from ladle.testing.one_row import at_one_row

STREAMS = (
    "CREATE STREAM s (n INT, k INT, x DOUBLE, at TIMESTAMP) TIMESTAMP BY at RETAIN INTERVAL 1 DAY",
    "CREATE STREAM r (m INT, k INT, at TIMESTAMP) TIMESTAMP BY at RETAIN INTERVAL 1 DAY",
    "CREATE TABLE c (k INT, name STRING)",
    "INSERT INTO c VALUES (0, 'none'), (1, 'one'), (1, 'uno')",
)
# Each query as Ladle has it, and as DuckDB gives its rows with the newest time of their parts.
QUERIES = {
    "picked": ("SELECT n, k FROM s WHERE n % 2 = 0", "SELECT n, k, at FROM s WHERE n % 2 = 0 AND at <= $now"),
    "bounded": ("SELECT n FROM s [RANGE 7 SECONDS]", "SELECT n, at FROM s WHERE at > $now - INTERVAL 7 SECONDS"),
    "landmark": (
        "SELECT n FROM s BEGIN TIMESTAMP '2023-11-14 12:00:05' END NOW",
        "SELECT n, at FROM s WHERE at > TIMESTAMP '2023-11-14 12:00:05'",
    ),
    "last": (
        "SELECT n FROM s [ROWS 6]",
        "SELECT n, at FROM (SELECT * FROM s WHERE at <= $now ORDER BY id DESC LIMIT 6)",
    ),
    "keyed": (
        "SELECT n FROM s [PARTITION BY k ROWS 2] WHERE n > 3",
        "SELECT n, at FROM (SELECT * FROM s WHERE at <= $now"
        " QUALIFY row_number() OVER (PARTITION BY k ORDER BY id DESC) <= 2) WHERE n > 3",
    ),
    "joined": (
        "SELECT n, m FROM s JOIN r ON s.k = r.k",
        "SELECT n, m, greatest(s.at, r.at) FROM s JOIN r ON s.k = r.k",
    ),
    "either": (
        "SELECT n, m FROM s FULL JOIN r ON s.n = r.m",
        "SELECT n, m, greatest(s.at, r.at) FROM (SELECT * FROM s WHERE at <= $now) s"
        " FULL JOIN (SELECT * FROM r WHERE at <= $now) r ON s.n = r.m",
    ),
    "named": ("SELECT n, name FROM s JOIN c ON s.k = c.k", "SELECT n, name, at FROM s JOIN c ON s.k = c.k"),
    "names": (
        "SELECT name, n FROM c LEFT JOIN s ON s.k = c.k",
        "SELECT name, n, at FROM c LEFT JOIN (SELECT * FROM s WHERE at <= $now) s ON s.k = c.k",
    ),
    "both": ("SELECT n FROM s UNION ALL SELECT m FROM r", "SELECT n, at FROM s UNION ALL SELECT m, at FROM r"),
    "above": (
        "SELECT n + 1 AS more FROM picked WHERE k IS NOT NULL",
        "SELECT n + 1, at FROM s WHERE n % 2 = 0 AND k >= 0",
    ),
    "with_one": (
        "WITH x AS (SELECT n, k FROM s) SELECT x.n FROM x WHERE x.n NOT IN (SELECT y.n FROM x AS y WHERE y.k = 1)",
        "SELECT n, at FROM s WHERE n NOT IN (SELECT n FROM s WHERE k = 1 AND at <= $now)",
    ),
    "shadowed": ("WITH s AS (SELECT n, k FROM s WHERE k = 1) SELECT n FROM s", "SELECT n, at FROM s WHERE k = 1"),
    "with_two": (
        "WITH x AS (SELECT n, k FROM s) SELECT n FROM (WITH x AS (SELECT n FROM x WHERE k = 1) SELECT n FROM x) y",
        "SELECT n, at FROM s WHERE k = 1",
    ),
    "with_bounds": (
        "WITH x AS (SELECT n, k FROM s) SELECT n FROM"
        " (SELECT n FROM x WHERE k IN (SELECT k FROM r) BEGIN NOW - INTERVAL 3 SECONDS END NOW) y",
        "SELECT n, at FROM s WHERE k IN (SELECT k FROM r WHERE at > $now - INTERVAL 3 SECONDS AND at <= $now)",
    ),
    "semi": (
        "SELECT n FROM s LEFT SEMI JOIN r ON s.n = r.m",
        "SELECT n, at FROM s WHERE n IN (SELECT m FROM r WHERE at <= $now)",
    ),
    "derived": ("SELECT d.n FROM (SELECT n FROM s WHERE k = 1) d", "SELECT n, at FROM s WHERE k = 1"),
}
WINDOWS = {
    "[RANGE 3 SECONDS]": "newest > $now - INTERVAL 3 SECONDS AND newest <= $now",
    "[RANGE 20 SECONDS]": "newest > $now - INTERVAL 20 SECONDS AND newest <= $now",
    "[NOW]": "newest = $now",
    "[RANGE UNBOUNDED]": "newest IS NULL OR newest <= $now",
    "[BEGIN NOW - INTERVAL 9 SECONDS END NOW - INTERVAL 2 SECONDS]": (
        "newest > $now - INTERVAL 9 SECONDS AND newest <= $now - INTERVAL 2 SECONDS"
    ),
    "[BEGIN '2023-11-14 12:00:04' END '2023-11-14 12:00:11']": (
        "newest > TIMESTAMP '2023-11-14 12:00:04' AND newest <= TIMESTAMP '2023-11-14 12:00:11' AND newest <= $now"
    ),
}
_KEYS = (0, 1, 2, None)
_NUMBERS = (0.0, -0.0, float("nan"), None, 1.5)


class Raw:
    """All tuples that were pushed, as DuckDB sees them, beside the database that they were pushed into."""

    def __init__(self, db: Database, rng: random.Random) -> None:
        self.db = db
        self._rng = rng
        self._duck = duckdb.connect()
        self._duck.execute('CREATE TABLE s (id INT, n INT, k INT, x DOUBLE, "at" TIMESTAMP)')
        self._duck.execute('CREATE TABLE r (id INT, m INT, k INT, "at" TIMESTAMP)')
        self._duck.execute("CREATE TABLE c AS FROM (VALUES (0, 'none'), (1, 'one'), (1, 'uno')) t(k, name)")
        self._ids = 0
        self._clocks: dict[str, float] = {}

    def push(self, stream: str, upto: float) -> None:
        """A few tuples with times of the last seconds, one of them the newest."""
        rng = self._rng
        seconds = [upto, *(upto - rng.randrange(12) for _ in range(rng.randrange(6)))]
        rows: list[dict[str, Any]] = []
        for second in rng.sample(seconds, len(seconds)):
            self._ids += 1
            row: dict[str, Any] = {"k": rng.choice(_KEYS), "at": at(second)}
            own = {"n": self._ids, "x": rng.choice(_NUMBERS)} if stream == "s" else {"m": rng.randrange(1, 40)}
            rows.append({**own, **row})
            values_ = [self._ids, *own.values(), row["k"], at(second).replace(tzinfo=None)]
            if stream == "s":
                values_ = [self._ids, own["n"], row["k"], own["x"], at(second).replace(tzinfo=None)]
            self._duck.execute(f"INSERT INTO {stream} VALUES ({', '.join('?' * len(values_))})", values_)
        self._clocks[stream] = max(upto, self._clocks.get(stream, upto))
        self.db.push(stream, rows, wait=True)

    def rows(self, sql: str, streams: set[str]) -> Counter[str]:
        now = at(min(clock for stream, clock in self._clocks.items() if stream in streams)).replace(tzinfo=None)
        written = re.sub(r"\bat\b", '"at"', sql).replace("$now", f"TIMESTAMP '{now.isoformat(' ')}'")
        found = self._duck.execute(written).fetchall()
        return Counter(map(repr, found))


def rows_of(table: pa.Table) -> Counter[str]:
    return Counter(repr(tuple(row.values())) for row in table.to_pylist())


@pytest.fixture
def chance() -> random.Random:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")  # noqa: T201
    return random.Random(seed)


def test_every_window_on_every_query(open_db: Open, chance: random.Random) -> None:
    db = open_db(segment_rows_max=5, compact_files_min=3, grace_seconds=0.0)
    for text in STREAMS:
        db.sql(text)
    for name, (text, _) in QUERIES.items():
        db.sql(f"CREATE QUERY {name} AS {text}")
    for number, window in enumerate(WINDOWS):
        for mode in ("partial", "complete"):
            db.register(f"SELECT n FROM picked {window}", name=f"stands_{mode}_{number}", materialize=mode)
    raw = Raw(db, chance)
    for step in range(3):
        # In this order NOW of both never stands still.
        raw.push("r", 3.0 * step - chance.randrange(3))
        raw.push("s", 3.0 * step)
        for name, (text, duck) in QUERIES.items():
            streams = {each for each in ("s", "r") if f" {each} " in f" {duck} "}
            for number, (window, condition) in enumerate(WINDOWS.items()):
                found = db.sql(f"SELECT * FROM {name} {window}").table
                columns = ", ".join(f"a{place}" for place in range(found.num_columns))
                expected = f"SELECT {columns} FROM ({duck}) AS rows({columns}, newest) WHERE {condition}"
                assert rows_of(found) == raw.rows(expected, streams), f"{text} {window}"
                if name == "picked":
                    for mode in ("partial", "complete"):
                        own = values(db.invoke(f"stands_{mode}_{number}"))
                        assert Counter(own) == Counter(values(db.sql(f"SELECT n FROM picked {window}"))), mode
        db.maintain()


def test_windows_by_key_in_every_mode(open_db: Open, chance: random.Random) -> None:
    """Keys are equal as GROUP BY has it. Tuples of any time count, in the order of arrival, before WHERE does."""
    db = open_db(segment_rows_max=4, compact_files_min=3, grace_seconds=0.0)
    for text in STREAMS:
        db.sql(text)
    texts = {
        "k": "SELECT n FROM s [PARTITION BY k ROWS 2]",
        "x": "SELECT n FROM s [PARTITION BY X ROWS 1] WHERE n % 3 > 0",
        "kx": "SELECT n FROM s [PARTITION BY x, k ROWS 3]",
        "counted": "SELECT k, count(*) AS n FROM s [PARTITION BY k ROWS 3] GROUP BY k",
        "paired": "SELECT a.n, b.n AS other FROM s [PARTITION BY k ROWS 1] a "
        "JOIN s [PARTITION BY x ROWS 2] b ON a.k = b.k",
    }

    def last(by: str, rows: int) -> str:
        key = by.replace("x", "x + 0.0")
        return f"(FROM s WHERE at <= $now QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY id DESC) <= {rows})"

    expected = {
        "k": f"SELECT n FROM {last('k', 2)}",
        "x": f"SELECT n FROM {last('x', 1)} WHERE n % 3 > 0",
        "kx": f"SELECT n FROM {last('k, x', 3)}",
        "counted": f"SELECT k, count(*) FROM {last('k', 3)} GROUP BY k",
        "paired": f"SELECT a.n, b.n FROM {last('k', 1)} a JOIN {last('x', 2)} b ON a.k = b.k",
    }
    for name, text in texts.items():
        for mode in ("none", "partial", "complete", "auto"):
            db.register(text, name=f"{name}_{mode}", materialize=mode)
    followed = {name: db.query(f"{name}_partial").subscribe(snapshot=True) for name in texts}
    copies: dict[str, Counter[str]] = {name: Counter() for name in texts}
    raw = Raw(db, chance)
    entries: dict[int, dict[str, Counter[str]]] = {}
    for step in range(at_one_row(3, 12)):
        raw.push("s", 2.0 * step)
        if step % 4 == 2:
            db.backfill()
            db.maintain()
        entry, answers = 0, {}
        for name, text in texts.items():
            answers[name] = raw.rows(expected[name], {"s"})
            for mode in ("none", "partial", "complete", "auto"):
                answer = db.invoke(f"{name}_{mode}")
                assert rows_of(answer.table) == answers[name], (name, mode, step)
                entry = answer.entry
            assert rows_of(db.sql(text).table) == answers[name]
            while (delta := followed[name].next(0)) is not None:
                copies[name] += rows_of(delta.inserted)
                gone = rows_of(delta.retracted)
                assert gone <= copies[name]
                copies[name] -= gone
            assert copies[name] == answers[name], (name, step)
        entries[entry] = answers
    for entry, answers in entries.items():
        for name, rows in answers.items():
            assert rows_of(db.sql(f"SELECT * FROM {name}_none VERSION AS OF {entry}").table) == rows


@pytest.mark.parametrize("own", ["VERSION AS OF {entry}", "TIMESTAMP AS OF '2023-11-14 12:00:10'"])
def test_now_in_a_window_is_that_of_its_mention(db: Database, own: str) -> None:
    """Also where the query reads something at another moment."""
    for text in STREAMS:
        db.sql(text)
    entries = []
    for number in range(20):
        db.push("r", [{"m": number, "k": 0, "at": at(number)}], wait=True)
        db.push("s", [{"n": number, "k": 0, "at": at(number)}], wait=True)
        entries.append(db.catalog.seq)
    own = own.format(entry=entries[10])
    db.sql("CREATE QUERY plain AS SELECT n FROM s")
    texts = (
        f"SELECT n FROM s {own}",
        f"SELECT n FROM s {own} [ROWS 100]",
        f"SELECT n FROM plain {own}",
        f"SELECT n FROM s {own} JOIN r {own} ON n = m",
        f"WITH x AS (SELECT n FROM plain {own}) SELECT n FROM x",
    )
    for number, text in enumerate(texts):
        db.sql(f"CREATE QUERY q{number} AS {text}")
        db.sql(f"CREATE QUERY over{number} AS SELECT n FROM q{number} [RANGE 12 SECONDS]")
        assert values(db.sql(f"SELECT n FROM q{number} [RANGE 4 SECONDS]")) == [], text
        assert sorted(values(db.sql(f"SELECT n FROM q{number} [RANGE 12 SECONDS]"))) == [8, 9, 10], text
        past = f"VERSION AS OF {entries[13]}"
        assert sorted(values(db.sql(f"SELECT n FROM q{number} {past} [RANGE 5 SECONDS]"))) == [9, 10], text
        assert sorted(values(db.sql(f"SELECT n FROM over{number} {past}"))) == list(range(2, 11)), text


@pytest.mark.not_at_one_row("Spark writes out what is read often, once for each place")
def test_what_is_read_often_within_a_window_is_bound_once(db: Database) -> None:
    for text in STREAMS:
        db.sql(text)
    db.push("s", [{"n": number, "k": 0, "at": at(number)} for number in range(10)], wait=True)
    db.sql("CREATE QUERY q0 AS SELECT n FROM s")
    for number in range(1, 19):
        db.sql(f"CREATE QUERY q{number} AS SELECT a.n FROM q{number - 1} a SEMI JOIN q{number - 1} b ON a.n = b.n")
        db.sql(f"CREATE QUERY u{number} AS SELECT n FROM q{number - 1} UNION SELECT n FROM q{number - 1}")
    for name in ("q18", "u18"):
        assert sorted(values(db.sql(f"SELECT n FROM {name} [RANGE 3 SECONDS]"))) == [7, 8, 9]
    ctes = ", ".join(f"x{each} AS (SELECT n FROM x{each - 1} UNION SELECT n FROM x{each - 1})" for each in range(1, 19))
    db.sql(f"CREATE QUERY w AS WITH x0 AS (SELECT n FROM s), {ctes} SELECT n FROM x18")
    assert sorted(values(db.sql("SELECT n FROM w [RANGE 3 SECONDS]"))) == [7, 8, 9]


def test_a_key_that_retention_lets_go_of(open_db: Open, clock: ManualClock) -> None:
    db = open_db(grace_seconds=0.0)
    db.sql("CREATE STREAM s (n INT, k INT, at TIMESTAMP) TIMESTAMP BY at RETAIN INTERVAL 10 SECONDS")
    db.register("SELECT n FROM s [PARTITION BY k ROWS 1]", name="q")
    followed = db.query("q").subscribe()
    db.push("s", [{"n": 1, "k": 1, "at": at(0)}, {"n": 2, "k": 2, "at": at(5)}], wait=True)
    assert values(db.invoke("q")) == [1, 2]
    db.push("s", [{"n": 3, "k": 2, "at": at(11)}], wait=True)
    assert values(db.invoke("q")) == [3]
    first, second = followed.next(1), followed.next(1)
    assert first is not None
    assert second is not None
    assert sorted(values(first)) == [1, 2]
    assert (values(second), sorted(second.retracted.column("n").to_pylist())) == ([3], [1, 2])
    assert values(db.invoke("q", now=START + timedelta(seconds=20))) == [3]
    with pytest.raises(Gone):
        db.invoke("q", now=START + timedelta(seconds=6))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT k, count(*) AS c FROM s GROUP BY k", "it groups its rows"),
        ("SELECT max(n) AS m FROM s", "it groups its rows"),
        ("SELECT n FROM s ORDER BY n LIMIT 3", "depends on all others"),
        ("(SELECT n FROM s UNION SELECT m FROM r) LIMIT 3", "depends on all others"),
        ("SELECT n, rank() OVER (ORDER BY n) AS place FROM s", "of many rows"),
        ("SELECT n FROM s QUALIFY rank() OVER (ORDER BY n) = 1", "of many rows"),
        ("SELECT n FROM s EXCEPT ALL SELECT m FROM r", "compares it"),
        ("SELECT k, name FROM c", "it reads no stream"),
        ("SELECT n FROM s UNION ALL SELECT 1", "it reads no stream"),
        (
            "SELECT s.n, l.m FROM s, LATERAL (SELECT m FROM r WHERE r.k = s.k) l",
            "it joins what subqueries give",
        ),
        ("SELECT d.n, r.m FROM (SELECT n FROM s) d JOIN r ON d.n = r.m", "it joins what subqueries give"),
        ("SELECT * FROM (SELECT k, n FROM s) PIVOT (sum(n) FOR k IN (1, 2))", "it groups its rows"),
    ],
)
def test_rows_without_a_time_have_no_window(db: Database, text: str, why: str) -> None:
    for each in STREAMS:
        db.sql(each)
    db.sql(f"CREATE QUERY q AS {text}")
    with pytest.raises(Unsupported, match=why) as raised:
        db.sql("SELECT * FROM q [RANGE 3 SECONDS]")
    assert raised.value.message.startswith("In the standing query 'q': ")


def test_a_join_by_keys_must_be_bounded(db: Database) -> None:
    db.sql("CREATE STREAM free (k INT, at TIMESTAMP) TIMESTAMP BY at")
    text = "SELECT a.k FROM free [PARTITION BY k ROWS 1] a JOIN free [ROWS 5] b ON a.k = b.k"
    with pytest.raises(Unsupported, match="unbounded"):
        db.register(text, name="q")
    db.register(text, name="q", materialize="none")
