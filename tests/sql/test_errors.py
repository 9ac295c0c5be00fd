"""What is refused: the kind of error, where, and what the message tells. Each block of `fixtures/errors.txt` is a
statement, then `Kind line:column || words of the message || words of the hint`."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.sql.names import Catalog

from ladle import errors
from ladle.sql import parse_one

_TEXT = (Path(__file__).parent / "fixtures" / "errors.txt").read_text(encoding="utf-8")
_BLOCKS = [block.strip() for block in _TEXT.split("\n\n") if block.strip() and not block.startswith("#")]


@pytest.mark.parametrize("block", _BLOCKS, ids=[block.splitlines()[0][:60] for block in _BLOCKS])
def test_refused(block: str) -> None:
    text, _, expected = block.rpartition("\n")
    head, message, *hint = [part.strip() for part in expected.split("||")]
    kind, _, place = head.partition(" ")
    with pytest.raises(errors.LadleError) as caught:
        parse_one(text, Catalog())
    error = caught.value
    assert type(error).__name__ == kind
    position = error.position
    assert (f"{position.line}:{position.column}" if position else "-") == place
    assert message in error.message
    assert "\x1b" not in str(error)
    if hint:
        assert hint[0] in (error.hint or "")


def test_there_are_fixtures() -> None:
    assert len(_BLOCKS) > 40
