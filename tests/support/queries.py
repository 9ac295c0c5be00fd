"""Random queries for the oracle's tests: selects, aggregates, set operations, CTEs, derived tables over random
windows.

The grammar of scalars is in `scalars.py`. A query is valid in Spark and has one answer by construction: a LIMIT
comes only with an order over all output columns, and subquery predicates never stand under NOT (Spark's IN is
not three-valued there).
"""

from __future__ import annotations

import random
from dataclasses import replace

import pyarrow as pa
from tests.support.generate import MINUTE_US, SCALARS, random_us
from tests.support.sampling import random_sampling
from tests.support.scalars import ScalarMaker, Scope, conjunction
from tests.support.tree import (
    Bracket,
    ColumnSpec,
    CteSource,
    DerivedSource,
    Expr,
    KeyedRows,
    Moment,
    NamedSource,
    Output,
    OwnWindow,
    Query,
    Range,
    Rows,
    Select,
    SetOperation,
    Sort,
    Source,
    Span,
    StreamSource,
    StreamSpec,
    TimeSpan,
    With,
    columns_of,
    is_nested,
    source_columns,
)

SPANS = (
    *(Span(amount, "MINUTE") for amount in (1, 2, 5, 10, 30)),
    Span(30, "SECOND"),
    Span(1, "HOUR"),
    Span(6, "HOUR"),
    Span(1, "DAY"),
    Span(7, "DAY"),
)
SET_WORDS = ("UNION ALL", "UNION", "INTERSECT", "EXCEPT", "INTERSECT ALL", "EXCEPT ALL")
_COUNTERPARTS = ("=", "=", "=", "<", ">=")


