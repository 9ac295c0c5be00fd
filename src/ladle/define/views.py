"""Views: standing queries that keep nothing. Who reads one by name has its text in the place of the name."""

from __future__ import annotations

from ladle.catalog import Catalog, QueryState
from ladle.catalog.dependents import queries_reading
from ladle.columns import Value
from ladle.errors import LadleError, unknown
from ladle.sql.statement_types import Materialize


def is_view(query: QueryState) -> bool:
    """Whether a query is a view: nothing of it is kept ready."""
    return query.materialize is Materialize.NONE


def require_view(catalog: Catalog, name: str, *, if_exists: bool = False) -> None:
    """Refuse a name that is not a view's; with `if_exists` it may be nobody's."""
    query = catalog.query(name)
    if query is None:
        if not if_exists:
            raise unknown("view", name, views(catalog)["name"])
    elif not is_view(query):
        raise LadleError(
            f"'{query.name}' is a query that keeps results ({query.materialize.value}), not a view.",
            hint=f"DROP QUERY {query.name}, or choose another name",
        )


def views(catalog: Catalog) -> dict[str, list[Value]]:
    """Names, texts and readers of the views."""
    found = [query for query in catalog.standing() if is_view(query)]
    return {
        "name": [query.name for query in found],
        "sql": [query.sql for query in found],
        "queries": [len(queries_reading(catalog, query.name)) for query in found],
    }
