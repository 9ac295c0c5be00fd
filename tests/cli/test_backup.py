"""`ladle backup` and `ladle restore`, alone and beside the process that holds the warehouse."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest
from tests.cli.conftest import Run
from tests.server.conftest import TICKS, Serve, serve

from ladle.connection import serve as serve_socket
from ladle.testing.inline import connect_inline

__all__ = ["serve"]


def test_a_warehouse_is_backed_up_and_restored(trades: Run, tmp_path: Path) -> None:
    backup, restored = tmp_path / "backup", tmp_path / "restored"
    made = trades("backup", str(backup))
    assert (made.code, made.err) == (0, "")
    assert "segments" in made.out
    assert f"is backed up in {backup}" in made.out
    again = trades("backup", str(backup), "--format", "json")
    assert {row["part"]: row["copied_files"] for row in map(json.loads, again.out.splitlines())} == {
        "segments": 0,
        "log": 0,
    }
    back = trades("restore", str(backup), "-w", str(restored))
    assert back.code == 0
    assert f"look at it: ladle status -w {restored}" in back.out
    assert trades("invoke", "dear", "-w", str(restored)).out == trades("invoke", "dear").out
    taken = trades("restore", str(backup), "-w", str(restored))
    assert taken.code == 1
    assert taken.err.startswith(f"error: '{restored}' is not empty")


def test_beside_the_process_that_writes(run: Run, warehouse: Path, tmp_path: Path) -> None:
    with connect_inline(warehouse) as db:
        serve_socket(db)
        db.sql(TICKS)
        db.push("ticks", [{"n": 1, "at": "2026-01-01T00:00:00Z"}], wait=True)
        assert run("backup", str(tmp_path / "backup")).code == 0
        db.push("ticks", [{"n": 2, "at": "2026-01-01T00:00:00Z"}], wait=True)
    assert run("restore", str(tmp_path / "backup"), "-w", str(tmp_path / "restored")).code == 0
    assert (
        run("sql", "-w", str(tmp_path / "restored"), "-c", "SELECT n FROM ticks", "--format", "csv").out == '"n"\n1\n'
    )


def test_what_is_wrong_is_told_in_a_line(run: Run, warehouse: Path, tmp_path: Path) -> None:
    missing = run("backup", str(tmp_path / "backup"))
    assert missing.code == 1
    assert "There is no warehouse" in missing.err
    assert not (tmp_path / "backup").exists()
    none = run("restore", str(tmp_path / "backup"))
    assert none.code == 1
    assert "There is no backup" in none.err
    assert not warehouse.exists()


@pytest.mark.usefixtures("run")
def test_a_server_backs_itself_up_for_admins(serve: Serve, ran: Run, tmp_path: Path) -> None:
    db, url = serve()
    db.sql(TICKS)
    target = tmp_path / "backup"
    made = ran("backup", str(target), "--url", url)
    assert (made.code, made.err) == (0, "")
    assert (target / "BACKUP").exists()
    relative = ran("backup", "here", "--url", url)
    assert relative.code == 1
    assert "the directory is the server's" in relative.err
    writer = ran("backup", str(target), "--url", url, "--token", db.create_token("bob", "writer"))
    assert writer.code == 1
    assert "back the warehouse up" in writer.err
    with httpx.Client(base_url=url, trust_env=False, timeout=30) as http:
        told = http.post("/v1/sql", json={"sql": f"BACKUP TO '{target}'"})
    assert told.status_code == 200
    assert "is backed up in" in told.text
