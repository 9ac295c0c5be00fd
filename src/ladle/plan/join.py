"""Joins of a bound query (PSoup section 5, CACQ section 3.2): which scans are joined, and by which comparisons.

What is shared is a *pair join*: two streams and a conjunction of comparisons between them. It knows neither filters nor
windows, so all queries with one join predicate share it; of their windows it needs to know how far apart in time two
tuples may be that one answer has both of, the *reach*. A query over more streams has several, and puts them together.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from ladle.json_values import Json, JsonRow
from ladle.plan.function import Function
from ladle.plan.translation import translation
from ladle.plan.window import MAX_US, MIN_US, TimeWindow, Window

_DAY_US = 86_400_000_000


class Relop(Enum):
    """The comparisons that a join may make."""

    EQ = "="
    LT = "<"
    LE = "<="
    GT = ">"
    GE = ">="

    @property
    def flipped(self) -> Relop:
        """The comparison that holds when the sides change places."""
        return _FLIPPED[self]


_FLIPPED = {
    Relop.EQ: Relop.EQ,
    Relop.LT: Relop.GT,
    Relop.LE: Relop.GE,
    Relop.GT: Relop.LT,
    Relop.GE: Relop.LE,
}


@dataclass(frozen=True)
class JoinKey:
    """One side of a comparison: a column of a stream, or an expression over its columns.

    `sql` is its canonical text; `duckdb` evaluates it, and is None for a plain column.
    """

    sql: str
    columns: tuple[str, ...]
    duckdb: str | None = None
    functions: tuple[Function, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class JoinFactor:
    """A comparison of a key of one scan with a key of another."""

    left: JoinKey
    relop: Relop
    right: JoinKey

    @property
    def flipped(self) -> JoinFactor:
        """The same comparison with its sides in each other's place."""
        return JoinFactor(self.right, self.relop.flipped, self.left)

    @property
    def text(self) -> str:
        """The comparison as text."""
        return f"{self.left.sql} {self.relop.value} {self.right.sql}"


class Reach(NamedTuple):
    """How much later than a left tuple a right one may be, in microseconds: `low < right.ts - left.ts < high`."""

    low: int
    high: int

    def covers(self, other: Reach) -> bool:
        """Whether all that the other reaches is reached here too."""
        return self.low <= other.low and self.high >= other.high

    @property
    def is_bounded(self) -> bool:
        """Whether it is bounded on both sides."""
        return self.low > MIN_US and self.high < MAX_US

    def allows(self, left: tuple[int, int], right: tuple[int, int]) -> bool:
        """Whether tuples of these ranges of time (first, last) can be pairs."""
        return right[1] - left[0] > self.low and right[0] - left[1] < self.high


@dataclass(frozen=True)
class PairJoin:
    """Two streams and the comparisons between them; equal ones are one, however they were written."""

    left: str
    right: str
    factors: tuple[JoinFactor, ...]

    @cached_property
    def text(self) -> str:
        """The join as text: what compares alike has the same."""
        return f"{self.left.lower()} * {self.right.lower()} | " + " AND ".join(factor.text for factor in self.factors)

    def digest(self, left_id: int, right_id: int) -> str:
        """What it is known by in a warehouse: ids of streams and of functions' versions are never used again, and the
        translation says what a text means.
        """
        text = f"{translation()} | {left_id} * {right_id} | {self.text.partition(' | ')[2]}"
        return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()

    def operator(self, *, left: bool) -> str:
        """What the eddy calls the SteM that tuples of one side visit."""
        return f"{self.text}: partners of {(self.left if left else self.right).lower()}" + (
            f" ({'left' if left else 'right'})" if self.left.lower() == self.right.lower() else ""
        )

    def keys(self, *, left: bool) -> tuple[JoinKey, ...]:
        """The keys of one side, each once."""
        keys = [factor.left if left else factor.right for factor in self.factors]
        return tuple({key.sql: key for key in keys}.values())


