"""All settings, in one table. A setting comes from `connect(..., settings=)` or a flag, from the environment as
LADLE_<NAME>, or from a file (TOML, `name = value`); the first that has it counts.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from ladle.errors import LadleError

POLICIES = ("tickets", "random", "fixed", "best", "worst")
ANONYMOUS = ("loopback", "nobody")
_CHOICES = {"eddy_policy": POLICIES, "anonymous": ANONYMOUS}
_MAY_BE_ZERO = {
    "grace_seconds",
    "cache_bytes_max",
    "kept_bytes_max",
    "aggregates_bytes_max",
    "residual_rows_max",
    "port",
}


@dataclass(frozen=True, kw_only=True)
class Settings:
    segment_rows_max: int = 65_536
    """Tuples in a segment at most."""
    checkpoint_entries: int = 256
    """A checkpoint of the log is written after this many entries."""
    compact_files_min: int = 16
    """Neighbouring small files of one level that are merged into one."""
    cache_bytes_max: int = 1 << 30
    """Decoded segments that the serving process keeps."""
    kept_bytes_max: int = 1 << 29
    """Rows that complete queries keep in memory; beyond it those asked least recently are swapped out."""
    aggregates_bytes_max: int = 1 << 28
    """Partial aggregates that the serving process keeps; those not used for longest go first."""
    residual_rows_max: int = 4_000_000
    """A residual over more input rows than this runs on Spark instead of DuckDB."""
    residual_memory_bytes_max: int = 4 << 30
    """What DuckDB may use for one residual."""
    join_pairs_max: int = 16_000_000
    """Pairs that one join may have at once; one with more is computed by DuckDB, within its limits."""
    invoke_seconds_max: float = 60.0
    """An invocation that takes longer is stopped with a clear error."""
    auto_idle_seconds: float = 3600.0
    """A query in mode auto that nobody asks for so long is swapped out until somebody does."""
    results_bytes_max: int = 32 << 30
    """What kept results may take on disk; beyond it queries in mode auto are swapped out, the longest idle first."""
    eddy_policy: str = "tickets"
    """In which order the eddy visits operators: tickets, random, fixed, best or worst; no answer depends on it."""
    factor_seconds_max: float = 2.0
    """A factor that takes longer over one segment leaves its own queries uncovered there."""
    backfill_rows_max: int = 1 << 19
    """Tuples scanned by one backfill job at most; fewer when they take long, so that epochs pass between jobs."""
    push_bytes_max: int = 1 << 30
    """Pushed bytes that may wait in one stream's inbox; beyond it a push is refused."""
    table_bytes_max: int = 1 << 28
    """Rows that a table may have, as bytes in memory; a statement that would make it larger is refused."""
    retry_seconds_max: float = 60.0
    """The longest pause before a failed source is started again."""
    grace_seconds: float = 60.0
    """How long a replaced data file stays for readers of the Delta table that opened it before."""
    maintenance_seconds: float = 1.0
    """How often compaction, retention, clean-up and the Delta follower look for work."""
    # What follows is for `ladle serve`.
    host: str = "127.0.0.1"
    """The address that the server listens on."""
    port: int = 8642
    """And the port; 0 for one that is free."""
    tls_certificate: str = ""
    """A file with the server's certificate (PEM); with it the server speaks HTTPS alone."""
    tls_key: str = ""
    """A file with the certificate's key, if it is not in the same."""
    anonymous: str = "loopback"
    """Who needs no token: loopback (programs on the server's own machine, which may do everything) or nobody."""
    request_bytes_max: int = 1 << 26
    """The body of a request at most."""
    requests_max: int = 64
    """Requests that are worked on at a time; others are told to come back."""
    page_rows_max: int = 100_000
    """Rows of an answer in one response; the rest is in further pages."""
    pages_bytes_max: int = 1 << 28
    """Answers that are kept for further pages; the oldest go first."""
    queries_per_owner_max: int = 10_000
    """Standing queries that one user may have."""
    subscribers_max: int = 4_096
    """Subscribers that are connected at a time."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(field.default, str):
                choices = _CHOICES.get(field.name)
                if not isinstance(value, str) or (choices is not None and value not in choices):
                    hint = f"it is one of {', '.join(choices)}" if choices is not None else "it is a text"
                    raise LadleError(f"The setting {field.name} can't be {value!r}.", hint=hint)
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
                raise LadleError(f"The setting {field.name} can't be {value!r}.", hint="it is a number, zero or more")
            if value == 0 and field.name not in _MAY_BE_ZERO:
                raise LadleError(f"The setting {field.name} can't be 0.", hint=f"the default is {field.default}")

    @staticmethod
    def load(overrides: dict[str, Any] | None = None, file: str | Path | None = None) -> Settings:
        values: dict[str, Any] = {} if file is None else _read(Path(file))
        for field in fields(Settings):
            text = os.environ.get(f"LADLE_{field.name.upper()}")
            if text is not None:
                values[field.name] = parse_setting(field.name, text, f"LADLE_{field.name.upper()}")
        values |= overrides or {}
        _check_names(values)
        return Settings(**values)


def parse_setting(name: str, text: str, where: str) -> Any:
    """A setting's value that was given as text, for instance in the environment."""
    _check_names({name: text})
    kind: type[Any] = type(getattr(Settings, name))
    try:
        return kind(text)
    except ValueError:
        raise LadleError(f"{where}={text!r} is not a {kind.__name__}.") from None


def _read(file: Path) -> dict[str, Any]:
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise LadleError(f"Can't read the settings in '{file}': {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LadleError(f"The settings in '{file}' are not TOML: {error}.", hint="lines like port = 8642") from None
    _check_names(values, f" (in {file})")
    return values


def _check_names(values: dict[str, Any], where: str = "") -> None:
    known = [field.name for field in fields(Settings)]
    for name in values:
        if name not in known:
            raise LadleError(f"There is no setting '{name}'{where}. Settings: {', '.join(known)}.")
