"""Figures in Prometheus' form: requests as they come, the rest looked up when somebody scrapes.

Names follow Prometheus' conventions: base units last, `_total` for what only grows. What there is one of for each query
is told of the busiest alone, and of those that the asker may see; the others are told together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from itertools import accumulate
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from ladle.protocols.http.connections import Connections, Ended

if TYPE_CHECKING:
    from ladle.ingest.figures import Durations, Figures
    from ladle.status import Pulse

_BUCKETS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30, 60)
_OTHER = "other"


class Metrics:
    """The figures of a server, for Prometheus."""

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
        """Count a request and its time."""
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
        return generate_latest(_FiguresOf(self, sees))

    def collect(self, sees: Callable[[str], object]) -> Iterator[Metric]:
        """All figures, as the caller may see them."""
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
        read = CounterMetricFamily("ladle_read_bytes", "What was read of history and tables", labels=["kind"])
        for kind, size in figures.read_bytes.items():
            read.add_metric([kind], size)
        yield read
        skipped = "Segments that were not read because of their least and greatest values"
        yield CounterMetricFamily("ladle_segments_skipped", skipped, figures.segments_skipped)
        yield from _of_derived(pulse)
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


class _FiguresOf:
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


def _of_derived(pulse: Pulse) -> Iterator[Metric]:
    kinds, labels = pulse.derived, ["kind"]
    disk = GaugeMetricFamily("ladle_derived_bytes", "Derived state on disk", labels=labels)
    memory = GaugeMetricFamily("ladle_memory_bytes", "Derived state in memory", labels=labels)
    things = GaugeMetricFamily("ladle_derived_things", "What derived state consists of", labels=labels)
    cost = GaugeMetricFamily("ladle_derived_rebuild_seconds", "What it takes to make it anew", labels=labels)
    evicted = CounterMetricFamily("ladle_derived_evictions", "Things dropped for want of room", labels=labels)
    coverage = GaugeMetricFamily("ladle_derived_coverage_ratio", "Covered of what is demanded", labels=labels)
    unused = GaugeMetricFamily("ladle_derived_unused_seconds", "Since something was last used", labels=labels)
    now = datetime.now(UTC)
    for each in kinds:
        if each.place == "memory":
            memory.add_metric([each.kind], each.memory_bytes)
        else:
            disk.add_metric([each.kind], each.disk_bytes)
        things.add_metric([each.kind], each.things)
        cost.add_metric([each.kind], each.rebuild_seconds)
        evicted.add_metric([each.kind], each.evictions)
        if each.coverage is not None:
            coverage.add_metric([each.kind], each.coverage)
        if each.last_used is not None:
            unused.add_metric([each.kind], max((now - each.last_used).total_seconds(), 0.0))
    budget = GaugeMetricFamily("ladle_derived_budget_bytes", "What derived state may take", labels=["place"])
    budget.add_metric(["memory"], pulse.budgets.memory_bytes_max)
    budget.add_metric(["disk"], pulse.budgets.disk_bytes_max)
    yield from (disk, memory, things, cost, evicted, coverage, unused, budget)


def _add(family: HistogramMetricFamily, label: str, durations: Durations) -> None:
    bounds = [*map(str, durations.bounds_seconds), "+Inf"]
    family.add_metric([label], list(zip(bounds, accumulate(durations.counts), strict=True)), durations.seconds)
