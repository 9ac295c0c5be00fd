"""Refusing what would be accepted and ignored, before anything else looks at a statement (decision 17).

Every node of its trees and every argument of a node has to be on the lists of `sql/vocabulary.py`. The parser may also
swallow words without keeping them: so every name, text and number of a query has to be found again in its tree, and
every other word has to be one that the grammar of a listed node has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from ladle.errors import LadleError, Position, SqlError, Unsupported
from ladle.sql.conformant.datatypes import SPARK_TYPES, unknown_type
from ladle.sql.dialect import BRACKET, NowBracket, RecursionLevel
from ladle.sql.dialect import WORDS as WRITTEN
from ladle.sql.drafts import DeleteDraft, Draft, QueryDraft, UpdateDraft
from ladle.sql.position import SourceText
from ladle.sql.vocabulary import CLASSES, HANDLED, MAY_BE_FALSE, REFUSED, WORDS

_LEAVES = frozenset(
    (
        exp.Identifier,
        exp.Literal,
        exp.Var,
        exp.Anonymous,
        exp.HexString,
        exp.RawString,
        exp.Placeholder,
    )
)
"""Nodes that hold a word, text or number as it was written."""

_CONTENT = frozenset(
    (
        *(TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING, TokenType.NUMBER),
        *(TokenType.RAW_STRING, TokenType.HEX_STRING, TokenType.HEREDOC_STRING),
    )
)
"""Tokens that must be found again in the tree."""

_SYNTAX_TEXT = """
    ALL AND ANTI ANY ARRAY AS ASC BEGIN BETWEEN BIGINT BINARY BOOLEAN BOTH BY BYTE CASE CAST CHAR COLLATE CROSS CUBE
    CURRENT CURRENT_DATE CURRENT_ROLE CURRENT_TIMESTAMP CURRENT_USER DATE DEC DECIMAL DELETE DESC DISTINCT DIV
    DOUBLE ELSE END ESCAPE EXCEPT EXISTS EXTRACT FALSE FETCH FILTER FIRST FLOAT FOLLOWING FOR FROM FULL GROUP HAVING
    IF IGNORE ILIKE IN INNER INT INTEGER INTERSECT INTERVAL IS ISNULL JOIN LAST LATERAL LEADING LEFT LIKE LIMIT LONG
    MAP MINUS NATURAL NEXT NOT NOTNULL NULL NULLS NUMERIC OFFSET ON ONLY OR OUTER OVER OVERLAY PARTITION PIVOT
    PLACING POSITION PRECEDING QUALIFY RANGE REAL RECURSIVE REGEXP RESPECT RIGHT RLIKE ROLLUP ROW ROWS SELECT SEMI
    SESSION_USER SET SETMINUS SETS SHORT SMALLINT SOME STRING STRUCT SUBSTR SUBSTRING TABLE THEN TIMESTAMP TIMESTAMP_LTZ
    TIMESTAMP_NTZ TINYINT TO TRAILING TRIM TRUE TRY_CAST UNBOUNDED UNION UNKNOWN UNPIVOT UPDATE USING VALUES
    VARCHAR VARIANT VIEW VOID WHEN WHERE WINDOW WITH WITHIN
