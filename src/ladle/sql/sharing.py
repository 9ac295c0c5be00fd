"""Standing queries that a statement reads often are bound once, and written once, as common table expressions.

A query that is read by name is bound in its place. Where each query reads the one below it twice, the lowest would be
bound, written and read a million times after twenty levels. So the queries below a statement are looked at first, each
distinct one once; those that would be written more than a few times, or deep inside others, come before the statement
in a WITH, the lowest first. What is left is as long as the distinct queries are, and as deep as a few of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from sqlglot import exp

from ladle.plan import AsOf
from ladle.sql.as_of_clause import past_of_query
from ladle.sql.bounds import brackets_of
from ladle.sql.drafts import SelectDraft
from ladle.sql.names import Names
from ladle.sql.position import SourceText
from ladle.sql.script import draft, only_chunk
from ladle.sql.trees import copied

_PLACES_MAX = 4
"""A query that would be written in more places is written once."""
_LEVELS_MAX = 8
"""Queries inside of queries that are bound in their places."""


class Read(NamedTuple):
    """A standing query by its name in lower case, and as of which moment it is read."""

    name: str
    past: AsOf | None


@dataclass(frozen=True)
class Below:
    """A standing query that a statement reads, itself or through another, as of one moment."""

    name: str
    text: str
    tree: exp.Expression
    """As parsed; whoever binds it takes a copy."""
    past: AsOf | None
    """The moment that it is read at, if AS OF says one."""
    reads: Mapping[Read, int]
    """The queries that it mentions, and how often."""
    whole: frozenset[Read]
    """Those of them that it mentions without a window."""

    def written(self) -> exp.Expression:
        """A copy of the tree, to be changed."""
        return copied(self.tree)


def queries_below(
    tree: exp.Expression, names: Names, source: SourceText
) -> tuple[dict[Read, Below], list[Read], list[Read]]:
    """All standing queries that a tree reads; those of them that are to be bound once; and of these, the lowest first,
    those that are read without a window, which can be bound before it. With one they are bound when they are met.
    """
    known: dict[Read, Below] = {}
    own, whole = _mentioned(tree, names, source, None)
    waiting = [(read, names) for read in own]
    while waiting:
        read, seen = waiting.pop()
        found = seen.query_sql(read.name)
        if read in known or found is None:
            continue
        declared, text = found
        parsed = draft(only_chunk(text))
        assert isinstance(parsed, SelectDraft)
        inside = names.inside(declared)
        reads, direct = _mentioned(parsed.query.tree, inside, SourceText(text), read.past)
        known[read] = Below(declared, text, parsed.query.tree, read.past, reads, direct)
        waiting += [(each, inside) for each in reads]
    often = _shared(own, known)
    reached = _reached(whole, known)
    return known, often, [read for read in often if read in reached]


def _reached(whole: frozenset[Read], known: Mapping[Read, Below]) -> set[Read]:
    """The queries that are read without a window on them, or on what reads them."""
    reached: set[Read] = set()
    waiting = list(whole)
    while waiting:
        read = waiting.pop()
        if read not in reached and read in known:
            reached.add(read)
            waiting += known[read].whole
    return reached


def _shared(own: Mapping[Read, int], known: Mapping[Read, Below]) -> list[Read]:
    """Which queries are written once, lowest first."""
    places: Counter[Read] = Counter(own)
    levels = dict.fromkeys(own, 1)
    shared: list[Read] = []
    for name in _from_above(known):
        if places[name] > _PLACES_MAX or levels[name] > _LEVELS_MAX:
            shared.append(name)
        alone = name in shared
        for each, times in known[name].reads.items():
            places[each] += times * (1 if alone else places[name])
            levels[each] = max(levels.get(each, 1), 1 if alone else levels[name] + 1)
    return shared[::-1]


def _from_above(known: Mapping[Read, Below]) -> list[Read]:
    """The queries in an order in which each comes before those that it reads."""
    readers: Counter[Read] = Counter()
    for below in known.values():
        readers.update(below.reads.keys())
    ready = [name for name in known if not readers[name]]
    order = []
    while ready:
        name = ready.pop()
        order.append(name)
        for each in known[name].reads:
            readers[each] -= 1
            if not readers[each]:
                ready.append(each)
    return order


def _mentioned(
    tree: exp.Expression, names: Names, source: SourceText, past: AsOf | None
) -> tuple[Counter[Read], frozenset[Read]]:
    """The standing queries that a text, itself read as of a moment, names, and how often; and those that it names
    without a window. A common table expression of the same name counts too, which makes no difference to any answer.
    """
    found: Counter[Read] = Counter()
    whole: set[Read] = set()
    for table in tree.find_all(exp.Table):
        if isinstance(table.this, exp.Identifier) and len(table.parts) == 1:
            name = table.name
            if names.stream_schema(name) is None and names.table_schema(name) is None and names.query_sql(name):
                read = Read(name.lower(), past_of_query(table, source, names) or past)
                found[read] += 1
                if not brackets_of(table):
                    whole.add(read)
    return found, frozenset(whole)
