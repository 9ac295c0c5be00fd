"""The streams and queries of the benchmarks, and what DuckDB counts for them.

W1: `r(ts, a, b, c, d)`, integers uniform in [0, 255]; a query has, per attribute with probability 0.6, an interval
`lo < x AND x <= lo + w`. W1s is its selective sibling: all four attributes, w in [60, 140]. All seeds are fixed: two
runs see the same tuples and the same queries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from ladle.errors import LadleError

COLUMNS = "abcd"
SCHEMA = "ts TIMESTAMP, a INT, b INT, c INT, d INT"
START_US = 1_700_000_000_000_000

_LAST = 255


@dataclass(frozen=True)
class Interval:
    """`low < column AND column <= high`."""

    column: str
    low: int
    high: int

    @property
    def sql(self) -> str:
        return f"{self.low} < {self.column} AND {self.column} <= {self.high}"


@dataclass(frozen=True)
class Selection:
    """A query's WHERE clause; without intervals every tuple satisfies it."""

    intervals: tuple[Interval, ...]

    @property
    def condition(self) -> str:
        return " AND ".join(interval.sql for interval in self.intervals) or "TRUE"

    def sql(self, source: str, *, columns: str = "*") -> str:
        """The query over a stream, which may have a window behind its name."""
        where = f" WHERE {self.condition}" if self.intervals else ""
        return f"SELECT {columns} FROM {source}{where}"


def w1(count: int, *, seed: int = 11) -> list[Selection]:
    rng = np.random.default_rng(seed)
    return [
        Selection(tuple(_interval(rng, column, 0, _LAST) for column in COLUMNS if rng.random() < 0.6))
        for _ in range(count)
    ]


def w1s(count: int, *, seed: int = 12) -> list[Selection]:
    rng = np.random.default_rng(seed)
    return [Selection(tuple(_interval(rng, column, 60, 140) for column in COLUMNS)) for _ in range(count)]


def _interval(rng: np.random.Generator, column: str, width_min: int, width_max: int) -> Interval:
    low = int(rng.integers(0, _LAST + 1))
    return Interval(column, low, low + int(rng.integers(width_min, width_max + 1)))


def window(tuples: int) -> str:
    """The last so many tuples of a stream with one tuple a microsecond."""
    return f"[RANGE {tuples} MICROSECONDS]"


def named(
    selections: Iterable[Selection], source: str, *, prefix: str = "q", columns: str = "*", first: int = 0
) -> dict[str, str]:
    """Queries by name, as `register_many` takes them."""
    texts = (selection.sql(source, columns=columns) for selection in selections)
    return {f"{prefix}{number}": text for number, text in enumerate(texts, first)}


def tuples(rows: int, number: int, *, span_us: int | None = None, seed: int = 1) -> pa.Table:
    """The tuples of one file: one a microsecond, or so many that a file spans `span_us` of stream time."""
    rng = np.random.default_rng((seed, number))
    span = rows if span_us is None else span_us
    times = START_US + number * span + np.arange(rows, dtype=np.int64) * span // rows
    columns = {name: rng.integers(0, _LAST + 1, rows, dtype=np.int32) for name in COLUMNS}
    return pa.table({"ts": pa.array(times, pa.timestamp("us", "UTC")), **columns})


def write_files(directory: Path, files: int, rows: int, *, span_us: int | None = None) -> list[Path]:
    """Files for a source that takes one per epoch, in their order."""
    directory.mkdir(parents=True)
    paths = [directory / f"{number:05d}.parquet" for number in range(files)]
    for number, path in enumerate(paths):
        pq.write_table(tuples(rows, number, span_us=span_us), path)
    return paths


def source(spark: Any, inputs: Path) -> Any:
    """A stream of files, one per micro-batch."""
    return spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).parquet(str(inputs))


def counts_by_duckdb(files: Sequence[Path], selections: Sequence[Selection]) -> list[int]:
    """How many tuples of the files satisfy each query."""
    import duckdb

    with duckdb.connect() as other:
        listed = ", ".join(f"'{path}'" for path in files)
        small = ", ".join(f"{name}::UTINYINT AS {name}" for name in COLUMNS)
        # In order, so that DuckDB skips what an interval on the first column excludes: half the time or less.
        other.execute(f"CREATE TABLE t AS SELECT {small} FROM read_parquet([{listed}]) ORDER BY {COLUMNS[0]}")
        counts: list[int] = []
        for selection in selections:
            found = other.execute(f"SELECT count(*) FROM t WHERE {_small(selection)}").fetchone()
            assert found is not None
            counts.append(found[0])
        return counts


def _small(selection: Selection) -> str:
    """With constants that fit the column: DuckDB would widen the column otherwise."""
    return Selection(tuple(Interval(i.column, i.low, min(i.high, _LAST)) for i in selection.intervals)).condition


def chunks(values: Sequence[Selection], size: int) -> Iterator[Sequence[Selection]]:
    for start in range(0, len(values), size):
        yield values[start : start + size]


def check_counts(what: str, found: Mapping[int, int] | Sequence[int], expected: Sequence[int]) -> None:
    """A rate is worth nothing if a tuple went unprobed."""
    wrong = [number for number, count in enumerate(expected) if found[number] != count]
    if wrong:
        first = wrong[0]
        raise LadleError(
            f"{what}: {len(wrong):,} of {len(expected):,} queries count other tuples than DuckDB; query {first} counts "
            f"{found[first]:,} instead of {expected[first]:,}."
        )


def arrays_of(table: pa.Table) -> dict[str, npt.NDArray[np.int32]]:
    return {name: table.column(name).to_numpy() for name in COLUMNS}


def masks_one_by_one(
    columns: Mapping[str, npt.NDArray[np.int32]], selections: Iterable[Selection]
) -> Iterator[npt.NDArray[np.bool_]]:
    """Predicate indexes off (PSoup's Unshrd): each query evaluated by itself, vectorised."""
    rows = len(next(iter(columns.values())))
    for selection in selections:
        mask: npt.NDArray[np.bool_] | None = None
        for interval in selection.intervals:
            column = columns[interval.column]
            inside = (column > interval.low) & (column <= interval.high)
            mask = inside if mask is None else np.logical_and(mask, inside, out=mask)
        yield np.ones(rows, dtype=np.bool_) if mask is None else mask
