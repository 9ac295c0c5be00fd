"""The commands: what they print, where, and their exit codes."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ladle.cli import main

from .conftest import Run


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("ladle ")


@pytest.mark.parametrize("argv", [[], ["nonsense"], ["invoke"], ["sql", "--format", "xml"], ["sql", "--rows", "-1"]])
def test_wrong_usage_ends_with_two(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    assert "usage: ladle" in capsys.readouterr().err


# -- sql --


@pytest.mark.not_at_one_row("that nothing is said of Spark is part of it")
def test_sql_prints_a_table(trades: Run) -> None:
    ran = trades("sql", "-c", "SELECT symbol, size FROM trades ORDER BY symbol")
    assert ran.code == 0
    assert ran.out.splitlines() == [
        "symbol │ size",
        "───────┼─────",
        "GS     │   10",
        "IBM    │  100",
        "KO     │  700",
        "(3 rows)",
    ]
    assert ran.err == ""


def test_sql_writes_csv_and_json_for_programs(trades: Run) -> None:
    text = "SELECT symbol, at, price FROM trades WHERE symbol = 'IBM'"
    csv = trades("sql", "-c", text, "--format", "csv").out.splitlines()
    assert csv == ['"symbol","at","price"', '"IBM",2026-01-30 14:30:00.000000Z,193.5']
    line = json.loads(trades("sql", "-c", text, "--format", "json").out)
    assert line == {"symbol": "IBM", "at": "2026-01-30T14:30:00.000000Z", "price": 193.5}


def test_functions_from_the_command_line(trades: Run) -> None:
    body = "$$ pc.greater(price, 100.0) $$"
    made = trades("sql", "-c", f"CREATE FUNCTION dear(price DOUBLE) RETURNS BOOLEAN LANGUAGE PYTHON AS {body}")
    assert (made.code, made.out) == (0, "function dear created\n")
    found = trades("sql", "-c", "SELECT symbol FROM trades WHERE dear(price) ORDER BY 1", "--format", "csv")
    assert '"IBM"' in found.out.splitlines()
    assert '"KO"' not in found.out.splitlines()
    assert "dear" in trades("sql", "-c", "SHOW FUNCTIONS").out
    assert "pc.greater(price, 100.0)" in trades("sql", "-c", "DESCRIBE FUNCTION dear", "--format", "json").out
    assert trades("sql", "-c", "DROP FUNCTION dear").out == "function dear dropped\n"


def test_tables_from_the_command_line(trades: Run) -> None:
    said = {
        "CREATE TABLE companies (symbol STRING, country STRING)": "table companies created\n",
        "INSERT INTO companies VALUES ('IBM', 'US'), ('KO', NULL)": "2 rows inserted into companies\n",
        "UPDATE companies SET country = 'US' WHERE symbol = 'KO'": "1 row updated in companies\n",
        "DELETE FROM companies WHERE symbol = 'GS'": "0 rows deleted from companies\n",
    }
    for text, message in said.items():
        ran = trades("sql", "-c", text)
        assert (ran.code, ran.out) == (0, message)
    joined = "SELECT symbol, country FROM trades JOIN companies USING (symbol) ORDER BY symbol"
    assert trades("sql", "-c", joined, "--format", "csv").out.splitlines()[1:] == ['"IBM","US"', '"KO","US"']
    assert '"companies"' in trades("sql", "-c", "SHOW TABLES", "--format", "csv").out
    trades("register", "home", joined)
    refused = trades("sql", "-c", "DROP TABLE companies")
    assert refused.code == 1
    assert "queries read it: home" in refused.err
    refused = trades("sql", "-c", "UPDATE trades SET size = 1")
    assert refused.code == 1
    assert "UPDATE is for tables" in refused.err


def test_rows_limits_a_table_and_nothing_else(trades: Run) -> None:
    assert "(first 1 of 3 rows)" in trades("sql", "-c", "SELECT * FROM trades", "--rows", "1").out
    every = trades("sql", "-c", "SELECT * FROM trades", "--rows", "1", "--format", "json")
    assert len(every.out.splitlines()) == 3


def test_a_script_prints_each_answer_and_stops_at_the_first_error(trades: Run, tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    script.write_text(
        "SHOW QUERIES;\n-- a comment; with a semicolon\nSELECT 1 AS one;\n\n  SELECT nope FROM trades;\nSELECT 2 AS two"
    )
    for argv in (["-f", str(script)], [str(script)]):
        ran = trades("sql", *argv)
        assert ran.code == 1
        assert "dear" in ran.out
        assert "one" in ran.out
        assert "two" not in ran.out
        # The position is that in the file, and the caret is under the name.
        assert "line 5, column 10" in ran.err
        shown, caret = ran.err.splitlines()[1:3]
        assert shown[caret.index("^") :].startswith("nope")


def test_an_error_is_one_message_with_caret_and_hint(trades: Run) -> None:
    ran = trades("sql", "-c", "SELECT prise FROM trades")
    assert ran.code == 1
    assert ran.out == ""
    lines = ran.err.splitlines()
    assert lines[0].startswith("error: Column 'prise' not found.")
    assert lines[1:] == ["  SELECT prise FROM trades", "         ^", "  hint: did you mean 'price'?"]


def test_statements_that_answer_nothing_say_what_they_did(run: Run) -> None:
    assert run("sql", "-c", "CREATE STREAM s (a INT)").out == "stream s created\n"


def test_sql_from_standard_input(trades: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    import io

    monkeypatch.setattr("sys.stdin", io.StringIO("SHOW QUERIES"))
    assert "dear" in trades("sql").out


def test_a_script_that_is_not_there(run: Run) -> None:
    ran = run("sql", "-f", "nowhere.sql")
    assert (ran.code, ran.err) == (1, "error: Can't read 'nowhere.sql': No such file or directory.\n")


def test_a_statement_where_a_file_is_expected(run: Run) -> None:
    ran = run("sql", "-w", "lake", "SELECT 'a'")
    assert ran.code == 1
    assert ran.err.splitlines() == [
        "error: Can't read 'SELECT 'a'': No such file or directory.",
        "  hint: to run a statement: ladle sql -w lake -c 'SELECT '\"'\"'a'\"'\"''",
    ]
    assert "hint" not in run("sql", "my queries.sql").err


def test_describe_says_where_the_delta_table_is(trades: Run) -> None:
    out = trades("sql", "-c", "DESCRIBE trades").out
    assert "(4 rows)\nDelta table: streams/1/archive\nclock: " in out
    assert out.endswith("; lateness: unbounded; idle: never\n")


# -- invoke, queries, explain --


def test_invoke_answers_now_and_for_another_time(trades: Run) -> None:
    assert "GS" in trades("invoke", "dear").out
    past = trades("invoke", "dear", "--now", "2026-01-30 14:35:00", "--format", "json")
    assert [json.loads(line)["symbol"] for line in past.out.splitlines()] == ["IBM"]


def test_invoke_of_a_time_beyond_retention_says_from_when_on_there_is_something(trades: Run) -> None:
    assert trades("sql", "-c", "ALTER STREAM trades SET RETAIN INTERVAL 12 MINUTES").code == 0
    ran = trades("invoke", "dear", "--now", "2026-01-30 14:35:00")
    assert ran.code == 1
    assert ran.err.splitlines()[-1] == "  hint: there are answers from 2026-01-30 14:43:00+00:00 on"
    assert "IBM" not in ran.out


def test_invoke_of_an_unknown_query_lists_the_known(trades: Run) -> None:
    ran = trades("invoke", "deer")
    assert ran.code == 1
    assert ran.err.splitlines() == ["error: Query 'deer' not found. Queries: dear.", "  hint: did you mean 'dear'?"]


def test_invoke_refuses_what_is_not_a_time(trades: Run) -> None:
    ran = trades("invoke", "dear", "--now", "yesterday")
    assert ran.code == 2
    assert "'yesterday' is not a time like 2026-01-31 09:30:00" in ran.err


def test_queries_lists_the_standing_queries(trades: Run) -> None:
    row = json.loads(trades("queries", "--format", "json").out)
    assert row["name"] == "dear"
    assert row["window"] == "sliding"


def test_explain_by_name_and_by_text(trades: Run) -> None:
    by_name = trades("explain", "dear")
    assert by_name.code == 0
    assert "standing query dear" in by_name.out
    by_text = trades("explain", "SELECT max(price) FROM trades [ROWS 10]")
    assert "rows" in by_text.out
    tree = json.loads(trades("explain", "--format", "json", "--analyze", "dear").out)
    assert (tree["node"], tree["children"][0]["node"]) == ("Project", "StreamScan")
    assert tree["measured"]["rows"] >= 0
    misspelt = trades("explain", "deer")
    assert misspelt.code == 1
    assert "dear" in misspelt.err
    wrong = trades("explain", "SELECT max(prise) FROM trades")
    assert wrong.code == 1
    assert "^" in wrong.err


# -- register --


def test_register_lets_a_query_stand(trades: Run) -> None:
    ran = trades("register", "cheap", "SELECT symbol FROM trades WHERE price < 100", "--materialize", "none")
    assert ran.code == 0, ran.err
    assert "KO" in trades("invoke", "cheap").out
    assert '"materialize":"none"' in trades("queries", "--format", "json").out


def test_a_name_that_is_taken_is_kept_or_replaced_when_told(trades: Run, tmp_path: Path) -> None:
    unnamed = trades("register", "SELECT symbol FROM trades WHERE price < 100", "--materialize", "none")
    assert unnamed.code == 0
    name = unnamed.out.split()[1].rstrip(";")
    assert "KO" in trades("invoke", name).out
    assert "without a name" in trades("register", "--replace", "SELECT 1 AS x").err
    taken = trades("register", "dear", "SELECT 1 AS x")
    assert taken.code == 1
    assert "There is a query 'dear' already." in taken.err
    assert "keep it with --if-not-exists, or change it with --replace" in taken.err
    assert "--replace" not in trades("register", "trades", "SELECT 1 AS x").err
    kept = trades("register", "dear", "SELECT 1 AS x", "--if-not-exists")
    assert kept.out == "dear stands already, unchanged; its answer: ladle invoke dear\n"
    assert "GS" in trades("invoke", "dear").out
    assert trades("register", "dear", "--if-not-exists", "SELECT 2 AS x").out == kept.out
    assert "unrecognized arguments: SELECT 3" in trades("register", "dear", "SELECT 1", "--replace", "SELECT 3").err
    replaced = trades("register", "dear", "SELECT 1 AS x", "--replace")
    assert replaced.out == "replaced dear; its answer: ladle invoke dear\n"
    assert "x" in trades("invoke", "dear").out
    assert trades("register", "dear", "SELECT 1", "--replace", "--if-not-exists").code == 2
    other = tmp_path / "other"
    trades("sql", "-w", str(other), "-c", "CREATE STREAM s (a INT)")
    ran = trades("register", "-w", str(other), "q", "SELECT a FROM s", "--replace")
    assert ran.out == f"registered q; its answer: ladle invoke -w {other} q\n"


def test_register_refuses_bad_sql_with_a_caret(trades: Run) -> None:
    ran = trades("register", "bad", "SELECT symbol\nFROM trads")
    assert ran.code == 1
    assert "  FROM trads\n       ^" in ran.err


# -- push --


def count(run: Run, where: str = "true") -> int:
    ran = run("sql", "-c", f"SELECT count(*) AS n FROM trades WHERE {where}", "--format", "json")
    return int(json.loads(ran.out)["n"])


def test_push_csv(trades: Run, tmp_path: Path) -> None:
    file = tmp_path / "more.csv"
    file.write_text('symbol,price,size,at\nT,21.5,100,2026-01-30 14:46:00\n"",22,,2026-01-30T14:47:00Z\n')
    ran = trades("push", "trades", str(file))
    assert ran.code == 0, ran.err
    assert ran.out.startswith("pushed 2 rows to trades, visible in epoch ")
    # An empty value is NULL unless it is quoted.
    assert count(trades, "symbol = '' AND size IS NULL AND price = 22") == 1


def test_a_packed_file_is_pushed_like_a_plain_one(trades: Run, tmp_path: Path) -> None:
    rows = b"symbol,at\nT,2026-01-30 14:46:00\nBAD,never\n"
    file = tmp_path / "more.csv.gz"
    file.write_bytes(gzip.compress(rows))
    assert trades("push", "trades", str(file)).code == 0
    assert count(trades, "symbol = 'T'") == 1
    assert (
        f"{file}:3: at: 'never'" in trades("sql", "-c", "SELECT reason FROM trades.quarantine", "--format", "csv").out
    )
    file.write_bytes(gzip.compress(rows)[:-12])
    cut = trades("push", "trades", str(file))
    assert (cut.code, "Traceback" in cut.err) == (1, False)
    assert "can't be unpacked" in cut.err


def test_a_header_that_is_no_text_is_told(trades: Run, tmp_path: Path) -> None:
    file = tmp_path / "rows.csv"
    file.write_bytes("symbol,größe,at\n".encode("latin-1"))
    ran = trades("push", "trades", str(file))
    assert (ran.code, "Traceback" in ran.err) == (1, False)
    assert "The first line is not text in UTF-8. Nothing was pushed." in ran.err


def test_rows_that_do_not_fit_go_to_the_quarantine_and_the_rest_goes_on(trades: Run, tmp_path: Path) -> None:
    csv = tmp_path / "some.csv"
    csv.write_text(
        "symbol,price,size,at\nOK,1,1,2026-01-30 14:46:00\nBAD,cheap,1,2026-01-30 14:46:00\n"
        "SHORT,1\nOK,2,2,2026-01-30 14:46:01\n"
    )
    jsonl = tmp_path / "some.jsonl"
    jsonl.write_text(
        '{"symbol": "OK", "price": 3, "size": 1, "at": "2026-01-30 14:46:00"}\n'
        '{"symbol": "BAD", "price": [], "size": 1, "at": "2026-01-30 14:46:00"}\n'
        '{"symbol": \n[1, 2]\n'
    )
    assert trades("push", "trades", str(csv), str(jsonl)).code == 0
    assert count(trades, "symbol = 'OK'") == 3
    assert count(trades, "symbol <> 'OK'") == 3
    bad = trades("sql", "-c", "SELECT reason, row FROM trades.quarantine", "--format", "json").out.splitlines()
    reasons = sorted(json.loads(line)["reason"] for line in bad)
    assert len(reasons) == 5
    # Each names its file and line, whoever found it wanting.
    assert f"{csv}:4: 2 values where 4 were expected" in reasons
    assert any(reason.startswith(f"{csv}:3: price: 'cheap'") for reason in reasons)
    assert any(reason.startswith(f"{jsonl}:2: price: ") for reason in reasons)
    assert any(reason.startswith(f"{jsonl}:3: not JSON") for reason in reasons)
    assert f"{jsonl}:4: not a JSON object" in reasons
    assert "_ladle" not in "".join(bad)
    assert any("SHORT,1" in json.loads(line)["row"] for line in bad)


def test_push_json_lines_and_parquet(trades: Run, tmp_path: Path) -> None:
    lines = tmp_path / "more.jsonl"
    lines.write_text(
        '{"symbol": "T", "price": 21, "size": 5, "at": "2026-01-30T14:46:00Z"}\n{"at": "2026-01-30 14:46:01"}\n'
    )
    table = pa.table({"symbol": ["PQ"] * 5, "at": pa.array([1_769_784_000_000_000] * 5, pa.timestamp("us", "UTC"))})
    pq.write_table(table, tmp_path / "more.parquet")
    ran = trades("push", "trades", str(lines), str(tmp_path / "more.parquet"))
    assert ran.code == 0, ran.err
    assert count(trades, "symbol = 'PQ'") == 5
    assert count(trades, "symbol IS NULL") == 1


def test_files_that_are_pushed_again_with_their_key_count_once(trades: Run, tmp_path: Path) -> None:
    files = [tmp_path / "one.jsonl", tmp_path / "two.jsonl"]
    for file in files:
        file.write_text('{"symbol": "KEYED", "at": "2026-01-30T14:46:00Z"}\n')
    for _ in range(2):
        assert trades("push", "trades", *map(str, files), "--key", "monday").code == 0
        assert count(trades, "symbol = 'KEYED'") == 2
    assert trades("push", "trades", *map(str, files), "--key", "tuesday").code == 0
    assert count(trades, "symbol = 'KEYED'") == 4
    refused = trades("push", "trades", "-", "--format", "json", "--key", "monday")
    assert refused.code == 1
    assert "Standard input has no --key" in refused.err


def test_a_quoted_line_break_in_csv_is_part_of_its_value(trades: Run, tmp_path: Path) -> None:
    file = tmp_path / "breaks.csv"
    file.write_text('symbol,at\n"two\nlines",2026-01-30 14:46:00\n' * 1 + '"a ""b""\n",2026-01-30 14:46:00\n')
    assert trades("push", "trades", str(file)).code == 0
    assert count(trades, "symbol LIKE '%lines'") == 1
    assert count(trades, "symbol LIKE 'a \"b\"%'") == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.csv", "symbol,colour,at\nA,red,2026-01-30 14:46:00\n", "no column 'colour'"),
        ("rows.csv", "symbol,prise,at\nA,1,2026-01-30 14:46:00\n", "did you mean 'price'?"),
        ("rows.csv", "symbol,price\nA,1\n", "The rows lack at, the time of stream 'trades'"),
        ("rows.csv", "symbol;price;at\nA;1;2026-01-30 14:46:00\n", "OPTIONS (sep ';')"),
        ("rows.csv.gz", "symbol,at\nA,2026-01-30 14:46:00\n", "can't be unpacked: Not a gzipped file"),
        ("rows.parquet", "not parquet", "can't be read as parquet"),
        ("rows.txt", "", "The format of"),
    ],
)
def test_a_file_that_can_not_be_pushed_says_why(
    trades: Run, tmp_path: Path, name: str, content: str, message: str
) -> None:
    file = tmp_path / name
    file.write_text(content)
    ran = trades("push", "trades", str(file))
    assert ran.code == 1
    assert message in ran.err
    assert "Traceback" not in ran.err
    assert count(trades) == 3


def test_an_unclosed_quote_is_told_with_its_line_and_the_rest_goes_on(trades: Run, tmp_path: Path) -> None:
    file = tmp_path / "open.csv"
    file.write_text(
        'symbol,price,size,at\nA,1,1,2026-01-30 14:46:00\n"B,1,1,2026-01-30 14:46:00\n'
        + "C,1,1,2026-01-30 14:46:00\n" * 3
    )
    ran = trades("push", "trades", str(file))
    assert ran.out.startswith("pushed 5 rows to trades")
    assert count(trades, "symbol = 'C'") == 3
    bad = json.loads(trades("sql", "-c", "SELECT reason, row FROM trades.quarantine", "--format", "json").out)
    assert bad["reason"] == f"{file}:3: a quote is opened here and not closed"
    assert bad["row"] == '"B,1,1,2026-01-30 14:46:00'


def test_a_row_of_parquet_is_named_by_its_number(trades: Run, tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    at = pa.array([1_769_784_000_000_000, None, 1_769_784_000_000_000], pa.timestamp("us", "UTC"))
    pq.write_table(pa.table({"symbol": ["a", "b", "c"], "at": at}), file)
    assert trades("push", "trades", str(file)).code == 0
    bad = json.loads(trades("sql", "-c", "SELECT reason FROM trades.quarantine", "--format", "json").out)
    assert bad["reason"] == f"{file}:2: at: the timestamp is NULL"


@pytest.mark.parametrize(
    "argv",
    [
        ["push", "trades", "rows.csv"],
        ["register", "q", "SELECT 1"],
        ["invoke", "q"],
        ["queries"],
        ["explain", "q"],
        ["status"],
        ["sql", "-c", "INSERT INTO trades VALUES (1)"],
        ["sql", "-c", "DELETE FROM companies"],
        ["sql", "-c", "SHOW STREAMS"],
    ],
    ids=lambda argv: " ".join(argv[:1]),
)
def test_what_needs_a_warehouse_makes_none(run: Run, tmp_path: Path, argv: list[str]) -> None:
    typo = tmp_path / "warehuose"
    ran = run(argv[0], "-w", str(typo), *argv[1:])
    assert ran.code == 1
    assert f"There is no warehouse at '{typo}'." in ran.err
    assert f'ladle sql -w {typo} -c "CREATE STREAM ..."' in ran.err
    assert not typo.exists()


def test_a_folder_that_is_no_warehouse_stays_as_it_is(run: Run, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    ran = run("push", "-w", str(tmp_path / "empty"), "trades", "rows.csv")
    assert ran.code == 1
    assert "is not a warehouse" in ran.err
    assert list((tmp_path / "empty").iterdir()) == []


def test_push_into_an_unknown_stream_or_from_a_missing_file(trades: Run, tmp_path: Path) -> None:
    ran = trades("push", "trade", str(tmp_path / "rows.csv"))
    assert ran.code == 1
    assert "did you mean 'trades'?" in ran.err
    assert "No such file" in trades("push", "trades", str(tmp_path / "rows.csv")).err


# -- status --


def test_status_for_people_and_programs(trades: Run) -> None:
    ran = trades("status")
    assert ran.code == 0
    assert "trades" in ran.out
    assert "dear" in ran.out
    status = json.loads(trades("status", "--json").out)
    assert status["streams"][0]["rows"] == 3
    assert status["queries"][0]["name"] == "dear"
    kinds = {each["kind"]: each for each in status["derived"]}
    assert kinds["results"]["disk_bytes"] > 0
    assert re.search(r"^results +│ +1 │", ran.out, re.M)
    assert re.search(r"^derived state takes .* of 1.9 GB of memory, .* of 34 GB of disk$", ran.out, re.M)


def test_status_of_an_empty_warehouse_says_what_to_do(run: Run, tmp_path: Path) -> None:
    other = str(tmp_path / "other lake")
    for where in ([], ["-w", other]):
        run("sql", *where, "-c", "CREATE STREAM s (a INT); DROP STREAM s")
    assert 'Create one: ladle sql -c "CREATE STREAM ..."' in run("status").out
    assert f"Create one: ladle sql -w '{other}' -c \"CREATE STREAM ...\"" in run("status", "-w", other).out
