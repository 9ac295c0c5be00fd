"""The catalog: whatever the entries, applying them one by one, or from any checkpoint on, gives the same state."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from ladle import catalog as entries
from ladle import sql
from ladle.archive.segments import DataFile, Segment
from ladle.catalog import BlockPages, Catalog, Record, Replaced, StreamState, TableFile, Timeline, View
from ladle.catalog.dependents import queries_on, queries_reading
from ladle.catalog.queries import shape_text
from ladle.errors import BrokenQuery
from ladle.plan.query import factor_to_json, plan_to_json
from ladle.schema import Column, StreamSchema, TableSchema
from ladle.sql.statement_types import Materialize
from ladle.stem.blocks import BlockSet
from ladle.stem.epoch_kernel import as_files
from ladle.stem.query_stem import PAGE

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


def flat(paged: Mapping[Any, BlockPages[Any]]) -> dict[Any, Any]:
    """All pages of all keys as one."""
    found = {}
    for key, pages in paged.items():
        for number, page in pages.pages.items():
            assert page.blocks, "a page without blocks"
            assert page.ids.tolist() == sorted(page.blocks)
            assert {block // PAGE for block in page.blocks} == {number}
            found |= {(key, block): value for block, value in page.blocks.items()}
    return found


class Entries(RuleBasedStateMachine):
    """Random entries, as the engine would make them."""

    @initialize()
    def begin(self) -> None:
        self.catalog = Catalog()
        self.log: list[dict[str, Any]] = []
        self.checkpoints: list[tuple[int, str]] = []
        self.ids: set[int] = set()
        self.query_ids: set[int] = set()
        self.blocks: dict[int, object] = {}
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

    def new_blocks(self, numbers: set[int]) -> None:
        """A block that comes again is the one it was; another never has its number."""
        keys = {
            number: (query.meaning.stream_id(scan.block.stream), scan.block.text)
            for query in self.catalog.queries.values()
            for number, scan in zip(query.blocks, query.plan.scans, strict=True)
        }
        for number in numbers:
            assert self.blocks.setdefault(number, keys[number]) == keys[number]

    def new_query_ids(self, ids: set[int]) -> None:
        assert not ids & self.query_ids, "an id was used again"
        assert max(ids) < self.catalog.next_query
        self.query_ids |= ids

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
                self.commit(entries.set_retain(stream.name, self.names, self.names))
            case "drop":
                self.commit(entries.drop_stream(stream.name, queries_on(self.catalog, stream.name)))

    @precondition(lambda self: self.catalog.streams)
    @rule(data=st.data(), count=st.integers(1, 3), bound=st.integers(0, 2), mode=st.sampled_from(Materialize))
    def register(self, data: st.DataObject, count: int, bound: int, mode: Materialize) -> None:
        before = set(self.catalog.queries.users)
        queries = []
        for _ in range(count):
            self.names += 1
            stream = self.pick(data)
            text = data.draw(st.sampled_from(self.texts(stream.name, bound)))
            queries.append((f"Q{self.names}", sql.bind(text, self.catalog), mode))
        self.commit(entries.register([self.catalog.wanted(*query) for query in queries], 7))
        new = {self.catalog.queries[name.lower()].id for name, _, _ in queries}
        self.new_query_ids(new)
        self.new_blocks(set(self.catalog.queries.users) - before)
        for name, plan, _ in queries:
            state = self.catalog.queries[name.lower()]
            assert state.plan == plan
            assert [self.catalog.block_id(scan.block) for scan in plan.scans] == list(state.blocks)

    def texts(self, stream: str, bound: int) -> list[str]:
        texts = [
            f"SELECT a.n FROM {stream} AS a WHERE a.n > {bound} BEGIN NOW - INTERVAL {bound + 1} HOURS END NOW",
            f"SELECT count(*) AS n FROM {stream} [ROWS {bound + 1}]",
            f"SELECT a.n FROM {stream} [ROWS 5] AS a, {stream} AS b WHERE a.n < {bound} AND b.n < {bound}",
        ]
        standing = list(self.catalog.queries)
        return texts + [f"SELECT n FROM {name} WHERE n = {bound}" for name in standing[:1] if name.startswith("q")]

    @precondition(lambda self: any(not queries_reading(self.catalog, name) for name in self.catalog.queries))
    @rule(data=st.data(), bound=st.integers(0, 2), mode=st.sampled_from(Materialize))
    def replace(self, data: st.DataObject, bound: int, mode: Materialize) -> None:
        before = self.catalog
        name = data.draw(st.sampled_from(sorted(n for n in before.queries if not queries_reading(before, n))))
        plan = sql.bind(f"SELECT n + 1 AS n FROM {self.pick(data).name} WHERE n > {bound}", before)
        self.commit(entries.register([before.wanted(name.upper(), plan, mode)], 8, replacing=True))
        after = self.catalog.queries[name]
        assert (after.name, after.plan, after.materialize) == (name.upper(), plan, mode)
        assert list(self.catalog.queries) == list(before.queries)
        self.new_query_ids({after.id})
        self.new_blocks(set(self.catalog.queries.users) - set(before.queries.users))
        used = {block for query in self.catalog.queries.values() for block in query.blocks}
        assert set(self.catalog.queries.users) == used

    @precondition(lambda self: self.catalog.queries)
    @rule(data=st.data())
    def unregister(self, data: st.DataObject) -> None:
        names = data.draw(st.lists(st.sampled_from(sorted(self.catalog.queries)), min_size=1, unique=True))
        for name in names:
            names += [reader.lower() for reader in queries_reading(self.catalog, name) if reader.lower() not in names]
        self.commit(entries.unregister(names))
        used = {block for query in self.catalog.queries.values() for block in query.blocks}
        assert set(self.catalog.queries.users) == used

    @rule()
    def checkpoint(self) -> None:
        self.checkpoints.append((len(self.log), json.dumps(self.catalog.to_json())))

    @invariant()
    def round_trip(self) -> None:
        if hasattr(self, "catalog"):
            again = Catalog.from_json(json.loads(json.dumps(self.catalog.to_json())))
            assert again.seq == self.catalog.seq == len(self.log)
            same(again, self.catalog)

    @invariant()
    def derived(self) -> None:
        """What is kept current entry by entry is what the queries come to."""
        if not hasattr(self, "catalog"):
            return
        queries = self.catalog.queries
        users: Counter[int] = Counter()
        kept: Counter[tuple[str, int]] = Counter()
        views: Counter[tuple[View, int]] = Counter()
        readers: dict[str, set[str]] = {}
        for name, query in queries.items():
            users.update(set(query.blocks))
            for read in query.plan.queries:
                readers.setdefault(read.lower(), set()).add(name)
            if query.materialize is not Materialize.NONE:
                scans = [(b, s) for b, s in zip(query.blocks, query.plan.scans, strict=True) if s.block.factors]
                kept.update({(scan.block.stream.lower(), block) for block, scan in scans})
                streams = query.plan.streams
                views.update({(View(s.block.stream.lower(), s.window, streams), block) for block, s in scans})
        assert dict(queries.users) == users
        assert {name: set(found) for name, found in queries.readers.items()} == readers
        complete = [name for name, query in queries.items() if query.materialize is Materialize.COMPLETE]
        assert sorted(queries.complete) == sorted(complete)
        assert all(queries.complete[name] is queries[name] for name in complete)
        assert flat(queries.views) == views
        counts = {key: block.users for key, block in flat(queries.kept).items()}
        assert counts == kept
        for stream in self.catalog.streams:
            assert queries.kept_on(stream).blocks == {block for name, block in kept if name == stream}

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


def with_stream() -> Catalog:
    columns = (Column("n", pa.int32()), Column("x", pa.float64()))
    return Catalog().apply(1, entries.create_stream("s", StreamSchema(columns), None, None))


def bound_entry(catalog: Catalog, texts: Mapping[str, str]) -> dict[str, Any]:
    """An entry as formats before 2 had it: with plans."""
    plans = {name: sql.bind(text, catalog) for name, text in texts.items()}
    queries = [{"name": name, "materialize": "partial", "bound": plan_to_json(plan)} for name, plan in plans.items()]
    entry: dict[str, Any] = json.loads(json.dumps({"kind": "register", "created_us": 7, "queries": queries}))
    return entry


def shaped_entry(catalog: Catalog, texts: Mapping[str, str], kind: str = "register") -> dict[str, Any]:
    """An entry as format 2 had it: with plans, what they share written once."""
    shapes: dict[str, int] = {}
    factors: dict[str, int] = {}
    rows = []
    for name, text in texts.items():
        plan = sql.bind(text, catalog)
        numbers = [
            [factors.setdefault(json.dumps(factor_to_json(factor)), len(factors)) for factor in scan.block.factors]
            for scan in plan.scans
        ]
        rows.append([name, "partial", plan.sql, shapes.setdefault(shape_text(plan), len(shapes)), numbers])
    return {
        "kind": kind,
        "created_us": 7,
        "queries": rows,
        "shapes": list(shapes),
        "factors": [json.loads(factor) for factor in factors],
    }


TEXTS = {f"q{number}": f"SELECT * FROM s WHERE n > {bound} AND x < 1.5" for number, bound in enumerate((1, 2, 1))}


def test_entries_of_the_first_format_are_read() -> None:
    """Queries and blocks had ids of one sequence then: a stream that comes next must get the one it got."""
    catalog = with_stream()
    after = catalog.apply(2, bound_entry(catalog, TEXTS))
    assert [(query.id, query.name) for query in after.queries.values()] == [(3, "q0"), (5, "q1"), (7, "q2")]
    assert (after.next_id, after.next_query) == (8, 8)
    assert [query.plan for query in after.queries.values()] == [sql.bind(text, catalog) for text in TEXTS.values()]
    (one, other, again) = (query.blocks for query in after.queries.values())
    assert one == again != other
    # The block of the first is still the third's; the second's goes.
    fewer = after.apply(3, entries.unregister(["q0", "q1"]))
    assert fewer.apply(4, bound_entry(catalog, {"new": TEXTS["q1"]})).next_id == 10
    assert fewer.apply(4, bound_entry(catalog, {"new": TEXTS["q0"]})).next_id == 9


@pytest.mark.parametrize("first", [False, True])
def test_checkpoints_with_plans_are_read(first: bool) -> None:
    """Also of queries with a star, over a stream that has more columns by now; the checkpoint does not say how many."""
    catalog = with_stream()
    if first:
        entry = bound_entry(catalog, TEXTS)
        state = catalog.apply(2, entry)
        rows: list[Any] = [
            {**row, "id": query.id, "created_us": 7, "blocks": [4]}
            for row, query in zip(entry["queries"], state.queries.values(), strict=True)
        ]
        more: dict[str, Any] = {}
    else:
        entry = shaped_entry(catalog, TEXTS)
        state = catalog.apply(2, entry)
        rows = [[number + 1, *row[:2], 7, [4], number, *row[2:]] for number, row in enumerate(entry["queries"])]
        more = {"shapes": entry["shapes"], "factors": entry["factors"]}
    plans = [query.plan for query in state.queries.values()]
    state = state.apply(3, entries.add_column("s", Column("late", pa.string())))
    written = {key: value for key, value in state.to_json().items() if key not in ("references", "queries")}
    again = Catalog.from_json(json.loads(json.dumps({**written, "queries": rows, **more})))
    assert [query.plan for query in again.queries.values()] == plans
    assert [query.id for query in again.queries.values()] == [query.id for query in state.queries.values()]
    # What it gives to the next block is what it gave then.
    longer = sql.bind("SELECT n FROM s WHERE n > 77", again)
    assert longer.scans[0].block.factors
    following = again.apply(4, shaped_entry(again, {"new": "SELECT n FROM s WHERE n > 77", "known": TEXTS["q1"]}))
    assert following.next_id == again.next_id + 1
    same(Catalog.from_json(json.loads(json.dumps(again.to_json()))), again)


def test_readers_that_were_replaced_with_what_they_read_are_bound_in_order() -> None:
    """In an entry of before they came in the order of their names."""
    catalog = with_stream()
    texts = {"a": "SELECT n FROM b", "b": "SELECT n FROM c WHERE n > 1", "c": "SELECT n FROM s WHERE n > 2"}
    for number, name in enumerate("cba"):
        catalog = catalog.apply(number + 2, shaped_entry(catalog, {name: texts[name]}))
    replaced = catalog.apply(5, shaped_entry(catalog, {"c": "SELECT n FROM s WHERE n > 3", **texts}, "replace"))
    for state in (replaced, Catalog.from_json(json.loads(json.dumps(replaced.to_json())))):
        assert [query.name for query in state.standing()] == ["c", "b", "a"]
        assert all(query.broken is None for query in state.standing())
        assert state.queries["a"].plan.queries == ("b", "c")
        assert queries_reading(state, "c") == ["b", "a"]


def test_queries_share_what_is_equal() -> None:
    catalog = with_stream()
    for number in range(20):
        plan = sql.bind(f"SELECT n FROM s WHERE n > {number % 3} AND x < 2.5", catalog)
        entry = json.loads(json.dumps(entries.register([catalog.wanted(f"q{number}", plan, Materialize.PARTIAL)], 7)))
        catalog = catalog.apply(number + 2, entry)
    states = list(catalog.queries.values())
    assert len({id(state.shape) for state in states}) == 1
    assert len({id(factor) for state in states for factor in state.factors[0]}) == 4
    assert len({id(state.meaning) for state in states}) == 1
    written = catalog.to_json()
    assert (len(written["references"]), len(written["queries"])) == (1, 20)


def test_the_log_has_texts_and_no_plans() -> None:
    catalog = with_stream()
    plan = sql.bind("SELECT *, n + 1 AS more FROM s WHERE n > 17", catalog)
    entry = entries.register([catalog.wanted("q", plan, Materialize.AUTO)], 7)
    assert json.loads(json.dumps(entry)) == {
        "kind": "register",
        "created_us": 7,
        "queries": [["q", "auto", "SELECT *, n + 1 AS more FROM s WHERE n > 17", 0]],
        "references": [{"streams": [["s", 1, 2]], "tables": [], "queries": [], "functions": []}],
    }
    after = catalog.apply(2, json.loads(json.dumps(entry)))
    assert after.to_json()["queries"] == [[1, "q", "auto", 7, 1, plan.sql, 0]]


def test_a_star_has_the_columns_of_its_time() -> None:
    catalog = with_stream()
    catalog = catalog.apply(2, registered(catalog, "q", "SELECT * FROM s WHERE n > 1"))
    catalog = catalog.apply(3, entries.add_column("s", Column("late", pa.string())))
    catalog = catalog.apply(4, registered(catalog, "over", "SELECT *, 1 AS one FROM q"))
    catalog = catalog.apply(5, registered(catalog, "new", "SELECT * FROM s WHERE n > 1"))
    for state in (catalog, Catalog.from_json(json.loads(json.dumps(catalog.to_json())))):
        schemas = {name: query.plan.schema for name, query in state.queries.items()}
        assert {name: schema.names for name, schema in schemas.items() if schema is not None} == {
            "q": ["n", "x"],
            "over": ["n", "x", "one"],
            "new": ["n", "x", "late"],
        }
        assert state.queries["q"].blocks == state.queries["new"].blocks


def test_a_name_can_not_come_to_mean_something_else() -> None:
    """Whatever made the stream another one under a query, the text is not bound to it: it is broken, and so are those
    that read it.
    """
    catalog = with_stream()
    catalog = catalog.apply(2, registered(catalog, "q", "SELECT n FROM s WHERE n > 1"))
    catalog = catalog.apply(3, registered(catalog, "over", "SELECT n FROM q"))
    state = json.loads(json.dumps(catalog.to_json()))
    columns = (Column("n", pa.int32()), Column("x", pa.float64()))
    other = Catalog(next_id=7).apply(1, entries.create_stream("s", StreamSchema(columns), None, None))
    state["streams"] = json.loads(json.dumps(other.to_json()))["streams"]
    again = Catalog.from_json(state)
    assert again.queries["q"].broken == "The stream 's' that it was registered over is not there any more."
    assert again.queries["over"].broken == (
        "It reads query 'q', which is broken: The stream 's' that it was registered over is not there any more."
    )
    with pytest.raises(BrokenQuery, match="Query 'q' is broken: The stream 's'"):
        _ = again.queries["q"].plan
    with pytest.raises(BrokenQuery, match="Query 'over' is broken"):
        sql.bind("SELECT n FROM over", again)
    assert dict(again.queries.users) == {}
    assert sql.bind("SELECT n FROM s", again).streams == ("s",)
    fewer = again.apply(4, entries.unregister(["over"])).apply(5, entries.unregister(["q"]))
    assert len(fewer.queries) == 0
    replaced = again.apply(4, registered(again, "q", "SELECT n FROM s", replacing=True))
    assert replaced.queries["q"].broken is None


def registered(catalog: Catalog, name: str, text: str, *, replacing: bool = False) -> dict[str, Any]:
    """As a reader of the log gets it."""
    wanted = catalog.wanted(name, sql.bind(text, catalog), Materialize.PARTIAL)
    entry: dict[str, Any] = json.loads(json.dumps(entries.register([wanted], 7, replacing=replacing)))
    return entry


def test_a_query_touches_its_page_and_no_other() -> None:
    catalog = with_stream()
    catalog.bindings.numbering.numbers([str(number) for number in range(PAGE - 26)])
    plans = [
        catalog.wanted(f"q{number}", sql.bind(f"SELECT n FROM s WHERE n > {number}", catalog), Materialize.PARTIAL)
        for number in range(50)
    ]
    catalog = catalog.apply(2, entries.register(plans, 7))
    pages = catalog.queries.kept_on("S").pages
    assert sorted(pages) == [0, 1]
    after = catalog.apply(3, entries.unregister(["q40"])).queries.kept_on("s").pages
    assert after[0] is pages[0]
    assert after[1] is not pages[1]
    assert len(after[1].blocks) == 24
    cut = catalog.queries.kept_on("s").among(BlockSet.of([*pages[0].ids.tolist(), PAGE + 3, 5]))
    assert cut[0].ids.tolist() == pages[0].ids.tolist()
    assert cut[1].ids.tolist() == [PAGE + 3]
    assert catalog.queries.kept_on("s").among(BlockSet.of(pages[1].ids.tolist())) == {1: pages[1]}
    again = catalog.queries.kept_on("s").among(BlockSet.of([*pages[0].ids.tolist(), PAGE + 3, 5]))
    assert again[1] is cut[1], "what was derived from it is good again"


def test_a_schema_travels_without_what_was_made_of_it() -> None:
    """Every epoch's task carries one."""
    schema = StreamSchema((Column("a", pa.int32()), Column("b", pa.string())), timestamp=None)
    before = pickle.dumps(schema)
    assert schema.select(("b",)).names == ["b"]
    assert schema.select(("b",)) is schema.select(("b",))
    assert pickle.dumps(schema) == before
    assert pickle.loads(before) == schema


