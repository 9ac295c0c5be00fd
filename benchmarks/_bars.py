"""Bars: what was measured, what stands beside it, and whether the ratio is what was asked for.

A bar that is not met is printed like one that is. Written as a table in the terminal, JSON with all samples, an SVG of
the values against their bars on a log scale, and a page.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from textwrap import wrap
from typing import Any, Literal

import numpy as np

from ladle.errors import LadleError

NOTES = "## Notes"
"""What stands under this heading in a page is written by hand, and kept when the page is written anew."""


class Sense(StrEnum):
    """Which side of the bar is good."""

    AT_LEAST = ">="
    AT_MOST = "<="


@dataclass(frozen=True)
class Quantity:
    """Samples of one alternative, and which percentile of them speaks for it."""

    label: str
    unit: str
    samples: Sequence[float]
    percentile: float = 50.0

    @property
    def value(self) -> float:
        """The median, or a sample that is not below the percentile."""
        method: Literal["linear", "higher"] = "linear" if self.percentile == 50.0 else "higher"
        return float(np.percentile(self.samples, self.percentile, method=method))

    @property
    def text(self) -> str:
        return f"{self.label}: {shown(self.value)} {self.unit}".rstrip()


@dataclass(frozen=True)
class Bar:
    """One row of the table."""

    part: str
    """The part of the benchmark it belongs to, as `--only` takes it."""
    what: str
    measured: Quantity
    alternative: Quantity | None
    value: float
    """What is compared with the bar: a ratio, or the measured quantity itself."""
    unit: str
    sense: Sense
    bar: float
    aim: float | None = None
    beside: str = ""
    """A figure worth telling that has no bar, such as the wall time of an invocation."""

    @property
    def met(self) -> bool:
        return self.margin >= 1.0

    @property
    def margin(self) -> float:
        """How many times better than the bar."""
        return self._better(self.value)

    @property
    def aim_margin(self) -> float | None:
        return None if self.aim is None else self._better(self.aim)

    def _better(self, value: float) -> float:
        if self.sense is Sense.AT_LEAST:
            return value / self.bar
        return self.bar / value if value else float("inf")

    @property
    def verdict(self) -> str:
        return "met" if self.met else "NOT met"

    @property
    def cells(self) -> tuple[str, ...]:
        """What, measured, alternative, ratio, bar, aim, verdict."""
        alternative = "" if self.alternative is None else self.alternative.text
        aim = "" if self.aim is None else f"{shown(self.aim)} {self.unit}"
        ratio = f"{shown(self.value)} {self.unit}"
        return (
            self.what, self.measured.text, alternative, ratio, f"{self.sense} {shown(self.bar)} {self.unit}", aim,
            self.verdict,
        )  # fmt: skip

    def to_json(self) -> dict[str, Any]:
        return {
            "part": self.part,
            "what": self.what,
            "measured": _quantity(self.measured),
            "alternative": None if self.alternative is None else _quantity(self.alternative),
            "value": self.value,
            "unit": self.unit,
            "sense": self.sense.value,
            "bar": self.bar,
            "aim": self.aim,
            "met": self.met,
            "beside": self.beside,
        }


HEADINGS = ("what", "measured", "beside it", "ratio", "bar", "aim", "")


def faster(
    part: str, what: str, measured: Quantity, alternative: Quantity, bar: float, aim: float | None, *, beside: str = ""
) -> Bar:
    """How many times less time than the alternative."""
    ratio = alternative.value / measured.value
    return Bar(part, what, measured, alternative, ratio, "x", Sense.AT_LEAST, bar, aim, beside)


def higher(part: str, what: str, measured: Quantity, alternative: Quantity, bar: float, aim: float | None) -> Bar:
    """How many times the alternative's rate."""
    ratio = measured.value / alternative.value
    return Bar(part, what, measured, alternative, ratio, "x", Sense.AT_LEAST, bar, aim)


def at_most(part: str, what: str, measured: Quantity, alternative: Quantity, bar: float, aim: float | None) -> Bar:
    """How many times the alternative's time, which must not be much."""
    ratio = measured.value / alternative.value
    return Bar(part, what, measured, alternative, ratio, "x", Sense.AT_MOST, bar, aim)


def absolute(
    part: str, what: str, measured: Quantity, sense: Sense, bar: float, aim: float | None, *, beside: str = ""
) -> Bar:
    """A quantity that has no alternative."""
    return Bar(part, what, measured, None, measured.value, measured.unit, sense, bar, aim, beside)


def shown(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def machine() -> dict[str, object]:
    return {
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "processor": _processor(),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "load": os.getloadavg()[0],
    }


def versions(*packages: str) -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in packages}


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")


def print_bars(bars: Sequence[Bar]) -> None:
    for bar in bars:
        what, measured, alternative, ratio, asked, aim, verdict = bar.cells
        beside = f"; {alternative}" if alternative else ""
        extra = f" ({bar.beside})" if bar.beside else ""
        aimed = f", aim {aim}" if aim else ""
        sys.stdout.write(f"{verdict:<7} {what}\n        {measured}{beside}{extra}\n")
        sys.stdout.write(f"        {ratio}, bar {asked}{aimed}\n")
    sys.stdout.write(f"{sum(bar.met for bar in bars)} of {len(bars)} bars met\n")


