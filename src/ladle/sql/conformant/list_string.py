"""The part of the list about strings: Spark and DuckDB both count code points, and compare bytes."""

from __future__ import annotations

import pyarrow as pa

from ladle.sql.conformant.entries import Arguments, Entry, Int, String, Stringable, literal_of
from ladle.sql.conformant.letter_case import (
    CASED,
    IGNORABLE,
    LOWER_FROM,
    LOWER_SPLIT,
    LOWER_TO,
    NEITHER,
    UPPER_FROM,
    UPPER_SPLIT,
    UPPER_TO,
)
from ladle.sql.conformant.spark_types import BOOLEAN, INT, STRING, NotConformant, Typed

REPEAT_MAX = 10_000
"""Longer results of lpad, rpad and repeat are left to Spark: one row must not fill memory here."""

_Times = literal_of("-1", "0", "1", "3", "12", types=(INT,))
_Pattern = literal_of(
    "'a%'", "'%b%'", "'_'", "'a_b'", "''", "'%'", "'abc'", "'%c'", "'a\\\\%b'", "'__'", "'%é%'", "'%\\\\_%'",
    types=(STRING,),
)  # fmt: skip
_Escaped = literal_of("'a!%b'", "'!_%'", "'%!!%'", types=(STRING,))
_EscapeCharacter = literal_of("'!'", types=(STRING,))


def _joined(arguments: Arguments, type_: pa.DataType) -> str:
    return "(" + " || ".join(a.sql for a in arguments) + ")"


def _bounded(value: Typed) -> int:
    if not isinstance(value.constant, int) or value.constant > REPEAT_MAX:
        raise NotConformant(f"a length of more than {REPEAT_MAX} or not constant")
    return max(value.constant, 0)


def _substring(arguments: Arguments, type_: pa.DataType) -> str:
    """Position 0 is 1, a negative one counts from the end, and what is before the string counts towards the length."""
    text, position = arguments[0].sql, arguments[1]
    size = f"length({text})"
    if isinstance(position.constant, int):
        given = position.constant
        start = str(given - 1) if given > 0 else "0" if given == 0 else f"({size} - {-given})"
    else:
        at = f"CAST({position.sql} AS BIGINT)"
        start = f"(CASE WHEN {at} > 0 THEN {at} - 1 WHEN {at} < 0 THEN {size} + {at} ELSE 0 END)"
    first = f"greatest({start}, 0)"
    # Without a length Spark takes the largest INT, which a position far before the string uses up.
    wanted = f"CAST({arguments[2].sql} AS BIGINT)" if len(arguments) > 2 else "CAST(2147483647 AS BIGINT)"
    count = f"greatest({start} + {wanted} - {first}, 0)"
    cut = f"substring({text}, {first} + 1, least({count}, {size}))"
    nullable = [a.sql for a in arguments if a.constant is None]
    # greatest and least skip NULLs.
    return (
        f"(CASE WHEN {' OR '.join(f'{sql} IS NULL' for sql in nullable)} THEN NULL ELSE {cut} END)" if nullable else cut
    )


def _side(name: str) -> str:
    return f"(CASE WHEN {{1}} IS NULL THEN NULL ELSE {name}({{0}}, greatest({{1}}, 0)) END)"


def _pad(name: str) -> Entry:
    def sql(arguments: Arguments, type_: pa.DataType) -> str:
        text, fill = arguments[0].sql, arguments[2].sql
        length = _bounded(arguments[1])
        padded = f"{name}({text}, {length}, {fill})"
        return (
            f"(CASE WHEN {text} IS NULL OR {fill} IS NULL THEN NULL WHEN length({text}) >= {length} "
            f"THEN left({text}, {length}) WHEN {fill} = '' THEN {text} ELSE {padded} END)"
        )

    return Entry(name, (String, _Times, String), STRING, sql, f"{name}({{0}}, {{1}}, {{2}})")


def _pad_spaces(name: str) -> Entry:
    return Entry(name, (String, _Times), STRING, lambda a, t: _padded(name, a), f"{name}({{0}}, {{1}})")


def _padded(name: str, arguments: Arguments) -> str:
    text, length = arguments[0].sql, _bounded(arguments[1])
    return f"(CASE WHEN length({text}) >= {length} THEN left({text}, {length}) ELSE {name}({text}, {length}, ' ') END)"


def _like(arguments: Arguments, type_: pa.DataType) -> str:
    pattern = arguments[1].constant
    escape = arguments[2].constant if len(arguments) > 2 else "\\"
    if not isinstance(pattern, str) or not isinstance(escape, str) or len(escape) != 1 or escape in "%_":
        raise NotConformant("LIKE with a pattern or escape that is not a plain constant")
    at = 0
    while at < len(pattern):
        # Spark raises on an escape before any other character, DuckDB takes that character.
        if pattern[at] == escape:
            if at + 1 == len(pattern) or pattern[at + 1] not in ("%", "_", escape):
                raise NotConformant("LIKE with an escape that Spark refuses")
            at += 1
        at += 1
    quoted = escape.replace("'", "''")
    return f"({arguments[0].sql} LIKE {arguments[1].sql} ESCAPE '{quoted}')"


def _is_ascii(text: str) -> str:
    return f"strlen({text}) = length({text})"


