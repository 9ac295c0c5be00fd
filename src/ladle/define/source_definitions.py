"""Definitions of sources: which formats there are, what options they take, and which of those are secrets."""

from __future__ import annotations

import re
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ladle.catalog import SourceState
from ladle.define.source_options import (
    CSV_OPTIONS,
    JSON_OPTIONS,
    KAFKA_OPTIONS,
    MQTT_OPTIONS,
    PARQUET_OPTIONS,
    RATE_OPTIONS,
    SOCKET_OPTIONS,
)
from ladle.errors import LadleError, unknown
from ladle.status import UNTOLD

if TYPE_CHECKING:
    pass

Options = tuple[tuple[str, str], ...]

MQTT = "mqtt"


@dataclass(frozen=True)
class Format:
    """The options that sources of one format take."""

    all: tuple[str, ...]
    required: tuple[str, ...] = ()
    one_of: tuple[str, ...] = ()
    """Options of which one is needed."""
    passed_on: re.Pattern[str] | None = None
    """What others than the reader know: Hadoop's settings have dots, those of Kafka's consumer a prefix."""


_HADOOP, _CONSUMER = re.compile(r".+\..+"), re.compile(r"kafka\..+", re.IGNORECASE)
_TOPICS = ("subscribe", "subscribePattern", "assign")
FORMATS = {
    "parquet": Format(PARQUET_OPTIONS, ("path",), passed_on=_HADOOP),
    "json": Format(JSON_OPTIONS, ("path",), passed_on=_HADOOP),
    "csv": Format(CSV_OPTIONS, ("path",), passed_on=_HADOOP),
    "socket": Format(SOCKET_OPTIONS, ("host", "port")),
    "rate": Format(RATE_OPTIONS),
    "kafka": Format(KAFKA_OPTIONS, ("kafka.bootstrap.servers",), _TOPICS, passed_on=_CONSUMER),
    MQTT: Format(MQTT_OPTIONS, ("host", "topic")),
}
_SECRET = re.compile(r"passw|token|secret|credential|jaas|(access|private|account|api).?key", re.IGNORECASE)
_HIDDEN = "***"
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_PORT_MAX = 65_535


@dataclass(frozen=True)
class ListedSource:
    """A defined source as people see it."""

    name: str
    stream: str
    format: str
    options: Mapping[str, str]
    """Without secrets."""
    state: str
    error: str | None
    restarts: int

    def without_options(self) -> ListedSource:
        """For those who are not to know where data comes from: an error may say it too."""
        return replace(self, options={}, error=self.error and UNTOLD)


def shown_options(source: SourceState) -> dict[str, str]:
    """The options of a source as they may be shown: values of secrets are hidden."""
    return {name: _HIDDEN if _SECRET.search(name) else value for name, value in source.options}


def checked_options(name: str, form: str, wanted: Sequence[tuple[str, str]]) -> Options:
    """The options as they are kept: with what must stay the same for as long as the source is there."""
    known = FORMATS.get(form)
    if known is None:
        raise unknown("format", form, list(FORMATS))
    given = {key.lower(): value for key, value in wanted}
    if len(given) < len(wanted):
        twice = next(key for key, _ in wanted if sum(key.lower() == other.lower() for other, _ in wanted) > 1)
        raise LadleError(f"Option '{twice}' is given twice.", hint="names of options are compared without case")
    names = {each.lower() for each in known.all}
    for key, _ in wanted:
        if key.lower() not in names and not (known.passed_on and known.passed_on.fullmatch(key)):
            raise unknown("option", key, known.all)
    for required in known.required:
        if not given.get(required.lower()):
            raise LadleError(f"A source of format {form} needs the option '{required}'.", hint=_example(known))
    if known.one_of and not any(each.lower() in given for each in known.one_of):
        raise LadleError(f"A source of format {form} needs one of the options {', '.join(known.one_of)}.")
    _check_values(form, given)
    if form == MQTT:
        given.setdefault("client_id", f"ladle-{name}-{uuid.uuid4().hex[:8]}")
        return tuple(given.items())
    return tuple((key, _absolute(value) if key.lower() == "path" else value) for key, value in wanted)


def _check_values(form: str, given: Mapping[str, str]) -> None:
    port = given.get("port")
    if form in ("socket", MQTT) and port is not None and not (port.isdecimal() and 0 < int(port) <= _PORT_MAX):
        raise LadleError(f"Option 'port' can't be '{port}'.", hint=f"it is a number from 1 to {_PORT_MAX:,}")
    if form != MQTT:
        return
    if given.get("qos", "1") not in ("0", "1"):
        # The receiver of a message with QoS 2 answers for it before anybody can have read it, let alone kept it.
        raise LadleError(
            f"Option 'qos' can't be '{given['qos']}'.",
            hint="it is 1, where a message is acknowledged when its rows are durable, or 0",
        )
    if given.get("tls", "false").lower() not in ("true", "false"):
        raise LadleError(f"Option 'tls' can't be '{given['tls']}'.", hint="it is true or false")


def _example(known: Format) -> str:
    return "OPTIONS (" + ", ".join(f"{each} '...'" for each in known.required) + ")"


def _absolute(path: str) -> str:
    """A path that means the same wherever the next process is started; an address like s3a:// does already."""
    return path if _SCHEME.match(path) else str(Path(path).expanduser().absolute())