def make_command(name: str, *, quick: bool) -> str:
    """The command that repeats a benchmark, as its page says it."""
    return f"make bench BENCH_ARGS='{name} --quick'" if quick else f"make bench BENCH_ARGS={name}"


def write_json(path: Path, name: str, parameters: Mapping[str, object], content: Mapping[str, object]) -> None:
    value = {"benchmark": name, "machine": machine(), "parameters": dict(parameters), **content}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value, indent=1) + "\n")


def table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [headings, ["---"] * len(headings), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def bars_table(bars: Sequence[Bar]) -> str:
    def cells(bar: Bar) -> list[str]:
        what, measured, alternative, ratio, asked, aim, verdict = bar.cells
        beside = f" ({bar.beside})" if bar.beside else ""
        return [what, f"{measured}{beside}", alternative, ratio, asked, aim, verdict if bar.met else f"**{verdict}**"]

    return table(HEADINGS, [cells(bar) for bar in bars])


def write_page(path: Path, text: str) -> None:
    """Write a page, keeping the notes that somebody wrote into it."""
    known = path.read_text() if path.exists() else ""
    notes = known.partition(f"\n{NOTES}\n")[2].strip()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text.rstrip() + (f"\n\n{NOTES}\n\n{notes}\n" if notes else "\n"))


def write_bars(
    bars: Sequence[Bar],
    name: str,
    page: str,
    directory: Path | None,
    command: str,
    parameters: Mapping[str, object],
    *,
    quick: bool,
    packages: Sequence[str],
    **words: str,
) -> None:
    """Write samples, a plot and a page of bars; `words` are what the page says beside what every page does."""
    directory = directory or Path("docs/benchmarks")
    name = f"{name}-quick" if quick else name
    used = versions(*packages)
    write_json(
        directory / f"{name}.json", name, parameters, {"versions": used, "bars": [bar.to_json() for bar in bars]}
    )
    draw_bars(bars, directory / f"{name}.svg")
    here = machine()
    note = "\n\n**A quick run with small sizes, to see that it works: the figures mean nothing.**"
    missed = [f"- {bar.what}: {bar.cells[3]}, the bar is {bar.cells[4]}" for bar in bars if not bar.met]
    text = page.format(
        command=command,
        machine=f"{here['cores']} cores ({here['processor']}), {int(str(here['memory_bytes'])) >> 30} GiB",
        versions=", ".join(f"{package} {version}" for package, version in used.items()),
        quick=note if quick else "",
        met=sum(bar.met for bar in bars),
        total=len(bars),
        missed="; not met:\n\n" + "\n".join(missed) if missed else ".",
        table=bars_table(bars),
        name=name,
        **words,
    )
    write_page(directory / f"{name}.md", text)
    sys.stdout.write(f"written: {', '.join(str(directory / name) + ending for ending in ('.json', '.svg', '.md'))}\n")


def pyplot() -> Any:
    try:
        import matplotlib as mpl
    except ImportError:
        raise LadleError("The plot needs matplotlib.", hint="pip install 'ladle[bench]'") from None
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "ladle"
    from matplotlib import pyplot as plt

    return plt


def draw_bars(bars: Sequence[Bar], path: Path) -> None:
    """How many times better than its bar each value is; right of the line it is met."""
    plt = pyplot()
    drawing, axis = plt.subplots(figsize=(12, 1.2 + 0.34 * len(bars)))
    for place, bar in enumerate(reversed(bars)):
        axis.plot([1.0, bar.margin], [place, place], color="#bbbbbb", linewidth=1, zorder=1)
        axis.plot(bar.margin, place, "o", color="#3b6ea5" if bar.met else "#b3372f", zorder=3)
        if bar.aim_margin is not None:
            axis.plot(bar.aim_margin, place, "|", color="#6a9a58", markersize=12, markeredgewidth=2, zorder=2)
    axis.axvline(1.0, color="black", linewidth=1)
    axis.set_xscale("log")
    texts = (f"{bar.what}: {shown(bar.value)} {bar.unit}, bar {bar.sense} {shown(bar.bar)}" for bar in reversed(bars))
    labels = ["\n".join(wrap(text, 80)) for text in texts]
    axis.set_yticks(range(len(bars)), labels, fontsize=7)
    axis.set_xlabel("times better than the bar (green: the aim)")
    axis.spines[["top", "right"]].set_visible(False)
    drawing.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, metadata={"Date": None})
    plt.close(drawing)


def _quantity(quantity: Quantity) -> dict[str, object]:
    return {
        "label": quantity.label,
        "unit": quantity.unit,
        "percentile": quantity.percentile,
        "value": quantity.value,
        "samples": [float(f"{sample:.6g}") for sample in quantity.samples],
    }
