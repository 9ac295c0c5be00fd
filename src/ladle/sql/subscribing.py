"""The grammar of SUBSCRIBE: what of a query is told, since when, and how."""

from __future__ import annotations

from sqlglot.tokenizer_core import Token, TokenType

from ladle.delta import ChangeOptions, Moment, ToStream
from ladle.errors import TypeMismatch
from ladle.sql.drafts import SubscribeDraft
from ladle.sql.refusing import RefusingParser, either
from ladle.sql.statement_types import Subscribing

_RELATIONS = ("ISTREAM", "DSTREAM", "RSTREAM")
_DIGITS_MAX = 19
_SUBSCRIBE_OPTIONS = ("SNAPSHOT", "EXPIRATIONS", "PROGRESS")


class SubscribeParser(RefusingParser):
    """Parses SUBSCRIBE."""

    def _parse_subscribe(self) -> SubscribeDraft:
        relation = ToStream.CHANGES
        if self._next and self._next.token_type == TokenType.L_PAREN:
            if not self._match_texts(_RELATIONS):
                self._refuse(f"{either(_RELATIONS)} before the parenthesis", _RELATIONS)
            relation = ToStream(self._prev.text.lower())
            self._match(TokenType.L_PAREN)
        name = self._name("the name of a query")
        if relation is not ToStream.CHANGES and not self._match(TokenType.R_PAREN):
            self._refuse(f"a parenthesis after {relation.name}({name.name}")
        since = self._since() if self._match_text_seq("SINCE") else None
        how: dict[str, tuple[Token, str | bool]] = {}
        if self._match_text_seq("WITH"):
            if not self._match(TokenType.L_PAREN, advance=False):
                self._refuse("the options in parentheses, like WITH (snapshot = true)")
            self._parse_wrapped_csv(lambda: self._subscribe_option(how))
        values = {option: value for option, (_, value) in how.items()}
        if since is not None and values.get("snapshot"):
            self.raise_error("A snapshot is the answer as it is now, and SINCE a time before", how["snapshot"][0])
        try:
            options = ChangeOptions.of(str(values.get("expirations", "retract")), relation)
        except TypeMismatch as error:
            self.error_hint = error.hint
            self.raise_error(error.message.removesuffix("."), how["expirations"][0])
        return SubscribeDraft(
            name, Subscribing(since, options, bool(values.get("snapshot")), bool(values.get("progress")))
        )

    def _subscribe_option(self, how: dict[str, tuple[Token, str | bool]]) -> Token:
        """`snapshot = true`, into what was said before."""
        token = self._curr
        if not self._match_texts(_SUBSCRIBE_OPTIONS):
            self._refuse(f"an option: {either(_SUBSCRIBE_OPTIONS)}", _SUBSCRIBE_OPTIONS)
        option = token.text.lower()
        if option in how:
            self.raise_error(f"{option} is given twice", token)
        self._match(TokenType.EQ)
        if option == "expirations":
            if not self._match(TokenType.STRING):
                self._refuse("expirations = 'retract' or 'out'")
            how[option] = token, self._prev.text
        elif self._match_set((TokenType.TRUE, TokenType.FALSE)):
            how[option] = token, self._prev.token_type == TokenType.TRUE
        else:
            self._refuse(f"{option} = true or false")
        return token

    def _since(self) -> int | str:
        told, epoch = self._match(TokenType.STRING), self._match(TokenType.NUMBER)
        text = self._prev.text
        if (told or epoch) and text.isascii() and text.isdigit() and len(text) < _DIGITS_MAX:
            return int(text)
        try:
            Moment.parse(text if told else "")
        except TypeMismatch as error:
            self.error_hint = error.hint
            self.raise_error(
                "Expected a position in quotes, or the number of an epoch", self._prev if told or epoch else self._curr
            )
            raise
        return text  # as it was told: it says of which query it is
