"""Ladle's SQL: Spark's dialect plus streams, windows and standing queries.

A subclass of sqlglot's Spark dialect that extends tokenizer and parser. Windows become query modifiers (`BEGIN b END
e`) and brackets after a stream (`[RANGE 10 MINUTES]`); statements are in `sql/grammar.py`. Calls of functions
are kept as they were written (`exp.Anonymous`): sqlglot's own function nodes rewrite some of them (`date_trunc(unit,
x)` with a column for the unit, `date_sub`), and what Spark is given must be what the user said.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import ClassVar, Self, TypeVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.generators.spark import SparkGenerator
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from ladle.sql.grammar import StatementParser
from ladle.sql.within_group import with_nulls_inside, with_order_outside


class Bounds(exp.Expression):
    """`BEGIN b END e` of a query."""

    arg_types: ClassVar[dict[str, bool]] = {"begin": False, "end": False}


class RangeBracket(exp.Expression):
    """`[RANGE interval]` of one mention of a stream; `[RANGE UNBOUNDED]` without `this`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": False}


class RowsBracket(exp.Expression):
    """`[ROWS n]` of one mention of a stream; with `expressions`, `[PARTITION BY columns ROWS n]`."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True, "expressions": False}


class NowBracket(exp.Expression):
    """`[NOW]` of one mention of a stream."""

    arg_types: ClassVar[dict[str, bool]] = {}


class RecursionLevel(exp.Expression):
    """`MAX RECURSION LEVEL n` of a common table expression."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


BRACKET = "ladle_bracket"
"""Key in a node's `meta` under which its bracket is kept."""

_LEVEL = "ladle_level"
"""Key in the `meta` of a common table expression's name, while it is parsed: the level that follows it."""

_LEVEL_MAX = (1 << 31) - 1

WORDS = "ladle_words"
"""Key in the `meta` of AS OF and TABLESAMPLE: the words that they are written with."""


# Functions whose arguments have a grammar of their own; every other call is parsed as name and arguments.
_OWN_GRAMMAR = ("CAST", "TRY_CAST", "EXTRACT", "POSITION", "SUBSTRING", "SUBSTR", "TRIM", "OVERLAY")

_WINDOW_TOKENS = {TokenType.BEGIN, TokenType.END}
_WINDOW_WORDS = _WINDOW_TOKENS | {TokenType.RANGE, TokenType.ROWS, TokenType.PARTITION_BY}
_KEYED = "write columns, and how many rows of each key: [PARTITION BY symbol ROWS 3]"
_BRACKETS = "[RANGE interval], [ROWS n], [PARTITION BY column ROWS n], [BEGIN b END e] or [NOW]"


def _opens_window(bracket: Token, word: Token) -> bool:
    """Whether two tokens begin a window."""
    begins = word.token_type in _WINDOW_WORDS or word.text.upper() == "NOW"
    return bracket.token_type is TokenType.L_BRACKET and begins


_Item = TypeVar("_Item")


_Tree = TypeVar("_Tree", bound=exp.Expr)


