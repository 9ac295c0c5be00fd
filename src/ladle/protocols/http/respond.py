"""Answers in the form that was asked for: JSON, CSV, Arrow, or several of them in a message of ours."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
from starlette.responses import Response
from starlette.types import Scope

from ladle.answer import Answer
from ladle.delta import Delta, change_rows
from ladle.formats.deltas import json_delta
from ladle.formats.writing import encoded, json_rows, write_csv
from ladle.json_values import JsonObject
from ladle.protocols import forms, wire
from ladle.protocols.http.error_shape import BadRequest, NotAcceptable
from ladle.protocols.http.pages import AnswerPages
from ladle.protocols.wire import ANSWERS, ARROW
from ladle.schema import type_name

JSON, CSV = "application/json", "text/csv"
_FORMS = (JSON, ARROW, CSV, ANSWERS)


def wanted(scope: Scope) -> str:
    """The first form among those accepted that there is."""
    accepted = next((value for name, value in scope["headers"] if name == b"accept"), b"*/*").decode("latin-1")
    for each in accepted.split(","):
        kind = each.partition(";")[0].strip().lower()
        if kind in ("*/*", "application/*", ""):
            return JSON
        if kind in ("text/*", "text/plain"):
            return CSV
        if kind in _FORMS:
            return kind
    raise NotAcceptable(
        f"There is no answer in the form {accepted[:100]!r}.", hint=f"accept one of {', '.join(_FORMS)}"
    )


def json_reply(value: Mapping[str, object], status: int = 200) -> Response:
    """A response with a JSON object."""
    return Response(encoded(value), status, media_type=JSON)


class Responder:
    """Writes answers for one request."""

    def __init__(self, scope: Scope, pages: AnswerPages, user: str, rows_max: int) -> None:
        self._form = wanted(scope)
        self._pages = pages
        self._user = user
        self._rows_max = rows_max

    @property
    def lists_answers(self) -> bool:
        """Whether a single answer of a script is put into a list, too: so that a program need not tell them apart."""
        return self._form == JSON

    @property
    def holds_several(self) -> bool:
        """Whether the form has room for more than one answer."""
        return self._form not in (ARROW, CSV)

    def one(self, answer: Answer, limit: int | None = None, *, keep: bool = True) -> Response:
        """An answer, or the first page of it."""
        return self._written([self._begun(answer, limit, keep=keep)])

    def page(self, key: str, start: int, limit: int) -> Response:
        """A further page."""
        answer = self._pages.get(key, self._user)
        if start > len(answer):
            raise BadRequest(f"The answer has {len(answer):,} rows.")
        return self._written([self._page(answer, key, start, min(limit, self._rows_max))])

    def several(self, answers: Sequence[Answer], beside: Mapping[str, object]) -> Response:
        """All of them, in a form that can hold several."""
        assert self.holds_several or len(answers) == 1
        return self._written([self._begun(each) for each in answers], beside)

    def changes(self, deltas: Sequence[Delta], *, progress: bool) -> Response:
        """Deltas, those without rows only if they are wanted, and the position to go on from. As a table, the rows of
        all of them, with what became of each.
        """
        position = deltas[-1].position
        if self._form == ANSWERS:
            heads, tables = forms.deltas_to_message(deltas)
            return Response(wire.pack({"deltas": heads}, tables), media_type=ANSWERS)
        if self._form == JSON:
            shown = [json_delta(delta) for delta in deltas if progress or not delta.progress]
            return json_reply({"deltas": shown, "position": position})
        tables = [change_rows(delta) for delta in deltas if progress or not delta.progress]
        rows = pa.concat_tables(tables or [change_rows(deltas[-1]).slice(0, 0)])
        return self._table(rows, {"Ladle-Position": position})

    def _begun(self, answer: Answer, limit: int | None = None, *, keep: bool = True) -> _AnswerPart:
        rows = self._rows_max if limit is None else min(limit, self._rows_max)
        key = self._pages.keep(answer, self._user) if keep and len(answer) > rows else None
        return self._page(answer, key, 0, rows)

    def _page(self, answer: Answer, key: str | None, start: int, rows: int) -> _AnswerPart:
        following = start + rows
        more = None
        if key is not None:
            if following < len(answer):
                more = f"/v1/pages/{key}?start={following}&limit={rows}"
            else:
                self._pages.drop(key)
        # A table without columns has any number of rows.
        part = answer if rows >= len(answer) else replace(answer, table=answer.table.slice(start, rows))
        return _AnswerPart(part, len(answer), more)

    def _written(self, parts: Sequence[_AnswerPart], beside: Mapping[str, object] | None = None) -> Response:
        """With something `beside` them, as a list."""
        heads = [part.head for part in parts]
        if self._form == ANSWERS:
            message = wire.pack({"answers": heads, **(beside or {})}, [part.answer.table for part in parts])
            return Response(message, media_type=ANSWERS)
        if self._form == JSON:
            shown = [{**head, **_json_table(part.answer)} for head, part in zip(heads, parts, strict=True)]
            return json_reply(shown[0] if beside is None else {"answers": shown, **beside})
        (part,), (head,) = parts, heads
        headers = {"Ladle-Answer": json.dumps(head)}
        if part.next:
            headers["Link"] = f'<{part.next}>; rel="next"'
        return self._table(part.answer.table, headers)

    def _table(self, table: pa.Table, headers: dict[str, str]) -> Response:
        if self._form == ARROW:
            return Response(wire.encode_table(table).to_pybytes(), headers=headers, media_type=ARROW)
        text = io.BytesIO()
        write_csv(table, text)
        return Response(text.getvalue(), headers=headers, media_type=f"{CSV}; charset=utf-8; header=present")


@dataclass(frozen=True)
class _AnswerPart:
    """An answer, or a page of one."""

    answer: Answer
    rows_total: int
    next: str | None = None
    """Where the next page is."""

    @property
    def head(self) -> JsonObject:
        return {**forms.answer_to_json(self.answer), "rows_total": self.rows_total, "next": self.next}


def _json_table(answer: Answer) -> dict[str, object]:
    schema = answer.table.schema
    return {
        "columns": [{"name": field.name, "type": type_name(field.type)} for field in schema],
        "rows": json_rows(answer.table),
    }
