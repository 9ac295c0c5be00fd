"""What texts are bound to: derived, kept on disk, and made anew when it is not there.

Binding is slow beside reading what was bound. So the plans of all standing queries are kept in one file, what they
share written once, each under a digest of its text and of what the names in it mean. The file says with which
translation of texts it was written (`ladle.plan.translation`), and to which table of numbers of blocks it belongs; who
has another one does not read it. A text whose plan is not kept is bound when it is first needed, those that differ in
constants alone once (`ladle.sql.templates`).
"""

from __future__ import annotations

import hashlib
import json
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from zlib_ng.zlib_ng import crc32

from ladle import sql
from ladle.archive.files import write_durably
from ladle.archive.warehouse import Warehouse
from ladle.catalog.queries import (
    BoundText,
    Factors,
    QueryState,
    Shaping,
    reads_broken,
    same_factor,
    shape_from_text,
    told_schema,
)
from ladle.errors import LadleError
from ladle.plan import Factor
from ladle.plan.query import factor_from_json, factor_to_json
from ladle.plan.translation import translation
from ladle.stem.numbering import DamagedNumbers, Numbering

_log = logging.getLogger(__name__)

NUMBERS = "numbers"
PLANS = "plans"
_PIECE = 1_000
"""So many plans are encoded at a time: other threads wait for as long."""
_DIGEST = 16
_SHARED_MAX = 100_000
"""So many shapes and factors are remembered to find those that are shared soon."""


class DamagedPlans(ValueError):
    """A file of plans that is not what was written."""


class Bindings:
    """Any thread may use it."""

    def __init__(self, directory: Path | None = None, numbering: Numbering | None = None) -> None:
        """Without a directory nothing is kept."""
        self._directory = directory
        self.numbering = numbering if numbering is not None else Numbering()
        self._lock = threading.RLock()
        self._shaping = Shaping()
        self._filled = False
        self.bound = 0
        """Texts that were bound, because nothing was kept of them."""
        self._kept_at = 0
        """How many of them there were when plans were last kept."""

    @staticmethod
    def of(warehouse: Warehouse) -> Bindings:
        """The bindings that an open warehouse keeps; none of them if what is derived there can't be trusted."""
        path = warehouse.derived / NUMBERS
        if not warehouse.writable:
            trusted = warehouse.trusts_derived
            return Bindings(warehouse.derived, Numbering(path, writable=False)) if trusted else Bindings()
        try:
            return Bindings(warehouse.derived, Numbering(path))
        except (OSError, DamagedNumbers) as error:
            if any(warehouse.derived.iterdir()):
                _log.info("what is derived is made anew: %s", error)
            warehouse.empty_derived()
            return Bindings(warehouse.derived, Numbering.begun(path))

    def bind(self, query: QueryState) -> BoundText | str:
        """Tell a query what its text is bound to, or why it does not bind."""
        # Those below are bound first, the lowest before: however deep they lie, none is bound inside another.
        for below in sorted(query.meaning.queries.values(), key=lambda each: each.level):
            if below._bound is None:
                self._bind(below)
        return self._bind(query)

    def _bind(self, query: QueryState) -> BoundText | str:
        with self._lock:
            if query._bound is None:
                query.take(self._made(query))
            assert query._bound is not None
            return query._bound

    def _made(self, query: QueryState) -> BoundText | str:
        for below in sorted(query.meaning.queries.values(), key=lambda each: each.level):
            if below.broken is not None:
                return f"{reads_broken(below.name)}{below.broken}"
        if query.meaning.missing:
            return f"The {query.meaning.missing[0]} that it was registered over is not there any more."
        self.bound += 1
        try:
            plan = sql.rebind(query.sql, query.meaning)
        except LadleError as error:
            return str(error.message)
        except Exception as error:  # whatever it is, the other queries go on
            _log.exception("query %s can't be bound", query.name)
            return f"{type(error).__name__}: {error}"
        if plan.schema is None and query.told is not None:
            plan = replace(plan, schema=told_schema(query.told))
        if len(self._shaping) > _SHARED_MAX:
            self._shaping = Shaping()
        return self._shaping.bound(plan)

    # -- what is kept --

    def fill(self, queries: Iterable[QueryState]) -> None:
        """Tell queries what is kept of their texts, and the numbers of their blocks. Those that come after the first
        time came after it was kept.
        """
        if self._directory is None or self._filled:
            return
        self._filled = True
        waiting = {query.id: query for query in queries if not query.is_bound}
        try:
            _fill(self._directory / PLANS, self._head, waiting)
        except FileNotFoundError:
            pass
        except (OSError, ValueError, KeyError, TypeError, IndexError) as error:
            _log.warning("kept plans can't be read (%s): texts are bound again", error)

    def is_due(self, queries: int, fraction: float) -> bool:
        """Whether texts were bound that are that fraction of all: the next process would have to bind them again."""
        return self.bound - self._kept_at > queries * fraction

    def keep(self, queries: Iterable[QueryState]) -> None:
        """Write down what texts were bound to, for whoever opens the warehouse next, if that can be written."""
        if self._directory is None:
            return
        self._kept_at = self.bound
        known = [query for query in queries if query.is_bound]
        if not known:
            return
        with suppress(OSError, LadleError):
            self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            data = b"".join(_encoded(known, self._head))
            self.numbering.save()  # those that plans have in them are known to who reads them
            write_durably(self._directory / PLANS, data, fsync=False)

    @property
    def _head(self) -> str:
        """What kept plans begin with: the translation, and the table that has the numbers of their blocks."""
        return f"{translation()} {self.numbering.begin}"


