"""All of a stream's history is read through `archive/scan.py`: by the text of the program, and while it runs."""

from __future__ import annotations

import ast
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from tests.engine.rows import TICKS, ticks, values
from tests.test_layers import ROOT, imports

from ladle.archive import scan as access
from ladle.archive.cache import SegmentCache
from ladle.derived import Derived
from ladle.testing import connect_inline

MAY_READ_PARQUET = {
    "archive/cache.py": "decoded columns, for the scan",
    "archive/footers.py": "what footers say, for the scan",
    "archive/segments.py": "the form of data files, and writing them",
    "archive/checks.py": "verifying: bytes as bytes",
    "archive/table_files.py": "versions of tables are no history",
    "formats/reading.py": "files that users push",
    "pipeline/daemon.py": "loads it for the workers",
    "demo/flow.py": "writes what the demo attaches",
}
MAY_NAME = {
    # Who uses what opens and decodes a data file, and the memory that is before it.
    "opened_file": {"archive/cache.py"},
    "read_group": {"archive/cache.py"},
    "parse_footer": {"archive/cache.py"},
    "SegmentCache": {"archive/scan.py", "catalog/store.py"},
    "check_pages": {"archive/segments.py", "archive/table_files.py", "backup/verifying.py"},
}
CACHE_COLUMNS = {"archive/scan.py", "execute/table_rows.py"}
"""Who asks the cache for columns: the scan, and the versions of tables."""
SPARK_READS = {"pipeline/spark.py": 1}
"""Where Spark is told to read Parquet files: once, of a request. Sources read what users have."""


def product() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(ROOT.rglob("*.py")):
        yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def test_only_some_modules_know_parquet() -> None:
    libraries = ("pyarrow.parquet", "pyarrow.dataset", "fastparquet")
    found = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        if any(name.startswith(libraries) for name in imports(path))
    }
    assert found == MAY_READ_PARQUET.keys()
    for name, tree in product():
        froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module == "pyarrow"]
        assert not {"parquet", "dataset"} & {alias.name for node in froms for alias in node.names}, name


def test_only_the_scan_opens_data_files() -> None:
    named: dict[str, set[str]] = {what: set() for what in MAY_NAME}
    asked: set[str] = set()
    by_spark: Counter[str] = Counter()
    for name, tree in product():
        for node in ast.walk(tree):
            match node:
                case ast.Name(id=what) | ast.Attribute(attr=what) | ast.alias(name=what) if what in MAY_NAME:
                    named[what].add(name)
                case ast.Attribute(attr="columns", value=ast.Attribute(attr="cache" | "_cache")):
                    asked.add(name)
                case ast.Call(func=ast.Attribute(attr="parquet")) if not name.startswith("demo/"):
                    by_spark[name] += 1
                case ast.Constant(value=str(text)) if "read_parquet" in text:
                    assert name == "sql/conformant/known.py", f"{name} has DuckDB read files"
    assert named == MAY_NAME
    assert asked == CACHE_COLUMNS
    assert by_spark == SPARK_READS


