"""The catalog: the state that the log's entries add up to, and a snapshot of it after each one (DESIGN sections 1, 2).

A `Catalog` is immutable. Applying an entry gives the next one; readers keep the one they have for as long as they like.
Names are compared without case. Streams, queries and blocks have ids that are never used again, so that whatever was
derived for one can't be taken for another's.
"""

from ladle.catalog.access import Access
from ladle.catalog.entries import (
    add_column,
    create_function,
    create_source,
    create_stream,
    create_table,
    create_token,
    drop_function,
    drop_source,
    drop_stream,
    drop_table,
    drop_token,
    epoch,
    grant,
    heartbeat,
    idle,
    register,
    replace_files,
    revoke,
    set_idle_after,
    set_lateness,
    set_retain,
    set_table,
    unregister,
)
from ladle.catalog.marks import Mark
from ladle.catalog.now import may_become_idle, now_of_clocks
from ladle.catalog.queries import Factors, QueryState
from ladle.catalog.snapshot import Catalog, Seen
from ladle.catalog.sources import SourceState, source_of_key
from ladle.catalog.standing import Kept, Page, Pages, Queries, View
from ladle.catalog.streams import QUARANTINE, ClockAt, Segments, StreamState
from ladle.catalog.tables import TableState

INBOX = "inbox"
"""The source whose batches are pushes; its batch number is the highest push taken in."""

__all__ = [
    "INBOX",
    "QUARANTINE",
    "Access",
    "Catalog",
    "ClockAt",
    "Factors",
    "Kept",
    "Mark",
    "Page",
    "Pages",
    "Queries",
    "QueryState",
    "Seen",
    "Segments",
    "SourceState",
    "StreamState",
    "TableState",
    "View",
    "add_column",
    "create_function",
    "create_source",
    "create_stream",
    "create_table",
    "create_token",
    "drop_function",
    "drop_source",
    "drop_stream",
    "drop_table",
    "drop_token",
    "epoch",
    "grant",
    "heartbeat",
    "idle",
    "may_become_idle",
    "now_of_clocks",
    "register",
    "replace_files",
    "revoke",
    "set_idle_after",
    "set_lateness",
    "set_retain",
    "set_table",
    "source_of_key",
    "unregister",
]
