"""What Arrow takes when its values are written out: as much as if they had come plainly."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladle.foreign import written_out_bytes

TEXTS = st.lists(st.none() | st.text(max_size=40), max_size=30)


@given(TEXTS, st.integers(0, 5), st.sampled_from([pa.string(), pa.large_string(), pa.string_view()]))
def test_as_much_as_their_texts(texts: list[str | None], skipped: int, kind: pa.DataType) -> None:
    column = pa.array(texts, kind)[skipped:]
    used = sum(len(text.encode()) for text in texts[skipped:] if text is not None)
    twice = pa.array([n for n in range(len(column)) for _ in range(2)], pa.int32())
    assert written_out_bytes(pa.record_batch({"t": pa.DictionaryArray.from_arrays(twice, column)})) == 2 * used
    if kind == pa.string_view():
        assert written_out_bytes(pa.record_batch({"t": column})) == used


@pytest.mark.parametrize("kind", [pa.int64(), pa.timestamp("us"), pa.bool_()])
def test_values_of_one_size(kind: pa.DataType) -> None:
    values = pa.array([1, 0, 1], pa.int64()).cast(kind)
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 2] * 100), values)
    assert written_out_bytes(pa.record_batch({"n": column})) == 300 * (1 if kind == pa.bool_() else 8)
    assert written_out_bytes(pa.record_batch({"n": values})) == values.nbytes
