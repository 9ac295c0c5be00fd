"""All settings, in one table. A setting comes from `connect(..., settings=)` or a flag, from the environment as
LADLE_<NAME>, or from a file (TOML, `name = value`); the first that has it counts.
"""

from __future__ import annotations

import os
import re
import shlex
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias

from ladle.errors import LadleError, did_you_mean, nearest

POLICIES = ("tickets", "random", "fixed", "best", "worst")
ANONYMOUS = ("loopback", "nobody")
LOCAL_SPARK = "local[*,4]"
"""Plain `local[*]` gives up on a task the first time it fails."""
MEANING_OF_SQL = ("spark.sql.session.timeZone", "spark.sql.ansi.enabled", "spark.sql.timestampType")
"""Spark's settings that decide what an expression means; they are Ladle's to set."""
_MASTER = re.compile(r"local|local\[.+\]|local-cluster\[.+\]|spark://[^/\s]+:\d+(,[^/\s]+:\d+)*|yarn|k8s://\S+")
_CHOICES = {"eddy_policy": POLICIES, "anonymous": ANONYMOUS}
_MAY_BE_ZERO = {
    "grace_seconds",
    "positions_seconds_max",
    "derived_memory_bytes_max",
    "residual_rows_max",
    "port",
}
_REPLACED = {
    "cache_bytes_max": "derived_memory_bytes_max",
    "kept_bytes_max": "derived_memory_bytes_max",
    "aggregates_bytes_max": "derived_memory_bytes_max",
    "results_bytes_max": "derived_disk_bytes_max",
}
"""Settings that there were, and what has taken their place."""


Setting: TypeAlias = Any
"""A setting's value as it was given. Any: `Settings` looks at each by the type of its default."""


