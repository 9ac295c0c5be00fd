"""The statements of Ladle's SQL, as plain data. Trees of the parser never leave `ladle.sql`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from ladle.access import Role
from ladle.command import Command
from ladle.delta import ChangeOptions
from ladle.plan import Plan
from ladle.schema import Column, StreamSchema, TableSchema


class Materialize(Enum):
    """PSoup's NoMat, PSoup-P and PSoup-C: coverage of nothing, of every segment, of the current window; and the one
    that chooses among them while the query stands."""

    NONE = "none"
    PARTIAL = "partial"
    COMPLETE = "complete"
    AUTO = "auto"


@dataclass(frozen=True)
class CreateStream(Command[bool]):
    """Make a stream."""

    name: str
    schema: StreamSchema
    retain_us: int | None = None
    max_ahead_us: int | None = None
    lateness_us: int | None = None
    idle_after_us: int | None = None
    if_not_exists: bool = False


@dataclass(frozen=True)
class AddColumn(Command[None]):
    """Add a column to a stream."""

    stream: str
    column: Column


@dataclass(frozen=True)
class AddTableColumn(Command[None]):
    """ALTER TABLE ... ADD COLUMN."""

    table: str
    column: Column


@dataclass(frozen=True)
class SetRetain(Command[None]):
    """Change how long a stream keeps its tuples."""

    stream: str
    retain_us: int | None
    """None: forever (`SET RETAIN FOREVER`)."""


@dataclass(frozen=True)
class SetLateness(Command[None]):
    """Change how late tuples of a stream may be."""

    stream: str
    lateness_us: int | None
    """None: no tuple is late (`SET LATENESS UNBOUNDED`)."""


@dataclass(frozen=True)
class SetIdleAfter(Command[None]):
    """Change after which silence a stream becomes idle."""

    stream: str
    idle_after_us: int | None
    """None: it does not become idle (`SET IDLE NEVER`)."""


@dataclass(frozen=True)
class Advance(Command[int | None]):
    """A heartbeat (`ALTER STREAM name ADVANCE TO time`)."""

    stream: str
    to_us: int


@dataclass(frozen=True)
class DropStream(Command[None]):
    """Drop a stream."""

    name: str
    cascade: bool = False
    if_exists: bool = False


@dataclass(frozen=True)
class CreateTable(Command[bool]):
    """Make a table."""

    name: str
    schema: TableSchema
    if_not_exists: bool = False


@dataclass(frozen=True)
class CreateTableAs:
    """A table with the columns and rows of the plan's answer."""

    name: str
    plan: Plan
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropTable(Command[None]):
    """Drop a table."""

    name: str
    cascade: bool = False
    if_exists: bool = False


@dataclass(frozen=True)
class CreateQuery:
    """Register a standing query."""

    name: str | None
    """None: one is made for it."""
    plan: Plan
    materialize: Materialize | None = None
    """None: the default."""
    if_not_exists: bool = False
    replace: bool = False
    view: bool = False
    """Whether it was written as CREATE VIEW: it keeps nothing."""


@dataclass(frozen=True)
class DropQuery(Command[None]):
    """Drop a standing query."""

    name: str
    cascade: bool = False
    if_exists: bool = False
    view: bool = False
    """Whether it must be a view."""


@dataclass(frozen=True)
class CreateFunction:
    """Make a function."""

    name: str
    parameters: tuple[Column, ...]
    returns: pa.DataType
    text: str
    """Python: a function of that name, the body of one, or an expression; or an expression of SQL."""
    inlined: bool = False
    """Whether it is SQL."""
    if_not_exists: bool = False
    replace: bool = False


@dataclass(frozen=True)
class DropFunction(Command[None]):
    """Drop a function."""

    name: str
    cascade: bool = False
    if_exists: bool = False


@dataclass(frozen=True)
class ShowFunctions:
    """List the functions."""


@dataclass(frozen=True)
class ShowStreams:
    """List the streams."""


@dataclass(frozen=True)
class ShowTables:
    """List the tables."""


@dataclass(frozen=True)
class ShowQueries:
    """List the standing queries."""


@dataclass(frozen=True)
class ShowViews:
    """SHOW VIEWS."""


