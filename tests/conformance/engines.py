"""Both engines over the same table: one expression per column, per-row isolation of what raises."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from tests.conformance.calls import Case

from ladle.schema import TIMESTAMP, TIMESTAMP_NTZ, type_name

_TEXT = r"'(?:[^']|'')*'"
_VALUE = r"(?P<value> \|\| left\([^()]+, 100\))"
_ERROR = re.compile(rf"CAST\(error\({_TEXT}({_VALUE} \|\| {_TEXT})?\) AS (?P<type>[A-Z]+(\(\d+,\d+\))?)\)")


def connection(given: pa.Table, name: str = "v") -> duckdb.DuckDBPyConnection:
    con = duckdb.connect(config={"threads": "2", "enable_external_access": "false"})
    # It would take what stands twice in an expression out of the TRY that is to catch it.
    con.execute("SET disabled_optimizers = 'common_subexpressions'")
    con.register("source", given)
    con.execute(f"CREATE TABLE {name} AS SELECT * FROM source")
    con.unregister("source")
    return con


def catchable(sql: str) -> str:
    """TRY can't hold a volatile function such as error(): a cast that fails stands in for it."""
    return _ERROR.sub(
        lambda found: f"CAST(CAST(CAST('raised'{found['value'] or ''} AS INTEGER) AS VARCHAR) AS {found['type']})", sql
    )


def in_duckdb(con: duckdb.DuckDBPyConnection, cases: Sequence[Case]) -> pa.Table:
    """One column per case; of what may raise, a struct of the value that is NULL itself where the expression raised."""
    columns = []
    for i, case in enumerate(cases):
        raises = case.translated.may_raise
        value = f"TRY({{'v': {catchable(case.expression)}}})" if raises else case.expression
        columns.append(f"{value} AS r{i}")
    return con.sql(f"SELECT {', '.join(columns)} FROM v ORDER BY n").to_arrow_table()


def in_spark_frame(spark: Any, given: pa.Table) -> Any:
    """The table in Spark, with its types: without a schema TIMESTAMP_NTZ would become TIMESTAMP."""
    schema = ", ".join(f"{field.name} {type_name(field.type)}" for field in given.schema)
    return spark.createDataFrame(given, schema)


def in_spark(frame: Any, cases: Sequence[Case]) -> pa.Table:
    """The same in Spark, where TryEval makes NULL of what raises."""
    from pyspark.sql.classic.column import Column

    jvm = frame.sparkSession._jvm
    expressions = jvm.org.apache.spark.sql.classic.ExpressionUtils
    make = jvm.org.apache.spark.sql.functions.expr
    tried = jvm.org.apache.spark.sql.catalyst.expressions.TryEval
    columns = []
    for i, case in enumerate(cases):
        if case.translated.may_raise:
            # never NULL by its type (<=>) it could not be NULL where it raised
            inner = make(f"named_struct('v', if(isnull(n), NULL, {case.spark}))")
            column = expressions.column(tried(expressions.expression(inner)))
        else:
            column = make(case.spark)
        columns.append(Column(column).alias(f"r{i}"))
    return frame.select(*columns).toArrow()


def split(table: pa.Table, index: int, *, may_raise: bool) -> tuple[pa.Array, pa.Array]:
    """A case's values, and in which rows it raised."""
    column = table.column(f"r{index}").combine_chunks()
    if not may_raise:
        return column, pa.array([False] * len(column))
    return pc.struct_field(column, "v"), column.is_null()


def zoned(type_: pa.DataType) -> pa.DataType:
    """What DuckDB returns for an expected type: timestamps have no zone there."""
    return TIMESTAMP_NTZ if type_ == TIMESTAMP else type_


def differs(
    spark: pa.Array, duck: pa.Array, *, approximate: bool = False, near: float = 0, signed_zero: bool = True
) -> list[int]:
    """Rows in which two columns of one type differ. NaN equals NaN; zeros are told apart by sign unless told not to.
    What is approximate may differ in the tenth digit, or by `near`.
    """
    if pa.types.is_floating(spark.type):
        bits = np.int32 if spark.type.bit_width == 32 else np.int64
        a, b = (np.asarray(x.fill_null(0).to_numpy(zero_copy_only=False)) for x in (spark, duck))
        nan = np.isnan(a) & np.isnan(b)
        if approximate:
            with np.errstate(invalid="ignore"):
                least = np.maximum(1e-9 * np.maximum(np.abs(a), np.abs(b)), near)
                same = nan | (a == b) | (np.abs(a - b) <= least)
        elif signed_zero:
            same = nan | (a.view(bits) == b.view(bits))
        else:
            same = nan | (a == b)
        nulls = np.asarray(spark.is_null()) != np.asarray(duck.is_null())
        return np.flatnonzero(~same | nulls).tolist()
    if spark.equals(duck):
        return []
    if pa.types.is_timestamp(spark.type):
        # Python's times end with the year 9999
        spark, duck = spark.cast(pa.int64()), duck.cast(pa.int64())
    return [i for i, (x, y) in enumerate(zip(spark.to_pylist(), duck.to_pylist(), strict=True)) if x != y]
