"""What a window takes of a stream's segments, against a look at every segment."""

from __future__ import annotations

import gc
from dataclasses import replace
from weakref import ref

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ladle.archive import layout as layouts
from ladle.archive.layout import Extent, Layout, newer
from ladle.archive.segments import DataFile, Segment
from ladle.catalog import StreamState
from ladle.engine import Database
from ladle.schema import Column, StreamSchema

STREAM = StreamState(1, "s", StreamSchema((Column("t", pa.timestamp("us", tz="UTC")),), timestamp="t"))
segments = st.builds(
    lambda rows, low, span: Segment(rows, low, low + span), st.integers(1, 9), st.integers(0, 40), st.integers(0, 12)
)
files = st.lists(st.lists(segments, min_size=1, max_size=3), max_size=5)


def stream_of(*files: list[Segment]) -> StreamState:
    named = tuple(DataFile(f"f{n}", 100, 0, n, n, tuple(each)) for n, each in enumerate(files))
    return STREAM.appended(named, 1, 1, 0)


def layout_of(stream: StreamState, before: Layout | None = None) -> Layout:
    return Layout(stream.files, stream.segments, before)


@given(
    files=files,
    begin=st.integers(-2, 55),
    span=st.integers(0, 30),
    first_id=st.integers(0, 60),
    next_id=st.one_of(st.none(), st.integers(0, 60)),
    gone=st.sets(st.integers(0, 4)),
)
def test_pieces_are_the_segments_that_may_hold_tuples(
    files: list[list[Segment]], begin: int, span: int, first_id: int, next_id: int | None, gone: set[int]
) -> None:
    """Also where retention has let go of files, so that ids have gaps."""
    stream = stream_of(*files).replaced({f"f{n}" for n in gone}, (), 9)
    layout = layout_of(stream)
    cut = layout.cut(Extent(begin, begin + span, first_id, next_id))
    expected, rows, place = [], 0, 0
    for file in stream.files:
        id_ = file.first_id
        for group, segment in enumerate(file.segments):
            skip = max(first_id - id_, 0)
            stop = segment.rows if next_id is None else min(segment.rows, next_id - id_)
            if segment.ts_max_us > begin and segment.ts_min_us <= begin + span and skip < stop:
                edge = segment.ts_min_us <= begin or segment.ts_max_us > begin + span
                expected.append((file, group, segment.rows, skip, edge, stop))
                rows += stop - skip
                assert cut.pieces[len(expected) - 1].first_id == id_
            for number in range(segment.rows):
                assert layout.place(id_ + number) == place + number
                assert layout.id_at(place + number) == (id_ + number if place + number else 0)
            id_, place = id_ + segment.rows, place + segment.rows
    assert [(p.file, p.row_group, p.rows, p.skip, p.edge, p.stop) for p in cut.pieces] == expected
    assert cut.rows == rows
    assert len(cut.numbers) == len(expected)


def test_a_cut_is_found_once_for_all_who_ask() -> None:
    layout = layout_of(stream_of([Segment(3, 0, 2), Segment(3, 3, 5)]))
    assert layout.cut(Extent(1, 4)) is layout.cut(Extent(1, 4))
    assert layout.cut(Extent(1, 4)) is not layout.cut(Extent(1, 5))


def test_what_cuts_keep_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(layouts, "_ENTRIES_MAX", 12)
    monkeypatch.setattr(layouts, "_CUTS_MAX", 3)
    layout = layout_of(stream_of([Segment(1, n, n) for n in range(4)]))
    first = layout.cut(Extent(-1, 9))
    assert len(first.pieces) == 4
    assert layout.cut(Extent(-1, 9)) is first
    assert len(layout.cut(Extent(0, 9)).pieces) == 3
    assert layout.cut(Extent(-1, 9)) is not first
    kept = [layout.cut(Extent(n, 9)) for n in range(3)]
    assert layout.cut(Extent(0, 9)) is not kept[0]


def test_a_layout_grows_with_its_stream_and_knows_when_it_was_rewritten() -> None:
    one = stream_of([Segment(1, 0, 0)])
    two = one.appended((DataFile("g", 100, 0, 1, 1, (Segment(2, 1, 2),)),), 2, 2, 0)
    old = layout_of(one)
    grown = layout_of(two, old)
    assert grown.lineage is old.lineage
    assert grown.keys == [("f0", 0), ("g", 0)]
    assert newer(grown, old)
    assert not newer(layout_of(one, grown), grown)
    compacted = two.replaced({"f0", "g"}, (replace(two.files[0], name="h", level=1),), 9)
    rewritten = layout_of(compacted, grown)
    assert rewritten.lineage is not old.lineage
    assert rewritten.keys == [("h", 0)]
    assert newer(rewritten, grown)


def test_two_that_grew_from_one_have_lineages_of_their_own(db: Database) -> None:
    """An epoch and, before anybody looked, a compaction: what is kept by segment number must not be mixed up."""
    a = stream_of([Segment(1, 0, 0)])
    b, c = (DataFile(name, 100, 0, 1, 1, (Segment(1, n, n),)) for n, name in enumerate("bc", 1))
    whole = a.appended((b, c), 2, 2, 0)
    compacted = whole.replaced({"b", "c"}, (DataFile("bc", 100, 1, 1, 1, (Segment(2, 1, 2),)),), 9)
    store = db._store
    assert store.layout(a) is store.layout(a)
    first, second = store.layout(whole), store.layout(compacted)
    assert first.lineage is not second.lineage
    # A snapshot that is older only has fewer segments, and does not take the newest one's place.
    assert store.layout(a).lineage is second.lineage
    assert store.layout(compacted) is second


def test_a_layout_that_nobody_needs_is_gone_at_once() -> None:
    layout = layout_of(stream_of([Segment(3, 0, 2), Segment(3, 3, 5)]))
    assert len(layout.cut(Extent(1, 4)).pieces) == 2
    gone = ref(layout)
    gc.disable()
    try:
        del layout
        assert gone() is None
    finally:
        gc.enable()
