"""Spark's checkpoint of a source, as of a batch: what a backup has of it, so that the source goes on exactly once.

Spark writes which offsets a batch has (`offsets/<batch>`), the batch is committed in our log, and then Spark notes that
it is done (`commits/<batch>`). A checkpoint fits a snapshot when it ends with the last batch that the snapshot has, or
with one after it that brought no rows. What it knows beyond that is left out, and comes again as the next batch; what a
file source has listed already may stay, because it is read from where the offsets end.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

_NUMBERED = re.compile(r"(\d+)(\..*)?")
_LOOKS_MAX = 100
NEVER = -1
"""The batch before the first."""


def last_done(checkpoint: Path) -> int:
    """The last batch that Spark has noted as done: whatever rows it had are in the log by now."""
    numbers = map(_number, _listed(checkpoint / "commits"))
    return max((number for number in numbers if number is not None), default=NEVER)


def files_until(checkpoint: Path, batch: int) -> list[Path] | None:
    """The files of a checkpoint that ends with a batch, relative to it.

    None when it is not there as of that batch any more: Spark forgets old offsets.
    """
    for _ in range(_LOOKS_MAX):
        found = sorted(_walk(checkpoint))
        # Files come in order, but one that comes while a directory is listed may be missed, and the next be seen.
        if found == sorted(_walk(checkpoint)):
            break
    else:
        return None
    kept = [path for path in found if not _is_after(path, batch)]
    # One that ends before the batch, with nothing after it, did so when the batch was committed: so it is in any copy.
    forgotten = batch != NEVER and Path("offsets", str(batch)) not in kept
    return None if forgotten and len(kept) < len(found) else kept


def _is_after(path: Path, batch: int) -> bool:
    number = _number(path.name)
    return path.parts[0] in ("offsets", "commits") and number is not None and number > batch


def _number(name: str) -> int | None:
    matched = _NUMBERED.fullmatch(name)
    return None if matched is None else int(matched[1])


def _walk(root: Path) -> Iterator[Path]:
    """All files but hidden ones: those are being written, or checksums that Hadoop does without."""
    for directory, names, files in os.walk(root):
        names[:] = [name for name in names if not name.startswith(".")]
        yield from (Path(directory, name).relative_to(root) for name in files if not name.startswith("."))


def _listed(directory: Path) -> list[str]:
    try:
        return os.listdir(directory)
    except FileNotFoundError:
        return []
