"""Makes the streams of the demo flow: files that a Spark source picks up, and rows that a client pushes."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ladle.demo.generators import Building, Feed, Market, Network, with_malformed
from ladle.demo.replay import data_folder, intel_lab, stock_ticks, zeek_connections
from ladle.errors import LadleError

if TYPE_CHECKING:
    from ladle.engine import Database

_log = logging.getLogger(__name__)

Sink = Callable[[pa.Table], object]
_STEP_SECONDS = 1.0
_MALFORMED_SHARE = 0.01


def choose_feeds(*, generated: bool) -> list[Feed]:
    """Real traces where their folders are, generators for the rest."""
    folder = None if generated else data_folder()
    choices: tuple[tuple[str, Callable[[Path], Feed], Callable[[], Feed]], ...] = (
        ("stock_ticks", stock_ticks, Market),
        ("intel_lab", intel_lab, Building),
        ("net_zeek_conn_ctu", zeek_connections, Network),
    )
    feeds: list[Feed] = []
    for name, replay, generate in choices:
        if folder is not None and (folder / name).is_dir():
            feeds.append(replay(folder / name))
        else:
            feeds.append(generate())
    return feeds


class FileSink:
    """Writes each stretch as a Parquet file into a folder; a file appears there whole or not at all."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._count = 0

    def __call__(self, table: pa.Table) -> None:
        name = f"{self._count:08d}.parquet"
        self._count += 1
        # Spark's file sources skip names that begin with a dot.
        hidden = self._folder / f".{name}"
        pq.write_table(table, hidden)
        os.replace(hidden, self._folder / name)


def push_sink(db: Database, stream: str, *, columns: Sequence[str] | None = None) -> Sink:
    """Pushes each stretch as an Arrow table."""

    def put(table: pa.Table) -> None:
        db.push(stream, table if columns is None else table.select(columns), wait=False)

    return put


def gateway_sink(db: Database, stream: str, *, seed: int = 17) -> Sink:
    """Pushes rows as a gateway would that does not check them: some are damaged."""
    random = np.random.default_rng(seed)

    def put(table: pa.Table) -> None:
        db.push(stream, with_malformed(table, share=_MALFORMED_SHARE, random=random), wait=False)

    return put


class Pump:
    """A thread that asks each feed for the time that has passed, once a second, and hands it to the sinks."""

    def __init__(self, feeds: Sequence[Feed], sinks: Mapping[str, Sink]) -> None:
        self._feeds = feeds
        self._sinks = sinks
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="ladle-demo-pump", daemon=True)
        self._last_us: int | None = None
        self.error: str | None = None

    def put_history(self, now_us: int, streams: Collection[str]) -> None:
        """What happened before the demonstration began, for these streams."""
        for feed in self._feeds:
            self._put(feed, now_us - feed.history_seconds * 1_000_000, now_us, streams)
        self._last_us = now_us

    def start(self) -> None:
        """Begin to push, in a thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop, and wait for the push that is under way."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join()

    def _run(self) -> None:
        while not self._stop.wait(_STEP_SECONDS):
            now_us = time.time_ns() // 1_000
            begin_us = self._last_us if self._last_us is not None else now_us - int(_STEP_SECONDS * 1e6)
            self._last_us = now_us
            for feed in self._feeds:
                try:
                    self._put(feed, begin_us, now_us, self._sinks)
                    self.error = None
                except LadleError as error:
                    # Shown in the view; the other streams go on.
                    self.error = error.message
                    _log.warning("the demo could not feed a stream: %s", error)

    def _put(self, feed: Feed, begin_us: int, end_us: int, streams: Collection[str]) -> None:
        for stream, table in feed.between(begin_us, end_us).items():
            if table.num_rows and stream in streams:
                self._sinks[stream](table)
