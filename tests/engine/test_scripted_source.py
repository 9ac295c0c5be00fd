"""`ladle.testing.ScriptedSource`: what it delivers is there once, whenever it ended and whatever it had to say."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.engine.rows import values

from ladle.errors import LadleError, PipelineError, TypeMismatch
from ladle.testing import ScriptedSource, connect_inline

pytestmark = pytest.mark.not_at_one_row("its queries have no residual")

STREAM = "CREATE STREAM s (n BIGINT)"


@settings(max_examples=15)
@given(sizes=st.lists(st.integers(0, 3), min_size=1, max_size=5), aborts=st.sets(st.integers(0, 4)))
def test_each_row_is_there_once(tmp_path_factory: pytest.TempPathFactory, sizes: list[int], aborts: set[int]) -> None:
    path = tmp_path_factory.mktemp("scripted") / "warehouse"
    batches: list[object] = []
    expected: list[int] = []
    for number, size in enumerate(sizes):
        rows = list(range(len(expected), len(expected) + size))
        batches.append(pa.table({"n": pa.array(rows, pa.int64())}))
        expected += rows
        if number in aborts:
            batches.append(ScriptedSource.ABORT)
    source = ScriptedSource(batches)  # type: ignore[arg-type]
    with connect_inline(path) as db:
        db.sql(STREAM)
    states = []
    for _ in range(len(sizes) + 1):
        with connect_inline(path) as db:
            states.append(db.attach("s", source).state)
            if states[-1] == "drained":
                break
    assert states == ["stopped"] * len([number for number in aborts if number < len(sizes)]) + ["drained"]
    with connect_inline(path) as db:
        assert values(db.sql("SELECT n FROM s")) == expected


def test_another_object_goes_on_from_the_checkpoint(tmp_path: Path) -> None:
    with connect_inline(tmp_path / "warehouse") as db:
        db.sql(STREAM)
        db.attach("s", ScriptedSource([[{"n": 1}]]))
        db.attach("s", ScriptedSource([[{"n": 1}], [{"n": 2}]]))
        db.attach("s", ScriptedSource([[{"n": 7}]]), source="other")
        assert values(db.sql("SELECT n FROM s")) == [1, 2, 7]


def test_what_does_not_fit_is_told(tmp_path: Path) -> None:
    with connect_inline(tmp_path / "warehouse") as db:
        db.sql(STREAM)
        with pytest.raises(TypeMismatch, match="no column 'm'"):
            db.attach("s", ScriptedSource([[{"m": 1}]]))
        with pytest.raises(PipelineError, match="needs Spark"):
            db.attach("s", "a DataFrame")  # type: ignore[arg-type]
        source = ScriptedSource([[{"n": 1}], [{"n": None}], [{}]])
        assert db.attach("s", source).state == "drained"
        assert values(db.sql("SELECT n FROM s")) == [1, None, None]
    for wrong, why in (([], "at least one batch"), ([ScriptedSource.ABORT], "after a batch")):
        with pytest.raises(TypeMismatch, match=why):
            ScriptedSource(wrong)
    with pytest.raises(TypeMismatch, match="at least one batch") as none:
        ScriptedSource([[], [{"n": 1}]])
    assert "an Arrow table" in str(none.value.hint)
    assert ScriptedSource([pa.table({"n": pa.array([], pa.int64())}), [{"n": 1}]]).schema.names == ["n"]
    with pytest.raises(TypeMismatch, match="The first batch can't be an Arrow table"):
        ScriptedSource([[{"n": object()}]])
    with pytest.raises(TypeMismatch, match="The first batch has no column 'm'"):
        ScriptedSource([[{"n": 1}], [{"m": 1}]])
    with pytest.raises(TypeMismatch, match="does not fit the first one"):
        ScriptedSource([[{"n": 1}], [{"n": "one"}]])


def test_one_that_fails_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect_inline(tmp_path / "warehouse") as db:
        db.sql(STREAM)

        def fail(*_: object) -> None:
            raise LadleError("The disk is full.")

        with monkeypatch.context() as failing:
            failing.setattr("ladle.testing.inline.run_task", fail)
            attached = db.attach("s", ScriptedSource([[{"n": 1}]]))
            assert (attached.state, attached.error) == ("failed", "The disk is full.")
            with pytest.raises(PipelineError, match="The disk is full"):
                db.attach("s", ScriptedSource([[{"n": 1}]]), available_now=True)
        assert db.attach("s", ScriptedSource([[{"n": 1}]])).state == "drained"
        assert values(db.sql("SELECT n FROM s")) == [1]
