"""`python -m benchmarks checks --quick` runs, and what it leaves out is checksums alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks.__main__ import main
from benchmarks.checks import without_checks

from ladle.testing import connect_inline

pytestmark = pytest.mark.not_at_one_row("measures time")


@pytest.mark.soak
@pytest.mark.spark
def test_checks(tmp_path: Path) -> None:
    assert main(["checks", "--quick", "--out", str(tmp_path)]) == 0
    figures = json.loads((tmp_path / "checks-quick.json").read_text())["figures"]
    assert len(figures) == 10
    for figure in figures:
        assert set(figure["samples"]) == {"checked", "unchecked"}
        assert all(seconds > 0 for samples in figure["samples"].values() for seconds in samples)


def test_without_checks_nothing_is_verified(tmp_path: Path) -> None:
    with connect_inline(tmp_path / "warehouse") as db:
        db.sql("CREATE STREAM s (n INT)")
        with without_checks():
            db.push("s", [{"n": 1}], wait=True)
            assert db.sql("SELECT n FROM s").to_pylist() == [{"n": 1}]
        assert any(db.verify().table.column("damaged").to_pylist())
