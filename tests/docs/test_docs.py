"""Documentation that can't drift: what exists is documented, and what the README shows runs."""

from __future__ import annotations

import argparse
import inspect
import os
import re
import subprocess
import sys
from dataclasses import MISSING, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pytest

import ladle
from ladle import errors
from ladle.cli import parser
from ladle.cli.shell import HELP
from ladle.clock import ManualClock
from ladle.config import Settings
from ladle.define.source_definitions import FORMATS
from ladle.define.source_options import MQTT_OPTIONS
from ladle.engine import Database
from ladle.sql import split_script
from ladle.sql.statement_types import Statement
from ladle.testing import connect_inline

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SQL = (ROOT / "docs" / "sql.md").read_text(encoding="utf-8")
CLI = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
PYTHON = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")


def commands() -> dict[str, argparse.ArgumentParser]:
    actions = [a for a in parser()._actions if isinstance(a, argparse._SubParsersAction)]
    return dict(actions[0].choices)


def options(command: argparse.ArgumentParser) -> list[str]:
    return [name for action in command._actions for name in action.option_strings if name not in ("-h", "--help")]


@pytest.mark.parametrize("name", commands())
def test_every_command_and_option_is_documented(name: str) -> None:
    section = re.search(rf"^## ladle {name}$(.*?)(?=^## |\Z)", CLI, re.M | re.S)
    assert section is not None, f"docs/cli.md has no section for `ladle {name}`"
    general = CLI.partition("## ladle demo")[0]
    for option in options(commands()[name]):
        assert option in section[1] or option in general, f"{option} of `ladle {name}` is not in docs/cli.md"


@pytest.mark.parametrize("name", commands())
def test_every_command_has_help_with_examples(name: str) -> None:
    text = commands()[name].format_help()
    assert f"examples:\n  ladle {name}" in text or re.search(rf"examples:\n.*\| ladle {name}", text)


def test_no_command_is_documented_that_does_not_exist() -> None:
    assert re.findall(r"^## ladle (\w+)$", CLI, re.M) == [*dict.fromkeys(re.findall(r"^## ladle (\w+)$", CLI, re.M))]
    assert set(re.findall(r"^## ladle (\w+)$", CLI, re.M)) == set(commands())


def test_the_readme_names_every_command() -> None:
    listed = re.search(r"`ladle ([a-z, ]+)`", README)
    assert listed is not None
    assert set(listed[1].split(", ")) == set(commands())


STATEMENT_HEADINGS = {
    "CreateStream": "### CREATE STREAM",
    "AddColumn": "### ALTER STREAM ... ADD COLUMN",
    "SetRetain": "### ALTER STREAM ... SET RETAIN",
    "SetLateness": "### ALTER STREAM ... SET LATENESS",
    "SetIdleAfter": "### ALTER STREAM ... SET IDLE AFTER",
    "Advance": "### ALTER STREAM ... ADVANCE TO",
    "DropStream": "### DROP STREAM",
    "CreateTable": "### CREATE TABLE",
    "CreateTableAs": "### CREATE TABLE",
    "ShowCreate": "### SHOW CREATE",
    "AddTableColumn": "### ALTER TABLE ... ADD COLUMN",
    "DropTable": "### DROP TABLE",
    "InsertRows": "## INSERT",
    "InsertTableValues": "## INSERT",
    "InsertValues": "## INSERT",
    "UpdateRows": "### UPDATE",
    "DeleteRows": "### DELETE",
    "MergeRows": "### MERGE",
    "ShowTables": "### SHOW TABLES",
    "CreateQuery": "### CREATE QUERY",
    "DropQuery": "### DROP QUERY",
    "ShowViews": "### CREATE VIEW",
    "CreateFunction": "### CREATE FUNCTION",
    "DropFunction": "### DROP FUNCTION",
    "ShowFunctions": "### SHOW FUNCTIONS",
    "ShowStreams": "### SHOW STREAMS",
    "ShowQueries": "### SHOW QUERIES",
    "Describe": "### DESCRIBE",
    "Select": "## SELECT",
    "Insert": "## INSERT",
    "ExplainSelect": "## EXPLAIN",
    "ExplainQuery": "## EXPLAIN",
    "Subscribe": "### SUBSCRIBE",
    "Backup": "## BACKUP TO",
    "Verify": "## VERIFY",
    "CreateSource": "### CREATE SOURCE",
    "DropSource": "### DROP SOURCE",
    "ShowSources": "### SHOW SOURCES",
    "CreateToken": "### CREATE TOKEN",
    "DropToken": "### DROP TOKEN",
    "ShowTokens": "### SHOW TOKENS",
    "Grant": "### GRANT",
    "Revoke": "### REVOKE",
    "ShowGrants": "### SHOW GRANTS",
    "ShowDerived": "### SHOW DERIVED",
}


