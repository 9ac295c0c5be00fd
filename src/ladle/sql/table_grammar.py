"""The grammar of the statements about tables, and of those that change rows."""

from __future__ import annotations

from sqlglot import exp
from sqlglot.tokenizer_core import TokenType

from ladle.sql.drafts import (
    AddTableColumnDraft,
    ColumnDraft,
    CreateTableAsDraft,
    CreateTableDraft,
    DeleteDraft,
    InsertDraft,
    MergeClauseDraft,
    MergeDraft,
    QueryDraft,
    UpdateDraft,
)
from ladle.sql.statement_types import MergeAction, MergeKind
from ladle.sql.subscribing import SubscribeParser
from ladle.sql.trees import make_shallow

QUERY_TOKENS = {TokenType.SELECT, TokenType.WITH, TokenType.VALUES, TokenType.L_PAREN}
"""What a query begins with."""


_CONSTRAINTS = frozenset({"NOT", "NULL", "PRIMARY KEY", "UNIQUE", "CHECK", "COMMENT", "GENERATED"})
"""What other systems have behind a column's type."""

_NO_CONSTRAINTS = "a column has a name and a type, and may have a DEFAULT; there are no keys and no constraints"


class TableParser(SubscribeParser):
    """Parses the statements about tables and their rows."""

    def _dotted_name(self, what: str) -> tuple[exp.Identifier, ...]:
        parts = [self._name(what)]
        while self._match(TokenType.DOT):
            parts.append(self._name("a name"))
        return tuple(parts)

    def _query(self) -> QueryDraft:
        start, index = self._curr, self._index
        tree = self._parse_statement() if start.token_type in QUERY_TOKENS else None
        if not isinstance(tree, exp.Query | exp.Values):
            self.raise_error("Expected a SELECT", start)
        assert isinstance(tree, exp.Expression)
        return QueryDraft(make_shallow(tree), self._find_sql(start, self._prev), self._tokens[index : self._index])

    def _column_definition(self) -> tuple[exp.Identifier, exp.DataType]:
        name = self._name("the name of a column")
        return name, self._type(f"of column '{name.name}'")

    def _declared_column(self) -> ColumnDraft:
        """A column of a stream or table, which may have a default."""
        if self._curr and self._curr.token_type == TokenType.PRIMARY_KEY:
            self.error_hint = _NO_CONSTRAINTS
        name, kind = self._column_definition()
        if self._curr and self._curr.text.upper() in _CONSTRAINTS:
            self.error_hint = _NO_CONSTRAINTS
            self.raise_error("Expected )")
        if not self._match(TokenType.DEFAULT):
            return ColumnDraft(name, kind, None)
        return ColumnDraft(name, kind, self._expression_as_query(f"the default of column '{name.name}'"))

    def _expression_as_query(self, what: str) -> QueryDraft:
        """SELECT and the expression that stands here; its text is the expression's alone."""
        start, index = self._curr, self._index
        value = self._parse_disjunction() if start else None
        if value is None:
            self._refuse(what)
        assert isinstance(value, exp.Expression)
        text, tokens = self._find_sql(start, self._prev), self._tokens[index : self._index]
        return QueryDraft(exp.Select(expressions=[value]), text, tokens)

    def _parse_alter_table(self) -> AddTableColumnDraft:
        table = self._name("the name of a table")
        if not self._match_text_seq("ADD") or not self._match_texts(("COLUMN", "COLUMNS")):
            self._refuse("ADD COLUMN name TYPE [DEFAULT value]")
        return AddTableColumnDraft(table, self._declared_column())

    def _type(self, what: str) -> exp.DataType:
        start = self._curr
        kind = self._parse_types(schema=True) if start else None
        if not isinstance(kind, exp.DataType):
            self.raise_error(f"Expected the type {what}", start or self._prev)
        assert isinstance(kind, exp.DataType)
        kind.update_positions(start)
        return kind

    def _parse_create_table(self) -> CreateTableDraft | CreateTableAsDraft:
        if_not_exists = self._match_text_seq("IF", "NOT", "EXISTS")
        name = self._name("the name of the table")
        if self._match(TokenType.ALIAS):
            return CreateTableAsDraft(name, self._query(), bool(if_not_exists))
        if not self._match(TokenType.L_PAREN, advance=False):
            self.raise_error("Expected AS SELECT, or the columns in parentheses, like (symbol STRING, country STRING)")
        columns = self._parse_wrapped_csv(self._declared_column)
        return CreateTableDraft(name, tuple(columns), bool(if_not_exists))

    def _parse_truncate(self) -> DeleteDraft:
        start = self._prev
        self._match(TokenType.TABLE)
        table = self._name("the name of a table")
        return DeleteDraft(table, None, self._find_sql(start, self._prev))

    def _parse_insert_draft(self) -> InsertDraft:
        if not self._match(TokenType.INTO):
            self._refuse("INSERT INTO stream or table")
        self._match(TokenType.TABLE)
        target = self._dotted_name("the name of a stream or table")
        columns: tuple[exp.Identifier, ...] | None = None
        if self._match(TokenType.L_PAREN, advance=False) and self._next.token_type not in QUERY_TOKENS:
            columns = tuple(self._parse_wrapped_csv(lambda: self._name("the name of a column")))
        if self._curr.token_type not in QUERY_TOKENS:
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

    def _parse_merge_draft(self) -> MergeDraft:
        start = self._prev
        if not self._match(TokenType.INTO):
            self._refuse("MERGE INTO table")
        table, alias = self._name("the name of a table"), None
        if self._match(TokenType.ALIAS) or (self._curr and self._curr.text.upper() != "USING"):
            alias = self._name("another name for the table")
        if not self._match(TokenType.USING):
            self._refuse("USING and the source: a table, stream or query, or (SELECT ...) AS s")
        source, source_alias = self._merge_source()
        if not self._match(TokenType.ON):
            self._refuse("ON and the condition by which rows match")
        on = self._expression_as_query("the condition by which rows match")
        clauses = [self._merge_clause()]
        while self._curr:
            clauses.append(self._merge_clause())
        text = self._find_sql(start, self._prev)
        return MergeDraft(table, alias, source, source_alias, on, tuple(clauses), text)

    def _merge_source(self) -> tuple[QueryDraft, exp.Identifier]:
        start, index = self._curr, self._index
        relation = self._parse_table() if start else None
        if not isinstance(relation, exp.Table | exp.Subquery) or not relation.alias_or_name:
            self.raise_error("Expected a table, stream or query, or (SELECT ...) AS s", start)
        assert isinstance(relation, exp.Table | exp.Subquery)
        select = exp.Select(expressions=[exp.Star()])
        select.set("from_", exp.From(this=relation))
        name = exp.to_identifier(relation.alias_or_name)
        text, tokens = self._find_sql(start, self._prev), self._tokens[index : self._index]
        return QueryDraft(select, text, tokens), name

    def _merge_clause(self) -> MergeClauseDraft:
        if not self._match_text_seq("WHEN"):
            self._refuse("WHEN MATCHED, WHEN NOT MATCHED or WHEN NOT MATCHED BY SOURCE")
        negated = self._match(TokenType.NOT)
        if not self._match_text_seq("MATCHED"):
            self._refuse("MATCHED or NOT MATCHED")
        kind = MergeKind.NOT_MATCHED if negated else MergeKind.MATCHED
        if negated and self._match_text_seq("BY"):
            if not self._match_texts(("SOURCE", "TARGET")):
                self._refuse("BY SOURCE or BY TARGET")
            by_source = self._prev.text.upper() == "SOURCE"
            kind = MergeKind.NOT_MATCHED_BY_SOURCE if by_source else kind
        condition = self._expression_as_query("a condition after AND") if self._match(TokenType.AND) else None
        if not self._match_text_seq("THEN"):
            self._refuse("THEN, or AND and a condition")
        if kind is MergeKind.NOT_MATCHED:
            return MergeClauseDraft(kind, condition, MergeAction.INSERT, self._merge_insert())
        if self._match_text_seq("DELETE"):
            return MergeClauseDraft(kind, condition, MergeAction.DELETE, None)
        if not self._match_text_seq("UPDATE", "SET"):
            self._refuse("UPDATE SET or DELETE")
        if kind is MergeKind.MATCHED and self._match(TokenType.STAR):
            return MergeClauseDraft(kind, condition, MergeAction.UPDATE, None)
        given = self._parse_csv(self._merge_assignment)
        return MergeClauseDraft(kind, condition, MergeAction.UPDATE, tuple(given))

    def _merge_insert(self) -> tuple[tuple[exp.Identifier, QueryDraft], ...] | None:
        if not self._match_text_seq("INSERT"):
            self._refuse("INSERT")
        if self._match(TokenType.STAR):
            return None
        if not self._match(TokenType.L_PAREN, advance=False):
            self._refuse("* or the columns that are given, like (a, b) VALUES (s.a, s.b)")
        columns = self._parse_wrapped_csv(lambda: self._dotted_name("the name of a column")[-1])
        if not self._match(TokenType.VALUES) or not self._match(TokenType.L_PAREN, advance=False):
            self._refuse("VALUES and the values in parentheses")
        place = self._curr
        values = self._parse_wrapped_csv(lambda: self._expression_as_query("a value"))
        if len(values) != len(columns):
            self.raise_error(f"{len(values)} values for {len(columns)} columns", place)
        return tuple(zip(columns, values, strict=True))

    def _merge_assignment(self) -> tuple[exp.Identifier, QueryDraft]:
        column = self._dotted_name("the name of a column")[-1]
        if not self._match(TokenType.EQ):
            self._refuse(f"= and the value of '{column.name}'")
        return column, self._expression_as_query(f"the value of '{column.name}'")

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
