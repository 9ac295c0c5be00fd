"""CACQ's shapes and ours side by side: the figures with its axes, and a page that says which claims hold here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks._bars import Bar, bars_table, machine, pyplot, shown, table, write_page
from benchmarks._cacq_eddy import (
    APART,
    EVERY_SECONDS,
    OPTIMUM,
    SHARED,
    WITHIN,
    Flip,
    Throughput,
    Tickets,
    Visits,
    hypothetical_optimum,
)
from benchmarks._cacq_niagara import ENGINE, JOIN_FIRST, OURS, PUSHDOWN, Completion
from benchmarks._cacq_workload import ATTRIBUTES
from benchmarks._psoup_page import Claim

_SYSTEMS = (OURS, ENGINE, PUSHDOWN, JOIN_FIRST)
_STYLE = {
    SHARED: ("#3b6ea5", "s"),
    APART: ("#b3372f", "o"),
    OURS: ("#3b6ea5", "s"),
    ENGINE: ("#777777", "x"),
    PUSHDOWN: ("#6a9a58", "^"),
    JOIN_FIRST: ("#b3372f", "o"),
}
_FILTERS = dict(zip(ATTRIBUTES, ("#b3372f", "#d08a2e", "#6a9a58", "#3b6ea5", "#7d5ba6"), strict=True))
_STEADY_SECONDS = 3


@dataclass(frozen=True)
class Found:
    queries: list[Throughput]
    sources: list[Throughput]
    visits: list[Visits]
    flips: list[Flip]
    tickets: list[Tickets]
    selections: list[Completion]
    calls: list[Completion]

    def policy(self, name: str) -> Visits:
        return next(each for each in self.visits if each.policy == name)


def claims(found: Found) -> list[Claim]:
    return [
        *_of_throughput(found),
        *_of_policies(found),
        *_of_tickets(found),
        *_of_selections(found),
        *_of_calls(found),
    ]


def _of_throughput(found: Found) -> list[Claim]:
    first, last = found.queries[0], found.queries[-1]
    grown = last.rate(SHARED) / first.rate(SHARED)
    most = {system: max(each.rate(system) for each in found.queries) for system in (SHARED, APART)}
    ratio = most[SHARED] / most[APART]
    one, many = found.sources[0], found.sources[-1]
    change = many.rate(SHARED) / one.rate(SHARED)
    where = "throughput"
    return [
        Claim(where, "with more queries, more tuples are given out", f"{shown(grown)} x with {last.x:,} queries",
              grown > 1.2),
        Claim(where, "one eddy per query gives out about half at its best", f"shared gives {shown(ratio)} x",
              ratio > 1.5),
        Claim(where, "more sources make it somewhat less", f"{shown(change)} x with {many.x} sources",
              0.3 < change < 1),
    ]  # fmt: skip


def _of_policies(found: Found) -> list[Claim]:
    own, chance, worst, best = (found.policy(name).mean for name in ("tickets", "random", "worst", OPTIMUM))
    told = f"tickets {own:.2f}, random {chance:.2f}, worst {worst:.2f}, best order {best:.2f}"
    where = "filters per tuple"
    return [
        Claim(where, "tickets are close to the optimum", f"{shown(own / hypothetical_optimum())} x of it",
              own < 1.1 * hypothetical_optimum()),
        Claim(where, "optimum, tickets, random, worst: in this order", told, best * 0.999 <= own < chance < worst),
    ]  # fmt: skip


def _of_tickets(found: Found) -> list[Claim]:
    said = []
    for each in found.tickets:
        end = {name: float(np.mean(shares[-EVERY_SECONDS:])) for name, shares in each.shares.items()}
        told = ", ".join(f"{name} {100 * share:.0f}%" for name, share in end.items())
        ranked = sorted(end, key=lambda name: -end[name])
        where = f"tickets, workload {each.workload}"
        match each.workload:
            case 1:
                said.append(Claim(where, "the more selective, the more tickets", told, ranked == list(ATTRIBUTES)))
            case 2:
                said.append(
                    Claim(where, "the more queries a filter is for, the more", told, ranked == list(ATTRIBUTES))
                )
            case _:
                bulk = end["a"] + end["b"]
                said.append(Claim(where, "selective, often applied filters get the bulk", told,
                                  ranked[0] == "a" and bulk > 0.5))  # fmt: skip
        said.append(Claim(where, "a few seconds after a query comes, shares are steady",
                          f"at most {each.steady} s to within ten points", each.steady <= _STEADY_SECONDS))  # fmt: skip
    return said


def _of_selections(found: Found) -> list[Claim]:
    few, many = found.selections[0], found.selections[-1]
    at_few = few.median(JOIN_FIRST) / few.median(OURS)
    at_many = many.median(JOIN_FIRST) / many.median(OURS)
    pushed = many.median(PUSHDOWN) / many.median(JOIN_FIRST)
    beside = many.median(PUSHDOWN) / many.median(OURS)
    where = "NiagaraCQ, selections"
    return [
        Claim(where, "with few queries ours is faster than join first", f"{shown(at_few)} x as fast with {few.x}",
              at_few > 1),
        Claim(where, "with many it is slightly slower", f"{shown(at_many)} x as fast with {many.x}", 0.5 < at_many < 1),
        Claim(where, "pushdown is slower than join first", f"{shown(pushed)} x the time with {many.x}", pushed > 1),
        Claim(where, "pushdown is slower than ours", f"{shown(beside)} x the time with {many.x}", beside > 1),
    ]  # fmt: skip


def _of_calls(found: Found) -> list[Claim]:
    one, top = found.calls[0], found.calls[-1]
    theirs = top.median(JOIN_FIRST) / one.median(JOIN_FIRST)
    ours = top.median(OURS) / one.median(OURS)
    ratio = top.median(JOIN_FIRST) / top.median(OURS)
    where = "NiagaraCQ, functions"
    return [
        Claim(where, "join first grows with the articles per quote", f"{shown(theirs)} x from {one.x} to {top.x}",
              theirs > 0.5 * top.x / one.x),
        Claim(where, "ours hardly does", f"{shown(ours)} x", ours < 1.5),
        Claim(where, "so ours is faster by the number of articles", f"{shown(ratio)} x with {top.x}",
              ratio > 0.5 * top.x),
    ]  # fmt: skip


# -- the figures --


def draw(found: Found, path: Path) -> None:
    plt = pyplot()
    drawing, axes = plt.subplots(3, 3, figsize=(15, 12.5))
    _draw_throughput(axes[0, 0], found.queries, "number of queries")
    axes[0, 0].set_xscale("log")
    axes[0, 0].set_title("throughput against queries")
    _draw_throughput(axes[0, 1], found.sources, "number of sources")
    axes[0, 1].set_title("throughput against sources")
    _draw_policies(axes[0, 2], found)
    for axis, each in zip(axes[1], found.tickets, strict=True):
        _draw_tickets(axis, each)
    _draw_flips(axes[2, 0], found.flips)
    _draw_completion(axes[2, 1], found.selections, "number of queries")
    axes[2, 1].set_title("NiagaraCQ: plain selections")
    _draw_completion(axes[2, 2], found.calls, "articles per quote")
    axes[2, 2].set_title("NiagaraCQ: functions")
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    drawing.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    drawing.savefig(path, metadata={"Date": None})
    plt.close(drawing)


def _draw_throughput(axis: Any, points: Sequence[Throughput], label: str) -> None:
    for system in (SHARED, APART):
        color, marker = _STYLE[system]
        rates = [each.rate(system) for each in points]
        axis.plot([each.x for each in points], rates, color=color, marker=marker, label=system)
    axis.set_yscale("log")
    axis.set_xlabel(label)
    axis.set_ylabel("tuples output per second")
    axis.legend(fontsize=8)


def _draw_policies(axis: Any, found: Found) -> None:
    values = {
        "random": found.policy("random").mean,
        "tickets": found.policy("tickets").mean,
        "best": found.policy("best").mean,
        "optimal": hypothetical_optimum(),
        "worst": found.policy("worst").mean,
    }
    drawn = axis.bar(list(values), list(values.values()), color=["#777777", "#3b6ea5", "#6a9a58", "#6a9a58", "#b3372f"])
    axis.bar_label(drawn, fmt="%.2f")
    axis.set_ylabel("average filters per tuple")
    axis.set_title("routing scheme against filters per tuple")


def _draw_tickets(axis: Any, each: Tickets) -> None:
    for name, shares in each.shares.items():
        axis.plot([100 * share for share in shares], color=_FILTERS[name], label=f"filter on {name}")
    for number in range(1, len(each.conditions)):
        axis.axvline(number * EVERY_SECONDS, color="#bbbbbb", linewidth=0.8, linestyle=":", zorder=0)
    axis.set_ylim(0, 105)
    axis.set_xlabel("time (s)")
    axis.set_ylabel("% of tickets")
    axis.set_title(f"tickets against time, workload {each.workload}")
    axis.legend(fontsize=8)


def _draw_flips(axis: Any, flips: Sequence[Flip]) -> None:
    before = flips[0].before
    numbers = [number - before + 1 for number in range(len(flips[0].tickets))]
    for run, each in enumerate(flips):
        axis.plot(
            numbers, each.tickets, color="#3b6ea5", alpha=0.45, linewidth=1, label=None if run else "tickets, runs"
        )
    best = np.median([each.best for each in flips], axis=0)
    axis.plot(numbers, np.median([each.tickets for each in flips], axis=0), color="#3b6ea5", label="tickets, median")
    axis.plot(numbers, best, color="#6a9a58", label="best order")
    axis.plot(numbers, WITHIN * best, color="#6a9a58", linestyle="--", linewidth=1, label=f"{WITHIN} x of it")
    axis.axvline(0.5, color="#bbbbbb", linestyle=":", zorder=0)
    axis.set_ylim(bottom=1)
    axis.set_xlabel("epochs after the flip")
    axis.set_ylabel("average filters per tuple")
    axis.set_title("selectivities flip")
    axis.legend(fontsize=8)


def _draw_completion(axis: Any, points: Sequence[Completion], label: str) -> None:
    for system in _SYSTEMS:
        color, marker = _STYLE[system]
        axis.plot([each.x for each in points], [each.median(system) for each in points], color=color, marker=marker,
                  label=system)  # fmt: skip
    axis.set_yscale("log")
    axis.set_xlabel(label)
    axis.set_ylabel("seconds to complete")
    axis.legend(fontsize=8)


# -- the page --

_PAGE = """# CACQ's experiments on Ladle

