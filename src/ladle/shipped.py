"""On an executor this package is a zip that Spark put into a directory of the application.

Numba keeps what it compiled under the path of the source, so each application would compile the kernels anew. Instead
the zip is unpacked once per machine and user, into a directory named after its sources, and imported from there. What
the driver has compiled comes along, and is used where the processor is the same.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import zipfile
from pathlib import Path


def unpacked(path: list[str]) -> list[str]:
    """Where to import the package from instead of a path into a zip; that path itself when nothing can be written."""
    archive = next((parent for parent in Path(path[0]).parents if parent.is_file()), None)
    if archive is None:
        return path
    try:
        return [str(_unpacked(archive) / Path(path[0]).relative_to(archive)), *path]
    except (OSError, RuntimeError, zipfile.BadZipFile):  # no home, or one that can't be written
        return path


def _unpacked(archive: Path) -> Path:
    with zipfile.ZipFile(archive) as content:
        entries = [entry for entry in content.infolist() if "__pycache__" not in entry.filename]
        names = sorted((entry.filename, entry.CRC) for entry in entries)
        cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        target = Path(cache) / "ladle" / hashlib.sha256(repr(names).encode()).hexdigest()[:24]
        if not target.is_dir():
            target.parent.mkdir(parents=True, exist_ok=True)
            partial = Path(tempfile.mkdtemp(dir=target.parent))
            try:
                content.extractall(partial)
                partial.rename(target)
            except BaseException:
                shutil.rmtree(partial, ignore_errors=True)
                if not target.is_dir():  # or another worker was faster
                    raise
    return target
