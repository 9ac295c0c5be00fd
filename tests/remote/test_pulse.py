"""The pulse is the same wherever it is asked for: here, through the socket, and from a server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import httpx

import ladle
from ladle.client import RemoteDatabase, SocketTransport
from ladle.config import Settings
from ladle.connection import serve
from ladle.protocols.http.process import Server
from ladle.status import Pulse
from ladle.testing import connect_inline


def settled(pulse: Pulse) -> Pulse:
    """Without what moves between two looks."""
    streams = tuple(replace(stream, rows_per_second=0.0) for stream in pulse.streams)
    return replace(pulse, streams=streams, subscribers=None, cache_hits=0, cache_misses=0)


def test_it_is_the_same_from_everywhere(tmp_path: Path) -> None:
    with connect_inline(tmp_path / "warehouse") as db:
        serve(db)
        db.sql("CREATE STREAM trades (symbol STRING, price DOUBLE, at TIMESTAMP) TIMESTAMP BY at")
        db.register_many({f"q{n}": f"SELECT symbol FROM trades WHERE price > {n}" for n in range(100)})
        for n in range(3):
            db.push("trades", [{"symbol": "IBM", "price": n, "at": f"2026-01-30 14:30:0{n}"}], wait=True)
        db.invoke("q1")
        server = Server(db, Settings.load({"port": 0}))
        server.start()
        try:
            with RemoteDatabase(SocketTransport(tmp_path / "warehouse")) as near, ladle.connect(server.url) as far:
                assert settled(near.pulse()) == settled(far.pulse()) == settled(db.pulse())
                assert (near.pulse().subscribers, far.pulse().subscribers) == (None, 0)
                assert near.pulse().queries == 100
                assert near.pulse().invocations == 1
            with httpx.Client(base_url=server.url, trust_env=False) as client:
                assert client.get("/v1/pulse").json()["pulse"]["streams"][0]["name"] == "trades"
                stranger = client.get("/v1/pulse", headers={"Authorization": "Bearer ladle_wrong"})
                assert stranger.status_code == 401
        finally:
            server.stop()
