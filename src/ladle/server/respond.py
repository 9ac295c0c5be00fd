"""Answers in the form that was asked for: JSON, CSV, Arrow, or several of them in a message of ours."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from ladle.answer import Answer
from ladle.formats.writing import encoded, json_rows, write_csv
from ladle.remote import forms, wire
from ladle.remote.http import ANSWERS, ARROW
from ladle.schema import type_name
from ladle.server.errors import BadRequest, UnknownFormat
from ladle.server.pages import Pages

JSON, CSV = "application/json", "text/csv"
_FORMS = (JSON, ARROW, CSV, ANSWERS)


def wanted(request: Request) -> str:
    """The first form among those accepted that there is."""
    accepted = request.headers.get("accept", "*/*")
    for each in accepted.split(","):
        kind = each.partition(";")[0].strip().lower()
        if kind in ("*/*", "application/*", ""):
            return JSON
        if kind in ("text/*", "text/plain"):
            return CSV
        if kind in _FORMS:
            return kind
    raise UnknownFormat(
        f"There is no answer in the form {accepted[:100]!r}.", hint=f"accept one of {', '.join(_FORMS)}"
    )


def json_reply(value: dict[str, Any], status: int = 200) -> Response:
    return Response(encoded(value), status, media_type=JSON)


class Responder:
    """Writes answers for one request."""

    def __init__(self, request: Request, pages: Pages, user: str, rows_max: int) -> None:
        self._form = wanted(request)
        self._pages = pages
        self._user = user
        self._rows_max = rows_max

    @property
    def lists_answers(self) -> bool:
        """Whether a single answer of a script is put into a list, too: so that a program need not tell them apart."""
        return self._form == JSON

    def one(self, answer: Answer, limit: int | None = None, *, keep: bool = True) -> Response:
        """An answer, or the first page of it."""
        rows = self._rows_max if limit is None else min(limit, self._rows_max)
        key = self._pages.keep(answer, self._user) if keep and len(answer) > rows else None
        return self._page(answer, key, 0, rows)

    def page(self, key: str, start: int, limit: int) -> Response:
        """A further page."""
        answer = self._pages.get(key, self._user)
        if start > len(answer):
            raise BadRequest(f"The answer has {len(answer):,} rows.")
        return self._page(answer, key, start, min(limit, self._rows_max))

    def _page(self, answer: Answer, key: str | None, start: int, rows: int) -> Response:
        following = start + rows
        more = None
        if key is not None:
            if following < len(answer):
                more = f"/v1/pages/{key}?start={following}&limit={rows}"
            else:
                self._pages.drop(key)
        table = answer.table.slice(start, rows)
        part = Answer(table, answer.epoch, answer.now, answer.windows, answer.seconds, answer.message)
        return self._written([part], {"next": more, "rows_total": len(answer)})

    def several(self, answers: Sequence[Answer], beside: dict[str, Any]) -> Response:
        """All of them, in a form that can hold several."""
        if self._form in (ARROW, CSV):
            raise UnknownFormat("Arrow and CSV have room for one answer.", hint=f"accept {JSON}")
        return self._written(answers, beside, several=True)

    def _written(self, answers: Sequence[Answer], beside: dict[str, Any], *, several: bool = False) -> Response:
        heads = [forms.answer_to_json(answer) for answer in answers]
        if self._form == ANSWERS:
            message = wire.pack({"answers": heads, **beside}, [answer.table for answer in answers])
            return Response(message, media_type=ANSWERS)
        if self._form == JSON:
            shown = [{**head, **_json_table(answer)} for head, answer in zip(heads, answers, strict=True)]
            return json_reply({"answers": shown, **beside} if several else {**shown[0], **beside})
        (answer,), (head,) = answers, heads
        # A header has room for what fits into Latin-1; what does not is escaped.
        headers = {"Ladle-Answer": encoded({**head, **beside}).decode().encode("ascii", "backslashreplace").decode()}
        if beside.get("next"):
            headers["Link"] = f'<{beside["next"]}>; rel="next"'
        if self._form == ARROW:
            return Response(wire.encode_table(answer.table).to_pybytes(), headers=headers, media_type=ARROW)
        text = io.BytesIO()
        write_csv(answer.table, text)
        return Response(text.getvalue(), headers=headers, media_type=f"{CSV}; charset=utf-8; header=present")


def _json_table(answer: Answer) -> dict[str, Any]:
    schema = answer.table.schema
    return {
        "columns": [{"name": field.name, "type": type_name(field.type)} for field in schema],
        "rows": json_rows(answer.table),
    }
