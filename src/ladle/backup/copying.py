"""Backups: everything durable as of one snapshot, copied while epochs go on; and back.

A snapshot is pinned, so that none of its files goes away, and what is in it is copied. Beside its files there are two
things that change meanwhile, and each is looked at on the right side of the pinning:

- pushes that were acknowledged and wait in an inbox are copied *before*. One that is gone by then is in the snapshot,
  and of those that are copied the snapshot says which it has: so none is missing, and none is there twice;
- which batches of a source Spark has done is asked *before*, and its checkpoint is copied *after*, up to the last batch
  that the snapshot must have (`backup/checkpoints.py`).

What is derived is not copied. It works in the process that writes and in one that only reads.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import Enum
from pathlib import Path

import pyarrow as pa

from ladle.answer import Answer
from ladle.archive import backup_format as archive
from ladle.archive.backup_format import BackupManifest, Copying, Saved
from ladle.archive.checks import Checks, check_whole
from ladle.archive.files import MissingFile, is_temporary
from ladle.archive.folder import local_folder
from ladle.archive.inbox import Pushed, damaged_pushes, list_pushed
from ladle.archive.log import checkpoint_file
from ladle.archive.restoring import restore_files
from ladle.archive.warehouse import FORMAT
from ladle.backup.checkpoints import NEVER, files_until, last_done
from ladle.backup.progress import ByteProgress, Told
from ladle.catalog import INBOX, Catalog, StreamState
from ladle.catalog.store import Store
from ladle.clock import to_datetime
from ladle.errors import DamagedFile, WarehouseError

_ATTEMPTS_MAX = 5


class BackupPart(Enum):
    """What a file of a backup holds."""

    SEGMENTS = "segments"
    QUARANTINE = "quarantine"
    TABLES = "tables"
    PUSHES = "pushes"
    SOURCES = "sources"
    LOG = "log"

    @staticmethod
    def of(name: str) -> BackupPart:
        """By the name of a file in the warehouse."""
        match name.split("/"):
            case ["streams", _, directory, *_]:
                return _IN_STREAMS[directory]
            case ["tables", *_]:
                return BackupPart.TABLES
            case _:
                return BackupPart.LOG


_IN_STREAMS = {
    "archive": BackupPart.SEGMENTS,
    "quarantine": BackupPart.QUARANTINE,
    "inbox": BackupPart.PUSHES,
    "sources": BackupPart.SOURCES,
}


class _SnapshotGone(Exception):
    """Something that belongs to the snapshot is gone: another snapshot, without it, is next."""

    def __init__(self, path: Path) -> None:
        super().__init__(str(path))
        self.path = path


@dataclass(frozen=True)
class _WantedFile:
    """A file of the warehouse that belongs into the backup."""

    name: str
    path: Path
    bytes: int
    checks: Checks | None = None
    """Its checksums, if it was written with some."""


@dataclass
class _Saving:
    """The files of one snapshot, as they are copied."""

    copying: Copying
    told: Told | None
    files: list[Saved] = field(default_factory=list)
    done: int = 0
    total: int = 0

    def copy(self, wanted: _WantedFile) -> Saved:
        """Copy a file that is what was written; one that is damaged would replace what is good, one day."""
        try:
            if wanted.checks is not None:
                check_whole(wanted.path, wanted.bytes, wanted.checks)
            return self.copying.copy(wanted.path, wanted.name, self.note)
        except (FileNotFoundError, MissingFile):
            raise _SnapshotGone(wanted.path) from None

    def note(self, size: int) -> None:
        self.done += size
        if self.told is not None:
            self.told(ByteProgress(self.done, max(self.total, self.done)))


def back_up(store: Store, directory: str | Path, told: Told | None = None) -> Answer:
    """Write a backup; a table of what it has."""
    began = time.monotonic()
    target = local_folder(directory, what="A backup").absolute()
    root = store.warehouse.path
    if target.resolve().is_relative_to(root.resolve()) or root.resolve().is_relative_to(target.resolve()):
        raise WarehouseError(
            f"'{target}' and the warehouse are in one another.", hint="name a directory elsewhere, best on another disk"
        )
    form = (root / FORMAT).read_text()
    with archive.writing(target, form) as copying:
        for attempt in range(1, _ATTEMPTS_MAX + 1):
            try:
                return _attempt(store, copying, form, told, began)
            except _SnapshotGone as moved:
                if attempt == _ATTEMPTS_MAX:
                    raise MissingFile(
                        f"Can't back up '{moved.path}': it is not there.",
                        hint="if it was deleted by hand, restore it from an older backup",
                    ) from None
    raise AssertionError("unreachable")


def _attempt(store: Store, copying: Copying, form: str, told: Told | None, began: float) -> Answer:
    saving = _Saving(copying, told)
    store.refresh()
    before = store.catalog
    waiting = {stream.id: list(_copied_pushes(store, saving, stream)) for stream in before.streams.values()}
    done = {path: last_done(path) for stream in before.streams.values() for path in _checkpoints(store, stream)}
    store.refresh()  # a reader that can hold no lease sees no more than it has looked at
    with store.pin() as catalog:
        for stream in catalog.streams.values():
            _save_sources(store, saving, stream, done)
        _check_sources(store, catalog)
        files = list(_files(store, catalog))
        saving.total = saving.done + sum(file.bytes for file in files)
        for wanted in files:
            known = copying.unchanged(wanted.name, wanted.bytes)
            saving.files.append(known or _whole(saving.copy(wanted), wanted))
            if known is not None:
                saving.note(known.bytes)
        for stream in catalog.streams.values():
            taken = stream.batches.get(INBOX, 0)
            for pushed, saved in waiting.get(stream.id, ()):
                if pushed.seq > taken:
                    saving.files.append(saved)
            for path in _set_aside(store, stream):
                saving.files.append(saving.copy(_WantedFile(_name(store, path), path, 0)))
        if catalog.seq:
            name, pieces = checkpoint_file(catalog.seq, catalog.to_json())
            saving.files.append(copying.put(f"log/{name}", pieces))
        saving.files.append(copying.put(FORMAT, [form.encode()]))
        at = datetime.now(UTC).isoformat(timespec="seconds")
        manifest = BackupManifest(form, catalog.seq, catalog.epoch, at, tuple(saving.files))
        copying.finish(manifest)
        now = to_datetime(store.clock.now_us())
    return _report(manifest, copying, now, time.monotonic() - began)


def _whole(saved: Saved, wanted: _WantedFile) -> Saved:
    if saved.bytes != wanted.bytes:
        raise DamagedFile(
            f"The file '{wanted.path}' is broken: it has {saved.bytes:,} bytes instead of {wanted.bytes:,}.",
            hint="restore it from an older backup; no new one was made",
        )
    return saved


# -- what belongs into it --


def _copied_pushes(store: Store, saving: _Saving, stream: StreamState) -> Iterator[tuple[Pushed, Saved]]:
    """The pushes that wait in a stream's inbox, copied."""
    directory = store.warehouse.stream(stream.id).inbox
    first = list_pushed(directory)
    last = max((pushed.seq for pushed in first), default=0)
    # A push that came while the inbox was listed may have been missed, and the next one be seen.
    found = {pushed.seq: pushed for pushed in (*first, *list_pushed(directory)) if pushed.seq <= last}
    for seq in sorted(found):
        pushed = found[seq]
        wanted = _WantedFile(_name(store, pushed.path), pushed.path, pushed.bytes)
        try:
            yield pushed, saving.copy(wanted)
        except _SnapshotGone:
            continue  # taken in since, so it is in the snapshot that is pinned after this


