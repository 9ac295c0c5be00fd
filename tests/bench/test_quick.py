"""`python -m benchmarks NAME --quick` runs, checks what it counts, and leaves figures, a plot and a page.

Those that take half a minute each are run by `make soak`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import benchmarks._rig
import pytest
from benchmarks.__main__ import main
from benchmarks._parts import PARTS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600), pytest.mark.usefixtures("spark")]


def figures(directory: Path, name: str) -> dict[str, Any]:
    """The JSON, after a look at the plot and the page."""
    assert ElementTree.parse(directory / f"{name}.svg").getroot().tag.endswith("svg")
    page = (directory / f"{name}.md").read_text()
    assert f"({name}.svg)" in page
    assert "`make bench BENCH_ARGS=" in page
    assert str(directory) not in page
    value: dict[str, Any] = json.loads((directory / f"{name}.json").read_text())
    assert value["machine"]["cores"]
    return value


@pytest.mark.soak
@pytest.mark.not_at_one_row("measures time")
def test_peers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["peers", "--quick", "--out", str(tmp_path)]) == 0
    bars = figures(tmp_path, "peers-quick")["bars"]
    assert [*dict.fromkeys(bar["part"] for bar in bars)] == [*PARTS]
    out = capsys.readouterr().out
    page = (tmp_path / "peers-quick.md").read_text()
    for bar in bars:
        assert bar["measured"]["samples"]
        assert bar["value"] > 0
        assert bar["what"] in out
        assert f"| {bar['what']} |" in page
    # Good or bad, each is told.
    assert out.count("NOT met") == sum(not bar["met"] for bar in bars)


@pytest.mark.soak
@pytest.mark.not_at_one_row("measures time")
def test_psoup(tmp_path: Path) -> None:
    assert main(["psoup", "--quick", "--out", str(tmp_path)]) == 0
    value = figures(tmp_path, "psoup-quick")
    for figure in ("figure_7a", "figure_7b", "table_2"):
        assert {point["system"] for point in value[figure]} == {"NoMat", "PSoup-P", "PSoup-C"}
    assert all(point["rows"] > 0 for point in value["table_2"])
    for arrival in value["figure_9"]:
        assert all(rate > 0 for rates in arrival["rates"].values() for rate in rates)
    page = (tmp_path / "psoup-quick.md").read_text()
    assert "| 8 | 0.8255 | 0.0130 | 0.0035 |" in page
    joins = {(point["system"], point["x"]): point["rows"] for point in value["figure_8"]}
    assert {system for system, _ in joins} == {"NoMat", "PSoup-P", "PSoup-C", "DuckDB", "tuple by tuple"}
    for size in {x for _, x in joins}:
        assert len({rows for (_, x), rows in joins.items() if x == size}) == 1
    assert {point["workload"] for point in value["figure_11"]} == {"Eq/Ineq", "Ineq/Eq", "Ineq/Ineq"}
    assert all(point["pairs"] > 0 for point in value["figure_11"] if point["hybrids"] == 1_024)
    assert [bar["part"] for bar in value["bars"]] == 2 * ["figure 8"] + 3 * ["figure 11"]
    assert all(f"| {bar['what']} |" in page for bar in value["bars"])


@pytest.mark.soak
@pytest.mark.not_at_one_row("measures time")
def test_joins(tmp_path: Path) -> None:
    """Every run in it compares its pairs with DuckDB's."""
    assert main(["joins", "--quick", "--out", str(tmp_path)]) == 0
    bars = figures(tmp_path, "joins-quick")["bars"]
    assert len(bars) == 5
    assert all(bar["measured"]["samples"] and bar["value"] > 0 for bar in bars)


@pytest.mark.not_at_one_row("measures time")
def test_a_rate_with_wrong_counts_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    honest = benchmarks._rig.counts_by_duckdb
    monkeypatch.setattr(benchmarks._rig, "counts_by_duckdb", lambda *given: [n + 1 for n in honest(*given)])
    assert main(["peers", "--quick", "--only", "growth", "--out", str(tmp_path)]) != 0
    assert "count other tuples than DuckDB" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_they_are_listed_and_another_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "\npeers " in capsys.readouterr().out
    assert main(["nonsense"]) == 1
    assert "Benchmark 'nonsense' not found." in capsys.readouterr().err


def test_a_part_that_is_not_there_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["peers", "--only", "arrival"]) != 0
    assert "arrivals" in capsys.readouterr().err


@pytest.mark.soak
@pytest.mark.not_at_one_row("measures time")
def test_cacq(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every run in it compares its tuples or pairs with DuckDB's."""
    assert main(["cacq", "--quick", "--out", str(tmp_path)]) == 0
    value = figures(tmp_path, "cacq-quick")
    assert [bar["part"] for bar in value["bars"]] == ["filters", "flip", "calls"]
    assert all(bar["measured"]["samples"] and bar["value"] > 0 for bar in value["bars"])
    visits = {each["policy"]: each["per_tuple"][0] for each in value["visits"]}
    optimum = value["hypothetical_optimum"]
    assert optimum == pytest.approx(1.1555)
    assert visits["a, b, c, d, e"] == pytest.approx(optimum, rel=0.05)
    assert visits["e, d, c, b, a"] == 5
    assert all(visits["a, b, c, d, e"] <= each <= 5 for each in visits.values())
    assert visits["tickets"] < visits["e, d, c, b, a"]
    assert [each["workload"] for each in value["tickets"]] == [1, 2, 3]
    for each in value["tickets"]:
        assert all(sum(shares) == pytest.approx(1) for shares in zip(*each["shares"].values(), strict=True))
    for point in (*value["selections"], *value["calls"]):
        assert set(point["seconds"]) == {
            "Ladle", "Ladle, whole engine", "NiagaraCQ pushdown", "NiagaraCQ join first",
        }  # fmt: skip
    assert all(point["output"] > 0 for point in (*value["queries"], *value["sources"]))
    out = capsys.readouterr().out
    assert all(bar["what"] in out for bar in value["bars"])


@pytest.mark.soak
@pytest.mark.not_at_one_row("measures time")
def test_server(tmp_path: Path) -> None:
    assert main(["server", "--quick", "--out", str(tmp_path)]) == 0
    bars = figures(tmp_path, "server-quick")["bars"]
    assert [*dict.fromkeys(bar["part"] for bar in bars)] == ["invoke", "push", "subscribers"]
    assert all(bar["measured"]["samples"] and bar["value"] > 0 for bar in bars)


@pytest.mark.soak
@pytest.mark.not_at_one_row("measures time")
def test_windows(tmp_path: Path) -> None:
    """Both windows in it compare their rows with Spark's."""
    assert main(["windows", "--quick", "--out", str(tmp_path)]) == 0
    bars = figures(tmp_path, "windows-quick")["bars"]
    assert [bar["part"] for bar in bars] == ["hopping", "sessions", "groups"]
    assert all(bar["measured"]["samples"] and bar["value"] > 0 for bar in bars)
