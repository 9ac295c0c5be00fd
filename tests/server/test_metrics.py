"""What /metrics tells, to whom, and that the documentation and the dashboard know it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from tests.server.conftest import TICKS, Serve, as_user

from ladle.clock import ManualClock, to_us
from ladle.config import Settings
from ladle.engine import Database
from ladle.ingest.figures import QUERY_BOUNDS_SECONDS, SHOWN_MAX, Durations, Invocations
from ladle.protocols.http.process import Server
from ladle.testing import connect_inline

ROOT = Path(__file__).parents[2]
HTTP = (ROOT / "docs" / "http.md").read_text(encoding="utf-8")
DASHBOARD = ROOT / "docs" / "grafana" / "ladle.json"
NOON = datetime(2026, 1, 30, 12, tzinfo=UTC)


@pytest.fixture
def busy(tmp_path: Path) -> Iterator[tuple[Database, str]]:
    """A server with something of everything; its clock stands at noon."""
    clock = ManualClock(to_us(NOON) - 1_000_000)
    db = connect_inline(tmp_path / "warehouse", clock=clock)
    server = Server(db, Settings.load({"port": 0, "anonymous": "nobody"}))
    server.start()
    db.sql(f"{TICKS} LATENESS INTERVAL 5 SECONDS")
    db.sql("CREATE STREAM stamped (n INT)")
    db.sql("CREATE STREAM resting (at TIMESTAMP) TIMESTAMP BY at IDLE AFTER INTERVAL 1 SECOND")
    db.heartbeat("resting", NOON)
    db.register("SELECT n FROM ticks WHERE n % 7 = 1 AND n > 0", name="q")
    clock.advance(1_000_000)
    db.push("ticks", [{"n": 1, "at": "2026-01-30T11:59:30Z"}], wait=True)
    db.push("ticks", [{"n": 2, "at": "2026-01-30T11:59:40Z"}, {"n": "x"}], wait=True)
    db.create_source("files", stream="ticks", format="json", options={"path": "/hush"})
    db.invoke("q")
    db.maintain()
    httpx.get(f"{server.url}/healthz", trust_env=False).raise_for_status()
    yield db, server.url
    server.stop()
    db.close()


def scraped(db: Database, url: str, token: str | None = None) -> dict[str, Metric]:
    """The families of /metrics, by name."""
    with as_user(url, token or db.create_token("scraper", "admin")) as client:
        text = client.get("/metrics").raise_for_status().text
    return {family.name: family for family in text_string_to_metric_families(text)}


def value(families: dict[str, Metric], sample: str, **labels: str) -> float:
    return next(
        each.value
        for family in families.values()
        for each in family.samples
        if each.name == sample and labels.items() <= each.labels.items()
    )


def documented() -> set[str]:
    table = re.search(r"^\| figure \|.*?(?=\n\n)", HTTP, re.M | re.S)
    assert table is not None
    return {name for line in table[0].splitlines() for name in re.findall(r"`((?:ladle|process)_\w+)`", line[:400])}


def test_every_figure_is_documented_and_every_documented_one_is_told(busy: tuple[Database, str]) -> None:
    families = scraped(*busy)
    told = {f"{name}_total" if family.type == "counter" else name for name, family in families.items()}
    assert told == documented()


def test_names_follow_the_conventions(busy: tuple[Database, str]) -> None:
    for name, family in scraped(*busy).items():
        assert family.documentation
        assert name.startswith(("ladle_", "process_"))
        assert not re.search(r"_(per_second|milliseconds|ms|kb|mb|count|total)$", name)
        if family.type == "histogram":
            assert name.endswith("_seconds")


def test_the_dashboard_asks_for_what_there_is(busy: tuple[Database, str]) -> None:
    names = {sample.name for family in scraped(*busy).values() for sample in family.samples}
    dashboard = json.loads(DASHBOARD.read_text(encoding="utf-8"))
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    asked += [each["query"]["query"] for each in dashboard["templating"]["list"] if each["type"] == "query"]
    assert len(asked) > 20
    for query in asked:
        found = re.findall(r"\b(?:ladle|process)_\w+", query)
        assert found
        assert set(found) <= names, query
        assert query.count("(") == query.count(")")
        assert query.count("{") == query.count("}")
    # What is told is shown, but for what says little in a picture.
    shown = {re.sub(r"_(bucket|count|sum|total)$", "", name) for q in asked for name in re.findall(r"\bladle_\w+", q)}
    assert {re.sub("_total$", "", name) for name in documented() if name.startswith("ladle_")} == shown


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    panels = json.loads(DASHBOARD.read_text(encoding="utf-8"))["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        place = panel["gridPos"]
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells


def test_what_a_stream_is_told_with(busy: tuple[Database, str]) -> None:
    db, url = busy
    families = scraped(db, url)
    assert value(families, "ladle_stream_lag_seconds", stream="ticks") == 20
    assert [s.labels["stream"] for s in families["ladle_stream_lag_seconds"].samples] == ["ticks", "resting"]
    assert value(families, "ladle_stream_lateness_seconds", stream="ticks") == 5
    assert [s.labels["stream"] for s in families["ladle_stream_lateness_seconds"].samples] == ["ticks"]
    assert value(families, "ladle_stream_idle", stream="ticks") == 0
    assert value(families, "ladle_stream_idle", stream="resting") == 1
    assert value(families, "ladle_epoch_seconds_count", stream="ticks") == 2
    assert value(families, "ladle_epoch_seconds_bucket", stream="ticks", le="+Inf") == 2
    assert value(families, "ladle_epoch_seconds_sum", stream="ticks") > 0
    (stream,) = (each for each in db.pulse().streams if each.name == "ticks")
    assert value(families, "ladle_stream_written_bytes_total", stream="ticks") == stream.bytes
    assert value(families, "ladle_stream_rows_total", stream="ticks") == 2
    assert value(families, "ladle_stream_quarantined_total", stream="ticks") == 1
    derived = sum(each.stat().st_size for each in (db.path / "derived" / "results").glob("*/*") if each.is_file())
    assert value(families, "ladle_derived_bytes", kind="results") == derived > 0


def test_derived_state_is_told_as_in_the_status(busy: tuple[Database, str]) -> None:
    db, url = busy
    db.backfill()
    families, status = scraped(db, url), db.status()
    assert value(families, "ladle_derived_budget_bytes", place="memory") == db.settings.derived_memory_bytes_max
    assert value(families, "ladle_derived_budget_bytes", place="disk") == db.settings.derived_disk_bytes_max
    for each in status.derived:
        name = "ladle_memory_bytes" if each.place == "memory" else "ladle_derived_bytes"
        assert value(families, name, kind=each.kind) == each.memory_bytes + each.disk_bytes
        assert value(families, "ladle_derived_things", kind=each.kind) == each.things
        assert value(families, "ladle_derived_evictions_total", kind=each.kind) == each.evictions == 0
        if each.things:
            assert value(families, "ladle_derived_rebuild_seconds", kind=each.kind) > 0
            assert value(families, "ladle_derived_unused_seconds", kind=each.kind) >= 0
    assert value(families, "ladle_derived_coverage_ratio", kind="results") == 1


def test_invocations_of_a_query_have_their_times(busy: tuple[Database, str]) -> None:
    db, url = busy
    db.invoke("q")
    families = scraped(db, url)
    assert value(families, "ladle_invocation_seconds_count", query="q") == 2
    assert 0 < value(families, "ladle_invocation_seconds_sum", query="q") < 60
    assert value(families, "ladle_invocation_seconds_count", query="other") == 0
    assert db.pulse().invocations == 2


def test_queries_that_one_may_not_see_are_others(serve: Serve) -> None:
    db, url = serve()
    db.sql(TICKS)
    tokens = {name: db.create_token(name, "writer") for name in ("alice", "bob")}
    with as_user(url, tokens["alice"]) as alice:
        for name in ("mine", "other"):
            alice.post("/v1/queries", json={"name": name, "sql": "SELECT n FROM ticks"}).raise_for_status()
            alice.get(f"/v1/queries/{name}/answer").raise_for_status()
    counts = {
        name: {
            sample.labels["query"]: sample.value
            for sample in scraped(db, url, token)["ladle_invocation_seconds"].samples
            if sample.name.endswith("_count")
        }
        for name, token in tokens.items()
    }
    assert counts == {"alice": {"mine": 1, "other": 1}, "bob": {"other": 2}}
    assert httpx.get(f"{url}/metrics", headers={"Authorization": "Bearer no"}, trust_env=False).status_code == 401


def total(asked: Invocations) -> int:
    shown, others = asked.busiest()
    return sum(others.counts) + sum(sum(each.counts) for each in shown.values())


def test_only_the_busiest_queries_have_figures_of_their_own() -> None:
    asked = Invocations()
    for number in range(300):
        for _ in range(1 + (number >= 200)):
            asked.note(f"q{number}", 0.002)
    shown, others = asked.busiest()
    assert list(shown) == [f"q{n}" for n in range(SHOWN_MAX)]  # those that came first, to begin with
    asked.choose()
    shown, busier = asked.busiest()
    assert set(shown) == {f"q{n}" for n in range(200, 300)}
    assert all(new >= old for new, old in zip(busier.counts, others.counts, strict=True))
    assert (total(asked), asked.total) == (400, 400)
    asked.note("q0", 0.002)
    asked.choose()  # what was asked long ago counts less
    shown, _ = asked.busiest()
    assert "q0" in shown
    assert len(shown) == SHOWN_MAX
    assert total(asked) == asked.total == 401
    assert (asked.count("q0"), asked.count("q250"), asked.count("none")) == (2, 2, 0)


def test_durations_are_counted_in_their_buckets() -> None:
    durations = Durations(QUERY_BOUNDS_SECONDS)
    for seconds in (0.001, 0.0011, 5, 100):
        durations.add(seconds)
    assert durations.counts == [1, 1, 0, 0, 0, 0, 0, 0, 1, 1]
    assert durations.seconds == pytest.approx(105.0021)
