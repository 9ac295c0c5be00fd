"""`ladle serve`, as a process."""

from __future__ import annotations

import argparse
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

from ladle.cli import parser
from ladle.cli.serve import settings_of
from ladle.errors import LadleError


def arguments(*argv: str) -> argparse.Namespace:
    return parser().parse_args(["serve", *argv])


def serving(tmp_path: Path, *argv: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "ladle.cli", "serve", "-w", str(tmp_path / "warehouse"), *argv],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r" at (http://127\.0\.0\.1:\d+) ", line)
    assert found is not None, line
    return found[1]


def test_a_flag_counts_more_than_the_environment_and_that_more_than_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "ladle.toml"
    file.write_text('host = "127.0.0.2"\nport = 1001\nrequests_max = 7\npage_rows_max = 70\nanonymous = "nobody"\n')
    monkeypatch.setenv("LADLE_PORT", "1002")
    monkeypatch.setenv("LADLE_REQUESTS_MAX", "8")
    argv = ("--config", str(file), "--port", "1003", "--set", "anonymous=loopback")
    settings = settings_of(arguments(*argv))
    assert (settings.host, settings.port, settings.requests_max) == ("127.0.0.2", 1003, 8)
    assert (settings.page_rows_max, settings.anonymous) == (70, "loopback")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--port", "many"], "--port='many' is not a int"),
        (["--set", "port"], "'port' is not a setting"),
        (["--set", "colour=red"], "There is no setting 'colour'"),
        (["--set", "anonymous=everybody"], "can't be 'everybody'"),
        (["--config", "/nowhere.toml"], "Can't read the settings in '/nowhere.toml'"),
    ],
)
def test_settings_that_make_no_sense_are_refused(argv: list[str], message: str) -> None:
    with pytest.raises(LadleError, match=re.escape(message)):
        settings_of(arguments(*argv))


def test_where_spark_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "ladle.toml"
    file.write_text('spark_master = "yarn"\n[spark_conf]\nspark.cores.max = 4\nspark.task.cpus = 1\n')
    assert settings_of(arguments("--config", str(file))).spark.master == "yarn"
    monkeypatch.setenv("LADLE_SPARK_MASTER", "local[3,4]")
    assert settings_of(arguments("--config", str(file))).spark.master == "local[3,4]"
    typed = ("--master", "spark://h:7077", "--spark-conf", "spark.cores.max=6", "--spark-conf", "spark.a.b=c=d")
    settings = settings_of(arguments("--config", str(file), "--set", "spark_conf=spark.e=f", *typed))
    assert settings.spark.master == "spark://h:7077"
    assert settings.spark.conf == {
        "spark.cores.max": "6",
        "spark.task.cpus": "1",
        "spark.a.b": "c=d",
        "spark.e": "f",
    }


def test_a_port_that_is_taken_is_one_clear_message(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        process = serving(tmp_path, "--port", port)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    told = [line for line in err.splitlines() if "INFO" not in line]
    assert len(told) == 2, err
    assert told[0].startswith(f"error: Can't listen on 127.0.0.1:{port}: ")
    assert told[1] == "  hint: is another server running there? --port chooses another"


@pytest.mark.spark
def test_it_serves_until_it_is_told_to_end(tmp_path: Path) -> None:
    file = tmp_path / "ladle.toml"
    file.write_text("port = 1\npage_rows_max = 2\n")
    process = serving(tmp_path, "--config", str(file), "--port", "0", LADLE_PORT="2")
    try:
        url = address(process)
        with httpx.Client(base_url=url, trust_env=False, timeout=120) as client:
            assert client.get("/healthz").json() == {"status": "alive"}
            statements = ("CREATE STREAM ticks (n INT)", "CREATE QUERY q AS SELECT n FROM ticks ORDER BY n")
            for text in (*statements, "INSERT INTO ticks VALUES (1), (2), (3)"):
                assert client.post("/v1/sql", json={"sql": text}).status_code == 200
            # The setting of the file: two rows to a page.
            page = client.get("/v1/queries/q/answer").json()
            assert page["rows"] == [{"n": 1}, {"n": 2}]
            assert page["next"]
        begin = time.monotonic()
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert time.monotonic() - begin < 15
        assert out.endswith("stopping\n")
        assert "Traceback" not in err
    finally:
        process.kill()
        process.wait()
