"""The page on testing: its tests pass."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "testing.md").read_text(encoding="utf-8")
(EXAMPLE,) = re.findall(r"```python\n(.*?)```", PAGE, re.S)
NAMES = re.findall(r"^def (test_\w+)", EXAMPLE, re.M)


@pytest.mark.parametrize("name", NAMES)
def test_an_example_passes(name: str, tmp_path: Path) -> None:
    defined: dict[str, Any] = {}
    exec(EXAMPLE, defined)
    defined[name](tmp_path)
