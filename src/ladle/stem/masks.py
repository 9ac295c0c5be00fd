"""What dear factors have said so far of the tuples of a data file (decision 23).

A factor that takes long, mostly because it calls a function, may not be done with a file when its share of time is used
up. What it has said is kept beside the file's results, tuple by tuple, so that nobody asks for it again: not the
backfill, not an invocation, not the file that compaction makes. When all is said the results have it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from ladle.json_values import Json
from ladle.stem.arrays import DamagedArrays, map_arrays, save_arrays

_log = logging.getLogger(__name__)

SUFFIX = ".masks"

UNKNOWN, TRUE, FALSE, SPARED = range(4)
"""What is known of a tuple. One that is spared has been decided by other factors, for the blocks that a mask names."""

States = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class FactorMask:
    """What one factor has said of a file's tuples."""

    states: States
    blocks: frozenset[int] = frozenset()
    """For these blocks the factor need not be asked about tuples that are spared."""

    def known_to(self, blocks: frozenset[int]) -> States:
        """What all of some blocks may rely on; what was said holds for everybody."""
        if blocks <= self.blocks:
            return self.states
        return np.where(self.states == SPARED, np.uint8(UNKNOWN), self.states)


def states_at(states: States, rows: npt.NDArray[np.integer]) -> States:
    """What is known of some tuples, by their numbers; nothing of those beyond the last that was looked at."""
    found = np.zeros(len(rows), dtype=np.uint8)
    inside = rows < len(states)
    found[inside] = states[rows[inside]]
    return found


def write_masks(directory: Path, data_file: str, masks: Mapping[str, FactorMask]) -> bool:
    """Keep the masks of a data file, by the factors' texts, in place of those before; whether that could be done."""
    path = directory / f"{data_file}{SUFFIX}"
    try:
        if not masks:
            path.unlink(missing_ok=True)
            return True
        header: list[Json] = [[sql, len(mask.states), sorted(mask.blocks)] for sql, mask in masks.items()]
        arrays = {}
        for number, mask in enumerate(masks.values()):
            arrays[f"low{number}"] = np.packbits(mask.states & 1)
            arrays[f"high{number}"] = np.packbits(mask.states >> 1)
        save_arrays(path, {"masks": header}, arrays)
    except OSError as error:
        _log.info("masks of %s are not kept: %s", data_file, error)
        return False
    return True


def read_masks(directory: Path, data_file: str) -> dict[str, FactorMask]:
    """The masks of a data file; none where they are gone or damaged."""
    path = directory / f"{data_file}{SUFFIX}"
    try:
        header, arrays = map_arrays(path)
    except FileNotFoundError:
        return {}
    except (OSError, DamagedArrays, ValueError, KeyError) as error:
        _log.warning("masks of %s can't be read (%s); they are thrown away", data_file, error)
        with suppress(OSError):
            path.unlink(missing_ok=True)
        return {}
    return {
        sql: FactorMask(
            np.unpackbits(arrays[f"low{number}"], count=rows) + 2 * np.unpackbits(arrays[f"high{number}"], count=rows),
            frozenset(blocks),
        )
        for number, (sql, rows, blocks) in enumerate(header["masks"])
    }


def masked_file_of(name: str) -> str | None:
    """The data file that a file of masks belongs to; None for other files."""
    return name.removesuffix(SUFFIX) if name.endswith(SUFFIX) else None
