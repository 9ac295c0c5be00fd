"""The rows of a Spark DataFrame that is pushed: computed once, and handed over as one Arrow table."""

from __future__ import annotations

import uuid
from typing import TypeGuard

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame

from ladle.errors import PipelineError, Unsupported
from ladle.interrupt import run_apart
from ladle.pipeline.spark_reasons import reason_of


def is_frame(rows: object) -> TypeGuard[DataFrame]:
    """Whether what was pushed is a Spark DataFrame."""
    return isinstance(rows, DataFrame)


def collected(frame: DataFrame) -> pa.Table:
    """All rows, through the driver: a push is durable and counts as a whole. One job, which Ctrl-C cancels."""
    if frame.isStreaming:
        raise Unsupported(
            "A streaming DataFrame has no end, so it can't be pushed.",
            hint='let it flow in: db.attach("stream", df, source="name")',
        )
    session, tag = frame.sparkSession, f"ladle-push-{uuid.uuid4()}"

    def collect() -> pa.Table:
        session.addTag(tag)  # of the jobs of this thread
        return frame.toArrow()

    try:
        return run_apart(collect, lambda: session.interruptTag(tag))
    except PySparkException as error:
        raise PipelineError(
            f"The rows of the DataFrame could not be computed: {reason_of(error)}",
            hint="if they are too many for one push, write them as files and let a source read these: CREATE SOURCE",
        ) from None
