"""Where a request comes from: who is on this machine needs no token, and who only seems to be does."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_FORWARDED = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via")


def is_local(scope: Scope) -> bool:
    """Whether a request comes from a program on this machine; not from a page of some web site that a browser here has
    open (such a page may send requests to this address, but not under this name, nor from this origin), and not from
    elsewhere through a proxy here.
    """
    client = scope.get("client")
    headers = dict(scope["headers"])
    if client is None or client[0] not in _LOOPBACK or any(name in headers for name in _FORWARDED):
        return False
    if headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
        return False
    host = headers.get(b"host", b"").decode("latin-1")
    origin = headers.get(b"origin")
    try:
        name = urlsplit(f"//{host}").hostname or ""
        same = origin is None or urlsplit(origin.decode("latin-1")).netloc == host
    except ValueError:
        return False
    return name in _LOOPBACK and same
