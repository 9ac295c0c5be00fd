"""What ends work in another thread leaves nothing behind: neither there, nor for debuggers and profilers."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable

import pytest

from ladle.thread_stop import ThreadStop


class _Stop(BaseException):
    pass


def started(stop: ThreadStop, work: Callable[[], None], ends: list[bool]) -> threading.Thread:
    def run() -> None:
        stop.run(work)
        ends.append(True)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    return thread


def sent_until_over(stop: ThreadStop, thread: threading.Thread) -> None:
    while stop.send(thread):
        thread.join(0.01)
    thread.join(60)
    assert not thread.is_alive()


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
def test_it_ends_work_at_any_moment() -> None:
    """Also just before the work ends by itself, and while it ends."""
    for number in range(200):
        stop, ends, done = ThreadStop(_Stop), list[bool](), threading.Event()
        thread = started(stop, lambda done=done, number=number: done.wait(number % 4 / 2_000) and None, ends)  # type: ignore[misc]
        time.sleep(number % 7 / 5_000)
        sent_until_over(stop, thread)
        assert ends == [True]
        assert not stop.send(thread)


def test_work_that_catches_it_ends_when_it_is_sent_again() -> None:
    caught = list[bool]()

    def stubborn() -> None:
        while len(caught) < 3:
            try:
                while True:
                    pass
            except _Stop:
                caught.append(True)

    stop, ends = ThreadStop(_Stop), list[bool]()
    sent_until_over(stop, started(stop, stubborn, ends))
    assert ends == [True]


PROGRAM = """
import cProfile, faulthandler, sys
import pyarrow as pa
from ladle.evaluate.calls import Calls
from ladle.plan import Function
from ladle.schema import Column
from ladle.sql.limits import _Apart

faulthandler.dump_traceback_later(60, exit=True)
{before}

def entered(n):
    return n + 1

sys.settrace(lambda frame, event, what: None)
entered(1)
sys.settrace(None)
with cProfile.Profile():
    entered(1)
print("went on")
"""
A_LARGE_STATEMENT = "assert _Apart(lambda: 5, 1).result(30.0) == 5"
ONE_OUT_OF_TIME = """
def endless():
    while True:
        pass
try:
    _Apart(endless, 1).result(0.05)
except Exception as error:
    assert "took longer" in str(error)
"""
A_LATE_FUNCTION = """
source = "def endless(x):\\n    while True:\\n        pass"
endless = Function(1, "endless", (Column("x", pa.int64()),), pa.int64(), source)
calls = Calls(0.05)
try:
    calls.run(endless, [pa.array([1])])
except TimeoutError:
    calls.close()
    calls._thread.join(30)
"""


@pytest.mark.parametrize("before", ["", A_LARGE_STATEMENT, ONE_OUT_OF_TIME, A_LATE_FUNCTION])
def test_debuggers_and_profilers_go_on(before: str) -> None:
    """Python 3.11 would not come out of the next function that is entered."""
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(before=before)], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.stdout == "went on\n", ran.stderr
