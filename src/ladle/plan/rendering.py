"""A tree of nodes as one statement of Spark's SQL, over relations that some of its nodes are given as.

A node that one other reads is a subquery in its FROM; one that several read is a common table expression. Columns of
what is rendered are `c0`, `c1`, ... by position. Only columns that a relation has are carried on: a scan reads those
that its query needs, while its node has all columns of the stream.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import singledispatch

from ladle.plan.nodes import (
    Distinct,
    Except,
    Filter,
    Fragment,
    GroupBy,
    Intersect,
    Join,
    JoinKind,
    Limit,
    Node,
    Project,
    Sessions,
    SetOperation,
    Sort,
    TimeWindows,
    TopK,
    Union,
    Values,
    walk,
)
from ladle.plan.scalars import Scalar, SortKey

_EXISTS = {JoinKind.SEMI: "EXISTS", JoinKind.ANTI: "NOT EXISTS"}
_OPERATIONS: dict[type[Node], str] = {Union: "UNION", Intersect: "INTERSECT", Except: "EXCEPT"}


@dataclass(frozen=True)
class NamedRelation:
    """A name that FROM may have, and the names of its columns by position."""

    name: str
    columns: Mapping[int, str]


class CannotRender(Exception):
    """A node needs something that is not there."""


@dataclass(frozen=True)
class ChildText:
    """What a node reads of one child: its text in FROM, and its columns, qualified, by position."""

    text: str
    columns: Mapping[int, str]


def statement(tree: Node, given: Callable[[Node], NamedRelation | None]) -> tuple[str, Mapping[int, str]]:
    """The statement that gives a tree's rows, in order if the tree has one, and its columns by position."""
    return _Rendering(tree, given).whole()


def fused(node: Node) -> Node | None:
    """The child that is one SELECT with a node: what is above a subquery need not keep its order, and Spark knows time
    windows as keys of groups alone.
    """
    match node:
        case Project(child=Sort() | TopK() as child) | GroupBy(child=TimeWindows() | Sessions() as child):
            return child
    return None


class _Rendering:
    def __init__(self, tree: Node, given: Callable[[Node], NamedRelation | None]) -> None:
        self._tree = tree
        self._given = given
        self._readers = Counter(id(child) for node in walk(tree) for child in node.children)
        self._shared: dict[int, NamedRelation] = {}
        self._ctes: list[str] = []
        self._names = 0

    def whole(self) -> tuple[str, Mapping[int, str]]:
        text, columns = self._select(self._tree)
        return f"WITH {', '.join(self._ctes)} {text}" if self._ctes else text, columns

    def _select(self, node: Node) -> tuple[str, Mapping[int, str]]:
        """A node's SELECT, and its columns by position."""
        below = fused(node) or node
        return select_of(node, [self._source(child) for child in below.children])

    def _source(self, node: Node) -> ChildText:
        self._names += 1
        alias = f"_n{self._names}"
        relation = self._given(node) or self._shared.get(id(node))
        if relation is None and self._readers[id(node)] > 1:
            text, columns = self._select(node)
            relation = self._shared[id(node)] = NamedRelation(f"_w{len(self._shared)}", columns)
            self._ctes.append(f"`{relation.name}`{_renamed(node, columns)} AS ({text})")
        if relation is not None:
            return ChildText(f"`{relation.name}` AS `{alias}`", _qualified(alias, relation.columns))
        text, columns = self._select(node)
        return ChildText(f"({text}) AS `{alias}`{_renamed(node, columns)}", _qualified(alias, columns))


def _renamed(node: Node, columns: Mapping[int, str]) -> str:
    """A fragment's columns have names of their own."""
    return f"({', '.join(f'`{name}`' for name in columns.values())})" if isinstance(node, Fragment) else ""


def _qualified(alias: str, columns: Mapping[int, str]) -> Mapping[int, str]:
    return {at: f"`{alias}`.{_quoted(name)}" for at, name in columns.items()}


@singledispatch
def select_of(node: Node, sources: Sequence[ChildText]) -> tuple[str, Mapping[int, str]]:
    """The SELECT of a node over what it reads, and its columns."""
    raise CannotRender(type(node).__name__)


@select_of.register
def _(node: Values, sources: Sequence[ChildText]) -> tuple[str, Mapping[int, str]]:
    rows = ", ".join(f"({', '.join(_text(each, sources) for each in row)})" for row in node.rows)
    names = [f"`c{at}`" for at in range(len(node.columns))]
    columns = {at: f"`_v`.{name}" for at, name in enumerate(names)}
    return _listed(columns, f"VALUES {rows} AS `_v`({', '.join(names)})")


@select_of.register
def _(node: Project, sources: Sequence[ChildText]) -> tuple[str, Mapping[int, str]]:
    below = node.child
    tail = _ending(below, sources) if isinstance(below, Sort | TopK) else ""
    return _listed({at: _text(each, sources) for at, each in enumerate(node.outputs)}, sources[0].text + tail)


@select_of.register
def _(node: Filter, sources: Sequence[ChildText]) -> tuple[str, Mapping[int, str]]:
    conditions = " AND ".join(f"({_text(each, sources)})" for each in node.conditions)
    return _listed(sources[0].columns, f"{sources[0].text} WHERE {conditions}")


