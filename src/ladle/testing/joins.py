"""Joins of streams, judged: random join queries and a driver that compares every answer with DuckDB's.

A statement is a text with holes where it mentions streams. Ladle reads a stream's name and its window there, DuckDB a
subquery over all raw tuples with the window as a predicate; the rest of the text is the same for both, and of the same
meaning. Streams have the same few columns with few values, so that keys meet.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ladle.clock import ManualClock
from ladle.errors import PipelineError, SqlError, Unsupported
from ladle.testing.driver import Connect, Mismatch
from ladle.testing.generate import WALL_US, PushedRow
from ladle.testing.oracle import Expected, Oracle, difference, rows_of
from ladle.testing.tree import (
    EPOCH,
    ZONED,
    At,
    ColumnSpec,
    Moment,
    Range,
    Rows,
    Select,
    Span,
    StreamSource,
    StreamSpec,
    TimeSpan,
    duck_type,
    to_duckdb,
    to_ladle,
    to_us,
)

if TYPE_CHECKING:
    from ladle.answer import Answer

SECOND_US = 1_000_000
MODES = ("none", "partial", "complete", "auto")
COLUMNS = (
    ColumnSpec("k", pa.int32()),
    ColumnSpec("b", pa.int64()),
    ColumnSpec("t", pa.string()),
    ColumnSpec("d", pa.float64()),
    ColumnSpec("x", pa.int32()),
    ColumnSpec("at", ZONED),
)
_VALUES: dict[str, tuple[Any, ...]] = {
    "k": (None, 0, 1, 2, 2, 3, 4),
    "b": (None, 0, 1, 2, 3, 4, 5, 6),
    "t": (None, "", "a", "a", "b", "ab"),
    "d": (None, float("nan"), -0.0, 0.0, 0.5, 2.0, 3.0),
    "x": (None, -2, -1, 0, 1, 2, 3, 4, 5, 6),
}


def random_join_stream(rng: random.Random, name: str) -> StreamSpec:
    retain = rng.choice((None, None, Span(20, "SECOND"), Span(1, "MINUTE"), Span(1, "HOUR")))
    if rng.random() < 0.15:
        return StreamSpec(name, COLUMNS[:-1], None, retain)
    return StreamSpec(name, COLUMNS, "at", retain)


def random_join_rows(rng: random.Random, spec: StreamSpec, wall_us: int, count: int) -> list[PushedRow]:
    """Out of order, mostly on full seconds so that windows' edges are hit, and some late."""
    rows = []
    late = rng.choice((2, 8, 30))
    for _ in range(count):
        values = {name: rng.choice(pool) for name, pool in _VALUES.items()}
        if spec.time is not None:
            us = wall_us - rng.randint(-2, late) * SECOND_US + rng.choice((0, 0, 0, 0, 1, -1))
            values[spec.time] = EPOCH + timedelta(microseconds=us)
        rows.append(PushedRow(values))
    return rows


# --- queries ---


@dataclass(frozen=True)
class JoinQuery:
    """A text with `{0}`, `{1}`, ... for its mentions of streams, of which the first `joined` are joined."""

    text: str
    mentions: tuple[StreamSource, ...]
    columns: tuple[ColumnSpec, ...]
    window: TimeSpan | None = None
    joined: int = 2

    @property
    def streams(self) -> frozenset[str]:
        return frozenset(mention.stream.name for mention in self.mentions)

    @property
    def ladle(self) -> str:
        mentions = [to_ladle(Select(mention, ())) for mention in self.mentions]
        bounds = to_ladle(Select(self.mentions[0], (), window=self.window)).removeprefix(mentions[0])
        return self.text.format(*(mention.removeprefix("SELECT * FROM ") for mention in mentions)) + bounds

    def duckdb(self, at: At) -> str:
        tuples = [to_duckdb(Select(mention, (), window=self.window), at) for mention in self.mentions]
        named = [f"({text}) AS {_name(mention)}" for text, mention in zip(tuples, self.mentions, strict=True)]
        inner = self.text.format(*named)
        # the answer's types are Spark's; DuckDB would widen sums
        outputs = ", ".join(f"CAST({c.name} AS {duck_type(c.type)}) AS {c.name}" for c in self.columns)
        return f"SELECT {outputs} FROM ({inner}) AS _answer"

    @property
    def is_unbounded(self) -> bool:
        """Whether some joined stream's tuples may be needed forever."""
        moves = self.window is not None and self.window.begin is not None and self.window.begin.us is None
        joined = self.mentions[: self.joined]
        return not moves and any(mention.window is None and mention.stream.retain is None for mention in joined)


