"""Both engines over the same table: one expression per column, per-row isolation of what raises."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from ladle.schema import TIMESTAMP, TIMESTAMP_NTZ
from tests.conformance.calls import Case

_ERROR = re.compile(r"CAST\(error\('(?:[^']|'')*'\) AS ([A-Z]+(?:\(\d+,\d+\))?)\)")


def connection(given: pa.Table, name: str = "v") -> duckdb.DuckDBPyConnection:
    con = duckdb.connect(config={"threads": "2", "enable_external_access": "false"})
    con.register("source", given)
    con.execute(f"CREATE TABLE {name} AS SELECT * FROM source")
    con.unregister("source")
    return con


def catchable(sql: str) -> str:
    """TRY can't hold a volatile function such as error(): a cast that fails stands in for it."""
    return _ERROR.sub(r"CAST(CAST(CAST('raised' AS INTEGER) AS VARCHAR) AS \1)", sql)


def in_duckdb(con: duckdb.DuckDBPyConnection, cases: Sequence[Case]) -> pa.Table:
    """Columns r0, n0, r1, n1...: the value, and whether it is NULL (NULL itself where the expression raised)."""
    columns = []
    for i, case in enumerate(cases):
        value = case.expression
        if case.translated.may_raise:
            value = catchable(value)
            columns += [f"TRY({value}) AS r{i}", f"TRY(({value}) IS NULL) AS n{i}"]
        else:
            columns += [f"{value} AS r{i}", f"({value}) IS NULL AS n{i}"]
    return con.sql(f"SELECT {', '.join(columns)} FROM v ORDER BY n").to_arrow_table()


def in_spark(frame: Any, cases: Sequence[Case]) -> pa.Table:
    """The same in Spark, where TryEval makes NULL of what raises."""
    from pyspark.sql.classic.column import Column

    jvm = frame.sparkSession._jvm
    expressions = jvm.org.apache.spark.sql.classic.ExpressionUtils
    make = jvm.org.apache.spark.sql.functions.expr

    def column(text: str, name: str, *, may_raise: bool) -> Any:
        parsed = make(text)
        if may_raise:
            tried = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(expressions.expression(parsed))
            parsed = expressions.column(tried)
        return Column(parsed).alias(name)

    columns = []
    for i, case in enumerate(cases):
        raises = case.translated.may_raise
        columns.append(column(case.spark, f"r{i}", may_raise=raises))
        columns.append(column(f"({case.spark}) IS NULL", f"n{i}", may_raise=raises))
    return frame.select(*columns).toArrow()


def zoned(type_: pa.DataType) -> pa.DataType:
    """What DuckDB returns for an expected type: timestamps have no zone there."""
    return TIMESTAMP_NTZ if type_ == TIMESTAMP else type_


def differs(spark: pa.Array, duck: pa.Array, *, approximate: bool = False, signed_zero: bool = True) -> list[int]:
    """Rows in which two columns of one type differ. NaN equals NaN; zeros are told apart by sign unless told not to."""
    if pa.types.is_floating(spark.type):
        bits = np.int32 if spark.type.bit_width == 32 else np.int64
        a, b = (np.asarray(x.fill_null(0).to_numpy(zero_copy_only=False)) for x in (spark, duck))
        nan = np.isnan(a) & np.isnan(b)
        if approximate:
            with np.errstate(invalid="ignore"):
                same = nan | (a == b) | (np.abs(a - b) <= 1e-9 * np.maximum(np.abs(a), np.abs(b)))
        elif signed_zero:
            same = nan | (a.view(bits) == b.view(bits))
        else:
            same = nan | (a == b)
        nulls = np.asarray(spark.is_null()) != np.asarray(duck.is_null())
        return np.flatnonzero(~same | nulls).tolist()
    if spark.equals(duck):
        return []
    return [i for i, (x, y) in enumerate(zip(spark.to_pylist(), duck.to_pylist(), strict=True)) if x != y]
