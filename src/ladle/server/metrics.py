"""Figures in Prometheus' form: requests as they come, the rest looked up when somebody scrapes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

if TYPE_CHECKING:
    from ladle.status import Pulse

_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)


class Metrics:
    def __init__(self, pulse: Callable[[], Pulse], subscribers: Callable[[], int]) -> None:
        self._pulse = pulse
        self._subscribers = subscribers
        self._registry = CollectorRegistry()
        self._registry.register(self)
        labels = ("method", "path")
        self._requests = Counter("ladle_requests", "Requests answered", (*labels, "status"), registry=self._registry)
        self._seconds = Histogram(
            "ladle_request_seconds", "Time of requests", labels, registry=self._registry, buckets=_BUCKETS
        )
        self._series: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        """By method, path and status: found sooner than by their labels."""

    def request(self, method: str, path: str, status: int, seconds: float) -> None:
        # Methods that nobody knows must not make a series each.
        method = method if method in ("GET", "POST", "DELETE", "PUT", "HEAD", "OPTIONS", "PATCH") else "other"
        series = self._series.get((method, path, status))
        if series is None:
            series = self._requests.labels(method, path, str(status)), self._seconds.labels(method, path)
            self._series[method, path, status] = series
        counter, histogram = series
        counter.inc()
        histogram.observe(seconds)

    def text(self) -> bytes:
        return generate_latest(self._registry)

    def collect(self) -> Iterable[Metric]:
        pulse = self._pulse()
        yield GaugeMetricFamily("ladle_epoch", "The last epoch", pulse.epoch)
        yield GaugeMetricFamily("ladle_queries", "Standing queries", pulse.queries)
        yield GaugeMetricFamily("ladle_subscribers", "Connected subscribers", self._subscribers())
        yield CounterMetricFamily("ladle_invocations", "Answers of standing queries", pulse.invocations)
        yield CounterMetricFamily("ladle_cache_hits", "Segments found in memory", pulse.cache_hits)
        yield CounterMetricFamily("ladle_cache_misses", "Segments that had to be read", pulse.cache_misses)
        rows = CounterMetricFamily("ladle_stream_rows", "Tuples accepted", labels=["stream"])
        rate = GaugeMetricFamily("ladle_stream_rows_per_second", "Over the last seconds", labels=["stream"])
        epochs = CounterMetricFamily("ladle_stream_epochs", "Epochs", labels=["stream"])
        pending = GaugeMetricFamily("ladle_stream_pending", "Pushes that wait", labels=["stream"])
        bad = CounterMetricFamily("ladle_stream_quarantined", "Rows in quarantine", labels=["stream"])
        size = GaugeMetricFamily("ladle_stream_bytes", "On disk", labels=["stream"])
        for stream in pulse.streams:
            for family, value in (
                (rows, stream.rows),
                (rate, stream.rows_per_second),
                (epochs, stream.epochs),
                (pending, stream.pending),
                (bad, stream.quarantined),
                (size, stream.bytes),
            ):
                family.add_metric([stream.name], value)
        yield from (rows, rate, epochs, pending, bad, size)
        running = GaugeMetricFamily("ladle_source_running", "1 while it runs", labels=["source", "stream"])
        restarts = CounterMetricFamily("ladle_source_restarts", "Started again", labels=["source", "stream"])
        # Of an attached and a defined one with the same name, the one that does not run is shown.
        shown = {(s.name, s.stream): s for s in sorted(pulse.sources, key=lambda s: s.state != "running")}
        for labels, source in shown.items():
            running.add_metric(labels, source.state == "running")
            restarts.add_metric(labels, source.restarts)
        yield from (running, restarts)
        tickets = GaugeMetricFamily("ladle_eddy_tickets", "Share of tickets", labels=["stream", "operator"])
        for name, operators in pulse.operators.items():
            for each in operators:
                tickets.add_metric([name, each.name], each.tickets)
        yield tickets
