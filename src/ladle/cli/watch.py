"""`ladle status`: what is going on, once or again and again."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import textwrap
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from ladle.cli.place import add_place, opened, opening_text, typed
from ladle.cli.terminal import Commands, command, patience
from ladle.clock import interval_text

if TYPE_CHECKING:
    from ladle.status import Status, StreamStatus

_WATCH_SECONDS = 1.0


def add(commands: Commands) -> None:
    """Declare the command `status`."""
    status = command(
        commands,
        "status",
        _status,
        help="streams, sources, queries: rates, epochs, coverage, errors",
        description="Show what is going on in a warehouse.",
        examples="""
            ladle status
            ladle status --watch
            ladle status --json
        """,
    )
    add_place(status)
    how = status.add_mutually_exclusive_group()
    how.add_argument("--watch", action="store_true", help="again every second, until Ctrl-C")
    how.add_argument("--json", action="store_true", help="as one JSON object, for programs")


def _status(args: argparse.Namespace) -> int:
    if args.watch:
        return _watch(args)
    with patience(opening_text(args)), opened(args, read_only=True) as db:
        status = db.status()
    if args.json:
        from dataclasses import asdict

        sys.stdout.write(json.dumps(asdict(status), default=str) + "\n")
    else:
        sys.stdout.write(status_text(status, _create(args)) + "\n")
    return 0


def _create(args: argparse.Namespace) -> str:
    return typed(args, "sql", "-c", '"CREATE STREAM ..."')


def _watch(args: argparse.Namespace) -> int:
    clear = "\x1b[H\x1b[2J" if sys.stdout.isatty() else ""
    try:
        with opened(args, read_only=True) as db:
            while True:
                sys.stdout.write(f"{clear}{status_text(db.status(), _create(args))}\n")
                sys.stdout.flush()
                time.sleep(_WATCH_SECONDS)
    except KeyboardInterrupt:
        # The way to end it, so not a failure.
        return 0


def status_text(status: Status, create: str = "CREATE STREAM ...") -> str:
    """The status as a few tables; tables and columns with nothing to show are left out. Without streams it says how to
    `create` one.
    """
    access = ", read only" if status.read_only else ""
    parts = [f"{status.path}: epoch {status.epoch:,}, Spark {status.spark}{access}"]
    streams: list[dict[str, object]] = [
        {
            "stream": stream.name,
            "rows": stream.rows,
            "retained": stream.retained_rows,
            "rows/s": round(stream.rows_per_second),
            "epochs": stream.epochs,
            "clock": None if stream.clock is None else stream.clock.replace(microsecond=0, tzinfo=None),
            **({"lateness": _lateness(stream)} if any(each.lateness_seconds for each in status.streams) else {}),
            **({"idle": "idle" if stream.idle else ""} if any(each.idle for each in status.streams) else {}),
            "pending": stream.pending,
            "quarantined": stream.quarantined,
            "files": stream.files,
            "MB": round(stream.bytes / 1e6, 1),
        }
        for stream in status.streams
    ]
    sources = [
        {
            "stream": source.stream,
            "source": source.name,
            "state": source.state,
            "batch": source.batch,
            "restarts": source.restarts,
        }
        for source in status.sources
    ]
    queries = [
        {
            "query": query.name,
            "window": query.window,
            "materialize": query.materialize if query.mode in ("", query.materialize) else f"auto: {query.mode}",
            "covered": "" if query.mode == "none" else f"{int(query.coverage * 100)}%",
            "segments": query.segments,
            "invocations": query.invocations,
            "error": query.error or "",
        }
        for query in status.queries
    ]
    parts += [_table(rows) for rows in (streams, sources, queries) if rows]
    parts += _derived(status)
    parts += [
        f"backfill of {b.stream}: {b.done:,} of {b.total:,} segments" for b in status.backfills if b.done < b.total
    ]
    parts += [_wrapped(f"source {s.name} of {s.stream}: {s.error}") for s in status.sources if s.error]
    parts += [f"{stream.name}: pushes wait: {stream.error}" for stream in status.streams if stream.error]
    parts += [f"{task} failed: {reason}" for task, reason in status.problems.items()]
    if not status.streams:
        parts.append(f"There are no streams yet. Create one: {create}")
    return "\n\n".join(parts)


def _derived(status: Status) -> list[str]:
    """Derived state against its budgets; kinds of which there is nothing are left out."""
    kinds = [each for each in status.derived if each.things or each.evictions]
    if not kinds:
        return []
    rows = [
        {
            "derived": each.kind,
            "things": each.things,
            "covered": "" if each.coverage is None else f"{int(each.coverage * 100)}%",
            "memory": _size(each.memory_bytes) if each.place == "memory" else "",
            "disk": _size(each.disk_bytes) if each.place == "disk" else "",
            "rebuild s": round(each.rebuild_seconds, 3),
            "last used": None if each.last_used is None else each.last_used.replace(microsecond=0, tzinfo=None),
            "evictions": each.evictions,
        }
        for each in kinds
    ]
    sums = (
        ("memory", sum(each.memory_bytes for each in kinds), status.budgets.memory_bytes_max),
        ("disk", sum(each.disk_bytes for each in kinds), status.budgets.disk_bytes_max),
    )
    used = ", ".join(f"{_size(taken)} of {_size(most)} of {place}" for place, taken, most in sums)
    return [f"{_table(rows)}\nderived state takes {used}"]


def _size(count: int) -> str:
    """Bytes as people read them."""
    value, units = float(count), ["B", "kB", "MB", "GB"]
    while value >= 1000 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:,.0f} {units[0]}" if value >= 10 or units[0] == "B" else f"{value:.1f} {units[0]}"


def _lateness(stream: StreamStatus) -> str:
    return "" if stream.lateness_seconds is None else interval_text(round(stream.lateness_seconds * 1e6))


def _wrapped(text: str) -> str:
    """Whole, in the terminal's width; words that are longer, such as paths, stay in one piece."""
    from ladle.present import cell

    width = max(shutil.get_terminal_size((120, 24)).columns, 20)
    return textwrap.fill(cell(text), width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def _table(rows: Sequence[Mapping[str, object]]) -> str:
    import pyarrow as pa

    from ladle.present import table_text

    return table_text(pa.Table.from_pylist(rows), rows_max=len(rows), footer=False)
