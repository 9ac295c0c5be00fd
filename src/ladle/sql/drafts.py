"""Statements as they were parsed: names and trees with their places in the text, and nothing looked up yet."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import exp
from sqlglot.tokenizer_core import Token

from ladle.access import Role
from ladle.sql.statements import Materialize


@dataclass(frozen=True)
class Query:
    """A query's tree, and its own part of the text."""

    tree: exp.Expression
    sql: str
    tokens: Sequence[Token] = field(repr=False, compare=False)


@dataclass(frozen=True)
class CreateStreamDraft:
    name: exp.Identifier
    columns: tuple[tuple[exp.Identifier, exp.DataType], ...]
    timestamp: exp.Identifier | None
    retain: exp.Expression | None
    max_ahead: exp.Expression | None
    lateness: exp.Expression | None
    idle_after: exp.Expression | None
    if_not_exists: bool


@dataclass(frozen=True)
class CreateTableDraft:
    name: exp.Identifier
    columns: tuple[tuple[exp.Identifier, exp.DataType], ...]
    if_not_exists: bool


@dataclass(frozen=True)
class AddColumnDraft:
    stream: exp.Identifier
    column: tuple[exp.Identifier, exp.DataType]


@dataclass(frozen=True)
class SetRetainDraft:
    stream: exp.Identifier
    retain: exp.Expression | None


@dataclass(frozen=True)
class SetLatenessDraft:
    stream: exp.Identifier
    lateness: exp.Expression | None


@dataclass(frozen=True)
class SetIdleAfterDraft:
    stream: exp.Identifier
    idle_after: exp.Expression | None


@dataclass(frozen=True)
class AdvanceDraft:
    stream: exp.Identifier
    to: exp.Expression


@dataclass(frozen=True)
class DropDraft:
    kind: str
    name: exp.Identifier
    cascade: bool
    if_exists: bool


@dataclass(frozen=True)
class CreateQueryDraft:
    name: exp.Identifier | None
    query: Query
    materialize: Materialize | None
    if_not_exists: bool
    replace: bool


@dataclass(frozen=True)
class CreateFunctionDraft:
    name: exp.Identifier
    parameters: tuple[tuple[exp.Identifier, exp.DataType], ...]
    returns: exp.DataType
    source: str
    if_not_exists: bool
    replace: bool


@dataclass(frozen=True)
class CreateSourceDraft:
    name: exp.Identifier
    stream: exp.Identifier
    format: exp.Identifier
    options: tuple[tuple[str, str], ...]
    if_not_exists: bool


@dataclass(frozen=True)
class CreateTokenDraft:
    name: exp.Identifier
    role: Role
    replace: bool


@dataclass(frozen=True)
class GrantDraft:
    query: exp.Identifier
    to: exp.Identifier
    revoke: bool


@dataclass(frozen=True)
class BackupDraft:
    directory: str


@dataclass(frozen=True)
class VerifyDraft:
    pass


@dataclass(frozen=True)
class ShowDraft:
    kind: str


@dataclass(frozen=True)
class DescribeDraft:
    name: tuple[exp.Identifier, ...]
    function: bool


@dataclass(frozen=True)
class SelectDraft:
    query: Query


@dataclass(frozen=True)
class InsertDraft:
    target: tuple[exp.Identifier, ...]
    """A stream or a table."""
    columns: tuple[exp.Identifier, ...] | None
    query: Query


@dataclass(frozen=True)
class UpdateDraft:
    table: exp.Identifier
    assignments: tuple[tuple[exp.Identifier, exp.Expression], ...]
    where: exp.Expression | None
    sql: str
    """The statement's own part of the text."""


@dataclass(frozen=True)
class DeleteDraft:
    table: exp.Identifier
    where: exp.Expression | None
    sql: str


@dataclass(frozen=True)
class ExplainSelectDraft:
    query: Query
    analyze: bool


@dataclass(frozen=True)
class SubscribeDraft:
    name: exp.Identifier
    since: int | None


@dataclass(frozen=True)
class ExplainQueryDraft:
    name: exp.Identifier
    analyze: bool


Draft = (
    CreateStreamDraft
    | CreateTableDraft
    | AddColumnDraft
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
    | DescribeDraft
    | SelectDraft
    | InsertDraft
    | UpdateDraft
    | DeleteDraft
    | ExplainSelectDraft
    | ExplainQueryDraft
    | BackupDraft
    | VerifyDraft
    | SubscribeDraft
)
