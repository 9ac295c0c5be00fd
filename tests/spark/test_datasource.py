"""The Spark format `ladle`: what other Spark programs read from a server, and what they write to it, once."""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.waiting import wait_until

import ladle
from ladle.config import Settings
from ladle.engine import Database
from ladle.protocols.http.process import Server
from ladle.testing import connect_inline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.spark

AT = datetime(2026, 1, 30, 12, tzinfo=UTC)
STREAM = "CREATE STREAM s (n INT, k STRING, d DECIMAL(9,2), a ARRAY<INT>, at TIMESTAMP) TIMESTAMP BY at"


@pytest.fixture
def served(tmp_path: Path, spark: SparkSession) -> Iterator[tuple[Database, str]]:
    ladle.spark_format(spark)
    with connect_inline(tmp_path / "warehouse") as db:
        db.sql(STREAM)
        db.register("SELECT n, k, d, a, at FROM s WHERE n > 0", name="q")
        server = Server(db, Settings.load({"port": 0, "anonymous": "nobody"}))
        server.start()
        try:
            yield db, server.url
        finally:
            server.stop()


def row(n: int) -> dict[str, Any]:
    return {"n": n, "k": f"k{n}", "d": Decimal(n), "a": [n, None], "at": AT}


def numbers(frame: DataFrame) -> list[int]:
    return sorted(each.n for each in frame.collect())


def test_the_example_of_the_documentation(served: tuple[Database, str], spark: SparkSession) -> None:
    db, url = served
    db.push("s", [row(0), row(1), row(2)], wait=True)
    db.register("SELECT n, k, d, a, at FROM s WHERE n > 0", name="large")
    db.sql(STREAM.replace("STREAM s", "STREAM archive"))
    db.grant("large", "public")
    section = (Path(__file__).parents[2] / "docs" / "python.md").read_text().partition("## The Spark format")[2]
    example = re.search(r"```python\n(.*?)```", section, re.S)
    assert example is not None
    names: dict[str, Any] = {"spark": spark, "url": url, "token": db.create_token("me", "writer")}
    exec(compile(example[1], "example.py", "exec"), names)
    expected = "struct<n:int,k:string,d:decimal(9,2),a:array<int>,at:timestamp>"
    assert names["answer"].schema.simpleString() == names["changes"].schema.simpleString() == expected
    assert names["changes"].isStreaming
    settled(db, lambda: db.status().streams[1].rows == 2)
    assert db.sql("SELECT * FROM archive ORDER BY n").to_pylist() == [row(1), row(2)]

    whole = spark.read.format("ladle").option("url", url).option("token", names["token"])
    assert numbers(whole.option("stream", "S").load()) == [0, 1, 2]
    with pytest.raises(Exception, match="Query 'nothing' not found"):
        whole.option("query", "nothing").load()
    with pytest.raises(Exception, match="token is needed"):
        spark.read.format("ladle").option("url", url).option("query", "q").load()


def test_a_session_of_ours_does_not_stay_the_active_one(
    served: tuple[Database, str], spark: SparkSession, tmp_path: Path
) -> None:
    """A sink's format is looked up in the thread's active session."""
    db, url = served
    other = spark.newSession()
    other.createDataFrame([(1,)], "n INT")
    assert spark.getActiveSession() is other
    ladle.spark_format(spark)
    assert spark.getActiveSession() is spark
    with ladle.connect(tmp_path / "another", spark=spark) as own:
        own.sql("CREATE STREAM t (t STRING)")
        own.push("t", [{"t": "Robert"}], wait=True)
        assert own.sql("SELECT soundex(t) AS code FROM t").to_pylist() == [{"code": "R163"}]
    assert spark.getActiveSession() is spark
    writer = spark.range(1, 3).selectExpr("int(id) AS n", "current_timestamp() AS at").write.format("ladle")
    writer.mode("append").option("url", url).option("token", db.create_token("me", "writer")).option(
        "stream", "s"
    ).save()
    settled(db, lambda: db.status().streams[0].rows == 2)


def test_a_subscription_goes_on_from_its_checkpoint(
    served: tuple[Database, str], spark: SparkSession, tmp_path: Path
) -> None:
    db, url = served
    token = db.create_token("me", "reader")
    seen: list[tuple[int, list[int]]] = []

    def run(fail: bool = False) -> None:
        def take(batch: DataFrame, number: int) -> None:
            seen.append((number, numbers(batch)))
            if fail:
                raise RuntimeError("as told")

        read = spark.readStream.format("ladle").option("url", url).option("token", token).option("query", "q")
        writer = read.option("startingEpoch", "1").load().writeStream.foreachBatch(take)
        query = writer.option("checkpointLocation", str(tmp_path / "check")).trigger(availableNow=True).start()
        query.awaitTermination()

    db.push("s", [row(9)], wait=True)
    db.push("s", [row(1)], wait=True)
    db.push("s", [row(2), row(0)], wait=True)
    with pytest.raises(Exception, match="as told"):
        run(fail=True)
    assert seen == [(0, [1, 2])], "the first epoch was known"
    db.push("s", [row(3)], wait=True)
    db.maintain()
    run()
    assert seen[1] == (0, [1, 2]), "a batch that failed comes again as it was"
    assert [number for _, batch in seen[2:] for number in batch] == [3]


def read_all(url: str, token: str, spark: SparkSession, check: Path, **options: str) -> list[list[Row]]:
    """The micro-batches of a streaming read that goes on from its checkpoint, until there is no more."""
    batches: list[list[Row]] = []
    read = spark.readStream.format("ladle").option("url", url).option("token", token)
    frame = read.options(**options).load()
    writer = frame.writeStream.foreachBatch(lambda batch, _: batches.append(batch.collect()))
    writer.option("checkpointLocation", str(check)).trigger(availableNow=True).start().awaitTermination()
    return batches