def _upper(arguments: Arguments, type_: pa.DataType) -> str:
    text = arguments[0].sql
    mapped = f"translate({text}, '{UPPER_FROM}', '{UPPER_TO}')"
    for word in UPPER_SPLIT.split(" "):
        mapped = f"replace({mapped}, '{word[0]}', '{word[1:]}')"
    return f"(CASE WHEN {_is_ascii(text)} THEN upper({text}) ELSE upper({mapped}) END)"


def _lower(arguments: Arguments, type_: pa.DataType) -> str:
    """A capital sigma after a letter, and before none, is a final one; apart from that letters stand for themselves."""
    text = arguments[0].sql
    plain = f"translate({text}, '{NEITHER}', '{' ' * len(NEITHER)}')"
    after = f"regexp_matches(({plain})[1:i - 1], '[{CASED}][{IGNORABLE}]*\\z')"
    before = f"regexp_matches(({plain})[i + 1:], '\\A[{IGNORABLE}]*[{CASED}]')"
    letter = f"CASE WHEN ({text})[i] = 'Σ' AND {after} AND NOT {before} THEN 'ς' ELSE ({text})[i] END"
    final = f"array_to_string(list_transform(range(1, length({text}) + 1), lambda i: {letter}), '')"
    sigma = f"WHEN contains({text}, 'Σ') THEN {_lowered(final)}"
    return f"(CASE WHEN {_is_ascii(text)} THEN lower({text}) {sigma} ELSE {_lowered(text)} END)"


def _lowered(text: str) -> str:
    whole, parts = LOWER_SPLIT
    return f"lower(replace(translate({text}, '{LOWER_FROM}', '{LOWER_TO}'), '{whole}', '{parts}'))"


def _trims(name: str) -> tuple[Entry, ...]:
    position = {"trim": "BOTH", "ltrim": "LEADING", "rtrim": "TRAILING"}[name]
    return (
        Entry(name, (String,), STRING, f"{name}({{0}}, ' ')", f"{name}({{0}})"),
        Entry(name, (String, String), STRING, f"{name}({{1}}, {{0}})", f"trim({position} {{0}} FROM {{1}})"),
    )


STRINGS: tuple[Entry, ...] = (
    Entry("length", (String,), INT, "CAST(length({0}) AS INTEGER)", "length({0})"),
    Entry("octet_length", (String,), INT, "CAST(strlen({0}) AS INTEGER)", "octet_length({0})"),
    Entry("bit_length", (String,), INT, "CAST(8 * strlen({0}) AS INTEGER)", "bit_length({0})"),
    Entry("concat", (Stringable,), STRING, _joined, "concat({all})", variadic=True),
    Entry("concat_ws", (String, String), STRING, "concat_ws({all})", "concat_ws({all})", variadic=True),
    Entry("startswith", (String, String), BOOLEAN, "starts_with({0}, {1})", "startswith({0}, {1})"),
    Entry("endswith", (String, String), BOOLEAN, "suffix({0}, {1})", "endswith({0}, {1})"),
    Entry("contains", (String, String), BOOLEAN, "contains({0}, {1})", "contains({0}, {1})"),
    Entry("substring", (String, Int), STRING, _substring, "substring({0}, {1})"),
    Entry("substring", (String, Int, Int), STRING, _substring, "substring({0}, {1}, {2})"),
    Entry("left", (String, Int), STRING, _side("left"), "left({0}, {1})"),
    Entry("right", (String, Int), STRING, _side("right"), "right({0}, {1})"),
    Entry("replace", (String, String, String), STRING, "replace({0}, {1}, {2})", "replace({0}, {1}, {2})"),
    Entry("instr", (String, String), INT, "CAST(instr({0}, {1}) AS INTEGER)", "instr({0}, {1})"),
    Entry("locate", (String, String), INT, "CAST(instr({1}, {0}) AS INTEGER)", "locate({0}, {1})"),
    Entry("repeat", (String, _Times), STRING, lambda a, t: f"repeat({a[0].sql}, {_bounded(a[1])})", "repeat({0}, {1})"),
    Entry("upper", (String,), STRING, _upper, "upper({0})"),
    Entry("lower", (String,), STRING, _lower, "lower({0})"),
    Entry("ascii", (String,), INT, "CAST(ascii({0}) AS INTEGER)", "ascii({0})"),
    Entry("md5", (String,), STRING, "md5({0})", "md5({0})"),
    Entry("translate", (String, String, String), STRING, "translate({0}, {1}, {2})", "translate({0}, {1}, {2})"),
    *_trims("trim"),
    *_trims("ltrim"),
    *_trims("rtrim"),
    Entry("btrim", (String,), STRING, "trim({0}, ' ')", "btrim({0})"),
    Entry("btrim", (String, String), STRING, "trim({0}, {1})", "btrim({0}, {1})"),
    _pad("lpad"),
    _pad("rpad"),
    _pad_spaces("lpad"),
    _pad_spaces("rpad"),
    Entry("like", (String, _Pattern), BOOLEAN, _like, "({0} LIKE {1})"),
    Entry("like", (String, _Escaped, _EscapeCharacter), BOOLEAN, _like, "({0} LIKE {1} ESCAPE {2})"),
)
