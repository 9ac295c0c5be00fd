"""`--master` and `--spark-conf`: who takes them, and what is said where they can't help. No JVM is started."""

from __future__ import annotations

import argparse
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import SparkConf
from tests.cli.conftest import Run

from ladle.cli import parser
from ladle.config import MEANING_OF_SQL, SparkStart
from ladle.connection import serve
from ladle.pipeline import spark_session as session
from ladle.testing import connect_inline


def test_every_command_that_may_start_spark_takes_them() -> None:
    (commands,) = (each for each in parser()._actions if isinstance(each, argparse._SubParsersAction))
    taking = {name for name, command in commands.choices.items() if "--spark-conf" in command.format_help()}
    assert taking == {"demo", "serve", "sql", "push", "register", "invoke", "explain"}
    assert all("--master" in commands.choices[name].format_help() for name in taking)


def test_secrets_stay_off_the_command_line_of_the_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[list[str]] = []
    monkeypatch.setattr(session.subprocess, "Popen", lambda command, **_: called.append(command))
    conf = {
        "spark.hadoop.fs.s3a.secret.key": "hush",
        "spark.cores.max": "2",
        "spark.executor.extraJavaOptions": "-Da=b",
    }
    settings = session.Start(SparkStart(conf=conf))._settings()
    session._spawn(SparkConf(loadDefaults=False).setAll(list(settings.items())), Path("address"), sys.stderr.buffer)
    ((_, *options),) = called
    assert "spark.cores.max=2" in options
    assert not any("hush" in option for option in options)
    assert settings["spark.hadoop.fs.s3a.secret.key"] == "hush"  # the session has it
    assert settings["spark.executor.extraJavaOptions"].endswith(" -Da=b")  # beside ours
    assert "log4j2" in settings["spark.executor.extraJavaOptions"]


def test_what_sql_means_is_not_for_them_to_say() -> None:
    assert tuple(session.SQL_SETTINGS) == MEANING_OF_SQL


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--url", "http://127.0.0.1:1", "--master", "yarn"], "a server has its own Spark"),
        (["--url", "http://127.0.0.1:1", "--spark-conf", "spark.a=b"], "a server has its own Spark"),
        (["--spark-conf", "spark.a"], "'spark.a' is not NAME=VALUE"),
    ],
)
def test_wrong_usage(ran: Run, argv: list[str], message: str) -> None:
    told = ran("sql", *argv, "-c", "SHOW STREAMS")
    assert told.code == 2
    assert message in told.err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--master", "sprak://h:1"], "'sprak://h:1' is not the address of a Spark master."),
        (["--spark-conf", "cores.max=1"], "'cores.max' is not a setting of Spark's."),
    ],
)
def test_nonsense_is_told_before_a_warehouse_is_made(ran: Run, tmp_path: Path, argv: list[str], message: str) -> None:
    told = ran("sql", "-w", str(tmp_path / "new"), *argv, "-c", "CREATE STREAM s (n INT)")
    assert told.code == 1
    assert message in told.err
    assert not (tmp_path / "new").exists()


def test_another_process_has_a_spark_of_its_own(ran: Run, tmp_path: Path) -> None:
    with connect_inline(tmp_path / "warehouse") as db:
        serve(db)
        db.sql("CREATE STREAM s (n INT)")
        for command in (("sql", "-c", "INSERT INTO s VALUES (1)"), ("explain", "SELECT n FROM s")):
            told = ran(command[0], "-w", str(tmp_path / "warehouse"), "--master", "yarn", *command[1:])
            assert told.code == 1
            assert "Another process has the warehouse open" in told.err
            assert "leave out --master and --spark-conf" in told.err


def test_a_master_that_nobody_reaches_is_told_at_once(tmp_path: Path) -> None:
    """Spark itself would try for a minute. What was pushed is safe, for a Spark that is there."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and nobody listens
        master = f"spark://127.0.0.1:{taken.getsockname()[1]}"
        place = ["-w", str(tmp_path / "warehouse"), "--master", master]
        text = "CREATE STREAM s (n INT); INSERT INTO s VALUES (1)"
        told = subprocess.run(
            [sys.executable, "-m", "ladle.cli", "sql", *place, "-c", text],
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
    assert told.returncode == 1
    assert f"The Spark master {master} can't be reached: [Errno 111] Connection refused." in told.stderr
    assert "the rows are safe in the inbox" in told.stderr
    assert "--master" in told.stderr
