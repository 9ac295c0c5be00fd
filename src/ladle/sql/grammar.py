"""The grammar of Ladle's statements. What is inside of queries is Spark's, and in `sql/dialect.py`."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import Token, TokenType

from ladle.access import Role
from ladle.sql.drafts import (
    AddColumnDraft,
    AdvanceDraft,
    BackupDraft,
    CreateFunctionDraft,
    CreateQueryDraft,
    CreateSourceDraft,
    CreateStreamDraft,
    CreateTokenDraft,
    DescribeDraft,
    Draft,
    DropDraft,
    ExplainQueryDraft,
    ExplainSelectDraft,
    GrantDraft,
    SelectDraft,
    SetIdleAfterDraft,
    SetLatenessDraft,
    SetRetainDraft,
    ShowCreateDraft,
    ShowDraft,
    VerifyDraft,
)
from ladle.sql.refusing import either
from ladle.sql.statement_types import Materialize
from ladle.sql.table_grammar import QUERY_TOKENS, TableParser

STATEMENTS = (
    "SELECT, EXPLAIN, INSERT INTO, UPDATE, DELETE FROM, MERGE INTO, TRUNCATE TABLE, "
    "CREATE STREAM, ALTER STREAM, DROP STREAM, CREATE TABLE, ALTER TABLE, DROP TABLE, CREATE QUERY, DROP QUERY, "
    "CREATE VIEW, DROP VIEW, SHOW VIEWS, "
    "CREATE FUNCTION, DROP FUNCTION, CREATE SOURCE, DROP SOURCE, CREATE TOKEN, DROP TOKEN, GRANT, REVOKE, "
    "SHOW STREAMS, SHOW TABLES, SHOW QUERIES, SHOW FUNCTIONS, SHOW SOURCES, SHOW TOKENS, SHOW GRANTS, SHOW DERIVED, "
    "SHOW CREATE, DESCRIBE, SUBSCRIBE, BACKUP TO, VERIFY"
)

_SOURCE_TOKENS = {TokenType.HEREDOC_STRING, TokenType.STRING}
_KINDS = ("STREAM", "TABLE", "QUERY", "VIEW", "FUNCTION", "SOURCE", "TOKEN")
_SHOWN = ("STREAMS", "TABLES", "QUERIES", "VIEWS", "FUNCTIONS", "SOURCES", "TOKENS", "GRANTS", "DERIVED")

_ELSEWHERE = {
    "MATERIALIZED": "what keeps its answer is a standing query: CREATE QUERY name AS SELECT ...",
    **dict.fromkeys(("TEMP", "TEMPORARY"), "a view is there until it is dropped: CREATE VIEW name AS SELECT ..."),
}
"""What is written here for what Spark and other systems create."""

_SHOWN_WHOLE = ("STREAM", "TABLE", "QUERY", "VIEW", "FUNCTION")


class StatementParser(TableParser):
    """Parses the statements that are Ladle's own, and hands queries to Spark's grammar."""

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

    def _parse_draft(self) -> Draft:
        if self._match_text_seq("CREATE"):
            return self._parse_create_draft()
        if self._match_text_seq("ALTER"):
            return self._parse_alter_table() if self._match_text_seq("TABLE") else self._parse_alter_stream()
        if self._match_text_seq("DROP"):
            return self._parse_drop_draft()
        if self._match_texts(("GRANT", "REVOKE")):
            return self._parse_grant_draft(revoke=self._prev.text.upper() == "REVOKE")
        if self._match_text_seq("SHOW"):
            if self._match_text_seq("CREATE"):
                return self._parse_show_create()
            if self._match_texts(_SHOWN):
                return ShowDraft(self._prev.text.upper())
            return self._refuse(either([f"SHOW {kind}" for kind in (*_SHOWN, "CREATE")]), (*_SHOWN, "CREATE"))
        if self._match_texts(("DESCRIBE", "DESC")):
            # the word is optional, and a stream may be called `stream`
            function = False
            if self._next and self._next.token_type != TokenType.DOT:
                function = bool(self._match_text_seq("FUNCTION"))
                if not function:
                    self._match_texts(("STREAM", "TABLE", "QUERY", "VIEW"))
            return DescribeDraft(self._dotted_name("the name of a stream, table, query or function"), function)
        if self._match_text_seq("EXPLAIN"):
            analyze = bool(self._match_text_seq("ANALYZE"))
            if self._match_text_seq("QUERY"):
                return ExplainQueryDraft(self._name("the name of a query"), analyze)
            if not self._curr or self._curr.token_type not in QUERY_TOKENS:
                self.error_hint = "of a standing query: EXPLAIN [ANALYZE] QUERY name"
                self.raise_error("Expected a SELECT")
            return ExplainSelectDraft(self._query(), analyze)
        if self._match_text_seq("INSERT"):
            return self._parse_insert_draft()
        if self._match_text_seq("UPDATE"):
            return self._parse_update_draft()
        if self._match_text_seq("DELETE"):
            return self._parse_delete_draft()
        if self._match_text_seq("MERGE"):
            return self._parse_merge_draft()
        if self._match_text_seq("TRUNCATE"):
            return self._parse_truncate()
        if self._match_text_seq("BACKUP"):
            if not self._match_text_seq("TO") or not self._match(TokenType.STRING):
                self._refuse("TO and a directory, like BACKUP TO '/backups/monday'")
            return BackupDraft(self._prev.text)
        if self._match_text_seq("VERIFY"):
            return VerifyDraft()
        if self._match_text_seq("SUBSCRIBE"):
            return self._parse_subscribe()
        if self._curr.token_type in QUERY_TOKENS:
            return SelectDraft(self._query())
        first = sorted({statement.split()[0] for statement in STATEMENTS.split(", ")})
        self.error_hint = f"statements begin with {', '.join(first[:-1])} or {first[-1]}"
        return self._refuse("a statement", first)

    def _parse_show_create(self) -> ShowCreateDraft:
        if not self._match_texts(_SHOWN_WHOLE):
            self._refuse(either([f"SHOW CREATE {kind}" for kind in _SHOWN_WHOLE]), _SHOWN_WHOLE)
        kind = self._prev.text.upper()
        return ShowCreateDraft(kind, self._name(f"the name of a {kind.lower()}"))

    def _parse_create_draft(self) -> Draft:
        replace = bool(self._match_text_seq("OR", "REPLACE"))
        if self._match_text_seq("QUERY"):
            return self._parse_create_query(replace=replace)
        if self._match_text_seq("VIEW"):
            return self._parse_create_view(replace=replace)
        if self._match_text_seq("FUNCTION"):
            return self._parse_create_function(replace=replace)
        if self._match_text_seq("TOKEN"):
            return self._parse_create_token(replace=replace)
        if replace:
            return self._refuse(
                "CREATE OR REPLACE QUERY, VIEW, FUNCTION or TOKEN (streams, tables keep their rows: DROP, then CREATE)",
                ("QUERY", "VIEW", "FUNCTION", "TOKEN"),
            )
        if self._match_text_seq("STREAM"):
            return self._parse_create_stream()
        if self._match_text_seq("TABLE"):
            return self._parse_create_table()
        if self._match_text_seq("SOURCE"):
            return self._parse_create_source()
        whole = "CREATE STREAM, TABLE or SOURCE, or CREATE [OR REPLACE] QUERY, VIEW, FUNCTION or TOKEN"
        self.error_hint = _ELSEWHERE.get(self._curr.text.upper()) if self._curr else None
        return self._refuse(whole, _KINDS)

    def _parse_create_token(self, *, replace: bool) -> CreateTokenDraft:
        name = self._name("the name of the token")
        if not self._match_text_seq("ROLE"):
            self._refuse("ROLE and one of reader, writer, admin")
        roles = [role.value for role in Role]
        if not self._curr or self._curr.text.lower() not in roles:
            self._refuse(f"a role: {either(roles)}")
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

    def _parse_create_stream(self) -> CreateStreamDraft:
        if_not_exists = self._match_text_seq("IF", "NOT", "EXISTS")
        name = self._name("the name of the stream")
        if not self._match(TokenType.L_PAREN, advance=False):
            self.raise_error("Expected the columns in parentheses, like (symbol STRING, price DOUBLE)")
        columns = self._parse_wrapped_csv(self._declared_column)
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

    def _parse_alter_stream(self) -> Draft:
        if not self._match_text_seq("STREAM"):
            self._refuse("ALTER STREAM or ALTER TABLE", ("STREAM", "TABLE"))
        stream = self._name("the name of a stream")
        if self._match_text_seq("ADD", "COLUMN"):
            return AddColumnDraft(stream, self._declared_column())
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
            "ADD COLUMN name TYPE [DEFAULT value], SET RETAIN interval, SET RETAIN FOREVER, SET LATENESS interval, "
            "SET LATENESS UNBOUNDED, SET IDLE AFTER interval, SET IDLE NEVER, or ADVANCE TO time"
        )

    def _parse_drop_draft(self) -> DropDraft:
        if not self._match_texts(_KINDS):
            self._refuse(either([f"DROP {kind}" for kind in _KINDS]), _KINDS)
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
        parameters: list[tuple[exp.Identifier, exp.DataType]] = []
        if self._next.token_type == TokenType.R_PAREN:
            self._advance(2)
        else:
            parameters = self._parse_wrapped_csv(self._column_definition)
        if not self._match_text_seq("RETURNS"):
            self._refuse("RETURNS and a type")
        returns = self._type("of the result")
        if self._match_text_seq("RETURN"):
            body = self._expression_as_query(f"the expression that '{name.name}' returns")
            return CreateFunctionDraft(name, tuple(parameters), returns, body, if_not_exists, replace)
        if not self._match_text_seq("LANGUAGE", "PYTHON"):
            self._refuse("LANGUAGE PYTHON, or RETURN and an expression of SQL")
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

    def _parse_create_view(self, *, replace: bool) -> CreateQueryDraft:
        if_not_exists = self._if_not_exists(replace=replace)
        name = self._name("the name of the view")
        if not self._match(TokenType.ALIAS):
            self._refuse("AS SELECT ... (name its columns there)")
        return CreateQueryDraft(name, self._query(), Materialize.NONE, if_not_exists, replace, view=True)

    def _is_after_name(self) -> bool:
        """Whether what stands here comes after the name of a query: it has none."""
        kind, following = self._curr.token_type, self._next.token_type
        return (kind == TokenType.ALIAS and following in QUERY_TOKENS) or (
            kind == TokenType.WITH and following == TokenType.L_PAREN
        )


def _with_window_names(tokens: list[Token]) -> list[Token]:
    """WINDOW is the clause where `name AS` follows, and a name everywhere else: of Spark's function, or of a column."""
    named = list(tokens)
    for index, token in enumerate(tokens):
        if token.token_type == TokenType.WINDOW:
            following = [each.token_type for each in tokens[index + 1 : index + 3]]
            if following[1:] != [TokenType.ALIAS] or following[0] == TokenType.R_PAREN:
                named[index] = Token(TokenType.VAR, token.text, token.line, token.col, token.start, token.end)
    return named
