"""Ladle's SQL: Spark's dialect plus streams, windows and standing queries.

A subclass of sqlglot's Spark dialect that extends tokenizer and parser. Windows become query modifiers (`BEGIN b END
e`) and brackets after a stream (`[RANGE 10 MINUTES]`); statements become drafts (`sql/drafts.py`). Calls of functions
are kept as they were written (`exp.Anonymous`): sqlglot's own function nodes rewrite some of them (`date_trunc(unit,
x)` with a column for the unit, `date_sub`), and what Spark is given must be what the user said.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.spark import Spark
from sqlglot.errors import ErrorLevel
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from ladle.sql.drafts import (
    AddColumnDraft,
    CreateFunctionDraft,
    CreateQueryDraft,
    CreateStreamDraft,
    CreateTableDraft,
    DeleteDraft,
    DescribeDraft,
    Draft,
    DropDraft,
    ExplainQueryDraft,
    ExplainSelectDraft,
    InsertDraft,
    Query,
    SelectDraft,
    SetRetainDraft,
    ShowDraft,
    SubscribeDraft,
    UpdateDraft,
)
from ladle.sql.statements import Materialize

STATEMENTS = (
    "SELECT, EXPLAIN, INSERT INTO, UPDATE, DELETE FROM, CREATE STREAM, ALTER STREAM, DROP STREAM, CREATE TABLE, "
    "DROP TABLE, CREATE QUERY, DROP QUERY, CREATE FUNCTION, DROP FUNCTION, SHOW STREAMS, SHOW TABLES, SHOW QUERIES, "
    "SHOW FUNCTIONS, DESCRIBE, SUBSCRIBE"
)


class Bounds(exp.Expression):
    """`BEGIN b END e` of a query."""

    arg_types: ClassVar[dict[str, bool]] = {"begin": False, "end": False}


class RangeBracket(exp.Expression):
    """`[RANGE interval]` of one mention of a stream."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


class RowsBracket(exp.Expression):
    """`[ROWS n]` of one mention of a stream."""

    arg_types: ClassVar[dict[str, bool]] = {"this": True}


BRACKET = "ladle_bracket"
"""Key in a node's `meta` under which its bracket is kept."""


# Functions whose arguments have a grammar of their own; every other call is parsed as name and arguments.
_OWN_GRAMMAR = ("CAST", "TRY_CAST", "EXTRACT", "POSITION", "SUBSTRING", "SUBSTR", "TRIM", "OVERLAY")

_WINDOW_TOKENS = {TokenType.BEGIN, TokenType.END}
_SOURCE_TOKENS = {TokenType.HEREDOC_STRING, TokenType.STRING}
_QUERY_TOKENS = {TokenType.SELECT, TokenType.WITH, TokenType.VALUES, TokenType.L_PAREN}


