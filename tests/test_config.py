"""Settings: from the environment, from `connect`, and refused when they make no sense."""

from __future__ import annotations

from typing import Any

import pytest

from ladle.config import Settings
from ladle.errors import LadleError


def test_overrides_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LADLE_SEGMENT_ROWS_MAX", "100")
    monkeypatch.setenv("LADLE_GRACE_SECONDS", "0.5")
    settings = Settings.load({"segment_rows_max": 7})
    assert settings.segment_rows_max == 7
    assert settings.grace_seconds == 0.5


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("segment_rows_max", 0, "can't be 0"),
        ("segment_rows_max", -1, "can't be -1"),
        ("invoke_seconds_max", float("nan"), "can't be nan"),
        ("cache_bytes_max", "big", "can't be 'big'"),
        ("segments_max", 5, "There is no setting 'segments_max'. Settings: "),
    ],
)
def test_nonsense_is_refused(name: str, value: Any, message: str) -> None:
    with pytest.raises(LadleError, match=message):
        Settings.load({name: value})


def test_text_that_is_no_number_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LADLE_CACHE_BYTES_MAX", "big")
    with pytest.raises(LadleError, match="LADLE_CACHE_BYTES_MAX='big' is not a int"):
        Settings.load()
