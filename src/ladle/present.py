"""Answers as people read them in a terminal: a plain text table, also what `repr(answer)` shows.

Only the rows that are shown are converted, and nothing is loaded for it beyond Arrow. Control characters of
the data are written as escapes: a pushed string must not be able to steer somebody's terminal.
"""

from __future__ import annotations

import json
import shutil
import unicodedata
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from html import escape

import pyarrow as pa

NULL = "NULL"
_COLUMN_WIDTH_MIN = 6
_CELL_WIDTH_MAX = 200
_GAP = " │ "


def whole_text(table: pa.Table) -> str | None:
    """What EXPLAIN and SHOW CREATE say: text, not a column to be cut to the terminal; None of other tables."""
    if table.column_names not in (["plan"], ["statement"]) or not pa.types.is_string(table.schema.types[0]):
        return None
    lines = table.column(0).to_pylist()
    if None in lines:
        return None
    if table.column_names == ["statement"] and not (len(lines) == 1 and lines[0].startswith("CREATE ")):
        return None
    return "".join(char if char in "\n\t" else _printable(char) for char in "\n".join(lines))


def table_text(table: pa.Table, *, rows_max: int = 20, width: int | None = None, footer: bool = True) -> str:
    """The first `rows_max` rows as aligned text, fitted into `width` columns (by default the terminal's).

    The footer says how many rows there are; without it, only what is left out is said.
    """
    if table.num_columns == 0:
        return _row_count(table.num_rows, table.num_rows)
    limit = width if width is not None else shutil.get_terminal_size((120, 24)).columns
    head = table.slice(0, rows_max)
    titles = [_printable(name) for name in table.column_names]
    columns = [cells(column) for column in head.columns]
    right = [_is_number(field.type) for field in table.schema]
    natural = [
        min(_CELL_WIDTH_MAX, max(text_width(cell) for cell in (title, *column)))
        for title, column in zip(titles, columns, strict=True)
    ]
    kept, widths = _fit(natural, limit)
    hidden = [title for i, title in enumerate(titles) if i not in kept]
    edge = " │ …" if hidden else ""
    aligned = [right[i] for i in kept]
    lines = [_line([titles[i] for i in kept], widths, aligned) + edge]
    lines.append("─┼─".join("─" * w for w in widths) + ("─┼──" if hidden else ""))
    lines += [_line([columns[i][row] for i in kept], widths, aligned) + edge for row in range(head.num_rows)]
    if footer or hidden or head.num_rows < table.num_rows:
        lines.append(_row_count(head.num_rows, table.num_rows, hidden=hidden))
    return "\n".join(line.rstrip() for line in lines)


def table_html(table: pa.Table, *, rows_max: int = 50, columns_max: int = 50) -> str:
    """The first rows and columns as an HTML table; what is left out is said under it. All texts are escaped."""
    head = table.select(range(min(table.num_columns, columns_max))).slice(0, rows_max)
    sides = ["right" if _is_number(field.type) else "left" for field in head.schema]
    titles = [
        f'<th style="text-align: {side}">{html_text(clip(name, _CELL_WIDTH_MAX))}</th>'
        for name, side in zip(head.column_names, sides, strict=True)
    ]
    columns = [
        [
            f'<td style="text-align: {side}; white-space: pre">{html_text(clip(text, _CELL_WIDTH_MAX))}</td>'
            for text in cells(column)
        ]
        for column, side in zip(head.columns, sides, strict=True)
    ]
    rows = [f"<tr>{''.join(row)}</tr>" for row in zip(*columns, strict=True)]
    hidden = table.column_names[columns_max:]
    left_out = hidden or head.num_rows < table.num_rows
    note = f"<p>{html_text(_row_count(head.num_rows, table.num_rows, hidden=hidden))}</p>" if left_out else ""
    return f"<table><thead><tr>{''.join(titles)}</tr></thead>\n<tbody>{chr(10).join(rows)}</tbody></table>{note}"


