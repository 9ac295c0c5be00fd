"""What may be the source of a function, and how it is taken from a Python function."""

from __future__ import annotations

import math
from math import sqrt
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from ladle.define.function_source import define
from ladle.errors import LadleError, TypeMismatch

pytestmark = pytest.mark.not_at_one_row("its queries have no residual")

CONSTANT = 3


def plain(x: pa.Array, y: pa.Array = None) -> pa.Array:
    """Says what it does; annotations name what is imported elsewhere."""
    import math as m

    return pc.add(x, m.floor(np.float64(1.5)))


def decorated(function: Any) -> Any:
    return function


@decorated
def with_decorator(x: Any) -> Any:
    return x


def uses_module(x: Any) -> Any:
    return pc.add(x, math.pi)


def uses_function(x: Any) -> Any:
    return [sqrt(each) for each in x]


def uses_constant(x: Any) -> Any:
    return pc.add(x, CONSTANT)


def again(x: Any) -> Any:
    return x if len(x) < 2 else again(x[:1])


async def asynchronous(x: Any) -> Any:
    return x


class Callable:
    def __call__(self, x: Any) -> Any:
        return x


def around() -> Any:
    limit = 3

    def inner(x: Any) -> Any:
        return pc.greater(x, limit)

    return inner


def test_the_source_of_a_function() -> None:
    made = define(plain, None, ["BIGINT"], "DOUBLE")
    assert made.name == "plain"
    assert [(p.name, p.type) for p in made.parameters] == [("x", pa.int64())]
    assert made.source.startswith("def plain(x: pa.Array")
    assert [p.name for p in define(plain, None, ["INT", "INT"], "INT").parameters] == ["x", "y"]
    assert define(with_decorator, None, ["INT"], "INT").source.startswith("def with_decorator(")
    assert define(again, None, ["INT"], "INT").name == "again"
    assert define(plain, "renamed", ["INT"], "INT").source.endswith("renamed = plain\n")


def test_the_source_of_a_text() -> None:
    text = """
        import math

        def area(r):
            return pc.multiply(pc.multiply(r, r), math.pi)
    """
    made = define(text, None, ["DOUBLE"], "DOUBLE")
    assert made.name == "area"
    assert made.source.startswith("import math\n")


REFUSED: list[tuple[Any, list[str], str, str]] = [
    (uses_module, ["INT"], "uses 'math' from outside", "import it inside the function: import math"),
    (uses_function, ["INT"], "uses 'sqrt' from outside", "from math import sqrt"),
    (uses_constant, ["INT"], "uses 'CONSTANT' from outside", "define or import CONSTANT inside"),
    (around(), ["INT"], "takes limit from the function around it", "constants or imports inside it"),
    (lambda x: x, ["INT"], "is not a function with a source", "write it with def"),
    (Callable(), ["INT"], "is not a function with a source", "write it with def"),
    (len, ["INT"], "is not a function with a source", "write it with def"),
    (asynchronous, ["INT"], "is not a plain function", "without async"),
    (plain, [], "but 0 types of arguments", ""),
    (plain, ["INT", "INT", "INT"], "takes x, y, but 3 types", ""),
    ("def f(*, x):\n    return x\n", ["INT"], "takes nothing, but 1 types", ""),
    ("x = 1", ["INT"], "does not define one function", "name="),
    ("def f(x) return x", ["INT"], "is not Python", ""),
    ("def f(x):\n    return x\n\ndef g(x):\n    return x\n", ["INT"], "does not define one function", "name="),
    ("def f(x):\n    return x\x00\n", ["INT"], "is not Python", ""),
    (plain, ["NONSENSE"], "is not a type", ""),
    (plain, ["INTERVAL DAY"], "is not a type", ""),
]


@pytest.mark.parametrize(("function", "arguments", "message", "hint"), REFUSED)
def test_what_is_refused(function: Any, arguments: list[str], message: str, hint: str) -> None:
    with pytest.raises(LadleError) as raised:
        define(function, None, arguments, "INT")
    assert message in raised.value.message
    assert hint in (raised.value.hint or "")


def test_types_are_a_list() -> None:
    with pytest.raises(TypeMismatch, match="are a list"):
        define(plain, None, "INT", "INT")


def test_a_name_that_is_provided_means_what_is_provided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(plain.__globals__, "np", math)
    with pytest.raises(LadleError, match="uses 'np' from outside"):
        define(plain, None, ["INT"], "INT")
