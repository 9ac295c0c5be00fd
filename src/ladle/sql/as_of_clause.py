"""AS OF after a relation in FROM: at which moment of the past it is read."""

from __future__ import annotations

from sqlglot import exp

from ladle.clock import to_datetime
from ladle.errors import Position, SqlError, Unsupported
from ladle.plan import AsOf
from ladle.sql.bounds import constant_us, is_constant_time
from ladle.sql.position import SourceText
from ladle.sql.resolve import NOW
from ladle.sql.scopes import Past, ScanDraft, TableDraft

_ENTRY_MAX = (1 << 63) - 1


def past_of(table: exp.Table, source: SourceText, query: str | None = None) -> Past | None:
    """The moment that a mention says; `query` is the standing query that it mentions, if it does."""
    version = table.args.get("version")
    if version is None:
        return None
    moment, position = version.expression, source.of(version.expression) or source.of(version)
    while isinstance(moment, exp.Paren):
        moment = moment.this
    if version.name == "TIMESTAMP":
        if not is_constant_time(moment):
            raise SqlError(
                "TIMESTAMP AS OF needs a constant time.",
                hint="write TIMESTAMP AS OF '2024-01-01 10:00:00'",
                position=position,
            )
        return Past(us=constant_us(moment, "TIMESTAMP AS OF", source), of=query)
    text = moment.name if isinstance(moment, exp.Literal) else ""
    if not text.isdecimal() or int(text) > _ENTRY_MAX:
        raise SqlError(
            "VERSION AS OF needs an entry of the log: a whole number.",
            hint="answers say which entry they reflect: answer.entry in Python, `entry` over HTTP",
            position=position,
        )
    return Past(entry=int(text), of=query)


def refuse_past(table: exp.Expression, source: SourceText, what: str) -> None:
    """AS OF is for what has a past of its own."""
    version = table.args.get("version")
    if version is not None:
        raise SqlError(
            f"AS OF reads streams, tables and standing queries at another moment, and this is {what}.",
            hint="write it inside, after what is read there",
            position=source.of(version),
        )


def with_now(tree: exp.Expression, past: Past, query: str, position: Position | None) -> exp.Expression:
    """What a standing query computes of NOW, at the NOW that it is read at."""
    holder = exp.Tuple(expressions=[tree])
    for node in list(tree.find_all(exp.Placeholder)):
        if node.name != NOW:
            continue
        if past.us is None:
            raise Unsupported(
                f"'{query}' computes something of NOW, which can't be read VERSION AS OF an entry.",
                hint="read it TIMESTAMP AS OF the time that the answer then had for NOW",
                position=position,
            )
        text = to_datetime(past.us).isoformat(" ", "microseconds").removesuffix("+00:00")
        node.replace(exp.cast(exp.Literal.string(text), "timestamp"))
    result: exp.Expression = holder.expressions[0].pop()
    return result


def as_of_each(scans: list[ScanDraft], tables: dict[Past, dict[str, None]]) -> list[AsOf | None]:
    """The moments of a query's scans. `tables` are those that are read as of each, in standing queries."""
    found: list[AsOf | None] = []
    for scan in scans:
        past = scan.past
        if past is None:
            found.append(None)
            continue
        streams: tuple[str, ...] = (scan.stream,)
        if past.of is not None:
            streams = tuple(dict.fromkeys(each.stream for each in scans if each.past == past))
        found.append(AsOf(past.us, past.entry, streams, tuple(tables.get(past, ()))))
    return found


def as_of_table(table: TableDraft) -> AsOf | None:
    """The moment at which a table in FROM is read, or None for now."""
    return None if table.past is None else AsOf(table.past.us, table.past.entry)