@dataclass(frozen=True)
class SparkStart:
    """How Spark is started when it is needed."""

    master: str = LOCAL_SPARK
    conf: Mapping[str, str] = field(default_factory=dict)
    """Spark's own settings."""

    @property
    def local(self) -> bool:
        """Whether Spark runs on this machine."""
        return self.master.startswith("local")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings with their defaults. A value that makes no sense is refused when they are loaded."""

    segment_rows_max: int = 65_536
    """Tuples in a segment at most."""
    checkpoint_entries: int = 256
    """A checkpoint of the log is written after this many entries."""
    compact_files_min: int = 16
    """Neighbouring small files of one level that are merged into one."""
    derived_memory_bytes_max: int = 7 << 28
    """What derived state may take in memory: cached segments, partial aggregates, kept rows and answers together."""
    derived_disk_bytes_max: int = 32 << 30
    """What derived files may take: results, masks, pairs of joins; over it queries in mode auto are swapped out."""
    residual_rows_max: int = 4_000_000
    """A residual over more input rows than this runs on Spark instead of DuckDB."""
    residual_memory_bytes_max: int = 4 << 30
    """What DuckDB may use for one residual."""
    join_pairs_max: int = 16_000_000
    """Pairs that one join may have at once; one with more is computed by DuckDB, within its limits."""
    invoke_seconds_max: float = 60.0
    """A statement or invocation that takes longer, parsing and binding included, is stopped with a clear error."""
    statement_characters_max: int = 1 << 20
    """Characters of a text of SQL; a longer one is refused before it is looked at."""
    statement_tokens_max: int = 200_000
    """Words, names, numbers, texts and signs of a statement."""
    statement_depth_max: int = 100
    """How deep a statement may nest: parentheses, calls, CASE and subqueries inside of each other."""
    auto_idle_seconds: float = 3600.0
    """A query in mode auto that nobody asks for so long is swapped out until somebody does."""
    eddy_policy: str = "tickets"
    """In which order the eddy visits operators: tickets, random, fixed, best or worst; no answer depends on it."""
    factor_seconds_max: float = 2.0
    """A factor that does not come back for so long is stopped, leaves its own queries uncovered, and is tried again."""
    functions_epoch_seconds_max: float = 0.5
    """What functions, and other long factors, may take in each task of an epoch; the backfill does the rest."""
    backfill_rows_max: int = 1 << 19
    """Tuples scanned by one backfill job at most; fewer when they take long, so that epochs pass between jobs."""
    push_bytes_max: int = 1 << 30
    """Pushed bytes that may wait in one stream's inbox; beyond it a push is refused."""
    table_bytes_max: int = 1 << 28
    """Rows that a table may have, as bytes in memory; a statement that would make it larger is refused."""
    positions_seconds_max: float = 0.0
    """For how long a subscription may go on from where it was, and tuples beyond retention stay for it; 0: for as long
    as its streams retain their tuples."""
    tick_seconds: float = 0.25
    """How often followers of a query over arrival times are told what the passing of time changed."""
    table_versions_max: int = 1_024
    """Replaced versions of a table that subscriptions may go on from; with `table_bytes_max` bytes in all at most."""
    retry_seconds_max: float = 60.0
    """The longest pause before a failed source is started again."""
    grace_seconds: float = 60.0
    """How long a replaced data file stays for readers of the Delta table that opened it before."""
    maintenance_seconds: float = 1.0
    """How often compaction, retention, clean-up and the Delta follower look for work."""
    spark_master: str = LOCAL_SPARK
    """Where Spark runs: local[...] in this process's JVM, or a cluster: spark://HOST:PORT, yarn, k8s://..."""
    spark_conf: Mapping[str, str] = field(default_factory=dict)
    """Spark's own settings, like spark.executor.memory=4g; as text, several are separated by spaces."""
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
    connections_max: int = 8_192
    """Connections that are open at a time, or half of the files that the system allows if that is less."""
    connections_per_address_max: int = 1_024
    """Those of one address over which no known user has asked anything yet; beyond it the oldest are closed."""
    head_seconds_max: float = 10.0
    """How long a TLS handshake and the head of a request may take to come."""
    idle_seconds_max: float = 30.0
    """How long a connection may wait for its next request."""
    progress_seconds_max: float = 20.0
    """In so long a body that comes, or a response that is read, must get on by `progress_bytes_min`, or be done."""
    progress_bytes_min: int = 65_536
    """Clients that are slower are let go."""
    page_rows_max: int = 100_000
    """Rows of an answer in one response; the rest is in further pages."""
    pages_bytes_max: int = 1 << 28
    """Answers and deltas that are kept for further pages; the oldest go first."""
    queries_per_owner_max: int = 10_000
    """Standing queries that one user may have."""
    subscribers_max: int = 4_096
    """Subscribers that are connected at a time."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "spark_conf", dict(_flat(self.spark_conf, "")))
        for setting in fields(self):
            value = getattr(self, setting.name)
            if setting.name == "spark_conf":
                _check_spark_conf(value)
                continue
            if isinstance(setting.default, str):
                choices = _CHOICES.get(setting.name)
                if not isinstance(value, str) or (choices is not None and value not in choices):
                    hint = f"it is one of {', '.join(choices)}" if choices is not None else "it is a text"
                    raise LadleError(f"The setting {setting.name} can't be {value!r}.", hint=hint)
                if setting.name == "spark_master" and not _MASTER.fullmatch(value):
                    raise LadleError(
                        f"'{value}' is not the address of a Spark master.",
                        hint="it is local[N,4], spark://HOST:PORT, yarn or k8s://https://HOST:PORT",
                    )
                continue
            if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
                raise LadleError(f"The setting {setting.name} can't be {value!r}.", hint="it is a number, zero or more")
            if value == 0 and setting.name not in _MAY_BE_ZERO:
                raise LadleError(f"The setting {setting.name} can't be 0.", hint=f"the default is {setting.default}")

    @property
    def spark(self) -> SparkStart:
        """Where Spark runs, and its own settings."""
        return SparkStart(self.spark_master, self.spark_conf)

    @staticmethod
    def load(overrides: Mapping[str, Setting] | None = None, file: str | Path | None = None) -> Settings:
        """The settings of a file, of the environment, and of the caller; what comes later counts more."""
        values: dict[str, Setting] = {} if file is None else _read(Path(file))
        # Of Spark's settings each comes from the first place that has it.
        confs = [values.get("spark_conf", {})]
        for name in _REPLACED:
            if f"LADLE_{name.upper()}" in os.environ:
                _check_names({name: None}, " (in the environment)")
        for setting in fields(Settings):
            text = os.environ.get(f"LADLE_{setting.name.upper()}")
            if text is not None:
                values[setting.name] = parse_setting(setting.name, text, f"LADLE_{setting.name.upper()}")
        confs += [values.get("spark_conf", {}), (overrides or {}).get("spark_conf", {})]
        values |= overrides or {}
        values["spark_conf"] = {name: value for conf in confs for name, value in _flat(conf, "")}
        _check_names(values)
        return Settings(**values)


def parse_setting(name: str, text: str, where: str) -> Setting:
    """A setting's value that was given as text, for instance in the environment."""
    _check_names({name: text})
    if name == "spark_conf":
        return _parse_spark_conf(text, where)
    kind = type(getattr(Settings, name))
    try:
        return kind(text)
    except ValueError:
        raise LadleError(f"{where}={text!r} is not a {kind.__name__}.") from None


