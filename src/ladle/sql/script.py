"""Text to drafts of statements: splitting a script, and errors with line, column and what was expected."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches

from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from ladle.errors import SqlError
from ladle.sql.dialect import DIALECT, LadleParser
from ladle.sql.drafts import Draft, SelectDraft
from ladle.sql.grammar import STATEMENTS
from ladle.sql.limits import StatementLimits, too_deep
from ladle.sql.literal_rows import literal_rows
from ladle.sql.position import SourceText
from ladle.sql.understood import check_draft

_AFTER_FROM = (
    "a comma, an operator, WHERE, GROUP BY, HAVING, ORDER BY, LIMIT, BEGIN ... END ..., or the end of the statement"
)


_FIRST_WORDS = {each.partition(" ")[0] for each in STATEMENTS.split(", ")} | {"WITH", "VALUES", "DESC"}


@dataclass(frozen=True)
class StatementTokens:
    """The tokens of one statement of a script."""

    tokens: list[Token]
    source: SourceText

    @property
    def text(self) -> str:
        """The statement's own part of the text."""
        return self.source.text[self.tokens[0].start : self.tokens[-1].end + 1]


def chunks(text: str, limits: StatementLimits | None = None) -> list[StatementTokens]:
    """A script's statements, within their limits; empty ones are left out."""
    if limits is not None:
        limits.check_text(text)
    source = SourceText(text)
    found: list[list[Token]] = [[]]
    for token in _tokens(text):
        if token.token_type == TokenType.SEMICOLON:
            found.append([])
        else:
            found[-1].append(token)
    whole = [StatementTokens(tokens, source) for tokens in found if tokens]
    if limits is not None:
        for chunk in whole:
            limits.check(chunk.tokens, source)
    return whole


def statements(text: str, limits: StatementLimits | None = None) -> list[str]:
    """The texts of a script's statements."""
    begin, found = 0, []
    while (scanned := literal_rows(text, begin)) is not None:
        found.append(text[begin : scanned.end].strip().removesuffix(";").rstrip())
        begin = scanned.end
    try:
        return [*found, *(chunk.text for chunk in chunks(text[begin:], limits))]
    except SqlError:
        # its place is one in the whole text
        return [chunk.text for chunk in chunks(text, limits)]


def is_unfinished(text: str) -> bool:
    """Whether a shell waits for more: a string, name or comment is open, or a statement has begun that no semicolon
    ends. What begins with no word of a statement is not one, and to be told.
    """
    scanned = literal_rows(text)
    if scanned is not None and not text[scanned.end :].strip():
        return not scanned.closed
    try:
        tokens = DIALECT.tokenize(text)
    except TokenError:
        return True
    if not tokens or tokens[-1].token_type == TokenType.SEMICOLON:
        return False
    first = chunks(text)[-1].tokens[0]
    return first.text.upper() in _FIRST_WORDS or first.token_type == TokenType.L_PAREN


def draft(chunk: StatementTokens) -> Draft:
    """One statement's draft."""
    parser = LadleParser(dialect=DIALECT)
    try:
        parsed = parser.statement(chunk.tokens, chunk.source.text)
        check_draft(parsed, chunk.source, chunk.tokens)
        return parsed
    except ParseError as error:
        raise _sql_error(error, parser.error_token, chunk, parser.error_hint) from None
    except RecursionError:
        raise too_deep() from None


def bound_tree(chunk: StatementTokens) -> exp.Expression:
    """The tree of a query's text that the binder made; what it says was checked before it was bound."""
    try:
        parsed = LadleParser(dialect=DIALECT).statement(chunk.tokens, chunk.source.text)
    except ParseError:
        raise SqlError("The bound text of this query can't be read again.") from None
    except RecursionError:
        raise too_deep() from None
    assert isinstance(parsed, SelectDraft)
    return parsed.query.tree


def only_chunk(text: str, limits: StatementLimits | None = None) -> StatementTokens:
    """The one statement of a text; none, or several, is an error."""
    found = chunks(text, limits)
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
                    position=SourceText(text).at(offset),
                ) from None
        if "/*" in text:
            raise SqlError(
                "A comment has no end.", hint="close it with */", position=SourceText(text).at(text.rindex("/*"))
            ) from None
        raise SqlError(
            "This text can't be read as SQL.", position=SourceText(text).at(max(error.start or 0, 0))
        ) from None


def _sql_error(error: ParseError, token: Token | None, chunk: StatementTokens, hint: str | None) -> SqlError:
    description = str(error.errors[0].get("description") or "") if error.errors else str(error)
    last = chunk.tokens[-1]
    position = chunk.source.at(token.start if token else last.end + 1)
    found = f"'{token.text}'" if token else "the end of the statement"
    if description.startswith("Expected ") and "<Token" not in description and "<class" not in description:
        return SqlError(f"{description}, found {found}.", hint=hint, position=position)
    if description.startswith("Expecting "):
        return SqlError(f"Expected {description.removeprefix('Expecting ')}, found {found}.", position=position)
    if description.startswith("Required") or "<Token" in description:
        return SqlError(f"Something is missing before {found}: {_missing(description)}.", position=position)
    if description.startswith("Invalid expression"):
        query = any(each.token_type == TokenType.SELECT for each in chunk.tokens)
        expected = _AFTER_FROM if query else "the end of the statement"
        hint = (_misspelt(token, chunk) if query else None) or f"expected {expected}"
        return SqlError(f"Unexpected {found}.", hint=hint, position=position)
    if description.startswith(("Found multiple 'BEGIN'", "Found multiple 'END'")):
        return SqlError("A query has one window: BEGIN and END stand side by side, once.", position=position)
    return SqlError(f"{description.rstrip('.')}.", hint=hint, position=position)


_CLAUSES = ("FROM", "WHERE", "GROUP", "HAVING", "ORDER", "LIMIT", "JOIN", "UNION", "BEGIN", "LATERAL")


def _misspelt(token: Token | None, chunk: StatementTokens) -> str | None:
    """`SELECT * FORM t`: the word before what can't be read may have been meant as one that begins a clause."""
    index = chunk.tokens.index(token) if token in chunk.tokens else 0
    for word in [each.text.upper() for each in chunk.tokens[max(index - 1, 0) : index + 1][::-1]]:
        if word not in _CLAUSES and (near := get_close_matches(word, _CLAUSES, n=1, cutoff=0.7)):
            return f"did you mean {near[0]}, not {word}?"
    return None


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