Written by `{command}` on {cores} cores ({processor}). The stored paper has lost its numerals, so constants are ours and
shapes are compared, not values.{quick}

![throughput, routing, tickets, NiagaraCQ]({name}.svg)

{met} of {total} bars are met:

{bars}

## The paper's shape and ours

{claims}

## How it was measured

- Attributes a to e are uniform in [0, 100). The nested queries are `a > 90`, then `AND b > 70`, `AND c > 50`,
  `AND d > 30`, `AND e > 10`. Every run compared the tuples or pairs of each query with DuckDB's.
- **Throughput.** {rows} tuples of each source pass the Query SteM, which writes down whose they are. Shared: one SteM
  for all queries on a source; else one SteM, router and results file for each. A random query has a predicate on each
  attribute with probability one half (over sources: {queries} queries of one predicate each, on sources at random).
  Sources don't wait for each other, and nothing is sent to clients.
- **Filters per tuple.** An epoch has {epoch} tuples ("small": {small}), a chunk 8,192. A visit is a tuple that some
  query still wanted when the filter was reached, counted on every chunk by a router that routes and learns as the
  engine's, which counts on one chunk in 64 alone. The engine's filters look at whole chunks where that costs less than
  to find out who is wanted; so visits are worth less time here than there (last column: the engine's own router).
  Best and worst sort by what a thorough look at all tuples in random orders told.
- **Flip.** Five queries on all attributes (the nested ones keep their best order whatever is selective); then a passes
  90 percent instead of 10, b 70 instead of 30, and so on. Epochs of {small} tuples, a router for each, accounts merged
  between them. The first epoch after the flip that is within {within} x of the best order counts.
- **Tickets over time.** One epoch of {tickets_epoch} tuples is one second of stream time, which nobody waits for; every
  {every} seconds one query more. Tickets are tuples dropped per second of work, on chunks that statistics are taken on.
- **NiagaraCQ.** {stocks} quotes. Its plans and "{ours}" are NumPy and our kernels in one process: pairs of row numbers
  for each query, no tuple copied. Its grouped selection sorts by price once, and its hash table is an array.
  "{engine}" is the same update pushed into a database: two durable epochs through Spark, and all answers handed out as
  rows. With functions there are {functions} queries with one each, which spins 50 to 150 us a quote; they are given
  {seconds_max:g} s for a segment, more than a database gives them otherwise.
- All samples are in `{name}.json`, which the command writes beside this page, and which git leaves out.

## Throughput

Tuples output per second, and tuples in.

{throughput}

## Filters per tuple

The hypothetical optimum is {optimum:.4f}.

{visits}

Epochs until tickets are within {within} x of the best order after the flip: {flips}.

## NiagaraCQ

Seconds to complete one update: plain selections, then functions.

{completion}
"""


def write_cacq_page(
    found: Found, bars: Sequence[Bar], path: Path, command: str, *, quick: bool, **words: str | float
) -> str:
    """Write the page; what the terminal shows of it beside the bars."""
    said = claims(found)
    here = machine()
    page = _PAGE.format(
        command=command,
        cores=here["cores"],
        processor=here["processor"],
        quick="\n\n**A quick run with small sizes, to see that it works: the figures mean nothing.**" if quick else "",
        name=path.stem,
        met=sum(bar.met for bar in bars),
        total=len(bars),
        bars=bars_table(bars),
        claims=table(
            ("where", "the paper", "here", ""),
            [(each.where, each.paper, each.ours, "as there" if each.holds else "**differs**") for each in said],
        ),
        throughput=_throughput_table(found),
        visits=_visits_table(found),
        completion=_completion_table(found),
        flips=", ".join(str(each.epochs) for each in found.flips),
        optimum=hypothetical_optimum(),
        within=WITHIN,
        every=EVERY_SECONDS,
        ours=OURS,
        engine=ENGINE,
        **words,
    )
    write_page(path, page)
    return "".join(
        f"{'as there' if each.holds else 'DIFFERS':<8} {each.where}: {each.paper}; here: {each.ours}\n" for each in said
    )


def _throughput_table(found: Found) -> str:
    lines = []
    for kind, points in (("queries", found.queries), ("sources", found.sources)):
        for each in points:
            taken = {system: float(np.median(each.seconds[system])) for system in (SHARED, APART)}
            lines.append([
                f"{each.x:,} {kind}",
                *(f"{each.rate(system):,.0f}" for system in (SHARED, APART)),
                *(f"{each.tuples / taken[system]:,.0f}" for system in (SHARED, APART)),
            ])  # fmt: skip
    return table(["", *(f"{system}, {way}" for way in ("out", "in") for system in (SHARED, APART))], lines)


def _visits_table(found: Found) -> str:
    best = found.policy(OPTIMUM).mean
    lines = []
    for each in found.visits:
        taken = f"{np.median(each.ns_per_tuple):.1f}" if each.ns_per_tuple else ""
        by_filter = (f"{each.by_filter[name]:.4f}" for name in ATTRIBUTES)
        lines.append([each.policy, f"{each.mean:.4f}", f"{each.mean / best:.3f} x", *by_filter, taken])
    return table(["policy", "filters per tuple", "of the best order", *ATTRIBUTES, "ns per tuple"], lines)


def _completion_table(found: Found) -> str:
    kinds: Mapping[str, Sequence[Completion]] = {"queries": found.selections, "articles per quote": found.calls}
    lines = [
        [f"{each.x:,} {kind}", *(f"{each.median(system):.4f}" for system in _SYSTEMS)]
        for kind, points in kinds.items()
        for each in points
    ]
    return table(["", *_SYSTEMS], lines)
