"""What Spark reads for the sources that are defined in SQL: files, sockets, Kafka, and the source that counts."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructType
from pyspark.version import __version__ as SPARK_VERSION

from ladle.errors import PipelineError
from ladle.pipeline.spark_reasons import reason_of
from ladle.stem.intake import CORRUPT, FILE

KAFKA_PACKAGE = f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_VERSION}"
_MALFORMED = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": CORRUPT}
"""A line that can't be parsed is a row too, for the quarantine."""
_OWN = {name.lower() for name in _MALFORMED}


def streaming_frame(session: SparkSession, form: str, options: Mapping[str, str], schema: StructType) -> DataFrame:
    """The streaming DataFrame of a source that is defined in SQL. Its values are checked later, not by Spark."""
    given = {name: value for name, value in options.items() if name.lower() not in _OWN}
    reader = session.readStream.format(form).options(**given)
    try:
        match form:
            case "json" | "csv":
                reader = reader.options(**_MALFORMED)
                if form == "csv" and _lowered(options).get("header") == "true":
                    # Columns of a file with a header go by its names; Spark's default takes them as they come.
                    reader = reader.option("enforceSchema", _lowered(options).get("enforceschema", "false"))
                return _with_file(reader.schema(_with_malformed(schema)).load())
            case "parquet":
                return reader.schema(schema).load()
            case "socket" | "kafka":
                return _parsed(reader.load(), schema)
            case _:
                return reader.load()
    except PySparkException as error:
        if form == "kafka" and isinstance(error, AnalysisException) and "kafka" in str(error).lower():
            raise _kafka_missing(error) from None
        raise PipelineError(f"Spark can't read the source: {reason_of(error)}") from None


def _parsed(frame: DataFrame, schema: StructType) -> DataFrame:
    """JSON in the column `value`, a row each."""
    value = F.col("value").cast("string")
    parsed = F.from_json(value, _with_malformed(schema), _MALFORMED).alias("parsed")
    return frame.where(F.trim(value) != "").select(parsed).select("parsed.*")


def _with_file(frame: DataFrame) -> DataFrame:
    """With the name of the file of each row that could not be read, for the quarantine; Spark has it as a part of an
    address.
    """
    part = frame.metadataColumn("_metadata").getField("file_name")
    name = F.url_decode(F.replace(part, F.lit("+"), F.lit("%2B")))
    return frame.withColumn(FILE, F.when(F.col(CORRUPT).isNotNull(), name))


def _with_malformed(schema: StructType) -> StructType:
    return StructType([*schema.fields]).add(CORRUPT, StringType())


def _lowered(options: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value.lower() for name, value in options.items()}


def _kafka_missing(error: Exception) -> PipelineError:
    if "Failed to find" not in str(error):
        return PipelineError(f"Spark can't read from Kafka: {reason_of(error)}")
    return PipelineError(
        f"Spark has no connector for Kafka: the package {KAFKA_PACKAGE} is missing.",
        hint=f"start with PYSPARK_SUBMIT_ARGS='--packages {KAFKA_PACKAGE} pyspark-shell', or name it in "
        "spark.jars.packages of conf/spark-defaults.conf or of the session that is given to connect",
    )
