"""The log against a list: what was appended comes back, whatever happens in between."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.waiting import cpu_seconds

from ladle.archive.log import Log
from ladle.errors import CorruptLog, DiskFull, WarehouseError

_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
_entries = st.dictionaries(st.text(max_size=5), _json, max_size=3)


def _entry(directory: Path, seq: int) -> Path:
    return directory / f"{seq:020d}.json"


def _checkpoint(directory: Path, seq: int) -> Path:
    return directory / f"checkpoint-{seq:020d}.json"


def _fill(directory: Path, entries: int, checkpoints: tuple[int, ...] = (), *, apart: bool = False) -> Log:
    """With `apart` each entry is by another process, and has a file of its own."""
    log = Log.open(directory)
    for seq in range(1, entries + 1):
        log.append(seq, {"n": seq})
        if apart:
            log.close()
        if seq in checkpoints:
            assert log.checkpoint(seq, {"upto": seq})
    return log


class LogMachine(RuleBasedStateMachine):
    """The model is the list of all entries; a checkpoint's state is that list, so it must come back whole."""

    def __init__(self) -> None:
        super().__init__()
        self.place = TemporaryDirectory()
        self.directory = Path(self.place.name)
        self.log = Log.open(self.directory)
        self.model: list[dict[str, Any]] = []
        self.good: list[int] = []

    def teardown(self) -> None:
        self.log.close()
        self.place.cleanup()

    @rule(entry=_entries)
    def append(self, entry: dict[str, Any]) -> None:
        self.log.append(len(self.model) + 1, entry)
        self.model.append(entry)

    @rule(back=st.integers(0, 3))
    def checkpoint(self, back: int) -> None:
        seq = len(self.model) - back
        if seq > max(self.good, default=0):
            assert self.log.checkpoint(seq, {"entries": self.model[:seq]})
            self.good = [*self.good, seq][-2:]

    @rule()
    def reopen(self) -> None:
        self.log.close()
        self.log = Log.open(self.directory)
        self.log.load()

    @rule(entry=_entries, kept=st.floats(0, 1, exclude_max=True), zeros=st.booleans())
    def be_cut_off(self, entry: dict[str, Any], kept: float, zeros: bool) -> None:
        """The process ends, or the power, while it writes an entry after others."""
        self.append({})
        self.append(entry)
        path = max(path for path in self.directory.iterdir() if path.name[0].isdigit())
        content = path.read_bytes()
        whole = content.rindex(b"\n", 0, content.rindex(b"\n", 0, len(content) - 1)) + 1
        cut = whole + int((len(content) - whole) * kept)
        if path == _entry(self.directory, len(self.model)):
            return  # it began a file, which has its name only when it is whole
        path.write_bytes(content[:cut] + (bytes(len(content) - cut) if zeros else b""))
        self.model.pop()
        self.reopen()

    @precondition(lambda self: len(self.good) == 2)
    @rule(data=st.data())
    def break_the_newest_checkpoint(self, data: st.DataObject) -> None:
        path = _checkpoint(self.directory, self.good.pop())
        content = path.read_bytes()
        at = data.draw(st.integers(0, len(content) - 1))
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        self.reopen()

    @invariant()
    def a_reader_sees_everything(self) -> None:
        reader = Log.open(self.directory)
        seq, state, entries = reader.load()
        assert seq == max(self.good, default=0)
        start = state["entries"] if state else []
        assert start + [entry for _, entry in entries] == self.model
        assert [number for number, _ in entries] == list(range(seq + 1, len(self.model) + 1))
        for after in range(len(self.model) + 1):
            tail = reader.tail(after)
            assert tail is None or [entry for _, entry in tail] == self.model[after:]
        # What the newest checkpoint's loader may still ask for is never truncated.
        assert reader.tail(seq) is not None or seq == 0 or seq == len(self.model)


TestLog = LogMachine.TestCase
TestLog.settings = settings(max_examples=25, stateful_step_count=25, deadline=None)


def test_an_empty_log(tmp_path: Path) -> None:
    log = Log.open(tmp_path)
    assert log.load() == (0, None, [])
    assert log.tail(0) == []
    assert log.last == 0


def test_tail_follows_and_says_when_it_can_not(tmp_path: Path) -> None:
    log = _fill(tmp_path, 3)
    reader = Log.open(tmp_path)
    assert reader.tail(1) == [(2, {"n": 2}), (3, {"n": 3})]
    assert reader.tail(3) == []
    assert log.checkpoint(3, {})
    assert reader.tail(0) is not None
    log.append(4, {"n": 4})
    assert log.checkpoint(4, {})
    assert reader.tail(0) is None
    assert reader.tail(2) is None
    assert reader.tail(3) == [(4, {"n": 4})]
    assert reader.tail(4) == []
    assert reader.tail(9) == []


