"""Where a request comes from: who is on this machine needs no token, and who only seems to be does."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from starlette.types import Scope

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_NAME_MAX = 300
"""Longer ones are no host's: a name has 253 characters at most."""
# Headers by which proxies, load balancers and content networks tell of themselves or of whom they speak for. Each has
# names of its own, so they are known by what such names have in common.
_OF_PROXIES = re.compile(
    r"forward|prox(y|ied)|(client|connecting|real|remote|originating|cluster)-?(ip|addr|host)"
    r"|^x-(original|scheme|url-scheme|host|ssl|varnish|envoy|amzn?|arr|azure|appengine|akamai|vercel|nf)\b"
    r"|^(via|cf|cdn|fly|fastly|akamai|tailscale|incap|true-client|front-end|ssl)\b"
)


def is_local(scope: Scope, headers: Mapping[bytes, bytes]) -> bool:
    """Whether a request comes from a program on this machine.

    Not from a page of some web site that a browser here has open: such a page may send requests to this address, but
    not under this name, nor from this origin. And not from elsewhere through a proxy here: any sign of one is enough.
    """
    client = scope.get("client")
    if client is None or client[0] not in _LOOPBACK:
        return False
    # Programs of today speak HTTP/1.1; a proxy that was told nothing, and says nothing, speaks 1.0.
    if scope.get("http_version") == "1.0" or any(map(_tells_of_a_proxy, headers)):
        return False
    if headers.get(b"sec-fetch-site", b"none") not in (b"none", b"same-origin"):
        return False
    host, origin = headers.get(b"host", b""), headers.get(b"origin")
    return len(host) <= _NAME_MAX and len(origin or b"") <= _NAME_MAX and _is_ours(host, origin)


@lru_cache(maxsize=256)
def _tells_of_a_proxy(header: bytes) -> bool:
    return _OF_PROXIES.search(header.decode("latin-1").lower()) is not None


@lru_cache(maxsize=64)
def _is_ours(host: bytes, origin: bytes | None) -> bool:
    name = host.decode("latin-1")
    try:
        local = urlsplit(f"//{name}").hostname in _LOOPBACK
        return local and (origin is None or urlsplit(origin.decode("latin-1")).netloc == name)
    except ValueError:
        return False
