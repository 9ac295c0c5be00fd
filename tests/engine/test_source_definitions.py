"""Sources that are defined in SQL, without a JVM: what is kept of them, when they run, and what happens if they don't.

The pipeline is the one that runs in the process; what it reads is told by the test, batch by batch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from tests.waiting import wait_until

from ladle.access import Role, User
from ladle.define.source_definitions import FORMATS
from ladle.engine import Database
from ladle.engine.python_calls import PythonCalls
from ladle.errors import AlreadyExists, Denied, InUse, LadleError, PipelineError, ReadOnly, UnknownName
from ladle.pipeline import BatchRunner
from ladle.testing.inline import InlinePipeline

pytestmark = pytest.mark.not_at_one_row("it computes no residual")

STREAM = "CREATE STREAM s (n INT, k STRING)"
FILES = "CREATE SOURCE files FOR s FORMAT json OPTIONS (path '/data/in')"


class Told:
    """An attached source whose batches a test hands over."""

    restarts = 0

    def __init__(self, stream: str, source: str, checkpoint: Path, run: BatchRunner) -> None:
        self.stream, self.source, self.checkpoint, self.run = stream, source, checkpoint, run
        self.state = "running"
        self.error: str | None = None

    def await_drained(self, seconds: float | None = None) -> None: ...

    def stop(self) -> None:
        if self.state == "running":
            self.state = "stopped"


class ToldPipeline(InlinePipeline):
    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, dict[str, str], pa.Schema]] = []
        self.attached: list[Told] = []
        self.refusal: Exception | None = None

    def read(self, form: str, options: Mapping[str, str], schema: pa.Schema) -> Any:
        self.asked.append((form, dict(options), schema))
        if self.refusal is not None:
            raise self.refusal
        return schema

    def batch_schema(self, batches: Any) -> pa.Schema:
        schema: pa.Schema = batches
        return schema

    def attach(self, stream: str, source: str, batches: Any, checkpoint: Path, run: BatchRunner, **how: Any) -> Told:
        self.attached.append(Told(stream, source, checkpoint, run))
        return self.attached[-1]


Open = Callable[..., tuple[Database, ToldPipeline]]


@pytest.fixture
def open_told(tmp_path: Path) -> Iterator[Open]:
    with ExitStack() as opened:

        def start(**how: Any) -> tuple[Database, ToldPipeline]:
            pipeline = ToldPipeline()
            settings = {"maintenance_seconds": 3_600.0, "retry_seconds_max": 1.0}
            db = Database(tmp_path / "warehouse", pipeline=pipeline, read_only=False, settings=settings, **how)
            opened.callback(db.close)
            return db, pipeline

        yield start


def shown(db: Any) -> list[dict[str, Any]]:
    return [
        {name: value for name, value in row.items() if name in ("name", "state", "error")}
        for row in db.sql("SHOW SOURCES").to_pylist()
    ]


def rows(*numbers: int) -> list[pa.Table]:
    return [pa.table({"n": pa.array(numbers, pa.int32()), "k": ["x"] * len(numbers)})]


def test_a_source_runs_when_it_is_defined_and_when_the_next_process_says_so(open_told: Open) -> None:
    db, pipeline = open_told()
    db.sql(STREAM)
    assert db.sql(FILES).message == "source files created"
    wait_until(lambda: pipeline.attached)
    ((form, options, schema),) = pipeline.asked
    assert (form, options, schema.names) == ("json", {"path": "/data/in"}, ["n", "k"])
    first = pipeline.attached[0]
    first.run(rows(1, 2), 0)
    first.run(rows(1, 2), 0)
    assert db.sql("SELECT n FROM s").to_pylist() == [{"n": 1}, {"n": 2}]
    (status,) = db.status().sources
    assert (status.stream, status.name, status.state, status.batch) == ("s", "files", "running", 0)
    assert first.checkpoint.is_dir()
    db.close()
    assert first.state == "stopped"

    db, pipeline = open_told()
    assert [row["state"] for row in shown(db)] == ["defined"]
    assert db.status().sources[0].state == "defined"
    assert not pipeline.asked, "a process that opens the warehouse briefly starts nothing"
    db.start_sources()
    db.start_sources()
    wait_until(lambda: pipeline.attached)
    assert len(pipeline.attached) == 1
    assert pipeline.attached[0].checkpoint == first.checkpoint
    pipeline.attached[0].run(rows(1, 2), 0)
    pipeline.attached[0].run(rows(3), 1)
    assert db.sql("SELECT n FROM s").to_pylist() == [{"n": 1}, {"n": 2}, {"n": 3}]


def test_a_process_that_ends_at_once_has_not_started_spark(open_told: Open) -> None:
    db, pipeline = open_told()
    pipeline.started = False
    db.sql(STREAM)
    db.sql(FILES)
    db.close()
    assert not pipeline.asked


def test_definitions_are_in_checkpoints(open_told: Open, tmp_path: Path) -> None:
    db, _ = open_told()
    db.sql(STREAM)
    db.sql(FILES)
    db.sql("CREATE SOURCE ticks FOR S FORMAT 'RATE' OPTIONS (rowsPerSecond = 5, rampUpTime 'y\\'z')")
    before = db.catalog.sources
    db.close()
    assert list((tmp_path / "warehouse" / "log").glob("checkpoint-*"))
    db, _ = open_told()
    assert db.catalog.sources == before
    ticks = db.catalog.sources["ticks"]
    assert (ticks.stream, ticks.format) == ("s", "rate")
    assert dict(ticks.options) == {"rowsPerSecond": "5", "rampUpTime": "y'z"}
    read_only = Database(tmp_path / "warehouse", pipeline=InlinePipeline(), read_only=True)
    try:
        assert [row["state"] for row in shown(read_only)] == ["defined", "defined"]
        with pytest.raises(ReadOnly):
            read_only.drop_source("files")
    finally:
        read_only.close()


def test_one_that_is_dropped_and_defined_anew_begins_anew(open_told: Open) -> None:
    db, pipeline = open_told()
    db.sql(STREAM)
    db.sql(FILES)
    wait_until(lambda: pipeline.attached)
    first = pipeline.attached[0]
    first.run(rows(1), 0)
    assert db.sql("DROP SOURCE FILES").message == "source FILES dropped"
    assert first.state == "stopped"
    assert not first.checkpoint.exists()
    assert shown(db) == []
    db.sql(FILES)
    wait_until(lambda: len(pipeline.attached) == 2)
    assert pipeline.attached[1].checkpoint != first.checkpoint
    pipeline.attached[1].run(rows(2), 0)
    assert db.sql("SELECT n FROM s").to_pylist() == [{"n": 1}, {"n": 2}]
    with pytest.raises(UnknownName, match=r"Source 'gone' not found.*files"):
        db.drop_source("gone")
    assert db.sql("DROP SOURCE IF EXISTS gone").message == "there was no source gone"


def test_a_source_goes_with_its_stream(open_told: Open) -> None:
    db, pipeline = open_told()
    db.sql(STREAM)
    db.sql("CREATE STREAM other (n INT)")
    db.sql(FILES)
    db.sql("CREATE SOURCE rest FOR other FORMAT rate")
    wait_until(lambda: len(pipeline.attached) == 2)
    with pytest.raises(InUse, match="sources are defined for it: files"):
        db.sql("DROP STREAM s")
    assert all(each.state == "running" for each in pipeline.attached)
    db.sql("DROP STREAM s CASCADE")
    assert [row["name"] for row in shown(db)] == ["rest"]
    assert {each.source.partition("@")[0]: each.state for each in pipeline.attached} == {
        "files": "stopped",
        "rest": "running",
    }
    db.sql(STREAM)
    assert [row["name"] for row in shown(db)] == ["rest"]


def test_one_that_can_not_start_is_tried_again_and_says_why(open_told: Open) -> None:
    db, pipeline = open_told()
    db.sql(STREAM)
    pipeline.refusal = PipelineError("There is no /data/in.", hint="make it")
    db.sql(FILES)
    wait_until(lambda: db.status().sources[0].error)
    wait_until(lambda: db.status().sources[0].state == "restarting")
    assert db.sql("SHOW SOURCES").to_pylist()[0]["error"] == "There is no /data/in. (make it)"
    wait_until(lambda: db.status().sources[0].restarts >= 1)
    pipeline.refusal = None
    wait_until(lambda: db.status().sources[0].state == "running")
    assert db.status().sources[0].error is None
    # Its JVM is gone, say.
    pipeline.attached[0].state, pipeline.attached[0].error = "failed", "gone"
    wait_until(lambda: len(pipeline.attached) == 2)
    wait_until(lambda: shown(db) == [{"name": "files", "state": "running", "error": ""}])


def test_a_new_column_of_the_stream_is_read_from_then_on(open_told: Open) -> None:
    db, pipeline = open_told()
    db.sql(STREAM)
    db.sql(FILES)
    wait_until(lambda: pipeline.attached)
    db.sql("ALTER STREAM s ADD COLUMN more DOUBLE")
    wait_until(lambda: len(pipeline.attached) == 2)
    assert pipeline.asked[-1][2].names == ["n", "k", "more"]
    assert pipeline.attached[0].state == "stopped"
    assert pipeline.attached[1].checkpoint == pipeline.attached[0].checkpoint


def test_a_lost_checkpoint_is_an_error_that_is_shown(open_told: Open) -> None:
    db, pipeline = open_told()
    db.sql(STREAM)
    db.sql(FILES)
    wait_until(lambda: pipeline.attached)
    pipeline.attached[0].run(rows(1), 0)
    db.close()
    pipeline.attached[0].checkpoint.rmdir()
    db, pipeline = open_told()
    db.start_sources()
    wait_until(lambda: "checkpoint is gone" in (db.status().sources[0].error or ""))


def test_rows_that_do_not_fit_are_in_the_quarantine_under_the_name(open_told: Open) -> None:
    db, pipeline = open_told()
    db.sql(STREAM)
    db.sql(FILES)
    wait_until(lambda: pipeline.attached)
    pipeline.attached[0].run([pa.table({"n": ["1", "one"], "k": ["a", "b"]})], 0)
    assert db.sql("SELECT n FROM s").to_pylist() == [{"n": 1}]
    (rejected,) = db.sql("SELECT source, reason FROM s.quarantine").to_pylist()
    assert rejected == {"source": "files", "reason": "n: 'one' is not a INT"}


@pytest.mark.parametrize(
    ("definition", "told"),
    [
        ("x FOR s FORMAT parquett OPTIONS (path 'a')", "Format 'parquett' not found.*parquet"),
        ("x FOR s FORMAT", "Expected the source's format"),
        ("x FOR s FORMAT json", "needs the option 'path'"),
        ("x FOR s FORMAT json OPTIONS (path '')", "needs the option 'path'"),
        ("x FOR s FORMAT json OPTIONS (path 'a', PATH 'b')", "'path' is given twice"),
        ("x FOR s FORMAT kafka OPTIONS (kafka.bootstrap.servers 'h:1')", "subscribe, subscribePattern, assign"),
        ("x FOR s FORMAT mqtt OPTIONS (host 'h')", "needs the option 'topic'"),
        ("x FOR s FORMAT mqtt OPTIONS (host 'h', topic 't', quality 1)", "Option 'quality' not found"),
        ("x FOR s FORMAT csv OPTIONS (path 'a', haeder true)", "Option 'haeder' not found(?s:.*)mean 'header'"),
        ("x FOR s FORMAT json OPTIONS (path 'a', maxFilesPerTriger 1)", "mean 'maxFilesPerTrigger'"),
        ("x FOR s FORMAT parquet OPTIONS (path 'a', header true)", "Option 'header' not found"),
        ("x FOR s FORMAT rate OPTIONS (rowPerSecond 1)", "mean 'rowsPerSecond'"),
        ("x FOR s FORMAT socket OPTIONS (hst 'h', port 1)", "mean 'host'"),
        (
            "x FOR s FORMAT kafka OPTIONS (kafka.bootstrap.servers 'h:1', subscribe 't', startingOffset 'latest')",
            "mean 'startingOffsets'",
        ),
        ("x FOR s FORMAT mqtt OPTIONS (host 'h', topic 't', qos 2)", "'qos' can't be '2'"),
        ("x FOR s FORMAT mqtt OPTIONS (host 'h', topic 't', port 99999)", "'port' can't be '99999'"),
        ("x FOR nowhere FORMAT rate", "Stream 'nowhere' not found"),
        ("x FOR t FORMAT rate", "'t' is a table"),
        ("`a b` FOR s FORMAT rate", "can't name a source"),
        ("inbox FOR s FORMAT rate", "can't name a source"),
        ("FILES FOR s FORMAT rate", "There is a source 'files' already, of stream 's'"),
    ],
)
def test_what_can_not_be_a_source_is_refused(open_told: Open, definition: str, told: str) -> None:
    db, _ = open_told()
    db.sql(STREAM)
    db.sql("CREATE TABLE t (n INT)")
    db.sql(FILES)
    before = db.catalog.seq
    with pytest.raises(LadleError, match=told):
        db.sql(f"CREATE SOURCE {definition}")
    assert db.catalog.seq == before


def test_names_and_defaults(open_told: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    db, _ = open_told()
    db.sql(STREAM)
    db.create_source("Files", stream="S", format="CSV", options={"path": "in/*.csv", "header": True, "sep": "'\\"})
    assert dict(db.catalog.sources["files"].options) == {
        "path": f"{tmp_path}/in/*.csv",
        "header": "true",
        "sep": "'\\",
    }
    with pytest.raises(AlreadyExists):
        db.create_source("files", stream="s", format="rate")
    again = "CREATE SOURCE IF NOT EXISTS FILES FOR s FORMAT rate"
    assert db.sql(again).message == "source FILES is there already, unchanged"
    db.create_source("far", stream="s", format="json", options={"path": "s3a://bucket/in"})
    assert dict(db.catalog.sources["far"].options) == {"path": "s3a://bucket/in"}
    db.drop_source("files")
    assert [source.name for source in db.sources()] == ["far"]
    assert set(FORMATS) >= {"parquet", "json", "csv", "socket", "rate", "kafka", "mqtt"}


def test_secrets_are_not_shown_and_options_are_for_admins(open_told: Open) -> None:
    db, _ = open_told()
    db.sql(STREAM)
    jaas = "PlainLoginModule required password=pss;"
    options = {"kafka.bootstrap.servers": "h:1", "subscribe": "t", "kafka.sasl.jaas.config": jaas}
    db.create_source("k", stream="s", format="kafka", options={**options, "kafka.ssl.key.password": "pss"})
    files = {"path": "/in", "fs.s3a.secret.key": "pss", "fs.s3a.password": "pss"}
    db.create_source("m", stream="s", format="json", options=files)
    told = str(db.sql("SHOW SOURCES").to_pylist())
    assert "pss" not in told
    assert "subscribe 't'" in told
    assert "fs.s3a.password '***'" in told

    reader, writer, admin = (db.session(User(role.value, role)) for role in Role)
    for user in (reader, writer):
        assert [row["options"] for row in user.execute("SHOW SOURCES")[0].to_pylist()] == ["", ""]
        with pytest.raises(Denied, match="create sources"):
            user.execute("CREATE SOURCE etc FOR s FORMAT csv OPTIONS (path '/etc')")
        with pytest.raises(Denied, match="drop sources"):
            user.execute("DROP SOURCE k")
    assert "subscribe 't'" in str(admin.execute("SHOW SOURCES")[0].to_pylist())
    admin.execute("CREATE SOURCE etc FOR s FORMAT csv OPTIONS (path '/etc')")
    admin.execute("DROP SOURCE etc")


def test_options_that_are_passed_on_may_have_any_name(open_told: Open) -> None:
    db, _ = open_told()
    db.sql(STREAM)
    broker = {"Kafka.Bootstrap.Servers": "h:1", "SUBSCRIBE": "t", "kafka.max.poll.records": 5}
    db.create_source("k", stream="s", format="kafka", options=broker)
    db.create_source("f", stream="s", format="csv", options={"PATH": "/in", "HEADER": True, "fs.s3a.endpoint": "e"})
    assert [source.name for source in db.sources()] == ["k", "f"]


def test_why_a_source_fails_is_for_admins(open_told: Open) -> None:
    db, pipeline = open_told()
    db.sql(STREAM)
    pipeline.refusal = PipelineError("Path does not exist: /data/in.")
    db.sql(FILES)
    wait_until(lambda: db.status().sources[0].error)
    reader, writer, admin = (db.session(User(role.value, role)) for role in Role)
    for user in (reader, writer, admin):
        errors = {str(user.execute("SHOW SOURCES")[0].to_pylist()[0]["error"])}
        errors |= {str(told.sources[0].error) for told in (user.status(), user.pulse())}
        assert errors == {"Path does not exist: /data/in." if user is admin else "it failed; admins are told why"}
    pipeline.refusal = None
    wait_until(lambda: db.status().sources[0].state == "running")
    assert reader.status().sources[0].error is None
    assert reader.execute("SHOW SOURCES")[0].to_pylist()[0]["error"] == ""


def test_definitions_and_drops_at_the_same_time_leave_nothing_running(open_told: Open) -> None:
    db, pipeline = open_told()
    db.sql(STREAM)

    def change() -> None:
        for _ in range(20):
            db.create_source("x", stream="s", format="rate", if_not_exists=True)
            db.drop_source("x", if_exists=True)

    threads = [threading.Thread(target=change) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    db.drop_source("x", if_exists=True)
    assert all(each.state == "stopped" for each in pipeline.attached)
    assert db.status().sources == ()


def test_the_maker_quotes_what_it_is_given() -> None:
    written: list[str] = []
    listening: Any = SimpleNamespace(sql=written.append)
    PythonCalls.create_source(listening, "a`b", stream="s", format="csv", options={"it's": "\\n"})
    assert written[0] == "CREATE SOURCE `a``b` FOR `s` FORMAT `csv` OPTIONS ('it\\'s' '\\\\n')"
