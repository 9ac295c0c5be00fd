"""The parts of `make bench BENCH_ARGS=peers`: each measures some rows of the table of bars."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from benchmarks import _invocations as asking
from benchmarks import registration
from benchmarks._bars import Bar, Quantity, Sense, absolute, at_most, faster, higher
from benchmarks._flow import (
    EXPRESSIONS_PER_SCAN,
    create,
    flow,
    native_queries,
    native_windows,
    run_through,
    shared_scan,
)
from benchmarks._flow import written_by_spark as spark_writes
from benchmarks._probe import Probe
from benchmarks._rig import QUICK, Load, Rig, power
from benchmarks._workload import check_counts, counts_by_duckdb, named, tuples, w1, w1s, window

_RATE = "tuples/s"


@dataclass(frozen=True)
class Part:
    measure: Callable[[Rig], list[Bar]]
    loads: tuple[Load, ...] = ()
    """The runs of the streaming path that it needs."""


def _arrivals(rig: Rig) -> list[Bar]:
    none = Quantity("no query", _RATE, rig.rates(Load.NOTHING))
    rows = power(rig.sizes.rows)
    bars = []
    for load, bar, aim in ((Load.W1, 0.4, 0.7), (Load.W1S, 0.7, 0.9)):
        what = f"arrival rate, files of {rows} tuples, {rig.sizes.queries:,} queries {load.value}, against none"
        bars.append(higher("arrivals", what, Quantity("Ladle", _RATE, rig.rates(load)), none, bar, aim))
    return bars


def _unshared(rig: Rig) -> list[Bar]:
    stream = "probed"
    create(rig.db, stream)
    directory = rig.directory()
    # As many tuples as an epoch has: they don't stay in the processor's cache from one query to the next.
    table = tuples(rig.sizes.rows, 0)
    probe = Probe(rig.db, stream, w1(rig.sizes.queries), table)
    few = Probe(rig.db, stream, w1(rig.sizes.few), table)
    probe.shared(directory), few.shared(directory)  # compiles, if nothing was compiled before
    shared, unshared, shared_few = [], [], []
    for _ in range(rig.sizes.probe_rounds):
        shared.append(probe.shared(directory) * 1e9)
        shared_few.append(few.shared(directory) * 1e9)
        unshared.append(probe.unshared(directory) * 1e9)
    rig.db.drop_stream(stream)
    ours = Quantity("Ladle", "ns/tuple", shared)
    what = f"probe against predicate indexes off (NumPy, one query at a time), {rig.sizes.queries:,} queries W1"
    beside = Quantity(f"with {rig.sizes.few} queries", "ns/tuple", shared_few).text
    return [
        faster("unshared", what, ours, Quantity("Unshrd", "ns/tuple", unshared), 10, 50, beside=beside),
    ]


def _native(rig: Rig) -> list[Bar]:
    inputs = rig.inputs("native", rig.sizes.native_epochs + 1)
    selections = rig.selections(Load.NATIVE)
    native = native_queries(rig.db.spark, inputs, selections, rig.directory())
    check_counts("native Spark queries", native.counts, counts_by_duckdb(rig.files("native"), selections))
    ours = Quantity("Ladle", _RATE, rig.rates(Load.NATIVE))
    theirs = Quantity("Spark", _RATE, [native.rate])
    what = f"against {rig.sizes.native} native Spark streaming queries on the same files, W1"
    return [higher("native", what, ours, theirs, 8, 15)]


def _shared_scan(rig: Rig) -> list[Bar]:
    inputs = rig.inputs("cases", rig.sizes.case_epochs + 1)
    bars = []
    for load, bar, aim in ((Load.CASES, 3, 5), (Load.W1, 8, 20)):
        selections = rig.selections(load)
        rig.steps.say(f"plain Spark sharing the scan, {len(selections):,} CASE sums")
        scanned = shared_scan(rig.db, inputs, rig.sizes.rows, selections, rig.directory())
        check_counts("CASE sums", scanned.counts, counts_by_duckdb(rig.files("cases"), selections))
        what = f"against plain Spark sharing the scan (CASE sums, {EXPRESSIONS_PER_SCAN} at a time), "
        what += f"{len(selections):,} queries W1"
        ours = Quantity("Ladle", _RATE, rig.rates(load))
        bars.append(higher("shared-scan", what, ours, Quantity("Spark", _RATE, scanned.rates), bar, aim))
    return bars


def _sliding(rig: Rig) -> list[Bar]:
    sizes = rig.sizes
    inputs = rig.inputs("sliding", sizes.sliding_epochs + 1, span_us=10_000_000)
    selections = w1(sizes.sliding, seed=13)
    ours = asking.sliding(rig.db, "sliding", inputs, sizes.rows, selections)
    rig.steps.say(f"{sizes.sliding_native} native Spark window queries")
    few = selections[: sizes.sliding_native]
    native = native_windows(rig.db.spark, inputs, few, asking.SLIDING, rig.directory())
    what = f"W3: {sizes.sliding} sliding aggregates over 10 s, each read every second of stream time, against "
    what += f"{sizes.sliding_native} native Spark window queries"
    unit = "tuples/s x queries"
    theirs = Quantity("Spark", unit, [native.rate * len(few)])
    return [higher("sliding", what, Quantity("Ladle", unit, [ours]), theirs, 50, 200)]


def _growth(rig: Rig) -> list[Bar]:
    rows = rig.sizes.rows
    many, few = (Quantity(
        f"{count:,} queries", "us/tuple", [seconds / rows * 1e6 for seconds in rig.seconds(load)]
    ) for count, load in ((rig.sizes.queries, Load.W1), (rig.sizes.few, Load.FEW)))  # fmt: skip
    what = f"cost per tuple, {rig.sizes.queries:,} queries W1 against {rig.sizes.few}, streaming path"
    return [at_most("growth", what, many, few, 6, 3)]


def _invoke(rig: Rig) -> list[Bar]:
    """Rows; COUNT and MAX over a window and a wide one; the first answer of a new query."""
    sizes, db, stream = rig.sizes, rig.db, "held"
    create(db, stream)
    selections = w1s(sizes.asked, seed=14)
    asked: dict[tuple[str, int], list[str]] = {}
    columns_of = {"rows": "*", "COUNT": "count(*) AS v", "MAX": "max(b) AS v"}
    for kind, size in _kinds(rig):
        where, prefix = f"{stream} {window(size)}", f"{kind}_{size}_"
        queries = named(selections, where, prefix=prefix, columns=columns_of[kind])
        db.register_many(queries, materialize="partial")
        asked[kind, size] = list(queries)
    held = asking.hold(db, stream, rig.inputs("held", sizes.asked_epochs), sizes.rows, sizes.odd_rows)
    db.backfill()
    db.maintain()  # what is due by now is not done beside the measurement
    ours: dict[tuple[str, int], asking.Times] = {}
    duckdb: dict[tuple[str, int], list[float]] = {}
    polars: list[float] = []
    for kind, size in _kinds(rig):
        rig.steps.say(f"invoke {kind}, window {power(size)}")
        columns = columns_of[kind]
        names = asked[kind, size]
        memory = asking.Scratch(held.newest(size))
        asking.check_answers(db, names, [memory.by_duckdb(selection, columns) for selection in selections])
        turns = sizes.turns if size == sizes.asked_window else max(sizes.turns // 5, 1)
        ours[kind, size] = asking.invoke_all(db, names, sizes.turns)
        scratch = memory.by_duckdb if kind == "rows" else memory.one_row_by_duckdb
        duckdb[kind, size] = asking.timed_each(partial(scratch, columns=columns), selections, turns)
        if kind == "rows":
            polars = asking.timed_each(memory.by_polars, selections, turns)
        memory.close()
    bars = [*_rows_bars(rig, ours["rows", sizes.asked_window], duckdb["rows", sizes.asked_window], polars)]
    bars += _aggregate_bars(rig, ours, duckdb)
    rig.steps.say("first invoke of a new query")
    bars += _first_bars(rig, held)
    db.drop_stream(stream, cascade=True)
    return bars


def _kinds(rig: Rig) -> list[tuple[str, int]]:
    window_, wide = rig.sizes.asked_window, rig.sizes.wide_window
    return [("rows", window_), ("COUNT", window_), ("MAX", window_), ("COUNT", wide), ("MAX", wide)]


def _rows_bars(rig: Rig, ours: asking.Times, duckdb: list[float], polars: list[float]) -> list[Bar]:
    bars = []
    for percentile in (50.0, 99.0):
        at = f"p{percentile:.0f}"
        for name, other, bar, aim in (("DuckDB", duckdb, 5, 20), ("Polars", polars, 2, 8)):
            what = f"invoke, rows, window {power(rig.sizes.asked_window)}, W1s, {at}, against {name} from scratch"
            measured = _milliseconds("Ladle", ours.engine, percentile)
            wall = f"wall {_milliseconds('', ours.wall, percentile).value:.3g} ms"
            theirs = _milliseconds(name, other, percentile)
            bars.append(faster("invoke", what, measured, theirs, bar, aim, beside=wall))
    return bars


def _aggregate_bars(
    rig: Rig, ours: dict[tuple[str, int], asking.Times], duckdb: dict[tuple[str, int], list[float]]
) -> list[Bar]:
    bars = []
    narrow, wide = rig.sizes.asked_window, rig.sizes.wide_window
    for kind in ("COUNT", "MAX"):
        for size, bar, aim in ((narrow, 20, 50), (wide, 100, None)):
            times = ours[kind, size]
            wall = f"wall {_milliseconds('', times.wall).value:.3g} ms"
            what = f"invoke, {kind}, window {power(size)}, W1s, against DuckDB from scratch"
            measured, theirs = _milliseconds("Ladle", times.engine), _milliseconds("DuckDB", duckdb[kind, size])
            bars.append(faster("invoke", what, measured, theirs, bar, aim, beside=wall))
        what = f"invoke, {kind}, window {power(wide)} against {power(narrow)}"
        measured = _milliseconds(power(wide), ours[kind, wide].engine)
        bars.append(at_most("invoke", what, measured, _milliseconds(power(narrow), ours[kind, narrow].engine), 2, 1))
    return bars


def _first_bars(rig: Rig, held: asking.Held) -> list[Bar]:
    seconds = asking.first_invocations(rig.db, held, w1s(rig.sizes.first, seed=15))
    bars = []
    for how in ("running", "just opened"):
        what = f"first invoke of a new query over {power(rig.sizes.wide_window)} retained tuples, database {how}, "
        what += "against one DuckDB scan of the same Parquet"
        measured, theirs = _milliseconds("Ladle", seconds[how]), _milliseconds("DuckDB", seconds["DuckDB"])
        bars.append(at_most("invoke", what, measured, theirs, 1.5, 1))
    return bars


def _while_flowing(rig: Rig) -> list[Bar]:
    sizes, db, stream = rig.sizes, rig.db, "flowing"
    create(db, stream)
    selections = w1s(sizes.asked, seed=16)
    source = f"{stream} {window(sizes.asked_window)}"
    counts = named(selections, source, prefix="flowing_n_", columns="count(*) AS v")
    maxima = named(selections, source, prefix="flowing_m_", columns="max(b) AS v")
    rows = named(selections, source, prefix="flowing_r_")
    db.register_many(counts | maxima | rows, materialize="partial")
    kinds = {"COUNT/MAX": [*counts, *maxima], "rows W1s": [*rows]}
    rates = asking.while_flowing(db, stream, rig.inputs("flowing", sizes.flowing_epochs), kinds)
    db.drop_stream(stream, cascade=True)
    return [
        absolute("while-flowing", f"invocations in one process while the stream flows, {kind}, window "
                 f"{power(sizes.asked_window)}", Quantity("Ladle", "/s", [rates[kind]]), Sense.AT_LEAST, bar, aim)
        for kind, bar, aim in (("COUNT/MAX", 5_000, 20_000), ("rows W1s", 2_000, 5_000))
    ]  # fmt: skip


def _many(rig: Rig) -> list[Bar]:
    sizes, db, stream = rig.sizes, rig.db, "many"
    create(db, stream)
    selections = w1s(sizes.many, seed=17)
    source = f"{stream} {window(sizes.window)}"
    queries = named(selections, source, prefix="many_")
    rig.steps.say(f"registering {sizes.many:,} queries")
    db.register_many(queries, materialize="partial")
    rig.steps.say(f"registering one more than {sizes.many:,}")
    more = asking.register_one_more(db, source, w1s(sizes.one_more, seed=18))
    inputs = rig.inputs("many", sizes.many_epochs + 1)
    rig.steps.say(f"arrivals, {sizes.many:,} queries W1s")
    directory = rig.directory()
    measured = run_through(db, stream, inputs, sizes.rows, dict(zip(queries, selections, strict=True)), directory)
    shutil.rmtree(directory)
    rig.steps.say(f"counting by DuckDB for {sizes.many:,} queries")
    check_counts("many queries", measured.counts, counts_by_duckdb(rig.files("many"), selections))
    db.drop_stream(stream, cascade=True)
    rate = Quantity("Ladle", _RATE, measured.rates)
    one = _milliseconds("Ladle", more)
    return [
        absolute("many", f"{sizes.many:,} queries W1s: arrival rate", rate, Sense.AT_LEAST, 20_000, 100_000),
        absolute("many", f"{sizes.many:,} queries W1s: registering one more", one, Sense.AT_MOST, 5, 1),
    ]


def _registering(rig: Rig) -> list[Bar]:
    """Durable registrations, by a benchmark of their own, without Spark beside them."""
    figures = registration.run(rig.sizes == QUICK)
    queries = f"{figures['queries']:,.0f}"
    singly, at_once = (Quantity("Ladle", "/s", [figures[name]]) for name in ("singly_per_s", "at_once_per_s"))
    one = _milliseconds("Ladle", [figures["register_one_more_s"]])
    beside = f"during a backfill {figures['register_one_more_beside_backfill_s'] * 1e3:.3g} ms"
    return [
        absolute("registering", "registering durably, one by one", singly, Sense.AT_LEAST, 500, 2_000),
        absolute("registering", "registering durably, in one call", at_once, Sense.AT_LEAST, 5_000, 20_000),
        absolute(
            "registering", f"registering one more beside {queries} queries, without Spark", one, Sense.AT_MOST, 5, 1,
            beside=beside,
        ),
    ]  # fmt: skip


def _memory(rig: Rig) -> list[Bar]:
    quantities = []
    for load in (Load.W1, Load.W1S):
        # Nothing is kept for a query without factors, so it doesn't count.
        queries = sum(bool(selection.intervals) for selection in rig.selections(load))
        pairs = rig.sizes.rows * (rig.sizes.epochs + 1) * queries
        quantities.append(Quantity(load.value, "bits", [flow.results_bits / pairs for flow in rig.flows[load]]))
    what = f"results, per tuple and query, {rig.sizes.queries:,} queries"
    bars = [absolute("memory", f"{what} {each.label}", each, Sense.AT_MOST, 1.1, None) for each in quantities]
    return [*bars, at_most("memory", f"{what}: they fall with selectivity", quantities[1], quantities[0], 1, None)]


def _epoch(rig: Rig) -> list[Bar]:
    """In turns: a machine may be a quarter slower than it was a few minutes ago."""
    inputs = rig.inputs("arrivals", rig.sizes.epochs + 1)
    ours: list[float] = []
    theirs: list[float] = []
    for number in range(rig.sizes.rounds):
        window_tuples = rig.sizes.window
        directory = rig.directory()
        measured = flow(rig.db, f"epoch{number}", inputs, rig.sizes.rows, [], directory, window_tuples=window_tuples)
        ours += measured.seconds
        theirs += spark_writes(rig.db, inputs, 1, rig.directory()).seconds
    what = f"an epoch of {power(rig.sizes.rows)} tuples with no query against Spark's foreachBatch writing the same"
    return [at_most("epoch", what, Quantity("Ladle", "s", ours), Quantity("Spark", "s", theirs), 1.2, 1)]


def _milliseconds(label: str, seconds: list[float], percentile: float = 50.0) -> Quantity:
    return Quantity(label, "ms", [each * 1e3 for each in seconds], percentile)


PARTS: dict[str, Part] = {
    "arrivals": Part(_arrivals, (Load.NOTHING, Load.W1, Load.W1S)),
    "unshared": Part(_unshared),
    "native": Part(_native, (Load.NATIVE,)),
    "shared-scan": Part(_shared_scan, (Load.CASES, Load.W1)),
    "sliding": Part(_sliding),
    "growth": Part(_growth, (Load.W1, Load.FEW)),
    "invoke": Part(_invoke),
    "while-flowing": Part(_while_flowing),
    "many": Part(_many),
    "registering": Part(_registering),
    "memory": Part(_memory, (Load.W1, Load.W1S)),
    "epoch": Part(_epoch),
}
