"""The statements of Ladle's SQL, as plain data. Trees of the parser never leave `ladle.sql`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

import pyarrow as pa

from ladle.access import Role
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
class CreateStream:
    name: str
    schema: StreamSchema
    retain_us: int | None = None
    max_ahead_us: int | None = None
    lateness_us: int | None = None
    idle_after_us: int | None = None
    if_not_exists: bool = False


@dataclass(frozen=True)
class AddColumn:
    stream: str
    column: Column


@dataclass(frozen=True)
class SetRetain:
    stream: str
    retain_us: int | None
    """None: forever (`SET RETAIN FOREVER`)."""


@dataclass(frozen=True)
class SetLateness:
    stream: str
    lateness_us: int | None
    """None: no tuple is late (`SET LATENESS UNBOUNDED`)."""


@dataclass(frozen=True)
class SetIdleAfter:
    stream: str
    idle_after_us: int | None
    """None: it does not become idle (`SET IDLE NEVER`)."""


@dataclass(frozen=True)
class Advance:
    """A heartbeat (`ALTER STREAM name ADVANCE TO time`)."""

    stream: str
    to_us: int


@dataclass(frozen=True)
class DropStream:
    name: str
    cascade: bool = False
    if_exists: bool = False


@dataclass(frozen=True)
class CreateTable:
    name: str
    schema: TableSchema
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropTable:
    name: str
    cascade: bool = False
    if_exists: bool = False


@dataclass(frozen=True)
class CreateQuery:
    name: str | None
    """None: one is made for it."""
    plan: Plan
    materialize: Materialize | None = None
    """None: the default."""
    if_not_exists: bool = False
    replace: bool = False


@dataclass(frozen=True)
class DropQuery:
    name: str
    cascade: bool = False
    if_exists: bool = False


@dataclass(frozen=True)
class CreateFunction:
    name: str
    parameters: tuple[Column, ...]
    returns: pa.DataType
    text: str
    """Python: a function of that name, the body of one, or an expression."""
    if_not_exists: bool = False
    replace: bool = False


@dataclass(frozen=True)
class DropFunction:
    name: str
    cascade: bool = False
    if_exists: bool = False


@dataclass(frozen=True)
class ShowFunctions:
    pass


@dataclass(frozen=True)
class ShowStreams:
    pass


@dataclass(frozen=True)
class ShowTables:
    pass


@dataclass(frozen=True)
class ShowQueries:
    pass


@dataclass(frozen=True)
class CreateSource:
    """Data that Spark reads, or that a client of ours listens to, flows into a stream for as long as it is there."""

    name: str
    stream: str
    format: str
    options: tuple[tuple[str, str], ...]
    if_not_exists: bool = False


@dataclass(frozen=True)
class DropSource:
    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class ShowSources:
    pass


@dataclass(frozen=True)
class CreateToken:
    name: str
    role: Role
    replace: bool = False


@dataclass(frozen=True)
class DropToken:
    name: str
    if_exists: bool = False


@dataclass(frozen=True)
class ShowTokens:
    pass


@dataclass(frozen=True)
class Grant:
    """Let somebody read a query."""

    query: str
    to: str


@dataclass(frozen=True)
class Revoke:
    query: str
    to: str


@dataclass(frozen=True)
class ShowGrants:
    pass


@dataclass(frozen=True)
class Describe:
    name: str
    function: bool = False
    """Whether it must be a function's."""


@dataclass(frozen=True)
class Select:
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
class InsertTableValues:
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


@dataclass(frozen=True)
class ExplainSelect:
    plan: Plan
    analyze: bool = False


@dataclass(frozen=True)
class ExplainQuery:
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
class Subscribe:
    name: str
    since: int | None
    """The epoch up to which the subscriber knows; None: the current one."""


Statement = (
    CreateStream
    | AddColumn
    | SetRetain
    | SetLateness
    | SetIdleAfter
    | Advance
    | DropStream
    | CreateTable
    | DropTable
    | CreateQuery
    | DropQuery
    | CreateFunction
    | DropFunction
    | ShowFunctions
    | ShowStreams
    | ShowTables
    | ShowQueries
    | CreateSource
    | DropSource
    | ShowSources
    | CreateToken
    | DropToken
    | ShowTokens
    | Grant
    | Revoke
    | ShowGrants
    | Describe
    | Select
    | Insert
    | InsertRows
    | InsertTableValues
    | InsertValues
    | UpdateRows
    | DeleteRows
    | ExplainSelect
    | ExplainQuery
    | Backup
    | Verify
    | Subscribe
)