def _digest(query: QueryState) -> bytes:
    text = f"{query.meaning.digest}{query.sql}"
    return hashlib.blake2b(text.encode(), digest_size=_DIGEST).digest()


def _encoded(queries: Sequence[QueryState], head: str) -> Iterable[bytes]:
    """Lines of JSON, the head first, the tables last, and a checksum."""
    shapes: dict[str, int] = {}
    factors: dict[int, int] = {}
    table: list[Factor] = []
    number: Callable[[Factors], list[int]] = lambda own: [_number(factor, factors, table) for factor in own]  # noqa: E731
    line = json.dumps(head).encode() + b"\n"
    checksum = crc32(line)
    yield line
    for begin in range(0, len(queries), _PIECE):
        part = queries[begin : begin + _PIECE]
        rows = [
            [shapes.setdefault(query.shape.text, len(shapes)), list(map(number, query.factors)), query.blocks]
            for query in part
        ]
        piece = {"ids": [query.id for query in part], "digests": b"".join(map(_digest, part)).hex(), "rows": rows}
        line = json.dumps(piece, separators=(",", ":")).encode() + b"\n"
        checksum = crc32(line, checksum)
        yield line
    tables = {"shapes": list(shapes), "factors": [factor_to_json(factor) for factor in table]}
    line = json.dumps(tables, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"
    yield line
    yield b"%d" % crc32(line, checksum)


def _number(factor: Factor, known: dict[int, int], table: list[Factor]) -> int:
    number = known.get(id(factor))
    if number is None:
        number = known[id(factor)] = len(table)
        table.append(factor)
    return number


def verify_plans(path: Path) -> list[bytes]:
    """The lines of a file of plans, if it is what was written."""
    body, _, checksum = path.read_bytes().rpartition(b"\n")
    body += b"\n"
    if not checksum.isdigit() or int(checksum) != crc32(body):
        raise DamagedPlans("a checksum does not match")
    return body.splitlines()


def _fill(path: Path, head: str, waiting: Mapping[int, QueryState]) -> None:
    """Piece by piece: all of it at once would be much."""
    first, *pieces, last = verify_plans(path)
    if json.loads(first) != head:
        raise DamagedPlans("they are of another translation")
    tables = json.loads(last)
    shapes = [shape_from_text(text) for text in tables["shapes"]]
    functions = {function.id: function for shape in shapes for function in shape.functions}
    factors = [same_factor(factor_from_json(factor, functions)) for factor in tables["factors"]]
    for line in pieces:
        piece = json.loads(line)
        digests = bytes.fromhex(piece["digests"])
        for at, (id_, (shape, numbers, blocks)) in enumerate(zip(piece["ids"], piece["rows"], strict=True)):
            query = waiting.get(id_)
            if query is not None and _digest(query) == digests[at * _DIGEST : (at + 1) * _DIGEST]:
                own = tuple([tuple([factors[number] for number in each]) for each in numbers])
                query.take(BoundText(shapes[shape], own), tuple(blocks))