class Opened:
    """Who opens data files of streams, and whether that was the scan."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.by_scan = 0
        self.others: list[str] = []
        real, real_open = pq.ParquetFile, Path.open
        opened = self

        class Watched(real):  # type: ignore[misc, valid-type]
            def __init__(self, source: Any, **options: Any) -> None:
                opened.note(source, ())
                super().__init__(source, **options)

        def path_open(path: Path, mode: str = "r", *args: Any, **options: Any) -> Any:
            if "w" not in mode:
                # Verifying reads bytes as bytes; so does who has just written a file.
                opened.note(path, ("check_whole", "checks_of"))
            return real_open(path, mode, *args, **options)

        def refused(source: Any, *_: Any, **__: Any) -> Any:
            raise AssertionError(f"{source} is read as a whole")

        monkeypatch.setattr(pq, "ParquetFile", Watched)
        monkeypatch.setattr(pq, "read_table", refused)
        monkeypatch.setattr(Path, "open", path_open)

    def note(self, source: Any, may: tuple[str, ...]) -> None:
        path = Path(str(source))
        if path.suffix != ".parquet" or path.parent.name != "archive":
            return
        frame = sys._getframe(2)
        callers = []
        while frame is not None:
            callers.append((frame.f_code.co_filename, frame.f_code.co_name))
            frame = frame.f_back  # type: ignore[assignment]
        if any(file == access.__file__ for file, _ in callers):
            self.by_scan += 1
        elif not any(name in may for _, name in callers):
            self.others.append(" < ".join(f"{Path(file).stem}.{name}" for file, name in callers[:8]))

    def looked(self) -> bool:
        """Whether data files were opened since the last time, all of them by the scan."""
        assert self.others == []
        count, self.by_scan = self.by_scan, 0
        return count > 0


@pytest.mark.not_at_one_row("residuals on Spark are another process")
def test_while_it_runs_only_the_scan_opens_data_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ladle.housekeeping.background.Background._work_loop", lambda _: None)
    tuning = {
        "maintenance_seconds": 3_600.0,
        "compact_files_min": 3,
        "segment_rows_max": 64,
        "derived_memory_bytes_max": 0,
    }
    with connect_inline(tmp_path / "warehouse", settings=tuning) as db:
        opened = Opened(monkeypatch)
        db.sql(TICKS)
        db.sql("CREATE STREAM other (n INT, at TIMESTAMP) TIMESTAMP BY at")
        joined = "SELECT a.n FROM ticks [RANGE 1 HOUR] a JOIN other [RANGE 1 HOUR] b ON a.n = b.n"
        db.register(joined, name="joined", materialize="partial")
        for first in range(0, 120, 30):
            db.push("ticks", ticks(range(first, first + 30)), wait=True)
            db.push("other", ticks(range(first, first + 30, 2)), wait=True)
        assert opened.looked(), "an epoch's probes"
        query = db.register("SELECT n FROM ticks WHERE n % 3 = 0", name="late", materialize="partial")
        assert len(values(db.invoke("late"))) == 40
        assert opened.looked(), "an answer of what is uncovered"
        assert db.backfill() > 0
        assert opened.looked(), "a backfill"
        assert len(values(db.invoke("late"))) == 40
        assert opened.looked(), "an answer of what is covered"
        assert len(values(db.invoke("joined"))) == 60
        assert opened.looked(), "a join"
        assert values(db.sql("SELECT sum(n) AS s FROM ticks [RANGE 50 SECONDS]")) == [sum(range(70, 120))]
        assert opened.looked(), "an aggregate"
        assert len(values(db.sql("SELECT n FROM ticks [ROWS 5] WHERE n > 7"))) == 5
        assert opened.looked(), "a statement that does not stand"
        files = len(db.catalog.streams["ticks"].files)
        db.maintain()
        assert len(db.catalog.streams["ticks"].files) < files
        assert opened.looked(), "compaction"
        epoch = db.catalog.epoch
        subscription = query.subscribe(since=epoch)
        db.push("ticks", ticks(range(120, 150)), wait=True)
        next(iter(subscription))
        assert opened.looked(), "a replay"


def test_a_reader_beside_the_scan_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The test above can fail."""
    with connect_inline(tmp_path / "warehouse") as db:
        db.sql(TICKS)
        db.push("ticks", ticks([1, 2]), wait=True)
        (file,) = db.catalog.streams["ticks"].files
        opened = Opened(monkeypatch)
        directory = db.path / "streams" / str(db.catalog.streams["ticks"].id) / "archive"
        SegmentCache(Derived(0, 0)).columns(directory, file.name, 0, ("n",), db.catalog.streams["ticks"].schema.arrow)
        with pytest.raises(AssertionError):
            opened.looked()
