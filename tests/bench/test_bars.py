"""What a bar says, and what of a page is kept when it is written anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmarks._bars import NOTES, Bar, Quantity, Sense, absolute, at_most, bars_table, faster, higher, write_page


def ms(*samples: float, percentile: float = 50.0) -> Quantity:
    return Quantity("x", "ms", samples, percentile)


@pytest.mark.parametrize(
    ("bar", "value", "met"),
    [
        (faster("p", "w", ms(2), ms(20), 5, 20), 10, True),
        (faster("p", "w", ms(2), ms(4), 5, 20), 2, False),
        (higher("p", "w", ms(30), ms(60), 0.4, 0.7), 0.5, True),
        (higher("p", "w", ms(20), ms(60), 0.4, 0.7), 1 / 3, False),
        (at_most("p", "w", ms(3), ms(2), 1.5, 1), 1.5, True),
        (at_most("p", "w", ms(4), ms(2), 1.5, 1), 2, False),
        (absolute("p", "w", ms(4), Sense.AT_MOST, 5, 1), 4, True),
        (absolute("p", "w", ms(4), Sense.AT_LEAST, 5, 10), 4, False),
    ],
)
def test_a_bar_is_met_on_its_side(bar: Bar, value: float, met: bool) -> None:
    assert bar.value == pytest.approx(value)
    assert bar.met is met
    assert (bar.margin >= 1) is met
    assert ("**NOT met**" in bars_table([bar])) is not met


def test_a_high_percentile_is_a_sample_and_the_median_is_in_the_middle() -> None:
    assert ms(1, 2, 3, 100).value == 2.5
    assert ms(1, 2, 3, 100, percentile=99).value == 100


def test_notes_survive_a_page_that_is_written_anew(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    write_page(page, "# First\n\nfigures\n")
    assert page.read_text() == "# First\n\nfigures\n"
    page.write_text(f"{page.read_text()}\n{NOTES}\n\nIt differs.\n\nBecause.\n")
    write_page(page, "# Second")
    assert page.read_text() == f"# Second\n\n{NOTES}\n\nIt differs.\n\nBecause.\n"
