"""Standing queries as of one log entry: their texts and what the names in them mean, and what follows from that.

What a text is bound to, its *shape* and *factors*, is derived: it comes from the binder when it is first needed, or
from what was kept of it (`ladle.catalog.bindings`). Thousands of queries differ in constants alone, so shapes and
factors are held once. A text that does not bind is *broken*: it stands, says why, and has no plan.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple
from weakref import WeakValueDictionary

import pyarrow as pa

from ladle.catalog.meaning import KnownNames, Meaning, References, meaning_from
from ladle.errors import BrokenQuery
from ladle.json_values import Json, JsonFields, JsonObject, JsonRow
from ladle.plan import AsOf, Block, Engine, Factor, JoinedForm, Plan, Residual, Sample, Scan, TableRead, Window
from ladle.plan.function import Function
from ladle.plan.query import PlanJson, plan_from_json, plan_to_json
from ladle.schema import decode_schema, encode_schema
from ladle.sql.statement_types import Materialize

if TYPE_CHECKING:
    from ladle.catalog.bindings import Bindings

_TEXTS_MAX = 256

Factors = tuple[Factor, ...]


@dataclass(frozen=True)
class ShapeScan:
    """A scan but for its factors."""

    relation: str
    stream: str
    window: Window
    columns: tuple[str, ...]
    as_of: AsOf | None = None
    sample: Sample | None = None


@dataclass(frozen=True)
class Shape:
    """A plan but for its text and factors."""

    scans: tuple[ShapeScan, ...]
    residual: Residual
    schema: pa.Schema | None
    queries: tuple[str, ...]
    functions: tuple[Function, ...]
    joined: JoinedForm | None
    tables: tuple[TableRead, ...]
    nows: tuple[AsOf, ...]
    text: str
    """All of it, as JSON."""

    @cached_property
    def streams(self) -> tuple[str, ...]:
        """The streams that are read, each once."""
        return tuple(dict.fromkeys(scan.stream for scan in self.scans))

    @cached_property
    def window_kinds(self) -> str:
        """The kinds of its windows, as people read them."""
        return ", ".join(dict.fromkeys(scan.window.kind.value for scan in self.scans))

    def plan(self, sql: str, factors: Sequence[Factors]) -> Plan:
        """A plan of this shape with its own text and factors."""
        scans = tuple(
            Scan(scan.relation, Block(scan.stream, own), scan.window, scan.columns, scan.as_of, scan.sample)
            for scan, own in zip(self.scans, factors, strict=True)
        )
        shared = (self.residual, self.schema, self.queries, self.functions, self.joined, self.tables, self.nows)
        return Plan(sql, scans, *shared)


class BoundText(NamedTuple):
    """What a text was bound to."""

    shape: Shape
    factors: tuple[Factors, ...]
    """Of each scan."""


_shapes: WeakValueDictionary[str, Shape] = WeakValueDictionary()
_factors: WeakValueDictionary[tuple[object, ...], Factor] = WeakValueDictionary()


def shape_from_text(text: str) -> Shape:
    """The one object of a shape."""
    known = _shapes.get(text)
    if known is not None:
        return known
    value: PlanJson = json.loads(text)
    value["sql"] = ""
    plan = plan_from_json(value)
    scans = tuple(
        ShapeScan(scan.relation, scan.block.stream, scan.window, scan.columns, scan.as_of, scan.sample)
        for scan in plan.scans
    )
    shared = (plan.residual, plan.schema, plan.queries, plan.functions, plan.joined, plan.tables, plan.nows)
    shape = Shape(scans, *shared, text)
    return _shapes.setdefault(text, shape)


def shape_text(plan: Plan) -> str:
    """A plan as text without its own SQL and factors: queries that differ in nothing else have one shape."""
    value = plan_to_json(plan)
    for scan in value["scans"]:
        scan["factors"] = []
    shared = {name: part for name, part in value.items() if name != "sql"}
    return json.dumps(shared, separators=(",", ":"), ensure_ascii=False)


_texts: OrderedDict[object, tuple[Plan, str]] = OrderedDict()
_texts_lock = threading.Lock()


def _text_of(key: object, plan: Plan) -> str:
    """A shape's text, by a key made of the plan's parts, which the plan beside it keeps alive."""
    with _texts_lock:
        known = _texts.get(key)
    if known is not None:
        return known[1]
    text = shape_text(plan)
    with _texts_lock:
        _texts[key] = (plan, text)
        if len(_texts) > _TEXTS_MAX:
            _texts.popitem(last=False)
    return text


def same_factor(factor: Factor) -> Factor:
    """The one object of a factor."""
    # Functions by what they are: another warehouse may have given the same id.
    return _factors.setdefault((factor.sql, factor.duckdb, factor.columns, factor.ranges, factor.functions), factor)


class Shaping:
    """Takes plans apart, many of which share their parts."""

    def __init__(self) -> None:
        self._shapes: dict[object, Shape] = {}
        self._factors: dict[int, Factor] = {}
        # What is known by its identity has to stay alive.
        self._held: list[object] = []

    def __len__(self) -> int:
        return len(self._held)

    def bound(self, plan: Plan) -> BoundText:
        """A plan as its shape, shared with all plans that have it, and its factors."""
        # Plans made of one template share these very objects; others are told apart by what they say.
        scans = tuple([(scan.relation, scan.block.stream, id(scan.window), scan.columns) for scan in plan.scans])
        shared = (id(plan.residual), id(plan.schema), id(plan.functions), id(plan.joined))
        key = (shared, scans, plan.queries, plan.tables)
        shape = self._shapes.get(key)
        if shape is None:
            shape = self._shapes[key] = shape_from_text(_text_of(key, plan))
            self._held.append(plan)
        return BoundText(shape, tuple([self._same(scan.block.factors) for scan in plan.scans]))

    def _same(self, factors: Factors) -> Factors:
        known = self._factors
        for factor in factors:
            if id(factor) not in known:
                known[id(factor)] = same_factor(factor)
                self._held.append(factor)
        return tuple([known[id(factor)] for factor in factors])


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class QueryState:
    """A standing query as of one log entry."""

    id: int
    name: str
    materialize: Materialize
    created_us: int
    sql: str
    meaning: Meaning
    bindings: Bindings
    place: int = 0
    """Queries are listed in the order of these: one that replaced another has its place."""
    told: str | None = None
    """The answer's schema, where only Spark could tell it, when the query came."""
    _bound: BoundText | str | None = field(default=None, init=False, repr=False)
    """What the text was bound to, or why it does not bind. None: nobody has asked yet."""
    _blocks: tuple[int, ...] | None = field(default=None, init=False, repr=False)
    _plan: Plan | None = field(default=None, init=False, repr=False)

    @property
    def level(self) -> int:
        """Lower than that of any query that reads it."""
        return len(self.meaning.queries)

    def take(self, bound: BoundText | str, blocks: tuple[int, ...] | None = None) -> None:
        """Be told what the text is bound to, by who knows."""
        object.__setattr__(self, "_blocks", blocks)
        object.__setattr__(self, "_bound", bound)

    @property
    def broken(self) -> str | None:
        """Why the text does not bind, if it does not."""
        bound = self._bound or self.bindings.bind(self)
        return bound if isinstance(bound, str) else None

    @property
    def bound(self) -> BoundText:
        """What its text is bound to. A query that is broken is refused."""
        bound = self._bound or self.bindings.bind(self)
        if isinstance(bound, str):
            raise self.refused(bound)
        return bound

    def refused(self, why: str) -> BrokenQuery:
        """What is said to who needs the plan of a query that is broken."""
        return BrokenQuery(f"Query '{self.name}' is broken: {why}", hint=f"{self.remedy(why)}; its text is kept")

    def remedy(self, why: str) -> str:
        """What to do about a query that is broken for that reason: mend the one that it reads, if that is named."""
        below = [each.name for each in self.meaning.queries.values() if why.startswith(reads_broken(each.name))]
        if below:
            return f"replace that one (CREATE OR REPLACE QUERY {below[0]} AS ...)"
        return f"replace it (CREATE OR REPLACE QUERY {self.name} AS ...), or drop it"

    @property
    def is_bound(self) -> bool:
        """Whether it is known already what the text is bound to."""
        return isinstance(self._bound, tuple)

    @property
    def shape(self) -> Shape:
        """The shape of its plan."""
        return self.bound.shape

    @property
    def factors(self) -> tuple[Factors, ...]:
        """Of each scan."""
        return self.bound.factors

    @property
    def blocks(self) -> tuple[int, ...]:
        """The number of each scan's block."""
        if self._blocks is None:
            object.__setattr__(self, "_blocks", self.bindings.numbering.numbers(self._keys()))
        assert self._blocks is not None
        return self._blocks

    def _keys(self) -> list[str]:
        shape, factors = self.bound
        rows = zip(shape.scans, factors, strict=True)
        return [block_key(self.meaning.stream_id(scan.stream), Block(scan.stream, own)) for scan, own in rows]

    @property
    def plan(self) -> Plan:
        """Its plan."""
        if self._plan is None:
            shape, factors = self.bound
            object.__setattr__(self, "_plan", shape.plan(self.sql, factors))
        assert self._plan is not None
        return self._plan

    @property
    def keeps_results(self) -> bool:
        """Whether which tuples match may be kept at all."""
        return self.materialize is not Materialize.NONE

    @property
    def joins(self) -> bool:
        """Whether pairs are kept for it."""
        return self.keeps_results and self.shape.joined is not None