"""
_SYNTAX_PAIRS = ("GROUP BY", "ORDER BY", "PARTITION BY", "GROUPING SETS", "DISTRIBUTE BY", "SORT BY", "CLUSTER BY")
_SYNTAX = frozenset((*_SYNTAX_TEXT.split(), *_SYNTAX_PAIRS))
"""Words that listed nodes are written with; DISTRIBUTE BY and SORT BY in OVER mean PARTITION BY and ORDER BY."""

_MARKS = frozenset(
    [
        "(",
        ")",
        "[",
        "]",
        ",",
        ".",
        "*",
        "+",
        "-",
        "/",
        "%",
        "=",
        "==",
        "<>",
        "!=",
        "<",
        "<=",
        ">",
        ">=",
        "<=>",
        "||",
        "&&",
        "|",
        "&",
        "^",
        "~",
        "!",
        "->",
        "=>",
        "::",
        "?",
        "@",
        "/*+",
    ]
)
"""What may stand in a query beside words, names, texts and numbers."""

_UNITS = frozenset(
    each
    for unit in ["YEAR", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND", "MICROSECOND", "QUARTER"]
    for each in (unit, f"{unit}S")
)


Found = dict[str, int]
"""How often each name, text and number is in a tree, in upper case."""


def check_draft(draft: Draft, source: SourceText, tokens: Sequence[Token]) -> None:
    """Refuse a statement of which some part would be ignored."""
    found: Found = {}
    for part in _parts(draft):
        if isinstance(part, QueryDraft):
            inside: Found = {}
            _check_tree(part.tree, source, part.tokens, inside)
            _check_words(inside, source, part.tokens)
        else:
            _check_tree(part, source, tokens, found)
    if isinstance(draft, UpdateDraft | DeleteDraft):
        _check_words(found, source, tokens[1:])  # without the statement's own word


def _parts(value: object) -> Iterator[QueryDraft | exp.Expr]:
    """The queries and the other trees that a draft holds."""
    if isinstance(value, QueryDraft | exp.Expr):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from _parts(each)
    elif is_dataclass(value):
        for each in fields(value):
            yield from _parts(getattr(value, each.name))


def _check_tree(tree: exp.Expr, source: SourceText, tokens: Sequence[Token], found: Found) -> None:
    """Refuse a node, or an argument of one, that is not listed, at its place. Adds what it holds to `found`."""
    stack: list[exp.Expr] = [tree]
    while stack:
        node = stack.pop()
        kind = type(node)
        handled = HANDLED.get(kind)
        if handled is None:
            raise _unlisted(node, source, tokens)
        for name, value in node.args.items():
            if value is None:
                continue
            if isinstance(value, exp.Expr):
                stack.append(value)
            elif isinstance(value, list):
                if not value:
                    continue
                stack.extend(each for each in value if isinstance(each, exp.Expr))
            elif (kind, name) in WORDS:
                _check_word(node, name, value, source, tokens)
            if name not in handled and not (value is False and name in MAY_BE_FALSE):
                raise _refusal(_written(node, name, value, tokens), node, source, tokens)
        if kind in _LEAVES:
            word = str(node.this).upper()
            found[word] = found.get(word, 0) + 1
        elif kind in _NOT_TOGETHER:
            _check_together(node, source, tokens)
        elif isinstance(node, exp.DataType):
            _check_type(node, source, tokens)
        elif kind in (exp.Version, exp.TableSample):
            for word in node.meta.get(WRITTEN, ()):
                found[word] = found.get(word, 0) + (word not in _SYNTAX)
        elif kind is NowBracket:
            found["NOW"] = found.get("NOW", 0) + 1
        elif kind is exp.Pivot and (nulls := node.args.get("include_nulls")) is not None:
            word = "INCLUDE" if nulls else "EXCLUDE"
            found[word] = found.get(word, 0) + 1
        elif kind is RecursionLevel:
            for word in ("MAX", "RECURSION", "LEVEL"):
                found[word] = found.get(word, 0) + 1
        elif kind is exp.Union and node.args.get("by_name"):
            found["NAME"] = found.get("NAME", 0) + 1
        elif kind is exp.ColumnDef:
            # STRUCT<a: INT>; elsewhere a colon would be a path into a text
            found[":"] = found.get(":", 0) + 1
        if kind in _BRACKETED and (bracket := node.meta.get(BRACKET)) is not None:
            stack.append(bracket)


def _check_type(node: exp.DataType, source: SourceText, tokens: Sequence[Token]) -> None:
    if isinstance(node.this, exp.DType) and node.this not in SPARK_TYPES:
        raise unknown_type(node, _position(node.this.value, node, source, tokens))


def _check_words(found: Found, source: SourceText, tokens: Sequence[Token]) -> None:
    """Refuse a name or constant of the text that is not in its tree, and a word that no listed node is written with."""
    for index, token in enumerate(tokens):
        word = token.text.upper()
        if token.token_type not in _CONTENT and (word in _SYNTAX or word in _MARKS):
            continue
        if token.token_type is TokenType.HINT:
            continue
        if token.token_type is TokenType.HEX_STRING and source.text[token.start] == "0":
            # for Spark it is a name, for the parser X'1F'
            raise Unsupported("A number like 0x1F is not part of Spark's SQL.", position=source.at(token.start))
        if index and tokens[index - 1].text == "::":
            continue  # a type, also the D of 5D, which must not be taken for a column of that name
        if _follows_a_point(tokens, index):
            word = f"0.{word}"  # the parser's form of .5
        if (left := found.get(word, 0)) > 0:
            found[word] = left - 1
        elif not (token.token_type is TokenType.VAR and word in _SYNTAX) and not _is_rewritten(tokens, index):
            raise Unsupported(f"'{token.text}' is not understood here.", position=source.at(token.start))


def _follows_a_point(tokens: Sequence[Token], index: int) -> bool:
    """Whether a token is the 5 of `.5`, and not a name's: `t.5` is none."""
    if not index or tokens[index].token_type is not TokenType.NUMBER:
        return False
    point = tokens[index - 1]
    return point.text == "." and point.end + 1 == tokens[index].start


def _is_rewritten(tokens: Sequence[Token], index: int) -> bool:
    """Whether the parser keeps another form of a token: parts of an INTERVAL, and the length of a VARCHAR (which
    Spark's casts don't look at either)."""
    before = [token.text.upper() for token in tokens[max(index - 2, 0) : index]]
    if not before or tokens[index].token_type not in (TokenType.NUMBER, TokenType.STRING):
        return False
    last = before[0] if before[-1] in ("-", "+") else before[-1]
    return last in ("INTERVAL", "RANGE") or last in _UNITS or before in (["VARCHAR", "("], ["CHAR", "("])


