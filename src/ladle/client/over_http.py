"""The way to a server: its HTTP interface. Tables travel as Arrow, several to a message (`protocols/wire.py`)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urlsplit

import pyarrow as pa

from ladle.errors import Closed, Gone, LadleError, Unreachable, WarehouseError
from ladle.json_values import JsonFields
from ladle.protocols import forms, wire
from ladle.protocols.wire import ANSWERS, ARROW

if TYPE_CHECKING:
    import ssl

    import httpx

_CONNECT_SECONDS_MAX = 10.0
_PATIENCE_SECONDS = 10.0
"""How much longer than the server's own limit an answer is waited for."""
_INVOKE_SECONDS_MAX = 600.0
_TRIES_MAX = 3
"""How often changes are asked for whose further pieces the server let go of."""


class Route(NamedTuple):
    """How a call of the client is a request to the server."""

    method: str
    path: str
    """With `{names}` of what the request has."""
    query: tuple[str, ...] = ()
    """What goes into the address."""
    body: Callable[[JsonFields], JsonFields] | None = None
    """What goes into the body as JSON."""


def _all(request: JsonFields) -> JsonFields:
    return {name: value for name, value in request.items() if name != "do"}


ROUTES = {
    "execute": Route("POST", "/v1/sql", body=lambda request: {"sql": request["text"]}),
    "invoke": Route("GET", "/v1/queries/{name}/answer", ("now",)),
    "changes": Route(
        "GET",
        "/v1/queries/{name}/changes",
        ("since", "seconds", "snapshot", "expirations", "relation", "upto"),
    ),
    "register": Route("POST", "/v1/queries", body=_all),
    "unregister": Route("DELETE", "/v1/queries/{name}", ("cascade", "if_exists")),
    "query": Route("GET", "/v1/queries/{name}"),
    "queries": Route("GET", "/v1/queries", ("after",)),
    "explain": Route("POST", "/v1/explain", body=_all),
    "push": Route("POST", "/v1/streams/{stream}/rows", ("wait",)),
    "heartbeat": Route("POST", "/v1/streams/{stream}/heartbeat", body=lambda request: {"at": request["at"]}),
    "streams": Route("GET", "/v1/streams"),
    "create_table": Route("POST", "/v1/tables", body=_all),
    "drop_table": Route("DELETE", "/v1/tables/{name}", ("cascade", "if_exists")),
    "insert": Route("POST", "/v1/tables/{table}/rows"),
    "tables": Route("GET", "/v1/tables"),
    "create_function": Route("POST", "/v1/functions", body=_all),
    "drop_function": Route("DELETE", "/v1/functions/{name}", ("cascade", "if_exists")),
    "functions": Route("GET", "/v1/functions"),
    "status": Route("GET", "/v1/status"),
    "pulse": Route("GET", "/v1/pulse"),
}


