"""All settings, in one table. A setting comes from `connect(..., settings=)` or the environment as LADLE_<NAME>."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from typing import Any

from ladle.errors import LadleError

POLICIES = ("tickets", "random", "fixed", "best", "worst")
_MAY_BE_ZERO = {"grace_seconds", "cache_bytes_max", "kept_bytes_max", "aggregates_bytes_max", "residual_rows_max"}


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

    def __post_init__(self) -> None:
        if self.eddy_policy not in POLICIES:
            raise LadleError(
                f"The setting eddy_policy can't be {self.eddy_policy!r}.", hint=f"it is one of {', '.join(POLICIES)}"
            )
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "eddy_policy":
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
                raise LadleError(f"The setting {field.name} can't be {value!r}.", hint="it is a number, zero or more")
            if value == 0 and field.name not in _MAY_BE_ZERO:
                raise LadleError(f"The setting {field.name} can't be 0.", hint=f"the default is {field.default}")

    @staticmethod
    def load(overrides: dict[str, Any] | None = None) -> Settings:
        values: dict[str, Any] = {}
        for field in fields(Settings):
            text = os.environ.get(f"LADLE_{field.name.upper()}")
            if text is not None:
                values[field.name] = _parse(field.name, text, field.default)
        for name, value in (overrides or {}).items():
            if name not in {field.name for field in fields(Settings)}:
                known = ", ".join(field.name for field in fields(Settings))
                raise LadleError(f"There is no setting '{name}'. Settings: {known}.")
            values[name] = value
        return Settings(**values)


def _parse(name: str, text: str, default: Any) -> Any:
    try:
        return type(default)(text)
    except ValueError:
        raise LadleError(f"LADLE_{name.upper()}={text!r} is not a {type(default).__name__}.") from None