def _name(mention: StreamSource) -> str:
    return mention.alias or mention.stream.name


def _each(texts: str) -> list[str]:
    return texts.split("; ")


_EQUALITIES = _each(
    "{0}.k = {1}.k; {0}.k = {1}.b; {0}.b = {1}.x; {0}.t = {1}.t; {0}.d = {1}.d; {0}.k = {1}.b AND {0}.t = {1}.t; "
    "{0}.k = {1}.k AND {0}.x = {1}.b AND {0}.d = {1}.d; {0}.k + 1 = {1}.x; {0}.k = {1}.k AND {0}.x < {1}.x"
)
_RANGES = _each(
    "{0}.x > {1}.b - 2 AND {0}.x < {1}.b + 2; {0}.k BETWEEN {1}.b - 1 AND {1}.b + 1; {0}.k BETWEEN {1}.k AND {1}.b; "
    "{0}.x < {1}.x; {0}.d >= {1}.d; {0}.t < {1}.t AND {0}.t <= {1}.t; {0}.b + 1 <= {1}.k; "
    "{0}.d > {1}.d - 1 AND {0}.d <= {1}.d + 1"
)
_TIMES = _each(
    "{0}.at > {1}.at - INTERVAL 5 SECONDS AND {0}.at <= {1}.at; {0}.at = {1}.at; {0}.k = {1}.k AND {0}.at < {1}.at; "
    "{0}.t = {1}.t AND {0}.at BETWEEN {1}.at - INTERVAL 3 SECONDS AND {1}.at + INTERVAL 3 SECONDS"
)
_OTHERS = _each(
    "{0}.x + {1}.x > 3; {0}.k <> {1}.k; ({0}.k = {1}.k OR {0}.x = {1}.x); {0}.k IS NOT DISTINCT FROM {1}.b; "
    "{0}.k = {1}.d; NOT {0}.t = {1}.t"
)
_FILTERS = _each(
    "{0}.x < 4; {0}.t = 'a'; {0}.k IS NOT NULL; {0}.k IS NULL; {0}.d >= 0; {0}.k IN (1, 2); {0}.x BETWEEN 0 AND 5; "
    "{0}.x + {0}.k > 1"
)


