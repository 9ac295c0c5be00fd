"""Spark's classes in an archive that the JVM maps: sooner than it loads and verifies them, by a third of its start.

    python -m ladle.pipeline.classes     makes the archive, in half a minute; `make setup` does

The archive is for one Java and one Spark. A JVM that it does not fit starts without it, as it does where there is none.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from ladle.config import SparkStart

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ARCHIVE = Path(sys.prefix) / "share" / "ladle" / f"spark-{pyspark.__version__}.jsa"

_SILENT = "-Xlog:disable -Xlog:all=error:stderr"
"""Otherwise a JVM says on stdout what of an archive it can't use."""


def archive_options() -> str:
    """What a JVM is told of the archive, if there is one."""
    return f'"-XX:SharedArchiveFile={ARCHIVE}" {_SILENT}' if ARCHIVE.exists() else ""


def make_archive() -> None:
    """Have a JVM do a little of everything, and write down the classes that this took."""
    from ladle.pipeline.spark_session import start_session

    ARCHIVE.parent.mkdir(parents=True, exist_ok=True)
    ARCHIVE.unlink(missing_ok=True)
    quick = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
    os.environ["SPARK_SUBMIT_OPTS"] = f'{quick} "-XX:ArchiveClassesAtExit={ARCHIVE}" {_SILENT}'
    session, _ = start_session(SparkStart())
    gateway = session.sparkContext._gateway
    with tempfile.TemporaryDirectory() as directory:
        _do_a_little(session, directory)
    session.stop()
    assert gateway is not None
    gateway.shutdown()
    gateway.proc.communicate()  # the end of its input is its sign to end, and to write
    if not ARCHIVE.exists():
        sys.exit("the JVM wrote no archive")


def _do_a_little(session: SparkSession, directory: str) -> None:
    import ladle

    with ladle.connect(Path(directory), spark=session) as db:
        db.sql("CREATE STREAM ticks (timestamp TIMESTAMP, value BIGINT) TIMESTAMP BY timestamp")
        db.register("SELECT value FROM ticks WHERE value % 3 = 0", name="thirds")
        rate = session.readStream.format("rate-micro-batch").option("rowsPerBatch", 10).load()
        db.attach("ticks", rate.select("timestamp", "value"), source="rate", available_now=True)
        db.push("ticks", [{"timestamp": "2000-01-01 00:00:00", "value": 0}], wait=True)
        db.backfill()
        db.sql(
            "SELECT soundex(string(max(a.value))) AS c FROM ticks a JOIN ticks b ON a.value = b.value GROUP BY a.value"
        )


if __name__ == "__main__":
    make_archive()
