"""The part of the list about strings: Spark and DuckDB both count code points, and compare bytes."""

from __future__ import annotations

import pyarrow as pa

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
from ladle.sql.conformant.patterns import pattern
from ladle.sql.conformant.signatures import Arguments, Int, Signature, String, Stringable, literal_of
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


def _pad(name: str) -> Signature:
    def sql(arguments: Arguments, type_: pa.DataType) -> str:
        text, fill = arguments[0].sql, arguments[2].sql
        length = _bounded(arguments[1])
        padded = f"{name}({text}, {length}, {fill})"
        return (
            f"(CASE WHEN {text} IS NULL OR {fill} IS NULL THEN NULL WHEN length({text}) >= {length} "
            f"THEN left({text}, {length}) WHEN {fill} = '' THEN {text} ELSE {padded} END)"
        )

    return Signature(name, (String, _Times, String), STRING, sql, f"{name}({{0}}, {{1}}, {{2}})")


def _pad_spaces(name: str) -> Signature:
    return Signature(name, (String, _Times), STRING, lambda a, t: _padded(name, a), f"{name}({{0}}, {{1}})")


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


def _trims(name: str) -> tuple[Signature, ...]:
    position = {"trim": "BOTH", "ltrim": "LEADING", "rtrim": "TRAILING"}[name]
    return (
        Signature(name, (String,), STRING, f"{name}({{0}}, ' ')", f"{name}({{0}})"),
        Signature(name, (String, String), STRING, f"{name}({{1}}, {{0}})", f"trim({position} {{0}} FROM {{1}})"),
    )


_Delimiter = literal_of("'.'", "' '", "'b'", "'a'", types=(STRING,))
_Place = literal_of("1", "2", "-1", "3", "-2", types=(INT,))
_Count = literal_of("0", "1", "2", "-1", "-2", types=(INT,))
_InAnyCase = literal_of("'%A%'", "'_B%'", "'abc'", "'%stra%'", types=(STRING,))
_Regex = literal_of(
    "'[a-c]+'", "'(a)|(b)'", "'^a.*c'", "'[^a-z ]'", "'\\\\d+'", "'\\\\w+\\\\s?'", "'o{1,2}'", "'x*?X'",
    types=(STRING,),
)  # fmt: skip
_MoreRegex = literal_of("'b$'", "'a*'", "'^(abc|a)$'", "'.'", "''", types=(STRING,))
_TwoGroups = literal_of("'(a)([^b]*)'", "'([a-z]+) ?([a-z]*)'", "'(a)|(b)'", types=(STRING,))
_Group = literal_of("0", "1", "2", types=(INT,))
_Replacement = literal_of("''", "'-'", "'ab'", types=(STRING,))


def _constant_text(value: Typed) -> str:
    if not isinstance(value.constant, str):
        raise NotConformant("a pattern that is not a constant")
    return value.constant


def _quoted(text: str) -> str:
    doubled = text.replace("'", "''")
    return f"'{doubled}'"


def _matched(arguments: Arguments, type_: pa.DataType) -> str:
    return f"regexp_matches({arguments[0].sql}, {_quoted(pattern(_constant_text(arguments[1])).text)})"


def _extracted(arguments: Arguments, type_: pa.DataType) -> str:
    found = pattern(_constant_text(arguments[1]))
    group = arguments[2].constant if len(arguments) > 2 else 1
    if not isinstance(group, int) or not 0 <= group <= found.groups or (found.ends and group == 0):
        raise NotConformant("regexp_extract of this group")
    return f"regexp_extract({arguments[0].sql}, {_quoted(found.text)}, {group})"


def _replaced(arguments: Arguments, type_: pa.DataType) -> str:
    found, by = pattern(_constant_text(arguments[1])), _constant_text(arguments[2])
    if found.may_be_empty or found.ends or "$" in by or "\\" in by or "\\A" in found.text:
        raise NotConformant("regexp_replace of this pattern")
    return f"regexp_replace({arguments[0].sql}, {_quoted(found.text)}, {_quoted(by)}, 'g')"


def _split_part(arguments: Arguments, type_: pa.DataType) -> str:
    text, delimiter, place = arguments
    if not delimiter.constant or not isinstance(place.constant, int) or place.constant == 0:
        raise NotConformant("split_part of this form")
    return f"split_part({text.sql}, {delimiter.sql}, {place.constant})"


def _substring_index(arguments: Arguments, type_: pa.DataType) -> str:
    """A delimiter of one character, which can't overlap itself."""
    text, delimiter, count = arguments
    if len(_constant_text(delimiter)) != 1 or not isinstance(count.constant, int):
        raise NotConformant("substring_index of this form")
    if count.constant == 0:
        return f"(CASE WHEN {text.sql} IS NOT NULL THEN '' END)"
    kept = f"[1:{count.constant}]" if count.constant > 0 else f"[{count.constant}:]"
    return f"array_to_string((string_split({text.sql}, {delimiter.sql})){kept}, {delimiter.sql})"


def _in_any_case(arguments: Arguments, type_: pa.DataType) -> str:
    wanted = _constant_text(arguments[1])
    if not wanted.isascii() or "\\" in wanted:
        raise NotConformant("ILIKE with a pattern of this form")
    return f"({_lower(arguments[:1], type_)} LIKE {_quoted(wanted.lower())} ESCAPE '\\')"


