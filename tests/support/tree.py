"""The query generator's own little tree, and its renderings.

One tree is written out three ways: as Ladle's SQL (windows as clauses), as DuckDB's SQL and as Spark's SQL
(both over tables of raw tuples, with every window as a predicate). Nothing here knows the engine: what a query
means is said by these renderings and judged by DuckDB and Spark. A scalar is one generic node with a template
for each dialect, so that only things of equal meaning can be paired.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from enum import Enum

import pyarrow as pa
from tests.support.months import EPOCH, months_before
from tests.support.sampling import Hashes, Sampling

ZONED = pa.timestamp("us", tz="UTC")
NAIVE = pa.timestamp("us")
ARRIVAL_NUMBER = "_n"
"""Raw tables: the order of arrival."""
ARRIVAL_TIME = "_at"
"""Raw tables: the tuple's timestamp."""


class Dialect(Enum):
    LADLE = "ladle"
    DUCKDB = "duckdb"
    SPARK = "spark"


@dataclass(frozen=True)
class ColumnSpec:
    """A column: `wide` ones hold extremes (never added up), others numbers up to `bound`; `plain` texts are ASCII."""

    name: str
    type: pa.DataType
    wide: bool = False
    plain: bool = True
    bound: int = 1000


@dataclass(frozen=True)
class StreamSpec:
    name: str
    columns: tuple[ColumnSpec, ...]
    time: str | None
    """The column of TIMESTAMP BY; None: stamped on arrival."""
    retain: Span | None = None
    ahead: Span | None = None
    lateness: Span | None = None

    def create(self) -> str:
        columns = ", ".join(f"`{column.name}` {spark_type(column.type)}" for column in self.columns)
        text = f"CREATE STREAM {self.name} ({columns})"
        if self.time:
            text += f" TIMESTAMP BY `{self.time}`"
        if self.retain:
            text += f" RETAIN INTERVAL {self.retain}"
        if self.ahead:
            text += f" MAX AHEAD INTERVAL {self.ahead}"
        if self.lateness:
            text += f" LATENESS INTERVAL {self.lateness}"
        return text


_UNITS_US = {"SECOND": 1_000_000, "MINUTE": 60_000_000, "HOUR": 3_600_000_000, "DAY": 86_400_000_000}


@dataclass(frozen=True)
class Span:
    """A length of time as people write it."""

    amount: int
    unit: str
    """SECOND, MINUTE, HOUR, DAY; MONTH only relative to NOW."""

    @property
    def us(self) -> int:
        return self.amount * _UNITS_US[self.unit]

    def __str__(self) -> str:
        return f"{self.amount} {self.unit}{'' if self.amount == 1 else 'S'}"


@dataclass(frozen=True)
class Moment:
    """A bound of a window: a constant (`us`), or NOW less a span."""

    us: int | None = None
    less: Span | None = None


@dataclass(frozen=True)
class TimeSpan:
    """`BEGIN b END e` at the end of a select. BEGIN alone ends at NOW, END alone begins with the first tuple."""

    begin: Moment | None
    end: Moment | None

    @property
    def moves(self) -> bool:
        """Whether a bound is relative to NOW."""
        return self.end is None or self.end.us is None or (self.begin is not None and self.begin.us is None)


@dataclass(frozen=True)
class Range:
    """`[RANGE span]` after a stream's name."""

    span: Span


@dataclass(frozen=True)
class Rows:
    """`[ROWS n]` after a stream's name."""

    rows: int


@dataclass(frozen=True)
class KeyedRows:
    """`[PARTITION BY columns ROWS n]` after a stream's name."""

    columns: tuple[str, ...]
    rows: int


class Bracket(Enum):
    """Windows without anything that varies, after a stream's name."""

    NOW = "[NOW]"
    UNBOUNDED = "[RANGE UNBOUNDED]"


OwnWindow = Range | Rows | KeyedRows | TimeSpan | Bracket


@dataclass(frozen=True)
class Expr:
    """A scalar. When `exact`, it is at most `bound`, and adding it up knows neither rounding nor overflow."""

    type: pa.DataType
    spark: str
    duck: str
    args: tuple[Expr | Query, ...] = ()
    bound: int = 0
    exact: bool = False


@dataclass(frozen=True)
class Output:
    expr: Expr
    name: str
    alias: bool


@dataclass(frozen=True)
class StreamSource:
    stream: StreamSpec
    alias: str | None
    window: OwnWindow | None = None
    sampling: Sampling | None = None


@dataclass(frozen=True)
class NamedSource:
    """A standing query read as a relation: its own text, its own windows."""

    name: str
    query: Query
    alias: str | None


@dataclass(frozen=True)
class DerivedSource:
    query: Query
    alias: str