class QueryMaker:
    """Makes one query over the given streams and standing queries; `size` 0 to 3 bounds how much of it there is."""

    def __init__(
        self,
        rng: random.Random,
        streams: list[StreamSpec],
        wall_us: int,
        size: int,
        named: dict[str, Query] | None = None,
        first_name: int = 0,
    ) -> None:
        self.rng = rng
        self.streams = streams
        self.wall_us = wall_us
        self.size = size
        self.named = named or {}
        self.scalars = ScalarMaker(rng, wall_us)
        self._fresh = first_name

    def query(self) -> Query:
        dice = self.rng.random()
        if self.size >= 2 and dice < 0.12:
            return self._with()
        if self.size >= 1 and dice < 0.26:
            return self._set_operation(self._types())
        return self._select(self._source(self.size), window=True)

    # --- sources and windows ---

    def fresh(self, prefix: str) -> str:
        self._fresh += 1
        return f"{prefix}{self._fresh}"

    def _stream(self) -> StreamSource:
        alias = self.fresh("t") if self.rng.random() < 0.5 else None
        return StreamSource(self.rng.choice(self.streams), alias)

    def _source(self, depth: int) -> Source:
        dice = self.rng.random()
        if self.named and dice < 0.12:
            name = self.rng.choice(sorted(self.named))
            return NamedSource(name, self.named[name], self.fresh("t") if self.rng.random() < 0.5 else None)
        if depth >= 2 and dice < 0.25:
            return DerivedSource(self._inner(depth - 2), self.fresh("d"))
        return self._stream()

    def _inner(self, depth: int, types: list[pa.DataType] | None = None) -> Query:
        """A query in a query: sometimes with a window of its own, else it inherits."""
        saved, self.size = self.size, depth
        inner = self._select(self._stream(), window=self.rng.random() < 0.25, types=types)
        self.size = saved
        return inner

    def _windowed(self, source: Source) -> Source:
        """A stream seen through a window of its own, or a sample of it, now and then."""
        if isinstance(source, StreamSource):
            source = replace(source, sampling=random_sampling(self.rng))
        if isinstance(source, StreamSource) and self.rng.random() < 0.3:
            return replace(source, window=self._own_window(source.stream))
        return source

    def _own_window(self, stream: StreamSpec) -> OwnWindow:
        rng, rows = self.rng, self.rng.choice((1, 2, 5, 17, 100, 1000))
        keys = [column.name for column in stream.columns if not is_nested(column.type)]
        match rng.randrange(8):
            case 0 | 1 | 2:
                return Rows(rows)
            case 3 if keys:
                return KeyedRows(tuple(rng.sample(keys, min(rng.randint(1, 2), len(keys)))), rng.choice((1, 2, 5)))
            case 4:
                return self._time_span()
            case 5:
                return rng.choice((Bracket.NOW, Bracket.UNBOUNDED))
        return Range(rng.choice(SPANS))

    def _time_span(self) -> TimeSpan:
        rng = self.rng
        constants = sorted(self._constant_us() for _ in range(2))
        near, far = sorted(rng.sample(SPANS, 2), key=lambda span: span.us)
        if rng.random() < 0.03:
            far = Span(rng.randint(1, 2), "MONTH")
        now = Moment() if rng.random() < 0.75 else Moment(less=near)
        return rng.choice(
            (
                TimeSpan(Moment(us=constants[0]), Moment(us=constants[1])),
                TimeSpan(Moment(us=constants[0]), now),
                TimeSpan(Moment(less=far), now),
                TimeSpan(Moment(less=far), now),
                TimeSpan(rng.choice((Moment(less=far), Moment(us=constants[0]))), None),
                TimeSpan(None, rng.choice((now, Moment(us=constants[1])))),
            )
        )

    def _constant_us(self) -> int:
        us = random_us(self.rng, self.wall_us)
        return us if self.rng.random() < 0.2 else us // MINUTE_US * MINUTE_US

    # --- selects ---

    def _select(self, source: Source, *, window: bool, types: list[pa.DataType] | None = None) -> Select:
        rng = self.rng
        source = self._windowed(source)
        columns = source_columns(source)
        scope = Scope.of(columns, source.alias)
        time_span = self._time_span() if window and self._may_have_window(source) and rng.random() < 0.6 else None
        where = self._where(scope, source) if rng.random() < 0.75 else None
        if types is None and self.size >= 1 and rng.random() < 0.35 and scope.flat:
            made = self._aggregate(source, scope, where)
        else:
            made = self._projection(source, scope, where, types)
        made = replace(made, window=time_span)
        return self._ordered(made) if types is None else made

    @staticmethod
    def _may_have_window(source: Source) -> bool:
        # a standing query read by name has its own windows; what a BEGIN-END around it means is left to its author
        return not isinstance(source, NamedSource)

    def _projection(self, source: Source, scope: Scope, where: Expr | None, types: list[pa.DataType] | None) -> Select:
        rng = self.rng
        if types is None and rng.random() < 0.25:
            return Select(source, (), where)
        if types is not None:
            outputs = tuple(self._output(self.scalars.scalar(type_, scope, 1)) for type_ in types)
            return Select(source, outputs, where, distinct=rng.random() < 0.1)
        outputs = self._outputs(scope)
        distinct = rng.random() < 0.15 and not any(is_nested(o.expr.type) for o in outputs)
        return Select(source, outputs, where, distinct=distinct)

    def _outputs(self, scope: Scope) -> tuple[Output, ...]:
        rng = self.rng
        outputs: list[Output] = []
        taken: set[str] = set()
        for _ in range(rng.randint(1, 4)):
            column = rng.choice(scope.columns)
            if rng.random() < 0.5 and column.name.lower() not in taken:
                taken.add(column.name.lower())
                outputs.append(Output(scope.ref(column), column.name, alias=False))
            elif self.size >= 2 and rng.random() < 0.08:
                outputs.append(self._output(self._scalar_subquery(rng.choice(SCALARS), scope)))
            else:
                types = [c.type for c in scope.flat] or [pa.int32()]
                type_ = rng.choice(types) if rng.random() < 0.6 else rng.choice(SCALARS)
                outputs.append(self._output(self.scalars.scalar(type_, scope, self.size)))
        return tuple(outputs)

    def _output(self, expr: Expr) -> Output:
        return Output(expr, self.fresh("c"), alias=True)

    def _aggregate(self, source: Source, scope: Scope, where: Expr | None) -> Select:
        rng, scalars = self.rng, self.scalars
        if rng.random() < 0.4:
            return self.folding(source, scope, where)
        keys = [scalars.group_key(scope) for _ in range(rng.choice((0, 1, 1, 1, 2)))]
        outputs = [self._output(key) for key in keys if rng.random() < 0.9]
        aggregates = [scalars.aggregate(scope, self.size) for _ in range(rng.randint(1, 3))]
        outputs += [self._output(expr) for expr in aggregates]
        having = scalars.having(scope) if rng.random() < 0.3 else None
        return Select(source, tuple(outputs), where, group=tuple(keys), having=having)

    def folding(self, source: Source, scope: Scope, where: Expr | None) -> Select:
        """Nothing but aggregates of columns, and columns to group by: what partial aggregates answer."""
        rng = self.rng
        keys = [scope.ref(rng.choice(scope.flat)) for _ in range(rng.choice((0, 0, 1, 1, 2)))]
        outputs = [self._output(key) for key in keys if rng.random() < 0.9]
        outputs += [self._output(self.scalars.fold(scope)) for _ in range(rng.randint(1, 4))]
        return Select(source, tuple(outputs), where, group=tuple(keys))

    def folding_query(self) -> Select:
        """The same over a stream seen through some window, and what is computed of its groups."""
        rng = self.rng
        source = self._windowed(self._stream())
        scope = Scope.of(source_columns(source), source.alias)
        where = self._where(scope, source) if rng.random() < 0.75 else None
        made = self.folding(source, scope, where)
        made = replace(made, window=self._time_span() if rng.random() < 0.6 else None)
        if rng.random() < 0.3:
            made = replace(made, having=self.scalars.having(scope))
        # Sums of doubles depend on the order of addition, and so would an order by them.
        exact = not any(pa.types.is_floating(output.expr.type) for output in made.outputs)
        made = replace(made, distinct=exact and rng.random() < 0.15)
        return self._ordered(made) if exact else made

    def _ordered(self, query: Select) -> Select:
        rng = self.rng
        order = self._order(columns_of(query)) if rng.random() < 0.3 else ()
        if not order:
            return query
        limit = rng.choice((0, 1, 3, 10)) if rng.random() < 0.6 else None
        offset = rng.choice((0, 1, 2)) if limit is not None and rng.random() < 0.2 else None
        return replace(query, order=order, limit=limit, offset=offset)

    def _order(self, columns: tuple[ColumnSpec, ...]) -> tuple[Sort, ...]:
        """A total order: every output column is a key."""
        rng = self.rng
        if any(is_nested(column.type) for column in columns):
            return ()
        keys = [
            Sort(
                column.name,
                index + 1 if rng.random() < 0.3 else None,
                descending=rng.random() < 0.4,
                nulls_first=rng.choice((None, None, True, False)),
            )
            for index, column in enumerate(columns)
        ]
        rng.shuffle(keys)
        return tuple(keys)

    # --- predicates with subqueries ---

    def _where(self, scope: Scope, source: Source) -> Expr:
        rng = self.rng
        factors = [self.scalars.predicate(scope, self.size) for _ in range(rng.choice((1, 1, 2, 3)))]
        if self.size >= 2 and rng.random() < 0.25:
            factors.insert(rng.randint(0, len(factors)), self._subquery_predicate(scope, source))
        return conjunction(factors, "OR" if rng.random() < 0.15 else "AND")

    def _subquery_predicate(self, scope: Scope, source: Source) -> Expr:
        rng = self.rng
        flat = scope.flat
        dice = rng.random()
        if not flat or dice < 0.3:
            return self._exists(scope, source)
        column = rng.choice(flat)
        ref = scope.ref(column)
        if dice < 0.4:
            return self._among(column, ref)
        if dice < 0.7:
            inner = self._inner(self.size - 2, types=[column.type])
            word = rng.choice(("IN", "IN", "NOT IN"))
            template = f"({{0}} {word} ({{1}}))"
            return Expr(pa.bool_(), template, template, (ref, inner))
        template = f"({{0}} {rng.choice(('=', '<', '>=', '<>'))} {{1}})"
        return Expr(pa.bool_(), template, template, (ref, self._scalar_subquery(column.type, scope)))

    def _among(self, column: ColumnSpec, ref: Expr) -> Expr:
        """Whether a value is one of those of VALUES."""
        rng = self.rng
        listed = tuple(self.scalars.constant(column.type) for _ in range(rng.randint(1, 3)))
        rows = ", ".join(f"({{{at}}})" for at in range(1, len(listed) + 1))
        word, alias = rng.choice(("IN", "IN", "NOT IN")), self.fresh("v")
        spark = f"({{0}} {word} (SELECT {alias}.x FROM VALUES {rows} AS {alias}(x)))"
        duck = f"({{0}} {word} (SELECT {alias}.x FROM (VALUES {rows}) AS {alias}(x)))"
        return Expr(pa.bool_(), spark, duck, (ref, *listed))

    def _exists(self, scope: Scope, source: Source) -> Expr:
        rng = self.rng
        inner = self._windowed(StreamSource(rng.choice(self.streams), self.fresh("i")))
        inside = Scope.of(source_columns(inner), inner.alias)
        factors = [self.scalars.predicate(inside, 0)]
        pairs = [(i, o) for i in inside.flat for o in scope.flat if i.type == o.type] if source.alias else []
        if pairs:
            mine, outer = rng.choice(pairs)
            template = f"({{0}} {rng.choice(_COUNTERPARTS)} {{1}})"
            factors.append(Expr(pa.bool_(), template, template, (inside.ref(mine), scope.ref(outer))))
        one = Output(Expr(pa.int32(), "1", "1"), self.fresh("c"), alias=True)
        text = rng.choice(("EXISTS ({0})", "NOT EXISTS ({0})"))
        return Expr(pa.bool_(), text, text, (Select(inner, (one,), conjunction(factors, "AND")),))

    def _scalar_subquery(self, type_: pa.DataType, scope: Scope) -> Expr:
        """One value: the least or greatest of a select; correlated ones are left to EXISTS."""
        rng = self.rng
        source = self._windowed(self._stream())
        inside = Scope.of(source_columns(source), source.alias)
        value = self.scalars.scalar(type_, inside, 0)
        template = f"{rng.choice(('min', 'max'))}({{0}})"
        output = self._output(Expr(type_, template, template, (value,), value.bound, value.exact))
        where = self.scalars.predicate(inside, 0) if rng.random() < 0.5 else None
        window = self._time_span() if rng.random() < 0.3 else None
        inner = Select(source, (output,), where, window=window)
        return Expr(type_, "({0})", "({0})", (inner,), value.bound, value.exact)

    # --- statements of several selects ---

    def _types(self) -> list[pa.DataType]:
        flat = [column.type for stream in self.streams for column in stream.columns if not is_nested(column.type)]
        return [self.rng.choice(flat) for _ in range(self.rng.randint(1, 3))]

    def _set_operation(self, types: list[pa.DataType]) -> SetOperation:
        rng = self.rng
        stream = rng.choice(self.streams)
        arms: list[Query] = []
        for _ in range(2):
            source = StreamSource(stream, self.fresh("t") if rng.random() < 0.5 else None)
            arm: Query = self._select(source, window=rng.random() < 0.6, types=types)
            if self.size >= 3 and rng.random() < 0.15:
                other = self._select(StreamSource(stream, None), window=True, types=types)
                arm = SetOperation(rng.choice(SET_WORDS), arm, other)
            arms.append(arm)
        made = SetOperation(rng.choice(SET_WORDS), arms[0], arms[1])
        if rng.random() < 0.3:
            limit = rng.choice((1, 3, 10)) if rng.random() < 0.6 else None
            made = replace(made, order=self._order(columns_of(made)), limit=limit)
        return replace(made, window=self._time_span()) if rng.random() < 0.25 else made

    def _with(self) -> With:
        rng = self.rng
        ctes: list[tuple[str, Query]] = []
        for _ in range(rng.randint(1, 2)):
            ctes.append((self.fresh("w"), self._inner(self.size - 1)))
        if rng.random() < 0.3:
            name, query = ctes[0]
            upper = self._select(CteSource(name, query, None), window=False)
            ctes.append((self.fresh("w"), upper))
        name, query = rng.choice(ctes)
        body = self._select(CteSource(name, query, self.fresh("t") if rng.random() < 0.5 else None), window=True)
        types = [column.type for column in columns_of(query)]
        if rng.random() < 0.3 and not any(is_nested(type_) for type_ in types):
            everything = Select(CteSource(name, query, None), ())
            filtered = replace(everything, where=self.scalars.predicate(Scope.of(columns_of(query), None), 1))
            return With(tuple(ctes), SetOperation(rng.choice(SET_WORDS), everything, filtered))
        return With(tuple(ctes), body)
