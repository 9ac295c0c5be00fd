"""The store: a warehouse's log and files, and the snapshot everybody reads.

One thread at a time commits; readers take the newest catalog and keep it. A file that a commit removed is deleted when
no snapshot that shows it is read any more, here (pins) or in another process (leases).
"""

from __future__ import annotations

import logging
import shutil
import threading
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ladle.archive.cache import SegmentCache
from ladle.archive.leases import Leases
from ladle.archive.log import Log
from ladle.archive.warehouse import Warehouse
from ladle.catalog import Catalog, StreamState
from ladle.clock import Clock
from ladle.collector import uncollected
from ladle.config import Settings
from ladle.engine.audit import Audit
from ladle.engine.damage import Damage
from ladle.engine.layout import Layout, newer
from ladle.errors import Closed, ReadOnly
from ladle.stem.coverage import Coverage
from ladle.stem.pairs import JoinCoverage
from ladle.stem.query_stem import release_pages

_log = logging.getLogger(__name__)

_HOLDS_NOTHING = (1 << 63) - 1
"""The position of a lease that keeps no file from being deleted."""

_CHECKPOINT_FRACTION = 0.5
"""A checkpoint is due when the entries after the last cost half as much to read: so it costs a constant per entry."""
_CLOSING_FRACTION = 0.05
"""The same when the database is closed, and has time: opening it is faster then."""

MakeEntry = Callable[[Catalog], Mapping[str, Any] | None]


class Store:
    def __init__(self, warehouse: Warehouse, clock: Clock, settings: Settings) -> None:
        self.warehouse = warehouse
        self.clock = clock
        self.settings = settings
        self.cache = SegmentCache(settings.cache_bytes_max)
        self.damage = Damage()
        self.audit = Audit(warehouse.path / "audit.log")
        self._log = Log.open(warehouse.log)
        self._commit_lock = threading.Lock()
        self._lock = threading.Lock()
        self._coverage: dict[int, Coverage] = {}
        self._join_coverage: dict[str, JoinCoverage] = {}
        self._layouts: dict[int, Layout] = {}
        self._layouts_lock = threading.Lock()
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

    @contextmanager
    def pin(self) -> Iterator[Catalog]:
        """The newest snapshot, whose files stay while it is used."""
        if self._lease is None:
            with self._lock:
                catalog = self.catalog
                self._pins[catalog.seq] += 1
        else:
            catalog = self._pin_as_reader()
        try:
            yield catalog
        finally:
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
            if entries is None:
                self._catalog = self._load()
            else:
                for seq, entry in entries:
                    self._catalog = self._catalog.apply(seq, entry)

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
            self._log.append(changed.seq, dict(entry))
            self._catalog = changed
        with self.committed:
            self.committed.notify_all()
        for listener in self._listeners:
            listener(changed)
        return changed

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
        catalog = self._catalog
        if self._log.is_due(self.settings.checkpoint_entries, _CHECKPOINT_FRACTION):
            self._log.checkpoint(catalog.seq, catalog.to_json())

    # -- files --

    def directory(self, stream: StreamState) -> Path:
        """Where a stream's data files are."""
        return self.warehouse.data(stream.id, quarantine=stream.name.endswith(".quarantine"))

    def coverage(self, stream: StreamState, *, at: int | None = None) -> Coverage:
        """As it is now; or as it was at a snapshot, by its number, if that was a moment ago."""
        coverage = self._coverage.get(stream.id)
        if coverage is None:
            with self._lock:
                trusted = self.warehouse.trusts_derived
                made = Coverage(self.warehouse.stream(stream.id).results if trusted else None)
                coverage = self._coverage.setdefault(stream.id, made)
        coverage.refresh(at)
        return coverage

    def join_coverage(self, digest: str) -> JoinCoverage:
        """Of a join, by what it is known by."""
        with self._lock:
            if digest not in self._join_coverage:
                directory = self.warehouse.joins / digest if self.warehouse.trusts_derived else None
                self._join_coverage[digest] = JoinCoverage(directory)
            coverage = self._join_coverage[digest]
        coverage.refresh()
        return coverage

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
            made = Layout(stream, known)
            if newer(made, known):
                self._layouts[stream.id] = made
        return made

    def forget_streams(self, living: Container[int]) -> None:
        """Let go of what is known about streams other than these."""
        with self._lock:
            self._coverage = {i: coverage for i, coverage in self._coverage.items() if i in living}
        with self._layouts_lock:
            self._layouts = {i: layout for i, layout in self._layouts.items() if i in living}

    def bury(self, seq: int, path: Path) -> None:
        """Delete a file or directory when nobody reads a snapshot before `seq`."""
        with self._lock:
            self._graveyard.append((seq, path))

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
        with self._commit_lock:
            if self._closed:
                return
            if self.warehouse.writable and self._log.is_due(1, _CLOSING_FRACTION):
                self._log.checkpoint(self._catalog.seq, self._catalog.to_json())
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
            catalog = Catalog() if state is None else Catalog.from_json(state)
            for number, entry in entries:
                catalog = catalog.apply(number, entry)
        return catalog
