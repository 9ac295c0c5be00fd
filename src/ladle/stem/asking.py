"""Asking dear factors, slice by slice, within a budget (decision 23).

A slice has as many tuples as the factor is expected to do in a moment, one at least. What a slice has said is kept
whatever happens to the next, so a factor that takes a second for a tuple gets on as surely as one that takes a
microsecond, only more slowly; and one that never ends costs a slice and no more.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ladle.columns import from_numpy
from ladle.eddy import Account, Router
from ladle.evaluate import Failure, evaluate_factors
from ladle.plan import Factor
from ladle.stem.masks import FALSE, TRUE, UNKNOWN, FactorMask, States

Mask = npt.NDArray[np.bool_]

_SLICE_SECONDS = 0.1
"""What a slice should take."""
_FIRST_ROWS = 256
"""Tuples of the first slice of a factor that nothing is known of."""
_SLICE_ROWS_MAX = 1 << 16
_SMALLER = 8
"""By what a slice is smaller after one that took too long."""


@dataclass
class Budget:
    """The time that dear factors may take in all that one task does."""

    seconds: float = math.inf
    slice_seconds_max: float | None = None
    """A slice that takes longer is stopped."""
    patient: bool = False
    """Whether the first slice may take that long whatever the budget is: so one tuple gets on that takes longer."""

    @property
    def slice_limit(self) -> float | None:
        """What the next slice may take: what is left, or a moment at least."""
        longest = self.slice_seconds_max
        return longest if longest is None or self.patient else min(longest, max(self.seconds, _SLICE_SECONDS))

    def spend(self, seconds: float) -> None:
        """Take what a call has cost off."""
        self.seconds -= seconds
        self.patient = False


class Asking:
    """The dear factors of one data file: what they said, segment by segment, and what stopped them."""

    def __init__(self, budget: Budget | None = None, known: Mapping[str, FactorMask] | None = None) -> None:
        """Without a budget all is asked, however long it takes."""
        self.budget = budget or Budget()
        self.known = dict(known or {})
        self.said = 0
        """Tuples that a factor was asked about."""
        self.unfinished: set[str] = set()
        """Factors that have not said all."""
        self.stopped: dict[str, Failure] = {}
        """Factors that raised or did not come back: they are not asked again in this task."""
        self._states: dict[str, list[States]] = {}
        self._first = 0

    @property
    def asked(self) -> Set[str]:
        """The factors that were asked, or would have been."""
        return self._states.keys()

    def begin(self, sql: str, rows: int, blocks: frozenset[int]) -> States:
        """What is known of the next segment; what is found out is put there."""
        mask = self.known.get(sql)
        if mask is None or len(mask.states) < self._first + rows:
            return np.zeros(rows, dtype=np.uint8)
        return mask.known_to(blocks)[self._first : self._first + rows].copy()

    def end(self, rows: int, states: Mapping[str, States]) -> None:
        """A segment is done: what is known of it of all factors that may stay unfinished."""
        for sql, own in states.items():
            before = self._states.setdefault(sql, [np.zeros(self._first, dtype=np.uint8)])
            before.append(own)
        for sql, before in self._states.items():
            if sql not in states:
                before.append(np.zeros(rows, dtype=np.uint8))
        self._first += rows

    def ask(
        self,
        factor: Factor,
        table: pa.Table,
        wanted: Mask,
        states: States,
        seconds: float,
        router: Router,
        applied: int,
    ) -> None:
        """Ask about the tuples that are wanted and not known, for so long."""
        sql = factor.sql
        rows = np.flatnonzero(wanted & (states == UNKNOWN))
        offered = len(wanted) / max(len(rows), 1)
        late: Failure | None = None
        said_before = self.said
        at, largest = 0, _SLICE_ROWS_MAX
        while at < len(rows) and seconds > 0 and sql not in self.stopped:
            some = rows[at : at + min(_slice_rows(router.account(sql)), largest)]
            began, began_at = time.perf_counter(), time.monotonic()
            limit = self.budget.slice_limit
            result = evaluate_factors(table.take(from_numpy(some)), [factor], seconds_max=limit)
            taken = time.perf_counter() - began
            spent = time.monotonic() - began_at
            self.budget.spend(spent)
            seconds -= spent
            failure = result.failures.get(sql)
            if failure is None:
                true = result.masks[sql]
                states[some] = np.where(true, np.uint8(TRUE), np.uint8(FALSE))
                dropped = len(some) - int(np.count_nonzero(true))
                router.observe(sql, Account(offered * len(some), len(some), dropped, taken, applied))
                self.said += len(some)
                at += len(some)
                late = None
            elif failure.slow and self.said > said_before and limit != self.budget.slice_seconds_max:
                # It gets on, and was stopped because the budget is at its end: no trouble.
                late = None
                break
            else:
                # A slice that is late may only have been too large: the next is smaller, as long as there is time.
                router.observe(sql, Account(len(some), len(some), 0, taken, applied))
                late, largest = failure, max(len(some) // _SMALLER, 1)
                if not failure.slow or len(some) == 1:
                    self.stopped[sql] = failure
        if late is not None:
            self.stopped[sql] = late
        if at < len(rows):
            self.unfinished.add(sql)

    def masks(self, of: Iterable[str] | None = None) -> dict[str, FactorMask]:
        """What is to be kept: what was known of others, and what those said that were asked, or some of them.

        While one of them is not done, no results say what the others said: that is kept too. When all are, results do.
        """
        found = {sql: mask for sql, mask in self.known.items() if sql not in self._states}
        asked = self.asked if self.unfinished else ()
        for sql in asked if of is None else of:
            before = self.known.get(sql, FactorMask(np.zeros(0, dtype=np.uint8)))
            found[sql] = FactorMask(np.concatenate([*self._states[sql], before.states[self._first :]]), before.blocks)
        return {sql: mask for sql, mask in found.items() if mask.states.any()}


def _slice_rows(account: Account) -> int:
    if not account.visited:
        return _FIRST_ROWS
    return max(1, min(int(_SLICE_SECONDS / account.seconds_per_tuple), _SLICE_ROWS_MAX))
