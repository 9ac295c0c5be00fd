"""Text to drafts of statements: splitting a script, and errors with line, column and what was expected."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from ladle.errors import SqlError
from ladle.sql.dialect import DIALECT, LadleParser
from ladle.sql.drafts import Draft
from ladle.sql.position import Source

_AFTER_FROM = (
    "a comma, an operator, WHERE, GROUP BY, HAVING, ORDER BY, LIMIT, BEGIN ... END ..., or the end of the statement"
)


@dataclass(frozen=True)
class Chunk:
    """The tokens of one statement of a script."""

    tokens: list[Token]
    source: Source

    @property
    def text(self) -> str:
        return self.source.text[self.tokens[0].start : self.tokens[-1].end + 1]


def chunks(text: str) -> list[Chunk]:
    """A script's statements; empty ones are left out."""
    source = Source(text)
    found: list[list[Token]] = [[]]
    for token in _tokens(text):
        if token.token_type == TokenType.SEMICOLON:
            found.append([])
        else:
            found[-1].append(token)
    return [Chunk(tokens, source) for tokens in found if tokens]


def statements(text: str) -> list[str]:
    """The texts of a script's statements."""
    return [chunk.text for chunk in chunks(text)]


def is_complete(text: str) -> bool:
    """Whether a shell may run what was typed: it ends with a semicolon that is in no string and no comment."""
    try:
        tokens = DIALECT.tokenize(text)
    except TokenError:
        return False
    return bool(tokens) and tokens[-1].token_type == TokenType.SEMICOLON


def draft(chunk: Chunk) -> Draft:
    """One statement's draft."""
    parser = LadleParser(dialect=DIALECT)
    try:
        return parser.statement(chunk.tokens, chunk.source.text)
    except ParseError as error:
        raise _sql_error(error, parser.error_token, chunk) from None
    except RecursionError:
        raise too_deep() from None


def too_deep() -> SqlError:
    return SqlError("The statement is nested too deeply.", hint="give parts of it a name with WITH")


def only_chunk(text: str) -> Chunk:
    found = chunks(text)
    if not found:
        raise SqlError("There is no statement here.", hint="write one, like SELECT * FROM stream")
    if len(found) > 1:
        raise SqlError(
            "One statement was expected, not several.",
            position=found[1].source.at(found[1].tokens[0].start),
        )
    return found[0]


_QUOTES = (("'", "string"), ('"', "string"), ("`", "quoted name"), ("$$", "source of a function"))


def _tokens(text: str) -> list[Token]:
    try:
        return DIALECT.tokenize(text)
    except TokenError as error:
        cause = str(error.__cause__ or error)
        for quote, name in _QUOTES:
            if cause.startswith(f"Missing {quote} "):
                offset = int(cause.rpartition(":")[2])
                raise SqlError(
                    f"The {name} that begins here has no end.",
                    hint=f"close it with {quote}",
                    position=Source(text).at(offset),
                ) from None
        if "/*" in text:
            raise SqlError(
                "A comment has no end.", hint="close it with */", position=Source(text).at(text.rindex("/*"))
            ) from None
        raise SqlError("This text can't be read as SQL.", position=Source(text).at(max(error.start or 0, 0))) from None


def _sql_error(error: ParseError, token: Token | None, chunk: Chunk) -> SqlError:
    description = str(error.errors[0].get("description") or "") if error.errors else str(error)
    last = chunk.tokens[-1]
    position = chunk.source.at(token.start if token else last.end + 1)
    found = f"'{token.text}'" if token else "the end of the statement"
    if description.startswith("Expected ") and "<Token" not in description and "<class" not in description:
        return SqlError(f"{description}, found {found}.", position=position)
    if description.startswith("Expecting "):
        return SqlError(f"Expected {description.removeprefix('Expecting ')}, found {found}.", position=position)
    if description.startswith("Required") or "<Token" in description:
        return SqlError(f"Something is missing before {found}: {_missing(description)}.", position=position)
    if description.startswith("Invalid expression"):
        query = any(each.token_type == TokenType.SELECT for each in chunk.tokens)
        expected = _AFTER_FROM if query else "the end of the statement"
        return SqlError(f"Unexpected {found}.", hint=f"expected {expected}", position=position)
    if description.startswith(("Found multiple 'BEGIN'", "Found multiple 'END'")):
        return SqlError("A query has one window: BEGIN and END stand side by side, once.", position=position)
    return SqlError(f"{description.rstrip('.')}.", position=position)


def _missing(description: str) -> str:
    """`Required keyword: 'this' missing for <class '...Where'>` in plain words."""
    if "table name" in description:
        return "the name of a stream, table or query"
    node = description.rpartition(".")[2].strip("'>\" ").upper()
    return {
        "WHERE": "a condition after WHERE",
        "HAVING": "a condition after HAVING",
        "BETWEEN": "the bounds of BETWEEN, as in x BETWEEN 1 AND 5",
        "CAST": "the value or the type of CAST, as in CAST(x AS INT)",
        "TRYCAST": "the value or the type of CAST, as in CAST(x AS INT)",
        "CTE": "the query of a common table expression, as in WITH t AS (SELECT ...)",
        "JOIN": "the relation to join",
        "FROM": "the name of a stream, table or query",
        "INTERVAL": "the length of an INTERVAL, as in INTERVAL 10 MINUTES",
    }.get(node, "an expression")
