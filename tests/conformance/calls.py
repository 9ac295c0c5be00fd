"""Calls generated from the list: every entry on columns of each combination of the types it accepts."""

from __future__ import annotations

import itertools
import random
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
import sqlglot
from tests.conformance.values import COPIES, name_of, table

from ladle.errors import TypeMismatch
from ladle.schema import type_name
from ladle.sql.conform import NotConformant, Translated, translate_query
from ladle.sql.conformant.casts import CASTS
from ladle.sql.conformant.signatures import Param, Signature
from ladle.sql.conformant.the_list import LIST
from ladle.sql.dialect import DIALECT

COMBINATIONS_MAX = 80
"""Of an entry of three arguments: beyond it a fixed random part is tried. Pairs are tried in full."""


@dataclass(frozen=True)
class Case:
    label: str
    spark: str
    translated: Translated
    entry: Signature | None = None

    @property
    def expression(self) -> str:
        """The one projection of the translated query."""
        return self.translated.sql.removeprefix("SELECT ").rsplit(' AS "r" FROM ', 1)[0]


SCHEMA: pa.Schema = table().schema


def translated(text: str, clause: str = "") -> Translated:
    tree = sqlglot.parse_one(f"SELECT {text} AS r FROM v {clause}", dialect=DIALECT)
    return translate_query(tree, {"v": SCHEMA})


def _choices(param: Param, copy: str) -> list[tuple[str, str]]:
    if param.literals:
        return [(text, text) for text in param.literals]
    return [(f"v.{name_of(type_, copy)}", type_name(type_)) for type_ in param.types]


def _calls(entry: Signature) -> list[tuple[str, str]]:
    params = entry.params + ((entry.params[-1],) if entry.variadic else ())
    combinations = list(itertools.product(*(_choices(p, COPIES[i % 3]) for i, p in enumerate(params))))
    if len(params) > 2 and len(combinations) > COMBINATIONS_MAX:
        combinations = random.Random(entry.name).sample(combinations, COMBINATIONS_MAX)
    found = []
    for combination in combinations:
        texts = [text for text, _ in combination]
        label = f"{entry.name}({', '.join(name for _, name in combination)})"
        found.append((label, entry.spark.format(*texts, all=", ".join(texts))))
    return found


def scalar_cases() -> list[Case]:
    """Calls that translate. A combination that is NotConformant runs in Spark and needs no proof, and which ones are
    refused is another test's subject."""
    cases: dict[str, Case] = {}
    for entry in LIST:
        if not entry.aggregate and entry.spark:
            for label, text in _calls(entry):
                _add(cases, label, text, entry)
    for label, text in _beside_strings():
        _add(cases, label, text, None)
    return list(cases.values())


def _add(cases: dict[str, Case], label: str, text: str, entry: Signature | None) -> None:
    with suppress(NotConformant, TypeMismatch):
        cases[text] = Case(label, text, translated(text), entry)


def _beside_strings() -> list[tuple[str, str]]:
    """Arithmetic of strings and numbers: the binder casts the string before it looks for an entry."""
    numbers = (pa.int8(), pa.int64(), pa.float64(), pa.decimal128(12, 4))
    found = []
    for symbol, type_ in itertools.product(("+", "-", "*", "/", "%", "div", "&"), numbers):
        number = f"v.{name_of(type_, 'b')}"
        # not the same two both ways round: Spark would compute a sum once for both
        found.append((f"STRING {symbol} {type_name(type_)}", f"(v.{name_of(pa.string(), 'a')} {symbol} {number})"))
        found.append((f"{type_name(type_)} {symbol} STRING", f"({number} {symbol} v.{name_of(pa.string(), 'c')})"))
    return found


def cast_cases() -> list[Case]:
    cases = []
    for entry in CASTS:
        for source, target in itertools.product(entry.sources, entry.targets):
            if source == target:
                continue
            for word, copy in (("CAST", "a"), ("CAST", "c"), ("try_cast", "a"), ("try_cast", "c")):
                text = f"{word}(v.{name_of(source, copy)} AS {type_name(target)})"
                cases.append(Case(f"{word}({type_name(source)} AS {type_name(target)})", text, translated(text)))
    return cases


def aggregate_cases() -> list[Case]:
    cases = []
    for entry in LIST:
        if entry.aggregate and entry.spark:
            for label, text in _calls(entry):
                forms = [(label, text)]
                if entry.distinct:
                    forms.append((f"{label} DISTINCT", text.replace("(", "(DISTINCT ", 1)))
                forms.append((f"{label} FILTER", f"{text} FILTER (WHERE v.{name_of(pa.bool_(), 'c')})"))
                for name, form in forms:
                    try:
                        cases.append(Case(name, form, translated(form, "GROUP BY v.k"), entry))
                    except NotConformant:
                        continue
    return cases
