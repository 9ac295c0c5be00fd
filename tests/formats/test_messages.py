"""Messages of a broker: what is a row, what is not, and that one that is poison costs itself alone."""

from __future__ import annotations

import pyarrow as pa
import pytest

from ladle.formats.messages import messages_to_table, read_payload
from ladle.schema import Column, StreamSchema
from ladle.stem.intake import FILE, RAW, REASON

SCHEMA = StreamSchema((Column("n", pa.int32()), Column("k", pa.string())))


@pytest.mark.parametrize(
    ("payload", "rows", "reasons"),
    [
        (b'{"n": 1}', [{"n": 1}], []),
        (b'[{"n": 1}, {"n": 2}]', [{"n": 1}, {"n": 2}], []),
        (b"[]", [], []),
        (b'{"n": 1}\r\n{"n": 2}\n\n', [{"n": 1}, {"n": 2}], []),
        (b'{\n"n": 1\n}', [{"n": 1}], []),
        (b'{"n": 1}\n7\n{oops', [{"n": 1}], ["not a JSON object", "not JSON"]),
        (b"null", [], ["not a JSON object"]),
        (b" \n", [], ["an empty message"]),
        (b"\xff", [], ["not UTF-8"]),
        (b"[" * 100_000, [], ["not JSON: it is nested too deeply"]),
    ],
)
def test_payloads(payload: bytes, rows: list[dict[str, int]], reasons: list[str]) -> None:
    found, broken = read_payload(payload)
    assert found == rows
    assert len(broken) == len(reasons)
    for (reason, _), expected in zip(broken, reasons, strict=True):
        assert reason.startswith(expected)


def test_a_message_that_is_poison_costs_itself_alone() -> None:
    table = messages_to_table([("a", b'{"n": 1}'), ("b", b'{"k": "\\ud800"}'), ("c", b'{"n": 2}')], SCHEMA)
    assert table.column("n").to_pylist() == [1, None, 2]
    assert table.column(FILE).to_pylist() == ["a", "b", "c"]
    assert [reason is None for reason in table.column(REASON).to_pylist()] == [True, False, True]
    assert table.column(RAW).to_pylist()[1] == '{"k": "\\ud800"}'


def test_rows_that_do_not_fit_are_marked() -> None:
    table = messages_to_table([("a", b'[{"n": "x"}, {"N": "5"}, {"m": 1}]'), ("b", b"oops")], SCHEMA)
    assert table.column("n").to_pylist()[1] == 5
    reasons = table.column(REASON).to_pylist()
    assert [reason and reason[:12] for reason in reasons] == ["n: 'x' is no", None, "unknown colu", "not JSON: Ex"]
