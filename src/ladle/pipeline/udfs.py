"""Users' functions as vectorised UDFs of Spark: the same Python, called with Arrow arrays in Spark's workers.

A residual that takes too long is cancelled as a whole, and Spark ends the worker that its function runs in.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql.pandas.functions import arrow_udf
from pyspark.sql.pandas.types import from_arrow_type

from ladle.errors import EvaluationError
from ladle.evaluate.user_functions import call
from ladle.plan import Function

if TYPE_CHECKING:
    from pyspark.sql._typing import UserDefinedFunctionLike

_SAID = re.compile(r"^(?:ladle\.errors\.)?EvaluationError: (.*)$", re.M)


def vectorised(function: Function) -> UserDefinedFunctionLike:
    """What `session.udf.register` takes."""

    def called(*arguments: pa.Array) -> pa.Array:
        return call(function, arguments)

    returns = from_arrow_type(function.returns, prefer_timestamp_ntz=True)
    return arrow_udf(called, returns)  # type: ignore[call-overload]  # the kind is told by the hints of `called`


def said_by_function(error: Exception) -> EvaluationError | None:
    """What a function did wrong, out of the traceback of a worker."""
    found = _SAID.search(str(error))
    return None if found is None else EvaluationError(found[1])
