"""The derived files of a warehouse as kinds of derived state: results, masks, pairs of joins, query sets.

What it takes to make a file anew is measured: results by what backfills took per tuple of the stream, or else by what
the eddy saw factors take in epochs; masks by what functions took; pairs by what jobs took per pair of data files.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ladle.catalog import StreamState
from ladle.catalog.store import Store
from ladle.derived.file_kind import FileId, Files
from ladle.ingest.backfill import Backfill
from ladle.ingest.epochs import Ingest
from ladle.stem.masks import SUFFIX as MASKS
from ladle.stem.pairs import SUFFIX as PAIRS
from ladle.stem.results import SUFFIX as RESULTS
from ladle.stem.results import data_file_of

_TUPLE_SECONDS = 1e-6
"""What a tuple is taken to cost on a stream of which nothing was measured yet."""
_ASKED_SECONDS = 1e-4
"""The same for a tuple that a function is asked about."""
_PAIR_SECONDS = 1e-2
"""The same for a pair of data files."""
_BYTE_SECONDS = 1e-8
_TUPLES_PER_BYTE = 4
"""A mask has two bits for each tuple."""


def register_files(store: Store, ingest: Ingest, backfill: Backfill) -> None:
    """Have the derived files of a warehouse held to the budget of disk."""
    root, derived = store.warehouse.derived, store.derived
    by_backfill = "by the backfill"
    Files("results", derived, root / "results", RESULTS, _ResultFiles(store, ingest, backfill), rebuilt=by_backfill)
    Files("masks", derived, root / "results", MASKS, _Masks(store), rebuilt=by_backfill)
    Files("pairs", derived, store.warehouse.joins, PAIRS, _PairFiles(store, ingest), rebuilt=by_backfill)
    sets = root / "querysets"
    Files("query sets", derived, sets, ".page", _QuerySets(store, sets), rebuilt="with the next epoch", nested=False)


class _OfStreams:
    """Files in directories that are named after streams."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def _unlink(self, file: FileId) -> None:
        with suppress(OSError):
            (self._store.warehouse.derived / "results" / file[0] / file[1]).unlink(missing_ok=True)


class _ResultFiles(_OfStreams):
    def __init__(self, store: Store, ingest: Ingest, backfill: Backfill) -> None:
        super().__init__(store)
        self._ingest = ingest
        self._backfill = backfill
        self._dropped = False
        """Whether files were dropped since it was counted what is covered."""

    def costs(self) -> Callable[[FileId, int], float]:
        streams = {str(stream.id): stream for stream in self._store.catalog.streams.values()}
        per_tuple = {name: self._tuple_seconds(stream) for name, stream in streams.items()}
        rows = {file.name: file.rows for stream in streams.values() for file in stream.files}

        def cost(file: FileId, size: int) -> float:
            # Of an epoch that is not committed yet nothing is known but the size.
            return per_tuple.get(file[0], 0.0) * rows.get(data_file_of(file[1]) or "", size)

        return cost

    def _tuple_seconds(self, stream: StreamState) -> float:
        measured = self._store.rates.seconds("results", stream.id, 1.0)
        if measured is not None:
            return measured
        accounts = self._ingest.tickets(stream).values()
        seen = sum(account.seconds / account.offered for account in accounts if account.offered)
        return max(seen, _TUPLE_SECONDS)

    def used(self, file: FileId) -> float | None:
        coverage = self._store.known_coverage(file[0])
        return None if coverage is None else coverage.used(file[1])

    def remove(self, file: FileId) -> None:
        data_file = data_file_of(file[1])
        coverage = self._store.known_coverage(file[0])
        if coverage is not None and data_file is not None:
            coverage.remove(data_file, file[1])  # which lets go of the mapped file, too
        self._unlink(file)
        self._dropped = True

    def covered(self) -> tuple[int, int]:
        if self._dropped:
            self._dropped = False
            self._backfill.count()
        progress = self._backfill.progress.values()
        return sum(each.done for each in progress), sum(each.total for each in progress)


class _Masks(_OfStreams):
    def costs(self) -> Callable[[FileId, int], float]:
        known = {str(stream.id): stream.id for stream in self._store.catalog.streams.values()}

        def cost(file: FileId, size: int) -> float:
            stream, tuples = known.get(file[0]), size * _TUPLES_PER_BYTE
            if stream is None:
                return 0.0
            measured = self._store.rates.seconds("masks", stream, tuples)
            return tuples * _ASKED_SECONDS if measured is None else measured

        return cost

    def used(self, file: FileId) -> float | None:
        return None

    def remove(self, file: FileId) -> None:
        self._unlink(file)

    def covered(self) -> tuple[int, int]:
        return 0, 0


class _PairFiles:
    def __init__(self, store: Store, ingest: Ingest) -> None:
        self._store = store
        self._joining = ingest.joining
        self._dropped = False

    def costs(self) -> Callable[[FileId, int], float]:
        entries = {
            (digest, file.name): len(file.entries)
            for digest, coverage in self._store.join_coverages().items()
            for file in coverage.files()
        }

        def cost(file: FileId, _: int) -> float:
            count = entries.get(file, 1)
            measured = self._store.rates.seconds("pairs", file[0], count)
            return count * _PAIR_SECONDS if measured is None else measured

        return cost

    def used(self, file: FileId) -> float | None:
        coverage = self._store.join_coverages().get(file[0])
        return None if coverage is None else coverage.used(file[1])

    def remove(self, file: FileId) -> None:
        self._store.join_coverage(file[0]).remove([file[1]])
        self._dropped = True

    def covered(self) -> tuple[int, int]:
        if self._dropped:
            self._dropped = False
            self._joining.count(self._store.catalog)
        return self._joining.covered


class _QuerySets:
    def __init__(self, store: Store, directory: Path) -> None:
        self._store = store
        self._directory = directory

    def costs(self) -> Callable[[FileId, int], float]:
        rates = self._store.rates

        def cost(_: FileId, size: int) -> float:
            measured = rates.seconds("query sets", None, size)
            return size * _BYTE_SECONDS if measured is None else measured

        return cost

    def used(self, file: FileId) -> float | None:
        return None

    def remove(self, file: FileId) -> None:
        with suppress(OSError):
            (self._directory / file[1]).unlink(missing_ok=True)

    def covered(self) -> tuple[int, int]:
        return 0, 0
