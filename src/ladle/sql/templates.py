"""Templates: standing queries that differ in numbers, texts and times alone are parsed and bound once.

A template is a text in *pieces*, with holes between them. The holes are those constants of plain comparisons
(`column < 5`) that became factors, and nothing else; the tokenizer said where they are. A text is made of the template
when it has the same pieces, and constants of the same form between them: a piece begins and ends with what is no part
of a number or word, or with the quotes of a text without escapes, so its tokens are the same but for those constants.
That a hole has no other influence is not argued but tried: the text is bound once more with other constants in the
holes, and nothing but those factors may have changed.

Anything unusual is bound in full, and so is the first text of its kind. A template holds what was asked of the catalog
while it was made, and is used only where the answers are the same.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from enum import Enum
from weakref import ReferenceType, ref

from sqlglot.tokenizer_core import Token, TokenType

from ladle.config import Settings
from ladle.errors import LadleError
from ladle.plan import Block, Factor, Function, Plan, Scan
from ladle.schema import StreamSchema, TableSchema
from ladle.sql.names import Names
from ladle.sql.numeric_factors import Comparison, comparison_of
from ladle.sql.script import chunks

Bind = Callable[[str, Names, Settings | None], Plan]

_TEXT_MAX = 20_000
"""Longer texts are seldom written twice, and to learn from one it is bound several times."""
_KEYS_MAX = 4_096
_TEMPLATES_PER_KEY_MAX = 64
_TRIES_MAX = 4
"""Numbers that turn out to matter elsewhere too become part of the pieces, and the rest is tried again."""

_FAILURES_MAX = 3
"""After so many texts without holes no more are looked for; one alone may have had an unusual number in it."""

_CONSTANT_MAX = 200
"""Longer texts are unusual, and left to the binder."""
_ESCAPES = frozenset("'\\")
_COMPARING = ("=", "<", ">")
_NO_DIGITS = dict.fromkeys(map(ord, "0123456789"))
_SENTINEL = 900_000_000
"""Numbers of nine digits are what a statement is bound with to find its holes."""
_FIRST_DAY = date(1947, 3, 9)
"""The first of the days that take the place of times."""


class RememberedNames:
    """Answers for the binder, remembered."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self.streams: dict[str, tuple[str, StreamSchema] | None] = {}
        self.tables: dict[str, tuple[str, TableSchema] | None] = {}
        self.queries: dict[str, tuple[str, str] | None] = {}
        self.functions: dict[str, Function | None] = {}
        self.listed: tuple[str, ...] | None = None
        self.within: dict[str, RememberedNames] = {}
        self._agrees: ReferenceType[Names] | None = None
        """The last names that gave the same answers. They never change, and thousands of texts come with the same."""

    def stream_schema(self, name: str) -> tuple[str, StreamSchema] | None:
        """What a stream's name means. The answer is remembered."""
        return self.streams.setdefault(name, self._names.stream_schema(name))

    def table_schema(self, name: str) -> tuple[str, TableSchema] | None:
        """What a table's name means. The answer is remembered."""
        return self.tables.setdefault(name, self._names.table_schema(name))

    def query_sql(self, name: str) -> tuple[str, str] | None:
        """What a standing query's name means. The answer is remembered."""
        return self.queries.setdefault(name, self._names.query_sql(name))

    def inside(self, query: str) -> RememberedNames:
        """The names inside of a standing query, asked in the same way."""
        return self.within.setdefault(query, RememberedNames(self._names.inside(query)))

    def function(self, name: str) -> Function | None:
        """What a function's name means. The answer is remembered."""
        return self.functions.setdefault(name, self._names.function(name))

    def stream_names(self) -> Iterable[str]:
        """The names of the streams, for errors."""
        return self._names.stream_names()

    def table_names(self) -> Iterable[str]:
        """The names of the tables, for errors."""
        return self._names.table_names()

    def query_names(self) -> Iterable[str]:
        """The names of the standing queries, for errors."""
        return self._names.query_names()

    def function_names(self) -> Iterable[str]:
        """The names of the functions, which are remembered."""
        if self.listed is None:
            self.listed = tuple(self._names.function_names())
        return self.listed

    def would_hear_the_same(self, names: Names) -> bool:
        """Whether these names give the answers that were given."""
        if self._agrees is not None and self._agrees() is names:
            return True
        same = (
            all(_same(names.stream_schema(name), found) for name, found in self.streams.items())
            and all(names.table_schema(name) == found for name, found in self.tables.items())
            and all(names.query_sql(name) == found for name, found in self.queries.items())
            and all(names.function(name) == found for name, found in self.functions.items())
            and (self.listed is None or tuple(names.function_names()) == self.listed)
            and all(asked.would_hear_the_same(names.inside(query)) for query, asked in self.within.items())
        )
        if same:
            self._agrees = ref(names)
        return same


