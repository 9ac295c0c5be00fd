"""TABLESAMPLE after a relation in FROM: which share of a stream is read.

Spark takes other tuples each time. Here they follow from their ids (`ladle.plan.sample`), so that an answer can be
kept.
"""

from __future__ import annotations

from fractions import Fraction

from sqlglot import exp

from ladle.errors import SqlError, Unsupported
from ladle.plan import Sample
from ladle.sql.position import SourceText

_DIGITS_MAX = 18
_SEED_MAX = (1 << 63) - 1


def sample_of(table: exp.Table, source: SourceText) -> Sample | None:
    """The sample that a mention of a stream says; None for all of it, also where that is said."""
    written = table.args.get("sample")
    if written is None:
        return None
    if (rows := written.args.get("size")) is not None:
        count = rows.name if isinstance(rows, exp.Literal) else "n"
        raise Unsupported(
            "TABLESAMPLE takes a share of a stream, not a number of rows: in Spark that is a LIMIT.",
            hint=f"write [ROWS {count}] after the stream for its last {count}, or LIMIT {count} for any",
            position=source.of(written),
        )
    share = _share(written, source)
    seed = 0 if (number := written.args.get("seed")) is None else _whole(number, "REPEATABLE", source)
    if seed > _SEED_MAX:
        raise SqlError(f"The seed of REPEATABLE is at most {_SEED_MAX}.", position=source.of(written))
    return None if share == 1 else Sample(share, seed)


def refuse_sample(node: exp.Expression, source: SourceText, what: str, hint: str) -> None:
    """TABLESAMPLE is for streams: nothing else has rows with ids."""
    written = node.args.get("sample")
    if written is not None:
        raise Unsupported(
            f"TABLESAMPLE takes a share of a stream, and this is {what}.", hint=hint, position=source.of(written)
        )


IN_THERE = "write it inside, after the stream that is read there"
"""What to do where a query is read."""

OF_KEYS = "take a share of its keys: WHERE pmod(xxhash64(key), 100) < 10"
"""What to do where there are no tuples."""


def _share(written: exp.TableSample, source: SourceText) -> Fraction:
    percent = written.args.get("percent")
    if percent is not None:
        negative = isinstance(percent, exp.Neg)
        number = percent.this if negative else percent
        share = Fraction(_digits(number.name, "PERCENT", written, source)) / 100
        if negative or share > 1:
            raise SqlError("TABLESAMPLE takes 0 to 100 PERCENT.", position=source.of(written))
        return share
    of, among = (_whole(written.args[name], "BUCKET", source) for name in ("bucket_numerator", "bucket_denominator"))
    if of > among or among == 0:
        raise SqlError(
            "TABLESAMPLE (BUCKET n OUT OF m) takes n of m parts: n is at most m.", position=source.of(written)
        )
    return Fraction(of, among)


def _whole(number: exp.Expression, what: str, source: SourceText) -> int:
    return int(_digits(number.name, what, number.parent or number, source, _DIGITS_MAX + 1))


def _digits(text: str, what: str, node: exp.Expr, source: SourceText, digits_max: int = _DIGITS_MAX) -> str:
    if len(text) > digits_max:
        raise SqlError(f"{what} takes a number of at most {digits_max} digits.", position=source.of(node))
    return text
