"""Replayed traces, from small files in the formats of the real ones."""

from __future__ import annotations

import gzip
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

from ladle.demo.flow import choose_feeds
from ladle.demo.generators import Building, Market, Network
from ladle.demo.replay import Trace, data_folder, intel_lab, stock_ticks, zeek_connections
from ladle.errors import LadleError

BEGIN = 1_800_000_000_000_000
SECOND = 1_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for symbol in ("bac", "ibm"):
        (tmp_path / "stock_ticks" / symbol).mkdir(parents=True)
        for kind, lines in {
            "trade": "34199000,1,1,P,0,0\n34201000,139100,200,P,2000,0\n34202000,139200,100,Q,0,0\n",
            "quote": "34201500,139000,500,0,0,K,1,0\n34203000,139100,400,139200,300,K,1,0\n",
        }.items():
            path = tmp_path / "stock_ticks" / symbol / f"20131007_{kind}.zip"
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("ticks.csv", lines)
    (tmp_path / "intel_lab").mkdir()
    with gzip.open(tmp_path / "intel_lab" / "intel_lab_some.txt.gz", "wt") as lab:
        lab.write("2004-03-04 00:00:00.154051 14284 43 19.5376 38.7698 28.52 2.62796\n")
        lab.write("2004-03-04 00:00:01.265616 14284 47 18.8614 41.3771  2.62796\n")
        lab.write("2004-03-04 00:00:02 14284 49 18.1 41.5 0.46 2.6\n")
    (tmp_path / "net_zeek_conn_ctu").mkdir()
    header = (
        "ts,duration,proto,service,orig_bytes,resp_bytes,id.orig_h,id.orig_p,id.resp_h,id.resp_p,"
        "conn_state,history,orig_pkts,resp_pkts\n"
    )
    for name, line in {
        "008": "1655056416.5,21.5,tcp,-,2821,2821,147.32.81.167,58939,38.90.226.66,8883,OTH,DdA,349,176\n",
        "011": "1655056420.25,-,udp,dns,-,-,147.32.83.165,58038,8.8.8.8,53,S0,S,2,0\n",
    }.items():
        with gzip.open(tmp_path / "net_zeek_conn_ctu" / f"{name}-zeek-mixed.conn.csv.gz", "wt") as log:
            log.write(header + line)
    return tmp_path


def test_traces_have_the_columns_of_the_generators(folder: Path) -> None:
    pairs = [
        (stock_ticks(folder / "stock_ticks"), Market()),
        (intel_lab(folder / "intel_lab"), Building()),
        (zeek_connections(folder / "net_zeek_conn_ctu"), Network()),
    ]
    for trace, generator in pairs:
        replayed = trace.between(BEGIN, BEGIN + SECOND)
        generated = generator.between(BEGIN, BEGIN + SECOND)
        assert {n: t.schema for n, t in replayed.items()} == {n: t.schema for n, t in generated.items()}


def test_ticks_outside_of_trading_hours_and_sides_not_quoted(folder: Path) -> None:
    trace = stock_ticks(folder / "stock_ticks", speed=1)
    tables = trace.between(BEGIN, BEGIN + 10 * SECOND)
    assert tables["trades"]["price"].to_pylist() == [13.91, 13.91, 13.92, 13.92]
    assert tables["quotes"]["ask"].to_pylist() == [None, None, 13.92, 13.92]


def test_missing_values_of_the_sensor_and_connection_logs_are_null(folder: Path) -> None:
    readings = intel_lab(folder / "intel_lab", speed=1).tables["sensors"]
    assert readings["light"].to_pylist() == [28.52, None, 0.46]
    connections = zeek_connections(folder / "net_zeek_conn_ctu").tables["connections"]
    assert connections["sent"].to_pylist() == [2821, None]
    assert connections["at"].to_pylist() == [0, 3_750_000]


def test_a_trace_is_sped_up_shifted_and_starts_again_when_it_ends() -> None:
    table = pa.table({"n": [1, 2, 3], "at": pa.array([1 * SECOND, 4 * SECOND, 9 * SECOND])})
    trace = Trace("test", {"s": table}, length_us=10 * SECOND, speed=10)
    # One second of replay is the ten seconds of the trace.
    first = trace.between(BEGIN, BEGIN + SECOND)["s"]
    assert first["n"].to_pylist() == [1, 2, 3]
    assert first["at"].cast(pa.int64()).to_pylist() == [BEGIN + 100_000, BEGIN + 400_000, BEGIN + 900_000]
    pieces = [trace.between(BEGIN + i * 125_000, BEGIN + (i + 1) * 125_000)["s"] for i in range(8, 24)]
    again = pa.concat_tables(pieces)
    assert again["n"].to_pylist() == [1, 2, 3, 1, 2, 3]
    assert again["at"].cast(pa.int64()).to_pylist()[:2] == [BEGIN + 1_100_000, BEGIN + 1_400_000]


def test_what_is_not_in_the_folder_is_generated(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "intel_lab" / "intel_lab_some.txt.gz").unlink()
    (folder / "intel_lab").rmdir()
    monkeypatch.setenv("LADLE_DATA", str(folder))
    assert data_folder() == folder
    assert [type(feed) for feed in choose_feeds(generated=False)] == [Trace, Building, Trace]
    assert [type(feed) for feed in choose_feeds(generated=True)] == [Market, Building, Network]


def test_a_folder_that_is_named_and_not_there_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LADLE_DATA", "nowhere")
    with pytest.raises(LadleError, match="LADLE_DATA is 'nowhere'"):
        choose_feeds(generated=False)
