"""No text reaches a file, the network, a setting, or another table of the engines beneath."""

from __future__ import annotations

import pytest
from tests.sql.names import Catalog

from ladle.errors import LadleError
from ladle.sql import bind, parse_one

ATTEMPTS = [
    "SELECT * FROM read_csv('/etc/passwd')",
    "SELECT * FROM read_text('/etc/passwd')",
    "SELECT * FROM parquet.`/etc/passwd`",
    "SELECT * FROM text.`/etc/passwd`",
    "SELECT * FROM `/etc/passwd`",
    "SELECT * FROM '/etc/passwd'",
    'SELECT * FROM "/etc/passwd"',
    "SELECT * FROM information_schema.tables",
    "SELECT * FROM duckdb_secrets()",
    "SELECT * FROM pragma_database_list()",
    "SELECT * FROM sqlite_master",
    "SELECT * FROM _s0",
    "SELECT symbol FROM trades JOIN _s0 ON true",
    "SELECT * FROM _t0",
    "SELECT name FROM companies JOIN _t0 ON true",
    "DELETE FROM _t0",
    "SELECT * FROM spark_catalog.default.t",
    "SELECT * FROM trades.secret",
    "SELECT * FROM other.trades",
    "SELECT * FROM trades.quarantine.x",
    "SELECT * FROM identifier('trades')",
    "SELECT * FROM table('trades')",
    "SELECT * FROM TABLE(explode(array(1)))",
    "SELECT * FROM trades, LATERAL read_csv(symbol)",
    "SELECT symbol FROM trades LATERAL VIEW read_csv(symbol) t AS c",
    "SELECT (SELECT max(content) FROM read_text('/etc/passwd'))",
    "SELECT symbol FROM trades WHERE EXISTS (SELECT 1 FROM read_csv('/x'))",
    "WITH t AS (SELECT * FROM glob('*')) SELECT * FROM t",
    "SELECT getenv('HOME')",
    "SELECT current_setting('memory_limit')",
    "SELECT `getenv`('HOME')",
    "SELECT system.builtin.reflect('java.lang.System', 'exit', 1)",
    "SELECT java_method('java.lang.System', 'exit', 1)",
    "SELECT try_reflect('java.lang.System', 'exit', 1)",
    "SELECT TRANSFORM(symbol) USING 'cat' AS (x) FROM trades",
    "SELECT input_file_name() FROM trades",
    "SELECT ${x}",
    "SELECT @@version",
    "SELECT $now",
    "SELECT :now",
    "COPY trades TO '/tmp/x'",
    "ATTACH '/tmp/x.db'",
    "INSTALL httpfs",
    "PRAGMA database_list",
    "SET memory_limit = '1GB'",
    "CALL system.x()",
    "ADD JAR '/tmp/x.jar'",
    "CREATE FUNCTION f AS 'x'",
    "CREATE TEMPORARY VIEW v AS SELECT 1",
    "CREATE TABLE t USING csv OPTIONS (path '/etc/passwd')",
    "CREATE TABLE t (a INT) USING csv OPTIONS (path '/etc/passwd')",
    "CREATE TABLE t (a INT) LOCATION '/tmp/x'",
    "EXECUTE IMMEDIATE 'SELECT 1'",
    "BEGIN SELECT 1; END",
    "INSERT INTO DIRECTORY '/tmp/x' SELECT 1",
    "INSERT INTO trades TABLE other",
    "FROM trades INSERT INTO other SELECT *",
    "TABLE trades",
    "EXPLAIN EXTENDED SELECT 1",
]


@pytest.mark.parametrize("text", ATTEMPTS)
def test_refused(text: str) -> None:
    with pytest.raises(LadleError):
        parse_one(text, Catalog())


def test_names_and_literals_stay_what_they_are() -> None:
    """Quotes in names and strings are data in the rendered texts."""
    plan = bind(
        """SELECT symbol AS `a" b`, 'it\\'s "x" `y` \\\\' AS `c``d` FROM trades
        WHERE symbol = 'x\\'; DROP' ORDER BY 1""",
        Catalog(),
    )
    assert [factor.duckdb for factor in plan.scans[0].block.factors] == ["(\"symbol\" = 'x''; DROP')"]
    assert plan.schema is not None
    assert plan.schema.names == ['a" b', "c`d"]
    assert '"a"" b"' in (plan.residual.duckdb_sql or "")
    assert "`c``d`" in plan.residual.spark_sql


def test_a_cte_can_not_pose_as_a_scan() -> None:
    plan = bind("WITH _s0 AS (SELECT 1 AS one) SELECT one, symbol FROM _s0, trades", Catalog())
    assert "WITH `_s0`" not in plan.residual.spark_sql
    assert plan.scans[0].block.stream == "trades"
    plan = bind("WITH _t0 AS (SELECT 1 AS one) SELECT one, name FROM _t0, companies", Catalog())
    assert "WITH `_t0`" not in plan.residual.spark_sql
    assert plan.tables[0].table == "Companies"