@dataclass(frozen=True)
class CteSource:
    name: str
    query: Query
    alias: str | None


Source = StreamSource | NamedSource | DerivedSource | CteSource


@dataclass(frozen=True)
class Sort:
    """One key of an ORDER BY over an output column; `nulls_first` None: the dialect's default (Spark's)."""

    name: str
    position: int | None
    descending: bool
    nulls_first: bool | None


@dataclass(frozen=True)
class Select:
    source: Source
    outputs: tuple[Output, ...]
    """Empty: `SELECT *`."""
    where: Expr | None = None
    distinct: bool = False
    group: tuple[Expr, ...] = ()
    having: Expr | None = None
    order: tuple[Sort, ...] = ()
    limit: int | None = None
    offset: int | None = None
    window: TimeSpan | None = None


@dataclass(frozen=True)
class SetOperation:
    word: str
    left: Query
    right: Query
    order: tuple[Sort, ...] = ()
    limit: int | None = None
    window: TimeSpan | None = None


@dataclass(frozen=True)
class With:
    ctes: tuple[tuple[str, Query], ...]
    body: Select | SetOperation


Query = Select | SetOperation | With


def columns_of(query: Query) -> tuple[ColumnSpec, ...]:
    """Names and types of a query's answer."""
    match query:
        case With():
            return columns_of(query.body)
        case SetOperation():
            pairs = zip(columns_of(query.left), columns_of(query.right), strict=True)
            return tuple(replace(a, wide=a.wide or b.wide, bound=max(a.bound, b.bound)) for a, b in pairs)
        case Select(source=source, outputs=()):
            return source_columns(source)
        case Select(outputs=outputs):
            return tuple(ColumnSpec(o.name, o.expr.type, not o.expr.exact, False, o.expr.bound) for o in outputs)


def source_columns(source: Source) -> tuple[ColumnSpec, ...]:
    return source.stream.columns if isinstance(source, StreamSource) else columns_of(source.query)


def is_ordered(query: Query) -> bool:
    """Whether the order of the rows is part of the answer."""
    return bool(query.body.order if isinstance(query, With) else query.order)


def is_nested(type_: pa.DataType) -> bool:
    return bool(pa.types.is_nested(type_))


def sources(query: Query) -> Iterator[Source]:
    """Every source mentioned anywhere in a query, those of standing queries it reads too."""
    match query:
        case With():
            for _, cte in query.ctes:
                yield from sources(cte)
            yield from sources(query.body)
        case SetOperation():
            yield from sources(query.left)
            yield from sources(query.right)
        case Select():
            yield query.source
            if isinstance(query.source, NamedSource | DerivedSource):
                yield from sources(query.source.query)
            for expr in (*(o.expr for o in query.outputs), query.where, query.having, *query.group):
                yield from _expr_sources(expr)


def _expr_sources(expr: Expr | None) -> Iterator[Source]:
    for arg in expr.args if expr else ():
        yield from _expr_sources(arg) if isinstance(arg, Expr) else sources(arg)


def stream_names(query: Query) -> frozenset[str]:
    return frozenset(s.stream.name for s in sources(query) if isinstance(s, StreamSource))


def query_names(query: Query) -> frozenset[str]:
    """Standing queries that this one names itself or through others."""
    return frozenset(s.name for s in sources(query) if isinstance(s, NamedSource))


# --- rendering ---


@dataclass(frozen=True)
class At:
    """When a query is judged: NOW, and the visibility floor of each stream that has one (both in microseconds)."""

    now_us: int
    floors: dict[str, int]
    undefined: bool = False
    """There is no NOW yet: windows that move with it are empty."""
    accepted: Mapping[str, int] = field(default_factory=dict)
    """How many tuples each stream has accepted."""
    hashes: Hashes = field(default_factory=Hashes)


def to_ladle(query: Query) -> str:
    return Writer(Dialect.LADLE, None).query(query, None)


def to_duckdb(query: Query, at: At) -> str:
    return Writer(Dialect.DUCKDB, at).query(query, None)


def to_spark(query: Query, at: At) -> str:
    return Writer(Dialect.SPARK, at).query(query, None)


def moment_text(us: int) -> str:
    return f"{EPOCH + timedelta(microseconds=us):%Y-%m-%d %H:%M:%S.%f}"