def _parse_spark_conf(text: str, where: str) -> dict[str, str]:
    """`name=value`, several of them separated by spaces, with quotes where a value has some."""
    try:
        pairs = [part.partition("=") for part in shlex.split(text)]
    except ValueError as error:
        raise LadleError(f"{where}: {error}.", hint="a quote must be closed") from None
    for name, equals, _ in pairs:
        if not equals:
            raise LadleError(f"{where}: '{name}' is not a setting of Spark's.", hint="spark.executor.memory=4g")
    return {name: value for name, _, value in pairs}


def _flat(conf: object, before: str) -> Iterator[tuple[str, str]]:
    """Spark's settings by their whole names: TOML reads `spark.executor.memory = "4g"` as tables in tables."""
    if not isinstance(conf, Mapping):
        raise LadleError(
            f"The setting spark_conf can't be {conf!r}.", hint='it has lines like spark.executor.memory = "4g"'
        )
    for name, value in conf.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield f"{before}{name}", str(value).lower() if isinstance(value, bool) else str(value)


def _check_spark_conf(conf: Mapping[str, str]) -> None:
    for name in conf:
        if name == "spark.master":
            raise LadleError("spark.master is not among Spark's settings here.", hint="the setting spark_master has it")
        if name in MEANING_OF_SQL:
            raise LadleError(f"{name} is Ladle's to set: what an expression means depends on it.")
        if not name.startswith("spark."):
            raise LadleError(f"'{name}' is not a setting of Spark's.", hint="their names begin with 'spark.'")


def _read(file: Path) -> dict[str, Setting]:
    try:
        values = tomllib.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise LadleError(f"Can't read the settings in '{file}': {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise LadleError(f"The settings in '{file}' are not TOML: {error}.", hint="lines like port = 8642") from None
    _check_names(values, f" (in {file})")
    return values


def _check_names(values: dict[str, Setting], where: str = "") -> None:
    known = [setting.name for setting in fields(Settings)]
    for name in values:
        if name in _REPLACED:
            raise LadleError(
                f"There is no setting '{name}' any more{where}: {_REPLACED[name]} has taken its place.",
                hint="all derived state shares one budget of memory, derived_memory_bytes_max, and one of disk, "
                "derived_disk_bytes_max",
            )
        if name not in known:
            near = nearest(name, known)
            listed = f" Near ones: {', '.join(near)}." if near else ""
            hint = did_you_mean(near) or "see the settings in docs/python.md"
            raise LadleError(f"There is no setting '{name}'{where}.{listed}", hint=hint)