def block_key(stream_id: int, block: Block) -> str:
    """What a block is known by."""
    return f"{stream_id}|{block.text}"


class NewQuery(NamedTuple):
    """A query that is to stand."""

    name: str
    sql: str
    meaning: Meaning
    materialize: Materialize
    told: str | None = None
    """The schema of its answer, if only Spark can tell it."""
    plan: Plan | None = None
    """What the text is bound to, if somebody knows."""


def told_by_spark(plan: Plan) -> str | None:
    """The schema that no other binding of the text would know."""
    if plan.residual.engine is not Engine.SPARK or plan.schema is None:
        return None
    return encode_schema(plan.schema)


def reads_broken(name: str) -> str:
    """How the reason begins of a query that is broken because another is."""
    return f"It reads query '{name}', which is broken: "


def told_schema(told: str | None) -> pa.Schema | None:
    """Decode the schema that Spark told for a query, if it was asked."""
    return None if told is None else decode_schema(told)


class Writing:
    """Numbers what the names in texts mean while queries are written down."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._held: list[Meaning] = []

    def query(self, query: QueryState | NewQuery) -> list[Json]:
        """Text, the number of its references, and what Spark told of it, if anything."""
        known = self._numbers
        number = known.get(id(query.meaning))
        if number is None:
            number = known[id(query.meaning)] = len(self._held)
            self._held.append(query.meaning)
        return [query.sql, number] if query.told is None else [query.sql, number, query.told]

    @property
    def references(self) -> list[References]:
        """The meanings that were referred to, in the order of their numbers."""
        return [meaning.references for meaning in self._held]


class Reading:
    """What `Writing` wrote. A text's names may be those of queries that come before it."""

    def __init__(self, references: Sequence[References], known: KnownNames) -> None:
        self._references = references
        self._known = known
        self._meanings: dict[int, Meaning] = {}

    def query(self, value: JsonRow) -> tuple[str, Meaning, str | None]:
        """Decode the text, the meaning and the schema of a query."""
        sql, number, *told = value
        meaning = self._meanings.get(number)
        if meaning is None:
            meaning = self._meanings[number] = meaning_from(self._references[number], self._known)
        return sql, meaning, told[0] if told else None


def queries_to_json(queries: Iterable[QueryState]) -> JsonObject:
    """Encode the standing queries for a checkpoint, each after those that it reads."""
    writing = Writing()
    rows = [
        [q.id, q.name, q.materialize.value, q.created_us, q.place, *writing.query(q)]
        for q in sorted(queries, key=lambda query: (query.level, query.id))
    ]
    return {"queries": rows, "references": writing.references}


def queries_from_json(value: JsonFields, known: KnownNames, bindings: Bindings) -> Iterable[QueryState]:
    """Decode the standing queries of a checkpoint of the log."""
    reading = Reading(value["references"], known)
    modes = {mode.value: mode for mode in Materialize}
    for id_, name, mode, created_us, place, *rest in value["queries"]:
        sql, meaning, told = reading.query(rest)
        yield QueryState(id_, name, modes[mode], created_us, sql, meaning, bindings, place, told)
