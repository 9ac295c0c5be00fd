"""Backfill: new queries meet old data in the background, all that wait sharing one scan (PSoup section 3.2).

The plan is made from what is uncovered and nothing else, so it needs no state of its own: after a crash, a registration
or the loss of derived files the next look finds what is missing. Jobs are short, and begin when no epoch is in flight,
so that epochs pass between them.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

import numpy as np

from ladle.archive.segments import DataFile
from ladle.catalog import Catalog, StreamState
from ladle.engine.ingest import Ingest
from ladle.engine.invoke import clock_of
from ladle.engine.reader import Reader
from ladle.engine.store import Store
from ladle.pipeline import Pipeline
from ladle.pipeline.protocol import Failures
from ladle.stem.blocks import BlockSet

_log = logging.getLogger(__name__)

_RESULTS_PER_FILE_MAX = 8
_JOB_SECONDS_MAX = 1.0
"""An epoch that wants every core shares them with a job for this long."""
_WAIT_SECONDS_MAX = 1.0
"""How long a job waits for epochs in flight: sources that never pause must not keep it from running."""


@dataclass(frozen=True)
class Missing:
    """A data file and the blocks that are uncovered on it; `surplus` are result files it makes superfluous."""

    file: DataFile
    blocks: BlockSet
    surplus: tuple[str, ...] = ()


@dataclass(frozen=True)
class Progress:
    """How far the backfill is, in (file, block) pairs."""

    done: int
    total: int

    @property
    def fraction(self) -> float:
        return 1.0 if self.total == 0 else self.done / self.total


@dataclass
class Pace:
    """How many tuples a job scans, so that it takes its time and no longer, be the queries few or thousands."""

    rows: int
    rows_max: int

    def note(self, rows: int, seconds: float) -> None:
        """What a job took: half as much after one that was too long, twice as much where that fits in the time."""
        if seconds > _JOB_SECONDS_MAX:
            self.rows = max(rows // 2, 1)
        elif seconds < _JOB_SECONDS_MAX / 2:
            self.rows = min(max(self.rows, 2 * rows), self.rows_max)


class Backfill:
    def __init__(self, store: Store, ingest: Ingest, pipeline: Callable[[], Pipeline]) -> None:
        self._store = store
        self._ingest = ingest
        self._pipeline = pipeline
        self._lock = threading.Lock()
        self._given_up: dict[str, set[int]] = {}
        self._progress: dict[str, Progress] = {}
        rows_max = store.settings.backfill_rows_max
        self._pace = Pace(min(store.settings.segment_rows_max, rows_max), rows_max)

    @property
    def progress(self) -> dict[str, Progress]:
        """By stream, as of the last look."""
        return dict(self._progress)

    def run(self, stopping: threading.Event | None = None) -> int:
        """Cover what is uncovered, to the end or until told to stop; the number of jobs that took."""
        jobs = 0
        with self._lock:
            streams = self._store.catalog.streams
            self._forget_gone(streams.values())
            for name in streams:
                while not (stopping is not None and stopping.is_set()):
                    self._ingest.await_landing(_WAIT_SECONDS_MAX)
                    if not self._run_job(name):
                        break
                    jobs += 1
            while not (stopping is not None and stopping.is_set()):
                self._ingest.await_landing(_WAIT_SECONDS_MAX)
                with self._store.pin() as catalog:
                    if not self._ingest.joining.run_job(catalog, self._ingest.left_out):
                        break
                jobs += 1
        return jobs

    def _forget_gone(self, streams: Collection[StreamState]) -> None:
        names = {stream.name for stream in streams}
        self._progress = {name: progress for name, progress in self._progress.items() if name in names}
        if self._given_up:
            live = {file.name for stream in streams for file in stream.files}
            self._given_up = {name: blocks for name, blocks in self._given_up.items() if name in live}

    def _run_job(self, name: str) -> bool:
        """One job for one stream; whether to go on."""
        with self._store.pin() as catalog:
            stream = catalog.streams.get(name)
            if stream is None:
                return False
            missing, progress = self._look(catalog, stream)
            self._progress[stream.name] = progress
            chosen = list(_up_to(missing, self._pace.rows))
            if not chosen:
                return False
            wanted = BlockSet.union([entry.blocks for entry in chosen])
            query_set = self._ingest.save_query_set(stream, catalog.queries.kept_on(stream.name).among(wanted))
            if not query_set:
                return False
            archive = self._store.warehouse.stream(stream.id).archive
            tasks = [self._ingest.probe_file(catalog, stream, archive / entry.file.name, query_set) for entry in chosen]
            begun = time.monotonic()
            failures = dict(self._pipeline().run_backfill(tasks))
            self._pace.note(sum(entry.file.rows for entry in chosen), time.monotonic() - begun)
            self._ingest.note_failures(failures)
            return self._note(catalog, stream, chosen, failures)

    def _note(self, catalog: Catalog, stream: StreamState, chosen: list[Missing], failures: Failures) -> bool:
        """What a job has covered, and what it can't; whether it got anywhere."""
        coverage = self._store.coverage(stream)
        late = BlockSet.of(self._ingest.joining.late(catalog, stream))
        progressed = False
        for entry in chosen:
            covered = coverage.covered(entry.file.name)
            lacking = entry.blocks - covered - (covered.postponed & late)
            if not lacking:
                for surplus in entry.surplus:
                    coverage.remove(entry.file.name, surplus)
            # What raises there is computed on invocation. What is merely lacking was deleted meanwhile: another time.
            hopeless = {block for block in lacking if block in failures}
            self._given_up.setdefault(entry.file.name, set()).update(hopeless)
            progressed |= bool(hopeless) or len(lacking) < len(entry.blocks)
        return progressed

    def _look(self, catalog: Catalog, stream: StreamState) -> tuple[list[Missing], Progress]:
        """What is uncovered of a stream, newest data first, and how much is done."""
        needed = needed_files(self._store, catalog, stream)
        coverage = self._store.coverage(stream)
        missing: list[Missing] = []
        done = total = 0
        left_out = self._ingest.left_out
        late = BlockSet.of(self._ingest.joining.late(catalog, stream))
        # Most files want the same blocks and are covered alike: sets are shared, and compared once per pair.
        differences: dict[tuple[BlockSet, BlockSet], BlockSet] = {}
        for file in reversed(stream.files):
            blocks = needed.get(file.name)
            if blocks is None:
                continue
            covered = coverage.covered(file.name)
            pair = (blocks, covered)
            if pair not in differences:
                # For a block that only joins look at, candidates are enough.
                differences[pair] = blocks - covered - left_out - (covered.postponed & late)
            lacking = differences[pair] - BlockSet.of(self._given_up.get(file.name, ()))
            total += len(blocks)
            done += len(blocks) - len(lacking)
            if not lacking:
                continue
            results = coverage.names(file.name)
            if len(results) >= _RESULTS_PER_FILE_MAX:
                missing.append(Missing(file, blocks - left_out, tuple(results)))
            else:
                missing.append(Missing(file, lacking))
        return missing, Progress(done, total)


