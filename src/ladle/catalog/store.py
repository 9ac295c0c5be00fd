"""The store: a warehouse's log and files, and the snapshot everybody reads.

One thread at a time commits; readers take the newest catalog and keep it. A file that a commit removed is deleted when
no snapshot that shows it is read any more, here (pins) or in another process (leases).
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Container
from contextlib import AbstractContextManager, suppress
from pathlib import Path

from ladle.archive.cache import SegmentCache
from ladle.archive.files import write_durably
from ladle.archive.layout import Layout, newer
from ladle.archive.leases import Leases
from ladle.archive.log import Log
from ladle.archive.scan import ArchiveSource, Counts, ReadElsewhere, Scanner
from ladle.archive.segments import DataFile
from ladle.archive.warehouse import Warehouse
from ladle.catalog import Bindings, Catalog, StreamState
from ladle.catalog.audit import Audit
from ladle.catalog.damage import Damage
from ladle.catalog.entry_types import Entry
from ladle.clock import Clock
from ladle.collector import uncollected
from ladle.config import Settings
from ladle.derived import Derived, Rates
from ladle.errors import Closed, DamagedFile, ReadOnly, WarehouseError
from ladle.schema import StreamSchema
from ladle.stem.coverage import Coverage
from ladle.stem.pairs import JoinCoverage
from ladle.stem.query_stem import release_pages

_log = logging.getLogger(__name__)

_HOLDS_NOTHING = (1 << 63) - 1
"""The position of a lease that keeps no file from being deleted."""

_RATES = "rates"
"""In the directory of what is derived: what it took to make it."""

_CHECKPOINT_FRACTION = 0.5
"""A checkpoint is due when the entries after the last cost half as much to read: so it costs a constant per entry."""
_CLOSING_FRACTION = 0.05
"""The same when the database is closed, and has time: opening it is faster then."""

MakeEntry = Callable[[Catalog], Entry | None]


class _Pin:
    """Holds a snapshot while a block of code runs. Every answer has one, so it is no generator."""

    __slots__ = ("_catalog", "_store")

    def __init__(self, store: Store) -> None:
        self._store = store

    def __enter__(self) -> Catalog:
        self._catalog = self._store._pinned()
        return self._catalog

    def __exit__(self, *_: object) -> None:
        self._store._unpin(self._catalog)


class Store:
    """A warehouse that is open: its log, its files, its derived state, and the newest snapshot."""

    def __init__(self, warehouse: Warehouse, clock: Clock, settings: Settings) -> None:
        self.warehouse = warehouse
        self.clock = clock
        self.settings = settings
        self.derived = Derived(settings.derived_memory_bytes_max, settings.derived_disk_bytes_max)
        self.rates = Rates()
        with suppress(OSError):
            self.rates.decode((warehouse.derived / _RATES).read_bytes())
        """What it took to make derived files."""
        self.read_elsewhere = ReadElsewhere()
        """Bytes of history, by what they were read for: backfill, joins, compaction, spark."""
        self.cache = SegmentCache(self.derived)
        self.damage = Damage()
        self.audit = Audit(warehouse.path / "audit.log")
        self._log = Log.open(warehouse.log)
        self._commit_lock = threading.Lock()
        self._lock = threading.Lock()
        self._coverage: dict[int, Coverage] = {}
        self._join_coverage: dict[str, JoinCoverage] = {}
        self._layouts: dict[int, Layout] = {}
        self._layouts_lock = threading.Lock()
        self._sources: dict[int, tuple[StreamSchema, ArchiveSource]] = {}
        self._pins: Counter[int] = Counter()
        self._arriving = 0
        self._reading = not warehouse.writable
        self._graveyard: list[tuple[int, Path]] = []
        self._closed = False
        self.closing = threading.Event()
        """Set when the database begins to close: what fails in the background from then on is nobody's concern."""
        self._listeners: tuple[Callable[[Catalog], None], ...] = ()
        self._leases = Leases(warehouse.leases)
        self._lease = None if warehouse.writable else self._leases.acquire(_HOLDS_NOTHING)
        self._bindings = Bindings.of(warehouse)
        self._catalog = self._load()
        self.committed = threading.Condition()
        """Notified after each commit."""

    # -- snapshots --

    @property
    def catalog(self) -> Catalog:
        """The newest snapshot."""
        if self._closed:
            raise Closed
        return self._catalog

    def pin(self) -> AbstractContextManager[Catalog]:
        """The newest snapshot, whose files stay while it is used."""
        return _Pin(self)

    def _pinned(self) -> Catalog:
        if self._lease is not None:
            return self._pin_as_reader()
        with self._lock:
            catalog = self.catalog
            self._pins[catalog.seq] += 1
            return catalog

    def _unpin(self, catalog: Catalog) -> None:
        with self._lock:
            self._pins[catalog.seq] -= 1
            if not self._pins[catalog.seq]:
                del self._pins[catalog.seq]
            self._move_lease()

    def _pin_as_reader(self) -> Catalog:
        """It holds everything before it looks at the log, and only then what it found there: whatever the writer
        deletes before is not in that log any more.
        """
        with self._lock:
            self._arriving += 1
            self._move_lease()
        try:
            self.refresh()
            with self._lock:
                catalog = self.catalog
                self._pins[catalog.seq] += 1
            return catalog
        finally:
            with self._lock:
                self._arriving -= 1
                self._move_lease()

    def refresh(self) -> None:
        """In a reader: take in what the writing process committed since."""
        if not self._reading or self._closed:
            return
        with self._commit_lock:
            entries = self._log.tail(self._catalog.seq)
            if entries is None or self._derived_anew():
                self._catalog = self._load()
            else:
                for seq, entry in entries:
                    self._catalog = self._catalog.apply(seq, entry)

    def _derived_anew(self) -> bool:
        """In a reader: whether blocks have other numbers by now, or ones that it had to do without."""
        if self._bindings.numbering.is_current():
            return False
        with self._lock:
            self._coverage, self._join_coverage = {}, {}
        self._bindings = Bindings.of(self.warehouse)
        return True

    def _move_lease(self) -> None:
        """Hold in other processes' sight what is read here; a reader that is idle holds nothing."""
        if self._lease is not None and not self._closed:
            self._lease.move(0 if self._arriving else min(self._pins, default=_HOLDS_NOTHING))

    def commit(self, make_entry: MakeEntry) -> Catalog | None:
        """Append the entry that `make_entry` gives for the newest catalog; None from it means nothing to do.

        The append is the commit: when it raises, nothing happened.
        """
        if self._reading:
            raise ReadOnly("The warehouse was opened for reading.", hint="open it without read_only=True")
        with self._commit_lock:
            catalog = self.catalog
            entry = make_entry(catalog)
            if entry is None:
                return None
            changed = catalog.apply(catalog.seq + 1, entry)
            if changed.queries is not catalog.queries:
                # Blocks have their numbers before anybody can read of them.
                changed.queries.index  # noqa: B018
            else:
                self.save_numbers()
            self._log.append(changed.seq, entry)
            self._catalog = changed
        with self.committed:
            self.committed.notify_all()
        for listener in self._listeners:
            listener(changed)
        return changed

    def save_numbers(self) -> None:
        """Make the numbers of blocks outlive this process.

        Done with every entry that brings no query, and before results are derived. Registrations leave it to others.
        """
        self._bindings.numbering.save()

    def on_commit(self, listener: Callable[[Catalog], None]) -> Callable[[], None]:
        """Call a listener after each commit, in the thread that made it. Returns what ends that; may be called again.

        A commit that is being told just now may still reach a listener that has left.
        """

        def tell(catalog: Catalog) -> None:
            listener(catalog)

        def leave() -> None:
            with self._lock:
                self._listeners = tuple(each for each in self._listeners if each is not tell)

        with self._lock:
            self._listeners = (*self._listeners, tell)
        return leave

    def checkpoint_if_due(self) -> None:
        """Write a checkpoint of the log if enough entries came since the last."""
        self.save_numbers()
        if self._log.is_due(self.settings.checkpoint_entries, _CHECKPOINT_FRACTION):
            self._checkpoint(self._catalog)
            with self._commit_lock:
                self._bindings.numbering.keep(self._catalog.queries.users)
        elif self._bindings.is_due(len(self._catalog.queries), _CHECKPOINT_FRACTION):
            self._bindings.keep(self._catalog.queries.values())

    def _checkpoint(self, catalog: Catalog) -> None:
        """Write the state down, and beside it what its texts are bound to."""
        self._log.checkpoint(catalog.seq, catalog.to_json())
        self._bindings.keep(catalog.queries.values())

    # -- files --

    def directory(self, stream: StreamState) -> Path:
        """Where a stream's data files are."""
        return self.warehouse.data(stream.id, quarantine=stream.name.endswith(".quarantine"))

    def source(self, stream: StreamState) -> ArchiveSource:
        """What a scan has to know of a stream; made once for each schema that it has."""
        known = self._sources.get(stream.id)
        if known is None or known[0] is not stream.schema:
            schema = stream.schema
            known = schema, ArchiveSource(self.directory(stream), schema.arrow, schema.timestamp_column)
            self._sources[stream.id] = known
        return known[1]

    def scanner(self, stream: StreamState, counts: Counts) -> Scanner:
        """Reads a stream's segments, through the cache. A file that is damaged is remembered."""

        def telling(file: DataFile, error: DamagedFile) -> DamagedFile:
            return self.damage.note(stream.name, file.name, error)

        return Scanner(self.source(stream), self.layout(stream), cache=self.cache, counts=counts, telling=telling)

    def coverage(self, stream: StreamState, *, at: int | None = None) -> Coverage:
        """What of a stream is covered: now, or as of a snapshot, by its number, if that was a moment ago."""
        coverage = self._coverage.get(stream.id)
        if coverage is None:
            with self._lock:
                trusted = self.warehouse.trusts_derived
                made = Coverage(self.warehouse.stream(stream.id).results if trusted else None)
                coverage = self._coverage.setdefault(stream.id, made)
        coverage.refresh(at)
        return coverage

    def join_coverage(self, digest: str) -> JoinCoverage:
        """What of a join is covered, by the digest of the join."""
        with self._lock:
            if digest not in self._join_coverage:
                directory = self.warehouse.joins / digest if self.warehouse.trusts_derived else None
                self._join_coverage[digest] = JoinCoverage(directory)
            coverage = self._join_coverage[digest]
        coverage.refresh()
        return coverage

    def known_coverage(self, stream_id: str) -> Coverage | None:
        """That of a stream, by its number as text, if anybody has asked for it; as last listed."""
        return self._coverage.get(int(stream_id)) if stream_id.isdigit() else None

    def join_coverages(self) -> dict[str, JoinCoverage]:
        """Those of all joins that anybody has asked for, by digest; as last listed."""
        with self._lock:
            return dict(self._join_coverage)

    def layout(self, stream: StreamState) -> Layout:
        """A stream's segments in order; the newest is kept."""
        known = self._layouts.get(stream.id)
        if known is not None and known.segments is stream.segments:
            return known
        # Made one after the other: of two that grew from the same one, and differ, only one may share its lineage.
        with self._layouts_lock:
            known = self._layouts.get(stream.id)
            if known is not None and known.segments is stream.segments:
                return known
            made = Layout(stream.files, stream.segments, known)
            if newer(made, known):
                self._layouts[stream.id] = made
        return made

    def forget_streams(self, living: Container[int]) -> None:
        """Let go of what is known about streams other than these."""
        with self._lock:
            self._coverage = {i: coverage for i, coverage in self._coverage.items() if i in living}
        with self._layouts_lock:
            self._layouts = {i: layout for i, layout in self._layouts.items() if i in living}
            self._sources = {i: source for i, source in self._sources.items() if i in living}

    def bury(self, seq: int, path: Path) -> None:
        """Delete a file or directory when nobody reads a snapshot before `seq`."""
        with self._lock:
            self._graveyard.append((seq, path))

    @property
    def is_read_elsewhere(self) -> bool:
        """Whether another process has the warehouse open to read."""
        return self._leases.oldest() is not None

    def _oldest_read(self) -> int | None:
        """The oldest snapshot that is read, here or in another process."""
        with self._lock:
            pinned = min(self._pins, default=None)
        return min((held for held in (pinned, self._leases.oldest()) if held is not None), default=None)

    def dig(self) -> int:
        """Delete what may be deleted by now; how many files that was."""
        with self._lock:
            waiting, self._graveyard = self._graveyard, []
        if not waiting:
            return 0
        held = self._oldest_read()
        kept = [(seq, path) for seq, path in waiting if held is not None and held < seq]
        with self._lock:
            self._graveyard.extend(kept)
        gone = [path for seq, path in waiting if held is None or held >= seq]
        for path in gone:
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                self.cache.drop(path.name)
                path.unlink(missing_ok=True)
        return len(gone)

    @property
    def buried(self) -> set[Path]:
        """What waits to be deleted."""
        with self._lock:
            return {path for _, path in self._graveyard}

    def close(self) -> None:
        """Write what makes the next start quick, and close the log."""
        with self._commit_lock:
            if self._closed:
                return
            if self.warehouse.writable and self._log.is_due(1, _CLOSING_FRACTION):
                self._checkpoint(self._catalog)
            elif self.warehouse.writable and self._bindings.is_due(len(self._catalog.queries), _CLOSING_FRACTION):
                self._bindings.keep(self._catalog.queries.values())
            self._bindings.numbering.close()
            if self.warehouse.writable:
                with suppress(WarehouseError):  # they only say what goes first
                    write_durably(self.warehouse.derived / _RATES, self.rates.encoded(), fsync=False)
            self._log.close()
            with self._lock:
                self._closed = True
                coverages: list[Coverage | JoinCoverage] = [*self._coverage.values(), *self._join_coverage.values()]
        # Files stay mapped for as long as somebody refers to them, and whoever closed the database may keep it.
        for coverage in coverages:
            coverage.close()
        release_pages()
        if self._lease is not None:
            self._lease.release()
        self.audit.close()
        self.warehouse.close()

    def _load(self) -> Catalog:
        with uncollected():
            _, state, entries = self._log.load()
            bindings = self._bindings
            catalog = Catalog(bindings=bindings) if state is None else Catalog.from_json(state, bindings)
            for number, entry in entries:
                catalog = catalog.apply(number, entry)
        return catalog
