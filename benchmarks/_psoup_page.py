"""The paper's shapes and ours side by side: the figures with its axes, and a page that says which claims hold here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log
from pathlib import Path
from statistics import fmean, median
from typing import Any

from benchmarks._bars import Bar, bars_table, machine, pyplot, shown, table, write_page
from benchmarks._experiments import SYSTEMS, Arrival, Response
from benchmarks._join_experiments import BAR_WINDOW, DUCKDB, PAPER_576, TUPLE_BY_TUPLE, WORKLOADS, Probed

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
    DUCKDB: ("#777777", "x"),
    TUPLE_BY_TUPLE: ("#e0a99b", "o"),
    **{
        f"{workload}_{way}": (color, marker)
        for workload, *colors in (
            ("Eq/Ineq", "#3b6ea5", "#9bbbe0"),
            ("Ineq/Eq", "#6a9a58", "#b5d3a8"),
            ("Ineq/Ineq", "#b3372f", "#e0a99b"),
        )
        for way, color, marker in zip(("Composite", "Separate"), colors, "so", strict=True)
    },
}


@dataclass(frozen=True)
class Found:
    equality: list[Response]
    interval: list[Response]
    factors: list[Response]
    arrivals: list[Arrival]
    joins: list[Response]
    probes: list[Probed]


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
    systems = dict.fromkeys(each.system for each in found)
    return {system: {each.x: each.mean_ms for each in found if each.system == system} for system in systems}


def rates(found: Sequence[Arrival]) -> dict[str, Curve]:
    """Median tuples per second by system and number of queries."""
    return {name: {each.queries: median(each.rates[name]) for each in found} for name in found[0].rates}


def probe_curves(found: Sequence[Probed]) -> dict[str, Curve]:
    """Mean milliseconds by workload and way, and number of hybrid tuples."""
    figure: dict[str, dict[int, float]] = {}
    for each in found:
        for way, ms in (("Composite", each.composite_ms), ("Separate", each.separate_ms)):
            figure.setdefault(f"{each.workload}_{way}", {})[each.hybrids] = fmean(ms)
    return dict(figure)


def claims(found: Found) -> list[Claim]:
    return [
        *_claims_of_windows(found),
        *_claims_of_joins(found),
        *_claims_of_factors(found),
        *_claims_of_arrivals(found),
        *_claims_of_probes(found),
    ]


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


def _claims_of_joins(found: Found) -> list[Claim]:
    figure = curves(found.joins)
    rows = {each.x: each.rows for each in found.joins if each.system == "PSoup-P"}
    low, at, top = min(rows), BAR_WINDOW, max(rows)
    nomat, p, c = (figure[system] for system in SYSTEMS)
    where, here = "figure 8", f"at {at} tuples"
    steepness = log(rows[top] / rows[low]) / log(top / low)
    grown = nomat[top] / nomat[low]
    theirs = PAPER_576["PSoup-P"] / PAPER_576["PSoup-C"]
    return [
        Claim(where, "NoMat is two orders of magnitude worse than P", f"{shown(nomat[at] / p[at])} x {here}",
              30 <= nomat[at] / p[at] <= 300),
        Claim(where, "and than C", f"{shown(nomat[at] / c[at])} x {here}", nomat[at] / c[at] >= 30),
        Claim(where, f"P is less than an order of magnitude worse than C ({shown(theirs)} x {here})",
              f"{shown(p[at] / c[at])} x {here}", 1 < p[at] / c[at] < 10),
        Claim(where, f"NoMat does not scale with the window ({low:,} to {top:,} tuples)", f"it grows {shown(grown)} x",
              grown > 4),
        Claim(where, "results grow with the square of the window", f"with the power {steepness:.2f}",
              1.8 <= steepness <= 2.2),
    ]  # fmt: skip


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


def _claims_of_probes(found: Found) -> list[Claim]:
    figure = probe_curves(found.probes)
    most = max(each.hybrids for each in found.probes)
    ratio = {name: figure[f"{name}_Separate"][most] / figure[f"{name}_Composite"][most] for name in WORKLOADS}
    told = {name: f"Separate / Composite = {shown(value)} with {most:,} hybrid tuples" for name, value in ratio.items()}
    where = "figure 11"
    return [
        Claim(where, "Eq/Ineq: composite tuples take half the time", told["Eq/Ineq"], ratio["Eq/Ineq"] >= 1.5),
        Claim(where, "Ineq/Eq: they outperform separate ones", told["Ineq/Eq"], ratio["Ineq/Eq"] > 1),
        Claim(where, "Ineq/Ineq: separate ones are preferred", told["Ineq/Ineq"], ratio["Ineq/Ineq"] < 1),
    ]


# -- the figures --


def draw(found: Found, path: Path) -> None:
    plt = pyplot()
    drawing, axes = plt.subplots(2, 3, figsize=(15, 9.2))
    response, window = "response time per query (ms)", "window (tuples x 10,000)"
    panels = (
        ("7 (a) equality predicates", curves(found.equality), 1e4, "log", window, response),
        ("7 (b) interval predicates", curves(found.interval), 1e4, "log", window, response),
        ("8 joins", curves(found.joins), 1.0, "linear", "window of each stream (tuples)", response),
        ("9 arrival rate", rates(found.arrivals), 1.0, "log", "number of SQCs", "tuples per second"),
        ("11 composite tuples", probe_curves(found.probes), 1.0, "log", "number of hybrid tuples", "probe time (ms)"),
    )
    for axis, (title, figure, scale, y_scale, x_label, y_label) in zip(axes.flat, panels, strict=False):
        _plot(axis, figure, scale=scale, y_scale=y_scale)
        axis.set_title(title)
        axis.set_xlabel(x_label)
        axis.set_ylabel(y_label)
    axes.flat[-1].set_visible(False)
    drawing.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, metadata={"Date": None})
    plt.close(drawing)


def _plot(axis: Any, figure: Mapping[str, Curve], *, scale: float, y_scale: str) -> None:
    for name, curve in figure.items():
        color, marker = _STYLE[name]
        axis.plot([x / scale for x in curve], list(curve.values()), color=color, marker=marker, label=name)
    axis.set_yscale(y_scale)
    if y_scale == "linear":
        axis.set_ylim(bottom=0)
    axis.legend(fontsize=8)
    axis.spines[["top", "right"]].set_visible(False)


# -- the page --

_PAGE = """# PSoup's experiments on Ladle

