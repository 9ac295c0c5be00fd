"""The paper's shapes and ours side by side: the figures with its axes, and a page that says which claims hold here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from ladle.bench._bars import machine, pyplot, shown, table, write_page
from ladle.bench._experiments import SYSTEMS, Arrival, Response

STREAMED = "streaming path"
"""The whole way through Spark to a commit, which the paper doesn't have."""

PAPER_TABLE_2 = {2: (0.3940, 0.0465, 0.0565), 4: (0.4905, 0.0240, 0.0210), 8: (0.8255, 0.0130, 0.0035)}
"""Milliseconds of NoMat, PSoup-P and PSoup-C by the number of factors, two for each interval."""

_STYLE = {
    "NoMat": ("#b3372f", "o"),
    "PSoup-P": ("#3b6ea5", "s"),
    "PSoup-C": ("#6a9a58", "^"),
    "PSoup-P_Shrd": ("#3b6ea5", "s"),
    "PSoup-P_Unshrd": ("#9bbbe0", "s"),
    "PSoup-C_Shrd": ("#6a9a58", "^"),
    "PSoup-C_Unshrd": ("#b5d3a8", "^"),
    STREAMED: ("#777777", "x"),
}


@dataclass(frozen=True)
class Found:
    equality: list[Response]
    interval: list[Response]
    factors: list[Response]
    arrivals: list[Arrival]


@dataclass(frozen=True)
class Claim:
    """What the paper says, and whether it is so here."""

    where: str
    paper: str
    ours: str
    holds: bool


Curve = Mapping[int, float]


def curves(found: Sequence[Response]) -> dict[str, Curve]:
    """Mean milliseconds by system and x."""
    return {system: {each.x: each.mean_ms for each in found if each.system == system} for system in SYSTEMS}


def rates(found: Sequence[Arrival]) -> dict[str, Curve]:
    """Median tuples per second by system and number of queries."""
    return {name: {each.queries: median(each.rates[name]) for each in found} for name in found[0].rates}


def claims(found: Found) -> list[Claim]:
    return [*_claims_of_windows(found), *_claims_of_factors(found), *_claims_of_arrivals(found)]


def _claims_of_windows(found: Found) -> list[Claim]:
    equality, interval = curves(found.equality), curves(found.interval)
    claims = []
    for where, figure in (("figure 7 (a)", equality), ("figure 7 (b)", interval)):
        low, top = min(figure["NoMat"]), max(figure["NoMat"])
        growth = {system: curve[top] / curve[low] for system, curve in figure.items()}
        told = ", ".join(f"{system} {shown(value)} x" for system, value in growth.items())
        claims.append(Claim(where, f"all three grow with the window ({low:,} to {top:,} tuples)", told,
                            all(value > 1.2 for value in growth.values())))  # fmt: skip
        slower = figure["NoMat"][top] / figure["PSoup-P"][top]
        claims.append(
            Claim(where, "NoMat is much slower than both", f"{shown(slower)} x P at {top:,} tuples", slower > 2)
        )
    top = max(equality["NoMat"])
    apart = equality["PSoup-P"][top] / equality["PSoup-C"][top]
    claims.append(Claim("figure 7 (a)", "P is slower than C by two orders of magnitude", f"{shown(apart)} x at "
                        f"{top:,} tuples", 30 <= apart <= 300))  # fmt: skip
    apart = interval["PSoup-P"][top] / interval["PSoup-C"][top]
    claims.append(Claim("figure 7 (b)", "P and C are comparable", f"P / C = {shown(apart)} at {top:,} tuples",
                        1 / 3 <= apart <= 3))  # fmt: skip
    change = interval["PSoup-P"][top] / equality["PSoup-P"][top]
    claims.append(Claim("figure 7", "P takes as long for intervals as for equalities", f"{shown(change)} x at "
                        f"{top:,} tuples", 0.5 <= change <= 2))  # fmt: skip
    return claims


def _claims_of_factors(found: Found) -> list[Claim]:
    figure = curves(found.factors)
    first, last = PAPER_TABLE_2[2], PAPER_TABLE_2[8]
    grown = [figure[system][8] / figure[system][2] for system in SYSTEMS]
    told = [b / a for a, b in zip(first, last, strict=True)]
    nomat, p, c = ((f"{shown(a)} x", f"{shown(b)} x") for a, b in zip(told, grown, strict=True))
    return [
        Claim("table 2", f"NoMat grows with the factors ({nomat[0]} from 2 to 8)", nomat[1], grown[0] > 1.2),
        Claim("table 2", f"P falls with them ({p[0]})", p[1], grown[1] < 0.8),
        Claim("table 2", f"C falls with them ({c[0]})", c[1], grown[2] < 0.8),
    ]


def _claims_of_arrivals(found: Found) -> list[Claim]:
    figure = rates(found.arrivals)
    few, many = min(figure["PSoup-P_Shrd"]), max(figure["PSoup-P_Shrd"])
    speedup = {n: figure["PSoup-P_Shrd"][n] / figure["PSoup-P_Unshrd"][n] for n in (few, many)}
    over_c = figure["PSoup-P_Shrd"][many] / figure["PSoup-C_Shrd"][many]
    of_c = figure["PSoup-C_Shrd"][many] / figure["PSoup-C_Unshrd"][many]
    where = "figure 9"
    return [
        Claim(where, "P_Shrd beats P_Unshrd by an order of magnitude", f"{shown(speedup[many])} x with {many:,}",
              speedup[many] >= 5),
        Claim(where, "by more, the more queries there are", f"{shown(speedup[few])} x with {few:,}, "
              f"{shown(speedup[many])} x with {many:,}", speedup[many] > speedup[few]),
        Claim(where, "P_Shrd beats both C by two orders of magnitude", f"{shown(over_c)} x with {many:,} queries",
              over_c >= 30),
        Claim(where, "for C it hardly matters whether the queries are indexed", f"C_Shrd / C_Unshrd = {shown(of_c)}",
              of_c <= 1.5),
    ]  # fmt: skip


