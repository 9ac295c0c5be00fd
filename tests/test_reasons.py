"""Why something failed, out of the texts that Spark gives."""

from __future__ import annotations

import pytest

from ladle.errors import PipelineError
from ladle.pipeline.reasons import reason_of

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
