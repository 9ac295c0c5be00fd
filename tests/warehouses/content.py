"""What is in the kept warehouse: one of everything that a warehouse can hold.

`python -m tests.warehouses.content FILE.tar.gz` writes it with the version that runs, and beside it, as JSON, the
answers that this version gave. Run it before a change of what is on disk, never after: the file is there to be old.
"""

from __future__ import annotations

import json
import os
import sys
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ladle.clock import ManualClock
from ladle.engine import Database
from ladle.stem.epoch_kernel import EpochTask, Manifest
from ladle.testing.inline import InlinePipeline

QUIET = {"maintenance_seconds": 3_600.0}
BEGIN_US = 1_700_000_000_000_000

DEFINED = """
CREATE STREAM trades (symbol STRING, price DOUBLE, size INT, paid DECIMAL(12, 2), at TIMESTAMP)
  TIMESTAMP BY at RETAIN INTERVAL 7 DAYS;
CREATE STREAM orders (id BIGINT, symbol STRING, shares INT, at TIMESTAMP) TIMESTAMP BY at RETAIN INTERVAL 7 DAYS;
CREATE STREAM notes (body STRING, raw BINARY, flag BOOLEAN);
CREATE STREAM never (n INT);
CREATE TABLE companies (symbol STRING, country STRING, listed DATE);
INSERT INTO companies VALUES ('IBM', 'US', DATE '1915-11-11'), ('KO', 'US', NULL), ('SAP', 'DE', DATE '1988-11-04');
UPDATE companies SET country = 'GB' WHERE symbol = 'SAP';
CREATE FUNCTION is_even(n INT) RETURNS BOOLEAN LANGUAGE PYTHON AS $$ pc.equal(pc.bit_wise_and(n, 1), 0) $$;
CREATE QUERY dear AS SELECT * FROM trades WHERE price > 100 BEGIN NOW - INTERVAL 1 HOUR END NOW;
CREATE QUERY kept WITH (materialize = 'complete') AS
  SELECT symbol, count(*) AS n, sum(size) AS shares, max(price) AS top FROM trades [RANGE 30 MINUTES] GROUP BY symbol;
CREATE QUERY late WITH (materialize = 'none') AS SELECT symbol, at FROM trades [ROWS 5];
CREATE QUERY since AS SELECT avg(paid) AS mean FROM trades
  BEGIN TIMESTAMP '2023-11-14 00:00:00' END NOW;
CREATE QUERY fills AS SELECT o.id, t.price, t.size FROM orders [RANGE 10 MINUTES] o, trades [RANGE 10 MINUTES] t
  WHERE o.symbol = t.symbol AND t.size >= o.shares;
CREATE QUERY over_dear AS SELECT symbol, count(*) AS n FROM dear GROUP BY symbol;
CREATE QUERY even AS SELECT symbol, size FROM trades WHERE is_even(size) AND symbol <> 'KO'
  BEGIN NOW - INTERVAL 2 HOURS END NOW;
CREATE QUERY traded AS SELECT c.country, sum(t.size) AS shares FROM trades [RANGE 1 HOUR] t
  JOIN companies c ON t.symbol = c.symbol GROUP BY c.country;
CREATE QUERY noted AS SELECT body, raw, flag FROM notes WHERE body LIKE '%9' OR flag;
CREATE SOURCE files FOR trades FORMAT csv OPTIONS (path '/data/trades', header true);
CREATE TOKEN ann ROLE reader;
CREATE TOKEN bob ROLE writer;
GRANT SELECT ON QUERY dear TO ann;
"""

ASKED = (
    "SELECT * FROM trades",
    "SELECT * FROM orders",
    "SELECT body, raw, flag FROM notes",
    "SELECT * FROM never",
    "SELECT * FROM companies",
    "SELECT reason, row FROM trades.quarantine",
    *(f"SELECT * FROM {name}" for name in
      ("dear", "kept", "late", "since", "fills", "over_dear", "even", "traded", "noted")),
)  # fmt: skip


def fill(db: Database, clock: ManualClock) -> None:
    """Two halves of the data, the definitions in between: every query has data from before it and after it."""
    statements = [each.strip() for each in DEFINED.split(";\n") if each.strip()]
    streams = [each for each in statements if each.startswith("CREATE STREAM")]
    for statement in streams:
        db.sql(statement)
    _push(db, clock, 0)
    for statement in statements:
        if statement not in streams:
            db.sql(statement)
    _push(db, clock, 40)
    db.sql("INSERT INTO companies VALUES ('GS', 'US', NULL)")
    db.sql("ALTER STREAM trades ADD COLUMN exchange STRING")
    db.maintain()
    db.backfill()
    _push(db, clock, 80)


def pending(db: Database) -> None:
    """A push that is acknowledged and in no epoch yet."""
    db.push("orders", [{"id": 999, "symbol": "IBM", "shares": 1, "at": _at(125)}])


def answers(db: Database) -> dict[str, list[str]]:
    """Rows of everything that can be asked, as sorted texts."""
    return {text: sorted(map(repr, db.sql(text).to_pylist())) for text in ASKED}


def _push(db: Database, clock: ManualClock, first: int) -> None:
    symbols = ("IBM", "KO", "SAP", None)
    for chunk in range(first, first + 40, 10):
        clock.advance(10 * 60_000_000)
        trades: list[dict[str, Any]] = [
            {"symbol": symbols[i % 4], "price": 60.0 + 7 * (i % 13), "size": 10 * i, "paid": f"{i}.25", "at": _at(i)}
            for i in range(chunk, chunk + 10)
        ]
        trades.append({"symbol": "BAD", "price": "cheap", "size": 1, "paid": None, "at": _at(chunk)})
        db.push("trades", trades, wait=True)
        orders = [{"id": i, "symbol": symbols[i % 3], "shares": 9 * i, "at": _at(i)} for i in range(chunk, chunk + 10)]
        db.push("orders", orders, wait=True)
        notes = [{"body": f"note {i}", "raw": bytes([i, 0, 255]), "flag": i % 7 == 0} for i in range(chunk, chunk + 10)]
        db.push("notes", notes, wait=True)


def _at(minute: int) -> str:
    return f"2023-11-14 {20 + minute // 60}:{minute % 60:02}:00"


class _Stopping(InlinePipeline):
    """Ends the process in the midst of an epoch, when told."""

    stop = False

    def run_pushed(self, task: EpochTask, files: Sequence[Path]) -> list[Manifest]:
        if self.stop:
            os._exit(0)
        return super().run_pushed(task, files)


def _write(archive: Path) -> None:
    place = Path(tempfile.mkdtemp()) / "warehouse"
    if os.fork() == 0:
        pipeline, clock = _Stopping(), ManualClock(BEGIN_US)
        db = Database(place, pipeline=pipeline, read_only=False, clock=clock, settings=QUIET)
        fill(db, clock)
        archive.with_suffix("").with_suffix(".json").write_text(
            json.dumps({"clock_us": clock.now_us(), "answers": answers(db)}, separators=(",", ":"))
        )
        pipeline.stop = True
        pending(db)
        while True:
            os.sched_yield()
    os.wait()
    with tarfile.open(archive, "w:gz") as packed:
        packed.add(place, "warehouse", filter=_anonymous)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return None if member.name.endswith(("/lock", "/boot", ".sock")) else member


if __name__ == "__main__":
    _write(Path(sys.argv[1]))
