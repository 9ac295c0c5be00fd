"""Templates: standing queries that differ in numbers alone are parsed and bound once.

The key of a text is what stands between its runs of digits. That is no parsing: the tokenizer said, when the key was
first seen, which runs are numbers by themselves, and equal text between runs that are not empty gives equal tokens. Of
those, the constants of plain comparisons (`column < 5`) that became factors, and nothing else, are the *holes* of a
template; every other run is part of the key. That a hole has no other influence is not argued but tried: the text is
bound once more with other numbers in the holes, and nothing but those factors may have changed.

Anything unusual, and any text whose key is new, is bound in full. A template holds what was asked of the catalog while
it was made, and is used only where the answers are the same.
"""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from sqlglot.tokenizer_core import Token, TokenType

from ladle.config import Settings
from ladle.errors import LadleError
from ladle.plan import Block, Factor, Function, Plan, Scan
from ladle.schema import StreamSchema, TableSchema
from ladle.sql.comparisons import Comparison, comparison_of
from ladle.sql.names import Names
from ladle.sql.script import chunks

Bind = Callable[[str, Names, Settings | None], Plan]

_TEXT_MAX = 20_000
"""Longer texts are seldom written twice, and to learn from one it is bound several times."""
_KEYS_MAX = 4_096
_TEMPLATES_PER_KEY_MAX = 64
_TRIES_MAX = 3
"""Numbers that turn out to matter elsewhere too become part of the key, and the rest is tried again."""

_FAILURES_MAX = 3
"""After so many texts without holes no more are looked for; one alone may have had an unusual number in it."""

_RUN = re.compile(r"([0-9]+)")
_APART = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_SENTINEL = 900_000_000
"""Numbers of nine digits that a text is bound with to find its holes."""