def _set_aside(store: Store, stream: StreamState) -> list[Path]:
    """Pushes that were damaged: somebody may want to look at what is left of them."""
    return sorted(
        path for path in damaged_pushes(store.warehouse.stream(stream.id).inbox) if not is_temporary(path.name)
    )


def _checkpoints(store: Store, stream: StreamState) -> list[Path]:
    """Where Spark keeps how far the sources of a stream are."""
    try:
        return [path for path in store.warehouse.stream(stream.id).sources.iterdir() if path.is_dir()]
    except FileNotFoundError:
        return []


def _save_sources(store: Store, saving: _Saving, stream: StreamState, done: dict[Path, int]) -> None:
    for checkpoint in _checkpoints(store, stream):
        batch = max(done.get(checkpoint, NEVER), stream.batches.get(checkpoint.name, NEVER))
        files = files_until(checkpoint, batch)
        if files is None:
            raise _SnapshotGone(checkpoint / "offsets" / str(batch))
        for file in files:
            path = checkpoint / file
            saving.files.append(saving.copy(_WantedFile(_name(store, path), path, 0)))


def _check_sources(store: Store, catalog: Catalog) -> None:
    """The checkpoint of a source goes with the source, at once: one that was dropped meanwhile may be half copied."""
    store.refresh()
    newest = store.catalog
    living = {source.id for source in newest.sources.values()}
    streams = {stream.id for stream in newest.streams.values()}
    for source in catalog.sources.values():
        stream = catalog.stream(source.stream)
        if source.id not in living or stream is None or stream.id not in streams:
            raise _SnapshotGone(store.warehouse.streams / source.key)


