"""Random joins of streams: texts that Ladle and DuckDB both read, and tuples whose keys meet.

A statement is a text with holes where it mentions streams. Ladle reads a stream's name and its window there, DuckDB a
subquery over all raw tuples with the window as a predicate; the rest of the text is the same for both, and of the same
meaning. Streams have the same few columns with few values, so that keys meet.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from tests.support.generate import PushedRow
from tests.support.months import EPOCH
from tests.support.sampling import random_sampling
from tests.support.tree import (
    ZONED,
    At,
    ColumnSpec,
    KeyedRows,
    Moment,
    OwnWindow,
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
)

from ladle.eddy import Policy

if TYPE_CHECKING:
    pass

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
        return any(
            mention.stream.retain is None
            and ((mention.window is None and not moves) or isinstance(mention.window, KeyedRows))
            for mention in self.mentions[: self.joined]
        )


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
    "{0}.x + {0}.k > 1; is_odd({0}.x); is_odd({0}.k); is_odd({0}.x) AND {0}.k > 0; NOT is_odd({0}.x)"
)
IS_ODD = "CREATE FUNCTION is_odd(n INT) RETURNS BOOLEAN LANGUAGE PYTHON AS $$ pc.equal(pc.bit_wise_and(n, 1), 1) $$"
IS_ODD_FOR_DUCKDB = "CREATE MACRO is_odd(n) AS (n & 1) = 1"
POLICIES = tuple(policy.value for policy in Policy)
LABELS = "CREATE TABLE labels (k INT, label STRING)"
CHANGES = _each(
    "INSERT INTO labels VALUES ({0}, '{1}'); INSERT INTO labels VALUES ({0}, '{1}'), ({1}, NULL); "
    "UPDATE labels SET label = '{1}' WHERE k = {0}; UPDATE labels SET k = {1} WHERE k = {0}; "
    "DELETE FROM labels WHERE k = {0}"
)


class JoinMaker:
    """Makes one query over the given streams."""

    def __init__(self, rng: random.Random, streams: Sequence[StreamSpec], wall_us: int) -> None:
        self.rng = rng
        self.streams = streams
        self.wall_us = wall_us
        self._labelled = False
        """Whether the query also reads the table."""

    def query(self) -> JoinQuery:
        rng = self.rng
        self._labelled = rng.random() < 0.12
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
        mentions = tuple(
            replace(mention, window=self._bracket(mention.stream, narrow=narrow)) for mention in query.mentions
        )
        return replace(query, text=text, mentions=mentions, window=self._window(mentions))

    def _mentions(self, count: int, *, narrow: bool) -> tuple[StreamSource, ...]:
        rng = self.rng
        streams = [rng.choice(self.streams) for _ in range(count)]
        mentions = []
        for stream, alias in zip(streams, ("one", "two", "three"), strict=False):
            plain = streams.count(stream) == 1 and rng.random() < 0.4
            window, sampling = self._bracket(stream, narrow=narrow), random_sampling(rng)
            mentions.append(StreamSource(stream, None if plain else alias, window, sampling))
        return tuple(mentions)

    def _bracket(self, stream: StreamSpec, *, narrow: bool) -> OwnWindow | None:
        rng = self.rng
        if rng.random() < 0.1:
            return KeyedRows((rng.choice(stream.columns).name,), rng.choice((1, 3)))
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
        if self._labelled:
            on.append([f"labels.k = {_name(rng.choice(mentions))}.k"])
            holes.append("labels")
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
        if self._labelled and rng.random() < 0.5:
            return "labels.label", pa.string()
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
        stream = self.rng.choice(self.streams)
        everything = (*mentions, StreamSource(stream, None, self._bracket(stream, narrow=False)))
        pairs = f"SELECT count(*){self._from(mentions, inner=True)}"
        text = f"SELECT ({pairs}) / nullif((SELECT count(*) FROM {{{len(mentions)}}}), 0) AS q"
        window = self._window(everything)
        return JoinQuery(text, everything, (ColumnSpec("q", pa.float64()),), window, joined=len(mentions))
