"""Bytes that are not what somebody meant: bits that flip, ends that are missing, parts of something else.

`python -m tests.support.damage SEED COUNT` sends damaged Arrow bodies the way that a server takes them, all of Arrow's
types among them, and has what is accepted taken in. It is a program of its own because what it looks for would end a
process.
"""

from __future__ import annotations

import random
import struct
import sys
import tempfile
from collections.abc import Iterator, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa

from ladle.errors import LadleError
from ladle.testing.inline import connect_inline

STREAM = (
    "CREATE STREAM hostile (n BIGINT, x DOUBLE, flag BOOLEAN, s STRING, raw BINARY, d DECIMAL(20, 2), day DATE, "
    "tags ARRAY<STRING>, place STRUCT<a: BIGINT, b: STRING>, names MAP<STRING, BIGINT>, at TIMESTAMP) TIMESTAMP BY at"
)
_ROWS = 40
_BATCH_ROWS = 17
_BYTES_MAX = 1 << 20
_FILLINGS = (b"\xff" * 8, bytes(8), b"\x7f" * 8, b"\x80" * 4, struct.pack("<q", 1 << 62), struct.pack("<q", -1))


def flipped(data: bytes, chance: random.Random, bits: int = 1) -> bytes:
    """The same with some bits flipped."""
    damaged = bytearray(data)
    for bit in chance.sample(range(8 * len(damaged)), bits):
        damaged[bit // 8] ^= 1 << bit % 8
    return bytes(damaged)


def mangled(data: bytes, chance: random.Random, others: Sequence[bytes]) -> bytes:
    """The same with bits flipped, cut off, with a number changed, or with the end of another."""
    at = chance.randrange(len(data))
    match chance.choices(("flip", "cut", "fill", "number", "splice"), (6, 1, 1, 1, 1))[0]:
        case "flip":
            return flipped(data, chance, chance.choice((1, 1, 1, 2, 4, 8)))
        case "cut":
            return data[:at]
        case "fill":
            filling = chance.choice(_FILLINGS)
            return data[:at] + filling + data[at + len(filling) :]
        case "number":
            at &= ~3
            number = chance.choice((0, -1, (1 << 31) - 1, 1 << 20, -(1 << 31), chance.randrange(-200, 200)))
            return data[:at] + struct.pack("<i", number) + data[at + 4 :]
        case _:
            other = chance.choice(others)
            return data[:at] + other[chance.randrange(len(other)) :]


def bodies() -> list[bytes]:
    """Arrow streams of every type: one of each column, compressed and not, one of all, and some put together."""
    chance = random.Random(1)
    columns = list(_columns(chance))
    found = []
    times = pa.array([1_700_000_000_000_000 + n for n in range(_ROWS)], pa.timestamp("us", "UTC"))
    for name, column in columns:
        for compression in (None, "lz4", "zstd"):
            found.append(encoded(pa.table({name: column, "at": times}), compression=compression))
    whole = pa.table({**dict(columns), "at": times}).replace_schema_metadata({"a": "b"})
    found += [encoded(whole, compression=compression) for compression in (None, "lz4", "zstd")]
    found.append(_with_deltas(times))
    return [*found, found[0] + found[-1], found[4] + found[4]]


def encoded(table: pa.Table, *, batch_rows: int = _BATCH_ROWS, **options: Any) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(**options)) as writer:
        writer.write_table(table, max_chunksize=batch_rows)
    data: bytes = sink.getvalue().to_pybytes()
    return data


def _with_deltas(times: pa.Array) -> bytes:
    """A dictionary that grows while its stream is read."""
    known = ["a", "b", "c", "d"]
    kind = pa.dictionary(pa.int8(), pa.string())
    schema = pa.schema([("s", kind), ("at", times.type)])
    parts = [
        pa.table(
            [pa.DictionaryArray.from_arrays(pa.array([0, count - 1], pa.int8()), pa.array(known[:count])), times[:2]],
            schema=schema,
        )
        for count in (2, 3, 4)
    ]
    return encoded(pa.concat_tables(parts), emit_dictionary_deltas=True)


