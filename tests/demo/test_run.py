"""The demonstration as people start it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.interrupts import heeding_interrupts

import ladle

pytestmark = pytest.mark.spark


def demo(tmp_path: Path, *argv: str, **environment: str) -> subprocess.Popen[str]:
    with heeding_interrupts():
        return subprocess.Popen(
            [sys.executable, "-m", "ladle.cli", "demo", "--generated", *argv],
            env={**os.environ, "TMPDIR": str(tmp_path), "COLUMNS": "120", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


def test_it_shows_streams_and_answers_and_ends_by_itself(tmp_path: Path) -> None:
    warehouse, picture = tmp_path / "kept", tmp_path / "demo.svg"
    process = demo(tmp_path, "-w", str(warehouse), "--picture", str(picture), DEMO_SECONDS="12")
    out, err = process.communicate(timeout=240)
    assert process.returncode == 0, err
    progress = re.findall(r"^\[ *(\d+) s\] epoch ([\d,]+): .*$", out, re.M)
    # The clock stands at nought until there are rows of each stream, and then runs for all the seconds.
    assert progress[0][0] == "0"
    assert progress[0][1] != "0"
    assert int(progress[-1][0]) >= 10
    assert "1,001 queries" in re.findall(r"^\[.*$", out, re.M)[-1]
    assert re.search(r"^console: http://127\.0\.0\.1:\d+/console/$", out, re.M), out
    # The query that came late answered for what had come before it.
    late = re.search(r"blocks was registered after ([\d,]+) trades had arrived; .* \(([\d,]+) blocks\)", out)
    assert late is not None, out
    for query in ("movers", "since_start", "first_half_minute", "spreads", "hot_motes", "load", "scans", "blocks"):
        assert f"\n{query}: " in out
    assert "'ERR' is not a DOUBLE" in out
    assert "WARN" not in err
    assert "<svg" in picture.read_text(encoding="utf-8")
    assert list(tmp_path.glob("ladle-demo-*")) == []
    with ladle.connect(warehouse, read_only=True) as db:
        rows = {stream.name: stream.rows for stream in db.streams()}
        assert all(count > 0 for count in rows.values()), rows
        assert len(db.query("movers").invoke()) == 5
        assert len(db.queries()) == 1_001


def test_control_c_ends_it_cleanly(tmp_path: Path) -> None:
    process = demo(tmp_path)
    assert process.stdout is not None
    for line in process.stdout:
        if re.match(r"\[.*epoch [1-9]", line):
            break
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert re.search(
        r"^\d:\d\d: [\d,.]+ M? ?rows in 4 streams, [\d,]+ epochs, [\d,]+ rows quarantined\n"
        r"1,000 standing queries gave [\d,]+ answers, half in [\d.]+ ms or less\n",
        out,
        re.M,
    ), out
    assert "stopped" in out
    assert "Traceback" not in err
    assert list(tmp_path.glob("ladle-demo-*")) == []


def test_it_does_not_write_into_a_folder_that_holds_something_else(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("precious")
    process = demo(tmp_path, "-w", str(tmp_path))
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "is not empty" in err