@dataclass(frozen=True)
class Writer:
    dialect: Dialect
    at: At | None
    mentions: list[tuple[StreamSource, TimeSpan | None]] = field(default_factory=list)
    """The streams that were written with their windows, each time."""

    def name(self, name: str) -> str:
        return f'"{name}"' if self.dialect is Dialect.DUCKDB else f"`{name}`"

    def expr(self, expr: Expr, window: TimeSpan | None) -> str:
        template = expr.duck if self.dialect is Dialect.DUCKDB else expr.spark
        return template.format(
            *(self.expr(arg, window) if isinstance(arg, Expr) else self.query(arg, window) for arg in expr.args)
        )

    def query(self, query: Query, inherited: TimeSpan | None) -> str:
        match query:
            case With():
                # a CTE belongs to the statement, so it inherits the statement's window
                window = query.body.window or inherited
                ctes = ", ".join(f"{name} AS ({self.query(cte, window)})" for name, cte in query.ctes)
                return f"WITH {ctes} {self.query(query.body, inherited)}"
            case SetOperation():
                window = query.window or inherited
                text = f"({self.query(query.left, window)}) {query.word} ({self.query(query.right, window)})"
                return text + self.tail(query)
            case Select():
                return self.select(query, query.window or inherited)

    def select(self, query: Select, window: TimeSpan | None) -> str:
        outputs = ", ".join(self.output(output, window) for output in query.outputs) or "*"
        text = f"SELECT {'DISTINCT ' if query.distinct else ''}{outputs} FROM {self.source(query.source, window)}"
        if query.where:
            text += f" WHERE {self.expr(query.where, window)}"
        if query.group:
            text += " GROUP BY " + ", ".join(self.expr(key, window) for key in query.group)
        if query.having:
            text += f" HAVING {self.expr(query.having, window)}"
        return text + self.tail(query)

    def output(self, output: Output, window: TimeSpan | None) -> str:
        text = self.expr(output.expr, window)
        if self.dialect is Dialect.DUCKDB:
            # the answer's type is Spark's; DuckDB would widen sums and narrow nothing
            return f"CAST({text} AS {duck_type(output.expr.type)}) AS {self.name(output.name)}"
        return f"{text} AS {self.name(output.name)}" if output.alias else text

    def tail(self, query: Select | SetOperation) -> str:
        text = ""
        if query.order:
            text += " ORDER BY " + ", ".join(self.sort(key) for key in query.order)
        if query.limit is not None:
            text += f" LIMIT {query.limit}"
        if isinstance(query, Select) and query.offset is not None:
            text += f" OFFSET {query.offset}"
        if self.dialect is Dialect.LADLE and query.window:
            text += f" {self.bounds(query.window)}"
        return text

    def bounds(self, window: TimeSpan) -> str:
        edges = (("BEGIN", window.begin), ("END", window.end))
        return " ".join(f"{word} {self.moment(moment)}" for word, moment in edges if moment is not None)

    def sort(self, key: Sort) -> str:
        text = str(key.position) if key.position is not None else self.name(key.name)
        if key.descending:
            text += " DESC"
        nulls_first = key.nulls_first
        if self.dialect is Dialect.DUCKDB and nulls_first is None:
            nulls_first = not key.descending
        return text if nulls_first is None else f"{text} NULLS {'FIRST' if nulls_first else 'LAST'}"

    def source(self, source: Source, window: TimeSpan | None) -> str:
        match source:
            case StreamSource():
                text = self.mention(source, window)
            case NamedSource(name=name):
                # closed: what surrounds a standing query gives it no window
                text = name if self.dialect is Dialect.LADLE else f"({self.query(source.query, None)})"
            case DerivedSource():
                text = f"({self.query(source.query, window)})"
            case CteSource(name=name):
                text = name
        alias = source.alias
        if alias is None and not isinstance(source, CteSource) and self.dialect is not Dialect.LADLE:
            alias = source.stream.name if isinstance(source, StreamSource) else "_unnamed"
        return text if alias is None else f"{text} AS {alias}"

    def mention(self, source: StreamSource, window: TimeSpan | None) -> str:
        stream = source.stream.name
        if self.dialect is Dialect.LADLE:
            words = [] if source.sampling is None else [source.sampling.text]
            match source.window:
                case Range(span):
                    words.append(f"[RANGE {span}]")
                case Rows(rows):
                    words.append(f"[ROWS {rows}]")
                case KeyedRows(columns, rows):
                    keys = ", ".join(self.name(column) for column in columns)
                    words.append(f"[PARTITION BY {keys} ROWS {rows}]")
                case TimeSpan():
                    words.append(f"[{self.bounds(source.window)}]")
                case Bracket():
                    words.append(source.window.value)
            first = source.sampling is None or source.sampling.before
            return " ".join([stream, *(words if first else words[::-1])])
        return f"({self.tuples(source, window)})"

    def tuples(self, source: StreamSource, window: TimeSpan | None) -> str:
        """The window as a predicate over every tuple ever accepted: b < ts <= e, and retention's floor."""
        assert self.at is not None
        self.mentions.append((source, window))
        stream, ts = source.stream, self.name(ARRIVAL_TIME)
        now = self.constant(self.at.now_us)
        tests = []
        floor = self.at.floors.get(stream.name)
        if floor is not None:
            tests.append(f"{ts} > {self.constant(floor)}")
        own = source.window
        if isinstance(own, TimeSpan):
            own, window = None, own
        elif own is Bracket.UNBOUNDED:
            own, window = None, None
        if self.at.undefined and (own is not None or (window is not None and window.moves)):
            tests.append("FALSE")
        match own:
            case Bracket.NOW:
                tests.append(f"{ts} = {now}")
            case Range(span):
                tests += [f"{ts} > {now} - INTERVAL {span.amount} {span.unit}", f"{ts} <= {now}"]
            case Rows() | KeyedRows():
                tests.append(f"{ts} <= {now}")
            case None if window is None:
                tests += [] if self.at.undefined else [f"{ts} <= {now}"]
            case None if window is not None:
                tests += [] if window.begin is None else [f"{ts} > {self.moment(window.begin)}"]
                tests.append(f"{ts} <= {self.moment(window.end or Moment())}")
        table = f"raw_{stream.name}"
        text = f"SELECT * FROM {table}" + (f" WHERE {' AND '.join(tests)}" if tests else "")
        if isinstance(source.window, Rows):
            text += f" ORDER BY {self.name(ARRIVAL_NUMBER)} DESC LIMIT {source.window.rows}"
        if isinstance(source.window, KeyedRows):
            keys = ", ".join(self.name(column) for column in source.window.columns)
            newest = f"row_number() OVER (PARTITION BY {keys} ORDER BY {self.name(ARRIVAL_NUMBER)} DESC)"
            text += f" QUALIFY {newest} <= {source.window.rows}"
        columns = ", ".join(self.name(column.name) for column in stream.columns)
        return f"SELECT {columns} FROM ({text}) AS _tuples" + self.sampled(source)

    def sampled(self, source: StreamSource) -> str:
        """Which of a window's tuples TABLESAMPLE has: [ROWS n] counts before it."""
        if source.sampling is None:
            return ""
        assert self.at is not None
        name = source.stream.name
        ids = self.at.hashes.ids(name, source.sampling, self.at.accepted[name])
        return f" WHERE {self.name(ARRIVAL_NUMBER)} IN ({', '.join(map(str, ids))})" if ids else " WHERE FALSE"

    def moment(self, moment: Moment) -> str:
        if moment.us is not None:
            return self.constant(moment.us)
        if self.at is not None and moment.less is not None and moment.less.unit == "MONTH":
            return self.constant(months_before(self.at.now_us, moment.less.amount))
        now = "NOW" if self.at is None else self.constant(self.at.now_us)
        return now if moment.less is None else f"{now} - INTERVAL {moment.less.amount} {moment.less.unit}"

    def constant(self, us: int) -> str:
        return f"TIMESTAMP '{moment_text(us)}'"