def test_truncation_keeps_what_the_previous_checkpoint_needs(tmp_path: Path) -> None:
    (tmp_path / ".x.1-0badcafe-0.tmp").touch()
    _fill(tmp_path, 10, (3, 6, 9))
    kept = {_entry(tmp_path, first).name for first in (7, 10)}
    assert set(os.listdir(tmp_path)) == kept | {_checkpoint(tmp_path, seq).name for seq in (6, 9)}


@pytest.mark.parametrize("checkpoints", [(), (4,), (2, 4)])
@given(data=st.data())
@settings(max_examples=30, deadline=None)
def test_a_broken_or_missing_entry_is_named(checkpoints: tuple[int, ...], data: st.DataObject) -> None:
    with TemporaryDirectory() as place:
        directory = Path(place)
        _fill(directory, 8, checkpoints, apart=True)
        first = max(checkpoints, default=0) + 1
        victim = data.draw(st.integers(first, 8))
        path = _entry(directory, victim)
        content = path.read_bytes()
        damage = data.draw(st.sampled_from(["flip", "cut", "append", "delete", "swap"]))
        at = data.draw(st.integers(0, len(content) - 1))
        if damage == "delete" and victim == 8:
            return  # a log without its last entry is a shorter log
        match damage:
            case "flip":
                path.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
            case "cut":
                path.write_bytes(content[:at])
            case "append":
                path.write_bytes(content + b"\n")
            case "delete":
                path.unlink()
            case "swap":
                path.write_bytes(_entry(directory, 8 if victim < 8 else 7).read_bytes())
        with pytest.raises(CorruptLog) as caught:
            Log.open(directory).load()
        assert str(path) in str(caught.value)
        assert "backup" in str(caught.value)
        assert ("as it is the last entry" in str(caught.value)) == (victim == 8 and damage != "swap")
        path.write_bytes(content)
        assert Log.open(directory).load()[2][-1] == (8, {"n": 8})