class Asked:
    """Answers for the binder, remembered."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self.streams: dict[str, tuple[str, StreamSchema] | None] = {}
        self.tables: dict[str, tuple[str, TableSchema] | None] = {}
        self.queries: dict[str, tuple[str, str] | None] = {}
        self.functions: dict[str, Function | None] = {}
        self.listed: tuple[str, ...] | None = None
        self.within: dict[str, Asked] = {}

    def stream_schema(self, name: str) -> tuple[str, StreamSchema] | None:
        return self.streams.setdefault(name, self._names.stream_schema(name))

    def table_schema(self, name: str) -> tuple[str, TableSchema] | None:
        return self.tables.setdefault(name, self._names.table_schema(name))

    def query_sql(self, name: str) -> tuple[str, str] | None:
        return self.queries.setdefault(name, self._names.query_sql(name))

    def inside(self, query: str) -> Asked:
        return self.within.setdefault(query, Asked(self._names.inside(query)))

    def function(self, name: str) -> Function | None:
        return self.functions.setdefault(name, self._names.function(name))

    def stream_names(self) -> Iterable[str]:
        return self._names.stream_names()

    def table_names(self) -> Iterable[str]:
        return self._names.table_names()

    def query_names(self) -> Iterable[str]:
        return self._names.query_names()

    def function_names(self) -> Iterable[str]:
        if self.listed is None:
            self.listed = tuple(self._names.function_names())
        return self.listed

    def would_hear_the_same(self, names: Names) -> bool:
        """Whether these names give the answers that were given."""
        return (
            all(_same(names.stream_schema(name), found) for name, found in self.streams.items())
            and all(names.table_schema(name) == found for name, found in self.tables.items())
            and all(names.query_sql(name) == found for name, found in self.queries.items())
            and all(names.function(name) == found for name, found in self.functions.items())
            and (self.listed is None or tuple(names.function_names()) == self.listed)
            and all(asked.would_hear_the_same(names.inside(query)) for query, asked in self.within.items())
        )


def _same(one: tuple[str, StreamSchema] | None, other: tuple[str, StreamSchema] | None) -> bool:
    if one is None or other is None:
        return one is other
    return one[0] == other[0] and (one[1] is other[1] or one[1] == other[1])


@dataclass(frozen=True)
class Hole:
    """A number in the text: runs of digits, the second after a point."""

    run: int
    start: int
    decimal: bool

    def literal(self, runs: Sequence[str]) -> str:
        return f"{runs[self.run]}.{runs[self.run + 1]}" if self.decimal else runs[self.run]

    @property
    def runs(self) -> tuple[int, ...]:
        return (self.run, self.run + 1) if self.decimal else (self.run,)


FactorSpec = Factor | tuple[Hole, Comparison]
"""A factor, or the comparison that becomes one with what is in a hole."""


@dataclass(frozen=True)
class Template:
    fixed: tuple[int, ...]
    """The runs that are part of the key."""
    plan: Plan
    specs: tuple[tuple[FactorSpec, ...], ...]
    """Of each scan."""
    asked: Asked
    begin: int
    """How many characters of the text stand before and after the query itself."""
    end: int

    def fill(self, text: str, runs: Sequence[str]) -> Plan | None:
        """The plan of a text with this key; None when a number is of an unusual kind."""
        scans = []
        for scan, specs in zip(self.plan.scans, self.specs, strict=True):
            factors: dict[str, Factor] = {}
            for spec in specs:
                factor = spec if isinstance(spec, Factor) else spec[1].factor(spec[0].literal(runs))
                if factor is None:
                    return None
                # As in WHERE, of equal factors the first one counts.
                factors.setdefault(factor.sql, factor)
            scans.append(
                Scan(scan.relation, Block(scan.block.stream, tuple(factors.values())), scan.window, scan.columns)
            )
        plan = self.plan
        sql = text[self.begin : len(text) - self.end]
        shared = (plan.residual, plan.schema, plan.queries, plan.functions, plan.joined, plan.tables)
        return Plan(sql, tuple(scans), *shared)

    def makes(self, plan: Plan, text: str, runs: Sequence[str]) -> bool:
        """Whether it gives the plan that the binder gave."""
        filled = self.fill(text, runs)
        # Factors are compared by their texts; here their ranges must be the same too.
        return filled == plan and [f.ranges for s in filled.scans for f in s.block.factors] == [
            f.ranges for s in plan.scans for f in s.block.factors
        ]


class _Known:
    """What is known of the texts with one key."""

    def __init__(self) -> None:
        self.fixed: tuple[int, ...] | None = None
        self.templates: OrderedDict[tuple[str, ...], Template] = OrderedDict()
        self.failures = 0


class Templates:
    """A bounded cache; any thread may use it."""

    def __init__(self, bind: Bind) -> None:
        self._bind = bind
        self._lock = threading.Lock()
        self._known: OrderedDict[str, _Known] = OrderedDict()
        self.filled = 0
        """Texts that needed no parser."""

    def bind(self, text: str, names: Names, settings: Settings | None = None) -> Plan:
        if len(text) > _TEXT_MAX:
            return self._bind(text, names, settings)
        parts = _RUN.split(text)
        runs = parts[1::2]
        if not runs:
            return self._bind(text, names, settings)
        parts[1::2] = ["0"] * len(runs)
        key = "".join(parts)
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
        if known is None:
            plan = self._bind(text, names, settings)
            with self._lock:
                self._known[key] = _Known()
                while len(self._known) > _KEYS_MAX:
                    self._known.popitem(last=False)
            return plan
        if known.failures >= _FAILURES_MAX:
            return self._bind(text, names, settings)
        template = self._template(known, runs)
        if template is None or not template.asked.would_hear_the_same(names):
            return self._learn(known, text, runs, names, settings)
        plan_ = template.fill(text, runs)
        if plan_ is None:
            return self._bind(text, names, settings)
        self.filled += 1
        return plan_

    def _template(self, known: _Known, runs: Sequence[str]) -> Template | None:
        fixed = known.fixed
        if fixed is None:
            return None
        return known.templates.get(tuple([runs[number] for number in fixed]))

    def _learn(self, known: _Known, text: str, runs: Sequence[str], names: Names, settings: Settings | None) -> Plan:
        """Bind a text whose key was seen before, and find out what the next one with that key needs."""
        asked = Asked(names)
        plan = self._bind(text, asked, settings)
        template = _template_of(self._bind, text, runs, plan, asked)
        with self._lock:
            if template is None:
                known.failures += 1
                return plan
            if known.fixed != template.fixed:
                known.fixed = template.fixed
                known.templates.clear()
            known.templates[tuple(runs[number] for number in template.fixed)] = template
            while len(known.templates) > _TEMPLATES_PER_KEY_MAX:
                known.templates.popitem(last=False)
        return plan


def _template_of(bind: Bind, text: str, runs: Sequence[str], plan: Plan, asked: Asked) -> Template | None:
    """What texts like this one have in common; None when they have no holes."""
    holes = _holes(text)
    begin = text.find(plan.sql)
    if begin < 0:
        return None
    end = len(text) - begin - len(plan.sql)
    for _ in range(_TRIES_MAX):
        if not holes:
            return None
        numbers = {hole: str(_SENTINEL + 7 * at) + (".5" if hole.decimal else "") for at, hole in enumerate(holes)}
        try:
            tried = bind(_with_numbers(text, numbers), asked, None)
        except LadleError:
            return None
        specs = [_specs(scan, numbers, asked) for scan in tried.scans]
        seen = {spec[0] for own in specs for spec in own if not isinstance(spec, Factor)}
        # A number that is anywhere else, also in a factor of another form, is part of the key.
        others = repr([spec for own in specs for spec in own if isinstance(spec, Factor)])
        elsewhere = f"{_without_factors(tried)} {others}"
        found = [hole for hole in holes if hole in seen and numbers[hole] not in elsewhere]
        if len(found) == len(holes):
            fixed = tuple(sorted(set(range(len(runs))) - {run for hole in holes for run in hole.runs}))
            template = Template(fixed, plan, tuple(specs), asked, begin, end)
            same = _without_factors(tried) == _without_factors(plan) and template.makes(plan, text, runs)
            return template if same else None
        holes = found
    return None


def _specs(scan: Scan, numbers: dict[Hole, str], asked: Asked) -> tuple[FactorSpec, ...]:
    found = asked.stream_schema(scan.block.stream)
    assert found is not None, f"stream {scan.block.stream} of a bound plan"
    by_number = {number: hole for hole, number in numbers.items()}
    specs: list[FactorSpec] = []
    for factor in scan.block.factors:
        comparison, literal = comparison_of(factor, found[1].arrow) or (None, "")
        hole = by_number.get(literal)
        specs.append(factor if comparison is None or hole is None else (hole, comparison))
    return tuple(specs)


def _without_factors(plan: Plan) -> Plan:
    return replace(plan, sql="", scans=tuple(replace(scan, block=Block(scan.block.stream)) for scan in plan.scans))


def _with_numbers(text: str, numbers: dict[Hole, str]) -> str:
    parts = []
    at = 0
    for hole, number in sorted(numbers.items(), key=lambda pair: pair[0].start):
        found = _APART.match(text, hole.start)
        assert found is not None
        parts += [text[at : hole.start], number]
        at = found.end()
    return "".join([*parts, text[at:]])


def _holes(text: str) -> list[Hole]:
    """The numbers that are tokens by themselves, apart from letters, points and other digits, beside a comparison."""
    starts = {match.start(): number for number, match in enumerate(_RUN.finditer(text))}
    holes = []
    for chunk in chunks(text):
        for at, token in enumerate(chunk.tokens):
            number = starts.get(token.start)
            if token.token_type != TokenType.NUMBER or number is None or not _APART.fullmatch(token.text):
                continue
            if text[token.start : token.end + 1] != token.text or _touches(text, token):
                continue
            if _is_compared(chunk.tokens, at):
                holes.append(Hole(number, token.start, "." in token.text))
    return holes


def _touches(text: str, token: Token) -> bool:
    """Whether a letter or point is beside it: then other digits might make another token."""
    before, after = text[token.start - 1 : token.start], text[token.end + 1 : token.end + 2]
    return any(beside in (".", "_") or beside.isalnum() for beside in (before, after))


_COMPARED = {TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE}


def _is_compared(tokens: Sequence[Token], at: int) -> bool:
    """Whether a number stands beside a comparison, maybe with a sign."""
    first = at - 1 if at and tokens[at - 1].token_type == TokenType.DASH else at
    before = tokens[first - 1].token_type if first else None
    after = tokens[at + 1].token_type if at + 1 < len(tokens) else None
    return before in _COMPARED or after in _COMPARED