def _files(store: Store, catalog: Catalog) -> Iterator[_WantedFile]:
    """The files that the log names. They never change, and no other ever has their names."""
    for base in catalog.streams.values():
        for stream in (base, base.quarantine):
            if stream is not None:
                directory = store.directory(stream)
                for file in stream.files:
                    path = directory / file.name
                    yield _WantedFile(_name(store, path), path, file.bytes, file.checks)
    for table in catalog.tables.values():
        for version in table.files:
            path = store.warehouse.table(table.id) / version.name
            yield _WantedFile(_name(store, path), path, version.bytes, version.checks)


def _name(store: Store, path: Path) -> str:
    return path.relative_to(store.warehouse.path).as_posix()


# -- what is told --


def _report(manifest: BackupManifest, copying: Copying, now: datetime, seconds: float) -> Answer:
    new = [file for file in manifest.files if file.name in copying.copied]
    table = _by_part(manifest.files)
    copied = {part: (files, size) for part, files, size in zip(*_by_part(new).to_pydict().values(), strict=True)}
    for number, name in enumerate(("copied_files", "copied_bytes")):
        counts = [copied.get(part, (0, 0))[number] for part in table.column("part").to_pylist()]
        table = table.append_column(name, pa.array(counts, pa.int64()))
    message = (
        f"entry {manifest.entry:,} (epoch {manifest.epoch:,}) is backed up in {copying.directory}: {len(new):,} of "
        f"{len(manifest.files):,} files copied, {sum(file.bytes for file in new):,} bytes"
    )
    return Answer(table, manifest.epoch, now, seconds=seconds, message=message, entry=manifest.entry)


def _by_part(files: Sequence[Saved]) -> pa.Table:
    """How many files, and bytes, each part has; parts without any are left out."""
    sizes: dict[BackupPart, list[int]] = {part: [] for part in BackupPart}
    for file in files:
        sizes[BackupPart.of(file.name)].append(file.bytes)
    rows = [(part.value, len(own), sum(own)) for part, own in sizes.items() if own]
    types = {"part": pa.string(), "files": pa.int64(), "bytes": pa.int64()}
    return pa.table({name: pa.array([row[n] for row in rows], kind) for n, (name, kind) in enumerate(types.items())})


def restore(backup: str | Path, warehouse: str | Path, *, told: Told | None = None) -> Answer:
    """Make a warehouse of a backup, in a directory that is new or empty; a table of what it has.

    Each file is checked on the way. What is derived comes again by itself when the warehouse is opened.
    """
    began = time.monotonic()
    source = local_folder(backup, what="A backup").absolute()
    root = local_folder(warehouse).absolute()
    total, done = archive.read_manifest(source).bytes, 0

    def note(size: int) -> None:
        nonlocal done
        done += size
        if told is not None:
            told(ByteProgress(done, total))

    manifest = restore_files(source, root, note)
    message = f"entry {manifest.entry:,} (epoch {manifest.epoch:,}), backed up at {manifest.at}, is restored in {root}"
    seconds = time.monotonic() - began
    now, table = datetime.now(UTC), _by_part(manifest.files)
    return Answer(table, manifest.epoch, now, seconds=seconds, message=message, entry=manifest.entry)