def _same(one: tuple[str, StreamSchema] | None, other: tuple[str, StreamSchema] | None) -> bool:
    if one is None or other is None:
        return one is other
    return one[0] == other[0] and (one[1] is other[1] or one[1] == other[1])


class Form(Enum):
    """What a constant has to look like."""

    INTEGER = "integer"
    DECIMAL = "decimal"
    """With a point, and digits on both sides of it."""
    TEXT = "text"
    TIME = "time"
    """A text that begins as a day does. Where texts are compared it is one like any other."""

    def fits(self, text: str) -> bool:
        """Whether a constant's text has this form."""
        match self:
            case Form.TEXT | Form.TIME:
                return len(text) <= _CONSTANT_MAX and not _ESCAPES & set(text)
            case Form.INTEGER:
                return text.isascii() and text.isdigit()
        whole, _, fraction = text.partition(".")
        return text.isascii() and whole.isdigit() and fraction.isdigit()

    def sentinel(self, at: int) -> str:
        """A constant that a statement is bound with to find its holes."""
        if self is Form.TIME:
            return (_FIRST_DAY + timedelta(at)).isoformat()
        number = f"{_SENTINEL + 7 * at}"
        return {Form.INTEGER: number, Form.DECIMAL: f"{number}.5", Form.TEXT: f"ladle {number}"}[self]


@dataclass(frozen=True)
class Hole:
    """A number in a statement, or what is between the quotes of a text."""

    start: int
    end: int
    form: Form


FactorSpec = Factor | tuple[int, Comparison]
"""A factor, or the comparison that becomes one with what is in a hole."""


@dataclass(frozen=True)
class Template:
    """A standing query with holes for its numbers, and the plan into which they are filled."""

    pieces: tuple[str, ...]
    """What stands before, between and after the holes."""
    forms: tuple[Form, ...]
    """Of the constants in each hole."""
    plan: Plan
    specs: tuple[tuple[FactorSpec, ...], ...]
    """Of each scan."""
    asked: RememberedNames
    begin: int
    """How many characters of the text stand before and after the query itself."""
    end: int

    def literals(self, text: str) -> list[str] | None:
        """What a text has in the holes; None when it is not made of these pieces."""
        first, *rest = self.pieces
        if not text.startswith(first):
            return None
        found = []
        at = len(first)
        for form, piece in zip(self.forms, rest, strict=True):
            end = text.find(piece[0], at) if piece else len(text)
            constant = text[at:end]
            if end < 0 or not form.fits(constant) or not text.startswith(piece, end):
                return None
            found.append(constant)
            at = end + len(piece)
        return found if at == len(text) else None

    def fill(self, text: str, literals: Sequence[str]) -> Plan | None:
        """The plan of a text with these constants in the holes; None when one is of an unusual kind."""
        scans = []
        for scan, specs in zip(self.plan.scans, self.specs, strict=True):
            factors: dict[str, Factor] = {}
            for spec in specs:
                factor = spec if isinstance(spec, Factor) else spec[1].factor(literals[spec[0]])
                if factor is None:
                    return None
                # As in WHERE, of equal factors the first one counts.
                factors.setdefault(factor.sql, factor)
            block = Block(scan.block.stream, tuple(factors.values()))
            scans.append(replace(scan, block=block))
        plan = self.plan
        sql = text[self.begin : len(text) - self.end]
        shared = (plan.residual, plan.schema, plan.queries, plan.functions, plan.joined, plan.tables, plan.nows)
        return Plan(sql, tuple(scans), *shared)

    def makes(self, plan: Plan, text: str) -> bool:
        """Whether it gives the plan that the binder gave."""
        literals = self.literals(text)
        filled = None if literals is None else self.fill(text, literals)
        # Factors are compared by their texts; here their ranges must be the same too.
        return (
            filled is not None
            and filled == plan
            and [f.ranges for s in filled.scans for f in s.block.factors]
            == [f.ranges for s in plan.scans for f in s.block.factors]
        )


