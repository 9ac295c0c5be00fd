"""Entries and checkpoints of older versions: their queries came with bound plans, and blocks had ids of the log.

Of a plan as it was bound then, the names that its text mentions are taken, and the schema that Spark told; the text is
bound again. Streams, tables and functions share a sequence of ids with the blocks of that time. So which of these an
entry brought is found out as it was then: whoever creates a stream after it gets the id that names its directory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING

from immutables import Map

from ladle import sql
from ladle.catalog.meaning import Meaning, meaning_of, resolved
from ladle.catalog.queries import QueryState, Shape, block_key, shape_from_text, told_by_spark
from ladle.errors import LadleError
from ladle.json_values import JsonFields, JsonRow
from ladle.plan import Factor, Plan
from ladle.plan.query import factor_from_json, plan_from_json
from ladle.sql.statement_types import Materialize

if TYPE_CHECKING:
    from ladle.catalog.bindings import Bindings
    from ladle.catalog.standing import Arriving

_ADDED_MAX = 12
_STREAMS_MAX = 3
"""To find the columns that a text was bound to, so many are taken from each of so many streams."""


@dataclass(frozen=True)
class Before:
    """The blocks that queries had, as ids were given to them by the log."""

    blocks: Map[str, int] = field(default_factory=Map)
    """By what they are known by, how many queries have them."""
    queries: Map[str, frozenset[str]] = field(default_factory=Map)
    """The blocks of each query, by its name in lower case."""

    def standing(self, name: str, keys: Iterable[str]) -> tuple[Before, int]:
        """With one query more, in the place of the one that has its name; and how many blocks are new."""
        own, name = frozenset(keys), name.lower()
        blocks = self.blocks.mutate()
        new = 0
        for key in own:
            new += key not in blocks
            blocks[key] = blocks.get(key, 0) + 1
        after = Before(blocks.finish(), self.queries)._let_go(self.queries.get(name, frozenset()))
        return replace(after, queries=self.queries.set(name, own)), new

    def without(self, names: Iterable[str]) -> Before:
        """What is known of queries, without those of these names."""
        before = self
        for name in map(str.lower, names):
            if name in before.queries:
                gone = before._let_go(before.queries[name])
                before = replace(gone, queries=before.queries.delete(name))
        return before

    def _let_go(self, keys: Iterable[str]) -> Before:
        blocks = self.blocks.mutate()
        for key in keys:
            if blocks[key] == 1:
                del blocks[key]
            else:
                blocks[key] -= 1
        return replace(self, blocks=blocks.finish())


class _OldPlans:
    """Plans as they were written: text, shape and factors, the latter two by number."""

    def __init__(self, value: JsonFields) -> None:
        self._shapes = [shape_from_text(text) for text in value["shapes"]]
        functions = {function.id: function for shape in self._shapes for function in shape.functions}
        self._factors = [factor_from_json(factor, functions) for factor in value["factors"]]

    def plan(self, value: JsonRow) -> Plan:
        text, shape, numbers = value
        factors: list[tuple[Factor, ...]] = [tuple(self._factors[number] for number in own) for own in numbers]
        return self._shapes[shape].plan(text, factors)

    def shape(self, value: JsonRow) -> Shape:
        return self._shapes[value[1]]


def _keys(plan: Plan, known: Arriving) -> list[str]:
    """By which the blocks of a plan were known."""
    keys = []
    for scan in plan.scans:
        stream = known.stream(scan.block.stream)
        assert stream is not None, f"stream {scan.block.stream} of a bound plan"
        keys.append(block_key(stream.id, scan.block))
    return keys


def register_before(
    before: Before, entry: JsonFields, known: Arriving, bindings: Bindings, next_ids: tuple[int, int]
) -> tuple[Before, int, int]:
    """Let the queries of an entry stand; the next id, and the next of a query, are returned."""
    next_id, next_query = next_ids
    whole = "shapes" not in entry  # formats before 2: plans are whole, and queries take ids from the one sequence
    reading = None if whole else _OldPlans(entry)
    arrived: list[tuple[int, str, Materialize, Plan]] = []
    for row in entry["queries"]:
        if reading is None:
            name, mode, plan = row["name"], row["materialize"], plan_from_json(row["bound"])
            query_id, next_id = next_id, next_id + 1
        else:
            name, mode, *parts = row
            query_id, plan = next_query, reading.plan(parts)
            next_query += 1
        before, new = before.standing(name, _keys(plan, known))
        next_id += new
        arrived.append((query_id, name, Materialize(mode), plan))
    for query_id, name, mode, plan in _lowest_first(arrived):
        last = known.changing.get(name)
        place = query_id if last is None else last.place
        meaning, told = meaning_of(plan, known), told_by_spark(plan)
        known.changing.add(
            QueryState(query_id, name, mode, entry["created_us"], plan.sql, meaning, bindings, place, told)
        )
    return before, next_id, next_id if whole else next_query


def _lowest_first(
    arrived: Sequence[tuple[int, str, Materialize, Plan]],
) -> Iterator[tuple[int, str, Materialize, Plan]]:
    """Queries of one entry, each after those that it reads."""
    waiting = list(arrived)
    while waiting:
        names = {name.lower() for _, name, _, _ in waiting}
        ready = [each for each in waiting if names.isdisjoint(read.lower() for read in each[3].queries)]
        yield from ready or waiting
        waiting = [each for each in waiting if each not in ready] if ready else []


def restore_before(value: JsonFields, known: Arriving, bindings: Bindings) -> tuple[Iterator[QueryState], Before]:
    """The queries of a checkpoint, each after those that it reads, and the blocks that they had."""
    rows: list[tuple[int, str, str, int, int, Plan]] = []
    if "shapes" in value:
        reading = _OldPlans(value)
        for id_, name, mode, created_us, _, place, *parts in value["queries"]:
            rows.append((id_, name, mode, created_us, place, reading.plan(parts)))
    else:
        for place, row in enumerate(value["queries"]):
            plan = plan_from_json(row["bound"])
            rows.append((row["id"], row["name"], row["materialize"], row["created_us"], place, plan))
    before = Before()
    for _, name, _, _, _, plan in rows:
        before, _ = before.standing(name, _keys(plan, known))
    return _restored(rows, known, bindings), before


def _restored(
    rows: Sequence[tuple[int, str, str, int, int, Plan]], known: Arriving, bindings: Bindings
) -> Iterator[QueryState]:
    by_name = {name.lower(): row for row in rows for name in [row[1]]}
    arrived = [(row[0], row[1], Materialize(row[2]), row[5]) for row in rows]
    found: dict[object, Meaning] = {}
    for id_, name, mode, plan in _lowest_first(arrived):
        _, _, _, created_us, place, _ = by_name[name.lower()]
        meaning = meaning_of(plan, known)
        key = (meaning, id(plan.residual), id(plan.schema))
        if key not in found:
            found[key] = _as_bound(plan, meaning, known)
        yield QueryState(id_, name, mode, created_us, plan.sql, found[key], bindings, place, told_by_spark(plan))


def _as_bound(plan: Plan, meaning: Meaning, known: Arriving) -> Meaning:
    """The meaning with the columns that streams had when the text was bound: a checkpoint does not say how many. The
    answer's columns do, and those that are read.
    """
    if _fits(plan, meaning):
        return meaning
    most = [len(each.schema.columns) for each in meaning.streams.values()]
    fewer = product(*(range(min(_ADDED_MAX, columns)) for columns in most)) if len(most) <= _STREAMS_MAX else ()
    for less in sorted(fewer, key=sum):
        columns = [all_ - lacking for all_, lacking in zip(most, less, strict=True)]
        try:
            tried = resolved(
                known,
                streams=list(zip(meaning.stream_list, columns, strict=True)),
                tables=[(each, None) for each in meaning.tables],
                queries=meaning.queries,
                functions=meaning.functions,
            )
        except LadleError:  # without its time column a stream is none
            continue
        if _fits(plan, tried):
            return tried
    return meaning


def _fits(plan: Plan, meaning: Meaning) -> bool:
    try:
        bound = sql.rebind(plan.sql, meaning)
    except LadleError:
        return False
    same = bound.schema is None or plan.schema is None or bound.schema.equals(plan.schema)
    return same and [scan.columns for scan in bound.scans] == [scan.columns for scan in plan.scans]
