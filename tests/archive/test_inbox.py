"""Pushes against a list: in order, each once, across restarts, failures and threads."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from tests.archive.strategies import tables, trades

from ladle.archive.inbox import Inbox, read_pushed
from ladle.errors import DiskFull, LadleError, WarehouseError

_ROOM = 1 << 30


class InboxMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.place = TemporaryDirectory()
        self.inbox = self.open(0)
        self.waiting: dict[int, int] = {}
        self.numbers: list[int] = []
        self.committed = 0

    def open(self, after: int) -> Inbox:
        return Inbox(Path(self.place.name), after=after, bytes_max=_ROOM)

    def teardown(self) -> None:
        self.place.cleanup()

    @rule(rows=st.integers(0, 3))
    def put(self, rows: int) -> None:
        seq = self.inbox.put(trades(len(self.numbers), rows))
        self.waiting[seq] = rows
        self.numbers.append(seq)

    @rule(count=st.integers(1, 3), discard=st.booleans())
    def commit(self, count: int, discard: bool) -> None:
        taken = [seq for seq in self.waiting if seq > self.committed][:count]
        self.committed = max([self.committed, *taken])
        if discard:
            self.inbox.discard(self.committed)
            self.waiting = {seq: rows for seq, rows in self.waiting.items() if seq > self.committed}

    @rule()
    def restart(self) -> None:
        self.inbox = self.open(self.committed)

    @invariant()
    def pending_is_what_was_not_committed(self) -> None:
        pending = self.inbox.pending(self.committed)
        expected = {seq: rows for seq, rows in self.waiting.items() if seq > self.committed}
        assert {pushed.seq: pushed.rows for pushed in pending} == expected
        assert [pushed.seq for pushed in pending] == sorted(expected)
        assert all(read_pushed(pushed.path).num_rows == pushed.rows for pushed in pending)
        assert self.numbers == sorted(set(self.numbers))


TestInbox = InboxMachine.TestCase
TestInbox.settings = settings(max_examples=25, stateful_step_count=20, deadline=None)


@given(table=tables())
@settings(max_examples=50, deadline=None)
def test_a_push_comes_back_as_it_was(table: pa.Table) -> None:
    with TemporaryDirectory() as place:
        inbox = Inbox(Path(place), after=0, bytes_max=_ROOM)
        seq = inbox.put(table)
        (pushed,) = inbox.pending(0)
        assert (pushed.seq, pushed.rows) == (seq, table.num_rows)
        assert pushed.bytes == pushed.path.stat().st_size == inbox.bytes
        assert read_pushed(pushed.path).equals(table)


def test_numbers_go_on_when_every_file_is_gone(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, after=0, bytes_max=_ROOM)
    assert [inbox.put(trades(0, 1)) for _ in range(3)] == [1, 2, 3]
    inbox.discard(3)
    assert os.listdir(tmp_path) == []
    assert Inbox(tmp_path, after=3, bytes_max=_ROOM).put(trades(0, 1)) == 4


def test_a_full_inbox_refuses_and_recovers(tmp_path: Path) -> None:
    one = Inbox(tmp_path / "one", after=0, bytes_max=_ROOM)
    one.put(trades(0, 100))
    inbox = Inbox(tmp_path / "two", after=0, bytes_max=one.bytes + 10)
    inbox.put(trades(0, 100))
    with pytest.raises(LadleError, match="does not fit") as caught:
        inbox.put(trades(0, 100))
    assert "push_bytes_max" in str(caught.value)
    assert len(inbox.pending(0)) == 1
    inbox.discard(1)
    assert inbox.bytes == 0
    inbox.put(trades(0, 100))


@pytest.mark.parametrize("call", ["write", "fsync", "rename"])
def test_a_push_that_failed_left_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    inbox = Inbox(tmp_path, after=0, bytes_max=_ROOM)
    first = inbox.put(trades(0, 1))

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, call, full)
        with pytest.raises(DiskFull):
            inbox.put(trades(1, 1))
    assert len(os.listdir(tmp_path)) == 1
    second = inbox.put(trades(2, 1))
    for opened in (inbox, Inbox(tmp_path, after=0, bytes_max=_ROOM)):
        assert [pushed.seq for pushed in opened.pending(0)] == [first, second]


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    (tmp_path / ".00000000000000000001-3.arrow.9-0badcafe-0.tmp").write_bytes(b"half")
    (tmp_path / "notes.txt").write_text("not ours")
    inbox = Inbox(tmp_path, after=0, bytes_max=_ROOM)
    assert inbox.pending(0) == []
    assert os.listdir(tmp_path) == ["notes.txt"]


def test_threads_never_get_ahead_of_each_other(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, after=0, bytes_max=_ROOM)
    seen = 0

    def push(first: int) -> None:
        for number in range(10):
            inbox.put(trades(first + number, 1))

    threads = [threading.Thread(target=push, args=(first,)) for first in (0, 100, 200)]
    for thread in threads:
        thread.start()
    # A consumer that takes what is there and goes on after it must meet every number.
    taken: list[int] = []
    while len(taken) < 30:
        for pushed in inbox.pending(seen):
            taken.append(pushed.seq)
            seen = pushed.seq
    for thread in threads:
        thread.join()
    assert taken == list(range(1, 31))
    first_of = [read_pushed(pushed.path).column("price")[0].as_py() * 4 for pushed in inbox.pending(0)]
    for first in (0, 100, 200):
        mine = [number for number in first_of if first <= number < first + 100]
        assert mine == sorted(mine)
        assert len(mine) == 10


def test_a_broken_push_is_named(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path, after=0, bytes_max=_ROOM)
    inbox.put(trades(0, 5))
    (pushed,) = inbox.pending(0)
    pushed.path.write_bytes(pushed.path.read_bytes()[:50])
    with pytest.raises(WarehouseError, match="broken") as caught:
        read_pushed(pushed.path)
    assert pushed.path.name in str(caught.value)
    pushed.path.unlink()
    with pytest.raises(WarehouseError, match="not there"):
        read_pushed(pushed.path)


def test_a_push_that_an_older_version_received_is_read(tmp_path: Path) -> None:
    table = pa.table({"n": [1, 2, 3]})
    path = tmp_path / "00000000000000000001-3.arrow"
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    assert read_pushed(path) == table
