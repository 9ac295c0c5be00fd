"""The examples with curl in docs/http.md run, against a real server."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from ladle.config import Settings
from ladle.server.errors import _STATUS
from ladle.server.run import Server
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
    assert len(outputs) == 8
    assert '"epoch":1' in outputs[1]
    assert '"rows":[{"symbol":"IBM"' in outputs[3]
    assert '"IBM",193.5' in outputs[4]
    assert '"n":1' in outputs[5]
    assert '"epoch":1' in outputs[6]
    assert '"tree":{"node":"StreamScan"' in outputs[7]


@pytest.mark.parametrize("status", sorted({*_STATUS.values()} - {405, 507}))
def test_every_status_is_documented(status: int) -> None:
    assert str(status) in HTTP
