"""Housekeeping that nobody asks for: retention, compaction, clean-up, checkpoints, and the Delta table that follows.

Each round does a bounded amount and leaves the rest to the next. None of it changes an answer: it replaces files by
others with the same tuples, or removes what nobody can see.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from ladle import catalog as entries
from ladle.archive.delta import DeltaFollower
from ladle.archive.files import is_abandoned
from ladle.archive.segments import DataFile, compact
from ladle.catalog import Catalog, StreamState
from ladle.engine.backfill import needed_files
from ladle.engine.ingest import Ingest
from ladle.engine.store import Store
from ladle.errors import LadleError
from ladle.stem.backfill import BackfillTask, run_backfill

_log = logging.getLogger(__name__)

_ORPHAN_LOOK_SECONDS = 60.0
_MERGES_PER_ROUND = 8
_ABANDONED_SECONDS = 600.0
"""A half-written file this old has no writer any more, wherever it ran."""
_QUERY_SET_SECONDS = 3_600.0


class Maintenance:
    def __init__(self, store: Store, ingest: Ingest) -> None:
        self._store = store
        self._ingest = ingest
        self._lock = threading.Lock()
        self._followers: dict[int, DeltaFollower] = {}
        self._followed: dict[int, StreamState] = {}
        self._doomed: list[tuple[float, int, Path]] = []
        self._orphans_looked = -_ORPHAN_LOOK_SECONDS
        self._results_looked: tuple[int, float] = (-1, 0.0)
        self.errors: dict[str, str] = {}
        """What could not be done in the last round, by task."""

    def run(self, *, thorough: bool = False) -> None:
        """One round. A task that fails is told in `errors` and tried again in the next round."""
        with self._lock:
            self._round(thorough=thorough)

    def _round(self, *, thorough: bool) -> None:
        for name, task in (
            ("retention", self._retain),
            ("compaction", self._compact),
            ("delta", self._follow),
            ("clean-up", lambda: self._clean(thorough=thorough)),
            ("checkpoint", self._store.checkpoint_if_due),
        ):
            try:
                task()
                self.errors.pop(name, None)
            except (LadleError, OSError) as error:
                self.errors[name] = str(error)
                _log.warning("%s: %s", name, error)

    # -- data --

    def _retain(self) -> None:
        wall_us = self._store.clock.now_us()
        for stream in _all_streams(self._store.catalog):
            base = self._store.catalog.streams[stream.name.lower().partition(".")[0]]
            floor_us = base.floor_us(wall_us) if stream is base else _quarantine_floor(base, wall_us)
            if floor_us is None:
                continue
            expired = [file for file in stream.files if file.ts_max_us <= floor_us]
            if expired:
                self._replace(stream, expired, (), "retention")

    def _compact(self) -> None:
        merges = 0
        for stream in _all_streams(self._store.catalog):
            for run in mergeable(stream.files, self._store.settings.compact_files_min, self._rows_max):
                self._merge(stream, run)
                merges += 1
                if merges >= _MERGES_PER_ROUND:
                    return

    @property
    def _rows_max(self) -> int:
        return self._store.settings.segment_rows_max

    def _merge(self, stream: StreamState, run: list[DataFile]) -> None:
        directory = self._store.directory(stream)
        name = f"{uuid.uuid4().hex[:16]}-compact.parquet"
        schema = stream.schema
        with self._store.pin() as catalog:
            merged = compact(directory, run, name, schema.arrow, schema.timestamp_column, self._rows_max)
            blocks = {i: block for i, block in catalog.blocks_of(stream).items() if block.factors}
            query_set = self._ingest.save_query_set(stream, blocks)
            if query_set is not None:
                results = self._store.warehouse.stream(stream.id).results
                seconds = self._store.settings.factor_seconds_max
                run_backfill(BackfillTask(directory / name, schema.arrow, results, query_set, seconds))
            self._replace(stream, run, (merged,), "compaction")

    def _replace(self, stream: StreamState, removed: list[DataFile], added: tuple[DataFile, ...], why: str) -> None:
        names = [file.name for file in removed]

        def make_entry(newest: Catalog) -> dict[str, object] | None:
            current = newest.stream(stream.name)
            if current is None or current.id != stream.id or not set(names) <= {file.name for file in current.files}:
                return None
            return entries.replace_files(current.name, names, added, why)

        committed = self._store.commit(make_entry)
        if committed is None:
            return
        _log.info("%s of %s: %d files replaced by %d", why, stream.name, len(removed), len(added))
        directory = self._store.directory(stream)
        doomed_at = time.monotonic() + self._store.settings.grace_seconds
        self._doomed.extend((doomed_at, committed.seq, directory / name) for name in names)

    # -- the Delta table --

    def _follow(self) -> None:
        catalog = self._store.catalog
        for stream in catalog.streams.values():
            if self._followed.get(stream.id) is stream:
                continue
            follower = self._followers.get(stream.id)
            if follower is None:
                root = self._store.warehouse.stream(stream.id).archive
                time_column = stream.schema.timestamp_column
                follower = self._followers[stream.id] = DeltaFollower(root, ts_column=time_column)
            follower.follow(catalog.seq, stream.schema.arrow, stream.files)
            self._followed[stream.id] = stream

    # -- files nobody needs --

    def _clean(self, *, thorough: bool) -> None:
        now = time.monotonic()
        if "delta" not in self.errors:
            # The Delta table has let go of these by now.
            due = [entry for entry in self._doomed if entry[0] <= now]
            self._doomed = [entry for entry in self._doomed if entry[0] > now]
            for _, seq, path in due:
                self._store.bury(seq, path)
        self._store.dig()
        if thorough or now - self._orphans_looked >= _ORPHAN_LOOK_SECONDS:
            self._orphans_looked = now
            self._remove_orphans()
            self._remove_results()
        elif self._results_looked[0] != self._store.catalog.next_id:
            self._remove_results()

    def _remove_orphans(self) -> None:
        """Files of attempts that were never committed, and directories of dropped streams."""
        catalog = self._store.catalog
        if self._store.is_read(catalog.seq):
            return
        busy = self._ingest.in_flight
        spared = {path.name for _, _, path in self._doomed} | self._store.buried
        for stream in _all_streams(catalog):
            known = {file.name for file in stream.files} | spared
            for path in _files(self._store.directory(stream)):
                if is_abandoned(path.name) and _age_seconds(path) > _ABANDONED_SECONDS:
                    path.unlink(missing_ok=True)
                if path.suffix != ".parquet" or path.name in known or path.name.partition("-")[0] in busy:
                    continue
                # The catalog was read first: what is committed since is younger than a grace.
                if _age_seconds(path) >= self._store.settings.grace_seconds:
                    _log.info("removing %s, which was never committed", path.name)
                    path.unlink(missing_ok=True)
        self._remove_dropped(catalog)

    def _remove_dropped(self, catalog: Catalog) -> None:
        known = {str(stream.id) for stream in catalog.streams.values()}
        for parent in (self._store.warehouse.path / "streams", self._store.warehouse.derived / "results"):
            if parent.is_dir():
                for directory in parent.iterdir():
                    if directory.name not in known and directory.name.isdigit():
                        _log.info("removing the files of dropped stream %s", directory.name)
                        shutil.rmtree(directory, ignore_errors=True)

    def _remove_results(self) -> None:
        """Results of files that are gone, of blocks that no longer stand, and of data beyond every window."""
        catalog = self._store.catalog
        self._results_looked = (catalog.next_id, time.monotonic())
        for stream in catalog.streams.values():
            needed = needed_files(self._store, catalog, stream)
            coverage = self._store.coverage(stream)
            live = {file.name for file in stream.files}
            for data_file, name in coverage.files():
                wanted = needed.get(data_file, set())
                results = next((r for r in coverage.results(data_file) if r.path.name == name), None)
                in_use = results is not None and any(results.covers(block) for block in wanted)
                if not in_use and (data_file in live or not self._is_being_written(data_file)):
                    coverage.remove(data_file, name)
        live_sets = {f"{stream.id}-" for stream in catalog.streams.values()}
        for path in _files(self._store.warehouse.derived / "querysets"):
            stale = _age_seconds(path) > _QUERY_SET_SECONDS
            if stale or not any(path.name.startswith(prefix) for prefix in live_sets):
                path.unlink(missing_ok=True)

    def _is_being_written(self, data_file: str) -> bool:
        return data_file.partition("-")[0] in self._ingest.in_flight


def mergeable(files: tuple[DataFile, ...], files_min: int, rows_max: int) -> Iterator[list[DataFile]]:
    """Runs of neighbouring small files of one level, each run worth one merge.

    A merged file is of the next level, so a tuple is rewritten at most once per level: log(n) times in all.
    """
    run: list[DataFile] = []
    rows = 0
    for file in files:
        small = file.rows * 2 <= rows_max
        if run and (not small or file.level != run[0].level or rows + file.rows > rows_max):
            run, rows = [], 0
        if small:
            run.append(file)
            rows += file.rows
        if len(run) >= files_min:
            yield run
            run, rows = [], 0


def _all_streams(catalog: Catalog) -> Iterator[StreamState]:
    for stream in catalog.streams.values():
        yield stream
        if stream.quarantine is not None:
            yield stream.quarantine


def _quarantine_floor(stream: StreamState, wall_us: int) -> int | None:
    return None if stream.retain_us is None else wall_us - stream.retain_us


def _age_seconds(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0


def _files(directory: Path) -> list[Path]:
    try:
        return [path for path in directory.iterdir() if path.is_file()]
    except FileNotFoundError:
        return []