@dataclass(frozen=True)
class Edge:
    """A pair join between two scans of a query, by their numbers."""

    left: int
    right: int
    pair: PairJoin


@dataclass(frozen=True)
class SharedJoin:
    """Scans that are joined with each other: the residual reads the result under the name `relation`."""

    relation: str
    edges: tuple[Edge, ...]
    columns: tuple[tuple[str, int, str], ...]
    """(name, scan, column) of each column that the residual needs."""

    @cached_property
    def scans(self) -> tuple[int, ...]:
        """The numbers of the scans that are joined, each once."""
        return tuple(dict.fromkeys(number for edge in self.edges for number in (edge.left, edge.right)))


def make_edge(left: int, right: int, streams: tuple[str, str], factors: Iterable[JoinFactor]) -> Edge:
    """An edge with its factors in order, and its sides as everybody has them who joins these streams."""
    given = tuple(sorted(dict.fromkeys(factors), key=lambda factor: factor.text))
    turned = tuple(sorted((factor.flipped for factor in given), key=lambda factor: factor.text))
    one, other = PairJoin(*streams, given), PairJoin(streams[1], streams[0], turned)
    if other.text < one.text:
        return Edge(right, left, other)
    return Edge(left, right, one)


def reach(left: Window, right: Window) -> Reach:
    """How far apart two tuples may be that are in these windows at the same time, whenever that is."""
    left_in, left_out = _present(left)
    right_in, right_out = _present(right)
    return Reach(
        MIN_US if left_in == MIN_US or right_out == MAX_US else left_in - right_out,
        MAX_US if left_out == MAX_US or right_in == MIN_US else left_out - right_in,
    )


def _present(window: Window) -> tuple[int, int]:
    """How long after its own time a tuple comes into a window, and how long after it it leaves."""
    if not isinstance(window, TimeWindow):
        return 0, MAX_US
    begin, end = window.begin, window.end
    # A month has 28 to 31 days: whatever it is, the tuple is there no sooner and no longer.
    comes = MIN_US if end is None or not end.relative else -end.us - _days(end.months, 31 if end.months > 0 else 28)
    leaves = MAX_US
    if begin is not None and begin.relative:
        leaves = -begin.us - _days(begin.months, 28 if begin.months > 0 else 31)
    return comes, leaves


def _days(months: int, days: int) -> int:
    return months * days * _DAY_US


def join_to_json(join: SharedJoin) -> list[Json]:
    """Encode a join of scans."""
    edges: list[Json] = [
        [edge.left, edge.right, edge.pair.left, edge.pair.right, [_factor_to_json(f) for f in edge.pair.factors]]
        for edge in join.edges
    ]
    return [join.relation, edges, [list(column) for column in join.columns]]


def join_from_json(value: JsonRow, functions: Mapping[int, Function]) -> SharedJoin:
    """Decode a join of scans; `functions` are those that its keys may call, by id."""
    relation, edges, columns = value
    return SharedJoin(
        relation,
        tuple(
            Edge(left, right, PairJoin(one, other, tuple(_factor_from_json(f, functions) for f in factors)))
            for left, right, one, other, factors in edges
        ),
        tuple((name, scan, column) for name, scan, column in columns),
    )


def _factor_to_json(factor: JoinFactor) -> list[Json]:
    return [factor.relop.value, *(_key_to_json(key) for key in (factor.left, factor.right))]


def _factor_from_json(value: JsonRow, functions: Mapping[int, Function]) -> JoinFactor:
    relop, left, right = value
    return JoinFactor(_key_from_json(left, functions), Relop(relop), _key_from_json(right, functions))


def _key_to_json(key: JoinKey) -> list[Json]:
    return [key.sql, list(key.columns), key.duckdb, [function.id for function in key.functions]]


def _key_from_json(value: JsonRow, functions: Mapping[int, Function]) -> JoinKey:
    sql, columns, duckdb, called = value
    return JoinKey(sql, tuple(columns), duckdb, tuple(functions[number] for number in called))
