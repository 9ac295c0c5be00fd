"""What is durable: the warehouse, its one log, segments, waiting pushes; and leases, and the Delta table."""

from ladle.archive.files import MissingFile, fsync_directory, write_durably
from ladle.archive.leases import Lease, Leases
from ladle.archive.log import Log
from ladle.archive.warehouse import StreamPaths, Warehouse

__all__ = [
    "Lease",
    "Leases",
    "Log",
    "MissingFile",
    "StreamPaths",
    "Warehouse",
    "fsync_directory",
    "write_durably",
]
