"""Figures in Prometheus' form: requests as they come, the rest looked up when somebody scrapes.

Names follow Prometheus' conventions: base units last, `_total` for what only grows. What there is one of for each query
is told of the busiest alone, and of those that the asker may see; the others are told together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from ladle.server.connections import Connections, Ended

if TYPE_CHECKING:
    from ladle.engine.figures import Durations, Figures
    from ladle.status import Pulse

_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
_OTHER = "other"


class Metrics:
    def __init__(
        self,
        pulse: Callable[[], Pulse],
        figures: Callable[[], Figures],
        subscribers: Callable[[], int],
        connections: Connections,
    ) -> None:
        self._pulse = pulse
        self._figures = figures
        self._subscribers = subscribers
        self._connections = connections
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
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

    def text(self, sees: Callable[[str], object]) -> bytes:
        """All figures, for one who `sees` some queries, by name."""
        return generate_latest(_Page(self, sees))

    def collect(self, sees: Callable[[str], object]) -> Iterator[Metric]:
        for family in self._registry.collect():
            # When each series began says nothing here: all of them began with the process, or with their first request.
            family.samples = [sample for sample in family.samples if not sample.name.endswith("_created")]
            yield family
        pulse, figures = self._pulse(), self._figures()
        yield GaugeMetricFamily("ladle_epoch", "The last epoch", pulse.epoch)
        yield GaugeMetricFamily("ladle_queries", "Standing queries", pulse.queries)
        yield GaugeMetricFamily("ladle_subscribers", "Connected subscribers", self._subscribers())
        yield CounterMetricFamily("ladle_cache_hits", "Segments found in memory", pulse.cache_hits)
        yield CounterMetricFamily("ladle_cache_misses", "Segments that had to be read", pulse.cache_misses)
        yield from _of_connections(self._connections)
        yield from _of_streams(pulse, figures)
        yield from _of_sources(pulse)
        yield _of_queries(figures, sees)
        yield _by_kind("ladle_derived_bytes", "Derived state on disk", figures.derived_bytes.items())
        yield _by_kind("ladle_memory_bytes", "Derived state in memory", figures.memory_bytes.items())
        yield GaugeMetricFamily("ladle_spark_running", "1 while Spark runs", figures.spark_running)
        restarts = CounterMetricFamily("ladle_spark_restarts", "JVMs that were replaced", labels=["work"])
        for work, times in figures.spark_restarts.items():
            restarts.add_metric([work], times)
        yield restarts
        tickets = GaugeMetricFamily("ladle_eddy_tickets", "Share of tickets", labels=["stream", "operator"])
        for name, operators in pulse.operators.items():
            for each in operators:
                tickets.add_metric([name, each.name], each.tickets)
        yield tickets


class _Page:
    """The figures as one asker sees them: what `generate_latest` takes for a registry."""

    def __init__(self, metrics: Metrics, sees: Callable[[str], object]) -> None:
        self._metrics = metrics
        self._sees = sees

    def collect(self) -> Iterator[Metric]:
        return self._metrics.collect(self._sees)


def _of_connections(connections: Connections) -> Iterator[Metric]:
    opened = GaugeMetricFamily("ladle_connections", "Open connections", labels=["of"])
    opened.add_metric(["users"], connections.known)
    opened.add_metric(["strangers"], connections.strangers)
    ended = CounterMetricFamily("ladle_connections_ended", "Connections that the server ended", labels=["reason"])
    for reason in Ended:
        ended.add_metric([reason], connections.ended[reason])
    yield from (opened, ended)


def _of_streams(pulse: Pulse, figures: Figures) -> Iterator[Metric]:
    labels = ["stream"]
    rows = CounterMetricFamily("ladle_stream_rows", "Tuples accepted", labels=labels)
    written = CounterMetricFamily("ladle_stream_written_bytes", "Data files written by epochs", labels=labels)
    epochs = CounterMetricFamily("ladle_stream_epochs", "Epochs", labels=labels)
    pending = GaugeMetricFamily("ladle_stream_pending", "Pushes that wait", labels=labels)
    bad = CounterMetricFamily("ladle_stream_quarantined", "Rows in quarantine", labels=labels)
    size = GaugeMetricFamily("ladle_stream_bytes", "Data files on disk", labels=labels)
    lag = GaugeMetricFamily("ladle_stream_lag_seconds", "Wall clock less the stream's clock", labels=labels)
    late = GaugeMetricFamily("ladle_stream_lateness_seconds", "How far behind the clock tuples may come", labels=labels)
    idle = GaugeMetricFamily("ladle_stream_idle", "1 while NOW does not wait for it", labels=labels)
    seconds = HistogramMetricFamily("ladle_epoch_seconds", "From an epoch's beginning to its commit", labels=labels)
    for stream in pulse.streams:
        for family, value in (
            (rows, stream.rows),
            (epochs, stream.epochs),
            (pending, stream.pending),
            (bad, stream.quarantined),
            (size, stream.bytes),
            (idle, stream.idle),
        ):
            family.add_metric([stream.name], value)
        if stream.lateness_seconds is not None:
            late.add_metric([stream.name], stream.lateness_seconds)
        taken_in = figures.epochs.get(stream.name)
        written.add_metric([stream.name], 0 if taken_in is None else taken_in.bytes)
        if taken_in is not None:
            _add(seconds, stream.name, taken_in.durations)
    for name, behind in figures.lag_seconds.items():
        lag.add_metric([name], behind)
    yield from (rows, written, epochs, pending, bad, size, lag, late, idle, seconds)


def _of_sources(pulse: Pulse) -> Iterator[Metric]:
    running = GaugeMetricFamily("ladle_source_running", "1 while it runs", labels=["source", "stream"])
    restarts = CounterMetricFamily("ladle_source_restarts", "Started again", labels=["source", "stream"])
    # Of an attached and a defined one with the same name, the one that does not run is shown.
    shown = {(s.name, s.stream): s for s in sorted(pulse.sources, key=lambda s: s.state != "running")}
    for labels, source in shown.items():
        running.add_metric(labels, source.state == "running")
        restarts.add_metric(labels, source.restarts)
    yield from (running, restarts)


def _of_queries(figures: Figures, sees: Callable[[str], object]) -> Metric:
    seconds = HistogramMetricFamily("ladle_invocation_seconds", "Time of invocations", labels=["query"])
    others = figures.others
    for name, durations in figures.busiest.items():
        if sees(name) and name != _OTHER:
            _add(seconds, name, durations)
        else:
            others.merge(durations)
    _add(seconds, _OTHER, others)
    return seconds


def _by_kind(name: str, text: str, sizes: Iterable[tuple[str, int]]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=["kind"])
    for kind, size in sizes:
        family.add_metric([kind], size)
    return family


def _add(family: HistogramMetricFamily, label: str, durations: Durations) -> None:
    bounds = [*map(str, durations.bounds_seconds), "+Inf"]
    family.add_metric([label], list(zip(bounds, accumulate(durations.counts), strict=True)), durations.seconds)
