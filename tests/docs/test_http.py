"""The examples with curl in docs/http.md run, against a real server."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from ladle.config import Settings
from ladle.protocols.http.error_shape import _STATUS
from ladle.protocols.http.process import Server
from ladle.testing import connect_inline

HTTP = (Path(__file__).parents[2] / "docs" / "http.md").read_text(encoding="utf-8")


def examples() -> list[str]:
    blocks = re.findall(r"```console\n(.*?)```", HTTP, re.S)
    joined = "".join(blocks).replace("\\\n", " ")
    return [line[2:] for line in joined.splitlines() if line.startswith("$ ")]


def test_every_example_works(tmp_path: Path) -> None:
    with connect_inline(tmp_path / "warehouse") as db:
        server = Server(db, Settings.load({"port": 0}))
        server.start()
        try:
            outputs = []
            for example in examples():
                command = f"set -o pipefail; {example.replace('http://127.0.0.1:8642', server.url)} --noproxy '*'"
                done = subprocess.run(["bash", "-c", command], check=False, capture_output=True, text=True, timeout=60)
                assert done.returncode == 0, f"{example}: {done.stderr}"
                assert '"error"' not in done.stdout, f"{example}: {done.stdout}"
                outputs.append(done.stdout)
        finally:
            server.stop()
    assert len(outputs) == 10
    assert '"epoch":1' in outputs[1]
    assert '"rows":[{"symbol":"IBM"' in outputs[3]
    assert '"IBM",193.5' in outputs[4]
    assert '"n":1' in outputs[5]
    assert '"epoch":1' in outputs[6]
    described = re.search(r"```json\n(.*?)```", HTTP.partition("## Changes")[2], re.S)
    assert described is not None
    (delta,) = json.loads(outputs[8])["deltas"]
    shown = json.loads(described[1])
    varying = ("position", "entry")
    assert {**delta, **{name: shown[name] for name in varying}} == shown
    assert delta["position"] == f"e{delta['entry']}n1769783400000000q1"
    head, row = outputs[9].splitlines()
    assert head.startswith('"_change","_now","_out","symbol"')
    assert row.startswith('1,2026-01-30 14:30:00.000000Z,2026-01-30 15:30:00.000000Z,"IBM"')
    assert '"tree":{"node":"StreamScan"' in outputs[7]


@pytest.mark.parametrize("status", sorted({*_STATUS.values()} - {405, 507}))
def test_every_status_is_documented(status: int) -> None:
    assert str(status) in HTTP
