"""Waiting for a thread of one's own: what it returns and raises, and Ctrl-C meanwhile."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest
from tests.interrupts import heeding_interrupts

from ladle.interrupt import in_main_thread, run_apart


def test_it_returns_and_raises_as_a_call_does() -> None:
    assert run_apart(in_main_thread, lambda: None) is False

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_apart(fail, lambda: None)


def test_an_interrupt_cancels_the_work_and_waits_for_its_end() -> None:
    cancelled, ended = threading.Event(), threading.Event()

    def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        cancelled.wait(30)
        ended.set()

    with heeding_interrupts(), pytest.raises(KeyboardInterrupt):
        run_apart(work, cancelled.set)
    assert ended.is_set()


def test_a_second_interrupt_does_not_stop_the_cancelling() -> None:
    cancelled = threading.Event()

    def work() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        cancelled.wait(30)

    def cancel() -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.2)
        cancelled.set()

    with heeding_interrupts(), pytest.raises(KeyboardInterrupt):
        run_apart(work, cancel)
    assert cancelled.wait(10)
