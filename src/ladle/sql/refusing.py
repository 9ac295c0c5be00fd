"""A parser that says what it expected, where, and what may have been meant."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from sqlglot import exp
from sqlglot.errors import ErrorLevel
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from ladle.errors import did_you_mean, nearest


class RefusingParser(SparkParser):
    """A parser that refuses what it does not know, and says what it expected and where."""

    error_token: Token | None = None
    """Where the last error was raised; None at the end of the text."""
    error_hint: str | None = None
    """What to do about it, if the parser knows."""

    def raise_error(self, message: str, token: Token | None = None) -> None:
        """Raise, and remember where: also what sqlglot would only collect."""
        if message.startswith("Expected END after CASE"):
            token = self._curr
        self.error_token = token or self._curr or None
        # Also errors that sqlglot would collect must stop at the first: trees with holes are of no use.
        self.error_level = ErrorLevel.IMMEDIATE
        super().raise_error(message, token or self._curr or self._prev)

    def _refuse(self, expected: str, words: Sequence[str] = ()) -> NoReturn:
        """Raise the error for what is there instead; of `words`, the nearest to it may be meant."""
        near = nearest(self._curr.text, words, likeness=0.7) if self._curr else []
        self.error_hint = did_you_mean(near) or self.error_hint
        self.raise_error(f"Expected {expected}")
        raise AssertionError("raise_error raises")

    def _name(self, what: str) -> exp.Identifier:
        token = self._curr
        name = self._parse_id_var(any_token=True) if token.token_type != TokenType.STRING else None
        if not isinstance(name, exp.Identifier):
            self.raise_error(f"Expected {what}", token)
        assert isinstance(name, exp.Identifier)
        return name


def either(words: Sequence[str]) -> str:
    """Words as a choice, like "a, b or c"."""
    return f"{', '.join(words[:-1])} or {words[-1]}"
