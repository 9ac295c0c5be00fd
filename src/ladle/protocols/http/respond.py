"""Answers and deltas in the form that was asked for: JSON, CSV, Arrow, or several of them in a message of ours."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import orjson
import pyarrow as pa
from starlette.responses import Response
from starlette.types import Scope

from ladle.answer import Answer
from ladle.delta import Delta, change_rows
from ladle.formats.deltas import DeltaPiece, Deltas, cut, json_piece, tables_nbytes
from ladle.formats.writing import encoded, json_rows, write_csv
from ladle.json_values import JsonObject
from ladle.protocols import forms, wire
from ladle.protocols.http.error_shape import BadRequest, NotAcceptable
from ladle.protocols.http.pages import AnswerPages
from ladle.protocols.wire import ANSWERS, ARROW
from ladle.schema import type_name

JSON, CSV = "application/json", "text/csv"
_FORMS = (JSON, ARROW, CSV, ANSWERS)
_MEDIA_TYPES = {ARROW: ARROW, CSV: f"{CSV}; charset=utf-8; header=present"}


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
        paged = self._pages.get(key, self._user)
        if start > len(paged):
            raise BadRequest(f"All pages together have {len(paged):,} rows.")
        if isinstance(paged, Deltas):
            return self._changes_page(paged, key, start)
        return self._written([self._page(paged, key, start, min(limit, self._rows_max))])

    def several(self, answers: Sequence[Answer], beside: Mapping[str, object]) -> Response:
        """All of them, in a form that can hold several."""
        assert self.holds_several or len(answers) == 1
        return self._written([self._begun(each) for each in answers], beside)

    def changes(self, deltas: Sequence[Delta], *, progress: bool) -> Response:
        """Deltas, those without rows only if they are wanted, and the position to go on from. As a table, the rows of
        all of them, with what became of each. What is more than a piece is in further pages.
        """
        return self._changes_page(Deltas.of(deltas, progress=progress or self._form == ANSWERS), None, 0)

    def _changes_page(self, deltas: Deltas, key: str | None, start: int) -> Response:
        """About a piece of deltas from a place on."""
        if self._form == JSON:
            shown, end = cut(deltas, start, _json_deltas, len)
            return json_reply({"deltas": orjson.Fragment(shown), **self._going_on(deltas, key, end)})
        if self._form == ANSWERS:
            pieces, end = cut(deltas, start, list, tables_nbytes)
            heads, tables = forms.pieces_to_message(pieces)
            return Response(
                wire.pack({"deltas": heads, **self._going_on(deltas, key, end)}, tables), media_type=ANSWERS
            )

        def rows(pieces: list[DeltaPiece]) -> pa.Table:
            tables = [change_rows(piece.delta) for piece in pieces]
            return pa.concat_tables(tables or [change_rows(deltas.last).slice(0, 0)]).combine_chunks()

        if self._form == ARROW:
            table, end = cut(deltas, start, rows, lambda table: table.nbytes)
            body = _arrow(table)
        else:
            body, end = cut(deltas, start, lambda pieces: _csv(rows(pieces)), len)
        going_on = self._going_on(deltas, key, end)
        headers = _link(going_on["next"]) if "next" in going_on else {"Ladle-Position": going_on["position"]}
        return Response(body, headers=headers, media_type=_MEDIA_TYPES[self._form])

    def _going_on(self, deltas: Deltas, key: str | None, end: int) -> dict[str, str]:
        """The position when all was told, and where the next page is while there is more."""
        if end == len(deltas):
            if key is not None:
                self._pages.drop(key)
            return {"position": deltas.last.position}
        return {"next": f"/v1/pages/{key or self._pages.keep(deltas, self._user)}?start={end}"}

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
            headers |= _link(part.next)
        body = (_arrow if self._form == ARROW else _csv)(part.answer.table)
        return Response(body, headers=headers, media_type=_MEDIA_TYPES[self._form])


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


def _json_deltas(pieces: list[DeltaPiece]) -> bytes:
    return b"[%b]" % b",".join(encoded(json_piece(piece)) for piece in pieces)


def _arrow(table: pa.Table) -> bytes:
    return wire.encode_table(table).to_pybytes()


def _csv(table: pa.Table) -> bytes:
    text = io.BytesIO()
    write_csv(table, text)
    return text.getvalue()


def _link(following: str) -> dict[str, str]:
    """The header that names the next page."""
    return {"Link": f'<{following}>; rel="next"'}


def _json_table(answer: Answer) -> dict[str, object]:
    schema = answer.table.schema
    return {
        "columns": [{"name": field.name, "type": type_name(field.type)} for field in schema],
        "rows": json_rows(answer.table),
    }
