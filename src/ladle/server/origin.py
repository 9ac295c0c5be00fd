"""Where a request comes from: who is on this machine needs no token, and who only seems to be does."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from functools import lru_cache
from typing import Any
from urllib.parse import urlsplit

Scope = MutableMapping[str, Any]

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_NAME_MAX = 300
"""Longer ones are no host's: a name has 253 characters at most."""
_FORWARDED = (b"forwarded", b"x-forwarded-for", b"x-forwarded-host", b"x-real-ip", b"via")


def is_local(scope: Scope, headers: Mapping[bytes, bytes]) -> bool:
    """Whether a request comes from a program on this machine; not from a page of some web site that a browser here has
    open (such a page may send requests to this address, but not under this name, nor from this origin), and not from
    elsewhere through a proxy here.
    """
    client = scope.get("client")
    if client is None or client[0] not in _LOOPBACK or any(name in headers for name in _FORWARDED):
        return False
    if headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
        return False
    host, origin = headers.get(b"host", b""), headers.get(b"origin")
    return len(host) <= _NAME_MAX and len(origin or b"") <= _NAME_MAX and _is_ours(host, origin)


@lru_cache(maxsize=64)
def _is_ours(host: bytes, origin: bytes | None) -> bool:
    name = host.decode("latin-1")
    try:
        local = urlsplit(f"//{name}").hostname in _LOOPBACK
        return local and (origin is None or urlsplit(origin.decode("latin-1")).netloc == name)
    except ValueError:
        return False