@pytest.mark.parametrize("statement", [kind.__name__ for kind in get_args(Statement)])
def test_every_statement_is_documented(statement: str) -> None:
    assert f"\n{STATEMENT_HEADINGS[statement]}\n" in SQL


def test_every_setting_is_documented_with_its_default() -> None:
    for field in fields(Settings):
        if field.default is MISSING:
            assert f"| `{field.name}` |  |" in PYTHON
            continue
        default = field.default if isinstance(field.default, str) else f"{field.default:,}"
        assert f"| `{field.name}` | {default} |" in PYTHON


def test_every_kind_of_derived_state_is_documented(tmp_path: Path) -> None:
    console = (ROOT / "src" / "ladle" / "protocols" / "http" / "console" / "derived.js").read_text(encoding="utf-8")
    listed = console.partition("const WHAT = {")[2].partition("}")[0]
    architecture = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    architecture = architecture.partition("\n## Derived state\n")[2].partition("\n## ")[0]
    in_sql = SQL.partition("\n### SHOW DERIVED\n")[2].partition("\n### ")[0]
    with connect_inline(tmp_path / "warehouse") as db:
        kinds = [each.kind for each in db.derived()]
    assert len(kinds) > 5
    for kind in kinds:
        assert f"| `{kind}` |" in in_sql, kind
        assert f"`{kind}`" in architecture, kind
        assert re.search(rf'^ *"?{kind}"?: ', listed, re.MULTILINE), kind


def test_every_error_is_documented() -> None:
    for name, value in vars(errors).items():
        if inspect.isclass(value) and issubclass(value, errors.LadleError):
            assert name in PYTHON


def test_every_call_of_the_interface_is_documented() -> None:
    for name in ("sql", "execute", "push", "attach", "register", "register_many", "query", "queries", "streams"):
        assert hasattr(Database, name)
        assert f"db.{name}(" in PYTHON
    for name in ("create_function", "drop_function", "functions", "create_table", "drop_table", "insert", "tables"):
        assert hasattr(Database, name)
        assert f"db.{name}(" in PYTHON
    for name in (
        "create_source",
        "drop_source",
        "start_sources",
        "backup",
        "verify",
        "explain",
        "explain_tree",
        "derived",
    ):
        assert hasattr(Database, name)
        assert f"db.{name}(" in PYTHON
    for name in inspect.signature(Database.create_function).parameters:
        assert name in PYTHON
    for name in inspect.signature(ladle.connect).parameters:
        if name != "clock":  # for tests
            assert name in PYTHON


def test_the_readme_says_when_an_answer_needs_spark() -> None:
    assert f"more than {Settings().residual_rows_max // 1_000_000} million" in README
    assert all(name in README for name in ("COUNT", "SUM", "AVG", "MIN", "MAX"))


def test_links_of_the_documentation_lead_somewhere() -> None:
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            if "://" not in target:
                assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_anchors_of_the_sql_page_exist() -> None:
    headings = {
        re.sub(r"[^\w -]", "", line).strip().lower().replace(" ", "-") for line in re.findall(r"^#+ (.*)$", SQL, re.M)
    }
    for page in (SQL, CLI, PYTHON):
        for anchor in re.findall(r"\]\((?:sql\.md)?#([\w-]+)\)", page):
            assert anchor in headings or page is PYTHON, anchor


def sql_blocks() -> list[str]:
    return [block for block in re.findall(r"```sql\n(.*?)```", SQL, re.S) if "..." not in block and "[" not in block]


