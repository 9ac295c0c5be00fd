"""The grammar of Ladle's statements. What is inside of queries is Spark's, and in `sql/dialect.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlglot import exp
from sqlglot.errors import ErrorLevel
from sqlglot.parsers.spark import SparkParser
from sqlglot.tokenizer_core import Token, TokenType

from ladle.access import Role
from ladle.errors import did_you_mean, nearest
from ladle.sql.drafts import (
    AddColumnDraft,
    AdvanceDraft,
    BackupDraft,
    CreateFunctionDraft,
    CreateQueryDraft,
    CreateSourceDraft,
    CreateStreamDraft,
    CreateTableDraft,
    CreateTokenDraft,
    DeleteDraft,
    DescribeDraft,
    Draft,
    DropDraft,
    ExplainQueryDraft,
    ExplainSelectDraft,
    GrantDraft,
    InsertDraft,
    Query,
    SelectDraft,
    SetIdleAfterDraft,
    SetLatenessDraft,
    SetRetainDraft,
    ShowDraft,
    SubscribeDraft,
    UpdateDraft,
    VerifyDraft,
)
from ladle.sql.statements import Materialize
from ladle.sql.trees import make_shallow

STATEMENTS = (
    "SELECT, EXPLAIN, INSERT INTO, UPDATE, DELETE FROM, CREATE STREAM, ALTER STREAM, DROP STREAM, CREATE TABLE, "
    "DROP TABLE, CREATE QUERY, DROP QUERY, CREATE FUNCTION, DROP FUNCTION, CREATE SOURCE, DROP SOURCE, CREATE TOKEN, "
    "DROP TOKEN, GRANT, REVOKE, SHOW STREAMS, SHOW TABLES, SHOW QUERIES, SHOW FUNCTIONS, SHOW SOURCES, SHOW TOKENS, "
    "SHOW GRANTS, DESCRIBE, SUBSCRIBE, BACKUP TO, VERIFY"
)

_SOURCE_TOKENS = {TokenType.HEREDOC_STRING, TokenType.STRING}
_QUERY_TOKENS = {TokenType.SELECT, TokenType.WITH, TokenType.VALUES, TokenType.L_PAREN}
_KINDS = ("STREAM", "TABLE", "QUERY", "FUNCTION", "SOURCE", "TOKEN")
_SHOWN = ("STREAMS", "TABLES", "QUERIES", "FUNCTIONS", "SOURCES", "TOKENS", "GRANTS")


class StatementParser(SparkParser):
    error_token: Token | None = None
    """Where the last error was raised; None at the end of the text."""
    error_hint: str | None = None
    """What to do about it, if the parser knows."""

    def statement(self, tokens: list[Token], text: str) -> Draft:
        """The one statement that `tokens` (of `text`) are."""
        self.reset()
        self.sql = text
        self._chunks = [_with_window_names(tokens)]
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

    def _parse_draft(self) -> Draft:
        if self._match_text_seq("CREATE"):
            return self._parse_create_draft()
        if self._match_text_seq("ALTER"):
            return self._parse_alter_stream()
        if self._match_text_seq("DROP"):
            return self._parse_drop_draft()
        if self._match_texts(("GRANT", "REVOKE")):
            return self._parse_grant_draft(revoke=self._prev.text.upper() == "REVOKE")
        if self._match_text_seq("SHOW"):
            if self._match_texts(_SHOWN):
                return ShowDraft(self._prev.text.upper())
            return self._refuse(_either([f"SHOW {kind}" for kind in _SHOWN]), _SHOWN)
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
        if self._match_text_seq("BACKUP"):
            if not self._match_text_seq("TO") or not self._match(TokenType.STRING):
                self._refuse("TO and a directory, like BACKUP TO '/backups/monday'")
            return BackupDraft(self._prev.text)
        if self._match_text_seq("VERIFY"):
            return VerifyDraft()
        if self._match_text_seq("SUBSCRIBE"):
            name = self._name("the name of a query")
            return SubscribeDraft(name, self._since() if self._match_text_seq("SINCE") else None)
        if self._curr.token_type in _QUERY_TOKENS:
            return SelectDraft(self._query())
        first = sorted({statement.split()[0] for statement in STATEMENTS.split(", ")})
        self.error_hint = f"statements begin with {', '.join(first[:-1])} or {first[-1]}"
        return self._refuse("a statement", first)

    def _parse_create_draft(self) -> Draft:
        replace = bool(self._match_text_seq("OR", "REPLACE"))
        if self._match_text_seq("QUERY"):
            return self._parse_create_query(replace=replace)
        if self._match_text_seq("FUNCTION"):
            return self._parse_create_function(replace=replace)
        if self._match_text_seq("TOKEN"):
            return self._parse_create_token(replace=replace)
        if replace:
            return self._refuse(
                "CREATE OR REPLACE QUERY, FUNCTION or TOKEN (streams and tables keep their rows: DROP, then CREATE)",
                ("QUERY", "FUNCTION", "TOKEN"),
            )
        if self._match_text_seq("STREAM"):
            return self._parse_create_stream()
        if self._match_text_seq("TABLE"):
            return self._parse_create_table()
        if self._match_text_seq("SOURCE"):
            return self._parse_create_source()
        return self._refuse("CREATE STREAM, TABLE or SOURCE, or CREATE [OR REPLACE] QUERY, FUNCTION or TOKEN", _KINDS)

    def _parse_create_token(self, *, replace: bool) -> CreateTokenDraft:
        name = self._name("the name of the token")
        if not self._match_text_seq("ROLE"):
            self._refuse("ROLE and one of reader, writer, admin")
        roles = [role.value for role in Role]
        if not self._curr or self._curr.text.lower() not in roles:
            self._refuse(f"a role: {_either(roles)}")
        self._advance()
        return CreateTokenDraft(name, Role(self._prev.text.lower()), replace)

    def _parse_grant_draft(self, *, revoke: bool) -> GrantDraft:
        if not self._match_text_seq("SELECT") or not self._match_text_seq("ON"):
            self._refuse("SELECT ON [QUERY] name")
        if self._next and self._next.text.upper() not in ("TO", "FROM"):
            self._match_text_seq("QUERY")
        query = self._name("the name of a query")
        word = "FROM" if revoke else "TO"
        if not self._match_text_seq(word):
            self._refuse(f"{word} and the name of a token, or PUBLIC")
        return GrantDraft(query, self._name("the name of a token, or PUBLIC"), revoke)

    def _parse_create_source(self) -> CreateSourceDraft:
        if_not_exists = self._match_text_seq("IF", "NOT", "EXISTS")
        name = self._name("the name of the source")
        if not self._match_text_seq("FOR"):
            self._refuse("FOR and the name of a stream")
        stream = self._name("the name of a stream")
        if not self._match_text_seq("FORMAT"):
            self._refuse("FORMAT and what the source is, like FORMAT parquet or FORMAT kafka")
        if self._match(TokenType.STRING):
            form = exp.to_identifier(self._prev.text)
        else:
            form = self._name("the source's format, like parquet or kafka")
        options: list[tuple[str, str]] = []
        if self._match_text_seq("OPTIONS"):
            if not self._match(TokenType.L_PAREN, advance=False):
                self._refuse("the options in parentheses, like (path '/data/in')")
            options = self._parse_wrapped_csv(self._option)
        return CreateSourceDraft(name, stream, form, tuple(options), bool(if_not_exists))

    def _option(self) -> tuple[str, str]:
        """`key 'value'` or `key = 'value'`; a key may have dots, or be a text."""
        if self._match(TokenType.STRING):
            key = self._prev.text
        else:
            key = ".".join(part.name for part in self._dotted_name("the name of an option"))
        self._match(TokenType.EQ)
        if not self._match_set((TokenType.STRING, TokenType.NUMBER, TokenType.TRUE, TokenType.FALSE)):
            self._refuse(f"the value of option '{key}', like '{key} = 'text''")
        return key, self._prev.text

    def _since(self) -> int:
        if not self._match(TokenType.NUMBER) or not self._prev.text.isdigit():
            self.raise_error("Expected the number of an epoch")
        return int(self._prev.text)

    def _refuse(self, expected: str, words: Sequence[str] = ()) -> Any:
        """Raise the error for what is there instead; of `words`, the nearest to it may be meant."""
        near = nearest(self._curr.text, words, likeness=0.7) if self._curr else []
        self.error_hint = did_you_mean(near) or self.error_hint
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
        start, index = self._curr, self._index
        tree = self._parse_statement() if start.token_type in _QUERY_TOKENS else None
        if not isinstance(tree, exp.Query | exp.Values):
            self.raise_error("Expected a SELECT", start)
        assert isinstance(tree, exp.Expression)
        return Query(make_shallow(tree), self._find_sql(start, self._prev), self._tokens[index : self._index])

    def _interval(self, what: str) -> exp.Expression:
        interval = self._parse_interval(require_interval=False) if self._curr else None
        if interval is None:
            self.raise_error(f"Expected an interval after {what}, like INTERVAL 7 DAYS")
        assert isinstance(interval, exp.Expression)
        return interval

    def _retain(self) -> exp.Expression | None:
        return None if self._match_text_seq("FOREVER") else self._interval("RETAIN")

    def _lateness(self) -> exp.Expression | None:
        return None if self._match_text_seq("UNBOUNDED") else self._interval("LATENESS")

    def _idle(self) -> exp.Expression | None:
        if self._match_text_seq("NEVER"):
            return None
        if not self._match_text_seq("AFTER"):
            self._refuse("IDLE AFTER interval, or IDLE NEVER")
        return self._interval("IDLE AFTER")

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
        lateness: exp.Expression | None = None
        idle_after: exp.Expression | None = None
        seen: set[str] = set()
        while self._curr:
            clause = self._curr
            if self._match_text_seq("TIMESTAMP", "BY"):
                key, timestamp = "TIMESTAMP BY", self._name("a column after TIMESTAMP BY")
            elif self._match_text_seq("RETAIN"):
                key, retain = "RETAIN", self._retain()
            elif self._match_text_seq("MAX", "AHEAD"):
                key, max_ahead = "MAX AHEAD", self._interval("MAX AHEAD")
            elif self._match_text_seq("LATENESS"):
                key, lateness = "LATENESS", self._lateness()
            elif self._match_text_seq("IDLE"):
                key, idle_after = "IDLE AFTER", self._idle()
            else:
                self._refuse(
                    "TIMESTAMP BY column, RETAIN interval, MAX AHEAD interval, LATENESS interval, IDLE AFTER interval, "
                    "or the end of the statement"
                )
            if key in seen:
                self.raise_error(f"{key} is given twice", clause)
            seen.add(key)
        return CreateStreamDraft(
            name, tuple(columns), timestamp, retain, max_ahead, lateness, idle_after, bool(if_not_exists)
        )

    def _parse_create_table(self) -> CreateTableDraft:
        if_not_exists = self._match_text_seq("IF", "NOT", "EXISTS")
        name = self._name("the name of the table")
        if not self._match(TokenType.L_PAREN, advance=False):
            self.raise_error("Expected the columns in parentheses, like (symbol STRING, country STRING)")
        columns = self._parse_wrapped_csv(self._column_definition)
        return CreateTableDraft(name, tuple(columns), bool(if_not_exists))

    def _parse_alter_stream(self) -> Draft:
        if not self._match_text_seq("STREAM"):
            self._refuse("ALTER STREAM")
        stream = self._name("the name of a stream")
        if self._match_text_seq("ADD", "COLUMN"):
            return AddColumnDraft(stream, self._column_definition())
        if self._match_text_seq("SET", "RETAIN"):
            return SetRetainDraft(stream, self._retain())
        if self._match_text_seq("SET", "LATENESS"):
            return SetLatenessDraft(stream, self._lateness())
        if self._match_text_seq("SET", "IDLE"):
            return SetIdleAfterDraft(stream, self._idle())
        if self._match_text_seq("ADVANCE", "TO"):
            to = self._parse_bitwise() if self._curr else None
            if to is None:
                self.raise_error("Expected a time after ADVANCE TO, like TIMESTAMP '2024-01-01 10:00:00'")
            assert isinstance(to, exp.Expression)
            return AdvanceDraft(stream, to)
        return self._refuse(
            "ADD COLUMN name TYPE, SET RETAIN interval, SET RETAIN FOREVER, SET LATENESS interval, SET LATENESS "
            "UNBOUNDED, SET IDLE AFTER interval, SET IDLE NEVER, or ADVANCE TO time"
        )

    def _parse_drop_draft(self) -> DropDraft:
        if not self._match_texts(_KINDS):
            self._refuse(_either([f"DROP {kind}" for kind in _KINDS]), _KINDS)
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
        unnamed = self._is_after_name()
        if unnamed and (if_not_exists or replace):
            self._refuse("the name of the query")
        name = None if unnamed else self._name("the name of the query")
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

    def _is_after_name(self) -> bool:
        """Whether what stands here comes after the name of a query: it has none."""
        kind, following = self._curr.token_type, self._next.token_type
        return (kind == TokenType.ALIAS and following in _QUERY_TOKENS) or (
            kind == TokenType.WITH and following == TokenType.L_PAREN
        )

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
        condition: exp.Expression = make_shallow(where.this)
        return condition


def _with_window_names(tokens: list[Token]) -> list[Token]:
    """WINDOW is the clause where `name AS` follows, and a name everywhere else: of Spark's function, or of a column."""
    named = list(tokens)
    for index, token in enumerate(tokens):
        if token.token_type == TokenType.WINDOW:
            following = [each.token_type for each in tokens[index + 1 : index + 3]]
            if following[1:] != [TokenType.ALIAS] or following[0] == TokenType.R_PAREN:
                named[index] = Token(TokenType.VAR, token.text, token.line, token.col, token.start, token.end)
    return named


def _either(words: list[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