def html_text(text: str) -> str:
    """A text that is nothing but text in HTML, whatever is in it."""
    return escape(_printable(text))


def cells(column: pa.ChunkedArray | pa.Array) -> list[str]:
    """One text per value, without line breaks or control characters."""
    type_ = column.type
    if pa.types.is_timestamp(type_):
        # Through Arrow, because Python's datetime ends with the year 9999 and Spark's timestamps don't.
        instants = column.cast(pa.timestamp("us", type_.tz), safe=False).cast(pa.int64())
        texts = instants.cast(pa.timestamp("us")).cast(pa.string()).to_pylist()
        return [NULL if text is None else _short_time(text) for text in texts]
    if pa.types.is_date(type_):
        return [NULL if text is None else text for text in column.cast(pa.string()).to_pylist()]
    return [cell(value) for value in column.to_pylist()]


def cell(value: object) -> str:
    """One value as text."""
    match value:
        case None:
            return NULL
        case bool():
            return "true" if value else "false"
        case float():
            return _float_text(value)
        case Decimal():
            return format(value, "f")
        case str():
            return _printable(value)
        case bytes():
            return f"X'{value.hex().upper()}'"
        case dict() | list() | tuple():
            return _printable(json.dumps(value, default=plain, ensure_ascii=False))
        case _:
            return _printable(str(value))


def plain(value: object) -> str | float:
    """What JSON has no form of its own for: times in ISO form, bytes in hexadecimal, the rest as text."""
    match value:
        case datetime() | date() | time():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case bytes():
            return value.hex()
        case _:
            return str(value)


def text_width(text: str) -> int:
    """Columns that a text takes in a terminal: wide characters take two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(_char_width(char) for char in text)


def clip(text: str, width: int) -> str:
    """The text, cut to `width` columns with an ellipsis where it is longer."""
    if text_width(text) <= width:
        return text
    kept, used = [], 0
    for char in text:
        used += _char_width(char)
        if used > width - 1:
            break
        kept.append(char)
    return "".join(kept) + "…"


def _fit(natural: list[int], limit: int) -> tuple[list[int], list[int]]:
    """Which columns are shown and how wide: the widest give way first, then the last columns are left out."""
    kept = list(range(len(natural)))
    while True:
        widths = [natural[i] for i in kept]
        room = limit - len(_GAP) * (len(kept) - 1) - (4 if len(kept) < len(natural) else 0)
        excess = sum(widths) - room
        if excess <= 0:
            return kept, widths
        spare = sum(max(0, w - _COLUMN_WIDTH_MIN) for w in widths)
        if spare >= excess or len(kept) == 1:
            return kept, _shrink(widths, max(room, 1))
        kept.pop()


def _shrink(widths: list[int], room: int) -> list[int]:
    """Lower the cap on all widths until their sum fits."""
    cap = max(widths)
    while cap > 1 and sum(min(w, cap) for w in widths) > room:
        cap -= 1
    return [min(w, cap) for w in widths]


def _line(values: list[str], widths: list[int], right: list[bool]) -> str:
    parts = []
    for value, width, to_right in zip(values, widths, right, strict=True):
        shown = clip(value, width)
        padding = " " * (width - text_width(shown))
        parts.append(padding + shown if to_right else shown + padding)
    return _GAP.join(parts)


def _row_count(shown: int, total: int, *, hidden: list[str] | None = None) -> str:
    rows = f"{total:,} row{'' if total == 1 else 's'}"
    notes = [f"first {shown:,} of {rows}" if shown < total else rows]
    if hidden:
        notes.append(f"not shown: {clip(', '.join(hidden), 60)}")
    return f"({'; '.join(notes)})"


def _short_time(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def _float_text(value: float) -> str:
    text = repr(value)
    return text if len(text) <= 12 else format(value, ".10g")


def _is_number(type_: pa.DataType) -> bool:
    return bool(pa.types.is_integer(type_) or pa.types.is_floating(type_) or pa.types.is_decimal(type_))


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")


def _char_width(char: str) -> int:
    if unicodedata.combining(char):
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1
