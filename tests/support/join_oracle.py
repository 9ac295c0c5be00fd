"""The oracle for queries that join streams with each other and with a table: DuckDB again, with a table of its own."""

from __future__ import annotations

from tests.support.join_queries import IS_ODD_FOR_DUCKDB, LABELS, JoinQuery
from tests.support.oracle import Expected, Oracle, rows_of


class JoinOracle(Oracle):
    def __init__(self) -> None:
        super().__init__()
        self._duck.execute(IS_ODD_FOR_DUCKDB)
        self._duck.execute(LABELS)

    def change_table(self, statement: str) -> None:
        self._answered.clear()
        self._duck.execute(statement)

    def judge(self, query: JoinQuery, wall_us: int, now_us: int | None = None) -> Expected:
        at = self.at(query.streams, wall_us, now_us)
        sql = query.duckdb(at)
        return Expected(query.columns, rows_of(self.table(sql)), False, at.now_us, sql)
