"""Windows from panes, beside adding up the panes inside of each one by one."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladle.operators.panes import Starts
from ladle.plan.aggregate import Windows

FOLDS = {"sum": (np.add, 0), "least": (np.minimum, 99), "most": (np.maximum, -99), "any": (np.logical_or, False)}


@pytest.mark.parametrize("fold", FOLDS)
@given(
    size=st.integers(1, 70),
    slide=st.integers(1, 20),
    offset=st.integers(-30, 30),
    first=st.integers(-40, 40),
    rows=st.lists(st.tuples(*[st.integers(-9, 9)] * 2), min_size=1, max_size=20),
)
def test_each_window_has_what_its_panes_have(
    fold: str, size: int, slide: int, offset: int, first: int, rows: list[tuple[int, int]]
) -> None:
    windows = Windows("t", size, slide, offset)
    combine, empty = FOLDS[fold]
    panes = np.array(rows, dtype=bool if fold == "any" else np.int64)
    starts = Starts.of(windows, first, len(panes))
    got = starts.combined(panes, combine, empty)
    assert got.shape == (starts.count, 2)
    length, begins = windows.panes.length_us, windows.panes.offset_us
    for number in range(starts.first - 3, starts.first + starts.count + 3):
        start = number * slide + offset
        inside = [
            row
            for pane, row in enumerate(panes, first)
            if start <= pane * length + begins and (pane + 1) * length + begins <= start + size
        ]
        if inside:
            assert 0 <= number - starts.first < starts.count
        if 0 <= number - starts.first < starts.count:
            wanted = combine.reduce(np.array([*inside, [empty] * 2], dtype=panes.dtype))
            assert got[number - starts.first].tolist() == wanted.tolist()