def _key(text: str) -> str:
    """A statement without its digits, and without the texts that stand behind a comparison."""
    parts = text.split("'")
    for at in range(1, len(parts) - 1, 2):
        if parts[at - 1].rstrip().endswith(_COMPARING):
            parts[at] = "?"
    return "'".join(parts).translate(_NO_DIGITS)


class _TemplateTexts:
    """What is known of statements with one key."""

    def __init__(self) -> None:
        self.templates: Mapping[tuple[object, ...], Template] = {}
        """By pieces, the newest first. Read without a lock, so it is replaced and never changed."""
        self.failures = 0


class Templates:
    """A bounded cache; any thread may use it."""

    def __init__(self, bind: Bind) -> None:
        self._bind = bind
        self._lock = threading.Lock()
        self._known: OrderedDict[str, _TemplateTexts] = OrderedDict()
        self.filled = 0
        """Texts that needed no parser."""

    def bind(self, text: str, names: Names, settings: Settings | None = None) -> Plan:
        """Bind a text; one that differs in numbers alone from another is not parsed again."""
        # That texts have the same key says only that they are worth a look: what they are, their pieces say.
        key = _key(text) if len(text) <= _TEXT_MAX else text
        if key == text:
            return self._bind(text, names, settings)
        with self._lock:
            known = self._known.get(key)
            if known is not None:
                self._known.move_to_end(key)
        if known is None:
            plan = self._bind(text, names, settings)
            with self._lock:
                self._known[key] = _TemplateTexts()
                while len(self._known) > _KEYS_MAX:
                    self._known.popitem(last=False)
            return plan
        if known.failures >= _FAILURES_MAX:
            return self._bind(text, names, settings)
        for template in known.templates.values():
            literals = template.literals(text)
            if literals is not None and template.asked.would_hear_the_same(names):
                filled = template.fill(text, literals)
                if filled is None:
                    return self._bind(text, names, settings)
                self.filled += 1
                return filled
        return self._learn(known, text, names, settings)

    def _learn(self, known: _TemplateTexts, text: str, names: Names, settings: Settings | None) -> Plan:
        """Bind a text whose key was seen before, and find out what the next one with that key needs."""
        asked = RememberedNames(names)
        plan = self._bind(text, asked, settings)
        template = _template_of(self._bind, text, plan, asked)
        with self._lock:
            if template is None:
                known.failures += 1
                return plan
            own = (template.pieces, template.forms)
            others = [(pieces, other) for pieces, other in known.templates.items() if pieces != own]
            known.templates = {own: template, **dict(others[: _TEMPLATES_PER_KEY_MAX - 1])}
        return plan


def _template_of(bind: Bind, text: str, plan: Plan, asked: RememberedNames) -> Template | None:
    """What texts like this one have in common; None when they have no holes."""
    holes = _holes(text)
    begin = text.find(plan.sql)
    if begin < 0:
        return None
    end = len(text) - begin - len(plan.sql)
    for _ in range(_TRIES_MAX):
        if not holes:
            return None
        pieces = _pieces(text, holes)
        forms = tuple(hole.form for hole in holes)
        numbers = [form.sentinel(at) for at, form in enumerate(forms)]
        try:
            tried = bind(_joined(pieces, numbers), asked, None)
        except LadleError:
            # A text may be one that is cast, as to a number or a date.
            cast = next((form for form in (Form.TEXT, Form.TIME) if form in forms), None)
            if cast is None:
                return None
            holes = [hole for hole in holes if hole.form is not cast]
            continue
        specs = [_specs(scan, numbers, asked) for scan in tried.scans]
        seen = {spec[0] for own in specs for spec in own if not isinstance(spec, Factor)}
        # A number that is anywhere else, also in a factor of another form, is part of the pieces.
        others = repr([spec for own in specs for spec in own if isinstance(spec, Factor)])
        elsewhere = f"{_without_factors(tried)} {others}"
        found = [hole for at, hole in enumerate(holes) if at in seen and numbers[at] not in elsewhere]
        if len(found) == len(holes):
            template = Template(pieces, forms, plan, tuple(specs), asked, begin, end)
            same = _without_factors(tried) == _without_factors(plan) and template.makes(plan, text)
            return template if same else None
        holes = found
    return None


