"""Routing policies (CACQ section 3.3): which operator the tuples visit next.

An operator holds tickets for the tuples it consumed and loses them for those it returned, as many as it applies
predicates; what a visit costs counts too, so tickets are tuples dropped per second of work. Accounts of different tasks
add up, and old ones fade, so the order follows the data within a few epochs. The order never changes an answer, only
its price.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum

_EXPLORE_EVERY = 64
_LOTS = 0.125
"""How often the chunks that statistics are taken on go by lots: mostly the order that is thought best is looked at."""
_CHUNK_SECONDS = 1e-8
"""What each tuple of a chunk costs at an operator, wanted or not: that is paid in any order."""
_CHEAP_SECONDS = 1e-7
"""Operators that take less per tuple are all alike: what they seem to differ in is noise."""
_FADE = 0.5
"""What an epoch's account is worth to the one after the next."""
_DROPPED_MIN = 1e-6
"""What an operator that drops nothing is taken to drop of each tuple, so that a lottery may still draw it."""
_UNKNOWN_SECONDS = 2e-8
"""What a tuple is taken to cost at an operator that nothing is known of."""


class Policy(Enum):
    """All but tickets are for measuring what tickets are worth."""

    TICKETS = "tickets"
    """By what operators did so far, and now and then by lottery, to see what they would do in another order."""
    RANDOM = "random"
    FIXED = "fixed"
    BEST = "best"
    """By what is known, most tickets first, whatever is seen meanwhile."""
    WORST = "worst"


@dataclass(frozen=True)
class Account:
    """What an operator did with the tuples that were routed to it."""

    offered: float = 0.0
    """Tuples of the chunks it was asked for."""
    visited: float = 0.0
    """Those that some interested query still wanted when it was reached."""
    dropped: float = 0.0
    """Those that none of them wanted afterwards; below zero where a join returned more than it was given."""
    seconds: float = 0.0
    predicates: float = 1.0
    """How many it applies to a tuple."""

    def plus(self, other: Account) -> Account:
        """What both have seen, together."""
        visited = self.visited + other.visited
        predicates = self.predicates * self.visited + other.predicates * other.visited
        return Account(
            self.offered + other.offered,
            visited,
            self.dropped + other.dropped,
            self.seconds + other.seconds,
            predicates / visited if visited else max(self.predicates, other.predicates),
        )

    def faded(self) -> Account:
        """The same account with less weight, so that what comes next counts more."""
        return replace(
            self,
            offered=self.offered * _FADE,
            visited=self.visited * _FADE,
            dropped=self.dropped * _FADE,
            seconds=self.seconds * _FADE,
        )

    @property
    def seconds_per_tuple(self) -> float:
        """What a tuple costs at this operator."""
        return self.seconds / self.visited if self.visited else _UNKNOWN_SECONDS

    @property
    def tickets(self) -> float:
        """Tuples it can be expected to drop per second, times its predicates; of an unknown one, worth a try.

        One that returns more than it is given has next to none (CACQ section 3.3 bounds them from below).
        """
        dropped = max(self.dropped + 1.0, _DROPPED_MIN * self.visited, _DROPPED_MIN)
        return self.predicates * dropped / (self.visited + 2.0) / self._cost

    @property
    def _cost(self) -> float:
        """Seconds for a tuple more."""
        seconds = self.seconds - self.offered * _CHUNK_SECONDS
        return max(seconds / self.visited if self.visited else 0.0, _CHEAP_SECONDS)

    @property
    def reached(self) -> float:
        """The share of offered tuples that it had to look at."""
        return self.visited / self.offered if self.offered else 1.0


_NOTHING = Account()


class Router:
    """Orders operators by what is known of them, and keeps the accounts of what they did since."""

    def __init__(
        self, policy: Policy = Policy.TICKETS, known: Mapping[str, Account] | None = None, seed: int | str = 0
    ) -> None:
        self.policy = policy
        self._all = dict(known or {})
        self._known = dict(self._all)
        self._new: dict[str, Account] = {}
        self._random = random.Random(seed)
        self._turn = 0

    @property
    def accounts(self) -> dict[str, Account]:
        """What happened since this router was made."""
        return dict(self._new)

    def exploring(self) -> bool:
        """Whether this chunk is one of those that statistics are taken on."""
        turn, self._turn = self._turn, self._turn + 1
        return turn % _EXPLORE_EVERY == 0

    def order(self, operators: Sequence[str], *, explore: bool = False) -> list[str]:
        """The order in which the operators are visited next."""
        match self.policy:
            case Policy.FIXED:
                return list(operators)
            case Policy.RANDOM:
                return self._random.sample(operators, len(operators))
            case Policy.BEST | Policy.WORST:
                worst_first = self.policy is Policy.WORST
                return sorted(operators, key=lambda name: self._tickets_known(name) * (1 if worst_first else -1))
            case Policy.TICKETS:
                if explore and self._random.random() < _LOTS:
                    return self._lottery(operators)
                return sorted(operators, key=lambda name: -self.account(name).tickets)

    def _tickets_known(self, operator: str) -> float:
        """As of when this router was made."""
        return self._known.get(operator, _NOTHING).tickets

    def comes_last(self, operator: str, others: Sequence[str]) -> bool:
        """Whether an operator is visited after all of some others."""
        return self.order([operator, *others])[-1] == operator

    def account(self, operator: str) -> Account:
        """What is known of an operator."""
        return self._all.get(operator, _NOTHING)

    def observe(self, operator: str, account: Account) -> None:
        """Add what a visit has shown of an operator."""
        self._new[operator] = self._new.get(operator, _NOTHING).plus(account)
        self._all[operator] = self.account(operator).plus(account)

    def _lottery(self, operators: Sequence[str]) -> list[str]:
        """Each next operator is drawn with chances in proportion to tickets."""
        left = {name: self.account(name).tickets for name in operators}
        drawn: list[str] = []
        while left:
            (name,) = self._random.choices(list(left), weights=list(left.values()))
            drawn.append(name)
            del left[name]
        return drawn


def merged(known: Mapping[str, Account], epochs: Iterable[Mapping[str, Account]]) -> dict[str, Account]:
    """What is known after an epoch: what was known, faded, and what its tasks saw."""
    return added({name: account.faded() for name, account in known.items()}, epochs)


def added(known: Mapping[str, Account], seen: Iterable[Mapping[str, Account]]) -> dict[str, Account]:
    """What is known, and what was seen beside."""
    following = dict(known)
    for accounts in seen:
        for name, account in accounts.items():
            following[name] = following.get(name, _NOTHING).plus(account)
    return following
