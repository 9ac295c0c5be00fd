"""Ctrl-C while another process computes an answer: the next answer is the next question's."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path

import pytest
from tests.interrupts import heeding_interrupts

from ladle.answer import Answer
from ladle.client import RemoteDatabase, SocketTransport
from ladle.connection import serve
from ladle.engine.session import Session
from ladle.testing import connect_inline


def test_an_interrupted_answer_is_not_taken_for_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect_inline(tmp_path / "warehouse") as db:
        serve(db)
        db.sql("CREATE STREAM s (n INT)")
        db.register("SELECT n FROM s", name="slow")
        go_on = threading.Event()
        invoke = Session.invoke

        def invoke_slowly(session: Session, name: str, **how: object) -> Answer:
            os.kill(os.getpid(), signal.SIGINT)
            go_on.wait(30)
            return invoke(session, name)

        monkeypatch.setattr(Session, "invoke", invoke_slowly)
        with RemoteDatabase(SocketTransport(db.path)) as remote, heeding_interrupts():
            with pytest.raises(KeyboardInterrupt):
                remote.invoke("slow")
            go_on.set()
            assert [stream.name for stream in remote.streams()] == ["s"]
