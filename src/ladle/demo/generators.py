"""Streams that look like the real thing, for people who have no data at hand.

Each generator is seeded and draws whole stretches of time at once with NumPy: `between(begin_us, end_us)`
returns the tuples with `begin < at <= end` as Arrow tables, by stream. Asked for one stretch after another,
it goes on where it was: prices keep walking, a port scan under way continues.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ladle.columns import AnyArray, Value
from ladle.schema import TIMESTAMP

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

_DAY_US = 86_400_000_000
_SECOND_US = 1_000_000


class Feed(Protocol):
    """Where tuples come from: a generator or a replayed trace."""

    @property
    def description(self) -> str:
        """What the demo says of this data."""
        ...

    @property
    def history_seconds(self) -> int:
        """How far back the feed reaches when it is started."""
        ...

    def between(self, begin_us: int, end_us: int) -> dict[str, pa.Table]:
        """The tuples of each stream with `begin < at <= end`, in order of time."""
        ...


# symbol, price at the start, share of the market's events, yearly volatility, spread in basis points
LISTED: tuple[tuple[str, float, float, float, float], ...] = (
    ("AAPL", 191.0, 11.0, 0.28, 0.6),
    ("NVDA", 122.0, 14.0, 0.52, 0.9),
    ("MSFT", 417.0, 8.0, 0.24, 0.7),
    ("AMZN", 183.0, 8.0, 0.33, 0.8),
    ("TSLA", 244.0, 12.0, 0.58, 1.0),
    ("GOOG", 166.0, 6.0, 0.29, 0.8),
    ("META", 512.0, 5.0, 0.36, 1.1),
    ("AMD", 148.0, 7.0, 0.49, 1.0),
    ("BAC", 39.5, 5.0, 0.27, 2.6),
    ("JPM", 212.0, 3.0, 0.22, 1.2),
    ("INTC", 21.4, 6.0, 0.51, 4.8),
    ("IBM", 193.0, 2.0, 0.21, 1.9),
    ("KO", 69.0, 2.0, 0.14, 1.5),
    ("DIS", 96.0, 2.0, 0.27, 1.6),
    ("BA", 172.0, 2.0, 0.34, 2.4),
    ("GE", 171.0, 1.5, 0.30, 2.6),
    ("XOM", 115.0, 2.0, 0.22, 1.2),
    ("WMT", 76.0, 2.0, 0.19, 1.4),
    ("PFE", 28.6, 3.0, 0.24, 3.5),
    ("T", 21.8, 3.0, 0.21, 4.6),
    ("MCD", 291.0, 1.0, 0.18, 2.2),
    ("CAT", 346.0, 1.0, 0.28, 3.4),
    ("GS", 498.0, 0.8, 0.26, 4.1),
    ("BKNG", 3_890.0, 0.3, 0.27, 7.5),
)
_EXCHANGES = np.array(["Q", "P", "Z", "N", "K", "D"], dtype=object)
_EXCHANGE_SHARES = np.array([0.28, 0.18, 0.12, 0.14, 0.08, 0.20])
_TRADING_SECONDS_PER_YEAR = 252 * 6.5 * 3600


class Market:
    """Trades and quotes of 24 stocks: mid prices walk at random, trades happen at the bid or the ask."""

    def __init__(self, *, seed: int = 7, trades_per_second: float = 600, quotes_per_second: float = 1_500) -> None:
        self._random = np.random.default_rng(seed)
        self._trades_per_second = trades_per_second
        self._quotes_per_second = quotes_per_second
        self._symbols = pa.array([row[0] for row in LISTED])
        self._log_price = np.log([row[1] for row in LISTED])
        shares = np.array([row[2] for row in LISTED])
        self._shares = shares / shares.sum()
        self._sigma_per_second = np.array([row[3] for row in LISTED]) / math.sqrt(_TRADING_SECONDS_PER_YEAR)
        self._spread = np.array([row[4] for row in LISTED]) * 1e-4

    @property
    def description(self) -> str:
        """What the demo says of this data."""
        return f"{len(LISTED)} stocks (generated)"

    @property
    def history_seconds(self) -> int:
        """How much of the past there is when the demo begins."""
        return 600

    def between(self, begin_us: int, end_us: int) -> dict[str, pa.Table]:
        """The rows with times in this span, by stream."""
        rate = self._trades_per_second + self._quotes_per_second
        at = _arrivals(self._random, begin_us, end_us, rate)
        which = self._random.choice(len(LISTED), size=len(at), p=self._shares)
        mid = self._walk(which, (end_us - begin_us) / _SECOND_US)
        is_trade = self._random.random(len(at)) < self._trades_per_second / rate
        half = np.maximum(0.005, mid * self._spread[which] * self._random.uniform(0.25, 0.75, len(at)))
        bid = np.floor((mid - half) * 100 + 1e-6) / 100
        ask = np.maximum(np.ceil((mid + half) * 100 - 1e-6) / 100, bid + 0.01)
        exchange = self._random.choice(_EXCHANGES, size=len(at), p=_EXCHANGE_SHARES)
        trades, quotes = np.flatnonzero(is_trade), np.flatnonzero(~is_trade)
        paid = np.where(self._random.random(len(trades)) < 0.5, bid[trades], ask[trades])
        return {
            "trades": pa.table(
                {
                    "symbol": self._symbols.take(pa.array(which[trades])),
                    "price": np.round(paid, 2),
                    "size": _trade_sizes(self._random, len(trades)),
                    "exchange": pa.array(exchange[trades], pa.string()),
                    "at": _times(at[trades]),
                }
            ),
            "quotes": pa.table(
                {
                    "symbol": self._symbols.take(pa.array(which[quotes])),
                    "bid": np.round(bid[quotes], 2),
                    "bid_size": (100 * self._random.geometric(0.22, len(quotes))).astype(np.int32),
                    "ask": np.round(ask[quotes], 2),
                    "ask_size": (100 * self._random.geometric(0.22, len(quotes))).astype(np.int32),
                    "exchange": pa.array(exchange[quotes], pa.string()),
                    "at": _times(at[quotes]),
                }
            ),
        }

    def _walk(self, which: Ints, seconds: float) -> Floats:
        """The mid price of its stock at each event; the walks of all stocks in one grouped cumulative sum."""
        counts = np.bincount(which, minlength=len(LISTED))
        step = self._sigma_per_second * np.sqrt(seconds / np.maximum(counts, 1))
        order = np.argsort(which, kind="stable")
        moves = self._random.standard_normal(len(which)) * step[which[order]]
        total = np.concatenate(([0.0], np.cumsum(moves)))
        first = np.concatenate(([0], np.cumsum(counts)))
        log_price = total[1:] - np.repeat(total[first[:-1]], counts) + np.repeat(self._log_price, counts)
        self._log_price = self._log_price + total[first[1:]] - total[first[:-1]]
        mid = np.empty(len(which))
        mid[order] = np.exp(log_price)
        return mid


def _trade_sizes(random: np.random.Generator, count: int) -> npt.NDArray[np.int32]:
    """Round lots mostly, odd lots often, now and then a block."""
    kind = random.random(count)
    lots = 100 * random.geometric(0.45, count)
    odd = 1 + np.floor(random.exponential(28, count)) % 99
    blocks = np.minimum(100 * np.ceil(10 * (1 + random.pareto(1.1, count))), 250_000)
    sizes: npt.NDArray[np.int32] = np.select([kind < 0.52, kind < 0.997], [lots, odd], blocks).astype(np.int32)
    return sizes


class Building:
    """The motes of an office floor: temperature, humidity, light and battery, on a daily cycle.

    As on the real floor, packets get lost, some motes are dead, and a mote whose battery runs low reports
    nonsense (122 degrees).
    """

    MOTES = 54
    DEAD = (5, 28)
    DYING = (14, 33, 47)

    def __init__(self, *, seed: int = 11, period_seconds: float = 2.0, loss: float = 0.04) -> None:
        self._random = np.random.default_rng(seed)
        self._period_us = int(period_seconds * _SECOND_US)
        self._loss = loss
        self._phase_us = self._random.integers(0, self._period_us, self.MOTES)
        self._offset = self._random.normal(0, 0.8, self.MOTES)
        self._noise = self._random.uniform(0.05, 0.25, self.MOTES)
        self._window = self._random.random(self.MOTES) < 0.4
        self._battery = self._random.uniform(2.45, 2.75, self.MOTES)
        self._battery[np.array(self.DYING) - 1] = self._random.uniform(2.25, 2.33, len(self.DYING))

    @property
    def description(self) -> str:
        """What the demo says of this data."""
        return f"{self.MOTES} motes (generated)"

    @property
    def history_seconds(self) -> int:
        """How much of the past there is when the demo begins."""
        return 600

    def between(self, begin_us: int, end_us: int) -> dict[str, pa.Table]:
        """The rows with times in this span, by stream."""
        first = (begin_us - self._phase_us) // self._period_us + 1
        last = (end_us - self._phase_us) // self._period_us
        counts = np.maximum(last - first + 1, 0)
        mote = np.repeat(np.arange(self.MOTES), counts)
        nth = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        at = (first[mote] + nth) * self._period_us + self._phase_us[mote]
        heard = (self._random.random(len(at)) >= self._loss) & ~np.isin(mote + 1, self.DEAD)
        order = np.argsort(at, kind="stable")
        order = order[heard[order]]
        at, mote = at[order], mote[order]
        temperature, humidity, light, voltage = self._climate(at, mote)
        return {
            "sensors": pa.table(
                {
                    "mote": (mote + 1).astype(np.int32),
                    "temperature": np.round(temperature, 4),
                    "humidity": np.round(humidity, 4),
                    "light": np.round(light, 2),
                    "voltage": np.round(voltage, 5),
                    "at": _times(at),
                }
            )
        }

    def _climate(self, at: Ints, mote: Ints) -> tuple[Floats, Floats, Floats, Floats]:
        day = (at % _DAY_US) / _DAY_US * 2 * np.pi
        noise = self._random.standard_normal((3, len(at)))
        sun = np.maximum(0, -np.cos(day))
        temperature = 20.5 + 3.2 * np.sin(day - 2.4) + self._offset[mote] + self._noise[mote] * noise[0]
        humidity = 41 - 1.6 * (temperature - 20.5) + 0.8 * noise[1]
        lamps = np.where((at % _DAY_US > 0.33 * _DAY_US) & (at % _DAY_US < 0.8 * _DAY_US), 180.0, 2.0)
        light = np.maximum(0, lamps + np.where(self._window[mote], 650 * sun, 40 * sun) + 12 * noise[2])
        voltage = self._battery[mote] + 0.004 * noise[1]
        low = voltage < 2.34
        return np.where(low, 122.153, temperature), np.where(low, -3.9, humidity), light, voltage


def with_malformed(readings: pa.Table, *, share: float, random: np.random.Generator) -> list[dict[str, Value]]:
    """The readings as a gateway would hand them over: rows, a few of them damaged on the way."""
    rows: list[dict[str, Value]] = readings.to_pylist()
    damaged = np.flatnonzero(random.random(len(rows)) < share)
    for index, kind in zip(damaged, random.integers(0, 4, len(damaged)), strict=True):
        row = rows[index]
        match int(kind):
            case 0:
                row["temperature"] = "ERR"
            case 1:
                row["mote"] = "mote-" + str(row["mote"])
            case 2:
                row["voltage"] = "2,61"
            case _:
                row["at"] = "not a time"
    return rows


# service, protocol, port, share, median bytes sent and received, sigma of their logarithm
_SERVICES: tuple[tuple[str, str, int, float, float, float, float], ...] = (
    ("dns", "udp", 53, 0.44, 48, 120, 0.5),
    ("ssl", "tcp", 443, 0.33, 1_400, 7_800, 1.6),
    ("http", "tcp", 80, 0.09, 420, 3_100, 1.7),
    ("ntp", "udp", 123, 0.04, 48, 48, 0.05),
    ("ssh", "tcp", 22, 0.03, 2_900, 3_600, 1.3),
    ("smtp", "tcp", 25, 0.02, 5_200, 420, 1.4),
    ("imap", "tcp", 993, 0.02, 900, 4_400, 1.5),
    ("-", "tcp", 8_883, 0.03, 310, 260, 1.2),
)


class Network:
    """Connections at the edge of a small network: heavy-tailed bytes, the usual services, and port scans.

    Every `scan_every_seconds` a scanner picks a host and knocks at its ports, one after the other.
    """

    def __init__(
        self,
        *,
        seed: int = 13,
        connections_per_second: float = 300,
        scan_every_seconds: int = 45,
        scan_seconds: int = 6,
        scan_ports_per_second: int = 60,
    ) -> None:
        self._random = np.random.default_rng(seed)
        self._seed = seed
        self._rate = connections_per_second
        self._scan_every_us = scan_every_seconds * _SECOND_US
        self._scan_ports = scan_seconds * scan_ports_per_second
        self._knock_us = _SECOND_US // scan_ports_per_second
        self._inside = pa.array([f"10.1.{i // 64}.{10 + i % 64}" for i in range(256)])
        octets = self._random.integers(1, 255, (4_000, 4))
        octets[:, 0] = self._random.choice([23, 34, 52, 104, 142, 151, 172, 185, 203], 4_000)
        self._outside = pa.array([".".join(map(str, row)) for row in octets])
        shares = np.array([row[3] for row in _SERVICES])
        self._shares = shares / shares.sum()

    @property
    def description(self) -> str:
        """What the demo says of this data."""
        return "256 hosts (generated)"

    @property
    def history_seconds(self) -> int:
        """How much of the past there is when the demo begins."""
        return 600

    def between(self, begin_us: int, end_us: int) -> dict[str, pa.Table]:
        """The rows with times in this span, by stream."""
        both = pa.concat_tables([self._ordinary(begin_us, end_us), self._scans(begin_us, end_us)])
        return {"connections": both.sort_by("at")}

    def _ordinary(self, begin_us: int, end_us: int) -> pa.Table:
        at = _arrivals(self._random, begin_us, end_us, self._rate)
        count = len(at)
        kind = self._random.choice(len(_SERVICES), size=count, p=self._shares)
        udp = np.array([row[1] == "udp" for row in _SERVICES])[kind]
        fails = ~udp & (self._random.random(count) < 0.05)
        sent = np.where(fails, 0, _heavy_tailed(self._random, np.array([row[4] for row in _SERVICES])[kind], kind))
        received = np.where(fails, 0, _heavy_tailed(self._random, np.array([row[5] for row in _SERVICES])[kind], kind))
        seconds = np.where(udp, 0.02, 0.3) * self._random.lognormal(0, 1.3, count) + received / 4e6
        # Clients and servers alike: few are busy, most are quiet.
        client = np.minimum(self._random.zipf(1.3, count) - 1, 255)
        server = np.minimum(self._random.zipf(1.2, count) - 1, 3_999)
        return _connections(
            at=at,
            duration=seconds,
            proto=_pick([row[1] for row in _SERVICES], kind),
            service=_pick([row[0] for row in _SERVICES], kind),
            src=self._inside.take(pa.array(client)),
            src_port=self._random.integers(32_768, 61_000, count),
            dst=self._outside.take(pa.array(server)),
            dst_port=np.array([row[2] for row in _SERVICES])[kind],
            sent=sent,
            received=received,
            state=_pick(["SF", "S0", "REJ"], np.where(fails, 1 + self._random.integers(0, 2, count), 0)),
        )

    def _scans(self, begin_us: int, end_us: int) -> pa.Table:
        # Scan n starts at n * every, and who knocks where follows from n: stretches join without a seam.
        length_us = self._scan_ports * self._knock_us
        numbers = np.arange((begin_us - length_us) // self._scan_every_us, end_us // self._scan_every_us + 1)
        scan = np.repeat(numbers, self._scan_ports)
        step = np.tile(np.arange(self._scan_ports), len(numbers))
        at = scan * self._scan_every_us + step * self._knock_us
        here = (at > begin_us) & (at <= end_us)
        scan, step, at = scan[here], step[here], at[here]
        mixed = (scan * 2_654_435_761 + self._seed * 40_503) % (1 << 32)
        return _connections(
            at=at,
            duration=np.zeros(len(at)),
            proto=_pick(["tcp"], np.zeros(len(at), np.int64)),
            service=_pick(["-"], np.zeros(len(at), np.int64)),
            src=self._outside.take(pa.array(mixed % 4_000)),
            src_port=40_000 + step,
            dst=self._inside.take(pa.array(mixed // 4_000 % 256)),
            dst_port=1 + step * 3,
            sent=np.zeros(len(at)),
            received=np.zeros(len(at)),
            state=_pick(["S0", "REJ"], (step % 5 == 0).astype(np.int64)),
        )


def _connections(**columns: AnyArray) -> pa.Table:
    return pa.table(
        {
            "at": _times(columns["at"]),
            "duration": np.round(columns["duration"], 6),
            "proto": columns["proto"],
            "service": columns["service"],
            "src": columns["src"],
            "src_port": columns["src_port"].astype(np.int32),
            "dst": columns["dst"],
            "dst_port": columns["dst_port"].astype(np.int32),
            "sent": columns["sent"].astype(np.int64),
            "received": columns["received"].astype(np.int64),
            "state": columns["state"],
        }
    )


def _heavy_tailed(random: np.random.Generator, median: Floats, kind: Ints) -> Floats:
    """Lognormal in the body; one in two hundred bulk transfers has a Pareto tail."""
    sigma = np.array([row[6] for row in _SERVICES])[kind]
    body = median * np.exp(sigma * random.standard_normal(len(median)))
    bulk = (sigma > 1) & (random.random(len(median)) < 0.005)
    tail = np.minimum(500_000 * (1 + random.pareto(1.1, len(median))), 5e9)
    return np.where(bulk, tail, body)


def _arrivals(random: np.random.Generator, begin_us: int, end_us: int, rate_per_second: float) -> Ints:
    """Poisson arrivals in (begin, end], sorted."""
    count = random.poisson(rate_per_second * max(end_us - begin_us, 0) / _SECOND_US)
    return np.sort(random.integers(begin_us + 1, end_us + 1, count)) if count else np.empty(0, np.int64)


def _pick(values: list[str], index: Ints) -> pa.Array:
    return pa.array(values).take(pa.array(index))


def _times(at: Ints) -> pa.Array:
    return pa.array(at, pa.int64()).cast(TIMESTAMP)
