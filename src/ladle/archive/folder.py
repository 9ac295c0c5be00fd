"""Where a warehouse may be: a folder of a file system. Addresses of object storage and of servers are refused."""

from __future__ import annotations

import re
from pathlib import Path
from urllib.parse import unquote

from ladle.errors import Unsupported, WarehouseError

_ADDRESS = re.compile(r"(?P<scheme>file(?=:)|[A-Za-z][A-Za-z0-9+.-]+(?=:/)):/*(?P<rest>.*)", re.IGNORECASE | re.DOTALL)
"""One slash is enough: that is what a Path makes of two. A scheme has two letters, so that `C:/` is none."""
_FILE = re.compile(r"file:(//(localhost)?)?(?P<path>/[^/].*|/)", re.IGNORECASE | re.DOTALL)
_HOST_AND_PORT = re.compile(r"[\w.-]+:\d+(/.*)?")


def local_folder(where: str | Path, *, what: str = "A warehouse") -> Path:
    """The folder that is meant: a path, `~` for the home directory, or an address `file:///...`."""
    text = str(where)
    if (file := _FILE.fullmatch(text)) is not None:
        return Path(unquote(file["path"]))
    if (address := _ADDRESS.fullmatch(text)) is not None:
        raise _refused(text, address["scheme"].lower(), address["rest"], what)
    if isinstance(where, str) and _HOST_AND_PORT.fullmatch(where):
        raise WarehouseError(
            f"'{where}' is neither a server's address nor a folder's name.",
            hint=f"for a server http://{where}, for a folder ./{where}",
        )
    return Path(where).expanduser()


def _refused(text: str, scheme: str, rest: str, what: str) -> WarehouseError | Unsupported:
    if scheme == "file":
        return WarehouseError(
            f"'{text}' is not a folder of this machine.", hint="write file:///folder, or the path alone: /folder"
        )
    if scheme in ("http", "https"):
        server = f"{scheme}://{rest}"
        return WarehouseError(
            f"'{text}' is the address of a server, and a folder is wanted here.",
            hint=f"in Python ladle.connect('{server}'), at the command line --url {server}",
        )
    return Unsupported(
        f"{what} can't be at '{text}': it is a folder of a local or mounted file system, and {scheme}: is none.",
        hint="name a folder, like /srv/ladle; object storage and HDFS work where they are mounted as one",
    )
