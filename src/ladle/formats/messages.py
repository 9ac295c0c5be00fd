"""Messages of a broker as rows: JSON objects, arrays of them, or JSON lines.

What can't be read goes the way of every row that does not fit: it is handed over with the reason, and ends in the
stream's quarantine, where the reason names the topic.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

import pyarrow as pa

from ladle.schema import StreamSchema
from ladle.stem.intake import FILE, RAW, REASON, rows_to_table

Broken = tuple[str, str]
"""Reason and text of what is no row."""


def messages_to_table(messages: Sequence[tuple[str, bytes]], schema: StreamSchema) -> pa.Table:
    """All rows of some messages, each a topic and a payload; one that nothing can be made of costs itself alone."""
    try:
        return _table([(topic, *read_payload(payload)) for topic, payload in messages], schema)
    except Exception as error:  # whatever a stranger's text makes Python or Arrow say
        if len(messages) == 1:
            ((topic, payload),) = messages
            reason = f"can't be read: {type(error).__name__}"
            return _table([(topic, [], [(reason, _shown(payload))])], schema)
    return pa.concat_tables(
        [messages_to_table([message], schema) for message in messages], promote_options="permissive"
    )


def read_payload(payload: bytes) -> tuple[list[dict[str, object]], list[Broken]]:
    """The rows of a payload, and what of it is none."""
    try:
        text = payload.decode("utf-8")
    except UnicodeDecodeError:
        return [], [("not UTF-8", _shown(payload))]
    if not text.strip():
        return [], [("an empty message", text)]
    try:
        value = _loaded(text)
    except ValueError as error:
        lines = [line for line in text.split("\n") if line.strip()]
        return _lines(lines) if len(lines) > 1 else ([], [(f"not JSON: {error}", text)])
    return _sorted_out(value if isinstance(value, list) else [value])


def _lines(lines: Iterable[str]) -> tuple[list[dict[str, object]], list[Broken]]:
    rows: list[dict[str, object]] = []
    broken: list[Broken] = []
    for line in lines:
        try:
            found, wrong = _sorted_out([_loaded(line)])
        except ValueError as error:
            found, wrong = [], [(f"not JSON: {error}", line.rstrip("\r"))]
        rows += found
        broken += wrong
    return rows, broken


def _sorted_out(values: Iterable[object]) -> tuple[list[dict[str, object]], list[Broken]]:
    rows: list[dict[str, object]] = []
    broken: list[Broken] = []
    for value in values:
        if isinstance(value, dict):
            rows.append(value)
        else:
            broken.append(("not a JSON object", json.dumps(value, ensure_ascii=False)))
    return rows, broken


def _loaded(text: str) -> object:
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _table(read: Sequence[tuple[str, list[dict[str, object]], list[Broken]]], schema: StreamSchema) -> pa.Table:
    rows = [row for _, found, _ in read for row in found]
    broken = [each for _, _, wrong in read for each in wrong]
    topics = [topic for topic, found, _ in read for _ in found] + [topic for topic, _, wrong in read for _ in wrong]
    table = rows_to_table(rows, schema)
    if broken:
        columns = {column.name: pa.nulls(len(broken), column.type) for column in schema.columns}
        columns[REASON] = pa.array([reason for reason, _ in broken], pa.string())
        columns[RAW] = pa.array([text for _, text in broken], pa.string())
        table = pa.concat_tables([table, pa.table(columns)], promote_options="permissive")
    return table.append_column(FILE, pa.array(topics, pa.string()))


def _shown(payload: bytes) -> str:
    return payload.decode("utf-8", errors="backslashreplace")
