"""Epochs: the way of the data from a source or the inbox to a commit.

Every batch, whoever sends it, goes through `take_in`: one job writes files, one log entry makes them real. The entry
names the source and the batch, so a batch that comes again is seen and skipped.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa

from ladle import catalog as entries
from ladle.archive.files import make_private, storage_error
from ladle.archive.inbox import Inbox, Pushed, find_key, list_pushed, stored_key
from ladle.catalog import INBOX, QUARANTINE, BlockPage, Catalog, KeptBlock, StreamState, source_of_key
from ladle.catalog.entry_types import Entry
from ladle.catalog.store import Store
from ladle.eddy import Account, Policy
from ladle.eddy.routing import added, merged
from ladle.errors import Closed, LadleError, PipelineError
from ladle.execute.demands import Demands
from ladle.handles import HandedOver, PushBody
from ladle.ingest.claims import Claims
from ladle.ingest.figures import EpochFigures
from ladle.ingest.owed_pairs import OwedPairs
from ladle.ingest.troubles import Troubles
from ladle.pipeline import Pipeline
from ladle.plan import Block
from ladle.schema import ARRIVAL, TIMESTAMP
from ladle.stem.backfill_kernel import Backfilled
from ladle.stem.blocks import BlockSet
from ladle.stem.epoch_kernel import EpochTask, Manifest
from ladle.stem.intake import TimeBounds
from ladle.stem.query_stem import index_page, save_page

_log = logging.getLogger(__name__)

_PUSHED_ROWS_MAX = 1 << 20
_TAKEN_REMEMBERED_MAX = 10_000


@dataclass
class Lane:
    """What one stream's pushes need while the database is open."""

    inbox: Inbox
    lock: threading.Lock = field(default_factory=threading.Lock)
    wake: threading.Event = field(default_factory=threading.Event)
    worker: threading.Thread | None = None
    taken: dict[int, HandedOver] = field(default_factory=dict)
    """What became of the pushes last taken in, oldest first."""
    error: str | None = None


class _LateByNowError(Exception):
    """The stream's clock was moved while a batch was looked at, and tuples of it are late by now."""


