"""Figures of a benchmark: as JSON, as a table in the terminal, and as an SVG with bars."""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from ladle.errors import LadleError


@dataclass(frozen=True)
class Figure:
    """One measured thing: the alternatives with their samples, and the ratio that is claimed."""

    name: str
    unit: str
    samples: Mapping[str, Sequence[float]]
    ratio: tuple[str, str]
    """Which alternative's median is divided by which."""

    @property
    def medians(self) -> dict[str, float]:
        return {name: median(values) for name, values in self.samples.items()}

    @property
    def ratio_value(self) -> float:
        above, below = self.ratio
        return self.medians[above] / self.medians[below]


def write(figures: Sequence[Figure], name: str, directory: Path, parameters: Mapping[str, object]) -> None:
    """Print the figures, and write `<name>.json` and `<name>.svg`."""
    for figure in figures:
        above, below = figure.ratio
        values = ", ".join(f"{key} {value:.4g} {figure.unit}" for key, value in figure.medians.items())
        sys.stdout.write(f"{figure.name}: {values}; {above} / {below} = {figure.ratio_value:.2f}\n")
    directory.mkdir(parents=True, exist_ok=True)
    machine = {"cores": os.cpu_count(), "python": platform.python_version(), "machine": platform.machine()}
    value = {
        "benchmark": name,
        "machine": machine,
        "parameters": dict(parameters),
        "figures": [{**asdict(f), "medians": f.medians, "ratio_value": f.ratio_value} for f in figures],
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

    columns = len(figures)
    drawing, axes = plt.subplots(1, columns, figsize=(3.4 * columns, 3.2), squeeze=False)
    for axis, figure in zip(axes[0], figures, strict=True):
        medians = figure.medians
        bars = axis.bar(list(medians), list(medians.values()), color=["#3b6ea5", "#c8843a", "#6a9a58"][: len(medians)])
        axis.bar_label(bars, fmt="%.3g", padding=2)
        for position, values in enumerate(figure.samples.values()):
            axis.plot([position] * len(values), values, "k.", markersize=3, alpha=0.5)
        above, below = figure.ratio
        axis.set_title(f"{figure.name}\n{above} / {below} = {figure.ratio_value:.2f}", fontsize=9)
        axis.set_ylabel(figure.unit)
        axis.margins(y=0.15)
        axis.spines[["top", "right"]].set_visible(False)
    drawing.tight_layout()
    drawing.savefig(path, metadata={"Date": None})
    plt.close(drawing)
