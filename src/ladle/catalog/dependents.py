"""Which standing queries would miss a stream, a table, a function or another query, as far as a catalog shows them."""

from __future__ import annotations

from ladle.catalog.snapshot import Catalog


def queries_on(catalog: Catalog, stream: str) -> list[str]:
    """Names of the queries that stand on a stream, or on its quarantine."""
    wanted = stream.lower()
    own = {wanted, f"{wanted}.quarantine"}
    return [query.name for query in catalog.standing() if not own.isdisjoint(query.meaning.streams)]


def queries_reading(catalog: Catalog, name: str) -> list[str]:
    """Names of the queries that read a standing query as a relation."""
    readers = [catalog.queries[reader] for reader in catalog.queries.readers.get(name.lower(), ())]
    return [query.name for query in sorted(readers, key=lambda query: query.place)]


def queries_over(catalog: Catalog, table: str) -> list[str]:
    """Names of the queries that read a table, also through queries that they read."""
    wanted = table.lower()
    return [query.name for query in catalog.standing() if wanted in query.meaning.tables]


def queries_calling(catalog: Catalog, name: str) -> list[str]:
    """Names of the queries that call a function, also through queries that they read."""
    wanted = name.lower()
    return [query.name for query in catalog.standing() if wanted in query.meaning.functions]
