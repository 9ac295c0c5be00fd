"""The way to the process on this machine that holds a warehouse: the socket in it."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

import pyarrow as pa

from ladle.errors import WarehouseError
from ladle.json_values import JsonFields
from ladle.protocols import forms, wire


class SocketTransport:
    """One connection; those who ask at the same time take turns."""

    def __init__(self, warehouse: Path) -> None:
        self._warehouse = warehouse
        self._path = warehouse / "ladle.sock"
        self._connection = wire.dial(self._path)
        self._lock = threading.Lock()

    def ask(self, request: JsonFields, tables: list[pa.Table]) -> tuple[JsonFields, list[pa.Table]]:
        """Send a request through the socket, and wait for the reply, in as many messages as it has. One at a time."""
        with self._lock:
            try:
                wire.send(self._connection, request, tables)
                header, replies = wire.receive(self._connection)
                while header.get("more"):
                    following, tables = wire.receive(self._connection)
                    header = forms.joined_headers(header, following)
                    replies += tables
            except KeyboardInterrupt:
                # This answer is still to come, and must not be taken for the next one.
                self._connection.close()
                with contextlib.suppress(OSError):
                    self._connection = wire.dial(self._path)
                raise
            except (wire.Disconnected, OSError) as error:
                raise WarehouseError(
                    f"The process that holds the warehouse {self._warehouse} went away: {error}",
                    hint="what it had acknowledged is safe; try again",
                ) from None
        if "error" in header:
            raise forms.error_from_json(header["error"])
        return header, replies

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