class JoinMaker:
    """Makes one query over the given streams."""

    def __init__(self, rng: random.Random, streams: Sequence[StreamSpec], wall_us: int) -> None:
        self.rng = rng
        self.streams = streams
        self.wall_us = wall_us

    def query(self) -> JoinQuery:
        rng = self.rng
        count = 3 if rng.random() < 0.25 else 2
        crossed = rng.random() < 0.06
        mentions = self._mentions(count, narrow=crossed or count == 3)
        if rng.random() < 0.08:
            return self._ratio(mentions)
        made = self._outputs(mentions, self._from(mentions, crossed=crossed))
        if rng.random() < 0.06:
            text = f"SELECT count(*) AS n, max(c0) AS c0 FROM ({made.text}) AS inside"
            made = replace(made, text=text, columns=(ColumnSpec("n", pa.int64()), made.columns[0]))
        return replace(made, window=self._window(mentions))

    def variation(self, query: JoinQuery) -> JoinQuery:
        """The same join with other filters and windows: it shares pairs, and wants more or fewer of them."""
        text = query.text
        for name in map(_name, query.mentions):
            for known in (each.format(name) for each in _FILTERS):
                text = text.replace(known, self.rng.choice(_FILTERS).format(name))
        narrow = len(query.mentions) > 2 or "=" not in query.text
        mentions = tuple(replace(mention, window=self._bracket(narrow=narrow)) for mention in query.mentions)
        return replace(query, text=text, mentions=mentions, window=self._window(mentions))

    def _mentions(self, count: int, *, narrow: bool) -> tuple[StreamSource, ...]:
        rng = self.rng
        streams = [rng.choice(self.streams) for _ in range(count)]
        mentions = []
        for stream, alias in zip(streams, ("one", "two", "three"), strict=False):
            plain = streams.count(stream) == 1 and rng.random() < 0.4
            mentions.append(StreamSource(stream, None if plain else alias, self._bracket(narrow=narrow)))
        return tuple(mentions)

    def _bracket(self, *, narrow: bool) -> Range | Rows | None:
        rng = self.rng
        if not narrow and rng.random() < 0.4:
            return None
        if rng.random() < 0.5:
            return Range(Span(rng.choice((4, 10) if narrow else (1, 5, 10, 30)), "SECOND"))
        return Rows(rng.choice((1, 3, 6) if narrow else (1, 4, 10, 25)))

    def _window(self, mentions: Sequence[StreamSource]) -> TimeSpan | None:
        rng = self.rng
        unbounded = any(mention.window is None for mention in mentions)
        if rng.random() > (0.65 if unbounded else 0.1):
            return None
        since = Moment(us=(self.wall_us // SECOND_US - rng.randint(0, 40)) * SECOND_US)
        return rng.choice(
            (
                TimeSpan(since, Moment()),
                TimeSpan(since, Moment(us=(since.us or 0) + 20 * SECOND_US)),
                TimeSpan(Moment(less=Span(rng.choice((5, 12, 40)), "SECOND")), Moment()),
                TimeSpan(Moment(less=Span(30, "SECOND")), Moment(less=Span(10, "SECOND"))),
                TimeSpan(None, Moment(less=Span(3, "SECOND"))),
            )
        )

    def _condition(self, left: StreamSource, right: StreamSource) -> str:
        rng = self.rng
        pool = [_EQUALITIES, _EQUALITIES, _EQUALITIES, _RANGES]
        if left.stream.time is not None and right.stream.time is not None:
            pool.append(_TIMES)
        text = rng.choice(rng.choice(pool))
        if rng.random() < 0.06:
            text = rng.choice(_OTHERS)
        elif rng.random() < 0.25:
            text += f" AND {rng.choice(_OTHERS)}"
        sides = [_name(left), _name(right)]
        if rng.random() < 0.5:
            sides.reverse()
        return text.format(*sides)

    def _from(self, mentions: Sequence[StreamSource], *, crossed: bool = False, inner: bool = False) -> str:
        """FROM and WHERE."""
        rng = self.rng
        filters = [rng.choice(_FILTERS).format(_name(mention)) for mention in mentions if rng.random() < 0.35]
        on: list[list[str]] = []
        for at, mention in enumerate(mentions[1:], 1):
            partners = rng.sample(mentions[:at], at if rng.random() < 0.2 else 1)
            on.append([] if crossed else [self._condition(partner, mention) for partner in partners])
        holes = [f"{{{at}}}" for at in range(len(mentions))]
        if crossed or rng.random() < 0.5:
            factors = [factor for own in on for factor in own] + filters
            rng.shuffle(factors)
            text = f" FROM {rng.choice((', ', ' CROSS JOIN ')).join(holes)}"
            return text + (f" WHERE {' AND '.join(factors)}" if factors else "")
        text = f" FROM {holes[0]}"
        for hole, own in zip(holes[1:], on, strict=True):
            outer = not inner and rng.random() < 0.2
            word = rng.choice(("LEFT JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")) if outer else "JOIN"
            text += f" {word} {hole} ON {' AND '.join(own)}"
            if filters and hole == holes[-1] and rng.random() < 0.3:
                text += f" AND {filters.pop()}"
        return text + (f" WHERE {' AND '.join(filters)}" if filters else "")

    def _outputs(self, mentions: tuple[StreamSource, ...], rest: str) -> JoinQuery:
        rng = self.rng
        dice = rng.random()
        if dice < 0.15:
            return self._made("SELECT ", [("count(*)", pa.int64())], mentions, rest)
        values = [self._value(mentions) for _ in range(rng.randint(1, 4))]
        if dice < 0.7:
            return self._made("SELECT DISTINCT " if dice < 0.25 else "SELECT ", values, mentions, rest)
        keys = values[: rng.choice((0, 1, 1, 2))]
        folds = [self._fold(mentions) for _ in range(rng.randint(1, 3))]
        tail = f" GROUP BY {', '.join(text for text, _ in keys)}" if keys else ""
        return self._made("SELECT ", keys + folds, mentions, rest + tail)

    @staticmethod
    def _made(
        word: str, values: Sequence[tuple[str, pa.DataType]], mentions: tuple[StreamSource, ...], rest: str
    ) -> JoinQuery:
        columns = tuple(ColumnSpec(f"c{number}", type_) for number, (_, type_) in enumerate(values))
        outputs = ", ".join(f"{text} AS c{number}" for number, (text, _) in enumerate(values))
        return JoinQuery(word + outputs + rest, mentions, columns, joined=len(mentions))

    def _value(self, mentions: Sequence[StreamSource]) -> tuple[str, pa.DataType]:
        rng = self.rng
        if rng.random() < 0.15:
            return f"{_name(mentions[0])}.x + {_name(mentions[-1])}.k", pa.int32()
        mention = rng.choice(mentions)
        column = rng.choice(mention.stream.columns)
        return f"{_name(mention)}.{column.name}", column.type

    def _fold(self, mentions: Sequence[StreamSource]) -> tuple[str, pa.DataType]:
        rng = self.rng
        mention = rng.choice(mentions)
        if rng.random() < 0.4:
            name, type_ = rng.choice((("x", pa.int64()), ("b", pa.int64()), ("d", pa.float64())))
            return f"sum({_name(mention)}.{name})", type_
        if rng.random() < 0.3:
            return "count(*)", pa.int64()
        column = rng.choice(mention.stream.columns)
        return f"{rng.choice(('min', 'max'))}({_name(mention)}.{column.name})", column.type

    def _ratio(self, mentions: tuple[StreamSource, ...]) -> JoinQuery:
        """A selectivity: how many of the pairs, or of one stream's tuples."""
        everything = (*mentions, StreamSource(self.rng.choice(self.streams), None, self._bracket(narrow=False)))
        pairs = f"SELECT count(*){self._from(mentions, inner=True)}"
        text = f"SELECT ({pairs}) / nullif((SELECT count(*) FROM {{{len(mentions)}}}), 0) AS q"
        window = self._window(everything)
        return JoinQuery(text, everything, (ColumnSpec("q", pa.float64()),), window, joined=len(mentions))


# --- the judge and the driver ---


class JoinOracle(Oracle):
    def __init__(self) -> None:
        super().__init__()
        self._judged: dict[str, list[tuple[Any, ...]]] = {}

    def push(self, name: str, rows: list[PushedRow], wall_us: int) -> None:
        self._judged.clear()
        super().push(name, rows, wall_us)

    def judge(self, query: JoinQuery, wall_us: int, now_us: int | None = None) -> Expected:
        mentioned = [self.streams[name] for name in query.streams]
        if now_us is None:
            highs = [stream.high_us for stream in mentioned if stream.spec.time and stream.high_us is not None]
            now_us = min(highs, default=wall_us)
        floors = {name: self.floor(name, wall_us) for name in query.streams}
        sql = query.duckdb(At(now_us, {name: floor for name, floor in floors.items() if floor is not None}))
        rows = self._judged.get(sql)
        if rows is None:
            rows = self._judged[sql] = rows_of(self._duck.sql(sql).to_arrow_table())
        return Expected(query.columns, rows, False, now_us, sql)


class JoinDriver:
    """One warehouse under test: what is done to it is done to the oracle, and every answer is compared.

    It counts the answers `checked`, those of them that had rows (`filled`), those left `unanswered` (only Spark has
    them), and the queries `refused` for the state that they would keep.
    """

    def __init__(self, path: Path, connect: Connect, streams: Sequence[StreamSpec] = (), *, seed: int = 0) -> None:
        self.path = path
        self.clock = ManualClock(WALL_US)
        self.oracle = JoinOracle()
        self.standing: dict[str, tuple[JoinQuery, str]] = {}
        self.checked = self.filled = self.refused = self.unanswered = self._numbers = 0
        self._connect = connect
        rng = random.Random(seed)
        self.settings = self._settings(rng)
        self.db = connect(path, self.clock, self.settings)
        for spec in streams or [random_join_stream(rng, name) for name in "rsu"[: rng.choice((2, 2, 3))]]:
            self.db.sql(spec.create())
            self.oracle.create(spec)

    @staticmethod
    def _settings(rng: random.Random) -> dict[str, Any]:
        """Small limits, so that a few rows make segments, compactions and joins that are too large."""
        return {
            "segment_rows_max": rng.choice((4, 16, 64)),
            "compact_files_min": rng.choice((2, 3, 16)),
            "cache_bytes_max": rng.choice((1, 1 << 30)),
            "kept_bytes_max": rng.choice((0, 1 << 29, 1 << 29)),
            "backfill_rows_max": rng.choice((1, 1 << 19)),
            "join_pairs_max": rng.choice((3, 100, 16_000_000, 16_000_000)),
        }

    def close(self) -> None:
        self.db.close()
        self.oracle.close()

    @property
    def streams(self) -> list[StreamSpec]:
        return [stream.spec for stream in self.oracle.streams.values()]

    # --- actions ---

    def push(self, seed: int, count: int) -> None:
        rng = random.Random(seed)
        spec = rng.choice(self.streams)
        self.clock.advance(rng.randint(0, 5) * SECOND_US)
        self.push_rows(spec.name, random_join_rows(rng, spec, self.clock.now_us(), count))

    def push_rows(self, name: str, rows: list[PushedRow]) -> None:
        self.db.push(name, [row.values for row in rows], wait=True)
        self.oracle.push(name, rows, self.clock.now_us())

    def register(self, seed: int, mode: str) -> None:
        self._numbers += 1
        self.register_query(f"q{self._numbers}", self._made(random.Random(seed)), mode)

    def register_query(self, name: str, query: JoinQuery, mode: str) -> None:
        try:
            self.db.register(query.ladle, name=name, materialize=mode)
        except (SqlError, Unsupported) as error:
            if "unbounded" not in str(error).lower():
                raise
            if mode == "none" or not query.is_unbounded:
                raise Mismatch(f"refused although its state is bounded: {query.ladle}") from error
            self.refused += 1
            mode = "none"
            self.db.register(query.ladle, name=name, materialize=mode)
        self.standing[name] = (query, mode)

    def unregister(self, seed: int) -> None:
        name = random.Random(seed).choice(sorted(self.standing))
        self.db.query(name).unregister()
        del self.standing[name]

    def ask(self, seed: int) -> None:
        """A SELECT that does not stand."""
        query = self._made(random.Random(seed))
        self._compare("asked once", query, lambda: self.db.sql(query.ladle))

    def invoke_at(self, seed: int) -> None:
        """Another NOW: in the past, at an edge, in the future."""
        rng = random.Random(seed)
        name = rng.choice(sorted(self.standing))
        us = self.clock.now_us() + rng.randint(-40, 20) * SECOND_US + rng.choice((0, 0, 1, -1))
        now = (EPOCH + timedelta(microseconds=us)).replace(tzinfo=UTC)
        query, mode = self.standing[name]
        self._compare(f"{name} ({mode}) at {now}", query, lambda: self.db.query(name).invoke(now=now), now)

    def restart(self, seed: int) -> None:
        """With other limits, and sometimes after a crash that cut derived files short."""
        rng = random.Random(seed)
        self.db.close()
        if rng.random() < 0.3:
            for file in self._derived_files():
                if rng.random() < 0.5:
                    data = file.read_bytes()
                    # a new file: the old one may be mapped by this process, which did not really crash
                    file.unlink()
                    file.write_bytes(data[: rng.choice((0, len(data) // 2, max(len(data) - 1, 0)))])
        self.settings = self._settings(rng)
        self.db = self._connect(self.path, self.clock, self.settings)

    def delete_derived(self, seed: int) -> None:
        """Derived files vanish while the database is open: all, all of one kind, or some."""
        rng = random.Random(seed)
        if rng.random() < 0.4:
            for kind in rng.choice((("joins",), ("results",), ("joins", "results", "querysets"))):
                shutil.rmtree(self.path / "derived" / kind, ignore_errors=True)
            return
        share = rng.random()
        for file in self._derived_files():
            if rng.random() < share:
                file.unlink(missing_ok=True)

    def _derived_files(self) -> list[Path]:
        return sorted(file for file in (self.path / "derived").rglob("*") if file.is_file())

    def _made(self, rng: random.Random) -> JoinQuery:
        maker = JoinMaker(rng, self.streams, self.clock.now_us())
        if self.standing and rng.random() < 0.35:
            return maker.variation(self.standing[rng.choice(sorted(self.standing))][0])
        return maker.query()

    # --- comparing ---

    def check(self) -> None:
        """Invoke all standing queries and compare."""
        for name, (query, mode) in self.standing.items():
            self._compare(f"{name} ({mode})", query, self.db.query(name).invoke)

    def _compare(self, label: str, query: JoinQuery, answer: Callable[[], Answer], now: datetime | None = None) -> None:
        expected = self.oracle.judge(query, self.clock.now_us(), None if now is None else to_us(now))
        try:
            got = answer()
        except PipelineError as error:
            if "needs Spark" in str(error):
                self.unanswered += 1
                return
            raise
        problem = difference(got.table, expected)
        if problem is None and to_us(got.now) != expected.now_us:
            problem = f"NOW is {got.now}, expected {EPOCH + timedelta(microseconds=expected.now_us)}"
        self.checked += 1
        self.filled += bool(expected.rows)
        if problem is not None:
            raise Mismatch(f"{label}, {self.settings}: {problem}\nLadle:  {query.ladle}\nDuckDB: {expected.sql}")
