"""Arrow bodies that are not what somebody meant: refused, or taken in whole; never the end of the process."""

from __future__ import annotations

import random
import subprocess
import sys

import numpy as np
import pyarrow as pa
import pytest
from tests.support.damage import bodies, encoded, flipped

from ladle.foreign import NotArrow, TooManyBytes, read_stream
from ladle.protocols import wire


def run_damaged(seed: int, count: int) -> None:
    """In a process of its own: what is looked for would end this one."""
    program = [sys.executable, "-X", "faulthandler", "-m", "tests.support.damage", str(seed), str(count)]
    child = subprocess.run(program, capture_output=True, text=True, timeout=3_000, check=False)
    assert child.returncode == 0, child.stderr[-4_000:]
    assert f"{count} bodies" in child.stdout


def test_damaged_bodies_end_no_process() -> None:
    run_damaged(seed=1, count=300)


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10, 15))
def test_many_damaged_bodies_end_no_process(seed: int) -> None:
    run_damaged(seed, count=2_000)


def test_every_body_is_read_or_refused_for_its_type() -> None:
    refused = []
    for body in bodies():
        try:
            read_stream(pa.py_buffer(body), bytes_max=1 << 20).validate(full=True)
        except NotArrow as error:
            refused.append(str(error))
    assert 0 < len(refused) < len(bodies()) / 2
    assert all("cast it to a plain type" in each for each in refused)
    for body in bodies():
        read_stream(pa.py_buffer(body)).validate(full=True)


def test_offsets_that_point_outside() -> None:
    """The bit that ended a server: in the last offset of a column of texts."""
    body = encoded(pa.table({"s": ["one", "two", "three"]}))
    at = body.rindex(np.array([0, 3, 6, 11], "<i4").tobytes()) + 15
    with pytest.raises(NotArrow):
        read_stream(pa.py_buffer(body[:at] + b"\x40" + body[at + 1 :]), bytes_max=1 << 20)


def test_names_and_zones_that_nobody_can_read() -> None:
    body = encoded(pa.table({"name": pa.array([1], pa.timestamp("us", "UTC"))}))
    with pytest.raises(NotArrow, match="utf-8"):
        read_stream(pa.py_buffer(body.replace(b"name", b"n\xff\xfee")))
    with pytest.raises(NotArrow, match="UTX"):
        read_stream(pa.py_buffer(body.replace(b"UTC", b"UTX")))


def test_views_that_show_more_than_was_sent() -> None:
    """Validating would look at a quarter of a megabyte for each of as many views."""
    text = np.full(1 << 18, ord("a"), dtype=np.uint8)
    views = np.zeros((1 << 18, 4), dtype="<i4")
    views[:, 0], views[:, 1] = len(text), int.from_bytes(b"aaaa", "little")
    column = pa.Array.from_buffers(pa.string_view(), len(views), [None, pa.py_buffer(views), pa.py_buffer(text)])
    body = pa.py_buffer(encoded(pa.table({"s": column}), batch_rows=len(views)))
    with pytest.raises(TooManyBytes):
        read_stream(body, bytes_max=1 << 28)


def test_messages_between_processes_are_looked_through() -> None:
    message = wire.pack({"do": "push"}, [pa.table({"s": ["one", "two", "three"]})])
    assert wire.unpack(message)[1][0].to_pylist() == [{"s": "one"}, {"s": "two"}, {"s": "three"}]
    chance = random.Random(5)
    payload = message.index(b"\xff\xff\xff\xff")
    refused = 0
    for _ in range(200):
        try:
            _, (table,) = wire.unpack(message[:payload] + flipped(message[payload:], chance))
            table.validate(full=True)
        except (ValueError, KeyError):
            refused += 1
    assert refused > 100