def test_a_checkpoint_from_before_there_were_timelines() -> None:
    """Files get the ids of the newest tuples, and positions are known from the checkpoint on."""
    columns = (Column("n", pa.int32()), Column("at", pa.timestamp("us", "UTC")))
    state = Catalog().apply(1, entries.create_stream("s", StreamSchema(columns, "at"), None, None))
    state = state.apply(2, entries.create_table("t", TableSchema(columns), 0))
    for number in range(3, 9):
        file = DataFile(f"f{number}", 10, 0, 0, 0, (Segment(number, 5, 5 + number), Segment(1, 2, 3)))
        state = state.apply(number, entries.epoch("s", "src", number, 0, [file], []))
    state = state.apply(9, entries.replace_files("s", ["f3"], [], "retention"))
    newest = TableFile("v1.parquet", 1, 100, None)
    state = state.apply(10, entries.set_table("t", 7, newest, Replaced(0, None), 0))
    assert state.tables["t"].timeline.at(9).total == 0
    old = json.loads(json.dumps(state.to_json()))
    for stream in (old["streams"][0], old["streams"][0]["quarantine"]):
        del stream["timeline"]
        stream["files"] = [file[:6] for file in stream["files"]]
    old["tables"] = [table[:7] for table in old["tables"]]
    again = Catalog.from_json(old)
    stream, table = again.streams["s"], again.tables["t"]
    assert [file.first_id for file in stream.files] == [file.first_id for file in state.streams["s"].files]
    assert stream.timeline.base == Record(10, state.epoch, stream.rows, stream.clock_us, 0)
    assert stream.quarantine is not None
    assert stream.quarantine.timeline == Timeline()
    assert (table.timeline.base, table.replaced) == (Record(10, state.epoch, 1, None, 0), ())
    following = again.apply(11, entries.set_table("t", 8, None, Replaced(1, None), 0))
    assert [record.total for record in following.tables["t"].timeline] == [2]
    assert following.tables["t"].oldest == 1
