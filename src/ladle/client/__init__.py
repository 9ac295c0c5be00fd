"""Reaching a warehouse that another process of this machine holds for writing."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from ladle.archive.folder import local_folder
from ladle.client.over_socket import SocketTransport
from ladle.client.remote_database import RemoteDatabase
from ladle.engine import Database
from ladle.errors import WarehouseBusy, WarehouseError

_PATIENCE_SECONDS = 2.0

__all__ = ["RemoteDatabase", "SocketTransport", "open_warehouse"]


def open_warehouse(
    path: str | Path, *, read_only: bool = False, settings: Mapping[str, object] | None = None
) -> Database | RemoteDatabase:
    """The warehouse through the process that holds it, if one does; else opened here.

    With `read_only` it is always opened here, beside whoever writes.
    """
    from ladle.connection import open_database

    if read_only:
        return open_database(path, read_only=True, settings=settings)
    root = local_folder(path)
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            return open_database(path, settings=settings)
        except WarehouseBusy as busy:
            try:
                return RemoteDatabase(SocketTransport(root))
            except OSError as error:
                # The other process may be opening or closing it just now.
                if time.monotonic() > deadline:
                    raise WarehouseError(
                        f"{busy.message} It does not answer on its socket ({error}).",
                        hint="wait until it is done, or read with read_only=True",
                    ) from None
        time.sleep(0.05)
