"""Housekeeping that nobody asks for: retention, compaction, clean-up, checkpoints, the Delta table that follows, and
streams that become idle.

Each round does a bounded amount and leaves the rest to the next. Two things change answers, by entries of the log:
streams become idle, and tuples that are stamped on arrival leave. The rest replaces files by others with the same
tuples, or removes what nobody can see.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Container, Iterator, Mapping
from functools import reduce
from itertools import takewhile
from pathlib import Path

import numpy as np

from ladle import catalog as entries
from ladle.archive.compaction import compact
from ladle.archive.delta_table import DeltaFollower
from ladle.archive.files import is_abandoned
from ladle.archive.layout import Segments
from ladle.archive.scan import Counts
from ladle.archive.segments import DataFile
from ladle.catalog import Catalog, QueryState, StreamState, Timeline
from ladle.catalog.entry_types import Entry
from ladle.catalog.store import Store
from ladle.define.table_changes import Tables
from ladle.derived import Place
from ladle.errors import DamagedFile, LadleError
from ladle.execute.demands import Demands
from ladle.execute.following import Following
from ladle.ingest.backfill import needed_files
from ladle.ingest.clocks import Idleness
from ladle.ingest.epochs import Ingest
from ladle.stem.blocks import NO_BLOCKS, BlockSet
from ladle.stem.moving import move_masks, move_results

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 10.0
_MERGES_PER_ROUND = 8
_CLAIM_SECONDS_MAX = 5.0
"""How long a merge waits for a job of the backfill, which takes a second."""
_ABANDONED_SECONDS = 600.0
"""A half-written file this old has no writer any more, wherever it ran."""
_QUERY_SET_SECONDS = 3_600.0
_NOTES_PER_RETENTION = 100
_POSITIONS_FRACTION = 0.05
"""Positions are forgotten so often, as a part of the time for which they are promised."""


class Maintenance:
    """Does the housekeeping of a warehouse, a step at a time."""

    def __init__(
        self,
        store: Store,
        ingest: Ingest,
        demands: Demands,
        tables: Tables,
        following: Following,
    ) -> None:
        self._store = store
        self._following = following
        self._ingest = ingest
        self._demands = demands
        self._tables = tables
        self._idleness = Idleness(store, ingest)
        self._lock = threading.Lock()
        self._followers: dict[int, DeltaFollower] = {}
        self._followed: dict[int, StreamState] = {}
        self._doomed: list[tuple[float, int, Path]] = []
        self._looked = -_LOOK_SECONDS
        self._positions_looked_us = 0
        self._queries_looked: Mapping[str, QueryState] | None = None
        self.errors: dict[str, str] = {}
        """What could not be done in the last round, by task."""

    def run(self, *, thorough: bool = False) -> None:
        """One round. A task that fails is told in `errors` and tried again in the next round."""
        with self._lock:
            self._round(thorough=thorough)

    def _round(self, *, thorough: bool) -> None:
        for name, task in (
            ("idleness", self._idleness.look),
            ("retention", self._retain),
            ("positions", self._forget_positions),
            ("compaction", self._compact),
            ("delta", self._follow),
            ("clean-up", lambda: self._clean(thorough=thorough)),
            ("checkpoint", self._store.checkpoint_if_due),
        ):
            try:
                task()
                self.errors.pop(name, None)
            except Exception as error:  # the others go on, and this one is tried again in the next round
                said = str(error) or type(error).__name__
                if self.errors.get(name) != said:  # what stays as it is, is said once
                    _log.warning("%s: %s", name, said, exc_info=not isinstance(error, LadleError | OSError))
                self.errors[name] = said

    # -- data --

    def _retain(self) -> None:
        self._following.hold_for_readers()
        for known in self._store.catalog.all_streams():
            if known.retain_us is not None and known.is_stamped:
                self._note_time(known)
            stream = self._store.catalog.stream(known.name)
            if stream is not None and stream.id == known.id:
                self._expire(stream)
        self._following.note_held()

    def _note_time(self, known: StreamState) -> None:
        """Say in the log how late it is, where tuples that are stamped on arrival have left by the wall clock.

        Queries whose NOW follows from the log see them leave by that, and so do all who follow a quarantine. A
        hundredth of the retention later is early enough: entries stay few.
        """
        wall_us = self._store.clock.now_us()

        def make_entry(catalog: Catalog) -> Entry | None:
            stream = catalog.stream(known.name)
            floor_us = None if stream is None or stream.id != known.id else stream.logged_floor_us
            if stream is None or floor_us is None or stream.retain_us is None or stream.clock_us is None:
                return None
            segments, behind_us = stream.segments, wall_us - stream.clock_us
            leaving = (segments.ts_min_us <= floor_us + behind_us) & (segments.ts_max_us > floor_us)
            if behind_us * _NOTES_PER_RETENTION < stream.retain_us or not leaving.any():
                return None
            return entries.heartbeat(stream.name, wall_us, wall_us)

        self._store.commit(make_entry)

    def _expire(self, stream: StreamState) -> None:
        """Let go of the files whose tuples are all beyond retention, unless a position that was told needs them."""
        floor_us = stream.logged_floor_us
        if floor_us is None:
            return
        held_us = self._following.held_us(stream)
        removed_us = floor_us if held_us is None else min(floor_us, held_us)
        numbers = expired_files(stream.segments, len(stream.files), removed_us)

        def is_beyond(newest: StreamState) -> bool:
            # It may be retained for longer by now.
            now_us = newest.logged_floor_us
            return now_us is not None and removed_us <= now_us

        if numbers:
            self._replace(stream, [stream.files[number] for number in numbers], (), "retention", is_beyond)

    def _forget_positions(self) -> None:
        """Let go of what only positions need that are no longer promised; a little late, so that entries are few."""
        seconds = self._store.settings.positions_seconds_max
        now_us = self._store.clock.now_us()
        if not seconds or now_us - self._positions_looked_us < seconds * 1e6 * _POSITIONS_FRACTION:
            return
        self._positions_looked_us = now_us
        catalog = self._store.catalog
        timelines = [stream.timeline for stream in catalog.all_streams()]
        timelines += [table.timeline for table in catalog.tables.values()]
        before = max((_entry_at(timeline, now_us - int(seconds * 1e6)) for timeline in timelines), default=0)
        if any(timeline.pruned(before) is not timeline for timeline in timelines):
            self._store.commit(lambda _: entries.forget_positions(before))

    def _compact(self) -> None:
        merges = 0
        for stream in self._store.catalog.all_streams():
            files_min = self._store.settings.compact_files_min
            for run in mergeable(stream.files, files_min, self._rows_max, spared=self._store.damage.known):
                self._merge_unless_damaged(stream, run)
                merges += 1
                if merges >= _MERGES_PER_ROUND:
                    return

    @property
    def _rows_max(self) -> int:
        return self._store.settings.segment_rows_max

    def _merge_unless_damaged(self, stream: StreamState, run: list[DataFile]) -> None:
        """A damaged file stays as it is, for its backup to take its place; its neighbours are merged in other runs."""
        try:
            with self._ingest.claims.claiming([file.name for file in run], _CLAIM_SECONDS_MAX) as alone:
                if alone:
                    self._merge(stream, run)
        except DamagedFile:
            directory, damage = self._store.directory(stream), self._store.damage
            if not [file for file in run if damage.found(stream.name, directory, file)]:
                raise

    def _merge(self, stream: StreamState, run: list[DataFile]) -> None:
        name = f"{uuid.uuid4().hex[:16]}-compact.parquet"
        with self._store.pin() as catalog:
            counts = Counts()
            merged = compact(self._store.source(stream), run, name, self._rows_max, counts=counts)
            self._store.read_elsewhere.note("compaction", counts.bytes_read)
            if stream.name.lower() in catalog.streams:  # nothing is kept of a quarantine
                self._move_derived(catalog, stream, run, merged)
            self._replace(stream, run, (merged,), "compaction")

    def _move_derived(self, catalog: Catalog, stream: StreamState, run: list[DataFile], merged: DataFile) -> None:
        """Let a new file have what is known of those that it replaces. Nothing is evaluated for that."""
        coverage = self._store.coverage(stream)
        directory = self._store.warehouse.stream(stream.id).results
        kept = catalog.queries.kept_on(stream.name)
        segments = [segment.rows for segment in merged.segments]
        move_results(coverage, directory, [file.name for file in run], merged.name, segments, kept.blocks)
        uncovered = kept.blocks - reduce(BlockSet.__and__, [coverage.covered(file.name) for file in run])
        masked = {sql for file in run for sql in coverage.masks(file.name)}
        lacking: dict[str, set[int]] = {}
        for block in uncovered:
            for factor in kept.get(block).factors:
                if factor.functions or factor.sql in masked:
                    lacking.setdefault(factor.sql, set()).add(block)
        if lacking:
            of = {sql: frozenset(blocks) for sql, blocks in lacking.items()}
            move_masks(coverage, directory, {file.name: file.rows for file in run}, merged.name, of)
        self._ingest.joining.move(catalog, stream, run, merged)

    def _replace(
        self,
        stream: StreamState,
        removed: list[DataFile],
        added: tuple[DataFile, ...],
        why: str,
        may: Callable[[StreamState], bool] = lambda _: True,
    ) -> None:
        names = [file.name for file in removed]

        def make_entry(newest: Catalog) -> Entry | None:
            current = newest.stream(stream.name)
            if current is None or current.id != stream.id or not set(names) <= {file.name for file in current.files}:
                return None
            if not may(current):
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
        looking = thorough or now - self._looked >= _LOOK_SECONDS
        if looking:
            self._looked = now
            self._tables.bury_orphans()
            if "delta" not in self.errors:
                self._bury_orphans()
            self._remove_results()
        elif self._queries_looked is not self._store.catalog.queries:
            self._remove_results()
        self._store.dig()
        if looking:
            self._bound_derived()
        self._tell_unmet()

    def _bury_orphans(self) -> None:
        """Files of attempts that were never committed, and directories of dropped streams."""
        # The order counts: a file that is listed and whose epoch is not in flight afterwards is in the catalog that is
        # read last, or was given up. A stream's directory is made after the stream.
        warehouse = self._store.warehouse
        listed = [path for part in ("archive", "quarantine") for path in warehouse.streams.glob(f"*/{part}/*")]
        listed += warehouse.derived.glob("**/.*")
        directories = [*_numbered(warehouse.streams), *_numbered(warehouse.derived / "results")]
        busy = self._ingest.in_flight
        catalog = self._store.catalog
        known = {file.name for stream in catalog.all_streams() for file in stream.files}
        self._store.damage.forget(known)
        spared = {path for _, _, path in self._doomed} | self._store.buried
        for path in listed:
            if is_abandoned(path.name) and _age_seconds(path) > _ABANDONED_SECONDS:
                path.unlink(missing_ok=True)
            if path.suffix != ".parquet" or path.name.partition("-")[0] in busy:
                continue
            if path.name in known or path in spared or _age_seconds(path) < self._store.settings.grace_seconds:
                continue
            # Never committed, or replaced before a restart; in that case a reader may still be at it.
            _log.info("removing %s, which no snapshot has any more", path.name)
            self._store.bury(catalog.seq, path)
        ids = {stream.id for stream in catalog.streams.values()}
        for directory in directories:
            if int(directory.name) not in ids and directory not in spared:
                _log.info("removing the files of dropped stream %s", directory.name)
                self._store.bury(catalog.seq, directory)
        for kept in (self._followers, self._followed):
            for stream_id in [stream_id for stream_id in kept if stream_id not in ids]:
                del kept[stream_id]
        self._store.forget_streams(ids)
        self._ingest.forget_dropped()

    def _remove_results(self) -> None:
        """Results of files that are gone, of blocks that no longer stand, and of data beyond every window."""
        catalog = self._store.catalog
        self._queries_looked = catalog.queries
        for stream in catalog.streams.values():
            needed = needed_files(self._store, catalog, stream)
            coverage = self._store.coverage(stream)
            live = {file.name for file in stream.files}
            # Most files are wanted and covered alike: sets are shared, and compared once per pair.
            useless: dict[tuple[BlockSet, BlockSet], bool] = {}
            for data_file, name in coverage.files():
                if data_file not in live and self._is_being_written(data_file):
                    continue
                pair = (needed.get(data_file, NO_BLOCKS), coverage.covered_by(data_file, name))
                if pair not in useless:
                    useless[pair] = pair[0].isdisjoint(pair[1]) and pair[0].isdisjoint(pair[1].postponed)
                if useless[pair]:
                    coverage.remove(data_file, name)
            for data_file in coverage.masked:
                if data_file in live or not self._is_being_written(data_file):
                    wanted = needed.get(data_file, NO_BLOCKS)
                    if not wanted - coverage.covered(data_file):
                        coverage.remove_masks(data_file)
        self._ingest.joining.clean(catalog, self._is_being_written)
        live_sets = {f"{stream.id}-" for stream in catalog.streams.values()}
        for path in (self._store.warehouse.derived / "querysets").glob("*.page"):  # and none that is being written
            stale = _age_seconds(path) > _QUERY_SET_SECONDS
            if stale or not any(path.name.startswith(prefix) for prefix in live_sets):
                path.unlink(missing_ok=True)

    def _bound_derived(self) -> None:
        """Hold derived files to their budget. Demands are lowered before anything is dropped, or else the backfill
        would make it anew; what is demanded by those that are left, it does.
        """
        derived = self._store.derived
        limit, excess = derived.bytes_max[Place.DISK], derived.excess(Place.DISK)
        swapped = 0
        if excess > 0:
            swapped = self._demands.lower(1.0 - 0.8 * limit / (limit + excess))
            freed = derived.settle(Place.DISK)
            _log.info(
                "derived files took %d bytes: %d are freed, %d queries swapped out", limit + excess, freed, swapped
            )
        derived.note_demands(self._store.catalog.queries, over=excess > 0, lowered=swapped > 0)

    def _tell_unmet(self) -> None:
        if self._store.derived.unmet:
            limit = self._store.settings.derived_disk_bytes_max
            raise LadleError(
                f"Standing queries want more kept on disk than derived_disk_bytes_max allows ({limit:,} bytes): "
                "what is uncovered is computed when somebody asks.",
                hint="raise it, or let queries choose their mode: materialize = 'auto'",
            )

    def _is_being_written(self, data_file: str) -> bool:
        return data_file.partition("-")[0] in self._ingest.in_flight


def mergeable(
    files: tuple[DataFile, ...], files_min: int, rows_max: int, *, spared: Container[str] = ()
) -> Iterator[list[DataFile]]:
    """Runs of neighbouring small files of one level, each run worth one merge, without those that are spared.

    A merged file is of the next level, so a tuple is rewritten at most once per level: log(n) times in all. Files that
    fill a segment before there are `files_min` of them are merged too; the result is not small, and final.
    """
    run: list[DataFile] = []
    rows = 0
    for file in files:
        count = file.rows
        small = count * 2 <= rows_max and file.name not in spared
        # Retention may have removed a file between two: their ids have a gap, which no file may have inside.
        like = bool(run) and file.level == run[0].level and file.first_id == run[-1].next_id
        if run and (not small or not like or rows + count > rows_max):
            if small and like and len(run) > 1:
                yield run
            run, rows = [], 0
        if small:
            run.append(file)
            rows += count
        if len(run) >= files_min:
            yield run
            run, rows = [], 0


def expired_files(segments: Segments, files: int, floor_us: int) -> list[int]:
    """The numbers of the files without a tuple after `floor_us`."""
    if not len(segments.rows) or int(segments.ts_min_us.min()) > floor_us:
        return []
    expired = np.ones(files, dtype=np.bool_)
    expired[segments.file[segments.ts_max_us > floor_us]] = False
    numbers: list[int] = np.flatnonzero(expired).tolist()
    return numbers


def _entry_at(timeline: Timeline, at_us: int) -> int:
    """The last entry of a timeline that was made at or before a time."""
    return max((record.entry for record in takewhile(lambda record: record.at_us <= at_us, timeline)), default=0)


def _numbered(parent: Path) -> list[Path]:
    """The directories of streams."""
    try:
        return [path for path in parent.iterdir() if path.name.isdigit()]
    except FileNotFoundError:
        return []


def _age_seconds(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except FileNotFoundError:
        return 0.0