class HttpTransport:
    """May be used by several threads at a time."""

    def __init__(self, url: str, token: str | None = None, *, certificate: str | None = None) -> None:
        """`certificate` is a file with the authority to trust, if the server's is not a public one's."""
        import httpx

        self.url = _address(url)
        headers = {} if token is None else {"Authorization": f"Bearer {_checked(token)}"}
        verify = True if certificate is None else _trusting(certificate)
        self._client: httpx.Client = httpx.Client(
            base_url=self.url,
            headers=headers,
            verify=verify,
            # What is asked of a server is not for a proxy that the environment names.
            trust_env=False,
            timeout=httpx.Timeout(_INVOKE_SECONDS_MAX + _PATIENCE_SECONDS, connect=_CONNECT_SECONDS_MAX),
        )

    def ask(self, request: JsonFields, tables: list[pa.Table]) -> wire.Message:
        """Send a request over HTTP, and wait for the response."""
        route = ROUTES[request["do"]]
        path = route.path.format_map({name: quote(str(value), safe="") for name, value in request.items()})
        query = {name: _text(request[name]) for name in route.query if request.get(name) is not None}
        headers = {"Accept": ANSWERS}
        if request.get("key") is not None:
            headers["Idempotency-Key"] = quote(request["key"], safe="")
        content: bytes | None = None
        if tables:
            headers["Content-Type"] = ARROW
            content = wire.encode_table(tables[0]).to_pybytes()
        for _ in range(_TRIES_MAX):
            header, replies = self._send(route, path, query, headers, content, request)
            if request["do"] != "changes":
                return self._with_answers(header, replies, request)
            try:
                return self._with_deltas(header, replies, request)
            except Gone:  # the pages: the server was started anew, or had many. Nothing was told yet
                continue
        raise Unreachable(
            f"The server at {self.url} lets go of large changes before they are fetched.",
            hint="ask again, or have the setting pages_bytes_max raised",
        )

    def _with_answers(
        self, header: JsonFields, replies: list[pa.Table], request: JsonFields
    ) -> tuple[JsonFields, list[pa.Table]]:
        """A response with the further pages of its answers, and of what it lists."""
        for number, answer in enumerate(header.get("answers", ())):
            while answer.get("next"):
                more, (page,) = self._page(answer["next"], request)
                replies[number] = pa.concat_tables([replies[number], page])
                answer["next"] = more["answers"][0].get("next")
        while header.get("next"):
            more, _ = self._page(header["next"], request)
            listed = {request["do"]: [*header[request["do"]], *more[request["do"]]]}
            header = {**header, **listed, "next": more.get("next")}
        return header, replies

    def _with_deltas(
        self, header: JsonFields, replies: list[pa.Table], request: JsonFields
    ) -> tuple[JsonFields, list[pa.Table]]:
        """A response with the further pieces of its deltas."""
        while header.get("next"):
            following, tables = self._page(header["next"], request)
            header = forms.joined_headers(header, following)
            replies += tables
        return header, replies

    def _page(self, path: str, request: JsonFields) -> tuple[JsonFields, list[pa.Table]]:
        return self._send(Route("GET", ""), path, {}, {"Accept": ANSWERS}, None, request)

    def _send(
        self,
        route: Route,
        path: str,
        query: dict[str, str],
        headers: dict[str, str],
        content: bytes | None,
        request: JsonFields,
    ) -> wire.Message:
        import httpx

        if self._client.is_closed:
            raise Closed
        body = None if route.body is None else route.body(request)
        try:
            # Empty parameters would take those away that the path has.
            reply = self._client.request(
                route.method, path, params=query or None, headers=headers, content=content, json=body
            )
        except httpx.HTTPError as error:
            raise Unreachable(
                f"The server at {self.url} does not answer: {error or type(error).__name__}.",
                hint="is it running (`ladle serve`), and is the address right? What it acknowledged is safe",
            ) from None
        try:
            if reply.headers.get("content-type", "").startswith(ANSWERS):
                return wire.unpack(reply.content)
            value = reply.json()
            if "error" in value:
                told = forms.error_from_json(value["error"])
                # A database that is closed is the client's own; a server that closes one may be back soon.
                raise Unreachable(f"The server at {self.url} is stopping.") if isinstance(told, Closed) else told
            if reply.is_success and isinstance(value, dict):
                return value, []
        except (ValueError, TypeError, KeyError):
            pass
        raise WarehouseError(f"What answers at {self.url} is no Ladle: {reply.status_code} {reply.text[:80]!r}.")

    def close(self) -> None:
        """Close the connections."""
        self._client.close()


def _address(url: str) -> str:
    try:
        parts = urlsplit(url)
        fits = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    if not fits:
        raise LadleError(f"'{url}' is not the address of a server.", hint="it is like http://127.0.0.1:8642")
    if parts.username or parts.password:
        raise LadleError("The address of a server has no user and password in it.", hint="a token says who asks")
    return url.rstrip("/")


def _checked(token: str) -> str:
    """A token goes into a header; what can't go there would be shown in the error."""
    token = token.strip()
    if not token.isascii() or not token.isprintable() or " " in token:
        raise LadleError("That is not a token: it has characters that no token has.")
    return token


def _trusting(certificate: str) -> ssl.SSLContext:
    import ssl

    try:
        return ssl.create_default_context(cafile=certificate)
    except OSError as error:
        raise LadleError(f"The certificate '{certificate}' can't be used: {error.strerror or error}.") from None


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
