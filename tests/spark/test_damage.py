"""Spark reads segments itself: it verifies them too."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

import ladle
from ladle.errors import DamagedFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.not_at_one_row("the setting is its subject")]

ASKED = "SELECT sum(n + 0) AS total FROM ticks"


def test_damage_that_spark_meets_is_named(tmp_path: Path, spark: SparkSession) -> None:
    settings = {"residual_rows_max": 1, "compact_files_min": 1_000}
    with ladle.connect(tmp_path / "warehouse", spark=spark, settings=settings) as db:
        db.sql("CREATE STREAM ticks (n INT, at TIMESTAMP) TIMESTAMP BY at")
        for first in (0, 50):
            rows = [{"n": n, "at": f"2026-01-01T00:00:{n % 60:02d}Z"} for n in range(first, first + 50)]
            db.push("ticks", rows, wait=True)
        assert db.sql(ASKED).to_pylist() == [{"total": sum(range(100))}]
        path = sorted(tmp_path.glob("warehouse/streams/*/archive/*.parquet"))[0]
        whole = path.read_bytes()
        column = pq.read_metadata(path).row_group(0).column(0)
        values, footer = column.data_page_offset + column.total_compressed_size - 1, len(whole) - 300
        for at in (values, footer):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 8]) + whole[at + 1 :])
            with pytest.raises(DamagedFile, match=path.name):
                db.sql(ASKED)
        path.write_bytes(whole)
        assert db.sql(ASKED).to_pylist() == [{"total": sum(range(100))}]
