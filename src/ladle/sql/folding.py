"""Which nodes of a query partial aggregates give, and DuckDB's statement over their rows.

A GroupBy over columns of one scan, whose aggregates are COUNT, SUM, AVG, MIN and MAX of columns, is given. What is
above it, and beside it, is rendered as one statement (`ladle.plan.rendering`) and translated like any residual, by
what the conformance test proves. Where anything of that can't be done, or gives other types than the residual, the
residual runs as a whole.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import pyarrow as pa
from sqlglot import exp

from ladle.errors import LadleError
from ladle.plan import Plan
from ladle.plan.aggregate import Aggregate, Fold, Make, Output, Partial, Windows
from ladle.plan.answering import FoldedNode, Folding
from ladle.plan.keys import KeyKind, key_kind
from ladle.plan.nodes import GroupBy, Node, Project, StreamScan, TableScan, TimeWindows, leaves, walk
from ladle.plan.rendering import CannotRender, NamedRelation, fused, statement
from ladle.plan.scalars import Scalar
from ladle.schema import is_nested
from ladle.sql.conform import NotConformant, Translated, translate_query
from ladle.sql.conformant.casts import MOMENTS
from ladle.sql.conformant.parser_names import FUNCTION
from ladle.sql.limits import StatementLimits
from ladle.sql.names import Names
from ladle.sql.peel import tree_of
from ladle.sql.script import StatementTokens, bound_tree, only_chunk

_MAY_FOLD = re.compile(r"\b(?:COUNT|SUM|AVG|MEAN|MIN|MAX)\(|\bGROUP BY\b")
"""In the text of every query that has a GroupBy; without it no tree is made."""
_ROWS = re.compile(r"COUNT\((?:\*|\d+)\)")
_CALL = re.compile(r"(COUNT|SUM|AVG|MEAN|MIN|MAX)\(\{0\}\)")
_FIELD = re.compile(r"\{0\}\.`?(start|end)`?", re.IGNORECASE)
"""An end of a time window."""
_REMEMBERED = 1_024

_known: OrderedDict[object, Folding | None] = OrderedDict()
_lock = threading.Lock()


def folding_of(plan: Plan, names: Names) -> Folding | None:
    """How a plan is answered by nodes; None: its residual answers it. Plans with one text have one, made once."""
    residual = plan.residual
    if residual.duckdb_sql is None or plan.joined is not None or not _MAY_FOLD.search(residual.spark_sql):
        return None
    key = _key(plan, names)
    with _lock:
        if key in _known:
            _known.move_to_end(key)
            return _known[key]
    made = _made(plan, tree_of(plan, names))
    with _lock:
        _known[key] = made
        if len(_known) > _REMEMBERED:
            _known.popitem(last=False)
    return made


def _key(plan: Plan, names: Names) -> object:
    """What a folding follows from: neither the factors nor the windows of scans."""
    scans = tuple(
        (scan.relation, scan.columns, names.stream_schema(scan.block.stream), scan.sample is None)
        for scan in plan.scans
    )
    tables = tuple((each.relation, each.columns, names.table_schema(each.table)) for each in plan.tables)
    return plan.residual.spark_sql, scans, tables, plan.functions


def _made(plan: Plan, tree: Node) -> Folding | None:
    assert plan.schema is not None
    numbers = {scan.relation: number for number, scan in enumerate(plan.scans)}
    places = {id(node): place for place, node in enumerate(walk(tree))}
    direct = _direct(tree, plan.schema, numbers)
    if direct is not None:
        group = tree.child if isinstance(tree, Project) else tree
        return Folding((replace(direct, place=places[id(group)]),), None)
    found: dict[int, FoldedNode] = {}
    _find(tree, numbers, found, set())
    found = {node: replace(each, place=places[node]) for node, each in found.items()}
    if not found:
        return None
    reads: set[str] = set()
    given = {scan.relation: scan.columns for scan in plan.scans}
    given |= {each.relation: each.columns for each in plan.tables}
    of_table = {(each.table.lower(), each.as_of): each.relation for each in plan.tables}

    def relation(node: Node) -> NamedRelation | None:
        folded = found.get(id(node))
        if folded is not None:
            return NamedRelation(folded.relation, dict(enumerate(folded.schema.names)))
        match node:
            case StreamScan():
                name = node.relation
            case TableScan():
                name = of_table[node.table.lower(), node.as_of]
            case _:
                return None
        reads.add(name)
        return NamedRelation(name, {at: each for at, each in enumerate(node.names) if each in given[name]})

    try:
        text, _ = statement(tree, relation)
        relations = {node.relation: node.schema for node in found.values()} | _relations(plan, tree)
        translated = _translated(plan, text, relations)
    except (CannotRender, NotConformant, LadleError):
        return None
    if translated.schema.types != plan.schema.types:
        return None
    nodes = tuple(found.values())
    return Folding(nodes, translated.sql, "$now" in translated.sql, frozenset(reads))


def node_statement(
    plan: Plan, node: Node, inputs: Sequence[tuple[Mapping[int, str], pa.Schema]]
) -> tuple[str, Mapping[int, str]] | None:
    """DuckDB's text of one node over its children's rows, `_m0` and `_m1` with these columns by position, and the
    columns of its own; None where only Spark can run it.
    """
    children = (fused(node) or node).children
    given = {id(child): NamedRelation(f"_m{at}", inputs[at][0]) for at, child in enumerate(children)}
    try:
        text, columns = statement(node, lambda each: given.get(id(each)))
        return _translated(plan, text, {f"_m{at}": schema for at, (_, schema) in enumerate(inputs)}).sql, columns
    except (CannotRender, NotConformant, LadleError):
        return None


def _translated(plan: Plan, text: str, relations: Mapping[str, pa.Schema]) -> Translated:
    """A statement that was rendered, over relations with these columns."""
    chunk = only_chunk(text)
    return StatementLimits().run(chunk.tokens, partial(_translated_chunk, plan, chunk, relations))


def _translated_chunk(plan: Plan, chunk: StatementTokens, relations: Mapping[str, pa.Schema]) -> Translated:
    parsed = bound_tree(chunk)
    functions = {function.symbol.lower(): function for function in plan.functions}
    for call in parsed.find_all(exp.Anonymous):
        if call.name.lower() in functions:
            call.meta[FUNCTION] = functions[call.name.lower()]
    for column in list(parsed.find_all(exp.Column)):
        _part_fields(column)
    return translate_query(parsed, relations)


def _relations(plan: Plan, tree: Node) -> dict[str, pa.Schema]:
    """What the scans and tables of a plan are read as."""
    found: dict[str, pa.Schema] = {}
    for relation, columns, leaf in _leaves(plan, tree):
        types = {column.name: column.type for column in leaf.columns}
        found[relation] = pa.schema([pa.field(name, types[name]) for name in columns])
    return found


def _part_fields(column: exp.Column) -> None:
    """`_n1.c0.start` is field `start` of a column: what is rendered names columns by relation and nothing else."""
    relation, *rest = column.parts
    if len(rest) > 1:
        found: exp.Expr = exp.Column(this=rest[0].copy(), table=relation.copy())
        for field in rest[1:]:
            found = exp.Dot(this=found, expression=field.copy())
        column.replace(found)


def _leaves(plan: Plan, tree: Node) -> list[tuple[str, tuple[str, ...], Node]]:
    """The relations that a plan reads, with the columns that it needs, as leaves of its tree."""
    streams = {leaf.relation: leaf for leaf in leaves(tree) if isinstance(leaf, StreamScan)}
    tables = {(leaf.table.lower(), leaf.as_of): leaf for leaf in leaves(tree) if isinstance(leaf, TableScan)}
    found: list[tuple[str, tuple[str, ...], Node]] = [
        (scan.relation, scan.columns, streams[scan.relation]) for scan in plan.scans if scan.relation in streams
    ]
    return found + [
        (each.relation, each.columns, tables[each.table.lower(), each.as_of])
        for each in plan.tables
        if (each.table.lower(), each.as_of) in tables
    ]


def _direct(tree: Node, schema: pa.Schema, numbers: Mapping[str, int]) -> FoldedNode | None:
    """A node whose rows are the answer, after nothing but picking columns, and the ends of windows."""
    projected = tree.outputs if isinstance(tree, Project) else None
    below = tree.child if isinstance(tree, Project) else tree
    node = _folded(below, numbers, 0) if isinstance(below, GroupBy) else None
    if node is None or projected is None:
        return node if node is None else _with_names(node, node.aggregate.outputs, node.schema.types, schema)
    outputs: list[Output] = []
    types: list[pa.DataType] = []
    for each in projected:
        field = _FIELD.fullmatch(each.spark)
        at = each.columns[0][1] if each.column is not None or field is not None else None
        if at is None:
            return None
        output, type_ = node.aggregate.outputs[at], node.schema.types[at]
        if field is not None:
            if output.make is not Make.WINDOW:
                return None
            make = Make(field.group(1).lower())
            output, type_ = Output(make, 0), type_.field(make.value).type
        outputs.append(output)
        types.append(type_)
    return _with_names(node, tuple(outputs), types, schema)


def _with_names(
    node: FoldedNode, outputs: tuple[Output, ...], types: list[pa.DataType], schema: pa.Schema
) -> FoldedNode | None:
    if types != schema.types:
        return None
    return replace(node, aggregate=replace(node.aggregate, outputs=outputs), schema=schema)


def _find(tree: Node, numbers: Mapping[str, int], found: dict[int, FoldedNode], seen: set[int]) -> None:
    """The topmost nodes of a tree that partial aggregates give, by the identity of the object."""
    if id(tree) in seen:
        return
    seen.add(id(tree))
    node = _folded(tree, numbers, len(found)) if isinstance(tree, GroupBy) else None
    if node is not None:
        found[id(tree)] = node
        return
    for child in tree.children:
        _find(child, numbers, found, seen)


def _folded(node: GroupBy, numbers: Mapping[str, int], number: int) -> FoldedNode | None:
    """A GroupBy as partials of its scan; None when it is more."""
    timed = node.child if isinstance(node.child, TimeWindows) else None
    below = _columns(node.child if timed is None else timed.child)
    if below is None:
        return None
    scan, columns = below
    types = {column.name: column.type for column in scan.columns}
    groups: dict[str, int] = {}
    outputs: list[Output] = []
    windows: Windows | None = None
    if timed is not None:
        time = _column(timed.time, columns)
        if time is None or types[time] not in MOMENTS:
            return None
        windows = Windows(time, timed.size_us, timed.slide_us, timed.offset_us)
    for key in node.keys:
        if timed is not None and key.column == (0, len(timed.child.columns)):
            outputs.append(Output(Make.WINDOW, 0))
            continue
        column = _column(key, columns)
        if column is None or not _is_group(types[column]):
            return None
        outputs.append(Output(Make.GROUP, groups.setdefault(column, len(groups))))
    folding = _Partials(types, grouped=bool(groups) or windows is not None)
    for aggregate in node.aggregates:
        output = folding.output(aggregate, columns)
        if output is None:
            return None
        outputs.append(output)
    if not outputs or any(column.type is None for column in node.columns):
        return None
    schema = pa.schema([pa.field(f"c{at}", column.type) for at, column in enumerate(node.columns)])
    made = Aggregate(tuple(groups), tuple(folding.partials), tuple(outputs), windows)
    return FoldedNode(f"_g{number}", numbers[scan.relation], made, schema)


def _columns(node: Node) -> tuple[StreamScan, list[str | None]] | None:
    """The scan below projections, and the column of it behind each column of a node, if it is one."""
    match node:
        # Partial aggregates are of all tuples of a segment: a sample is not made of them.
        case StreamScan(sample=None):
            return node, list(node.names)
        case Project():
            below = _columns(node.child)
            if below is None:
                return None
            scan, columns = below
            return scan, [_column(each, columns) for each in node.outputs]
    return None


def _column(scalar: Scalar, columns: Sequence[str | None]) -> str | None:
    return None if scalar.column is None else columns[scalar.column[1]]


class _Partials:
    """Collects the partials of a GroupBy's aggregates, each once."""

    def __init__(self, types: Mapping[str, pa.DataType | None], *, grouped: bool) -> None:
        self._types = types
        self._grouped = grouped
        self.partials: dict[Partial, int] = {}

    def output(self, scalar: Scalar, columns: Sequence[str | None]) -> Output | None:
        """An aggregate call as an output; None when it is something else, or more."""
        if _ROWS.fullmatch(scalar.spark):
            return Output(Make.FOLDED, self._partial(Fold.ROWS, None))
        call = _CALL.fullmatch(scalar.spark)
        column = None if call is None else columns[scalar.columns[0][1]]
        if call is None or column is None:
            return None
        type_ = self._types[column]
        match call.group(1):
            case "COUNT":
                return Output(Make.FOLDED, self._partial(Fold.COUNT, column))
            case "MIN" | "MAX" if key_kind(type_) is KeyKind.INT64:
                return Output(Make.FOLDED, self._partial(Fold(call.group(1).lower()), column))
            case "SUM" | "AVG" | "MEAN" if _is_number(type_):
                averages = call.group(1) != "SUM"
                if averages and self._grouped and pa.types.is_decimal(type_):
                    return None
                total, count = self._partial(Fold.SUM, column), self._partial(Fold.COUNT, column)
                return Output(Make.AVERAGE if averages else Make.FOLDED, total, count)
            case _:
                return None

    def _partial(self, fold: Fold, column: str | None) -> int:
        return self.partials.setdefault(Partial(fold, column), len(self.partials))


def _is_group(type_: pa.DataType | None) -> bool:
    # Floating groups have one zero and one NaN, which Arrow would tell apart.
    return type_ is not None and not is_nested(type_) and not pa.types.is_floating(type_)


def _is_number(type_: pa.DataType | None) -> bool:
    number = pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_)
    return number and key_kind(type_) is KeyKind.INT64