def test_changes_lead_from_answer_to_answer(served: tuple[Database, str], spark: SparkSession, tmp_path: Path) -> None:
    """A program that applies them has the answer at the end of each run, over event times and over arrival times."""
    db, url = served
    token = db.create_token("me", "reader")
    db.register("SELECT k, count(*) AS n FROM s [RANGE 10 SECONDS] GROUP BY k", name="counted")
    db.sql("CREATE STREAM arriving (n INT)")
    db.register("SELECT n AS _now FROM arriving [RANGE 2 SECONDS]", name="lately")  # told as _now_1
    copies: dict[str, Counter[Any]] = {"counted": Counter(), "lately": Counter()}
    came = 0

    def follow(name: str) -> None:
        nonlocal came
        db.grant(name, "public")
        check = tmp_path / name
        for batch in read_all(url, token, spark, check, query=name, startingEpoch="0", changes="true"):
            for change, now, out, *values in map(tuple, batch):
                assert change in (1, -1)
                assert (now is None, out) == (False, None)
                copies[name][tuple(values)] += change
                came += 1
        assert min(copies[name].values(), default=0) >= 0

    db.push("arriving", [{"n": 1}], wait=True)
    for step in range(2):
        rows = [{**row(n), "k": f"k{n % 2}", "at": AT + timedelta(seconds=6 * step)} for n in range(step + 2)]
        db.push("s", rows, wait=True)
        follow("counted")
        assert +copies["counted"] == Counter(tuple(each.values()) for each in db.invoke("counted").to_pylist())
    follow("lately")
    time.sleep(2.1)
    follow("lately")
    assert +copies["lately"] == Counter(), "they left while time passed"
    assert came > 4
    reader = spark.read.format("ladle").option("url", url).option("token", token).option("query", "counted")
    with pytest.raises(Exception, match="is for streaming reads"):
        reader.option("changes", "true").load().collect()


def test_options_that_do_not_go_together(served: tuple[Database, str], spark: SparkSession) -> None:
    _, url = served
    read = spark.readStream.format("ladle").option("url", url).option("query", "q")
    for options, why in (
        ({"expirations": "out"}, "only those that come"),
        ({"startingEpoch": "0", "startingPosition": "e0"}, "exclude each other"),
    ):
        with pytest.raises(Exception, match=why):
            read.options(**options).load()


def test_a_checkpoint_of_epochs_goes_on(served: tuple[Database, str], spark: SparkSession, tmp_path: Path) -> None:
    """As the version before wrote them, also where its last batch was not committed."""
    db, url = served
    token = db.create_token("me", "reader")
    db.grant("q", "public")
    for n in (1, 2, 3):
        db.push("s", [row(n)], wait=True)
    check = tmp_path / "check"
    read_all(url, token, spark, check, query="q", startingEpoch="1")
    (offsets,) = (check / "offsets").glob("0")
    *head, told = offsets.read_text().splitlines()
    assert "position" in told
    offsets.write_text("\n".join([*head, '{"epoch": 2}']))
    for crc in (check / "offsets").glob(".*.crc"):
        crc.unlink()
    for commit in (check / "commits").iterdir():
        commit.unlink()
    again = read_all(url, token, spark, check, query="q", startingEpoch="1")
    assert [each.n for batch in again for each in batch] == [2, 3]


def test_a_stream_is_written_to_once(served: tuple[Database, str], spark: SparkSession, tmp_path: Path) -> None:
    db, url = served
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "0.json").write_text('{"n": 1, "at": "2026-01-30 12:00:00"}\n{"n": 2}\n')
    token = db.create_token("me", "writer")

    def to_ladle(writer: Any) -> Any:
        return writer.format("ladle").option("url", url).option("token", token).option("stream", "s")

    def run() -> None:
        frame = spark.readStream.schema("n INT, at TIMESTAMP").json(str(tmp_path / "in"))
        writer = to_ladle(frame.writeStream).option("checkpointLocation", str(tmp_path / "check"))
        writer.trigger(availableNow=True).start().awaitTermination()

    run()
    db.push("s", [], wait=True)
    settled(db, lambda: [each["n"] for each in db.sql("SELECT n FROM s").to_pylist()] == [1])
    assert "the timestamp is NULL" in db.sql("SELECT reason FROM s.quarantine").to_pylist()[0]["reason"]
    for commit in (tmp_path / "check" / "commits").iterdir():
        commit.unlink()
    (tmp_path / "in" / "1.json").write_text('{"n": 3, "at": "2026-01-30 12:00:01"}\n')
    run()
    settled(db, lambda: [each["n"] for each in db.sql("SELECT n FROM s").to_pylist()] == [1, 3])

    frame = spark.createDataFrame([(n, AT) for n in range(4, 8)], "n INT, at TIMESTAMP").repartition(2)
    for _ in range(2):
        to_ladle(frame.write.mode("append")).option("source", "nightly").save()
    settled(db, lambda: db.status().streams[0].rows == 6)
    kept = sorted(each["n"] for each in db.sql("SELECT n FROM s").to_pylist())
    assert kept == [1, 3, 4, 5, 6, 7]
    with pytest.raises(Exception, match="can't be overwritten"):
        to_ladle(frame.write.mode("overwrite")).save()
    with pytest.raises(Exception, match="Stream 'nothing' not found"):
        to_ladle(frame.write.mode("append")).option("stream", "nothing").save()


def settled(db: Database, what: Callable[[], bool]) -> None:
    """What was pushed is durable, and taken in a little later."""
    wait_until(lambda: what() and not any(stream.pending for stream in db.status().streams))