Written by `{command}` on {cores} cores ({processor}). The paper's figures are from two Pentium III of 666 MHz: shapes
are compared, not values.{quick}

![figures 7 (a), 7 (b), 8, 9 and 11]({name}.svg)

As in the paper: data uniform in [0, 255]; a constant is a multiple of 32 with probability 0.2, else uniform; the size
of an interval is uniform in [0, 255]; a query has one to four predicates. NoMat, PSoup-P and PSoup-C are the modes
`none`, `partial` and `complete`. Response times are engine time, the mean over all queries of each one's median; all
tuples are in memory. C's answers are kept as they are handed out, and no tuple arrives between invocations.
Shrd is the Query SteM's index, Unshrd evaluates one query at a time with NumPy; C adds bringing all answers up to date
after each epoch of {epoch:,} tuples (the paper: after each tuple). The line "{streamed}" is P_Shrd the whole way
through Spark to a durable commit, which the paper's system in main memory did not have.

{met} of {total} bars are met{missed}

{bars}

Bars compare medians over the queries, figures show means.

## The paper's shape and ours

{claims}

## Table 2: response time against the number of factors

Milliseconds; two factors make an interval, the paper counts intervals. The window is fixed.

{table_2}

## Figure 7: response time against the window

Milliseconds.

{figure_7}

## Figure 8: response time of joins against the window

Milliseconds; the paper gives 29.98 for PSoup-P and 8.54 for PSoup-C at a window of 576 tuples of each stream.

