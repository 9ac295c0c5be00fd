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
from pathlib import Path

import numpy as np

from ladle.archive.segments import DataFile
from ladle.catalog import Catalog, StreamState
from ladle.catalog.store import Store
from ladle.execute.reader import Reader
from ladle.ingest.epochs import Ingest
from ladle.pipeline import Pipeline
from ladle.stem.backfill_kernel import Backfilled, BackfillTask
from ladle.stem.blocks import BlockSet
from ladle.stem.moving import move_results

_log = logging.getLogger(__name__)

_RESULTS_PER_FILE_MAX = 8
_JOB_SECONDS_MAX = 1.0
"""An epoch that wants every core shares them with a job for this long."""
_WAIT_SECONDS_MAX = 1.0
"""How long a job waits for epochs in flight: sources that never pause must not keep it from running."""


@dataclass(frozen=True)
class Missing:
    """A data file and the blocks that are uncovered on it."""

    file: DataFile
    blocks: BlockSet


@dataclass(frozen=True)
class BackfillProgress:
    """How far the backfill is, in (file, block) pairs."""

    done: int
    total: int

    @property
    def fraction(self) -> float:
        """How much of it is done, from 0 to 1."""
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
    """Covers the history of new queries with small jobs, newest data first."""

    def __init__(self, store: Store, ingest: Ingest, pipeline: Callable[[], Pipeline]) -> None:
        self._store = store
        self._ingest = ingest
        self._pipeline = pipeline
        self._lock = threading.Lock()
        self._progress: dict[str, BackfillProgress] = {}
        rows_max = store.settings.backfill_rows_max
        self.stuck = False
        """Whether a job of the last round computed what could not be kept."""
        self._pace = Pace(min(store.settings.segment_rows_max, rows_max), rows_max)

    @property
    def progress(self) -> dict[str, BackfillProgress]:
        """By stream, as of the last look."""
        return dict(self._progress)

    def count(self) -> None:
        """Look at how much is done now, without doing any of what is not."""
        with self._store.pin() as catalog:
            looks = {stream.name: self._look(catalog, stream) for stream in catalog.streams.values()}
        self._progress = {name: progress for name, (_, progress) in looks.items()}

    def run(self) -> int:
        """Cover what is uncovered, to the end; the number of jobs that took."""
        jobs = 0
        while done := self.round():
            jobs += done
        return jobs

    def round(self, stopping: threading.Event | None = None) -> int:
        """Run one job for each stream, or one for joins when no stream needs any; how many that were.

        A stream whose functions take hours keeps nobody from getting on. While demands are more than the budget of disk
        allows, nothing is covered that would only be dropped again.
        """
        jobs = 0
        if self._store.derived.unmet:
            return 0
        with self._lock:
            self.stuck = False
            self._store.save_numbers()
            streams = self._store.catalog.streams
            self._forget_gone(streams.values())
            for name in streams:
                if stopping is not None and stopping.is_set():
                    return jobs
                self._ingest.await_landing(_WAIT_SECONDS_MAX)
                jobs += self._run_job(name)
            if not jobs and not (stopping is not None and stopping.is_set()):
                self._ingest.await_landing(_WAIT_SECONDS_MAX)
                with self._store.pin() as catalog:
                    jobs += self._ingest.joining.run_job(catalog, self._ingest.left_out)
                    self.stuck |= self._ingest.joining.stuck
        return jobs

    def _forget_gone(self, streams: Collection[StreamState]) -> None:
        names = {stream.name for stream in streams}
        self._progress = {name: progress for name, progress in self._progress.items() if name in names}

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
                self.stuck = True
                return False
            limits = self._patience(wanted), _JOB_SECONDS_MAX
            tasks = [self._task(catalog, stream, entry.file, query_set, *limits) for entry in chosen]
            begun = time.monotonic()
            with self._ingest.claims.claiming([entry.file.name for entry in chosen]) as alone:
                if not alone or not self._live(name).issuperset(entry.file.name for entry in chosen):
                    return True  # compaction was a moment earlier
                backfilled = self._pipeline().run_backfill(tasks)
            # Dear factors have a time of their own, however many tuples there are.
            seconds, rows = time.monotonic() - begun - backfilled.said_seconds, sum(entry.file.rows for entry in chosen)
            self._pace.note(rows, seconds)
            self._store.rates.note("results", stream.id, rows, seconds)
            self._store.rates.note("masks", stream.id, backfilled.said, backfilled.said_seconds)
            self._ingest.note_backfilled(stream, backfilled)
            self._store.read_elsewhere.note("backfill", backfilled.bytes_read)
            progressed = self._note(catalog, stream, chosen, backfilled)
            self.stuck |= not progressed
            return progressed

    def _task(
        self,
        catalog: Catalog,
        stream: StreamState,
        file: DataFile,
        query_set: tuple[Path, ...],
        factor_seconds_max: float,
        functions_seconds_max: float,
    ) -> BackfillTask:
        """The task of probing a file that is written with some blocks."""
        return BackfillTask(
            self._store.source(stream),
            file,
            self._store.warehouse.stream(stream.id).results,
            query_set,
            factor_seconds_max,
            functions_seconds_max,
            self._ingest.joining.late(catalog, stream),
            self._ingest.tickets(stream),
            self._ingest.policy,
        )

    def _live(self, name: str) -> set[str]:
        """The files that a stream has now."""
        stream = self._store.catalog.streams.get(name)
        return set() if stream is None else {file.name for file in stream.files}

    def _patience(self, blocks: BlockSet) -> float:
        """How long a factor is waited for: longer with each try, because the first call of a function may be long."""
        settings = self._store.settings
        tries = min(self._ingest.troubles.tries(blocks), 10)
        return min(
            settings.factor_seconds_max * 2**tries, max(settings.invoke_seconds_max, settings.factor_seconds_max)
        )

    def _note(self, catalog: Catalog, stream: StreamState, chosen: list[Missing], backfilled: Backfilled) -> bool:
        """What a job has covered, and what it can't; whether it got anywhere."""
        coverage = self._store.coverage(stream)
        late = BlockSet.of(self._ingest.joining.late(catalog, stream))
        progressed = backfilled.said > 0
        troubles, failures = self._ingest.troubles, backfilled.failures
        for entry in chosen:
            covered = coverage.covered(entry.file.name)
            lacking = entry.blocks - covered - (covered.postponed & late)
            if len(coverage.names(entry.file.name)) > _RESULTS_PER_FILE_MAX:
                self._put_together(catalog, stream, entry.file)
            for block in entry.blocks if troubles else ():
                if block not in failures and (block not in lacking or backfilled.said):
                    troubles.over(block, entry.file.name)
            # What fails there rests for a while. What is merely lacking was deleted meanwhile: another time.
            failed = {block: failures[block] for block in lacking if block in failures}
            troubles.note(failed, [entry.file.name])
            progressed |= bool(failed) or len(lacking) < len(entry.blocks)
            # Looking reads the whole file: only where nothing else says why nothing came of it.
            progressed |= not progressed and self._is_damaged(stream, entry.file)
        return progressed

    def _is_damaged(self, stream: StreamState, file: DataFile) -> bool:
        """Whether that is why nothing came of a file: then it is left alone from now on."""
        return self._store.damage.found(stream.name, self._store.directory(stream), file)

    def _put_together(self, catalog: Catalog, stream: StreamState, file: DataFile) -> None:
        """Make one results file of many, without evaluating anything."""
        coverage = self._store.coverage(stream)
        surplus = coverage.names(file.name)
        rows = [segment.rows for segment in file.segments]
        wanted = catalog.queries.kept_on(stream.name).blocks
        directory = self._store.warehouse.stream(stream.id).results
        if move_results(coverage, directory, [file.name], file.name, rows, wanted) is not None:
            for name in surplus:
                coverage.remove(file.name, name)

    def _look(self, catalog: Catalog, stream: StreamState) -> tuple[list[Missing], BackfillProgress]:
        """What is uncovered of a stream, newest data first, and how much is done."""
        needed = needed_files(self._store, catalog, stream)
        coverage = self._store.coverage(stream)
        missing: list[Missing] = []
        done = total = 0
        left_out = self._ingest.idle
        damaged, claimed = self._store.damage.known, self._ingest.claims.held
        troubles, tried = self._ingest.troubles, set[int]()
        late = BlockSet.of(self._ingest.joining.late(catalog, stream))
        # Most files want the same blocks and are covered alike: sets are shared, and compared once per pair.
        differences: dict[tuple[BlockSet, BlockSet], BlockSet] = {}
        for file in reversed(stream.files):
            blocks = needed.get(file.name)
            if blocks is None or file.name in damaged or file.name in claimed:
                continue
            covered = coverage.covered(file.name)
            pair = (blocks, covered)
            if pair not in differences:
                # For a block that only joins look at, candidates are enough.
                differences[pair] = blocks - covered - left_out - (covered.postponed & late)
            lacking = differences[pair]
            if troubles and lacking:
                lacking -= troubles.resting(file.name, lacking, tried)
            total += len(blocks)
            done += len(blocks) - len(lacking)
            if not lacking:
                continue
            missing.append(Missing(file, lacking))
        return missing, BackfillProgress(done, total)


def needed_files(store: Store, catalog: Catalog, stream: StreamState) -> dict[str, BlockSet]:
    """The data files that some standing query's current window touches, with the blocks that want them.

    Queries that look through the same window are looked at once, and files wanted by the same windows share one set.
    """
    wall_us = store.clock.now_us()
    reader = Reader(store, catalog, wall_us)
    views = [(view, pages) for view, pages in catalog.queries.views.items() if view.stream == stream.name.lower()]
    touched = np.zeros((len(stream.files), len(views)), dtype=np.bool_)
    for number, (view, _) in enumerate(views):
        extent = reader.extent_of(view.window, stream, catalog.now_us(view.streams, wall_us), view.streams)
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
