"""Sources go on exactly once from a backup that was made while they ran."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.waiting import wait_until

import ladle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

FILES = 13
"""Spark makes one of its lists of files after ten."""
BACKED_UP_AFTER = (2, 6, 12)
ROWS = 20


def write_file(directory: Path, number: int) -> None:
    """Every third file has nothing that gets through the filter, so that its batch has no epoch."""
    rows = [{"n": -1 if number % 3 == 1 else number * ROWS + i} for i in range(ROWS)]
    hidden = directory / f".{number}.json"
    hidden.write_text("".join(json.dumps(row) + "\n" for row in rows))
    hidden.rename(directory / f"{number:02}.json")


def source(spark: SparkSession, directory: Path) -> Any:
    read = spark.readStream.schema("n INT").option("maxFilesPerTrigger", 1).json(str(directory))
    return read.where("n >= 0")


def numbers(db: ladle.Database) -> list[int]:
    return sorted(int(str(row["n"])) for row in db.sql("SELECT n FROM s").to_pylist())


def test_a_source_goes_on_exactly_once(tmp_path: Path, spark: SparkSession) -> None:
    inputs = tmp_path / "in"
    inputs.mkdir()
    expected = [n * ROWS + i for n in range(FILES) if n % 3 != 1 for i in range(ROWS)]
    backups = []
    with ladle.connect(tmp_path / "warehouse", spark=spark) as db:
        db.sql("CREATE STREAM s (n INT)")
        attached = db.attach("s", source(spark, inputs), source="files")
        for number in range(FILES):
            write_file(inputs, number)
            if number in BACKED_UP_AFTER:
                enough = number * ROWS // 3
                wait_until(lambda enough=enough: len(numbers(db)) >= enough)
                backups.append(tmp_path / f"backup{number}")
                with ladle.connect(tmp_path / "warehouse", read_only=True) as reader:
                    reader.backup(backups[-1])
        wait_until(lambda: numbers(db) == expected)
        attached.stop()
    for number, backup in enumerate(backups):
        ladle.restore(backup, tmp_path / f"restored{number}")
        with ladle.connect(tmp_path / f"restored{number}", spark=spark) as again:
            before = numbers(again)
            assert len(before) == len({*before} & {*expected})
            again.attach("s", source(spark, inputs), source="files", available_now=True)
            assert numbers(again) == expected, f"{backup.name} had {len(before)} rows"
