"""The catalog: whatever the entries, applying them one by one, or from any checkpoint on, gives the same state."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ladle import catalog as entries
from ladle import sql
from ladle.archive.segments import DataFile, Segment
from ladle.catalog import Catalog, StreamState
from ladle.schema import Column, StreamSchema
from ladle.sql.statements import Materialize
from ladle.stem.epoch import as_files

pytestmark = pytest.mark.not_at_one_row("no engine takes part")

TYPES = (pa.int32(), pa.string(), pa.decimal128(10, 2), pa.list_(pa.float64()), pa.timestamp("us"))


def same(a: Catalog, b: Catalog) -> None:
    assert a.to_json() == b.to_json()
    for name, stream in a.streams.items():
        for mine, other in ((stream, b.streams[name]), (stream.quarantine, b.streams[name].quarantine)):
            assert mine is not None
            assert other is not None
            for field in ("file", "row_group", "rows", "ts_min_us", "ts_max_us"):
                assert getattr(mine.segments, field).tolist() == getattr(other.segments, field).tolist()


class Entries(RuleBasedStateMachine):
    """Random entries, as the engine would make them."""

    @initialize()
    def begin(self) -> None:
        self.catalog = Catalog()
        self.log: list[dict[str, Any]] = []
        self.checkpoints: list[tuple[int, str]] = []
        self.ids: set[int] = set()
        self.names = 0
        self.files = 0

    def commit(self, entry: dict[str, Any]) -> None:
        # What is applied is what a reader of the log gets.
        entry = json.loads(json.dumps(entry))
        self.log.append(entry)
        self.catalog = self.catalog.apply(len(self.log), entry)

    def new_ids(self, ids: set[int]) -> None:
        assert not ids & self.ids, "an id was used again"
        assert max(ids) < self.catalog.next_id
        self.ids |= ids

    @rule(event=st.booleans(), retain=st.one_of(st.none(), st.integers(1, 100)), again=st.booleans())
    def create_stream(self, event: bool, retain: int | None, again: bool) -> None:
        name = "again" if again and "again" not in self.catalog.streams else f"S{self.names}"
        self.names += 1
        columns = (Column("n", pa.int32()), Column("at", pa.timestamp("us", "UTC")))
        self.commit(entries.create_stream(name, StreamSchema(columns, "at" if event else None), retain, None))
        stream = self.catalog.streams[name.lower()]
        assert stream.quarantine is not None
        self.new_ids({stream.id, stream.quarantine.id})

    def pick(self, data: st.DataObject) -> StreamState:
        return self.catalog.streams[data.draw(st.sampled_from(sorted(self.catalog.streams)))]

    @precondition(lambda self: self.catalog.streams)
    @rule(data=st.data(), rows=st.integers(0, 3), bad=st.integers(0, 2), times=st.integers(-50, 50))
    def epoch(self, data: st.DataObject, rows: int, bad: int, times: int) -> None:
        stream = self.pick(data)
        batch = stream.batches.get("src", -1) + 1
        made = self.make(rows, times)
        self.commit(entries.epoch(stream.name, "src", batch, times, made, self.make(bad, times)))
        after = self.catalog.streams[stream.name.lower()]
        assert after.batches["src"] == batch
        assert after.rows == stream.rows + sum(file.rows for file in made)
        assert all(file.epoch_first == self.catalog.epoch for file in after.files[len(stream.files) :])

    def make(self, count: int, times: int) -> list[DataFile]:
        made = []
        for _ in range(count):
            self.files += 1
            segments = (Segment(2, times, times + 1), Segment(1, times - 5, times))
            made.append(DataFile(f"f{self.files}", 10, 0, 0, 0, segments))
        return made

    @precondition(lambda self: any(len(s.files) > 1 for s in self.catalog.streams.values()))
    @rule(data=st.data())
    def compact(self, data: st.DataObject) -> None:
        stream = data.draw(st.sampled_from([s for s in self.catalog.streams.values() if len(s.files) > 1]))
        first = data.draw(st.integers(0, len(stream.files) - 2))
        last = data.draw(st.integers(first + 1, len(stream.files) - 1))
        run = stream.files[first : last + 1]
        (merged,) = self.make(1, 0)
        self.commit(entries.replace_files(stream.name, [file.name for file in run], [merged], "compaction"))
        after = self.catalog.streams[stream.name.lower()]
        names = [file.name for file in stream.files]
        assert [file.name for file in after.files] == [*names[:first], merged.name, *names[last + 1 :]]
        assert (after.rows, after.clock_us) == (stream.rows, stream.clock_us)

    @precondition(lambda self: self.catalog.streams)
    @rule(data=st.data(), kind=st.sampled_from(["column", "retain", "drop"]), type_=st.sampled_from(TYPES))
    def change(self, data: st.DataObject, kind: str, type_: pa.DataType) -> None:
        stream = self.pick(data)
        self.names += 1
        match kind:
            case "column":
                self.commit(entries.add_column(stream.name, Column(f"c{self.names}", type_)))
                column = self.catalog.streams[stream.name.lower()].schema.column(f"C{self.names}")
                assert column is not None
                assert column.type == type_
            case "retain":
                self.commit(entries.set_retain(stream.name, self.names))
            case "drop":
                gone = self.catalog.queries_on(stream.name)
                if gone:
                    self.commit(entries.unregister(gone))
                self.commit(entries.drop_stream(stream.name))

    @precondition(lambda self: self.catalog.streams)
    @rule(data=st.data(), count=st.integers(1, 3), bound=st.integers(0, 2), mode=st.sampled_from(Materialize))
    def register(self, data: st.DataObject, count: int, bound: int, mode: Materialize) -> None:
        before = set(self.catalog.block_ids.values())
        queries = []
        for _ in range(count):
            self.names += 1
            stream = self.pick(data)
            text = (
                f"SELECT a.n FROM {stream.name} AS a WHERE a.n > {bound} BEGIN NOW - INTERVAL {bound + 1} HOURS END NOW"
            )
            queries.append((f"Q{self.names}", sql.bind(text, self.catalog), mode))
        self.commit(entries.register(queries, 7))
        new = {self.catalog.queries[name.lower()].id for name, _, _ in queries}
        self.new_ids(new | (set(self.catalog.block_ids.values()) - before))
        for name, plan, _ in queries:
            state = self.catalog.queries[name.lower()]
            assert state.plan == plan
            assert [self.catalog.block_id(scan.block) for scan in plan.scans] == list(state.blocks)

    @precondition(lambda self: self.catalog.queries)
    @rule(data=st.data(), bound=st.integers(0, 2), mode=st.sampled_from(Materialize))
    def replace(self, data: st.DataObject, bound: int, mode: Materialize) -> None:
        before = self.catalog
        name = data.draw(st.sampled_from(sorted(before.queries)))
        plan = sql.bind(f"SELECT n + 1 AS m FROM {self.pick(data).name} WHERE n > {bound}", before)
        self.commit(entries.register([(name.upper(), plan, mode)], 8, replacing=True))
        after = self.catalog.queries[name]
        assert (after.name, after.plan, after.materialize) == (name.upper(), plan, mode)
        assert list(self.catalog.queries) == list(before.queries)
        self.new_ids({after.id} | (set(self.catalog.block_ids.values()) - set(before.block_ids.values())))
        used = {block for query in self.catalog.queries.values() for block in query.blocks}
        assert set(self.catalog.block_ids.values()) == used

    @precondition(lambda self: self.catalog.queries)
    @rule(data=st.data())
    def unregister(self, data: st.DataObject) -> None:
        names = data.draw(st.lists(st.sampled_from(sorted(self.catalog.queries)), min_size=1, unique=True))
        self.commit(entries.unregister(names))
        used = {block for query in self.catalog.queries.values() for block in query.blocks}
        assert set(self.catalog.block_ids.values()) == used

    @rule()
    def checkpoint(self) -> None:
        self.checkpoints.append((len(self.log), json.dumps(self.catalog.to_json())))

    @invariant()
    def round_trip(self) -> None:
        if hasattr(self, "catalog"):
            again = Catalog.from_json(json.loads(json.dumps(self.catalog.to_json())))
            assert again.seq == self.catalog.seq == len(self.log)
            same(again, self.catalog)

    def teardown(self) -> None:
        for seq, text in [(0, json.dumps(Catalog().to_json())), *getattr(self, "checkpoints", [])]:
            state = Catalog.from_json(json.loads(text))
            for number, entry in enumerate(self.log[seq:], seq + 1):
                state = state.apply(number, entry)
            same(state, self.catalog)


Entries.TestCase.settings = settings(max_examples=40, stateful_step_count=25)
TestEntries = Entries.TestCase


def test_a_snapshot_does_not_change_under_its_reader() -> None:
    columns = (Column("n", pa.int32()),)
    first = Catalog().apply(1, entries.create_stream("s", StreamSchema(columns), None, None))
    file = DataFile("f", 1, 0, 0, 0, (Segment(1, 5, 5),))
    second = first.apply(2, entries.epoch("s", "src", 0, 0, [file], []))
    third = second.apply(3, entries.replace_files("s", ["f"], [], "retention"))
    assert [len(c.streams["s"].files) for c in (first, second, third)] == [0, 1, 0]
    assert third.streams["s"].clock_us == 5, "the clock does not go back when old files go"
    assert as_files(None) == ()
