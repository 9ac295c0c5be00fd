"""Ladle: standing SQL queries over streams on Apache Spark.

import ladle
db = ladle.connect("warehouse")
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ladle.answer import Answer
    from ladle.backup.copying import restore
    from ladle.connection import connect, spark_format
    from ladle.engine import Database, Query
    from ladle.errors import LadleError

if ".zip" in __path__[0]:
    from ladle.shipped import unpacked

    __path__ = unpacked(__path__)

__version__ = "0.1.0"

__all__ = ["Answer", "Database", "LadleError", "Query", "__version__", "connect", "restore", "spark_format"]

_HOMES = {
    "Answer": "ladle.answer",
    "Database": "ladle.engine",
    "LadleError": "ladle.errors",
    "Query": "ladle.engine",
    "connect": "ladle.connection",
    "restore": "ladle.backup.copying",
    "spark_format": "ladle.connection",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def __getattr__(name: str) -> object:
    # Loaded on first use: a task on a worker imports kernels, not the engine.
    if name not in _HOMES:
        raise AttributeError(f"module 'ladle' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name]), name)