def test_statements_of_the_sql_page_are_statements() -> None:
    from ladle.sql.script import chunks, draft

    assert len(sql_blocks()) > 4
    for block in sql_blocks():
        for chunk in chunks(block):
            draft(chunk)


def test_the_shell_names_only_statements_that_exist() -> None:
    named = HELP.partition("Statements: ")[2].partition(".")[0].replace("\n", " ").split(", ")
    headings = re.findall(r"^##+ (.*)$", SQL, re.M)
    for statement in named:
        assert any(heading.startswith(statement.split(" INTO")[0]) for heading in headings), statement
    assert {"CREATE SOURCE", "GRANT", "SHOW DERIVED"} <= set(named)


def test_the_subscription_of_the_documentation_does_what_it_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All examples of the section, in order; what they print is what is said beside it."""
    section = PYTHON.partition("## Subscriptions")[2].partition("\n## ")[0]
    examples = re.findall(r"```python\n(.*?)```", section, re.S)
    assert len(examples) == 5
    with connect_inline(tmp_path / "warehouse") as db:
        db.sql("CREATE STREAM trades (size INT)")
        db.register("SELECT size FROM trades WHERE size > 9", name="large")
        names: dict[str, Any] = {"db": db}
        for example in examples:
            exec(compile(example, "example.py", "exec"), names)
            said = re.findall(r"print\(.*\)  # (.*?)(?:(?<=]): .*)?$", example, re.M)
            assert capsys.readouterr().out.splitlines() == said
        db.push("trades", [{"size": 11}], wait=True)
        assert names["again"].next(0.0).inserted.to_pylist() == [{"size": 11}]


def test_the_answer_of_the_documentation_is_used_as_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = re.search(r"```python\n(.*?)```", PYTHON.partition("## An answer")[2], re.S)
    assert example is not None
    with connect_inline(tmp_path / "warehouse") as db:
        db.sql("CREATE STREAM trades (symbol STRING, size INT)")
        db.push("trades", {"symbol": "IBM", "size": 700}, wait=True)
        exec(compile(example[1], "example.py", "exec"), {"db": db})
    assert capsys.readouterr().out == "IBM 700\n1 IBM [{'symbol': 'IBM', 'size': 700}]\n"


def test_the_past_of_the_documentation_is_as_it_says(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = re.search(r"```python\n(.*?)```", PYTHON.partition("### The past")[2], re.S)
    assert example is not None
    with connect_inline(tmp_path / "warehouse") as db:
        exec(example[1], {"db": db, "ladle": ladle})
        said = re.search(r"# (there are answers from .*)", example[1])
        assert said is not None
        assert capsys.readouterr().out.strip() == said[1]
        assert db.invoke("busy", now="2026-01-31 10:30:00").to_pylist() == [{"visits": 2}]
        again = re.findall(r"```python\n(.*?)```", PYTHON.partition("### The past")[2], re.S)[1]
        exec(again, {"db": db, "q": db.query("busy")})
        assert capsys.readouterr().out == "{'visits': 2} {'visits': 2} {'visits': 3}\n"


def test_the_functions_of_the_documentation_do_what_they_say(tmp_path: Path) -> None:
    section = PYTHON.partition("## Functions")[2]
    example = re.search(r"```python\n(.*?)```", section, re.S)
    assert example is not None
    program = tmp_path / "example.py"
    program.write_text(example[1], encoding="utf-8")
    with connect_inline(tmp_path / "warehouse") as db:
        db.sql("CREATE STREAM positions (car INT, lat DOUBLE, lon DOUBLE)")
        exec(compile(example[1], str(program), "exec"), {"db": db})
        positions = [(1, 37.80, -122.27), (2, 37.34, -121.89), (3, None, -122.27)]
        db.push("positions", [dict(zip(("car", "lat", "lon"), each, strict=True)) for each in positions], wait=True)
        assert db.invoke("near").table.to_pylist() == [{"car": 1}]
        created = next(block for block in sql_blocks() if "CREATE FUNCTION zone" in block)
        db.sql("CREATE STREAM trades (size INT)")
        db.push("trades", [{"size": 1}, {"size": 2}], wait=True)
        assert db.execute(created)[2].table.to_pylist() == [{"count(1)": 1}]
        zones = "SELECT zone(x, y) AS z FROM VALUES (1D, 2D), (10D, 1D), (NULL, 1D) AS t(x, y)"
        assert db.sql(zones).table.to_pylist() == [{"z": "inside"}, {"z": "outside"}, {"z": None}]


def test_the_time_windows_of_the_documentation_do_what_they_say(tmp_path: Path) -> None:
    created = next(block for block in sql_blocks() if "CREATE QUERY per_minute" in block)
    with connect_inline(tmp_path / "warehouse") as db:
        db.sql("CREATE STREAM trades (symbol STRING, price DOUBLE, size INT, at TIMESTAMP) TIMESTAMP BY at")
        db.execute(created)
        at = datetime(2026, 1, 30, 9, 30, 59, tzinfo=UTC)
        for symbol, size, seconds in (("IBM", 60, 0), ("IBM", 70, 0), ("IBM", 100, 1), ("KO", 101, 61)):
            row = {"symbol": symbol, "price": 1.5, "size": size, "at": at + timedelta(seconds=seconds)}
            db.push("trades", [row], wait=True)
        assert db.invoke("per_minute").to_pylist() == [
            {"minute": datetime(2026, 1, 30, 9, 30, tzinfo=UTC), "symbol": "IBM", "shares": 130},
            {"minute": datetime(2026, 1, 30, 9, 32, tzinfo=UTC), "symbol": "KO", "shares": 101},
        ]


@pytest.mark.parametrize("materialize", ["none", "complete"])
def test_the_clauses_of_the_documentation_do_what_they_say(tmp_path: Path, materialize: str) -> None:
    """QUALIFY and its like, and functions that take no Spark: as standing queries, asked before and after more rows."""
    clauses, functions = (next(b for b in sql_blocks() if word in b) for word in ("QUALIFY", "timestamp_seconds"))
    texts = [text.removesuffix(";") for text in (*split_script(clauses), *split_script(functions))]
    at = datetime(2026, 1, 30, 9, 3, tzinfo=UTC)
    with connect_inline(tmp_path / "warehouse") as db:
        db.sql("CREATE STREAM trades (symbol STRING, price DOUBLE, size INT, at TIMESTAMP) TIMESTAMP BY at")
        db.sql("CREATE TABLE companies (symbol STRING)")
        db.sql("INSERT INTO companies VALUES ('SAP')")
        standing = [db.register(t, name=f"q{n}", materialize=materialize) for n, t in enumerate(texts)]
        for symbol, price, minutes in (("IBM", 1.0, 0), ("KO", 2.0, 1), ("IBM", 4.0, 2)):
            row = {"symbol": symbol, "price": price, "size": 5, "at": at + timedelta(minutes=minutes)}
            db.push("trades", [row], wait=True)
            [query.invoke() for query in standing]
        last, by_hour, unpivoted, named, rolled, spread = (query.invoke().to_pylist() for query in standing)
    assert [(row["symbol"], row["price"]) for row in last] == [("IBM", 4.0), ("KO", 2.0)]
    assert by_hour == [{"hour": 9, "IBM": 10, "coke": 5}]
    assert sorted((row["symbol"], row["what"], row["value"]) for row in unpivoted) == [
        *[("IBM", "price", 1.0), ("IBM", "price", 4.0), ("IBM", "shares", 5.0), ("IBM", "shares", 5.0)],
        *[("KO", "price", 2.0), ("KO", "shares", 5.0)],
    ]
    assert sorted(row["symbol"] for row in named) == ["IBM", "IBM", "KO", "SAP"]
    assert {(row["symbol"], row["day"], row["trades"]) for row in rolled} == {
        *{("IBM", "2026-01-30", 2), ("IBM", None, 2)},
        *{("KO", "2026-01-30", 1), ("KO", None, 1), (None, None, 3)},
    }
    ibm = next(row for row in spread if row["symbol"] == "IBM")
    assert ibm["ten_minutes"] == datetime(2026, 1, 30, 9, tzinfo=UTC)
    assert abs(ibm["deviation"] ** 2 - 4.5) < 1e-9
    assert (ibm["large"], ibm["last"], ibm["path"]) == (5.0, 4.0, "IBM,IBM")


def test_the_order_of_values_in_the_documentation_is_what_it_says(tmp_path: Path) -> None:
    text = next(block for block in sql_blocks() if "first(price ORDER BY at)" in block).rstrip().removesuffix(";")
    at = datetime(2026, 1, 30, 9, tzinfo=UTC)
    with connect_inline(tmp_path / "warehouse") as db:
        db.sql("CREATE STREAM trades (symbol STRING, price DOUBLE, size INT, at TIMESTAMP) TIMESTAMP BY at")
        standing = db.register(text, name="prices")
        for minutes, price, size in ((0, 5.0, 100), (1, 9.0, 300), (2, None, 400), (3, 7.0, 20), (3, 6.0, 100)):
            row = {"symbol": "IBM", "price": price, "size": size, "at": at + timedelta(minutes=minutes)}
            db.push("trades", [row], wait=True)
        answer = standing.invoke().to_pylist()
    assert answer == [{"symbol": "IBM", "open": 5.0, "close": 7.0, "large": [9.0, 5.0, 6.0], "names": "IBM"}]


def test_the_plan_of_the_documentation_is_what_explain_shows(tmp_path: Path) -> None:
    section = SQL.partition("\n## EXPLAIN\n")[2].partition("\n## ")[0]
    shown = re.findall(r"```text\n(.*?)```", section, re.S)
    with connect_inline(tmp_path / "warehouse") as db:
        db.sql("CREATE STREAM trades (symbol STRING, price DOUBLE, size INT, at TIMESTAMP) TIMESTAMP BY at")
        created = next(block for block in sql_blocks() if "CREATE QUERY busy" in block)
        said = db.execute(created)[1].table.column(0).to_pylist()
    assert len(shown) == 1
    assert shown[0].splitlines() == said[2:7]


def test_the_tables_of_the_documentation_do_what_they_say(tmp_path: Path) -> None:
    section = SQL.partition("\n## Tables\n")[2].partition("\n## ")[0]
    blocks = [block for block in sql_blocks() if block in section]
    with connect_inline(tmp_path / "warehouse") as db:
        db.sql("CREATE STREAM trades (symbol STRING, price DOUBLE, size INT, at TIMESTAMP) TIMESTAMP BY at")
        at = datetime(2026, 1, 30, tzinfo=UTC)
        for symbol in ("IBM", "SAP", "KO"):
            db.push("trades", [{"symbol": symbol, "price": 1.5, "size": 2, "at": at}], wait=True)
        answers = [answer for block in blocks for answer in db.execute(block)]
        assert [answer.message for answer in answers if answer.message] == [
            "table companies created",
            "3 rows inserted into companies",
            "1 row inserted into companies",
            "query traded stands",
            "table seen created",
            "2 rows inserted into seen",
            "1 row inserted into seen",
            "3 rows updated in seen",
            "table listed created with 2 rows",
            "1 row updated in companies",
            "4 rows updated in companies",
            "1 row deleted from companies",
            "column times added to seen",
            "1 row merged into seen",
            "2 rows deleted from listed",
        ]
        expected = [{"country": "GB", "value": 3.0}, {"country": "US", "value": 6.0}]
        assert sorted(db.invoke("traded").to_pylist(), key=lambda row: row["country"]) == expected
        example = re.search(r"```python\n(.*?)```", PYTHON.partition("## Tables")[2], re.S)
        assert example is not None
        names: dict[str, Any] = {"db": db}
        exec(compile(example[1], "example.py", "exec"), names)
        assert [table.name for table in db.tables()] == ["companies", "seen", "listed", "limits"]
        assert [table.rows for table in db.tables()] == [3, 3, 0, 3]


def test_the_sources_of_the_documentation_can_be_defined(tmp_path: Path) -> None:
    from ladle.pipeline.readers import KAFKA_PACKAGE

    section = SQL.partition("\n## Sources\n")[2].partition("\n## ")[0]
    blocks = [block for block in sql_blocks() if block in section]
    with connect_inline(tmp_path / "warehouse") as db:
        answers = [answer.message for block in blocks for answer in db.execute(block)]
        assert answers == [
            "stream trades created",
            "source exchange_files created",
            "source exchange created",
            "source floor created",
            "source floor dropped",
        ]
        assert [source.name for source in db.sources()] == ["exchange_files", "exchange"]
    for form in FORMATS:
        assert f"`{form}`" in section
    for option in MQTT_OPTIONS:
        assert f"`{option}`" in section
    assert KAFKA_PACKAGE in section


def python_blocks() -> list[str]:
    blocks = re.findall(r"```python\n(.*?)```", README, re.S)
    assert len(blocks) == README.count("```python")
    return blocks


def test_the_archive_is_where_the_documentation_says_and_looks_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    section = PYTHON.partition("## The archive")[2]
    described = re.search(r"```text\n>>> (.*?)\n(.*?)```", section, re.S)
    example = re.search(r"```python\n(.*?)```", section, re.S)
    assert described is not None
    assert example is not None
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    with connect_inline("warehouse") as db:
        db.sql("CREATE STREAM sensors (mote INT, celsius DOUBLE)")
        shown = repr(db.sql(re.sub(r'db.sql\("(.*)"\)', r"\1", described[1])))
        assert shown.startswith(described[2])
        before = datetime.now(UTC)
        db.push("sensors", [{"mote": 2, "celsius": 21.5}], wait=True)
        db.push("sensors", [{"mote": 1, "celsius": 19.25}], wait=True)
        db.maintain()
        names: dict[str, Any] = {}
        exec(example[1], names)
        stamped = db.sql("SELECT ts FROM sensors ORDER BY ts").table.column("ts").to_pylist()
    table = names["sensors"].sort_by("_ts")
    assert table.column_names == ["mote", "celsius", "_ts"]
    assert table["mote"].to_pylist() == [2, 1]
    assert table["_ts"].to_pylist() == stamped
    assert before <= stamped[0] <= datetime.now(UTC)
    assert "celsius" in capsys.readouterr().out


@pytest.mark.spark
def test_the_tutorial_of_the_readme_runs_and_prints_what_it_says(tmp_path: Path) -> None:
    code = "\n".join(python_blocks())
    assert len([line for line in code.splitlines() if line.strip()]) <= 12
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "COLUMNS": "100"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    shown = re.search(r"```text\n(.*?)```", README, re.S)
    assert shown is not None
    assert shown[1] in done.stdout
    assert "'symbol': 'IBM'" in done.stdout
    assert "'KO'" not in done.stdout
    # Spark's own noise is off.
    assert "WARN" not in done.stderr


def test_as_of_of_the_documentation_runs(tmp_path: Path) -> None:
    section = SQL.partition("\n### AS OF\n")[2].partition("\n## ")[0]
    example = re.search(r"```sql\n(.*?)```", section, re.S)
    assert example is not None
    at = datetime(2026, 1, 31, 9, 55, tzinfo=UTC)
    with connect_inline(tmp_path / "warehouse", clock=ManualClock(at)) as db:
        db.sql("CREATE STREAM trades (symbol STRING, price DOUBLE, at TIMESTAMP) TIMESTAMP BY at")
        db.sql("CREATE TABLE companies (symbol STRING, name STRING)")
        db.sql("INSERT INTO companies VALUES ('a', 'Acme')")
        db.register("SELECT symbol, price FROM trades [RANGE 10 MINUTES] WHERE price > 100", name="expensive")
        db.push("trades", [{"symbol": "a", "price": 101.0, "at": at}], wait=True)
        entry = db.sql("SELECT 1").entry
        db.push("trades", [{"symbol": "a", "price": 102.0, "at": at + timedelta(minutes=20)}], wait=True)
        answers = [db.sql(text).to_pylist() for text in split_script(example[1].replace("42", str(entry)))]
    assert answers == [
        [{"symbol": "a", "max(price)": 101.0}],
        [{"symbol": "a", "was": 101.0, "price": 101.0}, {"symbol": "a", "was": 101.0, "price": 102.0}],
        [{"symbol": "a", "name": "Acme"}],
        [{"symbol": "a", "price": 101.0}],
    ]
