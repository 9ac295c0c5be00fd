"""Statements as they were parsed: names and trees with their places in the text, and nothing looked up yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from ladle.access import Role
from ladle.sql.statement_types import Materialize, MergeAction, MergeKind, Subscribing


@dataclass(frozen=True)
class QueryDraft:
    """A query's tree, and its own part of the text."""

    tree: exp.Expression
    sql: str
    tokens: Sequence[Token] = field(repr=False, compare=False)


@dataclass(frozen=True)
class ColumnDraft:
    """A column as it is declared."""

    name: exp.Identifier
    type: exp.DataType
    default: QueryDraft | None
    """SELECT and the expression."""


@dataclass(frozen=True)
class CreateStreamDraft:
    """CREATE STREAM."""

    name: exp.Identifier
    columns: tuple[ColumnDraft, ...]
    timestamp: exp.Identifier | None
    retain: exp.Expression | None
    max_ahead: exp.Expression | None
    lateness: exp.Expression | None
    idle_after: exp.Expression | None
    if_not_exists: bool


@dataclass(frozen=True)
class CreateTableDraft:
    """CREATE TABLE."""

    name: exp.Identifier
    columns: tuple[ColumnDraft, ...]
    if_not_exists: bool


@dataclass(frozen=True)
class CreateTableAsDraft:
    """CREATE TABLE ... AS SELECT."""

    name: exp.Identifier
    query: QueryDraft
    if_not_exists: bool


@dataclass(frozen=True)
class AddColumnDraft:
    """ALTER STREAM ... ADD COLUMN."""

    stream: exp.Identifier
    column: ColumnDraft


@dataclass(frozen=True)
class AddTableColumnDraft:
    """ALTER TABLE ... ADD COLUMN."""

    table: exp.Identifier
    column: ColumnDraft


@dataclass(frozen=True)
class SetRetainDraft:
    """ALTER STREAM ... SET RETAIN."""

    stream: exp.Identifier
    retain: exp.Expression | None


@dataclass(frozen=True)
class SetLatenessDraft:
    """ALTER STREAM ... SET LATENESS."""

    stream: exp.Identifier
    lateness: exp.Expression | None


@dataclass(frozen=True)
class SetIdleAfterDraft:
    """ALTER STREAM ... SET IDLE."""

    stream: exp.Identifier
    idle_after: exp.Expression | None


@dataclass(frozen=True)
class AdvanceDraft:
    """ALTER STREAM ... ADVANCE TO."""

    stream: exp.Identifier
    to: exp.Expression


@dataclass(frozen=True)
class DropDraft:
    """DROP, of whichever kind of thing."""

    kind: str
    name: exp.Identifier
    cascade: bool
    if_exists: bool


@dataclass(frozen=True)
class CreateQueryDraft:
    """CREATE QUERY."""

    name: exp.Identifier | None
    query: QueryDraft
    materialize: Materialize | None
    if_not_exists: bool
    replace: bool
    view: bool = False


@dataclass(frozen=True)
class CreateFunctionDraft:
    """CREATE FUNCTION."""

    name: exp.Identifier
    parameters: tuple[tuple[exp.Identifier, exp.DataType], ...]
    returns: exp.DataType
    source: str | QueryDraft
    """Python; or SELECT and an expression of SQL."""
    if_not_exists: bool
    replace: bool


@dataclass(frozen=True)
class CreateSourceDraft:
    """CREATE SOURCE."""

    name: exp.Identifier
    stream: exp.Identifier
    format: exp.Identifier
    options: tuple[tuple[str, str], ...]
    if_not_exists: bool


@dataclass(frozen=True)
class CreateTokenDraft:
    """CREATE TOKEN."""

    name: exp.Identifier
    role: Role
    replace: bool


@dataclass(frozen=True)
class GrantDraft:
    """GRANT or REVOKE."""

    query: exp.Identifier
    to: exp.Identifier
    revoke: bool


@dataclass(frozen=True)
class BackupDraft:
    """BACKUP TO."""

    directory: str


@dataclass(frozen=True)
class VerifyDraft:
    """VERIFY."""


@dataclass(frozen=True)
class ShowDraft:
    """SHOW, of whichever kind of thing."""

    kind: str


@dataclass(frozen=True)
class ShowCreateDraft:
    """SHOW CREATE of a stream, table, query, view or function."""

    kind: str
    name: exp.Identifier


@dataclass(frozen=True)
class DescribeDraft:
    """DESCRIBE."""

    name: tuple[exp.Identifier, ...]
    function: bool


@dataclass(frozen=True)
class SelectDraft:
    """SELECT."""

    query: QueryDraft


@dataclass(frozen=True)
class InsertDraft:
    """INSERT."""

    target: tuple[exp.Identifier, ...]
    """A stream or a table."""
    columns: tuple[exp.Identifier, ...] | None
    query: QueryDraft


@dataclass(frozen=True)
class UpdateDraft:
    """UPDATE."""

    table: exp.Identifier
    assignments: tuple[tuple[exp.Identifier, exp.Expression], ...]
    where: exp.Expression | None
    sql: str
    """The statement's own part of the text."""


@dataclass(frozen=True)
class DeleteDraft:
    """DELETE."""

    table: exp.Identifier
    where: exp.Expression | None
    sql: str


@dataclass(frozen=True)
class MergeClauseDraft:
    """One WHEN clause of MERGE."""

    kind: MergeKind
    condition: QueryDraft | None
    action: MergeAction
    assignments: tuple[tuple[exp.Identifier, QueryDraft], ...] | None
    """None: all columns, by their names (`*`), or none of a DELETE."""


@dataclass(frozen=True)
class MergeDraft:
    """MERGE INTO a table."""

    table: exp.Identifier
    alias: exp.Identifier | None
    source: QueryDraft
    """SELECT * FROM the source."""
    source_alias: exp.Identifier
    on: QueryDraft
    clauses: tuple[MergeClauseDraft, ...]
    sql: str


@dataclass(frozen=True)
class ExplainSelectDraft:
    """EXPLAIN of a SELECT."""

    query: QueryDraft
    analyze: bool


@dataclass(frozen=True)
class SubscribeDraft:
    """SUBSCRIBE."""

    name: exp.Identifier
    how: Subscribing


@dataclass(frozen=True)
class ExplainQueryDraft:
    """EXPLAIN QUERY."""

    name: exp.Identifier
    analyze: bool


Draft = (
    CreateStreamDraft
    | CreateTableDraft
    | CreateTableAsDraft
    | AddColumnDraft
    | AddTableColumnDraft
    | SetRetainDraft
    | SetLatenessDraft
    | SetIdleAfterDraft
    | AdvanceDraft
    | DropDraft
    | CreateQueryDraft
    | CreateFunctionDraft
    | CreateSourceDraft
    | CreateTokenDraft
    | GrantDraft
    | ShowDraft
    | ShowCreateDraft
    | DescribeDraft
    | SelectDraft
    | InsertDraft
    | UpdateDraft
    | DeleteDraft
    | MergeDraft
    | ExplainSelectDraft
    | ExplainQueryDraft
    | BackupDraft
    | VerifyDraft
    | SubscribeDraft
)
