"""Who counts as a program on the server's own machine: nobody behind a proxy."""

from __future__ import annotations

import httpx

from ladle.protocols.http.origin import is_local

OF_PROXIES = [
    "Forwarded",
    "Via",
    "X-Forwarded-For",
    "X-Forwarded-Host",
    "X-Forwarded-Port",
    "X-Forwarded-Prefix",
    "X-Forwarded-Proto",
    "X-Forwarded-Server",
    "X-Forwarded-Ssl",
    "X-Forwarded-Client-Cert",
    "X-Forwarded",
    "Forwarded-For",
    "X-Real-IP",
    "X-Client-IP",
    "Client-IP",
    "True-Client-IP",
    "X-Cluster-Client-IP",
    "X-ProxyUser-IP",
    "WL-Proxy-Client-IP",
    "Proxy-Connection",
    "X-Remote-Addr",
    "X-Originating-IP",
    "X-Original-URL",
    "X-Original-Forwarded-For",
    "X-Original-Host",
    "X-Scheme",
    "X-Url-Scheme",
    "Front-End-Https",
    "CF-Connecting-IP",
    "CF-Connecting-IPv6",
    "CF-Ray",
    "CF-Visitor",
    "CDN-Loop",
    "Fastly-Client-IP",
    "Fastly-SSL",
    "Fly-Client-IP",
    "X-Envoy-External-Address",
    "X-Amzn-Trace-Id",
    "X-Amz-Cf-Id",
    "X-ARR-LOG-ID",
    "X-Azure-ClientIP",
    "X-Appengine-User-IP",
    "X-Vercel-Id",
    "X-Nf-Client-Connection-Ip",
    "X-Varnish",
    "X-Akamai-Edgescape",
    "Tailscale-User-Login",
]
OF_PROGRAMS = [
    "Accept",
    "Accept-Encoding",
    "Accept-Language",
    "Cache-Control",
    "Connection",
    "Content-Length",
    "Content-Type",
    "Cookie",
    "DNT",
    "Expect",
    "Idempotency-Key",
    "If-None-Match",
    "Last-Event-ID",
    "Pragma",
    "Priority",
    "Sec-CH-UA",
    "Sec-CH-UA-Platform",
    "Sec-Fetch-Dest",
    "Sec-WebSocket-Extensions",
    "Sec-WebSocket-Key",
    "Sec-WebSocket-Version",
    "TE",
    "Traceparent",
    "Transfer-Encoding",
    "Upgrade",
    "Upgrade-Insecure-Requests",
    "User-Agent",
    "X-Request-Id",
    "X-Requested-With",
]


def test_any_sign_of_a_proxy_alone_means_that_a_token_is_needed(http: httpx.Client) -> None:
    assert http.get("/v1/me").json()["role"] == "admin"
    for name in OF_PROXIES:
        assert http.get("/v1/me", headers={name: "x"}).status_code == 401, name
        assert http.get("/v1/queries/q/answer", headers={name: ""}).status_code == 401, name


def test_what_programs_and_browsers_send_is_no_sign_of_a_proxy() -> None:
    headers = {name.lower().encode(): b"x" for name in OF_PROGRAMS} | {b"host": b"127.0.0.1:8642"}
    assert is_local({"client": ("127.0.0.1", 5), "http_version": "1.1"}, headers)


def test_http_1_0_is_what_a_silent_proxy_speaks() -> None:
    headers = {b"host": b"127.0.0.1:8642"}
    assert not is_local({"client": ("127.0.0.1", 5), "http_version": "1.0"}, headers)