_SPARK_NAMES: dict[pa.DataType, str] = {
    pa.bool_(): "BOOLEAN",
    pa.int8(): "TINYINT",
    pa.int16(): "SMALLINT",
    pa.int32(): "INT",
    pa.int64(): "BIGINT",
    pa.float32(): "FLOAT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.date32(): "DATE",
    ZONED: "TIMESTAMP",
    NAIVE: "TIMESTAMP_NTZ",
}

# a moment is kept as naive UTC in DuckDB, so that no session time zone can touch it
_DUCK_NAMES = _SPARK_NAMES | {pa.string(): "VARCHAR", pa.binary(): "BLOB", ZONED: "TIMESTAMP", NAIVE: "TIMESTAMP"}


def spark_type(type_: pa.DataType) -> str:
    if pa.types.is_decimal(type_):
        return f"DECIMAL({type_.precision},{type_.scale})"
    if pa.types.is_list(type_):
        return f"ARRAY<{spark_type(type_.value_type)}>"
    if pa.types.is_map(type_):
        return f"MAP<{spark_type(type_.key_type)}, {spark_type(type_.item_type)}>"
    if pa.types.is_struct(type_):
        return f"STRUCT<{', '.join(f'{field.name}: {spark_type(field.type)}' for field in type_)}>"
    return _SPARK_NAMES[type_]


def duck_type(type_: pa.DataType) -> str:
    if pa.types.is_decimal(type_):
        return f"DECIMAL({type_.precision},{type_.scale})"
    if pa.types.is_list(type_):
        return f"{duck_type(type_.value_type)}[]"
    if pa.types.is_map(type_):
        return f"MAP({duck_type(type_.key_type)}, {duck_type(type_.item_type)})"
    if pa.types.is_struct(type_):
        return f"STRUCT({', '.join(f'{field.name} {duck_type(field.type)}' for field in type_)})"
    return _DUCK_NAMES[type_]