# -- the figures --


def draw(found: Found, path: Path) -> None:
    plt = pyplot()
    drawing, axes = plt.subplots(1, 3, figsize=(15, 4.6))
    for axis, title, figure in (
        (axes[0], "7 (a) equality predicates", curves(found.equality)),
        (axes[1], "7 (b) interval predicates", curves(found.interval)),
    ):
        _plot(axis, figure, scale=1e4)
        axis.set_title(title)
        axis.set_xlabel("window (tuples x 10,000)")
        axis.set_ylabel("response time per query (ms)")
    _plot(axes[2], rates(found.arrivals), scale=1.0)
    axes[2].set_title("9 arrival rate")
    axes[2].set_xlabel("number of SQCs")
    axes[2].set_ylabel("tuples per second")
    drawing.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, metadata={"Date": None})
    plt.close(drawing)


def _plot(axis: Any, figure: Mapping[str, Curve], *, scale: float) -> None:
    for name, curve in figure.items():
        color, marker = _STYLE[name]
        axis.plot([x / scale for x in curve], list(curve.values()), color=color, marker=marker, label=name)
    axis.set_yscale("log")
    axis.legend(fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)


# -- the page --

_PAGE = """# PSoup's experiments on Ladle

Written by `{command}` on {cores} cores ({processor}). The paper's figures are from two Pentium III of 666 MHz: shapes
are compared, not values.{quick}

![figures 7 (a), 7 (b) and 9]({name}.svg)

As in the paper: data uniform in [0, 255]; a constant is a multiple of 32 with probability 0.2, else uniform; the size
of an interval is uniform in [0, 255]; a query has one to four predicates. NoMat, PSoup-P and PSoup-C are the modes
`none`, `partial` and `complete`. Response times are engine time, the mean over all queries of each one's median; all
tuples are in memory. C's answers are kept as they are handed out, and no tuple arrives between invocations.
Shrd is the Query SteM's index, Unshrd evaluates one query at a time with NumPy; C adds bringing all answers up to date
after each epoch of {epoch:,} tuples (the paper: after each tuple). The line "{streamed}" is P_Shrd the whole way
through Spark to a durable commit, which the paper's system in main memory did not have.

## The paper's shape and ours

{claims}

## Table 2: response time against the number of factors

Milliseconds; two factors make an interval, the paper counts intervals. The window is fixed.

{table_2}

## Figure 7: response time against the window

Milliseconds.

{figure_7}

## Figure 9: arrival rate against the number of queries

Tuples per second; the windows hold 1,000 tuples.

{figure_9}
"""


def write_psoup_page(found: Found, path: Path, command: str, *, quick: bool, epoch: int) -> str:
    """Write the page; what the terminal shows of it."""
    said = claims(found)
    here = machine()
    page = _PAGE.format(
        command=command,
        cores=here["cores"],
        processor=here["processor"],
        quick="\n\n**A quick run with small sizes, to see that it works: the figures mean nothing.**" if quick else "",
        name=path.stem,
        epoch=epoch,
        streamed=STREAMED,
        claims=table(
            ("where", "the paper", "here", ""),
            [(each.where, each.paper, each.ours, "as there" if each.holds else "**differs**") for each in said],
        ),
        table_2=_table_2(found),
        figure_7=_figure_7(found),
        figure_9=_figure_9(found),
    )
    write_page(path, page)
    return "".join(
        f"{'as there' if each.holds else 'DIFFERS':<8} {each.where}: {each.paper}; here: {each.ours}\n" for each in said
    )


def _table_2(found: Found) -> str:
    figure = curves(found.factors)
    rows = {(each.system, each.x): each.rows for each in found.factors}
    lines = []
    for factors in figure["NoMat"]:
        theirs = PAPER_TABLE_2.get(factors)
        paper = ["", "", ""] if theirs is None else [f"{value:.4f}" for value in theirs]
        ours = [f"{figure[system][factors]:.4f}" for system in SYSTEMS]
        lines.append([str(factors), *paper, *ours, f"{rows['PSoup-P', factors]:,.0f}"])
    headings = ["factors", *(f"{system}, paper" for system in SYSTEMS), *(f"{system}, here" for system in SYSTEMS)]
    return table([*headings, "rows of an answer"], lines)


def _figure_7(found: Found) -> str:
    equality, interval = curves(found.equality), curves(found.interval)
    lines = [
        [f"{size:,}", *(f"{figure[system][size]:.4f}" for figure in (equality, interval) for system in SYSTEMS)]
        for size in equality["NoMat"]
    ]
    headings = [f"({part}) {system}" for part in "ab" for system in SYSTEMS]
    return table(["window", *headings], lines)


def _figure_9(found: Found) -> str:
    figure = rates(found.arrivals)
    lines = [[f"{queries:,}", *(shown(figure[name][queries]) for name in figure)] for queries in figure["PSoup-P_Shrd"]]
    return table(["queries", *figure], lines)
