"""What the log's entries have, kind by kind. `ladle.catalog.entries` makes them, `ladle.catalog.snapshot` applies them.

Fields that only newer versions write are `NotRequired`. Entries with which queries come have no declaration: of these
there are three forms, two of them of older versions.
"""

from __future__ import annotations

from typing import NotRequired, TypeAlias, TypedDict

from ladle.json_values import JsonFields, JsonObject, JsonRow


class KindOnly(TypedDict):
    """What every entry has."""

    kind: str


class OfStream(KindOnly):
    """Of a stream."""

    stream: str


class NameOnly(KindOnly):
    """Of what has a name."""

    name: str


class CreateStreamEntry(NameOnly):
    """A stream comes."""

    schema: JsonObject
    retain_us: int | None
    max_ahead_us: int | None
    lateness_us: NotRequired[int | None]
    idle_after_us: NotRequired[int | None]


class AddColumnEntry(OfStream):
    """A stream gets a column."""

    column: str


class SetRetainEntry(OfStream):
    """A stream keeps its tuples for another time."""

    retain_us: int | None
    at_us: NotRequired[int]


class SetLatenessEntry(OfStream):
    """Tuples of a stream may be later, or not as late."""

    lateness_us: int | None


class SetIdleAfterEntry(OfStream):
    """A stream becomes idle after another silence."""

    idle_after_us: int | None


class IdleEntry(OfStream):
    """A stream becomes idle."""

    at_us: int


class HeartbeatEntry(IdleEntry):
    """A stream's clock advances."""

    clock_us: int


class DropStreamEntry(OfStream):
    """A stream goes, and queries with it."""

    queries: list[str]


class CreateTableEntry(NameOnly):
    """A table comes."""

    schema: str
    at_us: NotRequired[int]


class VersionFields(TypedDict):
    """A table's next version, and the one it replaces."""

    file: str | None
    rows: int
    bytes: int
    checks: NotRequired[list[int] | None]
    at_us: NotRequired[int]
    replaced: NotRequired[JsonRow]
    keeps_from: NotRequired[int]


class SetTableEntry(KindOnly, VersionFields):
    """A table has other rows."""

    table: str


class CreateTableAsEntry(SetTableEntry):
    """A table comes with rows."""

    name: str
    schema: str


class AddTableColumnEntry(SetTableEntry):
    """A table gets a column."""

    column: str


class DropTableEntry(KindOnly):
    """A table goes, and queries with it."""

    table: str
    queries: list[str]


class UnregisterEntry(KindOnly):
    """Queries go."""

    names: list[str]


class DropFunctionEntry(NameOnly):
    """A function goes, and queries with it."""

    queries: list[str]


class CreateSourceEntry(KindOnly):
    """A source comes."""

    source: JsonFields


class CreateTokenEntry(KindOnly):
    """A token comes."""

    token: JsonFields


class GrantEntry(KindOnly):
    """Somebody may read a query, or not any more."""

    query: str
    to: str


class EpochEntry(OfStream):
    """A batch was taken in."""

    source: str
    batch: int
    at_us: int
    files: list[JsonRow]
    quarantine: list[JsonRow]
    keys: NotRequired[list[str]]


class ReplaceFilesEntry(OfStream):
    """Files take the place of others."""

    removed: list[str]
    added: list[JsonRow]
    why: str


class ForgetPositionsEntry(KindOnly):
    """Positions are no longer promised."""

    before: int


Entry: TypeAlias = (
    CreateStreamEntry
    | AddColumnEntry
    | SetRetainEntry
    | SetLatenessEntry
    | SetIdleAfterEntry
    | IdleEntry
    | HeartbeatEntry
    | DropStreamEntry
    | CreateTableEntry
    | SetTableEntry
    | CreateTableAsEntry
    | AddTableColumnEntry
    | DropTableEntry
    | UnregisterEntry
    | DropFunctionEntry
    | CreateSourceEntry
    | CreateTokenEntry
    | GrantEntry
    | EpochEntry
    | ReplaceFilesEntry
    | ForgetPositionsEntry
    | NameOnly
    | JsonFields
)
"""An entry of any kind; those with which queries come are `JsonFields`."""
