"""Backfill and compaction keep out of each other's way."""

from __future__ import annotations

import threading

from ladle.ingest.claims import Claims


def test_who_comes_later_waits_or_leaves_it() -> None:
    claims = Claims()
    waiting, done = threading.Event(), threading.Event()
    found: list[bool] = []

    def later() -> None:
        waiting.set()
        with claims.claiming(["b", "c"], seconds_max=30) as alone:
            found.append(alone)
        done.set()

    with claims.claiming(["a", "b"]) as alone:
        assert alone
        assert claims.held == {"a", "b"}
        with claims.claiming(["b"]) as other:
            assert not other
        assert claims.held == {"a", "b"}, "who was refused lets go of nothing"
        with claims.claiming(["c"]) as other:
            assert other
        thread = threading.Thread(target=later)
        thread.start()
        assert waiting.wait(30)
        assert not done.is_set()
    assert done.wait(30)
    thread.join()
    assert found == [True]
    assert claims.held == frozenset()