A query has one factor `r.a RELOP s.b +/- c` with an inequality, and one to four intervals over the attributes of both
streams: as many predicates as a selection has, since the paper says nothing else of them. Its answer has all columns of
both tuples. Windows move over streams of twice the largest window, whose pairs P has kept. Each answer had as many rows
as DuckDB finds in the windows.

NoMat is the mode `none`: what it does on invocation is done with the kernel that finds pairs for P as tuples arrive.
Beside it, without bars, are two that start from the windows' tuples in memory: {duckdb}, and "{tuple_by_tuple}", the
paper's NoMat in Python, which probes an index of `s.b` with each tuple of `r` that passes its filters.

{figure_8}

## Figure 9: arrival rate against the number of queries

Tuples per second; the windows hold 1,000 tuples.

{figure_9}

## Figure 11: probing with composite and with separate tuples

Milliseconds of step 5 on arrival of a query `r.a RELOP1 c1 AND r.a RELOP2 s.b AND s.b RELOP3 c2`: the tuples of `r`
that satisfied the first factor probe as many tuples of `s`, which are sorted by `b` already. The names are those of the
paper's text, the shared factor (RELOP3) first. Composite: the shared factor once, and then all tuples of `r` at once,
by the engine's join. Separate: one tuple after the other with both factors, each a binary search in the sorted `b`;
both are ranges of one order, so no tuples are compared to intersect them. The engine's join gives its pairs in order of
both tuples, separate tuples leave them as the index has them. Both found the same pairs, as many as DuckDB.

{figure_11}
"""


def write_psoup_page(found: Found, bars: Sequence[Bar], path: Path, command: str, *, quick: bool, epoch: int) -> str:
    """Write the page; what the terminal shows of it."""
    said = claims(found)
    here = machine()
    missed = [f"- {bar.what}: {bar.cells[3]}, the bar is {bar.cells[4]}" for bar in bars if not bar.met]
    page = _PAGE.format(
        command=command,
        cores=here["cores"],
        processor=here["processor"],
        quick="\n\n**A quick run with small sizes, to see that it works: the figures mean nothing.**" if quick else "",
        name=path.stem,
        epoch=epoch,
        streamed=STREAMED,
        met=sum(bar.met for bar in bars),
        total=len(bars),
        missed="; not met:\n\n" + "\n".join(missed) if missed else ".",
        bars=bars_table(bars),
        duckdb=DUCKDB,
        tuple_by_tuple=TUPLE_BY_TUPLE,
        claims=table(
            ("where", "the paper", "here", ""),
            [(each.where, each.paper, each.ours, "as there" if each.holds else "**differs**") for each in said],
        ),
        table_2=_table_2(found),
        figure_7=_figure_7(found),
        figure_8=_figure_8(found),
        figure_9=_figure_9(found),
        figure_11=_figure_11(found),
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


def _figure_8(found: Found) -> str:
    figure = curves(found.joins)
    rows = {each.x: each.rows for each in found.joins if each.system == "PSoup-P"}
    lines = [[f"{size:,}", *(f"{curve[size]:.4f}" for curve in figure.values()), f"{rows[size]:,.0f}"] for size in rows]
    return table(["window", *figure, "rows of an answer"], lines)


def _figure_9(found: Found) -> str:
    figure = rates(found.arrivals)
    lines = [[f"{queries:,}", *(shown(figure[name][queries]) for name in figure)] for queries in figure["PSoup-P_Shrd"]]
    return table(["queries", *figure], lines)


def _figure_11(found: Found) -> str:
    figure = probe_curves(found.probes)
    pairs = {(each.workload, each.hybrids): each.pairs for each in found.probes}
    lines = [
        [f"{count:,}"]
        + [
            cell
            for name in WORKLOADS
            for cell in (
                *(f"{figure[f'{name}_{way}'][count]:.4f}" for way in ("Composite", "Separate")),
                f"{pairs[name, count]:,.0f}",
            )
        ]
        for count in dict.fromkeys(each.hybrids for each in found.probes)
    ]
    headings = [f"{name} {each}" for name in WORKLOADS for each in ("Composite", "Separate", "pairs")]
    return table(["hybrid tuples", *headings], lines)
