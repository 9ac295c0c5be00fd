"""Reaching a warehouse that another process of this machine holds for writing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ladle.engine import Database
from ladle.errors import WarehouseBusy, WarehouseError
from ladle.remote.client import RemoteDatabase

__all__ = ["RemoteDatabase", "open_warehouse"]


def open_warehouse(
    path: str | Path, *, read_only: bool = False, settings: dict[str, Any] | None = None
) -> Database | RemoteDatabase:
    """The warehouse through the process that holds it, if one does; else opened here.

    With `read_only` it is always opened here, beside whoever writes.
    """
    from ladle.connection import connect

    if read_only:
        return connect(path, read_only=True, settings=settings)
    try:
        return connect(path, settings=settings)
    except WarehouseBusy as busy:
        root = Path(path)
        try:
            return RemoteDatabase(root, root / "ladle.sock")
        except OSError as error:
            raise WarehouseError(
                f"{busy.message} It does not answer on its socket ({error}).",
                hint="wait until it is done, or read with read_only=True",
            ) from None
