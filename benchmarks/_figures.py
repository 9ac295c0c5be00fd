"""Figures of a benchmark: as JSON, as a table in the terminal, and as an SVG with bars."""

from __future__ import annotations

import json
import math
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from statistics import median
from textwrap import wrap

from ladle.errors import LadleError

_COLUMNS_MAX = 5
"""Figures beside each other in a plot."""


class Comparison(StrEnum):
    """What is claimed of two alternatives: a ratio of medians, or how much later one is, also at worst."""

    RATIO = "ratio"
    DIFFERENCE = "difference"


@dataclass(frozen=True)
class Figure:
    """One measured thing: the alternatives with their samples, and the comparison that is claimed."""

    name: str
    unit: str
    samples: Mapping[str, Sequence[float]]
    ratio: tuple[str, str]
    """Which alternative's median is divided by which, or which is subtracted."""
    comparison: Comparison = Comparison.RATIO

    @property
    def medians(self) -> dict[str, float]:
        return {name: median(values) for name, values in self.samples.items()}

    @property
    def ratio_value(self) -> float:
        above, below = self.ratio
        return self.medians[above] / self.medians[below]

    @property
    def tails(self) -> dict[str, dict[str, float]]:
        """The median, the 99th percentile (the sample at or above 99 in 100) and the maximum of each alternative."""
        return {name: {"p50": median(v), "p99": _p99(v), "max": max(v)} for name, v in self.samples.items()}

    @property
    def differences(self) -> dict[str, float]:
        """The same of the first alternative less the second."""
        above, below = (self.tails[name] for name in self.ratio)
        return {name: above[name] - below[name] for name in above}

    @property
    def claim(self) -> str:
        above, below = self.ratio
        match self.comparison:
            case Comparison.RATIO:
                return f"{above} / {below} = {self.ratio_value:.2f}"
            case Comparison.DIFFERENCE:
                values = ", ".join(f"{value:+.3g} {self.unit} ({name})" for name, value in self.differences.items())
                return f"{above} - {below}: {values}"

    @property
    def line(self) -> str:
        """For the terminal."""
        values = ", ".join(f"{name} {self._shown(name)}" for name in self.samples)
        return f"{self.name}: {values}; {self.claim}"

    def _shown(self, name: str) -> str:
        tails = self.tails[name]
        if self.comparison is Comparison.RATIO:
            return f"{tails['p50']:.4g} {self.unit}"
        return " ".join(f"{key} {value:.3g} {self.unit}" for key, value in tails.items())


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _p99(values: Sequence[float]) -> float:
    ordered = sorted(values)
    return ordered[max(math.ceil(len(ordered) * 0.99) - 1, 0)]


def write(figures: Sequence[Figure], name: str, directory: Path, parameters: Mapping[str, object]) -> None:
    """Print the figures, and write `<name>.json` and `<name>.svg`."""
    for figure in figures:
        sys.stdout.write(f"{figure.line}\n")
    directory.mkdir(parents=True, exist_ok=True)
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "machine": platform.machine()}
    value = {
        "benchmark": name,
        "machine": machine,
        "parameters": dict(parameters),
        "figures": [
            {
                **asdict(figure),
                "medians": figure.medians,
                "tails": figure.tails,
                "ratio_value": figure.ratio_value,
                "differences": figure.differences,
            }
            for figure in figures
        ],
    }
    (directory / f"{name}.json").write_text(json.dumps(value, indent=1) + "\n")
    _draw(figures, directory / f"{name}.svg")
    sys.stdout.write(f"written: {directory / name}.json, {directory / name}.svg\n")


def _draw(figures: Sequence[Figure], path: Path) -> None:
    try:
        import matplotlib as mpl
    except ImportError:
        raise LadleError("The plot needs matplotlib.", hint="pip install 'ladle[bench]'") from None
    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "ladle"
    from matplotlib import pyplot as plt

    columns = min(len(figures), _COLUMNS_MAX)
    rows = -(-len(figures) // columns)
    drawing, axes = plt.subplots(rows, columns, figsize=(3.4 * columns, 3.2 * rows), squeeze=False)
    for axis in axes.flat[len(figures) :]:
        axis.set_visible(False)
    for axis, figure in zip(axes.flat, figures, strict=False):
        medians = figure.medians
        bars = axis.bar(list(medians), list(medians.values()), color=["#3b6ea5", "#c8843a", "#6a9a58"][: len(medians)])
        axis.bar_label(bars, fmt=_short, label_type="center", color="white")
        for position, values in enumerate(figure.samples.values()):
            axis.plot([position] * len(values), values, "k.", markersize=3, alpha=0.5)
        axis.set_title("\n".join([*wrap(figure.name, 44), *wrap(figure.claim, 44)]), fontsize=8)
        axis.set_ylabel(figure.unit)
        axis.margins(y=0.15)
        axis.spines[["top", "right"]].set_visible(False)
    drawing.tight_layout()
    drawing.savefig(path, metadata={"Date": None})
    plt.close(drawing)
