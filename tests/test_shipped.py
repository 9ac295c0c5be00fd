"""The package as executors get it: a zip, in another place for each application."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import ladle

PROGRAM = "import ladle.stem.tiles as module, ladle; print(module.__file__); print(ladle.__version__)"


def imported_from(archive: Path, home: Path) -> Path:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, "PYTHONPATH": str(archive), "HOME": str(home), "XDG_CACHE_HOME": ""},
        cwd=archive.parent,
        capture_output=True,
        text=True,
        check=True,
    )
    place, version = done.stdout.split()
    assert version == ladle.__version__
    return Path(place)


@pytest.fixture
def archives(tmp_path: Path) -> list[Path]:
    """The same package in two places."""
    root = Path(ladle.__file__).parent
    made = Path(shutil.make_archive(str(tmp_path / "ladle"), "zip", root_dir=root.parent, base_dir=root.name))
    places = [tmp_path / name / "ladle.zip" for name in ("one", "two")]
    for place in places:
        place.parent.mkdir()
        shutil.copy(made, place)
    return places


def test_two_applications_import_from_one_place(archives: list[Path], tmp_path: Path) -> None:
    first, second = (imported_from(archive, tmp_path) for archive in archives)
    assert first == second
    assert first.is_relative_to(tmp_path / ".cache" / "ladle")
    # Where Numba can keep what it compiles, beside the source.
    assert first.with_name("kernels.py").is_file()


def test_another_package_has_another_place(archives: list[Path], tmp_path: Path) -> None:
    first = imported_from(archives[0], tmp_path)
    changed = tmp_path / "changed"
    shutil.unpack_archive(archives[1], changed)
    (changed / "ladle" / "stem" / "tiles.py").write_text("CHANGED = True\n")
    archives[1].unlink()
    shutil.make_archive(str(archives[1].with_suffix("")), "zip", root_dir=changed, base_dir="ladle")
    second = imported_from(archives[1], tmp_path)
    assert second != first
    assert second.read_text() == "CHANGED = True\n"


def test_without_a_home_it_is_imported_from_the_zip(archives: list[Path], tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("a file, where a directory should be")
    assert imported_from(archives[0], home).is_relative_to(archives[0])
