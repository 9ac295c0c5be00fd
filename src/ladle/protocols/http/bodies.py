"""What requests say in JSON."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from ladle.json_values import JsonFields

Name = Annotated[str, Field(min_length=1, max_length=255)]
Sql = Annotated[str, Field(min_length=1, description="statement_characters_max says how long it may be")]
Mode = Annotated[str, Field(description="auto, none, partial or complete", max_length=20)]


class Body(BaseModel):
    """The body of a request. A field that nobody reads is refused."""

    model_config = ConfigDict(extra="forbid")


class Script(Body):
    """Statements to run, one after the other."""

    sql: Sql


class StatementBody(Body):
    """What is to be explained."""

    text: Sql = Field(description="the name of a standing query, or a SELECT")
    analyze: bool = Field(False, description="also invoke it, and say what that took")


class Registration(Body):
    """One query (`sql`, with a `name` or without: one is made for it), or several (`queries`: texts by name), all of
    them or none.
    """

    name: Name | None = None
    sql: Sql | None = None
    queries: dict[Name, Sql] | None = None
    materialize: Mode = "auto"
    if_not_exists: bool = False
    replace: bool = False


class NewStream(Body):
    """A stream to make."""

    name: Name
    columns: dict[Name, Name] = Field(description="types as SQL writes them, by column")
    timestamp_by: Name | None = Field(None, description="the column with the tuples' own time")
    retain_seconds: float | None = Field(None, gt=0, le=1e10, description="without it tuples are kept for ever")
    max_ahead_seconds: float | None = Field(None, gt=0, le=1e10, description="how far ahead of the clock a time may be")
    lateness_seconds: float | None = Field(None, gt=0, le=1e10, description="how far behind the clock tuples may come")
    idle_after_seconds: float | None = Field(None, gt=0, le=1e10, description="after which silence it becomes idle")
    if_not_exists: bool = False


class Heartbeat(Body):
    """The time that a stream has reached."""

    at: Annotated[str, Field(description="the time that the stream has reached, as ISO text", max_length=64)]


class NewTable(Body):
    """A table to make."""

    name: Name
    columns: dict[Name, Name] | None = Field(None, description="types as SQL writes them, by column")
    table_schema: Any = Field(None, alias="schema", description="the same in the form that Ladle's client has")
    """Any: whether it is in that form is found out when it is read."""
    if_not_exists: bool = False


class NewFunction(Body):
    """A function to make."""

    function: JsonFields = Field(description="as Ladle's client writes it; in SQL it is CREATE FUNCTION")
    replace: bool = False
    if_not_exists: bool = False


class GrantBody(Body):
    """With whom a query is shared."""

    to: Name = Field(description="the name of a token, or public")
