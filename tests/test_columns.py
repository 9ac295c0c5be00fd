"""Arrow and NumPy over the same memory, against PyArrow's own conversion."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladle.columns import from_numpy, from_strings, to_numpy


@given(st.lists(st.booleans()), st.integers(0, 9), st.integers(0, 9))
def test_booleans_at_any_offset(values: list[bool], first: int, last: int) -> None:
    array = pa.array(values, pa.bool_())
    sliced = array.slice(first, max(0, len(values) - first - last))
    assert to_numpy(sliced).tolist() == sliced.to_pylist()
    assert to_numpy(pa.chunked_array([array, sliced], pa.bool_())).tolist() == values + sliced.to_pylist()
    assert from_numpy(np.array(values, dtype=np.bool_)).to_pylist() == values


@pytest.mark.parametrize("type_", [pa.int8(), pa.uint32(), pa.int64(), pa.float32(), pa.float64()])
@given(values=st.lists(st.integers(0, 100)), first=st.integers(0, 5))
def test_numbers_at_any_offset(type_: Any, values: list[int], first: int) -> None:
    array = pa.array(values, type_).slice(first)
    found = to_numpy(array)
    assert found.tolist() == array.to_pylist()
    assert from_numpy(found).equals(array)
    assert to_numpy(pa.chunked_array([], type_)).tolist() == []


def test_every_other_value_is_copied_right() -> None:
    assert from_numpy(np.arange(10)[::2]).to_pylist() == [0, 2, 4, 6, 8]


@given(st.lists(st.none() | st.text()))
def test_strings(values: list[str | None]) -> None:
    array = from_strings(values)
    array.validate(full=True)
    assert array.to_pylist() == values