class LadleParser(StatementParser):
    """Parses Ladle's statements and queries. Grammar that nothing acts on is left out, so that it is refused."""

    FUNCTIONS: ClassVar[dict[str, Callable[..., exp.Expr]]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Callable[..., exp.Expr | None]]] = {
        name: SparkParser.FUNCTION_PARSERS[name] for name in _OWN_GRAMMAR
    }
    # TRANSFORM ... USING 'script' runs a program; as a plain call it is the array function.
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Callable[[SparkParser], exp.Expr | None]]] = {
        name: parser for name, parser in SparkParser.NO_PAREN_FUNCTION_PARSERS.items() if name in ("CASE", "IF")
    }
    TABLE_ALIAS_TOKENS: ClassVar[set[TokenType]] = SparkParser.TABLE_ALIAS_TOKENS - _WINDOW_TOKENS
    TABLE_TERMINATORS: ClassVar[frozenset[TokenType]] = SparkParser.TABLE_TERMINATORS | _WINDOW_TOKENS
    QUERY_MODIFIER_PARSERS: ClassVar[dict[TokenType, Callable[[Self], tuple[str, object]]]] = {
        **SparkParser.QUERY_MODIFIER_PARSERS,
        TokenType.BEGIN: lambda self: ("bounds", self._parse_bounds()),
        TokenType.END: lambda self: ("bounds", self._parse_bounds()),
        TokenType.DISTRIBUTE_BY: lambda self: ("distribute", self._parse_placing(exp.Distribute)),
        TokenType.CLUSTER_BY: lambda self: ("cluster", self._parse_placing(exp.Cluster)),
    }
    QUERY_MODIFIER_TOKENS: ClassVar[set[TokenType]] = set(QUERY_MODIFIER_PARSERS)
    SET_OP_MODIFIERS: ClassVar[set[str]] = SparkParser.SET_OP_MODIFIERS | {"bounds"}
    # Spark's forms, of which sqlglot knows some.
    VERSION_PHRASES: ClassVar[dict[tuple[str, ...], str]] = {
        (*before, word, "AS", "OF"): kind
        for before in ((), ("FOR",))
        for word, kind in (
            ("TIMESTAMP", "TIMESTAMP"),
            ("SYSTEM_TIME", "TIMESTAMP"),
            ("VERSION", "VERSION"),
            ("SYSTEM_VERSION", "VERSION"),
        )
    }
    _trying = 0
    """How many attempts are under way that may turn out to be something else."""
    # `array(1, 2)[0]` is an element of a call, not a second array.
    ARRAY_CONSTRUCTORS: ClassVar[dict[str, type[exp.Func]]] = {}

    # Windows

    def _parse_bounds(self) -> Bounds:
        start = self._curr
        begin = end = None
        while self._match_set(_WINDOW_TOKENS):
            edge = self._prev
            bound = self._parse_term() if self._curr else None
            if bound is None:
                self.raise_error(
                    f"Expected a time after {edge.text.upper()}: a TIMESTAMP, NOW, or NOW - INTERVAL 10 MINUTES"
                )
            if (begin if edge.token_type == TokenType.BEGIN else end) is not None:
                self.raise_error(f"{edge.text.upper()} is given twice", edge)
            if edge.token_type == TokenType.BEGIN:
                begin = bound
            else:
                end = bound
        return Bounds(begin=begin, end=end).update_positions(start)

    def _parse_bracket(self, this: exp.Expr | None = None) -> exp.Expr | None:
        if isinstance(this, exp.Table) and self._match(TokenType.L_BRACKET, advance=False):
            this.meta[BRACKET] = self._parse_window_bracket()
            return this
        return super()._parse_bracket(this)

    def _parse_version(self) -> exp.Version | None:
        """`TIMESTAMP AS OF t` or `VERSION AS OF n`, and a window's bracket after it."""
        start = self._curr
        phrase = next((phrase for phrase in self.VERSION_PHRASES if self._match_text_seq(*phrase)), None)
        if phrase is None:
            return None
        moment = self._parse_up_to_window() if self._curr else None
        if moment is None:
            self._refuse("a time after TIMESTAMP AS OF, or an entry of the log after VERSION AS OF")
        version = exp.Version(this=self.VERSION_PHRASES[phrase], expression=moment, kind="AS OF")
        version.update_positions(start)
        version.meta[WORDS] = phrase
        if self._match(TokenType.L_BRACKET, advance=False):
            version.meta[BRACKET] = self._parse_window_bracket()
        return version

    def _parse_table_sample(self, as_modifier: bool = False) -> exp.TableSample | None:
        """Spark's `TABLESAMPLE (10 PERCENT) REPEATABLE (7)`, and a window's bracket after it."""
        start = self._curr
        if not self._match(TokenType.TABLE_SAMPLE):
            return None
        if as_modifier:
            self._refuse_sample(start)
        if self._match_text_seq("SYSTEM"):
            self.error_hint = "leave out SYSTEM: each tuple is in a sample or not, by itself"
            self.raise_error("TABLESAMPLE SYSTEM takes blocks of files", start)
        words = [start.text.upper()]
        if self._match_text_seq("BERNOULLI"):
            words.append("BERNOULLI")
        self._expect("(")
        sample = exp.TableSample()
        if self._match_text_seq("BUCKET"):
            words += ["BUCKET", "OUT", "OF"]
            sample.set("bucket_numerator", self._parse_digits())
            self._expect("OUT")
            self._expect("OF")
            sample.set("bucket_denominator", self._parse_digits())
        else:
            amount = self._parse_bitwise()
            if self._match_text_seq("ROWS"):
                sample.set("size", amount)
            elif self._match_text_seq("PERCENT") and _is_number(amount):
                words.append("PERCENT")
                sample.set("percent", amount)
            else:
                self._refuse("a share like 10 PERCENT, or BUCKET 1 OUT OF 16")
        self._expect(")")
        if self._match_text_seq("REPEATABLE"):
            words.append("REPEATABLE")
            self._expect("(")
            sample.set("seed", self._parse_digits())
            self._expect(")")
        sample.update_positions(start)
        sample.meta[WORDS] = words
        if self._match(TokenType.L_BRACKET, advance=False):
            sample.meta[BRACKET] = self._parse_window_bracket()
        return sample

    def _refuse_sample(self, token: Token) -> None:
        self.error_hint = "like FROM trades TABLESAMPLE (10 PERCENT) AS t; of a subquery, write it inside"
        self.raise_error("TABLESAMPLE stands after a stream, before its alias", token)

    def _parse_subquery(self, this: exp.Expr | None, parse_alias: bool = True) -> exp.Subquery | None:
        if this is not None and self._match(TokenType.TABLE_SAMPLE, advance=False):
            self._refuse_sample(self._curr)
        return super()._parse_subquery(this, parse_alias)

    def _parse_digits(self) -> exp.Expression:
        """A whole number."""
        if self._curr.token_type != TokenType.NUMBER or not self._curr.text.isdecimal():
            self._refuse("a whole number")
        self._advance()
        return exp.Literal.number(self._prev.text)

    def _expect(self, word: str) -> None:
        if not self._match_text_seq(word):
            self._refuse(word)

    def _parse_table_alias(self, alias_tokens: Collection[TokenType] | None = None) -> exp.TableAlias | None:
        alias = super()._parse_table_alias(alias_tokens)
        if alias is not None and self._match(TokenType.L_BRACKET, advance=False):
            alias.meta[BRACKET] = self._parse_window_bracket()
        if alias is not None and alias_tokens is self.ID_VAR_TOKENS and (level := self._parse_level()) is not None:
            alias.meta[_LEVEL] = level
        return alias

    def _parse_level(self) -> RecursionLevel | None:
        """`MAX RECURSION LEVEL 200`, between a common table expression's name and AS."""
        start = self._curr
        if not self._match_text_seq("MAX", "RECURSION", "LEVEL"):
            return None
        given = self._curr.text if self._match(TokenType.NUMBER, advance=False) else ""
        if not given.isdecimal() or int(given) > _LEVEL_MAX:
            self._refuse(f"a whole number up to {_LEVEL_MAX} after MAX RECURSION LEVEL")
        self._advance()
        return RecursionLevel(this=exp.Literal.number(self._prev.text)).update_positions(start)

    def _parse_up_to_window(self) -> exp.Expr | None:
        """An expression that a window may follow: `'2024-01-01' [ROWS 5]` is no element of a text."""
        pairs = zip(self._tokens[self._index :], self._tokens[self._index + 1 :], strict=False)
        at = next((number for number, pair in enumerate(pairs, self._index) if _opens_window(*pair)), None)
        if at is None:
            return self._parse_bitwise()
        bracket = self._tokens[at]
        end = Token(TokenType.SEMICOLON, bracket.text, bracket.line, bracket.col, bracket.start, bracket.end)
        try:
            self._put(at, end)
            return self._parse_bitwise()
        finally:
            self._put(at, bracket)

    def _put(self, at: int, token: Token) -> None:
        """Another token at a place."""
        self._tokens[at] = token
        if at == self._index:
            self._curr = token
        elif at == self._index + 1:
            self._next = token

    def _parse_window_bracket(self) -> exp.Expression:
        start = self._curr
        self._advance()
        node: exp.Expression
        if self._match(TokenType.RANGE):
            node = RangeBracket(this=None if self._match_text_seq("UNBOUNDED") else self._interval("RANGE"))
        elif self._match(TokenType.ROWS, advance=False):
            node = self._parse_rows([])
        elif self._match(TokenType.PARTITION_BY):
            node = self._parse_rows(self._parse_csv(self._parse_partition_column))
        elif self._match_set(_WINDOW_TOKENS, advance=False):
            node = self._parse_bounds()
        elif self._match_text_seq("NOW"):
            node = NowBracket()
        else:
            self._refuse(f"{_BRACKETS} after a stream")
        if not self._match(TokenType.R_BRACKET):
            if isinstance(node, NowBracket):
                self.error_hint = "write [RANGE 10 MINUTES], or [BEGIN NOW - INTERVAL 10 MINUTES END NOW]"
            elif self._match(TokenType.PARTITION_BY, advance=False):
                self.error_hint = _KEYED
            self._refuse("]")
        return node.update_positions(start)

    def _parse_partition_column(self) -> exp.Expression | None:
        column = self._parse_id_var()
        return column if isinstance(column, exp.Expression) else None

    def _parse_rows(self, columns: list[exp.Expression]) -> RowsBracket:
        if not self._match(TokenType.ROWS):
            self.error_hint = _KEYED
            self._refuse("ROWS and their number")
        if not self._match(TokenType.NUMBER):
            self._refuse("a number of rows after ROWS")
        return RowsBracket(this=exp.Literal.number(self._prev.text), expressions=columns)

    # Spark's grammar, where sqlglot differs

    def _parse_cte(self) -> exp.CTE | exp.FunctionSpecification | None:
        found = super()._parse_cte()
        if isinstance(found, exp.CTE) and (level := found.args["alias"].meta.pop(_LEVEL, None)) is not None:
            found.set("level", level)
        return found

    def _warn_unsupported(self) -> None:
        """What is not understood is refused, so there is nothing to warn of."""

    def _parse_csv(self, parse_method: Callable[[], _Item | None], sep: TokenType = TokenType.COMMA) -> list[_Item]:
        """A list has something on both sides of each comma, unless the parser only tries whether it is one.

        `f((a, -b))` is first tried as a function of a and b.
        """
        if self._trying or parse_method == self._parse_lambda_arg:
            return super()._parse_csv(parse_method, sep)
        item = parse_method()
        items = [] if item is None else [item]
        while self._match(sep):
            comma = self._prev
            if item is None:
                self.raise_error("Expected something before the comma", comma)
            item = parse_method()
            if item is None:
                self._refuse("something after the comma")
            items.append(item)
        return items

    def _parse_types(
        self,
        check_func: bool = False,
        schema: bool = False,
        allow_identifiers: bool = True,
        with_collation: bool = False,
    ) -> exp.Expr | None:
        """`array(date, 1)` is first tried as a type, and is none: what is wrong in that is not for the user."""
        self._trying += 1
        try:
            return super()._parse_types(check_func, schema, allow_identifiers, with_collation)
        finally:
            self._trying -= 1

    def _parse_window(self, this: exp.Expr | None, alias: bool = False) -> exp.Expr | None:
        """What follows a call. Its ORDER BY stands behind it then, wherever it was written."""
        ordered = with_order_outside(this)
        if ordered is not this and self._match_text_seq("WITHIN", "GROUP", advance=False):
            self._refuse("one order: ORDER BY inside of the call, or WITHIN GROUP behind it")
        return with_nulls_inside(super()._parse_window(ordered, alias))

    def _parse_join(
        self,
        skip_join_token: bool = False,
        parse_bracket: bool = False,
        alias_tokens: Collection[TokenType] | None = None,
    ) -> exp.Join | None:
        comma = self._match(TokenType.COMMA, advance=False)
        join = super()._parse_join(skip_join_token, parse_bracket, alias_tokens)
        if comma and join is None:
            self._refuse("a stream, table or query after the comma")
        return join

    def _parse_placing(self, kind: type[exp.Expression]) -> exp.Expression:
        """DISTRIBUTE BY or CLUSTER BY, which have no DESC."""
        start = self._curr
        self._advance()
        expressions = self._parse_csv(self._parse_disjunction)
        if not expressions:
            self._refuse("expressions, like BY a, b")
        return kind(expressions=expressions).update_positions(start)

    def _parse_placeholder(self) -> exp.Expr | None:
        start = self._curr
        placeholder = super()._parse_placeholder()
        return None if placeholder is None else placeholder.update_positions(start)

    def _parse_hint(self) -> None:
        """Hints are for Spark's optimiser and change no answer."""
        self._match(TokenType.HINT)

    def _parse_stream(self) -> None:
        """`FROM STREAM t` is Spark's streaming read; here `stream` is a name like any other."""

    def _parse_group(self, skip_group_by_token: bool = False) -> exp.Group | None:
        # Right after GROUP BY it is a column called `end`, not the window of a query that groups by nothing.
        token = self._next
        if self._match(TokenType.GROUP_BY, advance=False) and token.token_type in _WINDOW_TOKENS:
            name = Token(TokenType.VAR, token.text, token.line, token.col, token.start, token.end)
            self._tokens[self._index + 1] = self._next = name
        return super()._parse_group(skip_group_by_token)

    def _parse_interval(  # type: ignore[override]  # whoever asks for it takes any expression
        self, require_interval: bool = True, parse_function_unit: bool = True
    ) -> exp.Expr | None:
        start = self._curr
        interval = super()._parse_interval(require_interval, parse_function_unit)
        if isinstance(interval, exp.Expression):
            interval.update_positions(start)
        # `x - INTERVAL 1 DAY 2 HOURS` takes both away
        return exp.Paren(this=interval) if isinstance(interval, exp.Add) else interval