@select_of.register
def _(node: Join, sources: Sequence[ChildText]) -> tuple[str, Mapping[int, str]]:
    left, right = sources
    terms = [f"{_text(c.left, sources)} {c.relop.value} {_text(c.right, sources)}" for c in node.comparisons]
    if node.condition is not None:
        terms.append(f"({_text(node.condition, sources)})")
    on = " AND ".join(terms) or "true"
    columns = dict(left.columns)
    if node.kind.keeps_right:
        first = len(node.left.columns)
        columns |= {first + at: text for at, text in right.columns.items()}
    if node.kind is JoinKind.INNER:
        return _listed(columns, f"{left.text} CROSS JOIN {right.text} WHERE {on}")
    if node.kind in _EXISTS:
        # Not as a join: DuckDB may join on no condition that may raise.
        return _listed(
            columns, f"{left.text} WHERE {_EXISTS[node.kind]} (SELECT 1 AS `one` FROM {right.text} WHERE {on})"
        )
    return _listed(columns, f"{left.text} {node.kind.value.upper()} JOIN {right.text} ON {on}")


@select_of.register
def _(node: GroupBy, sources: Sequence[ChildText]) -> tuple[str, Mapping[int, str]]:
    if isinstance(node.child, TimeWindows | Sessions):
        window = {len(node.child.child.columns): _window(node.child, sources)}
        sources = [ChildText(sources[0].text, {**sources[0].columns, **window})]
    keys = [_text(each, sources) for each in node.keys]
    outputs = dict(enumerate([*keys, *(_text(each, sources) for each in node.aggregates)]))
    return _listed(outputs, sources[0].text + (f" GROUP BY {', '.join(keys)}" if keys else ""))


@select_of.register
def _(node: Distinct, sources: Sequence[ChildText]) -> tuple[str, Mapping[int, str]]:
    return _listed(sources[0].columns, sources[0].text, "SELECT DISTINCT")


@select_of.register(Sort)
@select_of.register(TopK)
@select_of.register(Limit)
def _(node: Sort | TopK | Limit, sources: Sequence[ChildText]) -> tuple[str, Mapping[int, str]]:
    return _listed(sources[0].columns, sources[0].text + _ending(node, sources))


@select_of.register
def _(node: SetOperation, sources: Sequence[ChildText]) -> tuple[str, Mapping[int, str]]:
    (left, columns), (right, others) = (_listed(source.columns, source.text) for source in sources)
    if len(columns) != len(node.columns) or len(others) != len(node.columns):
        raise CannotRender("a column of a set operation")
    return f"{left} {_OPERATIONS[type(node)]} {'ALL ' if node.all else ''}{right}", columns


@select_of.register
def _(node: Fragment, sources: Sequence[ChildText]) -> tuple[str, Mapping[int, str]]:
    """Its own text, over common table expressions with the names that it has for its children."""
    inputs = []
    for at, (child, source) in enumerate(zip(node.children, sources, strict=True)):
        listed = ", ".join(f"{text} AS {_quoted(child.names[column])}" for column, text in source.columns.items())
        inputs.append(f"`_c{at}` AS (SELECT {listed} FROM {source.text})")
    columns = {at: f"c{at}" for at in range(len(node.columns))}
    if node.sql.startswith("WITH "):
        return f"WITH {', '.join(inputs)}, {node.sql.removeprefix('WITH ')}", columns
    return (f"WITH {', '.join(inputs)} " if inputs else "") + node.sql, columns


def _listed(outputs: Mapping[int, str], rest: str, word: str = "SELECT") -> tuple[str, Mapping[int, str]]:
    if not outputs:
        raise CannotRender("a relation without columns")
    listed = ", ".join(f"{text} AS `c{at}`" for at, text in outputs.items())
    return f"{word} {listed} FROM {rest}", {at: f"c{at}" for at in outputs}


def _window(node: TimeWindows | Sessions, sources: Sequence[ChildText]) -> str:
    time = _text(node.time, sources)
    if isinstance(node, Sessions):
        return f"SESSION_WINDOW({time}, '{node.gap_us} microseconds')"
    spans = ", ".join(f"'{us} microseconds'" for us in (node.size_us, node.slide_us, node.offset_us))
    return f"WINDOW({time}, {spans})"


def _text(scalar: Scalar, sources: Sequence[ChildText]) -> str:
    try:
        return scalar.spark.format(*(sources[child].columns[at] for child, at in scalar.columns))
    except KeyError:
        raise CannotRender("a column that is not read") from None


def _ending(node: Sort | TopK | Limit, sources: Sequence[ChildText]) -> str:
    keys = [] if isinstance(node, Limit) else [_key(each, sources) for each in node.keys]
    if isinstance(node, Limit) and not _arrives_in_order(node.child):
        # Which rows are taken must not depend on how they were found: they are those that the residual takes. That
        # leaves out what may raise, which is not known here.
        if isinstance(node.child, Project) and any(each.column is None for each in node.child.outputs):
            raise CannotRender("a LIMIT of what is computed")
        keys = [f"{text} ASC NULLS LAST" for text in sources[0].columns.values()]
    order = f" ORDER BY {', '.join(keys)}" if keys else ""
    if isinstance(node, Sort):
        return order
    limit = "" if node.limit is None else f" LIMIT {node.limit}"
    return order + limit + (f" OFFSET {node.offset}" if node.offset else "")


def _arrives_in_order(node: Node) -> bool:
    """Whether rows come in an order of their own: that of arrival, or one that was asked for."""
    while isinstance(node, Filter | Project):
        node = node.child
    if isinstance(node, Fragment) and node.children:
        raise CannotRender("a LIMIT of rows whose order is not known")
    return not node.children or isinstance(node, Sort | TopK)


def _key(key: SortKey, sources: Sequence[ChildText]) -> str:
    way, nulls = "DESC" if key.descending else "ASC", "FIRST" if key.nulls_first else "LAST"
    return f"{_text(key.scalar, sources)} {way} NULLS {nulls}"


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
