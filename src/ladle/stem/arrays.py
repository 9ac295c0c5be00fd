"""Named arrays in one file, to be mapped: what workers share without reading or copying it whole.

A header in JSON, then the arrays, each at a multiple of 64 bytes. The file appears whole under its name, and knows its
own checksum: it is derived and not synced, so what a power cut left of it must not be taken for it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from ladle.archive.files import temporary_path
from ladle.stem.tiles import Array

_MAGIC = b"LADLEAR1"
_ALIGN = 64


class Damaged(ValueError):
    """A file that is not what was written."""


def save_arrays(path: Path, header: Mapping[str, Any], arrays: Mapping[str, Array]) -> None:
    places: list[list[Any]] = []
    at = 0
    for name, array in arrays.items():
        places.append([name, array.dtype.str, list(array.shape), at])
        at += -(-array.nbytes // _ALIGN) * _ALIGN
    text = json.dumps({"header": header, "arrays": places}).encode()
    start = -(-(len(_MAGIC) + 16 + len(text)) // _ALIGN) * _ALIGN
    content = bytearray(start + at)
    content[24 : 24 + len(text)] = text
    for (_, _, _, place), array in zip(places, arrays.values(), strict=True):
        content[start + place : start + place + array.nbytes] = np.ascontiguousarray(array).tobytes()
    content[:24] = _MAGIC + len(text).to_bytes(8, "little") + zlib.crc32(memoryview(content)[24:]).to_bytes(8, "little")
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = temporary_path(path)
    partial.write_bytes(content)
    partial.replace(path)


def map_arrays(path: Path) -> tuple[Any, dict[str, Array]]:
    """The header, and the arrays as views of the mapped file."""
    if path.stat().st_size < 24:
        raise Damaged(f"{path.name} is cut off")
    content = np.memmap(path, dtype=np.uint8, mode="r")
    if content[:8].tobytes() != _MAGIC:
        raise Damaged(f"{path.name} is not a file of arrays")
    length, checksum = np.frombuffer(content, dtype="<u8", count=2, offset=8).tolist()
    if zlib.crc32(content[24:].data) != checksum:
        raise Damaged(f"{path.name} is not what was written")
    described = json.loads(content[24 : 24 + length].tobytes())
    start = -(-(24 + length) // _ALIGN) * _ALIGN
    arrays = {
        name: np.frombuffer(content, dtype=dtype, count=int(np.prod(shape)), offset=start + place).reshape(shape)
        for name, dtype, shape, place in described["arrays"]
    }
    return described["header"], arrays
