"""What a program is told when it does not reach a server, or no longer."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.engine.rows import values
from tests.waiting import wait_until

import ladle
from ladle import handles
from ladle.config import Settings
from ladle.errors import Closed, LadleError, Unauthenticated, Unreachable
from ladle.protocols.http.process import Server
from ladle.testing import connect_inline


def test_an_address_without_its_scheme_makes_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for where in ("127.0.0.1:8642", "localhost:8642/", "ladle.example.org:80/console"):
        with pytest.raises(LadleError) as told:
            ladle.connect(where)
        assert f"http://{where}" in (told.value.hint or "")
    assert list(tmp_path.iterdir()) == []


def test_errors_of_a_client_have_their_kinds(tmp_path: Path) -> None:
    with connect_inline(tmp_path / "warehouse") as db:
        server = Server(db, Settings.load({"port": 0}))
        server.start()
        try:
            with pytest.raises(Unauthenticated):
                ladle.connect(server.url, token="ladle_nobodys").streams()
            client = ladle.connect(server.url)
            client.close()
            with pytest.raises(Closed):
                client.streams()
        finally:
            server.stop()


def test_a_subscriber_outlives_its_server(tmp_path: Path) -> None:
    """It goes on where it was when another server is there; nothing is missed and nothing told twice."""
    heard: list[int] = []
    with connect_inline(tmp_path / "warehouse") as db:
        db.sql("CREATE STREAM s (n INT)")
        db.register("SELECT n FROM s", name="q")
        server = Server(db, Settings.load({"port": 0}))
        server.start()
        listener = ladle.connect(server.url).query("q").subscribe().call(lambda change: heard.extend(values(change)))
        db.push("s", [{"n": 1}], wait=True)
        wait_until(lambda: heard == [1], "it does not hear")
        server.stop()
        db.push("s", [{"n": 2}], wait=True)
        again = Server(db, Settings.load({"port": int(server.url.rpartition(":")[2])}))
        again.start()
        try:
            wait_until(lambda: heard == [1, 2], "it does not come back")
        finally:
            listener.stop()
            again.stop()


def test_a_server_that_stays_away_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect_inline(tmp_path / "warehouse") as db:
        db.sql("CREATE STREAM s (n INT)")
        db.register("SELECT n FROM s", name="q")
        server = Server(db, Settings.load({"port": 0}))
        server.start()
        changes = ladle.connect(server.url).query("q").subscribe()
        server.stop()
        assert changes.next(0.7) is None
        monkeypatch.setattr(handles, "_ABSENCE_SECONDS_MAX", 0.5)
        with pytest.raises(Unreachable):
            changes.next(5.0)