def needed_files(store: Store, catalog: Catalog, stream: StreamState) -> dict[str, BlockSet]:
    """The data files that some standing query's current window touches, with the blocks that want them.

    Queries that look through the same window are looked at once, and files wanted by the same windows share one set.
    """
    wall_us = store.clock.now_us()
    reader = Reader(store, catalog, wall_us)
    views = [(view, pages) for view, pages in catalog.queries.views.items() if view.stream == stream.name.lower()]
    touched = np.zeros((len(stream.files), len(views)), dtype=np.bool_)
    for number, (view, _) in enumerate(views):
        extent = reader.extent_of(view.window, stream, clock_of(view.streams, catalog, wall_us))
        touched[reader.files_in(stream, extent), number] = True
    shared: dict[bytes, BlockSet] = {}
    needed: dict[str, BlockSet] = {}
    for file, windows in zip(stream.files, touched, strict=True):
        pattern = windows.tobytes()
        if pattern not in shared:
            shared[pattern] = BlockSet.union([views[number][1].blocks for number in np.flatnonzero(windows)])
        if shared[pattern]:
            needed[file.name] = shared[pattern]
    return needed


def _up_to(missing: list[Missing], rows_max: int) -> Iterator[Missing]:
    rows = 0
    for entry in missing:
        if rows and rows + entry.file.rows > rows_max:
            return
        rows += entry.file.rows
        yield entry
