"""Named arrays in one file, to be mapped: what workers share without reading or copying it whole.

A header in JSON, then the arrays, each at a multiple of 64 bytes. The file appears whole under its name. Its header has
a checksum, and has one of each array: it is derived and not synced, so what a power cut or a bad disk left of it must
not be taken for it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from zlib_ng.zlib_ng import crc32

from ladle.archive.files import temporary_path
from ladle.json_values import Json, JsonFields
from ladle.stem.tiles import Array

_MAGIC = b"LADLEAR2"
_HEAD = struct.Struct("<8sQQ")
_ALIGN = 64


class DamagedArrays(ValueError):
    """A file that is not what was written."""


def save_arrays(path: Path, header: Mapping[str, Json], arrays: Mapping[str, Array]) -> None:
    """Write arrays by name into one file, each with a checksum, for others to map."""
    places: list[tuple[str, str, list[int], int, int]] = []
    parts = [np.ascontiguousarray(array) for array in arrays.values()]
    at = 0
    for name, part in zip(arrays, parts, strict=True):
        room = _aligned(part.nbytes)
        # What fills the room up is verified too: nothing in the file is not.
        places.append((name, part.dtype.str, list(part.shape), at, crc32(bytes(room - part.nbytes), checksum(part))))
        at += room
    text = json.dumps({"header": header, "arrays": places}).encode()
    start = _aligned(_HEAD.size + len(text))
    content = bytearray(start + at)
    content[_HEAD.size : _HEAD.size + len(text)] = text
    content[: _HEAD.size] = _HEAD.pack(_MAGIC, len(text), crc32(content[_HEAD.size : start]))
    for (_, _, _, place, _), part in zip(places, parts, strict=True):
        content[start + place : start + place + part.nbytes] = part.tobytes()
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = temporary_path(path)
    try:
        partial.write_bytes(content)
        partial.replace(path)
    except OSError:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def _aligned(size: int) -> int:
    return -(-size // _ALIGN) * _ALIGN


def checksum(array: Array) -> int:
    """The checksum of an array's bytes, or of a part that is read alone."""
    return crc32(array.view(np.uint8).data) if array.size else 0


def mapped(path: Path) -> npt.NDArray[np.uint8]:
    """A file's bytes, mapped for as long as something refers to them.

    NumPy's own maps keep the file open too, and a process may have about a thousand open.
    """
    with pa.memory_map(str(path)) as source:
        return np.frombuffer(source.read_buffer(), dtype=np.uint8)


def is_older(path: Path) -> bool:
    """Whether a file is of a version that verified arrays otherwise."""
    with path.open("rb") as file:
        return file.read(8) == b"LADLEAR1"


def map_arrays(path: Path, *, whole: bool = True) -> tuple[JsonFields, dict[str, Array]]:
    """The header, and the arrays as views of the mapped file; where they are not verified as a `whole`, that is left to
    whoever reads parts of them.
    """
    if path.stat().st_size < _HEAD.size:
        raise DamagedArrays(f"{path.name} is cut off")
    content = mapped(path)
    magic, length, expected = _HEAD.unpack(content[: _HEAD.size].tobytes())
    if magic != _MAGIC:
        raise DamagedArrays(f"{path.name} is not a file of arrays")
    start = _aligned(_HEAD.size + length)
    head = content[_HEAD.size : start].tobytes()
    if crc32(head) != expected:
        raise DamagedArrays(f"the checksum of the head of {path.name} does not match")
    described = json.loads(head[:length])
    arrays: dict[str, Array] = {}
    for name, dtype, shape, place, expected in described["arrays"]:
        count = int(np.prod(shape))
        room = content[start + place : start + place + _aligned(count * np.dtype(dtype).itemsize)]
        if len(room) < count * np.dtype(dtype).itemsize:
            raise DamagedArrays(f"{path.name} is cut off")
        arrays[name] = np.frombuffer(room, dtype=dtype, count=count).reshape(shape)
        if whole and crc32(room.data) != expected:
            raise DamagedArrays(f"the checksum of '{name}' in {path.name} does not match")
    return described["header"], arrays