@dataclass(frozen=True)
class CreateSource(Command[bool]):
    """Data that Spark reads, or that a client of ours listens to, flows into a stream for as long as it is there."""

    name: str
    stream: str
    format: str
    options: tuple[tuple[str, str], ...]
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropSource(Command[None]):
    """Drop a source."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class ShowSources:
    """List the sources."""


@dataclass(frozen=True)
class CreateToken(Command[str]):
    """Make a token."""

    name: str
    role: Role
    replace: bool = False


@dataclass(frozen=True)
class DropToken(Command[None]):
    """Drop a token."""

    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class ShowTokens:
    """List the tokens."""


@dataclass(frozen=True)
class Grant(Command[None]):
    """Let somebody read a query."""

    query: str
    to: str


@dataclass(frozen=True)
class Revoke(Command[None]):
    """Take a grant back."""

    query: str
    to: str


@dataclass(frozen=True)
class ShowGrants:
    """List the queries that have an owner, and with whom they are shared."""


@dataclass(frozen=True)
class ShowDerived:
    """List the kinds of derived state."""


@dataclass(frozen=True)
class ShowCreate:
    """The statement that makes what has this name."""

    kind: str
    """STREAM, TABLE, QUERY, VIEW or FUNCTION."""
    name: str


@dataclass(frozen=True)
class Describe:
    """Tell the columns of a stream, table or query, or the source of a function."""

    name: str
    function: bool = False
    """Whether it must be a function's."""


@dataclass(frozen=True)
class Select:
    """Answer a query once."""

    plan: Plan


@dataclass(frozen=True)
class Insert:
    """Rows for a stream, as a plan whose answer's columns are `columns`, in that order.

    A tolerant plan's answer has NULL for what can't be cast, and once more as many columns, with what was given.
    """

    stream: str
    columns: tuple[str, ...]
    plan: Plan
    tolerant: bool = False


@dataclass(frozen=True)
class Misfit:
    """A row of literals that does not fit its stream: the first value that is none of its column's, and all given."""

    row: int
    column: Column
    value: object
    given: Mapping[str, object]


@dataclass(frozen=True)
class InsertValues:
    """Rows for a stream that were written as literals. Where a row does not fit the value is NULL."""

    stream: str
    rows: pa.Table
    misfits: tuple[Misfit, ...]


@dataclass(frozen=True)
class InsertTableValues(Command[int]):
    """Rows for a table that were written as literals."""

    table: str
    rows: pa.Table


@dataclass(frozen=True)
class InsertRows:
    """More rows for a table: the plan's answer has its columns."""

    table: str
    plan: Plan


@dataclass(frozen=True)
class UpdateRows:
    """The plan's answer is all rows of the table as they are afterwards, and a last column that says which are new."""

    table: str
    plan: Plan


@dataclass(frozen=True)
class DeleteRows:
    """The plan's answer is the rows that stay; None: none does."""

    table: str
    plan: Plan | None


class MergeKind(Enum):
    """Which rows a clause of MERGE is about; the value is how SQL writes it."""

    MATCHED = "MATCHED"
    NOT_MATCHED = "NOT MATCHED"
    NOT_MATCHED_BY_SOURCE = "NOT MATCHED BY SOURCE"


class MergeAction(Enum):
    """What a clause of MERGE does."""

    UPDATE = "UPDATE"
    DELETE = "DELETE"
    INSERT = "INSERT"


@dataclass(frozen=True)
class MergeRows:
    """The plan's answer is the table's columns, the clause that took a row (0: none), and the row's number or NULL."""

    table: str
    plan: Plan
    actions: tuple[MergeAction, ...]
    """What each clause does."""
    once: bool
    """Whether no row may be matched by several rows of the source."""


@dataclass(frozen=True)
class ExplainSelect:
    """Say how a SELECT is answered."""

    plan: Plan
    analyze: bool = False


@dataclass(frozen=True)
class ExplainQuery:
    """Say how a standing query is answered."""

    name: str
    analyze: bool = False


@dataclass(frozen=True)
class Backup:
    """Copy everything durable into a directory."""

    directory: str


@dataclass(frozen=True)
class Verify:
    """Compare every file with its checksums."""


@dataclass(frozen=True)
class Subscribing:
    """How a subscriber is told of a query."""

    since: int | str | None
    """The position, or the epoch, up to which it knows; None: the current one."""
    options: ChangeOptions
    snapshot: bool
    progress: bool


@dataclass(frozen=True)
class Subscribe:
    """Tell what changes in the answer of a query."""

    name: str
    how: Subscribing


Statement = (
    CreateStream
    | AddColumn
    | AddTableColumn
    | SetRetain
    | SetLateness
    | SetIdleAfter
    | Advance
    | DropStream
    | CreateTable
    | CreateTableAs
    | DropTable
    | CreateQuery
    | DropQuery
    | CreateFunction
    | DropFunction
    | ShowFunctions
    | ShowStreams
    | ShowTables
    | ShowQueries
    | ShowViews
    | CreateSource
    | DropSource
    | ShowSources
    | CreateToken
    | DropToken
    | ShowTokens
    | Grant
    | Revoke
    | ShowGrants
    | ShowDerived
    | ShowCreate
    | Describe
    | Select
    | Insert
    | InsertRows
    | InsertTableValues
    | InsertValues
    | UpdateRows
    | DeleteRows
    | MergeRows
    | ExplainSelect
    | ExplainQuery
    | Backup
    | Verify
    | Subscribe
)
