"""Older versions of tables as differences, against the versions themselves: random rows of every type."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.archive.strategies import tables

from ladle.archive.table_versions import Difference, Versions, file_schema


@given(table=tables(rows_max=12), data=st.data())
@settings(max_examples=60, deadline=None)
def test_every_version_comes_back(table: pa.Table, data: st.DataObject) -> None:
    """Versions are random picks of the same rows, with repetitions; looked at in any order, by some columns."""
    picks = st.lists(st.integers(0, len(table) - 1), max_size=12) if len(table) else st.just([])
    picked = data.draw(st.lists(picks, min_size=1, max_size=5))
    versions = [table.take(pa.array(numbers, pa.int64())) for numbers in picked]
    columns = data.draw(st.lists(st.sampled_from(table.column_names), min_size=1, unique=True))
    with TemporaryDirectory() as place:
        paths: list[Path | None] = []
        for number, (older, newer) in enumerate(pairwise(versions)):
            difference = Difference.between(older, newer)
            assert difference.apply(newer).equals(older)
            assert difference.inverse(newer).apply(older).equals(newer)
            prefix = difference.is_prefix(len(older))
            assert prefix == newer.slice(0, len(older)).equals(older)
            paths.append(None if prefix else Path(place) / f"{number}.parquet")
            if paths[-1] is not None:
                assert difference.write(paths[-1])[0] == len(difference.dropped) + len(difference.rows)

        def read(version: int, following: pa.Table) -> Difference:
            path = paths[version]
            if path is None:
                return Difference.of_prefix(len(versions[version]), following)
            fields = file_schema(table.schema)
            whole = pq.read_table(path).cast(fields)
            return Difference.from_columns(whole.select([fields.names[0], *columns]))

        past = Versions(versions[-1].select(columns), len(versions) - 1, read)
        for version in data.draw(st.lists(st.integers(0, len(versions) - 1), max_size=8)):
            assert past.at(version).equals(versions[version].select(columns))


def test_what_two_versions_have_is_not_written() -> None:
    older = pa.table({"n": [1, 2, 2, 3, 4, 5]})
    for newer, going, coming, prefix in (
        ([1, 2, 2, 3, 4, 5, 6, 7], 2, 0, True),
        ([0, 1, 2, 2, 3, 4, 5], 1, 0, False),
        ([1, 4, 5], 0, 3, False),
        ([1, 9, 9, 3, 4, 5], 2, 2, False),
        ([2, 2, 3, 4, 5, 6], 1, 1, False),
        ([], 0, 6, False),
    ):
        found = Difference.between(older, pa.table({"n": pa.array(newer, pa.int64())}))
        assert (len(found.dropped), len(found.rows), found.is_prefix(len(older))) == (going, coming, prefix)


def test_values_that_are_equal_and_not_the_same() -> None:
    """-0.0 and 0.0 are two values, and NaN is one."""
    floats: list[Any] = [0.0, float("nan"), None]
    older, newer = (pa.table({"_place": pa.array(each, pa.float64())}) for each in (floats, [-0.0, *floats[1:]]))
    found = Difference.between(older, newer)
    assert found.dropped.tolist() == found.places.tolist() == [0]
    assert repr(found.rows.column(0).to_pylist()) == "[0.0]"
    assert file_schema(older.schema).names == ["__place", "_place"]
    assert Difference.between(older, older).is_prefix(3)