def _pieces(text: str, holes: Sequence[Hole]) -> tuple[str, ...]:
    starts = [0, *(hole.end for hole in holes)]
    ends = [*(hole.start for hole in holes), len(text)]
    return tuple(text[start:end] for start, end in zip(starts, ends, strict=True))


def _joined(pieces: Sequence[str], numbers: Sequence[str]) -> str:
    return "".join([part for pair in zip(pieces, numbers, strict=False) for part in pair]) + pieces[-1]


def _specs(scan: Scan, numbers: Sequence[str], asked: RememberedNames) -> tuple[FactorSpec, ...]:
    found = asked.stream_schema(scan.block.stream)
    assert found is not None, f"stream {scan.block.stream} of a bound plan"
    by_number = {number: at for at, number in enumerate(numbers)}
    specs: list[FactorSpec] = []
    for factor in scan.block.factors:
        comparison, literal = comparison_of(factor, found[1].arrow) or (None, "")
        hole = by_number.get(literal)
        specs.append(factor if comparison is None or hole is None else (hole, comparison))
    return tuple(specs)


def _without_factors(plan: Plan) -> Plan:
    return replace(plan, sql="", scans=tuple(replace(scan, block=Block(scan.block.stream)) for scan in plan.scans))


def _holes(text: str) -> list[Hole]:
    """The numbers that are tokens by themselves, apart from letters, points and other digits, beside a comparison; and
    the texts without escapes that stand behind one, also times.
    """
    holes = []
    for chunk in chunks(text):
        for at, token in enumerate(chunk.tokens):
            written = text[token.start : token.end + 1]
            if token.token_type == TokenType.STRING:
                if _stands_behind(chunk.tokens, at) and written == f"'{token.text}'" and Form.TEXT.fits(token.text):
                    form = Form.TIME if token.text[:4].isdigit() and token.text[4:5] == "-" else Form.TEXT
                    holes.append(Hole(token.start + 1, token.end, form))
                continue
            form = Form.DECIMAL if "." in token.text else Form.INTEGER
            if token.token_type != TokenType.NUMBER or not form.fits(token.text):
                continue
            if written == token.text and not _touches(text, token) and _is_compared(chunk.tokens, at):
                holes.append(Hole(token.start, token.end + 1, form))
    return holes


def _touches(text: str, token: Token) -> bool:
    """Whether a letter or point is beside it: then other digits might make another token."""
    before, after = text[token.start - 1 : token.start], text[token.end + 1 : token.end + 2]
    return any(beside in (".", "_") or beside.isalnum() for beside in (before, after))


_COMPARED = {TokenType.EQ, TokenType.NEQ, TokenType.LT, TokenType.LTE, TokenType.GT, TokenType.GTE}


_TYPES_OF_TIMES = {"DATE", "TIMESTAMP", "TIMESTAMP_NTZ", "TIMESTAMP_LTZ"}


def _stands_behind(tokens: Sequence[Token], at: int) -> bool:
    """Whether a text stands behind a comparison, maybe with the type of a time before it."""
    first = at - 1 if at and tokens[at - 1].text.upper() in _TYPES_OF_TIMES else at
    return first > 0 and tokens[first - 1].token_type in _COMPARED


def _is_compared(tokens: Sequence[Token], at: int) -> bool:
    """Whether a number stands beside a comparison, maybe with a sign."""
    first = at - 1 if at and tokens[at - 1].token_type == TokenType.DASH else at
    before = tokens[first - 1].token_type if first else None
    after = tokens[at + 1].token_type if at + 1 < len(tokens) else None
    return before in _COMPARED or after in _COMPARED