class Ingest:
    """Takes in pushes and batches of sources: each becomes one epoch, in the order of its stream."""

    def __init__(self, store: Store, pipeline: Callable[[], Pipeline], demands: Demands) -> None:
        self._store = store
        self.joining = OwedPairs(store, pipeline)
        self._pipeline = pipeline
        self._demands = demands
        self._tickets: dict[int, dict[str, Account]] = {}
        self._lock = threading.Lock()
        self._lanes: dict[int, Lane] = {}
        self._in_flight: set[str] = set()
        self._receiving = 0
        self._received = threading.Condition(self._lock)
        self._landed = threading.Condition(self._lock)
        self._stopping = threading.Event()
        self._saved: dict[tuple[int, int], tuple[BlockPage[KeptBlock], Path]] = {}
        """The page of each number that was last saved, by stream, and its file."""
        self.epochs: dict[int, EpochFigures] = {}
        """Figures of the epochs in this process, by stream."""
        self.claims, self.troubles = Claims(), Troubles(store.clock)

    # -- pushes --

    def hand_over(
        self, stream: StreamState, table: pa.Table, *, wait: bool, key: str | None, body: PushBody | None = None
    ) -> HandedOver:
        """Receive rows durably and have them taken in, now or, unless somebody waits for it, soon."""
        if not len(table):
            return HandedOver(self._store.catalog.epoch, quarantined=0) if wait else HandedOver(None)
        stored = None if key is None else stored_key(key, body.compared if body is not None else None)
        number, repeated = self.push(stream, table, stored, body.kept if body is not None else None)
        if number == 0 and stored is not None:
            return HandedOver(self._committed(stream, stored)[1] if wait else None, repeated)
        if not wait:
            self.drain_later(stream)
            return HandedOver(None, repeated)
        try:
            handed = self.drain(stream, number) or HandedOver(None)
            return replace(handed, repeated=True, quarantined=None) if repeated else handed
        except LadleError as error:
            self.drain_later(stream)
            error.hint = f"the rows are safe in the inbox and are taken in when the cause is gone; {error.hint or ''}"
            raise

    def push(
        self, stream: StreamState, table: pa.Table, key: str | None = None, sent: memoryview | None = None
    ) -> tuple[int, bool]:
        """Receive rows durably; the number of the push, or 0 when it was taken in already, and whether its key, as
        `stored_key` writes it, was known.
        """
        with self._open():
            return self._put(stream, table, key, sent)

    def _put(self, stream: StreamState, table: pa.Table, key: str | None, sent: memoryview | None) -> tuple[int, bool]:
        if stream.schema.timestamp is None and ARRIVAL not in table.column_names:
            arrived = pa.repeat(pa.scalar(self._store.clock.now_us(), TIMESTAMP), len(table))
            table, sent = table.append_column(ARRIVAL, arrived), None
        return self.lane(stream).inbox.put_once(table, key, lambda known: self._committed(stream, known)[0], sent)

    def _committed(self, stream: StreamState, key: str) -> tuple[str | None, int | None]:
        """The key of a push that was taken in, as it was stored, and the epoch."""
        current = _current(self._store.catalog, stream.name, stream.id)
        known = None if current is None else find_key(current.keys, key)
        return (None, None) if current is None or known is None else (known, current.keys[known])

    def drain(self, stream: StreamState, upto: int | None = None) -> HandedOver | None:
        """Take in what was pushed, up to a push at least; what became of that one."""
        return self._drain(self.lane(stream), stream, upto)

    def _drain(self, lane: Lane, stream: StreamState, upto: int | None) -> HandedOver | None:
        with lane.lock:
            while True:
                current = self._store.catalog.streams.get(stream.name.lower())
                if current is None or current.id != stream.id:
                    return None
                done = current.batches.get(INBOX, 0)
                waiting = lane.inbox.pending(done)
                if not waiting or (upto is not None and done >= upto):
                    return lane.taken.get(upto) if upto is not None else None
                batch = list(waiting[:1])
                rows = batch[0].rows
                for pushed in waiting[1:]:
                    rows += pushed.rows
                    if rows > _PUSHED_ROWS_MAX:
                        break
                    batch.append(pushed)
                self._take_in_pushed(lane, current, batch)

    def drain_later(self, stream: StreamState) -> None:
        """Have a worker take in what was pushed."""
        lane = self.lane(stream)
        with self._lock:
            lane.wake.set()
            if lane.worker is None and not self._stopping.is_set() and self._lanes.get(stream.id) is lane:
                name = f"ladle-inbox-{stream.name}"
                lane.worker = threading.Thread(target=self._work, args=(stream, lane), name=name, daemon=True)
                lane.worker.start()

    def lane(self, stream: StreamState) -> Lane:
        """The lane of a stream: its epochs are made there, one after the other."""
        with self._lock:
            if stream.id not in self._lanes:
                paths = self._store.warehouse.stream(stream.id)
                inbox = Inbox(
                    paths.inbox,
                    after=stream.batches.get(INBOX, 0),
                    bytes_max=self._store.settings.push_bytes_max,
                )
                inbox.discard(stream.batches.get(INBOX, 0))
                self._lanes[stream.id] = Lane(inbox)
            return self._lanes[stream.id]

    def pending(self, stream: StreamState) -> int:
        """Pushes that wait."""
        done = stream.batches.get(INBOX, 0)
        if not self._store.warehouse.writable:
            return sum(pushed.seq > done for pushed in list_pushed(self._store.warehouse.stream(stream.id).inbox))
        return len(self.lane(stream).inbox.pending(done))

    def error(self, stream: StreamState) -> str | None:
        """Why pushes to a stream wait, when they do for a reason."""
        with self._lock:
            lane = self._lanes.get(stream.id)
        return None if lane is None else lane.error

    def forget_dropped(self) -> None:
        """Let go of what was kept for streams and blocks that are gone."""
        # What is known here is listed before the catalog is read: a lane is made after its stream.
        with self._lock:
            lanes = list(self._lanes)
        catalog = self._store.catalog
        if self.troubles:
            files = {file.name for stream in catalog.streams.values() for file in stream.files}
            self.troubles.forget(catalog.queries.users, files)
        known = {stream.id for stream in catalog.streams.values()}
        with self._lock:
            gone = [self._lanes.pop(stream_id) for stream_id in lanes if stream_id not in known]
            self.epochs = {stream_id: each for stream_id, each in self.epochs.items() if stream_id in known}
            self._saved = {key: saved for key, saved in self._saved.items() if key[0] in known}
        for lane in gone:
            # Its worker, if it has one, sees that the stream is gone and ends.
            lane.wake.set()

    def resume(self) -> None:
        """Take in what was received before the database was opened."""
        for stream in self._store.catalog.streams.values():
            if self.pending(stream):
                self.drain_later(stream)

    @contextmanager
    def _open(self) -> Iterator[None]:
        """While a push is received the warehouse stays ours: another process would number its own alike."""
        with self._lock:
            if self._stopping.is_set():
                raise Closed
            self._receiving += 1
        try:
            yield
        finally:
            with self._lock:
                self._receiving -= 1
                self._received.notify_all()

    def stop(self) -> None:
        """Refuse pushes, wait for those being received, and let the workers end."""
        with self._lock:
            self._stopping.set()
            while self._receiving:
                self._received.wait()
            lanes = list(self._lanes.values())
        for lane in lanes:
            lane.wake.set()
        for lane in lanes:
            if lane.worker is not None:
                lane.worker.join()

    # -- epochs --

    def take_in(
        self,
        stream_name: str,
        stream_id: int,
        source: str,
        batch: int,
        run: Callable[[EpochTask], list[Manifest]],
        *,
        keys: Sequence[str] = (),
    ) -> int | None:
        """One epoch; its number, or None when the batch is in the log already or the stream is gone.

        Whether a tuple is late is said by the stream's clock at the commit before. If another source moved that clock
        meanwhile so that tuples are late now, the batch is looked at again: each time there are fewer of them.
        """
        while True:
            try:
                return self._attempt(stream_name, stream_id, source, batch, run, keys)
            except _LateByNowError:
                _log.debug("batch %d of %s has late tuples by now: once more", batch, source)

    def _attempt(
        self,
        stream_name: str,
        stream_id: int,
        source: str,
        batch: int,
        run: Callable[[EpochTask], list[Manifest]],
        keys: Sequence[str],
    ) -> int | None:
        catalog = self._store.catalog
        stream = _current(catalog, stream_name, stream_id)
        if stream is None or stream.batches.get(source, -1) >= batch:
            return None
        began = time.perf_counter()
        task = self._task(catalog, stream, source)
        with self._lock:
            self._in_flight.add(task.token)
        try:
            with self.joining.with_epoch(catalog, stream, self.left_out) as (joins, owed):
                manifests = sorted(run(replace(task, joins=joins, owed=owed)), key=lambda manifest: manifest.partition)
            self._note_failures(manifests)
            self._store.read_elsewhere.note("joins", sum(manifest.bytes_read for manifest in manifests))
            self._note_tickets(stream, self.joining.visitors(catalog, joins), manifests)
            files = [file for manifest in manifests for file in manifest.files]
            quarantined = [file for manifest in manifests for file in manifest.quarantine]
            if not files and not quarantined:
                return None

            def make_entry(newest: Catalog) -> Entry | None:
                current = _current(newest, stream_name, stream_id)
                if current is None or current.batches.get(source, -1) >= batch:
                    return None
                late_us = current.late_us()
                if late_us is not None and any(file.ts_min_us <= late_us for file in files):
                    raise _LateByNowError
                return entries.epoch(current.name, source, batch, task.arrived_us, files, quarantined, keys)

            committed = self._store.commit(make_entry)
        finally:
            with self._lock:
                self._in_flight.discard(task.token)
                self._landed.notify_all()
        if committed is None:
            return None
        with self._lock:
            written_bytes = sum(file.bytes for file in files)
            self.epochs.setdefault(stream_id, EpochFigures()).add(time.perf_counter() - began, written_bytes)
        _log.debug("epoch %d: %s from %s", committed.epoch, stream_name, source)
        return committed.epoch

    @property
    def in_flight(self) -> set[str]:
        """Tokens of epochs whose files are being written."""
        with self._lock:
            return set(self._in_flight)

    def await_landing(self, seconds_max: float) -> None:
        """Wait until no epoch is in flight."""
        with self._lock:
            self._landed.wait_for(lambda: not self._in_flight, seconds_max)

    def pages_to_probe(self, catalog: Catalog, stream: StreamState) -> Mapping[int, BlockPage[KeptBlock]]:
        """The blocks that new files are probed with: all that have factors, but for those that are left out."""
        kept = catalog.queries.kept_on(stream.name)
        left_out = self.left_out
        return kept.pages if kept.blocks.isdisjoint(left_out) else kept.among(kept.blocks - left_out)

    @property
    def left_out(self) -> BlockSet:
        """Blocks for which epochs compute nothing: those that did not come back lately, or are swapped out."""
        return BlockSet.union([self.troubles.slow, self._demands.unwanted])

    @property
    def idle(self) -> BlockSet:
        """Blocks that are swapped out."""
        return self._demands.unwanted

    @property
    def policy(self) -> Policy:
        """In which order the eddy visits operators."""
        return Policy(self._store.settings.eddy_policy)

    def tickets(self, stream: StreamState) -> Mapping[str, Account]:
        """What the eddy knows of the operators of a stream."""
        with self._lock:
            return dict(self._tickets.get(stream.id, {}))

    def save_query_set(self, stream: StreamState, pages: Mapping[int, BlockPage[KeptBlock]]) -> tuple[Path, ...]:
        """The files from which workers read these blocks. A query that comes or goes makes one page anew; the others
        are the objects they were, and so are their files.
        """
        paths = []
        for number, page in sorted(pages.items()):
            saved, path = self._saved.get((stream.id, number), (None, None))
            if saved is not page or path is None:
                path = self._page_path(stream, page)
            if not path.exists():
                blocks = {block: Block(stream.name, kept.factors) for block, kept in page.blocks.items()}
                began = time.perf_counter()
                try:
                    save_page(path, index_page(blocks))
                    took = time.perf_counter() - began
                    self._store.rates.note("query sets", None, path.stat().st_size, took)
                except OSError as error:
                    _log.warning("the query set can't be written (%s); this epoch stays uncovered", error)
                    return ()
            self._saved[stream.id, number] = (page, path)
            paths.append(path)
        return tuple(paths)

    def _page_path(self, stream: StreamState, page: BlockPage[KeptBlock]) -> Path:
        # Ids name contents for good, so equal ids are one file.
        digest = hashlib.blake2b(page.ids.astype("<i8").tobytes(), digest_size=12).hexdigest()
        return self._store.warehouse.derived / "querysets" / f"{stream.id}-{digest}.page"

    def _task(self, catalog: Catalog, stream: StreamState, source: str) -> EpochTask:
        settings = self._store.settings
        now_us = self._store.clock.now_us()
        paths = self._store.warehouse.stream(stream.id)
        try:
            paths.archive.mkdir(parents=True, exist_ok=True)
            make_private(paths.quarantine)
        except OSError as error:
            raise storage_error(error, paths.archive, "create") from error
        return EpochTask(
            schema=stream.schema,
            quarantine_schema=QUARANTINE,
            source=source_of_key(source),
            token=uuid.uuid4().hex[:16],
            arrived_us=now_us,
            bounds=TimeBounds(stream.floor_us(now_us), stream.ceiling_us(now_us), stream.late_us()),
            archive=paths.archive,
            quarantine=paths.quarantine,
            results=paths.results,
            query_set=self.save_query_set(stream, self.pages_to_probe(catalog, stream)),
            segment_rows_max=settings.segment_rows_max,
            factor_seconds_max=settings.factor_seconds_max,
            functions_seconds_max=settings.functions_epoch_seconds_max,
            tickets=self.tickets(stream),
            policy=self.policy,
            late=self.joining.late(catalog, stream),
        )

    def _take_in_pushed(self, lane: Lane, stream: StreamState, batch: Sequence[Pushed]) -> None:
        seqs = [pushed.seq for pushed in batch]
        rejected: list[int] = []
        damaged: set[str] = set()
        keys = [pushed.key for pushed in batch if pushed.key is not None]

        def run(task: EpochTask) -> list[Manifest]:
            manifests = self._pipeline().run_pushed(task, [pushed.path for pushed in batch])
            taken = sum(file.rows for manifest in manifests for file in (*manifest.files, *manifest.quarantine))
            damaged.update(name for manifest in manifests for name in manifest.damaged)
            # The files are discarded after this: what did not come back must not be taken for taken in.
            expected = sum(1 if pushed.path.name in damaged else pushed.rows for pushed in batch)
            if taken != expected:
                raise PipelineError(f"Of {expected:,} pushed rows {taken:,} came back from their job.")
            for pushed in batch:
                if pushed.path.name in damaged:
                    self._set_aside(lane, stream, pushed, keys)
            in_order = sorted(manifests, key=lambda manifest: manifest.partition)
            rejected[:] = [count for manifest in in_order for count in manifest.rejected]
            return manifests

        epoch = self.take_in(stream.name, stream.id, INBOX, seqs[-1], run, keys=keys)
        if epoch is not None:
            for pushed, count in zip(batch, rejected, strict=True):
                lost = pushed.path.name in damaged
                lane.taken[pushed.seq] = HandedOver(epoch, quarantined=pushed.rows if lost else count)
            while len(lane.taken) > _TAKEN_REMEMBERED_MAX:
                del lane.taken[next(iter(lane.taken))]
        lane.inbox.discard(seqs[-1])

    def _set_aside(self, lane: Lane, stream: StreamState, pushed: Pushed, keys: list[str]) -> None:
        """A push whose file is damaged: it is kept beside the inbox, and may be sent again with the same key."""
        _log.error("a push of %d rows to %s is damaged and set aside: %s", pushed.rows, stream.name, pushed.path.name)
        lane.inbox.set_aside(pushed.path.name)
        if pushed.key in keys:
            keys.remove(pushed.key)

    def _note_tickets(self, stream: StreamState, visitors: Mapping[str, int], manifests: Sequence[Manifest]) -> None:
        """What an epoch's tasks learned; of SteMs that tuples of other streams visit, it is theirs to know."""
        own = [
            {name: seen for name, seen in manifest.tickets.items() if visitors.get(name, stream.id) == stream.id}
            for manifest in manifests
        ]
        with self._lock:
            if any(own):
                self._tickets[stream.id] = merged(self._tickets.get(stream.id, {}), own)
            for manifest in manifests:
                for name in manifest.tickets.keys() & visitors.keys():
                    other = visitors[name]
                    if other != stream.id:
                        known = self._tickets.get(other, {})
                        self._tickets[other] = added(known, [{name: manifest.tickets[name]}])

    def _note_failures(self, manifests: Sequence[Manifest]) -> None:
        for manifest in manifests:
            self.troubles.note(manifest.failures, [file.name for file in manifest.files])

    def note_backfilled(self, stream: StreamState, backfilled: Backfilled) -> None:
        """What a backfill learned of dear factors, which is what epochs have to know of them."""
        with self._lock:
            self._tickets[stream.id] = added(self._tickets.get(stream.id, {}), [backfilled.tickets])

    def _work(self, stream: StreamState, lane: Lane) -> None:
        pause = 0.5
        while not self._stopping.is_set():
            lane.wake.wait()
            lane.wake.clear()
            if self._stopping.is_set():
                return
            try:
                self._drain(lane, stream, None)
                lane.error, pause = None, 0.5
                if _current(self._store.catalog, stream.name, stream.id) is None:
                    return
            except Closed:
                return
            except Exception as error:  # whatever it is, the rows are here and the next attempt may take them in
                lane.error = error.message if isinstance(error, LadleError) else f"{type(error).__name__}: {error}"
                if not self._store.closing.is_set():
                    _log.warning("pushes to %s wait: %s", stream.name, lane.error)
                self._stopping.wait(pause)
                pause = min(pause * 2, self._store.settings.retry_seconds_max)
                lane.wake.set()


def _current(catalog: Catalog, name: str, stream_id: int) -> StreamState | None:
    """The stream if it is still the one that was meant, not another of that name."""
    stream = catalog.streams.get(name.lower())
    return stream if stream is not None and stream.id == stream_id else None
