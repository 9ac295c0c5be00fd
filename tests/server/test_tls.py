"""A server with a certificate, and its settings from a file."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme
from tests.server.conftest import TICKS, Serve

import ladle
from ladle.config import Settings
from ladle.engine import Database
from ladle.errors import LadleError, WarehouseError
from ladle.protocols.http.process import Server


@pytest.fixture
def authority(tmp_path: Path) -> tuple[Path, Path]:
    """The files of an authority's certificate, and of a server's with its key."""
    made = trustme.CA()
    own, server = tmp_path / "authority.pem", tmp_path / "server.pem"
    made.cert_pem.write_to_path(str(own))
    made.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(server))
    return own, server


def test_https(serve: Serve, authority: tuple[Path, Path]) -> None:
    trusted, certificate = authority
    db, url = serve(tls_certificate=str(certificate), anonymous="nobody")
    db.sql(TICKS)
    token = db.create_token("me", "reader")
    assert url.startswith("https://")
    with ladle.connect(url, token=token, certificate=str(trusted)) as remote:
        assert remote.sql("SHOW STREAMS").to_pylist()[0]["name"] == "ticks"
    with pytest.raises(WarehouseError, match="certificate"):
        ladle.connect(url, token=token).sql("SHOW STREAMS")


@pytest.mark.parametrize("content", [None, "nonsense"])
def test_a_certificate_that_can_not_be_used_is_said(
    served: tuple[Database, str], tmp_path: Path, content: str | None
) -> None:
    file = tmp_path / "cert.pem"
    if content is not None:
        file.write_text(content)
    with pytest.raises(LadleError, match="certificate can't be used"):
        Server(served[0], Settings.load({"port": 0, "tls_certificate": str(file)}))


def test_a_port_that_is_taken_is_said(served: tuple[Database, str]) -> None:
    db, url = served
    with pytest.raises(LadleError, match=r"Can't listen on 127\.0\.0\.1"):
        Server(db, Settings.load({"port": int(url.rpartition(":")[2])}))


def test_settings_come_from_a_file_the_environment_and_flags(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "ladle.toml"
    file.write_text('port = 1\nhost = "::1"\nrequests_max = 7\n')
    monkeypatch.setenv("LADLE_PORT", "2")
    settings = Settings.load({"requests_max": 9}, file)
    assert (settings.host, settings.port, settings.requests_max) == ("::1", 2, 9)
    file.write_text("prot = 1\n")
    with pytest.raises(LadleError, match=r"There is no setting 'prot' \(in "):
        Settings.load(file=file)
    file.write_text("port =\n")
    with pytest.raises(LadleError, match="not TOML"):
        Settings.load(file=file)
    with pytest.raises(LadleError, match="Can't read the settings"):
        Settings.load(file=tmp_path / "none.toml")
    with pytest.raises(LadleError, match="anonymous can't be 'all'"):
        Settings.load({"anonymous": "all"})
