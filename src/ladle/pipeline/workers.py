"""The Python in which Spark's tasks run: it must be ours in version, have this package, and the libraries it needs."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import uuid
import weakref
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException

from ladle.errors import PipelineError
from ladle.interrupt import run_apart
from ladle.pipeline.spark_reasons import reason_of

_PACKAGE = Path(__file__).parents[1]
_ARCHIVE = "ladle"
_CHOSEN = "PYSPARK_PYTHON"
_prepared: weakref.WeakSet[SparkContext] = weakref.WeakSet()
"""Contexts whose executors have been tried: another database may be opened with the same session."""


def prepare_workers(context: SparkContext) -> None:
    """Let the tasks of a session find this package, and a Python that can run it.

    PySpark takes whichever `python3` the path has unless PYSPARK_PYTHON says otherwise. On this machine ours is better.
    On others it is tried, and then a Python at the place of ours; what a user chose is never changed.
    """
    if prepare_local(context) or context in _prepared:
        return
    _ship_package(context)
    first = context.pythonExec
    reasons = []
    for python in dict.fromkeys([first] if _CHOSEN in os.environ else [first, sys.executable]):
        context.pythonExec = python
        try:
            _try(context)
        except (PySparkException, Py4JError) as error:
            reasons.append(f"{python}: {reason_of(error)}")
        else:
            _prepared.add(context)
            return
    context.pythonExec = first
    raise PipelineError(
        f"The executors have no Python that can run Ladle's tasks. {' '.join(reasons)}",
        hint=f"they need Python {sys.version_info.major}.{sys.version_info.minor} with the libraries that Ladle is "
        f"installed with here; set {_CHOSEN} to its path there before the session is made",
    )


def prepare_local(context: SparkContext) -> bool:
    """The same where tasks run on this machine; whether they do."""
    if not str(context.master).startswith("local"):
        return False
    context.environment["PYTHONPATH"] = str(_PACKAGE.parent)
    if _CHOSEN not in os.environ:
        context.pythonExec = sys.executable
    return True


def _ship_package(context: SparkContext) -> None:
    """Give the executors this package, once; the libraries it needs must be installed there."""
    if any(file.endswith(f"/{_ARCHIVE}.zip") for file in context.listFiles):
        return
    directory = Path(tempfile.mkdtemp(prefix="ladle-"))
    archive = shutil.make_archive(str(directory / _ARCHIVE), "zip", root_dir=_PACKAGE.parent, base_dir=_PACKAGE.name)
    context.addPyFile(archive)


def _try(context: SparkContext) -> None:
    """Run a task that loads what tasks load."""
    group = f"ladle-{uuid.uuid4().hex}"

    def run() -> None:
        context.setJobGroup(group, "ladle: which Python", interruptOnCancel=True)
        context.parallelize([0], 1).mapPartitions(_loads).collect()

    run_apart(run, partial(context.cancelJobGroup, group))


def _loads(rows: Iterable[int]) -> Iterable[int]:
    import ladle.stem.epoch_kernel  # noqa: F401 - with all that it needs

    return rows
