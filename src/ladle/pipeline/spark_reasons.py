"""Why something failed, in a line for people: Spark's texts are mostly traces, with the reason at their end."""

from __future__ import annotations

import re

from ladle.errors import LadleError

_LENGTH_MAX = 1_000
_CALL = re.compile(r"(?:[\w.]*Py4JJavaError: )?An error occurred while calling [\w.$]+\.\n: ")
_QUERY = re.compile(r"^\[STREAM_FAILED\] Query \[[^]]*\] terminated with exception: ")
_CAUSE = re.compile(r"^\s*Caused by: ", re.MULTILINE)
_CLASS = re.compile(r"^(?:[a-z][\w$]*\.)+[A-Z][\w$]*(?:: |$)")
_END = re.compile(r"\s*(?:at \S+\(.*\)|\.\.\. \d+ more|==.*|(?:Driver|JVM) stacktrace:|)$")
_CLASS_NAME = re.compile(r"^(?:[a-z][\w$]*\.)+([A-Z][\w$]*)")
_JAVA = re.compile(
    r"\b(?:[a-z]\w*\.){2,}[A-Z][\w$]*[;:]? ?|(?:line|column)Number: \d+; "
    r"| \(start marker at \[Source: [^]]*\]\)|;? at \[Source: [^]]*\]"
)
"""What libraries of Java's say of themselves: classes, and places in texts that nobody sees."""
_INSIDE = frozenset(
    (
        *("ClassCastException", "NullPointerException", "MatchError", "AssertionError", "StackOverflowError"),
        *("NoSuchElementException", "UnsupportedOperationException", "ArrayIndexOutOfBoundsException"),
    )
)
_ADVICE = re.compile(
    r" (?:Please, refer to '[^']*' for a fix"
    r"|If necessary,? set \S+ to \S+ to bypass this error"
    r"|You can reference the documentation for the correct format"
    r"|If the issue persists, please [^.]*)\."
)
"""What Spark advises whom it takes for its own user, who could change settings."""
_PLACE = re.compile(r"[;.]* line \d+,? pos \d+\s*$")
"""A place in the text that Spark was given, which is not the one that was written."""
_TRACEBACK = "Traceback (most recent call last):"


def reason_of(error: BaseException) -> str:
    """What Spark calls the failure, which names the file if there is one, and the innermost cause."""
    if isinstance(error, LadleError):
        return f"{error.message} ({error.hint})" if error.hint else error.message
    text = _QUERY.sub("", _CALL.sub("", str(error).strip()))
    first, *causes = [_message(block) for block in _CAUSE.split(text)]
    inner = next((said for said in reversed(causes) if said), "")
    said = f"{first} {inner}".strip() if first.startswith("[") or not inner else inner
    said = said or type(error).__name__
    return said if len(said) <= _LENGTH_MAX else f"{said[:_LENGTH_MAX]}…"


def said_of_query(error: BaseException) -> str:
    """What Spark says of a query, as its documented conditions; of a failure inside of Spark no more than its kind."""
    said = _PLACE.sub(".", _ADVICE.sub("", reason_of(error)).strip())
    if said.startswith("["):
        return said
    text = _CALL.sub("", str(error).strip())
    classes = [found[1] for block in _CAUSE.split(text) if (found := _CLASS_NAME.match(block)) is not None]
    kind = classes[-1] if classes else type(error).__name__
    if kind == "PatternSyntaxException":
        return f"The pattern is not a regular expression of Java's: {said.split(';')[0]}."
    if kind in _INSIDE:
        return f"Spark fails inside of itself over this statement ({kind}): no value and no setting would mend it."
    return _JAVA.sub("", said).strip()


def _message(block: str) -> str:
    """What an exception says, without its class, its stack and Spark's plans."""
    lines = block.splitlines()
    traces = [number for number, line in enumerate(lines) if line.rstrip().endswith(_TRACEBACK)]
    if traces:
        # Python's own frames are indented; what was raised is not.
        lines = lines[traces[-1] + 1 :]
        lines = lines[next((n for n, line in enumerate(lines) if line.strip() and not line[0].isspace()), 0) :]
    said: list[str] = []
    for number, line in enumerate(lines):
        kept, ended, _ = (line if number else _CLASS.sub("", line)).partition(" SQLSTATE:")
        if _END.match(kept) and (number or kept):
            break
        said.append(kept.strip())
        if ended:
            break
    shown = [line for line in said if line]
    return " ".join([*(line if line[-1] in ".:;," else f"{line};" for line in shown[:-1]), *shown[-1:]])
