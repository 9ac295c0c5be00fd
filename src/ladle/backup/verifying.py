"""Verifying: every file of a warehouse is read and compared with its checksums.

Nothing is changed, not even what is derived and damaged: whoever reads that next drops it, and it is made anew. It
works in the process that writes, in one that only reads beside it, and, without a catalog, where the log is damaged.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from pathlib import Path

import pyarrow as pa

from ladle.answer import Answer
from ladle.archive.checks import check_pages
from ladle.archive.files import MissingFile
from ladle.archive.inbox import damaged_pushes, list_pushed, read_pushed
from ladle.archive.log import log_files, verify_log_file
from ladle.archive.segments import verify_file
from ladle.archive.table_files import verify_version
from ladle.archive.warehouse import FORMAT, Warehouse, verify_format
from ladle.backup.progress import ByteProgress, Told
from ladle.catalog import Catalog
from ladle.catalog.bindings import NUMBERS, PLANS, verify_plans
from ladle.clock import WallClock, to_datetime
from ladle.errors import LadleError, WarehouseError
from ladle.stem.arrays import is_older as is_older_page
from ladle.stem.arrays import map_arrays
from ladle.stem.masks import SUFFIX as MASKS
from ladle.stem.numbering import is_older as is_older_numbers
from ladle.stem.numbering import read_numbers
from ladle.stem.pairs import SUFFIX as PAIRS
from ladle.stem.pairs import is_older as is_older_pairs
from ladle.stem.results import SUFFIX as RESULTS
from ladle.stem.results import Results
from ladle.stem.results import is_older as is_older_results

_SHOWN_MAX = 20


class WarehousePart(Enum):
    """What a file of a warehouse holds."""

    FORMAT = "format"
    LOG = "log"
    SEGMENTS = "segments"
    QUARANTINE = "quarantine"
    TABLES = "tables"
    PUSHES = "pushes"
    SET_ASIDE = "pushes set aside"
    RESULTS = "results"
    MASKS = "masks"
    PAIRS = "pairs"
    QUERY_SETS = "query sets"
    NUMBERS = "numbers"
    PLANS = "plans"


@dataclass(frozen=True)
class _VerifiedFile:
    """A file, and how it is verified: that raises if it is not what was written."""

    part: WarehousePart
    path: Path
    verify: Callable[[], object]
    protected: bool = True


@dataclass
class _Verified:
    files: int = 0
    bytes: int = 0
    unprotected: int = 0
    problems: list[str] = field(default_factory=list)


def verify(warehouse: Warehouse, catalog: Catalog | None, told: Told | None = None) -> Answer:
    """Verify all files that a catalog names, and those that it does not have to; without one, all there are."""
    began = time.monotonic()
    files = list(_files(warehouse, catalog))
    total = sum(_size(file.path) for file in files)
    found: dict[WarehousePart, _Verified] = {}
    done = 0
    for file in files:
        size = _size(file.path)
        own = found.setdefault(file.part, _Verified())
        try:
            file.verify()
        except (MissingFile, FileNotFoundError) as error:
            # Only files of the catalog must be there: others come and go.
            if file.part not in (WarehousePart.SEGMENTS, WarehousePart.QUARANTINE, WarehousePart.TABLES):
                continue
            own.problems.append(_problem(warehouse, file.path, error))
        except (LadleError, OSError, ValueError, KeyError) as error:
            own.problems.append(_problem(warehouse, file.path, error))
        own.files += 1
        own.bytes += size
        own.unprotected += not file.protected
        done += size
        if told is not None:
            told(ByteProgress(done, max(total, done)))
    epoch, entry = (0, 0) if catalog is None else (catalog.epoch, catalog.seq)
    return _answer(found, epoch, entry, time.monotonic() - began)


def is_damaged(answer: Answer) -> bool:
    """Whether a report says that something is."""
    return any(answer.table.column("damaged").to_pylist())


def _answer(found: dict[WarehousePart, _Verified], epoch: int, entry: int, seconds: float) -> Answer:
    parts = [(part, found[part]) for part in WarehousePart if part in found]
    table = pa.table(
        {
            "part": [part.value for part, _ in parts],
            "files": pa.array([own.files for _, own in parts], pa.int64()),
            "bytes": pa.array([own.bytes for _, own in parts], pa.int64()),
            "damaged": pa.array([len(own.problems) for _, own in parts], pa.int64()),
            "unprotected": pa.array([own.unprotected for _, own in parts], pa.int64()),
            "problems": pa.array([_listed(own.problems) for _, own in parts], pa.string()),
        }
    )
    damaged = sum(len(own.problems) for own in found.values())
    unprotected = sum(own.unprotected for own in found.values())
    files = sum(own.files for own in found.values())
    said = f"{damaged:,} of {files:,} files are damaged" if damaged else f"{files:,} files are what was written"
    if unprotected:
        said += f"; {unprotected:,} were written by a version without checksums, where not all damage shows"
    problems = [problem for own in found.values() for problem in own.problems][:_SHOWN_MAX]
    message = "\n".join([said, *(f"  {problem}" for problem in problems)])
    now = to_datetime(WallClock().now_us())
    return Answer(table, epoch, now, seconds=seconds, message=message, entry=entry)


def _listed(problems: list[str]) -> str | None:
    more = len(problems) - _SHOWN_MAX
    return "; ".join([*problems[:_SHOWN_MAX], *([f"and {more:,} more"] if more > 0 else [])]) or None


def _problem(warehouse: Warehouse, path: Path, error: Exception) -> str:
    """A file as it is called within the warehouse, and what is wrong with it."""
    why = error.message if isinstance(error, LadleError) else str(error) or type(error).__name__
    for said in ("is broken: ", "is not what was written: "):
        why = why.rpartition(said)[2]
    return f"{path.relative_to(warehouse.path)}: {why.replace(str(path), path.name).rstrip('.')}"


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _files(warehouse: Warehouse, catalog: Catalog | None) -> Iterator[_VerifiedFile]:
    form = warehouse.path / FORMAT
    yield _VerifiedFile(WarehousePart.FORMAT, form, partial(_nothing, form), verify_format(warehouse.path))
    for path in log_files(warehouse.log):
        yield _VerifiedFile(WarehousePart.LOG, path, partial(verify_log_file, path))
    yield from _listed_files(warehouse) if catalog is None else _named_files(warehouse, catalog)
    for directory in sorted(warehouse.streams.glob("*/inbox")):
        for pushed in list_pushed(directory):
            yield _VerifiedFile(
                WarehousePart.PUSHES, pushed.path, partial(read_pushed, pushed.path), pushed.checksum is not None
            )
        for path in damaged_pushes(directory):
            yield _VerifiedFile(WarehousePart.SET_ASIDE, path, _set_aside)
    yield from _derived(warehouse)


def _set_aside() -> None:
    raise WarehouseError("it was damaged when it was to be taken in; delete it when nobody needs it any more")


def _named_files(warehouse: Warehouse, catalog: Catalog) -> Iterator[_VerifiedFile]:
    for stream in catalog.all_streams():
        part = WarehousePart.QUARANTINE if stream.name.endswith(".quarantine") else WarehousePart.SEGMENTS
        directory = warehouse.data(stream.id, quarantine=part is WarehousePart.QUARANTINE)
        for file in stream.files:
            path = directory / file.name
            yield _VerifiedFile(part, path, partial(verify_file, path, file), file.checks is not None)
    for table in catalog.tables.values():
        for version in table.files:
            path = warehouse.table(table.id) / version.name
            check = partial(verify_version, path, version.bytes, version.rows, version.checks)
            yield _VerifiedFile(WarehousePart.TABLES, path, check, version.checks is not None)


def _listed_files(warehouse: Warehouse) -> Iterator[_VerifiedFile]:
    """Without the log nothing says what must be there, nor what footers were; pages still have their checksums."""
    for part, pattern in (
        (WarehousePart.SEGMENTS, "streams/*/archive/*.parquet"),
        (WarehousePart.QUARANTINE, "streams/*/quarantine/*.parquet"),
        (WarehousePart.TABLES, "tables/*/*.parquet"),
    ):
        for path in sorted(warehouse.path.glob(pattern)):
            yield _VerifiedFile(part, path, partial(check_pages, path), protected=False)


def _derived(warehouse: Warehouse) -> Iterator[_VerifiedFile]:
    kinds: tuple[tuple[WarehousePart, str, Callable[[Path], object], Callable[[Path], bool]], ...] = (
        (WarehousePart.RESULTS, f"results/*/*{RESULTS}", lambda path: Results(path).check(), is_older_results),
        (WarehousePart.MASKS, f"results/*/*{MASKS}", map_arrays, is_older_page),
        (WarehousePart.PAIRS, f"joins/*/*{PAIRS}", map_arrays, is_older_pairs),
        (WarehousePart.QUERY_SETS, "querysets/*.page", map_arrays, is_older_page),
        (WarehousePart.NUMBERS, NUMBERS, lambda path: read_numbers(path.read_bytes()), is_older_numbers),
        (WarehousePart.PLANS, PLANS, verify_plans, lambda path: False),
    )
    for part, pattern, check, is_older in kinds:
        for path in sorted(warehouse.derived.glob(pattern)):
            if not path.name.startswith("."):
                # One of an older version is made anew when it is wanted.
                older = is_older(path)
                yield _VerifiedFile(part, path, partial(_nothing if older else check, path), not older)


def _nothing(path: Path) -> None:
    """What could be verified of a file was verified before, if there is anything."""