_BRACKETED = frozenset((exp.Table, exp.TableAlias, exp.TableSample, exp.Version))
_NOT_TOGETHER = frozenset((exp.Window, exp.Group, exp.TableAlias, exp.Values, exp.Any, exp.All))


def _check_together(node: exp.Expr, source: SourceText, tokens: Sequence[Token]) -> None:
    """Refuse what is understood apart, and not together."""
    match node:
        case exp.Window(args={"alias": exp.Expr()}) if any(
            node.args.get(each) for each in ("partition_by", "order", "spec")
        ):
            raise _refusal("a named window with more in OVER", node, source, tokens)
        case exp.Group() if node.args.get("all") and node.expressions:
            raise _refusal("GROUP BY ALL with more", node, source, tokens)
        case exp.TableAlias() if any(isinstance(each, exp.ColumnDef) for each in node.args.get("columns") or ()):
            raise _refusal("a type in a list of names", node, source, tokens)
        case exp.TableAlias(parent=parent) if not node.this and not isinstance(parent, exp.Lateral):
            raise _refusal("a list of names without a name before it", node, source, tokens)
        case exp.Values() if not all(each.expressions for each in node.expressions if isinstance(each, exp.Tuple)):
            raise SqlError(
                "A row of VALUES has at least one value.", position=_position("VALUES", node, source, tokens)
            )
        case exp.Any() | exp.All() if isinstance(node.this, exp.Query):
            raise _refusal(f"{node.key.upper()} before a query", node, source, tokens, "write IN or EXISTS")


def _check_word(node: exp.Expr, name: str, value: object, source: SourceText, tokens: Sequence[Token]) -> None:
    if (value.upper() if isinstance(value, str) else value) not in WORDS[type(node), name]:
        raise _refusal(_word(node, name, value), node, source, tokens)


def _word(node: exp.Expr, name: str, value: object) -> str:
    """What SQL calls a word that an argument may not have."""
    match node:
        case exp.Group():
            return "GROUP BY DISTINCT"
        case exp.Join():
            return f"{str(value).upper()} JOIN"
        case exp.WindowSpec():
            return f"{str(value).upper()} in a window's frame"
    return str(value).upper()


def _written(node: exp.Expr, name: str, value: object, tokens: Sequence[Token]) -> str:
    """What SQL calls an argument that is not listed."""
    match node, name:
        case exp.SetOperation(), "by_name" | "kind" | "on":
            corresponding = any(token.text.upper() == "CORRESPONDING" for token in tokens)
            return "CORRESPONDING" if corresponding else "BY NAME"
        case exp.SetOperation(), "side":
            return f"{str(value).upper()} {node.key.upper()}"
    return REFUSED.get(type(node), {}).get(name, f"this form of {node.key.upper()}")


def _unlisted(node: exp.Expr, source: SourceText, tokens: Sequence[Token]) -> LadleError:
    """The error for a node of a class that is not listed."""
    match node:
        case exp.Placeholder(parent=exp.Table()):
            return SqlError("FROM names a stream, table or query.", position=source.of(node))
        case exp.Placeholder() | exp.Parameter() | exp.SessionParameter():
            message, hint = "Parameters have no place in a query's text.", "write the value itself"
            return SqlError(message, hint=hint, position=source.of(node))
        case exp.DDL() | exp.DML():
            return SqlError("A query was expected here.", position=source.of(node))
    return _refusal(CLASSES.get(type(node), f"'{_text(node)}'"), node, source, tokens)


def _refusal(
    what: str, node: exp.Expr, source: SourceText, tokens: Sequence[Token], hint: str | None = None
) -> Unsupported:
    if what in ("CORRESPONDING", "BY NAME"):
        hint = "set operations match columns by position: select them in the same order on both sides"
    if what == "ORDER BY inside a call":
        hint = "values have an order in array_agg, string_agg, first and last"
    if what == "PIVOT here":
        hint = "it stands after one relation: write a subquery, FROM (SELECT ...) PIVOT (...)"
    position = _position(what, node, source, tokens)
    return Unsupported(f"{what[0].upper()}{what[1:]} is not part of Ladle's SQL.", hint=hint, position=position)


def _position(what: str, node: exp.Expr, source: SourceText, tokens: Sequence[Token]) -> Position | None:
    """Where the words of the clause stand, else where the node does, or the nearest node around it."""
    words = [word.strip(",") for word in what.split()]
    words = words[: next((i for i, word in enumerate(words) if not word.isupper()), len(words))]
    written = [token.text.upper() for token in tokens]
    while words:
        for index, token in enumerate(tokens):
            if " ".join(written[index : index + len(words)]).startswith(" ".join(words)):
                return source.at(token.start)
        words.pop()
    place: exp.Expr | None = node
    while place is not None:
        if (position := source.of(place)) is not None:
            return position
        place = place.parent
    return None


def _text(node: exp.Expr) -> str:
    try:
        return node.sql(dialect="spark")[:60]
    except Exception:
        return node.key.upper()
