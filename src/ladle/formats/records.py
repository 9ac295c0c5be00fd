"""CSV text cut into records, each with the line it begins in.

A value in quotes may hold line breaks, so a record is not a line. Where quotes are as they should be, records are found
with a few array operations. Where they are not, the text is read record by record: a quote that is opened and not
closed, or closed somewhere in the middle of a later value, costs the line that it stands in and not the file.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

QUOTED_BYTES_MAX = 1 << 20
"""A quote that is not closed within this is not waited for."""

NOT_CLOSED = "a quote is opened here and not closed"

_COMMA, _QUOTE, _LINE_END, _RETURN = b",", b'"', b"\n", b"\r"
_CLOSING = re.compile(rb'(?:[^"]++|"")*+"')
_VALUE_END = re.compile(rb"[,\n]")

Int64s = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]


@dataclass
class Records:
    """The records of a stretch of text."""

    text: bytes
    lines: Int64s
    """The line of each record that is not empty."""
    used: int
    """How much of the stretch this is: the rest is the beginning of a record."""
    broken: list[tuple[int, str, str]] = field(default_factory=list)
    """Line, reason and text of what is no record."""


def cut_records(text: bytes, line: int, columns: int, *, final: bool) -> Records:
    """The whole records at the beginning of a text whose first line has this number.

    At the end of the input (`final`) the text ends with a line break, and what has begun is whole or broken.
    """
    found = _cut_regular(text, line, columns)
    waits_too_long = found is not None and len(text) - found.used > QUOTED_BYTES_MAX
    if found is None or waits_too_long or (final and found.used < len(text)):
        return _cut_by_record(text, line, columns, final=final)
    return found


def line_numbers(text: bytes, line: int) -> Int64s:
    """The numbers of the lines that are not empty, in a text of whole lines whose first has this number."""
    data = np.frombuffer(text, dtype=np.uint8)
    ends = _where(data, _LINE_END)
    begins = np.concatenate([[0], ends[:-1] + 1])
    return line + np.flatnonzero(~_is_empty(data, begins, ends))


def _cut_regular(text: bytes, line: int, columns: int) -> Records | None:
    """The records, if quotes enclose whole values and no value over several lines looks like a mistake."""
    data = np.frombuffer(text, dtype=np.uint8)
    quotes = _where(data, _QUOTE)
    breaks = _where(data, _LINE_END)
    if not _enclose_values(data, quotes):
        return None
    ends = breaks[np.searchsorted(quotes, breaks) % 2 == 0]
    if not len(ends):
        return Records(b"", np.empty(0, dtype=np.int64), 0)
    begins = np.concatenate([[0], ends[:-1] + 1])
    breaks_before = np.searchsorted(breaks, begins)
    spans = np.searchsorted(breaks, ends) > breaks_before
    if spans.any():
        commas = _where(data, _COMMA)
        commas = commas[np.searchsorted(quotes, commas) % 2 == 0]
        values = np.searchsorted(commas, ends) - np.searchsorted(commas, begins) + 1
        if (values[spans] != columns).any():
            return None
    used = int(ends[-1]) + 1
    return Records(text[:used], line + breaks_before[~_is_empty(data, begins, ends)], used)


def _enclose_values(data: Bytes, quotes: Int64s) -> bool:
    """Whether quotes come in pairs around whole values; a doubled one inside is two pairs side by side."""
    around = np.concatenate([[_LINE_END[0]], data, [_LINE_END[0]]])
    before, after = around[quotes[0::2]], around[quotes[1::2] + 2]
    opens = np.isin(before, list(_COMMA + _LINE_END + _QUOTE))
    closes = np.isin(after, list(_COMMA + _LINE_END + _RETURN + _QUOTE))
    return bool(opens.all() and closes.all())


def _cut_by_record(text: bytes, line: int, columns: int, *, final: bool) -> Records:
    found = Records(b"", np.empty(0, dtype=np.int64), 0)
    records: list[bytes] = []
    lines: list[int] = []
    begin = 0
    while begin < len(text):
        end, opened = _record_end(text, begin, columns)
        waits = opened is not None and len(text) - opened <= QUOTED_BYTES_MAX and _has_no_end(text, opened)
        if not final and (end > len(text) or waits):
            break
        if opened is None:
            records.append(text[begin:end])
            if text[begin:end].strip(_RETURN + _LINE_END):
                lines.append(line)
        else:
            end = text.find(_LINE_END, opened) + 1 or len(text)
            shown = text[begin:end].rstrip(_RETURN + _LINE_END).decode("utf-8", errors="backslashreplace")
            found.broken.append((line + text.count(_LINE_END, begin, opened), NOT_CLOSED, shown))
        line += text.count(_LINE_END, begin, end)
        begin = end
    found.text, found.lines, found.used = b"".join(records), np.array(lines, dtype=np.int64), begin
    return found


def _record_end(text: bytes, begin: int, columns: int) -> tuple[int, int | None]:
    """Where the record that begins here ends (beyond the text, if that is not known yet), and the quote, if there is
    one, that is opened in it by mistake.
    """
    line_end = text.find(_LINE_END, begin) + 1
    if line_end and text.find(_QUOTE, begin, line_end) < 0:
        return line_end, None
    position, values, spanning = begin, 1, None
    while True:
        if text.startswith(_QUOTE, position):
            closing = _CLOSING.match(text, position + 1, position + QUOTED_BYTES_MAX)
            if closing is None:
                return len(text), position
            after = closing.end()
            if text.count(_LINE_END, position, after):
                spanning = spanning if spanning is not None else position
                if after < len(text) and text[after] not in _COMMA + _RETURN + _LINE_END:
                    return after, spanning
            position = after
        end = _VALUE_END.search(text, position)
        if end is None:
            return len(text) + 1, None
        position = end.end()
        if end[0] == _LINE_END:
            return position, spanning if values != columns else None
        values += 1


def _has_no_end(text: bytes, opened: int) -> bool:
    return _CLOSING.match(text, opened + 1, opened + QUOTED_BYTES_MAX) is None


def _is_empty(data: Bytes, begins: Int64s, ends: Int64s) -> npt.NDArray[np.bool_]:
    length = ends - begins
    return (length == 0) | ((length == 1) & (data[begins] == _RETURN[0]))


def _where(data: Bytes, char: bytes) -> Int64s:
    return np.flatnonzero(data == char[0])
