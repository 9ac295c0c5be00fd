"""Messages between processes: a JSON header, then as many Arrow tables as the header says."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TypeAlias

import pyarrow as pa

from ladle.foreign import NotArrow, read_stream
from ladle.json_values import JsonFields

ANSWERS = "application/vnd.ladle.answers"
"""A message of `protocols/wire.py`: answers or deltas, with their tables."""
ARROW = "application/vnd.apache.arrow.stream"

_LENGTH = struct.Struct("<Q")
_HEADER_BYTES_MAX = 64 << 20
_PATH_BYTES_MAX = 100
"""A Unix socket's address holds 108 bytes."""


Message: TypeAlias = tuple[JsonFields, list[pa.Table]]
"""A message as it is read: its header, and its tables."""


class Disconnected(Exception):
    """The other side is gone."""


def send(connection: socket.socket, header: Mapping[str, object], tables: list[pa.Table] | None = None) -> None:
    """Send a message: a header, and the tables that go with it."""
    for part in _parts(header, tables or []):
        connection.sendall(part)


def pack(header: Mapping[str, object], tables: Sequence[pa.Table] = ()) -> bytes:
    """A header and its tables as one message, for those who have a carrier of their own."""
    return b"".join(_parts(header, tables))


def unpack(message: bytes) -> Message:
    """What `pack` made. Raises ValueError or KeyError if it is something else."""
    if len(message) < _LENGTH.size:
        raise ValueError("it is cut off")
    (length,) = _LENGTH.unpack_from(message)
    at = _LENGTH.size + length
    header: JsonFields = json.loads(message[_LENGTH.size : at])
    tables = []
    for size in header.pop("payloads"):
        tables.append(read_stream(pa.py_buffer(message).slice(at, size)))
        at += size
    return header, tables


def _parts(header: Mapping[str, object], tables: Sequence[pa.Table]) -> Iterator[bytes | memoryview]:
    payloads = [encode_table(table) for table in tables]
    body = json.dumps({**header, "payloads": [payload.size for payload in payloads]}, default=str).encode()
    yield _LENGTH.pack(len(body)) + body
    yield from (memoryview(payload) for payload in payloads)


def receive(connection: socket.socket) -> Message:
    """Wait for the next message, and return its header and its tables."""
    (length,) = _LENGTH.unpack(_read(connection, _LENGTH.size))
    if length > _HEADER_BYTES_MAX:
        raise Disconnected("not one of ours")
    header: JsonFields = json.loads(_read(connection, length))
    try:
        tables = [read_stream(pa.py_buffer(_read(connection, size))) for size in header.pop("payloads")]
    except NotArrow as error:
        raise Disconnected(f"what it sent is no Arrow stream: {error}") from None
    return header, tables


def listen(path: Path) -> socket.socket:
    """A socket that only this user's processes can reach."""
    path.unlink(missing_ok=True)
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with _Address(path) as address:
        server.bind(address)
    path.chmod(0o600)
    server.listen(64)
    return server


def dial(path: Path, timeout_seconds: float | None = None) -> socket.socket:
    """Connect to the socket at a path, which may be longer than the system allows for addresses."""
    client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    client.settimeout(timeout_seconds)
    try:
        with _Address(path) as address:
            client.connect(address)
    except OSError:
        client.close()
        raise
    client.settimeout(None)
    return client


class _Address:
    """The path as a socket address; a long one is reached through a descriptor of its directory."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._directory: int | None = None

    def __enter__(self) -> str:
        text = str(self._path)
        if len(os.fsencode(text)) <= _PATH_BYTES_MAX:
            return text
        self._directory = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        return f"/proc/self/fd/{self._directory}/{self._path.name}"

    def __exit__(self, *_: object) -> None:
        if self._directory is not None:
            os.close(self._directory)


def encode_table(table: pa.Table) -> pa.Buffer:
    """A table as the bytes of an Arrow stream."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def _read(connection: socket.socket, size: int) -> bytearray:
    data = bytearray(size)
    view = memoryview(data)
    while view:
        count = connection.recv_into(view)
        if count == 0:
            raise Disconnected("the other side closed the connection")
        view = view[count:]
    return data