def _columns(chance: random.Random) -> Iterator[tuple[str, pa.Array]]:
    """Columns under the names that the stream has for what they might become."""

    def some(make: Any) -> list[Any]:
        return [None if chance.random() < 0.2 else make() for _ in range(_ROWS)]

    def text() -> str:
        return "".join(chance.choice("abcdé𝄞 ") for _ in range(chance.randrange(30)))

    def numbers() -> list[int]:
        return [chance.randrange(9) for _ in range(chance.randrange(5))]

    texts = some(text)
    count = chance.randrange
    for type_ in (pa.int8(), pa.uint16(), pa.int64(), pa.duration("us"), pa.time64("us")):
        yield "n", pa.array(some(lambda: count(100)), type_)
    for type_ in (pa.float32(), pa.float64()):
        yield "x", pa.array(some(chance.random), type_)
    yield "flag", pa.array(some(lambda: chance.random() < 0.5))
    for type_ in (pa.string(), pa.large_string(), pa.string_view()):
        yield "s", pa.array(texts, type_)
        yield "s", pa.DictionaryArray.from_arrays(pa.array(some(lambda: count(40)), pa.int8()), pa.array(texts, type_))
    yield "s", pa.RunEndEncodedArray.from_arrays(pa.array([10, _ROWS], pa.int32()), pa.array(["a", "b"]))
    yield "s", pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes(16)] * _ROWS, pa.binary(16)))
    yield "s", pa.nulls(_ROWS)
    kinds, halves = pa.array([0, 1] * (_ROWS // 2), pa.int8()), pa.array([n // 2 for n in range(_ROWS)], pa.int32())
    yield "s", pa.UnionArray.from_dense(kinds, halves, [pa.array(range(_ROWS)), pa.array(texts)])
    yield "s", pa.UnionArray.from_sparse(kinds, [pa.array(range(_ROWS)), pa.array(texts)])
    for type_ in (pa.binary(), pa.large_binary(), pa.binary_view()):
        yield "raw", pa.array(some(lambda: text().encode()), type_)
    yield "raw", pa.array(some(lambda: b"12345"), pa.binary(5))
    for type_ in (pa.decimal128(20, 2), pa.decimal256(50, 2)):
        yield "d", pa.array(some(lambda: Decimal(count(10**9))), type_)
    for type_ in (pa.date32(), pa.date64(), pa.timestamp("ms"), pa.timestamp("us", "Europe/Berlin")):
        yield (
            "day",
            pa.array(some(lambda: 86_400_000 * count(9_999)), type_)
            if type_ != pa.date32()
            else pa.array(some(lambda: count(9_999)), type_),
        )
    yield "day", pa.array([(1, 2, 3)] * _ROWS, pa.month_day_nano_interval())
    for inner in (pa.string(), pa.string_view(), pa.dictionary(pa.int8(), pa.string())):
        yield "tags", pa.array(some(lambda: [text(), text()]), pa.list_(inner))
    for listing in (pa.large_list(pa.int64()), pa.list_view(pa.int64())):
        yield "tags", pa.array(some(numbers), listing)
    yield "tags", pa.array(some(lambda: [1, 2]), pa.list_(pa.int64(), 2))
    yield "tags", pa.array(some(lambda: [{"a": [text()], "m": chance.random()}]))
    yield "place", pa.array(some(lambda: {"a": 1, "b": text()}))
    yield "names", pa.array(some(lambda: [("k", 1)]), pa.map_(pa.string(), pa.int64()))


def main(seed: int, count: int) -> None:
    from ladle.protocols.http.receiving import received

    whole = bodies()
    accepted = 0
    with tempfile.TemporaryDirectory() as place, connect_inline(place) as db:
        db.sql(STREAM)
        schema = next(stream.schema for stream in db.streams())
        for number in range(count):
            chance = random.Random(f"{seed}/{number}")
            body = mangled(chance.choice(whole), chance, whole)
            try:
                rows = received(body, "application/vnd.apache.arrow.stream", schema, _BYTES_MAX)
                db.push("hostile", rows, wait=True)
                accepted += len(rows)
            except LadleError:
                continue
        taken, refused = (len(db.sql(f"SELECT * FROM {name}").table) for name in ("hostile", "hostile.quarantine"))
        db.sql("SELECT * FROM hostile").table.validate(full=True)
        assert accepted == taken + refused, (accepted, taken, refused)
    sys.stdout.write(f"{count} bodies, {accepted} rows accepted, {refused} of them in the quarantine\n")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
