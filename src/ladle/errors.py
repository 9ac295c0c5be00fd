"""One tree of errors. Each has a stable code, a message that says what to do, and a position where there is one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import islice


@dataclass(frozen=True)
class Position:
    """Where in a statement's text something is wrong; both are counted from one."""

    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


class LadleError(Exception):
    """The root of everything Ladle raises on purpose."""

    code = "error"

    def __init__(self, message: str, *, hint: str | None = None, position: Position | None = None) -> None:
        self.message = message
        self.hint = hint
        self.position = position
        super().__init__(message)

    def __str__(self) -> str:
        where = f" (at {self.position})" if self.position else ""
        advice = f"\n  hint: {self.hint}" if self.hint else ""
        return f"{self.message}{where}{advice}"


class SqlError(LadleError):
    """The text is not a statement of Ladle's SQL."""

    code = "sql"


class UnknownName(LadleError):
    """A stream, query, column or function that does not exist."""

    code = "unknown_name"


class AlreadyExists(LadleError):
    """Something of that name is there already."""

    code = "already_exists"


class Unsupported(LadleError):
    """Well-formed, but not something that can stand (or run) here; the message says why."""

    code = "unsupported"


class InUse(LadleError):
    """Refused because something else depends on it; the message names what."""

    code = "in_use"


class BrokenQuery(LadleError):
    """A standing query whose text this version of the program can't bind; it stays, and others go on."""

    code = "broken_query"


class TypeMismatch(LadleError):
    """Columns or values that don't fit a stream's schema."""

    code = "type_mismatch"


class EvaluationError(LadleError):
    """An expression raised on some row (ANSI mode: division by zero, overflow, a malformed cast)."""

    code = "evaluation"


class Gone(LadleError):
    """What is asked for was there, and is beyond retention."""

    code = "gone"


class InboxFull(LadleError):
    """More was pushed than waits in a stream's inbox; later there is room."""

    code = "inbox_full"


class KeyReused(LadleError):
    """A push with the key of another one."""

    code = "key_reused"


class Denied(LadleError):
    """The caller may not do that."""

    code = "denied"


class Unauthenticated(Denied):
    """Nobody knows who the caller is."""

    code = "unauthenticated"


class LimitExceeded(LadleError):
    """More than a setting allows; the message names it."""

    code = "limit"


class InvocationTimeout(LadleError):
    """An answer took longer than `invoke_seconds_max`."""

    code = "timeout"

    def __init__(self, message: str, *, hint: str | None = None, position: Position | None = None) -> None:
        super().__init__(message, hint=hint or "the setting invoke_seconds_max bounds it", position=position)


class WarehouseError(LadleError):
    """The warehouse can't be opened, read or written."""

    code = "warehouse"


class Unreachable(WarehouseError):
    """A server does not answer; it may again."""

    code = "unreachable"


class WarehouseBusy(WarehouseError):
    """Another process holds the warehouse for writing."""

    code = "warehouse_busy"


class CorruptLog(WarehouseError):
    """A file of the log is not what was written."""

    code = "corrupt_log"


class DamagedFile(WarehouseError):
    """A file of the warehouse is not what was written: its checksum does not match."""

    code = "damaged_file"


class DiskFull(WarehouseError):
    """There is no room on the disk. Nothing that was acknowledged is lost; go on when there is room."""

    code = "disk_full"


class ReadOnly(WarehouseError):
    """A change was asked of a warehouse opened for reading."""

    code = "read_only"


class Closed(LadleError):
    """The database was closed, or is being closed."""

    code = "closed"

    def __init__(
        self,
        message: str = "The database is closed.",
        *,
        hint: str | None = "open it again with ladle.connect(...)",
        position: Position | None = None,
    ) -> None:
        super().__init__(message, hint=hint, position=position)


class PipelineError(LadleError):
    """Spark could not start, or a job failed for a reason that is not the query's."""

    code = "pipeline"


_DEPENDENT_MAX = 20


def listed(names: Iterable[str]) -> str:
    """Names in a message, in order: all of them, or the first and how many more there are."""
    ordered = sorted(names)
    more = len(ordered) - _DEPENDENT_MAX
    return ", ".join(ordered) if more <= 0 else f"{', '.join(ordered[:_DEPENDENT_MAX])} and {more:,} more"


LISTED_MAX = 10
"""So many names are listed when one is not found; of more, only the nearest."""

_NEAREST_MAX = 5
_COMPARED_MAX = 2_000
"""Looking for what was meant takes milliseconds for so many names, and seconds for a hundred thousand."""


def nearest(name: str, known: Iterable[str], *, likeness: float = 0.6) -> list[str]:
    """The few names that look most like this one, whatever their case, the likeliest first."""
    by_lower = {each.lower(): each for each in known}
    names: Iterable[str] = by_lower
    if len(by_lower) > _COMPARED_MAX:
        # most misspelt names begin rightly
        names = islice((each for each in by_lower if each[:2] == name[:2].lower()), _COMPARED_MAX)
    close = get_close_matches(name.lower(), list(names), n=_NEAREST_MAX, cutoff=likeness)
    return [by_lower[each] for each in close]


def did_you_mean(near: Sequence[str]) -> str | None:
    """A hint that names the nearest name there is."""
    return f"did you mean '{near[0]}'?" if near else None


def _several(kind: str) -> str:
    return kind.removesuffix("y") + "ies" if kind.endswith("y") else f"{kind}s"


def unknown(kind: str, name: str, known: Iterable[str], *, position: Position | None = None) -> UnknownName:
    """`Column 'x' not found. Columns: a, b, c.` with the likeliest meant one as the hint; of many, the nearest."""
    names = sorted(known)
    near = nearest(name, names)
    kinds = ", ".join(_several(each) for each in kind.replace(" or ", ", ").split(", ")).capitalize()
    if len(names) > LISTED_MAX and near:
        listed = f"Near ones: {', '.join(near)}"
    else:
        listed = f"{kinds}: {', '.join(names[:LISTED_MAX]) or 'none'}"
        listed += f", and {len(names) - LISTED_MAX} more" if len(names) > LISTED_MAX else ""
    return UnknownName(f"{kind.capitalize()} '{name}' not found. {listed}.", hint=did_you_mean(near), position=position)
