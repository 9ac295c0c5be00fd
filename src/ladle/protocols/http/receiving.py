"""The rows in a request's body: JSON lines, a JSON array, CSV, or an Arrow stream."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator

import pyarrow as pa

from ladle.errors import TypeMismatch
from ladle.foreign import NotArrow, TooManyBytes, first_line, read_stream
from ladle.formats.reading import read_rows
from ladle.protocols.http.error_shape import BadRequest, TooLarge, UnknownFormat
from ladle.protocols.wire import ARROW
from ladle.schema import StreamSchema, TableSchema
from ladle.stem.intake import FILE, LINE, RAW, REASON

_JSON = "application/json"
_FORMS = {
    "application/x-ndjson": "json",
    "application/jsonl": "json",
    "application/json-lines": "json",
    _JSON: "json",
    "text/csv": "csv",
}
_UNPACKED = 4
"""How much larger than a body may be the rows may be that Arrow makes of it."""
_AFTER = re.compile(r"[ \t\r\n]*([,\]])[ \t\r\n]*")
"""What follows an element of an array."""
_PLACE = "body"
"""What stands for the file in the reason why a row went to the quarantine."""


def received(
    body: bytes, content_type: str, schema: StreamSchema | TableSchema, bytes_max: int, *, plain: bool = False
) -> pa.Table:
    """One table of all rows, of a body of at most `bytes_max`; `plain` is without the places that a quarantine would
    name.
    """
    kind = _kind(content_type)
    if kind == ARROW:
        return _arrow(pa.py_buffer(body), bytes_max * _UNPACKED)
    form = _FORMS.get(kind)
    if form is None:
        raise UnknownFormat(
            f"Rows can't come as {kind or 'something without a Content-Type'!r}.",
            hint=f"send one of {', '.join([*_FORMS, ARROW])}",
        )
    stream_schema = schema if isinstance(schema, StreamSchema) else StreamSchema(schema.columns)
    try:
        lines = _json_lines(body) if kind == _JSON else body
        tables = list(read_rows(io.BytesIO(lines), form, stream_schema, name=_PLACE, live=False))
    except (pa.ArrowException, ValueError, RecursionError) as error:
        raise BadRequest(f"The body can't be read as {kind}: {first_line(error)}.") from None
    if not tables:
        return pa.table({column.name: pa.nulls(0) for column in schema.columns})
    table = pa.concat_tables(tables, promote_options="permissive")
    if form == "csv":
        _check_header(table, stream_schema)
    if not plain:
        return table
    if REASON in table.column_names:
        bad = next(i for i, reason in enumerate(table.column(REASON).to_pylist()) if reason is not None)
        raise TypeMismatch(f"Line {table.column(LINE)[bad]}: {table.column(REASON)[bad]}. None was inserted.")
    return table.drop_columns([name for name in (FILE, LINE, RAW) if name in table.column_names])


def is_arrow(content_type: str) -> bool:
    """Whether a body is an Arrow stream."""
    return _kind(content_type) == ARROW


def _kind(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _json_lines(body: bytes) -> bytes:
    """A body of JSON with a row on each line: the elements of an array, a single object, or the lines that it has."""
    first = body.lstrip()[:1]
    if first == b"[":
        return "\n".join(_flat(element) for element in _elements(body.decode().strip())).encode()
    if first == b"{":
        try:
            json.loads(body)
        except ValueError:
            return body
        return _flat(body.decode()).encode()
    if first:
        raise BadRequest("The body is no rows.", hint="send an array of objects, an object, or an object a line")
    return body


def _elements(array: str) -> Iterator[str]:
    """The texts of an array's elements."""
    decoder = json.JSONDecoder()
    position = 1 + len(array[1:]) - len(array[1:].lstrip())
    last = array[position:] == "]"
    while not last:
        _, end = decoder.raw_decode(array, position)
        yield array[position:end]
        after = _AFTER.match(array, end)
        if after is None:
            raise ValueError(f"a comma or the end of the array is missing at character {end + 1}")
        position, last = after.end(), after[1] == "]"
        if last and position < len(array):
            raise ValueError(f"something follows the array, at character {position + 1}")


def _flat(text: str) -> str:
    """JSON on one line: strings have no line breaks in them."""
    return text.replace("\r", " ").replace("\n", " ")


def _check_header(table: pa.Table, schema: StreamSchema) -> None:
    known = {column.name.lower() for column in schema.columns} | {FILE, LINE, RAW, REASON}
    extra = [name for name in table.column_names if name.lower() not in known]
    if extra:
        raise TypeMismatch(
            f"The first line names {', '.join(map(repr, extra))}, and there is no such column. "
            f"Columns: {', '.join(column.name for column in schema.columns)}.",
            hint="the first line of CSV has the names of columns, and rows follow it on lines of their own; curl keeps "
            "line breaks with --data-binary, not with -d",
        )


def _arrow(body: pa.Buffer, bytes_max: int) -> pa.Table:
    try:
        return read_stream(body, bytes_max=bytes_max)
    except TooManyBytes:
        raise TooLarge(
            f"The rows have more than {bytes_max:,} bytes when they are unpacked.",
            hint="send them in parts, or have the setting request_bytes_max raised",
        ) from None
    except NotArrow as error:
        raise BadRequest(f"The body is no Arrow stream: {error}.") from None
