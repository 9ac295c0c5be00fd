"""`INSERT INTO name VALUES (...), ...` of plain literals, taken apart without the parser, a whole statement at a time.

Without backslashes and doubled quotes a quote begins or ends a text, and that is all it may do. So a statement is cut
at its quotes, and what is outside of them has to be nothing but the head, brackets, commas, blanks and literals:
numbers without exponents, TRUE, FALSE, NULL, and DATE or TIMESTAMP before a text. Anything else in it (a comment, an
expression, another kind of quote) is no such literal, and leaves the statement to the parser.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

_BLANKS = " \t\n\r\f\v"
_QUOTE = "'"
_ONE_BLANK = {ord(blank): " " for blank in _BLANKS}
_WORDS = frozenset(("NULL", "TRUE", "FALSE"))
_TIMES = frozenset(("DATE", "TIMESTAMP"))
_INSERT = [["INSERT", "INTO"], ["INSERT", "INTO", "TABLE"]]


@dataclass(frozen=True)
class LiteralRows:
    """A statement's literals as they are written, row after row, and where its rows begin and the statement ends."""

    target: str
    columns: tuple[str, ...] | None
    width: int
    """How many literals each row has."""
    literals: Sequence[str]
    begin: int
    end: int
    closed: bool
    """Whether it ends with a semicolon."""

    def column(self, number: int) -> Sequence[str]:
        """The literals of one column."""
        return self.literals[number :: self.width]

    def row(self, number: int) -> Sequence[str]:
        """The literals of one row."""
        return self.literals[number * self.width : (number + 1) * self.width]

    def at(self, text: str, row: int, column: int) -> int:
        """The offset of one literal."""
        at = self.begin
        for _ in range(row * self.width + column + 1):
            at = _after(text, at)
        return at


def _after(text: str, at: int) -> int:
    """Where the literal after the next bracket or comma outside of texts begins."""
    inside = False
    while inside or text[at] not in "(,":
        inside ^= text[at] == _QUOTE
        at += 1
    while text[at] in "(," or text[at] in _BLANKS:
        at += 1
    return at


def literal_rows(text: str, begin: int = 0) -> LiteralRows | None:
    """The statement that begins there, if it is one of plain literals."""
    head = _head(text, begin)
    if head is None:
        return None
    target, columns, at = head
    semicolon = _semicolon(text, at)
    end = len(text) if semicolon < 0 else semicolon
    body = text[at:end]
    if "\\" in body:
        return None
    parts = body.split(_QUOTE)
    # Each text is one quote in here. Two that touch are an escaped quote, or one text of two.
    outside = _QUOTE.join(parts[::2])
    if len(parts) % 2 == 0 or not outside.isascii() or _QUOTE * 2 in outside:
        return None
    rows = _rows(outside)
    if rows is None or len({len(row) for row in rows}) != 1:
        return None
    texts = iter(parts[1::2])
    literals = []
    for row in rows:
        for cell in row:
            literal = _literal(cell.strip(_BLANKS), texts)
            if literal is None:
                return None
            literals.append(literal)
    following = end if semicolon < 0 else semicolon + 1
    return LiteralRows(target, columns, len(rows[0]), literals, at, following, semicolon >= 0)


def _head(text: str, begin: int) -> tuple[str, tuple[str, ...] | None, int] | None:
    """`INSERT INTO [TABLE] name [(column, ...)] VALUES`: name, columns, and where the first row begins."""
    start = _skipped(text, begin)
    # Most other statements are known by their first word.
    bracket = text.find("(", begin) if text[start : start + 6].upper() == "INSERT" else -1
    if bracket < 0:
        return None
    words = _words(text[begin:bracket])
    columns = None
    if words and words[-1].upper() == "VALUES":
        words.pop()
    else:
        closing = text.find(")", bracket)
        columns = tuple(each.strip(_BLANKS) for each in text[bracket + 1 : closing].split(","))
        bracket = text.find("(", closing)
        if closing < 0 or bracket < 0 or text[closing + 1 : bracket].strip(_BLANKS).upper() != "VALUES":
            return None
    insert = [word.upper() for word in words[:-1]]
    names = [_name(each) for each in (words[-1:] if insert in _INSERT else []) + list(columns or ())]
    known = [name for name in names if name is not None]
    if not known or len(known) != len(names) or words[-1].upper() == "TABLE":
        return None
    return known[0], None if columns is None else tuple(known[1:]), bracket


def _skipped(text: str, at: int) -> int:
    """Where the next character is that is no blank."""
    while at < len(text) and text[at] in _BLANKS:
        at += 1
    return at


def _words(text: str) -> list[str]:
    return [word for word in text.translate(_ONE_BLANK).split(" ") if word]


def _name(word: str) -> str | None:
    """A name as it is without its quotes; None for one that is none, or an unusual one."""
    if len(word) > 2 and word[0] == word[-1] == "`":
        return None if "`" in word[1:-1] else word[1:-1]
    return word if word.isascii() and word.isidentifier() else None


def _semicolon(text: str, at: int) -> int:
    """The first semicolon outside of texts; -1 where there is none."""
    quotes, counted = 0, at
    semicolon = text.find(";", at)
    while semicolon >= 0:
        quotes += text.count(_QUOTE, counted, semicolon)
        if quotes % 2 == 0:
            break
        # Within a text: the next one to look at is behind its end.
        counted = text.find(_QUOTE, semicolon)
        semicolon = -1 if counted < 0 else text.find(";", counted)
    return semicolon


def _rows(outside: str) -> list[list[str]] | None:
    """The cells of each row; what they are is not looked at."""
    first, *others = outside.split(")")
    if not others or others.pop().strip(_BLANKS):
        return None
    rows = [first.lstrip(_BLANKS)]
    for each in others:
        row = each.lstrip(_BLANKS)
        if row[:1] != ",":
            return None
        rows.append(row[1:].lstrip(_BLANKS))
    if any(row[:1] != "(" for row in rows):
        return None
    return [row[1:].split(",") for row in rows]


def _literal(cell: str, texts: Iterator[str]) -> str | None:
    """A cell as it is written, with the text that is one quote in it; None when it is no plain literal."""
    if cell == _QUOTE:
        return f"'{next(texts)}'"
    if cell.isdigit():
        return cell
    if cell[-1:] == _QUOTE:
        kind = cell[:-1].rstrip(_BLANKS)
        return f"{kind} '{next(texts)}'" if kind.upper() in _TIMES else None
    whole, point, fraction = cell.removeprefix("-").partition(".")
    is_number = whole.isdigit() and (fraction.isdigit() if point else True)
    return cell if is_number or cell.upper() in _WORDS else None
