"""The generated streams: reproducible, joined without seams, and like the real thing where it matters."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ladle.demo.generators import Building, Feed, Market, Network, with_malformed
from ladle.demo.scenario import FILE_STREAMS, STREAMS
from ladle.sql.statement_types import CreateStream

BEGIN = 1_800_000_000_000_000
SECOND = 1_000_000
MAKERS: list[Callable[[], Feed]] = [Market, Building, Network]


def minute(feed: Feed, begin: int = BEGIN) -> dict[str, pa.Table]:
    return feed.between(begin, begin + 60 * SECOND)


def times(table: pa.Table) -> np.ndarray:
    return table["at"].cast(pa.int64()).to_numpy()


@pytest.mark.parametrize("make", MAKERS)
def test_the_same_seed_gives_the_same_tuples(make: Callable[[], Feed]) -> None:
    assert minute(make()) == minute(make())


@pytest.mark.parametrize("make", MAKERS)
def test_tuples_are_in_the_stretch_and_in_order(make: Callable[[], Feed]) -> None:
    for table in minute(make()).values():
        at = times(table)
        assert len(at) > 100
        assert at[0] > BEGIN
        assert at[-1] <= BEGIN + 60 * SECOND
        assert (np.diff(at) >= 0).all()


@pytest.mark.parametrize("make", MAKERS)
def test_an_empty_stretch_has_no_tuples(make: Callable[[], Feed]) -> None:
    assert all(table.num_rows == 0 for table in make().between(BEGIN, BEGIN).values())


def test_prices_walk_on_from_stretch_to_stretch() -> None:
    market = Market(trades_per_second=200, quotes_per_second=200)
    last: dict[str, float] = {}
    for step in range(20):
        trades = market.between(BEGIN + step * SECOND, BEGIN + (step + 1) * SECOND)["trades"]
        for symbol, price in zip(trades["symbol"].to_pylist(), trades["price"].to_pylist(), strict=True):
            # A second moves a price by far less than a percent.
            assert abs(price / last.get(symbol, price) - 1) < 0.01
            last[symbol] = price


def test_quotes_have_positive_spreads_in_ticks_and_surround_the_trades() -> None:
    tables = minute(Market())
    quotes, trades = tables["quotes"], tables["trades"]
    spread = pc.subtract(quotes["ask"], quotes["bid"]).to_numpy()
    assert spread.min() > 0.009
    cents = quotes["bid"].to_numpy() * 100
    assert np.allclose(cents, np.round(cents), atol=1e-6)
    by_symbol = quotes.group_by("symbol").aggregate([("bid", "min"), ("ask", "max")]).to_pylist()
    edges = {row["symbol"]: (row["bid_min"], row["ask_max"]) for row in by_symbol}
    inside = [
        edges[s][0] <= p <= edges[s][1]
        for s, p in zip(*map(pa.ChunkedArray.to_pylist, trades.columns[:2]), strict=True)
    ]
    assert sum(inside) / len(inside) > 0.97


def test_trade_sizes_are_lots_odd_lots_and_a_few_blocks() -> None:
    sizes = Market().between(BEGIN, BEGIN + 300 * SECOND)["trades"]["size"].to_numpy()
    assert 0.45 < (sizes % 100 == 0).mean() < 0.65
    assert sizes.min() >= 1
    assert 0 < (sizes >= 2_000).mean() < 0.01


def test_the_building_has_a_daily_cycle_dead_motes_and_motes_that_report_nonsense() -> None:
    day = Building(period_seconds=300).between(BEGIN, BEGIN + 86_400 * SECOND)["sensors"]
    seen = set(day["mote"].to_pylist())
    assert seen == set(range(1, Building.MOTES + 1)) - set(Building.DEAD)
    healthy = day.filter(pc.less(day["temperature"], 100))
    assert not seen & set(Building.DYING) & set(healthy["mote"].to_pylist())
    hour = times(healthy) // (3_600 * SECOND) % 24
    celsius = healthy["temperature"].to_numpy()
    by_hour = np.array([celsius[hour == h].mean() for h in range(24)])
    assert 4 < by_hour.max() - by_hour.min() < 9
    assert 12 <= by_hour.argmax() <= 18


def test_packets_get_lost() -> None:
    sent = minute(Building(loss=0.0))["sensors"].num_rows
    heard = minute(Building(loss=0.2))["sensors"].num_rows
    assert 0.7 < heard / sent < 0.9


def test_damaged_readings_do_not_fit_the_schema_and_the_others_are_untouched() -> None:
    readings = minute(Building())["sensors"]
    rows = with_malformed(readings, share=0.1, random=np.random.default_rng(1))
    same = [row == original for row, original in zip(rows, readings.to_pylist(), strict=True)]
    assert 0.85 < sum(same) / len(same) < 0.95
    damaged = [row for row, intact in zip(rows, same, strict=True) if not intact]
    assert all(any(isinstance(value, str) for value in row.values()) for row in damaged)


def test_bytes_are_heavy_tailed_and_services_are_the_common_ones() -> None:
    connections = Network().between(BEGIN, BEGIN + 300 * SECOND)["connections"]
    received = connections["received"].to_numpy()
    assert received.max() > 1_000 * np.median(received[received > 0])
    # A hundredth of the connections carry most of the bytes.
    largest = np.sort(received)[-len(received) // 100 :]
    assert largest.sum() > 0.5 * received.sum()
    services = {row["values"]: row["counts"] for row in connections["service"].value_counts().to_pylist()}
    assert services["dns"] > services["ssl"] > services["http"] > services["ssh"]


def test_a_port_scan_knocks_at_many_ports_of_one_host_and_continues_over_the_seam() -> None:
    whole = Network().between(BEGIN, BEGIN + 120 * SECOND)["connections"]
    network = Network()
    steps = [network.between(BEGIN + i * SECOND, BEGIN + (i + 1) * SECOND)["connections"] for i in range(120)]

    def scans(table: pa.Table) -> pa.Table:
        return table.filter(pc.equal(table["duration"], 0.0))

    assert scans(pa.concat_tables(steps)).equals(scans(whole))
    per_pair = scans(whole).group_by(["src", "dst"]).aggregate([("dst_port", "count_distinct")])
    assert max(per_pair["dst_port_count_distinct"].to_pylist()) == 360


def test_the_streams_of_the_demo_have_the_generators_columns() -> None:
    from ladle.catalog import Catalog
    from ladle.sql import parse_one

    tables = {name: table for make in MAKERS for name, table in minute(make()).items()}
    for name, text in STREAMS.items():
        statement = parse_one(text, Catalog())
        assert isinstance(statement, CreateStream)
        declared = statement.schema.declared
        assert all(tables[name].schema.field(field.name).type == field.type for field in declared), name
        if name in FILE_STREAMS:
            assert [part.split()[0] for part in FILE_STREAMS[name].split(", ")] == declared.names