def _reversed(arguments: Arguments, type_: pa.DataType) -> str:
    """By code points: DuckDB's own keeps what is shown as one letter together."""
    text = arguments[0].sql
    letters = f"list_transform(range(length({text}), 0, -1), lambda i: ({text})[i])"
    return f"(CASE WHEN {_is_ascii(text)} THEN reverse({text}) ELSE array_to_string({letters}, '') END)"


def _sha2(arguments: Arguments, type_: pa.DataType) -> str:
    if arguments[1].constant not in (0, 256):
        raise NotConformant("sha2 of this length")
    return f"sha256({arguments[0].sql})"


STRINGS: tuple[Signature, ...] = (
    Signature("length", (String,), INT, "CAST(length({0}) AS INTEGER)", "length({0})"),
    Signature("octet_length", (String,), INT, "CAST(strlen({0}) AS INTEGER)", "octet_length({0})"),
    Signature("bit_length", (String,), INT, "CAST(8 * strlen({0}) AS INTEGER)", "bit_length({0})"),
    Signature("concat", (Stringable,), STRING, _joined, "concat({all})", variadic=True),
    Signature("concat_ws", (String, String), STRING, "concat_ws({all})", "concat_ws({all})", variadic=True),
    Signature("startswith", (String, String), BOOLEAN, "starts_with({0}, {1})", "startswith({0}, {1})"),
    Signature("endswith", (String, String), BOOLEAN, "suffix({0}, {1})", "endswith({0}, {1})"),
    Signature("contains", (String, String), BOOLEAN, "contains({0}, {1})", "contains({0}, {1})"),
    Signature("substring", (String, Int), STRING, _substring, "substring({0}, {1})"),
    Signature("substring", (String, Int, Int), STRING, _substring, "substring({0}, {1}, {2})"),
    Signature("left", (String, Int), STRING, _side("left"), "left({0}, {1})"),
    Signature("right", (String, Int), STRING, _side("right"), "right({0}, {1})"),
    Signature("replace", (String, String, String), STRING, "replace({0}, {1}, {2})", "replace({0}, {1}, {2})"),
    Signature("instr", (String, String), INT, "CAST(instr({0}, {1}) AS INTEGER)", "instr({0}, {1})"),
    Signature("locate", (String, String), INT, "CAST(instr({1}, {0}) AS INTEGER)", "locate({0}, {1})"),
    Signature(
        "repeat", (String, _Times), STRING, lambda a, t: f"repeat({a[0].sql}, {_bounded(a[1])})", "repeat({0}, {1})"
    ),
    Signature("upper", (String,), STRING, _upper, "upper({0})"),
    Signature("lower", (String,), STRING, _lower, "lower({0})"),
    Signature("ascii", (String,), INT, "CAST(ascii({0}) AS INTEGER)", "ascii({0})"),
    Signature("md5", (String,), STRING, "md5({0})", "md5({0})"),
    Signature("translate", (String, String, String), STRING, "translate({0}, {1}, {2})", "translate({0}, {1}, {2})"),
    *_trims("trim"),
    *_trims("ltrim"),
    *_trims("rtrim"),
    Signature("btrim", (String,), STRING, "trim({0}, ' ')", "btrim({0})"),
    Signature("btrim", (String, String), STRING, "trim({0}, {1})", "btrim({0}, {1})"),
    _pad("lpad"),
    _pad("rpad"),
    _pad_spaces("lpad"),
    _pad_spaces("rpad"),
    Signature("like", (String, _Pattern), BOOLEAN, _like, "({0} LIKE {1})"),
    Signature("like", (String, _Escaped, _EscapeCharacter), BOOLEAN, _like, "({0} LIKE {1} ESCAPE {2})"),
    Signature("rlike", (String, _Regex), BOOLEAN, _matched, "({0} RLIKE {1})"),
    Signature("rlike", (String, _MoreRegex), BOOLEAN, _matched, "({0} RLIKE {1})"),
    Signature("regexp_extract", (String, _TwoGroups), STRING, _extracted, "regexp_extract({0}, {1})"),
    Signature("regexp_extract", (String, _TwoGroups, _Group), STRING, _extracted, "regexp_extract({0}, {1}, {2})"),
    Signature("regexp_replace", (String, _Regex, _Replacement), STRING, _replaced, "regexp_replace({0}, {1}, {2})"),
    Signature("split_part", (String, _Delimiter, _Place), STRING, _split_part, "split_part({0}, {1}, {2})"),
    Signature(
        "substring_index", (String, _Delimiter, _Count), STRING, _substring_index, "substring_index({0}, {1}, {2})"
    ),
    Signature("ilike", (String, _InAnyCase), BOOLEAN, _in_any_case, "({0} ILIKE {1})"),
    Signature("reverse", (String,), STRING, _reversed, "reverse({0})"),
    Signature("sha2", (String, literal_of("256", "0", types=(INT,))), STRING, _sha2, "sha2({0}, {1})"),
    Signature("sha1", (String,), STRING, "sha1({0})", "sha1({0})"),
)
