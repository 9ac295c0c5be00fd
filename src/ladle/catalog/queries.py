"""Standing queries as of one log entry, and how the log writes them down.

Thousands of queries differ in constants alone. What they share, a *shape*, is written and held once, and so is each
factor; a query is its text, the number of its shape and the numbers of its factors. Its plan is put together when it is
first used.
"""

from __future__ import annotations

import json
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from weakref import WeakValueDictionary

import pyarrow as pa

from ladle.plan import Block, Factor, Joined, Plan, Residual, Scan, TableScan, Window
from ladle.plan.function import Function
from ladle.plan.query import factor_from_json, factor_to_json, plan_from_json, plan_to_json
from ladle.sql.statements import Materialize

_TEXTS_MAX = 256

Factors = tuple[Factor, ...]
Parts = tuple[str, "Shape", tuple[Factors, ...]]
"""What makes a plan: its text, its shape, and the factors of each scan."""


@dataclass(frozen=True)
class ShapeScan:
    """A scan but for its factors."""

    relation: str
    stream: str
    window: Window
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Shape:
    """A plan but for its text and factors."""

    scans: tuple[ShapeScan, ...]
    residual: Residual
    schema: pa.Schema | None
    queries: tuple[str, ...]
    functions: tuple[Function, ...]
    joined: Joined | None
    tables: tuple[TableScan, ...]
    text: str
    """As the log has it."""

    @cached_property
    def streams(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(scan.stream for scan in self.scans))

    @cached_property
    def window_kinds(self) -> str:
        """For people."""
        return ", ".join(dict.fromkeys(scan.window.kind.value for scan in self.scans))

    def plan(self, sql: str, factors: Sequence[Factors]) -> Plan:
        scans = tuple(
            Scan(scan.relation, Block(scan.stream, own), scan.window, scan.columns)
            for scan, own in zip(self.scans, factors, strict=True)
        )
        return Plan(sql, scans, self.residual, self.schema, self.queries, self.functions, self.joined, self.tables)


_shapes: WeakValueDictionary[str, Shape] = WeakValueDictionary()
_factors: WeakValueDictionary[tuple[Any, ...], Factor] = WeakValueDictionary()


def shape_from_text(text: str) -> Shape:
    """The one object of a shape."""
    known = _shapes.get(text)
    if known is not None:
        return known
    plan = plan_from_json({**json.loads(text), "sql": ""})
    scans = tuple(ShapeScan(scan.relation, scan.block.stream, scan.window, scan.columns) for scan in plan.scans)
    shape = Shape(scans, plan.residual, plan.schema, plan.queries, plan.functions, plan.joined, plan.tables, text)
    return _shapes.setdefault(text, shape)


def shape_text(plan: Plan) -> str:
    value = plan_to_json(plan)
    del value["sql"]
    for scan in value["scans"]:
        scan["factors"] = []
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


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


@dataclass(frozen=True)
class QueryState:
    """A standing query as of one log entry."""

    id: int
    name: str
    materialize: Materialize
    created_us: int
    sql: str
    shape: Shape
    factors: tuple[Factors, ...]
    """Of each scan."""
    blocks: tuple[int, ...] = ()
    """The id of each scan's block."""
    place: int = 0
    """Queries are listed in the order of these: one that replaced another has its place."""

    @cached_property
    def plan(self) -> Plan:
        return self.shape.plan(self.sql, self.factors)

    @property
    def keeps_results(self) -> bool:
        return self.materialize is not Materialize.NONE

    @property
    def joins(self) -> bool:
        """Whether pairs are kept for it."""
        return self.keeps_results and self.shape.joined is not None


class Writing:
    """Numbers shapes and factors while queries are written down."""

    def __init__(self) -> None:
        self._shapes: dict[str, int] = {}
        self._seen: dict[object, int] = {}
        self._factors: dict[int, int] = {}
        # What was numbered by its identity has to stay alive.
        self._held: list[object] = []
        self._table: list[Factor] = []

    def plan(self, plan: Plan) -> list[Any]:
        """A plan's text, shape and factors."""
        # Plans made of one template share these very objects; others are told apart by what they say.
        scans = tuple((scan.relation, scan.block.stream, id(scan.window), scan.columns) for scan in plan.scans)
        shared = (id(plan.residual), id(plan.schema), id(plan.functions), id(plan.joined))
        key = (shared, scans, plan.queries, plan.tables)
        number = self._seen.get(key)
        if number is None:
            number = self._seen[key] = self._shape(_text_of(key, plan))
            self._held.append(plan)
        return [plan.sql, number, [self._numbers(scan.block.factors) for scan in plan.scans]]

    def query(self, query: QueryState) -> list[Any]:
        """The same of a query that stands."""
        return [query.sql, self._shape(query.shape.text), [self._numbers(factors) for factors in query.factors]]

    def tables(self) -> dict[str, Any]:
        return {"shapes": list(self._shapes), "factors": [factor_to_json(factor) for factor in self._table]}

    def _shape(self, text: str) -> int:
        return self._shapes.setdefault(text, len(self._shapes))

    def _numbers(self, factors: Factors) -> list[int]:
        known = self._factors
        for factor in factors:
            if id(factor) not in known:
                known[id(factor)] = len(self._table)
                self._table.append(factor)
        return [known[id(factor)] for factor in factors]


class Reading:
    """What `Writing` wrote."""

    def __init__(self, value: Mapping[str, Any]) -> None:
        self._shapes = [shape_from_text(text) for text in value["shapes"]]
        functions = {function.id: function for shape in self._shapes for function in shape.functions}
        self._factors = [same_factor(factor_from_json(factor, functions)) for factor in value["factors"]]

    def parts(self, value: Sequence[Any]) -> Parts:
        sql, shape, numbers = value
        table = self._factors
        return sql, self._shapes[shape], tuple(tuple([table[number] for number in own]) for own in numbers)


def parts_of_bound(bound: Mapping[str, Any]) -> Parts:
    """The same of a plan as formats before 2 wrote it: whole."""
    plan = plan_from_json(dict(bound))
    factors = tuple(tuple(same_factor(factor) for factor in scan.block.factors) for scan in plan.scans)
    return plan.sql, shape_from_text(shape_text(plan)), factors


def queries_to_json(queries: Iterable[QueryState]) -> dict[str, Any]:
    """Of a checkpoint."""
    writing = Writing()
    rows = [
        [q.id, q.name, q.materialize.value, q.created_us, list(q.blocks), q.place, *writing.query(q)] for q in queries
    ]
    return {"queries": rows, **writing.tables()}


def queries_from_json(value: Mapping[str, Any]) -> Iterable[QueryState]:
    if "shapes" not in value:
        return [_query_from_bound(query, place) for place, query in enumerate(value["queries"])]
    reading = Reading(value)
    modes = {mode.value: mode for mode in Materialize}
    return (
        QueryState(id_, name, modes[mode], created_us, *reading.parts(parts), tuple(blocks), place)
        for id_, name, mode, created_us, blocks, place, *parts in value["queries"]
    )


def _query_from_bound(value: Mapping[str, Any], place: int) -> QueryState:
    return QueryState(
        value["id"],
        value["name"],
        Materialize(value["materialize"]),
        value["created_us"],
        *parts_of_bound(value["bound"]),
        tuple(value["blocks"]),
        place,
    )
