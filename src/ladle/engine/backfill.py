"""Backfill: new queries meet old data in the background, all that wait sharing one scan (PSoup section 3.2).

The plan is made from what is uncovered and nothing else, so it needs no state of its own: after a crash, a registration
or the loss of derived files the next look finds what is missing. Jobs are small, so that epochs pass between them.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ladle.archive.segments import DataFile
from ladle.catalog import Catalog, StreamState
from ladle.engine.ingest import Ingest
from ladle.engine.invoke import now_of
from ladle.engine.reader import Reader
from ladle.engine.store import Store
from ladle.pipeline import Pipeline
from ladle.plan import Scan, Window
from ladle.sql.statements import Materialize
from ladle.stem.backfill import BackfillTask

_log = logging.getLogger(__name__)

_RESULTS_PER_FILE_MAX = 8


@dataclass(frozen=True)
class Missing:
    """A data file and the blocks that are uncovered on it; `surplus` are result files it makes superfluous."""

    file: DataFile
    blocks: frozenset[int]
    surplus: tuple[str, ...] = ()


@dataclass(frozen=True)
class Progress:
    """How far the backfill is, in (file, block) pairs."""

    done: int
    total: int

    @property
    def fraction(self) -> float:
        return 1.0 if self.total == 0 else self.done / self.total


class Backfill:
    def __init__(self, store: Store, ingest: Ingest, pipeline: Callable[[], Pipeline]) -> None:
        self._store = store
        self._ingest = ingest
        self._pipeline = pipeline
        self._lock = threading.Lock()
        self._given_up: set[tuple[str, int]] = set()
        self._progress: dict[str, Progress] = {}

    @property
    def progress(self) -> dict[str, Progress]:
        """By stream, as of the last look."""
        return dict(self._progress)

    def run(self, stopping: threading.Event | None = None) -> int:
        """Cover what is uncovered, to the end or until told to stop; the number of jobs that took."""
        jobs = 0
        with self._lock:
            for name in list(self._store.catalog.streams):
                while not (stopping is not None and stopping.is_set()):
                    if not self._run_job(name):
                        break
                    jobs += 1
        return jobs

    def _run_job(self, name: str) -> bool:
        """One job for one stream; whether there was one to run."""
        with self._store.pin() as catalog:
            stream = catalog.streams.get(name)
            if stream is None:
                return False
            missing, progress = self._look(catalog, stream)
            self._progress[stream.name] = progress
            chosen = list(_up_to(missing, self._store.settings.backfill_rows_max))
            if not chosen:
                return False
            wanted = frozenset().union(*(entry.blocks for entry in chosen))
            blocks = {i: block for i, block in catalog.blocks_of(stream).items() if i in wanted}
            query_set = self._ingest.save_query_set(stream, blocks)
            if query_set is None:
                return False
            paths = self._store.warehouse.stream(stream.id)
            tasks = [
                BackfillTask(
                    paths.archive / entry.file.name,
                    stream.schema.arrow,
                    paths.results,
                    query_set,
                    self._store.settings.factor_seconds_max,
                )
                for entry in chosen
            ]
            self._ingest.note_failures(dict(self._pipeline().run_backfill(tasks)))
            coverage = self._store.coverage(stream)
            for entry in chosen:
                for surplus in entry.surplus:
                    coverage.remove(entry.file.name, surplus)
                # What is still uncovered could not be evaluated there; it is computed on invocation.
                self._given_up |= {
                    (entry.file.name, block) for block in entry.blocks if coverage.find(entry.file.name, block) is None
                }
        return True

    def _look(self, catalog: Catalog, stream: StreamState) -> tuple[list[Missing], Progress]:
        """What is uncovered of a stream, newest data first, and how much is done."""
        needed = needed_files(self._store, catalog, stream)
        coverage = self._store.coverage(stream)
        missing: list[Missing] = []
        done = total = 0
        for file in reversed(stream.files):
            blocks = {b for b in needed.get(file.name, ()) if b not in self._ingest.suspended}
            if not blocks:
                continue
            total += len(blocks)
            results = coverage.results(file.name)
            covered = {block for block in blocks if any(result.covers(block) for result in results)}
            lacking = {b for b in blocks - covered if (file.name, b) not in self._given_up}
            done += len(blocks) - len(lacking)
            if lacking and len(results) >= _RESULTS_PER_FILE_MAX:
                surplus = tuple(result.path.name for result in results)
                missing.append(Missing(file, frozenset(blocks), surplus))
            elif lacking:
                missing.append(Missing(file, frozenset(lacking)))
        return missing, Progress(done, total)


def needed_files(store: Store, catalog: Catalog, stream: StreamState) -> dict[str, set[int]]:
    """The data files that some standing query's current window touches, with the blocks that want them."""
    wall_us = store.clock.now_us()
    reader = Reader(store, catalog, wall_us)
    wanted: dict[tuple[Window, int], tuple[Scan, set[int]]] = {}
    for query in catalog.queries.values():
        if query.materialize is Materialize.NONE:
            continue
        for block_id, scan in zip(query.blocks, query.plan.scans, strict=True):
            if scan.block.factors and scan.block.stream.lower() == stream.name.lower():
                key = (scan.window, now_of(query.plan, catalog, wall_us))
                wanted.setdefault(key, (scan, set()))[1].add(block_id)
    needed: dict[str, set[int]] = {}
    for (_, now_us), (scan, blocks) in wanted.items():
        for piece in reader.pieces(scan, reader.extent(scan, now_us)):
            needed.setdefault(piece.file.name, set()).update(blocks)
    return needed


def _up_to(missing: list[Missing], rows_max: int) -> Iterator[Missing]:
    rows = 0
    for entry in missing:
        if rows and rows + entry.file.rows > rows_max:
            return
        rows += entry.file.rows
        yield entry
