"""The catalog: the state that the log's entries add up to, and a snapshot of it after each one.

A `Catalog` is immutable. Applying an entry gives the next one; readers keep the one they have for as long as they like.
Names are compared without case. Streams, tables, functions and queries have ids that are never used again. Blocks have
numbers that no entry knows: they are part of what is derived.
"""

from ladle.catalog.bindings import Bindings
from ladle.catalog.defined_sources import SourceState, source_of_key
from ladle.catalog.entries import (
    add_column,
    add_table_column,
    create_function,
    create_source,
    create_stream,
    create_table,
    create_table_as,
    create_token,
    drop_function,
    drop_source,
    drop_stream,
    drop_table,
    drop_token,
    epoch,
    forget_positions,
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
from ladle.catalog.grants import Access
from ladle.catalog.meaning import Meaning
from ladle.catalog.now import may_become_idle, now_of_clocks
from ladle.catalog.queries import Factors, NewQuery, QueryState
from ladle.catalog.seen import Seen
from ladle.catalog.snapshot import Catalog
from ladle.catalog.standing import BlockPage, BlockPages, KeptBlock, Queries, View
from ladle.catalog.streams import QUARANTINE, StreamState
from ladle.catalog.tables import Replaced, TableFile, TableState
from ladle.catalog.timeline import NOTHING, ClockAt, Record, Timeline

INBOX = "inbox"
"""The source whose batches are pushes; its batch number is the highest push taken in."""

__all__ = [
    "INBOX",
    "NOTHING",
    "QUARANTINE",
    "Access",
    "Bindings",
    "BlockPage",
    "BlockPages",
    "Catalog",
    "ClockAt",
    "Factors",
    "KeptBlock",
    "Meaning",
    "NewQuery",
    "Queries",
    "QueryState",
    "Record",
    "Replaced",
    "Seen",
    "SourceState",
    "StreamState",
    "TableFile",
    "TableState",
    "Timeline",
    "View",
    "add_column",
    "add_table_column",
    "create_function",
    "create_source",
    "create_stream",
    "create_table",
    "create_table_as",
    "create_token",
    "drop_function",
    "drop_source",
    "drop_stream",
    "drop_table",
    "drop_token",
    "epoch",
    "forget_positions",
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