def _is_number(node: exp.Expr | None) -> bool:
    number = node.this if isinstance(node, exp.Neg) else node
    digits = number.name.replace(".", "", 1) if isinstance(number, exp.Literal) and not number.is_string else ""
    return digits.isdecimal()


class Ladle(Spark):
    """Ladle's dialect of SQL, for sqlglot."""

    class Tokenizer(Spark.Tokenizer):
        """Spark's tokens, and the source of functions as one of them."""

        # `$$ ... $$` is the source of a function.
        HEREDOC_STRINGS: ClassVar[list[str | tuple[str, str]]] = ["$"]
        HEREDOC_TAG_IS_IDENTIFIER: ClassVar[bool] = True
        HEREDOC_STRING_ALTERNATIVE: ClassVar[TokenType] = TokenType.PARAMETER
        # No statement is swallowed whole as an opaque command.
        COMMANDS: ClassVar[set[TokenType]] = set()
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            text: token for text, token in Spark.Tokenizer.KEYWORDS.items() if token is not TokenType.COMMAND
        }

    class Generator(SparkGenerator):
        """Spark's text, with the level of a recursive common table expression before AS."""

        TRANSFORMS: ClassVar[dict[type[exp.Expr], Callable[..., str]]] = {
            **SparkGenerator.TRANSFORMS,
            RecursionLevel: lambda self, node: f"MAX RECURSION LEVEL {self.sql(node, 'this')}",
        }

        def _move_ctes_to_top_level(self, expression: _Tree) -> _Tree:
            """What stands inside of a recursion may read it, and stays there."""
            for with_ in expression.find_all(exp.With):
                around = with_.find_ancestor(exp.CTE)
                while around is not None:
                    if around.parent is not None and around.parent.args.get("recursive"):
                        return expression
                    around = around.find_ancestor(exp.CTE)
            return super()._move_ctes_to_top_level(expression)

        def cte_sql(self, expression: exp.CTE) -> str:
            """The name, the level and the query."""
            level = self.sql(expression, "level")
            name = self.sql(expression, "alias")
            return f"{name} {level} AS {self.wrap(expression)}" if level else super().cte_sql(expression)

    Parser = LadleParser


DIALECT = Ladle()
