"""Users' functions, called: Arrow arrays in, one array of the declared type and of the same length out.

The source is run when a function is first called in a process, in a module of its own that knows nothing but `pa`, `pc`
and `np`. What it gives is cast to the declared type within a kind (numbers, texts, times) and only without loss.
"""

from __future__ import annotations
import __future__

import traceback
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from types import CodeType, ModuleType

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ladle.errors import EvaluationError
from ladle.plan import Function
from ladle.schema import type_name

PROVIDED: Mapping[str, ModuleType] = {"pa": pa, "pc": pc, "np": np}
"""Names that a function need not import."""

_HINT = "no other query is harmed; mend the function with CREATE OR REPLACE FUNCTION"


def file_name(name: str) -> str:
    """What tracebacks call a function's source."""
    return f"<function {name}>"


def compile_source(name: str, source: str) -> CodeType:
    """The source as code. Annotations are not evaluated: they often name what is imported elsewhere."""
    flags = __future__.annotations.compiler_flag
    return compile(source, file_name(name), "exec", flags=flags, dont_inherit=True)


def call(function: Function, arguments: Sequence[pa.Array]) -> pa.Array:
    """The function over arrays of equal length; EvaluationError says what it did wrong."""
    given = [
        argument if argument.type == parameter.type else argument.cast(parameter.type)
        for argument, parameter in zip(arguments, function.parameters, strict=True)
    ]
    try:
        result = _load(function)(*given)
    except Exception as error:
        raise raised(function, error) from error
    return _checked(function, result, len(given[0]))


def raised(function: Function, error: BaseException) -> EvaluationError:
    """What a function raised, and where."""
    inside = [step.lineno for step in traceback.extract_tb(error.__traceback__) if step.filename == _file_of(function)]
    where = f" (line {inside[-1]} of its source)" if inside else ""
    said = f": {error}" if str(error) else ""
    return EvaluationError(f"Function '{function.name}' raised {type(error).__name__}{said}{where}", hint=_HINT)


def _file_of(function: Function) -> str:
    return file_name(function.name)


@lru_cache(maxsize=1_024)
def _load(function: Function) -> Callable[..., object]:
    module: dict[str, object] = {"__name__": f"ladle_function_{function.name}", **PROVIDED}
    exec(compile_source(function.name, function.source), module)
    found = module[function.name]
    assert callable(found), "looked at when it was defined"
    return found


def _checked(function: Function, result: object, rows: int) -> pa.Array:
    array = _as_array(function, result)
    if len(array) != rows:
        raise EvaluationError(
            f"Function '{function.name}' returned {len(array)} values for {rows} rows.",
            hint="it is given arrays, and returns one value for each of their elements",
        )
    if array.type == function.returns:
        return array
    wanted = type_name(function.returns)
    if pa.types.is_dictionary(array.type):
        array = array.dictionary_decode()
    if not pa.types.is_null(array.type) and _kind(array.type) != _kind(function.returns):
        raise EvaluationError(
            f"Function '{function.name}' returned {type_name(array.type)}, not {wanted}.",
            hint=f"return an array of {function.returns}, or declare another type",
        )
    try:
        if pa.types.is_integer(array.type) and pa.types.is_decimal(function.returns):
            # Arrow asks for a decimal that holds every integer of the type, not those that are there.
            array = array.cast(pa.decimal128(38, function.returns.scale))
        return array.cast(function.returns)
    except pa.ArrowException as error:
        raise EvaluationError(f"Function '{function.name}' returned a value that is no {wanted}: {error}") from None


def _as_array(function: Function, result: object) -> pa.Array:
    if isinstance(result, pa.ChunkedArray):
        result = result.combine_chunks()
    if isinstance(result, pa.Array):
        return result
    if isinstance(result, np.ndarray) and result.ndim == 1:
        mask = np.ma.getmaskarray(result) if isinstance(result, np.ma.MaskedArray) else None
        try:
            return pa.array(np.asarray(result), mask=mask)
        except pa.ArrowException as error:
            raise EvaluationError(f"Function '{function.name}' returned what is no array of values: {error}") from None
    what = f"an array of {result.ndim} dimensions" if isinstance(result, np.ndarray) else type(result).__name__
    raise EvaluationError(
        f"Function '{function.name}' returned {what}, not an array.",
        hint="it is given pyarrow arrays, and returns a pyarrow or numpy array of the same length",
    )


def _kind(type_: pa.DataType) -> str:
    """Types between which a result may be cast."""
    types = pa.types
    if types.is_integer(type_) or types.is_floating(type_) or types.is_decimal(type_):
        return "number"
    if types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_):
        return "text"
    if types.is_binary(type_) or types.is_large_binary(type_) or types.is_binary_view(type_):
        return "binary"
    if types.is_fixed_size_binary(type_):
        return "binary"
    if types.is_date(type_):
        return "date"
    return "timestamp" if types.is_timestamp(type_) else str(type_)