@given(at=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
@settings(max_examples=100, deadline=None)
@example(at=0.9140625, bit=5)
def test_no_bit_of_a_file_of_entries_may_change(at: float, bit: int) -> None:
    with TemporaryDirectory() as place:
        directory = Path(place)
        _fill(directory, 5)
        path = _entry(directory, 1)
        content = path.read_bytes()
        place_of = int(at * len(content))
        path.write_bytes(content[:place_of] + bytes([content[place_of] ^ (1 << bit)]) + content[place_of + 1 :])
        with pytest.raises(CorruptLog, match=r"not what was written|missing") as caught:
            Log.open(directory).load()
        ends = [end for end, byte in enumerate(content) if byte == 10]
        assert ("as it is the last entry" in str(caught.value)) == (place_of > ends[-3])


def test_entries_share_a_file_until_the_next_checkpoint(tmp_path: Path) -> None:
    log = _fill(tmp_path, 5, (3,))
    names = {_entry(tmp_path, 1).name, _checkpoint(tmp_path, 3).name, _entry(tmp_path, 4).name}
    assert set(os.listdir(tmp_path)) == names
    log.close()
    log.append(6, {"n": 6})
    assert _entry(tmp_path, 6).exists()
    assert Log.open(tmp_path).load()[2] == [(n, {"n": n}) for n in (4, 5, 6)]


def test_a_log_of_the_first_format_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It had a file for each entry."""
    with monkeypatch.context() as patch:
        patch.setattr("ladle.archive.log.FORMAT_VERSION", 1)
        _fill(tmp_path, 4, (2,), apart=True)
    log = Log.open(tmp_path)
    assert log.load() == (2, {"upto": 2}, [(3, {"n": 3}), (4, {"n": 4})])
    log.append(5, {"n": 5})
    log.append(6, {"n": 6})
    assert Log.open(tmp_path).tail(3) == [(n, {"n": n}) for n in (4, 5, 6)]


def test_checkpoints_are_due_by_what_they_save(tmp_path: Path) -> None:
    log = _fill(tmp_path, 20)
    assert log.is_due(20, 0.5)
    assert not log.is_due(21, 0.5)
    assert log.checkpoint(20, {"large": "x" * 100_000})
    log.append(21, {"n": 21})
    assert not log.is_due(1, 0.5)
    again = Log.open(tmp_path)
    again.load()
    assert not again.is_due(1, 0.5)
    for seq in range(22, 70):
        log.append(seq, {"n": seq})
    assert log.is_due(1, 0.5)
    assert log.is_due(49, 0.5)
    again.load()
    assert again.is_due(1, 0.5)


def test_a_broken_checkpoint_proves_its_entries(tmp_path: Path) -> None:
    _fill(tmp_path, 6, (3, 6), apart=True)
    _checkpoint(tmp_path, 6).write_bytes(b"")
    assert Log.open(tmp_path).load() == (3, {"upto": 3}, [(n, {"n": n}) for n in (4, 5, 6)])
    _entry(tmp_path, 6).unlink()
    with pytest.raises(CorruptLog, match="missing"):
        Log.open(tmp_path).load()


def test_both_checkpoints_broken(tmp_path: Path) -> None:
    _fill(tmp_path, 6, (3, 6))
    for seq in (3, 6):
        _checkpoint(tmp_path, seq).write_bytes(b"x")
    with pytest.raises(CorruptLog, match=r"checkpoint-0*3\.json") as caught:
        Log.open(tmp_path).load()
    assert "backup" in str(caught.value)


def test_broken_checkpoints_cost_nothing_while_all_entries_are_there(tmp_path: Path) -> None:
    _fill(tmp_path, 6, (3,))
    _checkpoint(tmp_path, 3).write_bytes(b"x")
    assert Log.open(tmp_path).load() == (0, None, [(n, {"n": n}) for n in range(1, 7)])


def test_the_writer_goes_on_after_a_broken_checkpoint(tmp_path: Path) -> None:
    _fill(tmp_path, 6, (3, 6))
    _checkpoint(tmp_path, 6).write_bytes(b"")
    log = Log.open(tmp_path)
    log.load()
    log.append(7, {"n": 7})
    assert log.checkpoint(7, {"upto": 7})
    # The broken one is not counted as the previous: the good one, and all entries after it, stay.
    _checkpoint(tmp_path, 7).write_bytes(b"")
    assert Log.open(tmp_path).load()[2] == [(n, {"n": n}) for n in (4, 5, 6, 7)]


def test_a_newer_format_is_not_corruption(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("ladle.archive.log.FORMAT_VERSION", 4)
        _fill(tmp_path, 1)
    with pytest.raises(WarehouseError, match="newer Ladle") as caught:
        Log.open(tmp_path).load()
    assert not isinstance(caught.value, CorruptLog)


def test_a_full_disk_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = _fill(tmp_path, 3)

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(DiskFull):
            log.append(4, {"n": 4})
        assert not log.checkpoint(3, {"upto": 3})
    assert Log.open(tmp_path).load() == (0, None, [(n, {"n": n}) for n in (1, 2, 3)])
    log.append(4, {"n": 4})
    assert log.checkpoint(4, {"upto": 4})
    assert Log.open(tmp_path).load() == (4, {"upto": 4}, [])


def test_entries_follow_each_other(tmp_path: Path) -> None:
    log = _fill(tmp_path, 2)
    for wrong in (2, 4):
        with pytest.raises(AssertionError):
            log.append(wrong, {})
    with pytest.raises(AssertionError):
        log.checkpoint(3, {})
    with pytest.raises(ValueError, match="JSON"):
        log.append(3, {"x": float("nan")})
    assert Log.open(tmp_path).load()[2] == [(1, {"n": 1}), (2, {"n": 2})]


def test_a_reader_beside_a_writer_never_sees_a_gap(tmp_path: Path) -> None:
    writer = Log.open(tmp_path)
    done = threading.Event()

    def write() -> None:
        try:
            for seq in range(1, 301):
                writer.append(seq, {"n": seq})
                if seq % 7 == 0:
                    writer.checkpoint(seq, {"upto": seq})
        finally:
            done.set()

    thread = threading.Thread(target=write)
    thread.start()
    reader = Log.open(tmp_path)
    at = 0
    while not (done.is_set() and at == 300):
        tail = reader.tail(at)
        if tail is None:
            seq, state, tail = reader.load()
            assert seq >= at
            assert state == ({"upto": seq} if seq else None)
            at = seq
        for number, entry in tail:
            assert number == at + 1
            assert entry == {"n": number}
            at = number
    thread.join()


def test_opening_does_not_grow_with_the_log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = {"files": [["name" * 4, 1, 2, [3, 4]]] * 5_000}
    monkeypatch.setattr(os, "fsync", lambda _: None)  # only the making of the log would be slow
    log = Log.open(tmp_path)
    for seq in range(1, 1_100):
        log.append(seq, {"n": seq})
        if seq % 256 == 0:
            assert log.checkpoint(seq, state)
        assert seq % 100 or len(os.listdir(tmp_path)) <= 2 * 256 + 2
    assert cpu_seconds(lambda: Log.open(tmp_path).load(), 0.5) < 0.5
    checkpoint, loaded, entries = Log.open(tmp_path).load()
    assert (checkpoint, loaded, len(entries)) == (1_024, state, 75)
