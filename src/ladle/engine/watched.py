"""What a database tells of itself to those who watch it."""

from __future__ import annotations

from collections.abc import Iterable

from ladle.catalog import Catalog
from ladle.engine.parts import Parts
from ladle.ingest.figures import Figures
from ladle.status import BackfillStatus, Pulse, Status


def status(parts: Parts, queries: Iterable[str] | None = None) -> Status:
    """Everything that is going on; of all queries, or of those with these names."""
    with parts.store.pin() as catalog:
        return _status(parts, catalog, queries)


def _status(parts: Parts, catalog: Catalog, queries: Iterable[str] | None) -> Status:
    store, report = parts.store, parts.report
    return Status(
        path=str(parts.path),
        epoch=catalog.epoch,
        read_only=not store.warehouse.writable,
        spark="running" if parts.spark.started else "not started",
        streams=report.streams(catalog),
        sources=parts.sources.statuses(catalog),
        queries=report.queries(catalog, parts.asked.count, queries),
        backfills=tuple(
            BackfillStatus(name, progress.done, progress.total) for name, progress in parts.backfill.progress.items()
        ),
        cache_hits=store.cache.hits,
        cache_misses=store.cache.misses,
        derived=report.derived(),
        budgets=report.budgets,
        problems=parts.background.problems,
    )


def pulse(parts: Parts) -> Pulse:
    """What changes all the time, told without a look at each query."""
    with parts.store.pin() as catalog:
        return parts.report.pulse(catalog, parts.asked.total, parts.sources.statuses(catalog))


def figures(parts: Parts) -> Figures:
    """What those who watch this process are told beside the pulse."""
    return parts.report.figures(parts.asked, parts.spark)