class LadleParser(SparkParser):
    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {name: SparkParser.FUNCTION_PARSERS[name] for name in _OWN_GRAMMAR}
    # TRANSFORM ... USING 'script' runs a program; as a plain call it is the array function.
    NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        name: parser for name, parser in SparkParser.NO_PAREN_FUNCTION_PARSERS.items() if name in ("CASE", "IF")
    }
    TABLE_ALIAS_TOKENS: ClassVar[set[TokenType]] = SparkParser.TABLE_ALIAS_TOKENS - _WINDOW_TOKENS
    TABLE_TERMINATORS: ClassVar[frozenset[TokenType]] = SparkParser.TABLE_TERMINATORS | _WINDOW_TOKENS
    QUERY_MODIFIER_PARSERS: ClassVar[dict[TokenType, Any]] = {
        **SparkParser.QUERY_MODIFIER_PARSERS,
        TokenType.BEGIN: lambda self: ("bounds", self._parse_bounds()),
        TokenType.END: lambda self: ("bounds", self._parse_bounds()),
    }
    QUERY_MODIFIER_TOKENS: ClassVar[set[TokenType]] = set(QUERY_MODIFIER_PARSERS)
    SET_OP_MODIFIERS: ClassVar[set[str]] = SparkParser.SET_OP_MODIFIERS | {"bounds"}
    # `array(1, 2)[0]` is an element of a call, not a second array.
    ARRAY_CONSTRUCTORS: ClassVar[dict[str, Any]] = {}

    error_token: Token | None = None
    """Where the last error was raised; None at the end of the text."""

    def statement(self, tokens: list[Token], text: str) -> Draft:
        """The one statement that `tokens` (of `text`) are."""
        self.reset()
        self.sql = text
        self._chunks = [tokens]
        self._advance_chunk()
        draft = self._parse_draft()
        if self._curr:
            self.raise_error("Invalid expression / Unexpected token")
        return draft

    def raise_error(self, message: str, token: Token | None = None) -> None:
        if message.startswith("Expected END after CASE"):
            token = self._curr
        self.error_token = token or self._curr or None
        # Also errors that sqlglot would collect must stop at the first: trees with holes are of no use.
        self.error_level = ErrorLevel.IMMEDIATE
        super().raise_error(message, token or self._curr or self._prev)

    # Statements

    def _parse_draft(self) -> Draft:
        if self._match_text_seq("CREATE"):
            if self._match_text_seq("STREAM"):
                return self._parse_create_stream()
            if self._match_text_seq("TABLE"):
                return self._parse_create_table()
            if self._match_text_seq("QUERY"):
                return self._parse_create_query()
            if self._match_text_seq("FUNCTION"):
                return self._parse_create_function()
            if self._match_text_seq("OR", "REPLACE"):
                if self._match_text_seq("FUNCTION"):
                    return self._parse_create_function(replace=True)
                if not self._match_text_seq("QUERY"):
                    self._refuse(
                        "CREATE OR REPLACE QUERY or FUNCTION (streams and tables keep their rows: DROP, then CREATE)"
                    )
                return self._parse_create_query(replace=True)
            return self._refuse("CREATE STREAM, CREATE TABLE, or CREATE [OR REPLACE] QUERY or FUNCTION")
        if self._match_text_seq("ALTER"):
            return self._parse_alter_stream()
        if self._match_text_seq("DROP"):
            return self._parse_drop_draft()
        if self._match_text_seq("SHOW"):
            if self._match_texts(("STREAMS", "TABLES", "QUERIES", "FUNCTIONS")):
                return ShowDraft(self._prev.text.upper())
            return self._refuse("SHOW STREAMS, SHOW TABLES, SHOW QUERIES or SHOW FUNCTIONS")
        if self._match_texts(("DESCRIBE", "DESC")):
            # the word is optional, and a stream may be called `stream`
            function = False
            if self._next and self._next.token_type != TokenType.DOT:
                function = bool(self._match_text_seq("FUNCTION"))
                if not function:
                    self._match_texts(("STREAM", "TABLE", "QUERY"))
            return DescribeDraft(self._dotted_name("the name of a stream, table, query or function"), function)
        if self._match_text_seq("EXPLAIN"):
            analyze = bool(self._match_text_seq("ANALYZE"))
            if self._match_text_seq("QUERY"):
                return ExplainQueryDraft(self._name("the name of a query"), analyze)
            return ExplainSelectDraft(self._query(), analyze)
        if self._match_text_seq("INSERT"):
            return self._parse_insert_draft()
        if self._match_text_seq("UPDATE"):
            return self._parse_update_draft()
        if self._match_text_seq("DELETE"):
            return self._parse_delete_draft()
        if self._match_text_seq("SUBSCRIBE"):
            name = self._name("the name of a query")
            return SubscribeDraft(name, self._since() if self._match_text_seq("SINCE") else None)
        if self._curr.token_type in _QUERY_TOKENS:
            return SelectDraft(self._query())
        return self._refuse(f"one of {STATEMENTS}")

    def _since(self) -> int:
        if not self._match(TokenType.NUMBER) or not self._prev.text.isdigit():
            self.raise_error("Expected the number of an epoch")
        return int(self._prev.text)

    def _refuse(self, expected: str) -> Any:
        self.raise_error(f"Expected {expected}")

    def _name(self, what: str) -> exp.Identifier:
        token = self._curr
        name = self._parse_id_var(any_token=True) if token.token_type != TokenType.STRING else None
        if not isinstance(name, exp.Identifier):
            self.raise_error(f"Expected {what}", token)
        assert isinstance(name, exp.Identifier)
        return name

    def _dotted_name(self, what: str) -> tuple[exp.Identifier, ...]:
        parts = [self._name(what)]
        while self._match(TokenType.DOT):
            parts.append(self._name("a name"))
        return tuple(parts)

    def _query(self) -> Query:
        start = self._curr
        tree = self._parse_statement() if start.token_type in _QUERY_TOKENS else None
        if not isinstance(tree, exp.Query | exp.Values):
            self.raise_error("Expected a SELECT", start)
        assert isinstance(tree, exp.Expression)
        return Query(tree, self._find_sql(start, self._prev))

    def _interval(self, what: str) -> exp.Expression:
        interval = self._parse_interval(require_interval=False) if self._curr else None
        if interval is None:
            self.raise_error(f"Expected an interval after {what}, like INTERVAL 7 DAYS")
        assert isinstance(interval, exp.Expression)
        return interval

    def _retain(self) -> exp.Expression | None:
        return None if self._match_text_seq("FOREVER") else self._interval("RETAIN")

    def _column_definition(self) -> tuple[exp.Identifier, exp.DataType]:
        name = self._name("the name of a column")
        return name, self._type(f"of column '{name.name}'")

    def _type(self, what: str) -> exp.DataType:
        start = self._curr
        kind = self._parse_types(schema=True) if start else None
        if not isinstance(kind, exp.DataType):
            self.raise_error(f"Expected the type {what}", start or self._prev)
        assert isinstance(kind, exp.DataType)
        kind.update_positions(start)
        return kind

    def _parse_create_stream(self) -> CreateStreamDraft:
        if_not_exists = self._match_text_seq("IF", "NOT", "EXISTS")
        name = self._name("the name of the stream")
        if not self._match(TokenType.L_PAREN, advance=False):
            self.raise_error("Expected the columns in parentheses, like (symbol STRING, price DOUBLE)")
        columns = self._parse_wrapped_csv(self._column_definition)
        timestamp: exp.Identifier | None = None
        retain: exp.Expression | None = None
        max_ahead: exp.Expression | None = None
        seen: set[str] = set()
        while self._curr:
            clause = self._curr
            if self._match_text_seq("TIMESTAMP", "BY"):
                key, timestamp = "TIMESTAMP BY", self._name("a column after TIMESTAMP BY")
            elif self._match_text_seq("RETAIN"):
                key, retain = "RETAIN", self._retain()
            elif self._match_text_seq("MAX", "AHEAD"):
                key, max_ahead = "MAX AHEAD", self._interval("MAX AHEAD")
            else:
                self._refuse("TIMESTAMP BY column, RETAIN interval, MAX AHEAD interval, or the end of the statement")
            if key in seen:
                self.raise_error(f"{key} is given twice", clause)
            seen.add(key)
        return CreateStreamDraft(name, tuple(columns), timestamp, retain, max_ahead, bool(if_not_exists))

    def _parse_create_table(self) -> CreateTableDraft:
        if_not_exists = self._match_text_seq("IF", "NOT", "EXISTS")
        name = self._name("the name of the table")
        if not self._match(TokenType.L_PAREN, advance=False):
            self.raise_error("Expected the columns in parentheses, like (symbol STRING, country STRING)")
        columns = self._parse_wrapped_csv(self._column_definition)
        return CreateTableDraft(name, tuple(columns), bool(if_not_exists))

    def _parse_alter_stream(self) -> AddColumnDraft | SetRetainDraft:
        if not self._match_text_seq("STREAM"):
            self._refuse("ALTER STREAM")
        stream = self._name("the name of a stream")
        if self._match_text_seq("ADD", "COLUMN"):
            return AddColumnDraft(stream, self._column_definition())
        if self._match_text_seq("SET", "RETAIN"):
            return SetRetainDraft(stream, self._retain())
        return self._refuse("ADD COLUMN name TYPE, SET RETAIN interval, or SET RETAIN FOREVER")

    def _parse_drop_draft(self) -> DropDraft:
        if not self._match_texts(("STREAM", "TABLE", "QUERY", "FUNCTION")):
            self._refuse("DROP STREAM, DROP TABLE, DROP QUERY or DROP FUNCTION")
        kind = self._prev.text.upper()
        if_exists = self._match_text_seq("IF", "EXISTS")
        name = self._name(f"the name of a {kind.lower()}")
        return DropDraft(kind, name, bool(self._match_text_seq("CASCADE")), bool(if_exists))

    def _if_not_exists(self, *, replace: bool) -> bool:
        clause = self._curr
        if_not_exists = bool(self._match_text_seq("IF", "NOT", "EXISTS"))
        if if_not_exists and replace:
            self.raise_error("Expected OR REPLACE or IF NOT EXISTS, not both", clause)
        return if_not_exists

    def _parse_create_function(self, *, replace: bool = False) -> CreateFunctionDraft:
        if_not_exists = self._if_not_exists(replace=replace)
        name = self._name("the name of the function")
        if not self._match(TokenType.L_PAREN, advance=False):
            self.raise_error("Expected the arguments in parentheses, like (price DOUBLE, symbol STRING)")
        parameters = self._parse_wrapped_csv(self._column_definition)
        if not self._match_text_seq("RETURNS"):
            self._refuse("RETURNS and a type")
        returns = self._type("of the result")
        if not self._match_text_seq("LANGUAGE", "PYTHON"):
            self._refuse("LANGUAGE PYTHON")
        if not self._match(TokenType.ALIAS) or not self._match_set(_SOURCE_TOKENS):
            self._refuse("AS $$ and the function's Python, up to the next $$")
        return CreateFunctionDraft(name, tuple(parameters), returns, self._prev.text, if_not_exists, replace)

    def _parse_create_query(self, *, replace: bool = False) -> CreateQueryDraft:
        if_not_exists = self._if_not_exists(replace=replace)
        name = self._name("the name of the query")
        materialize = None
        if self._match(TokenType.WITH):
            if not self._match_text_seq("(", "MATERIALIZE") or not self._match(TokenType.EQ):
                self._refuse("(materialize = 'auto' | 'none' | 'partial' | 'complete')")
            modes = [mode.value for mode in Materialize]
            if self._curr.text.lower() not in modes:
                self._refuse("'none', 'partial' or 'complete'")
            materialize = Materialize(self._curr.text.lower())
            self._advance()
            self._match_r_paren()
        if not self._match(TokenType.ALIAS):
            self._refuse("AS SELECT ...")
        return CreateQueryDraft(name, self._query(), materialize, if_not_exists, replace)

    def _parse_insert_draft(self) -> InsertDraft:
        if not self._match(TokenType.INTO):
            self._refuse("INSERT INTO stream or table")
        self._match(TokenType.TABLE)
        target = self._dotted_name("the name of a stream or table")
        columns: tuple[exp.Identifier, ...] | None = None
        if self._match(TokenType.L_PAREN, advance=False) and self._next.token_type not in _QUERY_TOKENS:
            columns = tuple(self._parse_wrapped_csv(lambda: self._name("the name of a column")))
        if self._curr.token_type not in _QUERY_TOKENS:
            self._refuse("VALUES (...), ... or SELECT ...")
        return InsertDraft(target, columns, self._query())

    def _parse_update_draft(self) -> UpdateDraft:
        start = self._prev
        table = self._name("the name of a table")
        if not self._match_text_seq("SET"):
            self._refuse("SET column = value")
        assignments = self._parse_csv(self._assignment)
        return UpdateDraft(table, tuple(assignments), self._condition(), self._find_sql(start, self._prev))

    def _parse_delete_draft(self) -> DeleteDraft:
        start = self._prev
        if not self._match(TokenType.FROM):
            self._refuse("DELETE FROM table")
        table = self._name("the name of a table")
        return DeleteDraft(table, self._condition(), self._find_sql(start, self._prev))

    def _assignment(self) -> tuple[exp.Identifier, exp.Expression]:
        column = self._name("the name of a column")
        if not self._match(TokenType.EQ):
            self._refuse(f"= and the value of '{column.name}'")
        value = self._parse_disjunction() if self._curr else None
        if value is None:
            self._refuse(f"the value of '{column.name}'")
        assert isinstance(value, exp.Expression)
        return column, value

    def _condition(self) -> exp.Expression | None:
        """WHERE at the end of a statement."""
        if not self._curr:
            return None
        where = self._parse_where()
        if where is None:
            self._refuse("WHERE and a condition, or the end of the statement")
        assert where is not None
        condition: exp.Expression = where.this
        return condition

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

    def _parse_table_alias(self, alias_tokens: Any = None) -> exp.TableAlias | None:
        alias = super()._parse_table_alias(alias_tokens)
        if alias is not None and self._match(TokenType.L_BRACKET, advance=False):
            alias.meta[BRACKET] = self._parse_window_bracket()
        return alias

    def _parse_window_bracket(self) -> exp.Expression:
        start = self._curr
        self._advance()
        node: exp.Expression
        if self._match(TokenType.RANGE):
            node = RangeBracket(this=self._interval("RANGE"))
        elif self._match(TokenType.ROWS):
            if not self._match(TokenType.NUMBER):
                self._refuse("a number of rows after ROWS")
            node = RowsBracket(this=exp.Literal.number(self._prev.text))
        else:
            self._refuse("[RANGE interval] or [ROWS n] after a stream")
        if not self._match(TokenType.R_BRACKET):
            self._refuse("]")
        return node.update_positions(start)

    # Spark's grammar, where sqlglot differs

    def _warn_unsupported(self) -> None:
        """What is not understood is refused, so there is nothing to warn of."""

    def _parse_placeholder(self) -> exp.Expr | None:
        start = self._curr
        placeholder = super()._parse_placeholder()
        return None if placeholder is None else placeholder.update_positions(start)

    def _parse_stream(self) -> None:
        """`FROM STREAM t` is Spark's streaming read; here `stream` is a name like any other."""

    def _parse_group(self, skip_group_by_token: bool = False) -> exp.Group | None:
        # Right after GROUP BY it is a column called `end`, not the window of a query that groups by nothing.
        token = self._next
        if self._match(TokenType.GROUP_BY, advance=False) and token.token_type in _WINDOW_TOKENS:
            name = Token(TokenType.VAR, token.text, token.line, token.col, token.start, token.end)
            self._tokens[self._index + 1] = self._next = name
        return super()._parse_group(skip_group_by_token)

    def _parse_interval(self, require_interval: bool = True, parse_function_unit: bool = True) -> Any:
        start = self._curr
        interval = super()._parse_interval(require_interval, parse_function_unit)
        if isinstance(interval, exp.Expression):
            interval.update_positions(start)
        # `x - INTERVAL 1 DAY 2 HOURS` takes both away
        return exp.Paren(this=interval) if isinstance(interval, exp.Add) else interval


class Ladle(Spark):
    class Tokenizer(Spark.Tokenizer):
        # `$$ ... $$` is the source of a function.
        HEREDOC_STRINGS: ClassVar[list[str | tuple[str, str]]] = ["$"]
        HEREDOC_TAG_IS_IDENTIFIER: ClassVar[bool] = True
        HEREDOC_STRING_ALTERNATIVE: ClassVar[TokenType] = TokenType.PARAMETER
        # No statement is swallowed whole as an opaque command.
        COMMANDS: ClassVar[set[TokenType]] = set()
        KEYWORDS: ClassVar[dict[str, TokenType]] = {
            text: token for text, token in Spark.Tokenizer.KEYWORDS.items() if token is not TokenType.COMMAND
        }

    Parser = LadleParser


DIALECT = Ladle()
