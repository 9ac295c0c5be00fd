"""What a database is made of, put together: the handlers of commands work with these."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path

from ladle.archive.folder import local_folder
from ladle.archive.warehouse import Warehouse
from ladle.catalog import Catalog
from ladle.catalog.store import Store
from ladle.clock import Clock, WallClock
from ladle.config import Settings
from ladle.define.column_defaults import Defaults
from ladle.define.definitions import Definitions
from ladle.define.functions import Functions
from ladle.define.rights import Rights
from ladle.define.table_changes import Tables
from ladle.engine.report import Report
from ladle.errors import Closed, ReadOnly
from ladle.execute.demands import Demands
from ladle.execute.following import Following
from ladle.execute.invoke import Invoker
from ladle.housekeeping.background import Background
from ladle.housekeeping.maintenance import Maintenance
from ladle.ingest.backfill import Backfill
from ladle.ingest.derived_kinds import register_files
from ladle.ingest.epochs import Ingest
from ladle.ingest.figures import Invocations
from ladle.ingest.sources import Sources
from ladle.pipeline import Pipeline


class Parts:
    """The parts of an open database. Any thread may use them."""

    def __init__(
        self,
        path: str | Path,
        pipeline: Pipeline,
        clock: Clock | None,
        given: Mapping[str, object] | None,
        *,
        read_only: bool,
    ) -> None:
        self.path = local_folder(path)
        self.spark = pipeline
        """Spark as it is, also of a database that is closed; see `pipeline()`."""
        self.settings = Settings.load(given)
        warehouse = Warehouse.open(path, writable=not read_only)
        try:
            self.store = Store(warehouse, clock or WallClock(), self.settings)
        except BaseException:
            warehouse.close()
            raise
        self.closed = False
        self.demands = Demands(self.store)
        self.ingest = Ingest(self.store, self.pipeline, self.demands)
        self.sources = Sources(self.store, self.ingest, self.pipeline)
        self.invoker = Invoker(self.store, self.pipeline)
        self.following = Following(self.store, self.invoker)
        self.backfill = Backfill(self.store, self.ingest, self.pipeline)
        register_files(self.store, self.ingest, self.backfill)
        self.tables = Tables(self.store, self.invoker)
        self.maintenance = Maintenance(self.store, self.ingest, self.demands, self.tables, self.following)
        self.background = Background(self.store, pipeline, self.invoker, self.backfill, self.maintenance, self.demands)
        self.definitions = Definitions(self.store, Defaults(self.invoker))
        self.functions = Functions(self.store)
        self.rights = Rights(self.store)
        self.report = Report(self.store, self.ingest, self.background, self.demands)
        self.asked = Invocations()
        self.on_close: list[Callable[[], None]] = []
        """What is called first when the database is closed."""

    def pipeline(self) -> Pipeline:
        """Spark, for a database that is open."""
        if self.closed:
            raise Closed
        return self.spark

    def snapshot(self) -> Catalog:
        """The newest snapshot, of what other processes wrote too."""
        self.store.refresh()
        return self.store.catalog

    def require_writable(self) -> None:
        """Refuse to change a warehouse that is closed, or open for reading."""
        if self.closed:
            raise Closed
        if not self.store.warehouse.writable:
            raise ReadOnly("The warehouse was opened for reading.", hint="open it without read_only=True")

    def start(self) -> None:
        """Begin what goes on while nobody asks."""
        self.background.start()
        self.ingest.resume()

    def close(self, *, promptly: bool) -> None:
        """Stop everything and let go of the warehouse."""
        self.store.closing.set()
        with ExitStack() as last:
            # Whatever fails on the way, another process can have the warehouse afterwards.
            last.callback(self.store.close)
            last.callback(self.spark.close)
            if promptly:
                self.spark.give_up_start()
            for call in self.on_close:
                call()
            self.sources.stop()
            self.ingest.stop()
            self.background.stop()
            if self.store.warehouse.writable:
                self.maintenance.run()
