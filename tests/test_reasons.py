"""Why something failed, out of the texts that Spark gives."""

from __future__ import annotations

import duckdb
import pytest

from ladle.errors import PipelineError
from ladle.evaluate import duckdb_reasons as of_duckdb
from ladle.pipeline.spark_reasons import reason_of, said_of_query

FRAME = "\tat org.apache.spark.sql.errors.QueryExecutionErrors$.cannotReadFilesError(QueryExecutionErrors.scala:920)\n"
CALL = "An error occurred while calling o61.collectToPython.\n: "
FILE = "[FAILED_READ_FILE.NO_HINT] Encountered error while reading file file:///in/a.csv."
HEADER = "CSV header does not conform to the schema."
WORKER = """Traceback (most recent call last):
  File "x.py", line 1, in work
    raise ValueError("boom")
ValueError: boom
"""


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            f"{CALL}org.apache.spark.SparkException: {FILE}  SQLSTATE: KD001\n{FRAME}"
            f"Caused by: org.apache.spark.SparkIllegalArgumentException: {HEADER}\n Header: k, n\n Schema: n, k\n"
            f"CSV file: file:///in/a.csv\n{FRAME}\t... 1 more\n",
            f"{FILE} {HEADER} Header: k, n; Schema: n, k; CSV file: file:///in/a.csv",
        ),
        (
            f"{CALL}org.apache.spark.SparkException: Exception thrown in awaitResult: \n{FRAME}"
            f"Caused by: java.lang.RuntimeException: outer\n{FRAME}Caused by: java.io.EOFException\n{FRAME}",
            "outer",
        ),
        (f"{CALL}java.lang.RuntimeException: at least one is needed\n{FRAME}", "at least one is needed"),
        (f"An exception was thrown from the Python worker:\n{WORKER}", "ValueError: boom"),
        (
            "Job aborted due to stage failure: Task 0 in stage 0.0 failed 1 times, most recent failure: Lost task 0.0 "
            f"in stage 0.0 (TID 0) (host executor driver): org.apache.spark.api.python.PythonException: {WORKER}\n"
            f"{FRAME}\nDriver stacktrace:",
            "ValueError: boom",
        ),
        (
            "[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012\n== SQL ==\n1/0\n^^^",
            "[DIVIDE_BY_ZERO] Division by zero.",
        ),
        (
            "[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: No broker. SQLSTATE: XXKST\n"
            "=== Streaming Query ===",
            "No broker.",
        ),
        ("refused", "refused"),
        ("", "RuntimeError"),
        (FRAME, "RuntimeError"),
    ],
)
def test_the_message_is_found_and_the_stack_is_not(text: str, reason: str) -> None:
    assert reason_of(RuntimeError(text)) == reason


def test_our_own_errors_say_what_they_say() -> None:
    assert reason_of(PipelineError("It broke.", hint="mend it")) == "It broke. (mend it)"
    assert len(reason_of(RuntimeError("x" * 5_000))) < 1_100


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012", "[DIVIDE_BY_ZERO] Division by zero."),
        (
            "[WRONG_NUM_ARGS.WITHOUT_SUGGESTION] The `upper` requires 1 parameters but the actual number is 2. "
            "Please, refer to 'https://spark.apache.org/docs/latest/sql-ref-functions.html' for a fix. SQLSTATE: 42605",
            "[WRONG_NUM_ARGS.WITHOUT_SUGGESTION] The `upper` requires 1 parameters but the actual number is 2.",
        ),
        (
            '[CAST_OVERFLOW] It does not fit. If necessary set "spark.sql.ansi.enabled" to "false" to bypass this '
            "error. SQLSTATE: 22003",
            "[CAST_OVERFLOW] It does not fit.",
        ),
        ("The duration must be a literal.; line 1 pos 120", "The duration must be a literal."),
        (
            f"{CALL}java.lang.ClassCastException: class org.apache.spark.sql.A cannot be cast to class "
            f"org.apache.spark.sql.B (they are in unnamed module of loader 'app')\n{FRAME}",
            "Spark fails inside of itself over this statement (ClassCastException): "
            "no value and no setting would mend it.",
        ),
        (
            f"{CALL}java.util.regex.PatternSyntaxException: Unclosed group near index 1\n(\n{FRAME}",
            "The pattern is not a regular expression of Java's: Unclosed group near index 1.",
        ),
        (f"{CALL}java.lang.RuntimeException: Illegal sequence\n{FRAME}", "Illegal sequence"),
        (
            f"{CALL}java.lang.RuntimeException: outer\nCaused by: org.xml.sax.SAXParseException; lineNumber: 1; "
            f"columnNumber: 1; Content is not allowed in prolog.\n{FRAME}",
            "Content is not allowed in prolog.",
        ),
    ],
)
def test_of_a_query_spark_says_no_more_than_its_writer_can_use(text: str, said: str) -> None:
    assert said_of_query(RuntimeError(text)) == said


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        (
            "2147483647::INT + 1::INT",
            "[ARITHMETIC_OVERFLOW] Overflow in addition of INT: 2147483647 + 1. "
            "Use try_add to tolerate overflow and return NULL instead.",
        ),
        (
            "99::DECIMAL(38,0) * 99999999999999999999999999999999999999::DECIMAL(38,0)",
            "[ARITHMETIC_OVERFLOW] Overflow in multiplication of DECIMAL(38): "
            "99 * 99999999999999999999999999999999999999. "
            "Use try_multiply to tolerate overflow and return NULL instead.",
        ),
        ("abs((-128)::TINYINT)", "[ARITHMETIC_OVERFLOW] abs(-128) does not fit its type."),
        (
            "(SELECT sum(x)::BIGINT FROM (VALUES (9223372036854775807), (1)) AS t(x))",
            "[ARITHMETIC_OVERFLOW] The sum 9223372036854775808 does not fit BIGINT. "
            "Use try_sum to tolerate overflow and return NULL instead.",
        ),
        (
            "99999999999::INT",
            "[CAST_OVERFLOW] The value 99999999999 does not fit INT. "
            "Use try_cast to tolerate overflow and return NULL instead.",
        ),
        (
            "99999::DECIMAL(4,1)",
            "[CAST_OVERFLOW] The value 99999 does not fit DECIMAL(4,1). "
            "Use try_cast to tolerate overflow and return NULL instead.",
        ),
        (
            "'abc'::INT",
            "[CAST_INVALID_INPUT] The value 'abc' can't be cast to INT. "
            "Use try_cast to tolerate malformed input and return NULL instead.",
        ),
        (
            "(SELECT * FROM range(3))",
            "[SCALAR_SUBQUERY_TOO_MANY_ROWS] More than one row returned by a subquery used as an expression.",
        ),
        ("error('boom')", "boom"),
        ("make_timestamp(9223372036854775807)", "Timestamp microseconds out of range: 9223372036854775807"),
    ],
)
def test_what_duckdb_says_has_sparks_words(sql: str, said: str) -> None:
    with pytest.raises(duckdb.Error) as caught:
        duckdb.sql(f"SELECT {sql}").fetchall()
    assert of_duckdb.reason_of(str(caught.value)) == said
