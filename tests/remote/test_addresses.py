"""What a program is told when it does not reach a server, or no longer."""

from __future__ import annotations

from pathlib import Path

import pytest

import ladle
from ladle.config import Settings
from ladle.errors import Closed, LadleError, Unauthenticated
from ladle.server.run import Server
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
