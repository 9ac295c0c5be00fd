"""Where a warehouse may be: paths and file: addresses are folders; whatever else has a scheme is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import ladle
from ladle.archive.folder import local_folder
from ladle.backup.copying import restore
from ladle.cli import EXIT_ERROR, main
from ladle.client import open_warehouse
from ladle.errors import LadleError, Unsupported, WarehouseError

ELSEWHERE = ("s3://bucket/lake", "s3a://bucket", "hdfs://name:8020/lake", "gs://b/x", "abfss://c@a.net/x", "dbfs:/x")


@pytest.fixture(autouse=True)
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("where", [*ELSEWHERE, "S3://Bucket", "what+ever.1://x"])
def test_an_address_is_refused_and_makes_no_folder(where: str, empty: Path) -> None:
    scheme = where.partition(":")[0].lower()
    for given in (where, Path(where)):
        with pytest.raises(Unsupported, match=f"{scheme}: is none".replace("+", r"\+")):
            ladle.connect(given)
        with pytest.raises(Unsupported):
            ladle.connect(given, read_only=True)
        with pytest.raises(Unsupported):
            open_warehouse(given)
    assert list(empty.iterdir()) == []


@pytest.mark.parametrize(
    ("where", "folder"),
    [
        ("file:///srv/lake", "/srv/lake"),
        ("file:/srv/lake", "/srv/lake"),
        ("FILE://localhost/srv/a%20lake", "/srv/a lake"),
        (Path("file:///srv/lake"), "/srv/lake"),
        ("lake", "lake"),
        ("./s3:/lake", "s3:/lake"),
        ("C:/lake", "C:/lake"),
        ("~", str(Path.home())),
    ],
)
def test_paths_and_file_addresses_are_folders(where: str | Path, folder: str) -> None:
    assert local_folder(where) == Path(folder)


@pytest.mark.parametrize("where", ["file://elsewhere/lake", "file:lake", "file:", "http://host:8642", "host:8642"])
def test_what_is_no_folder_of_this_machine_is_told(where: str) -> None:
    with pytest.raises(WarehouseError) as told:
        local_folder(where)
    assert told.value.hint is not None


def test_a_file_address_opens_the_warehouse(empty: Path) -> None:
    with ladle.connect(f"file://{empty}/lake") as db:
        db.sql("CREATE STREAM s (n INT)")
    with ladle.connect("lake", read_only=True) as db:
        assert [stream.name for stream in db.streams()] == ["s"]


@pytest.mark.parametrize(
    "command",
    [
        ["sql", "-c", "CREATE STREAM s (n INT)"],
        ["sql", "-c", "SELECT 1"],
        ["queries"],
        ["push", "s", "rows.csv"],
        ["register", "q", "SELECT 1"],
        ["status"],
        ["serve"],
        ["backup", "elsewhere"],
        ["restore", "."],
        ["demo"],
    ],
)
def test_the_command_line_refuses_it(
    command: list[str], empty: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (empty / "rows.csv").write_text("n\n1\n")
    name, *rest = command
    assert main([name, "-w", "s3://bucket/lake", *rest]) == EXIT_ERROR
    assert "s3: is none" in capsys.readouterr().err
    if name != "demo":
        monkeypatch.setenv("LADLE_WAREHOUSE", "gs://bucket/lake")
        assert main(command) == EXIT_ERROR
        assert "gs: is none" in capsys.readouterr().err
    assert [each.name for each in empty.iterdir()] == ["rows.csv"]


def test_a_backup_is_in_a_folder_too(empty: Path) -> None:
    with ladle.connect(empty / "lake") as db:
        with pytest.raises(Unsupported, match="A backup can't be at 's3://bucket'"):
            db.backup("s3://bucket")
        db.backup(f"file://{empty}/saved")
    with pytest.raises(Unsupported, match="gs: is none"):
        restore("gs://bucket", "again")
    restore("saved", f"file://{empty}/again")
    assert sorted(each.name for each in empty.iterdir()) == ["again", "lake", "saved"]


def test_a_server_is_not_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["sql", "-w", "http://127.0.0.1:1", "-c", "SELECT 1"]) == EXIT_ERROR
    assert "--url http://127.0.0.1:1" in capsys.readouterr().err
    with pytest.raises(LadleError, match="settings can't be chosen for a server"):
        ladle.connect("HTTP://127.0.0.1:1", settings={})
