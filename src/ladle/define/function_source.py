"""Users' functions as they are given: a Python function, or text. What stands afterwards is source that needs nothing.

Source is looked at, not run: names that it takes from outside are refused here, because it will run in other processes,
after restarts, where they are not.
"""

from __future__ import annotations

import ast
import builtins
import dis
import inspect
import keyword
import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import CodeType, ModuleType

import pyarrow as pa

from ladle import sql
from ladle.errors import LadleError, TypeMismatch
from ladle.evaluate.user_functions import PROVIDED, compile_source
from ladle.plan import Function
from ladle.schema import Column, is_nested, is_supported, type_name

SOURCE_CHARACTERS_MAX = 1 << 20
_ALONE = "it is kept as text and runs in other processes, after restarts"


@dataclass(frozen=True)
class Definition:
    """A function that is to be: all but its id."""

    name: str
    parameters: tuple[Column, ...]
    returns: pa.DataType
    source: str
    inlined: bool = False
    """Whether the source is SQL."""

    @staticmethod
    def of(function: Function) -> Definition:
        """The definition of a function that is there."""
        return Definition(function.name, function.parameters, function.returns, function.source, function.inlined)

    def numbered(self, number: int) -> Function:
        """The function that this defines, under a number."""
        return Function(number, self.name, self.parameters, self.returns, self.source, self.inlined)


def define(
    function: Callable[..., object] | str, name: str | None, arguments: Sequence[str], returns: str
) -> Definition:
    """From a Python function or its text, and the types as SQL writes them."""
    if isinstance(function, str):
        text, called = _plain(function), name or _only_name(function)
    else:
        text, called = _source_of(function), name or function.__name__
        if called != function.__name__:
            # the text defines it under its own name
            text = f"{text.rstrip()}\n\n\n{called} = {function.__name__}\n"
    if isinstance(arguments, str):
        raise TypeMismatch("The types of the arguments are a list.", hint=f'write arguments=["{arguments}"]')
    sql.check_function_name(called)
    _check_source(called, text, function)
    names = _parameters(called, text, len(arguments))
    types = [sql.parse_type(argument) for argument in arguments]
    parameters = tuple(Column(each, type_) for each, type_ in zip(names, types, strict=True))
    return _checked(Definition(called, parameters, sql.parse_type(returns), text))


def define_in_sql(name: str, parameters: tuple[Column, ...], returns: pa.DataType, text: str) -> Definition:
    """From CREATE FUNCTION: the text is a function of that name, the body of one, or an expression."""
    sql.check_function_name(name)
    plain = _plain(text)
    tree = _parsed(name, plain)
    names = [parameter.name for parameter in parameters]
    for each in names:
        if not each.isidentifier() or keyword.iskeyword(each):
            raise LadleError(f"'{each}' can't name an argument in Python.", hint="choose another name")
    if not any(isinstance(node, ast.FunctionDef) and node.name == name for node in tree.body):
        body = plain
        if len(tree.body) == 1 and isinstance(tree.body[0], ast.Expr):
            body = f"return (\n{textwrap.indent(plain.strip(), '    ')}\n)"
        elif not any(isinstance(node, ast.Return) for node in ast.walk(tree)):
            raise LadleError(
                f"The text of function '{name}' neither defines '{name}' nor returns anything.",
                hint=f"write an expression, a body with return, or def {name}({', '.join(names)}): ...",
            )
        plain = f"def {name}({', '.join(names)}):\n{textwrap.indent(body.rstrip(), '    ')}\n"
    _check_source(name, plain, plain)
    _parameters(name, plain, len(parameters))
    return _checked(Definition(name, parameters, returns, plain))


def define_inlined(name: str, parameters: tuple[Column, ...], returns: pa.DataType, text: str) -> Definition:
    """From CREATE FUNCTION ... RETURN: the text is an expression of SQL."""
    sql.check_function_name(name)
    return _checked(Definition(name, parameters, returns, text, inlined=True))


def _checked(definition: Definition) -> Definition:
    if not definition.parameters and not definition.inlined:
        raise LadleError(
            f"Function '{definition.name}' has no arguments.", hint="it needs one at least, to know how many rows"
        )
    for type_ in (*(parameter.type for parameter in definition.parameters), definition.returns):
        if is_nested(type_) or not is_supported(type_):
            raise TypeMismatch(f"A function can't take or return {type_name(type_)}.", hint="use scalar types")
    if len({parameter.name.lower() for parameter in definition.parameters}) < len(definition.parameters):
        raise LadleError(f"Function '{definition.name}' has two arguments of one name.")
    if len(definition.source) > SOURCE_CHARACTERS_MAX:
        raise LadleError(f"The source of function '{definition.name}' is longer than {SOURCE_CHARACTERS_MAX:,}.")
    return definition


# -- source --


def _plain(text: str) -> str:
    """Text from the left margin on, with one end of line at its end."""
    return textwrap.dedent(text).strip("\n").rstrip() + "\n"


def _source_of(function: Callable[..., object]) -> str:
    if not inspect.isfunction(function) or function.__name__ == "<lambda>":
        raise LadleError(
            f"{function!r} is not a function with a source.", hint="write it with def, or give its source as text"
        )
    try:
        text = textwrap.dedent(inspect.getsource(function))
    except (OSError, TypeError):
        raise LadleError(
            f"The source of function '{function.__name__}' is not to be found.", hint="give its source as text"
        ) from None
    if function.__code__.co_freevars:
        names = ", ".join(function.__code__.co_freevars)
        raise LadleError(
            f"Function '{function.__name__}' takes {names} from the function around it, but {_ALONE}.",
            hint="make them constants or imports inside it",
        )
    tree = _parsed(function.__name__, text)
    found = tree.body[0]
    if not isinstance(found, ast.FunctionDef):
        raise LadleError(f"'{function.__name__}' is not a plain function.", hint="write it with def, without async")
    # without the decorators: one of them may be what made it a function of ours
    return "\n".join(text.splitlines()[found.lineno - 1 : found.end_lineno]) + "\n"


def _parsed(name: str, text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise _not_python(name, error) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise LadleError(f"The text of function '{name}' is not Python: {error}") from None


def _not_python(name: str, error: SyntaxError) -> LadleError:
    where = f" (line {error.lineno})" if error.lineno is not None else ""
    return LadleError(f"The text of function '{name}' is not Python: {error.msg}{where}.")


def _only_name(text: str) -> str:
    """The name of the one function that a text defines."""
    tree = _parsed("", textwrap.dedent(text))
    names = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    if len(names) != 1:
        raise LadleError("The text does not define one function.", hint="say which is meant with name=")
    return names[0]


def _parameters(name: str, text: str, count: int) -> list[str]:
    """The names of the arguments of the function that a text defines; it must take so many."""
    tree = _parsed(name, text)
    defined = {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}
    last = tree.body[-1]
    meant = last.value.id if isinstance(last, ast.Assign) and isinstance(last.value, ast.Name) else name
    function = defined.get(name) or defined.get(meant)
    if function is None:
        raise LadleError(f"The text does not define a function '{name}'.", hint=f"write def {name}(...): ...")
    listed = function.args
    names = [each.arg for each in (*listed.posonlyargs, *listed.args)]
    least = len(names) - len(listed.defaults)
    required = [each for each, default in zip(listed.kwonlyargs, listed.kw_defaults, strict=True) if default is None]
    if required or not (least <= count and (count <= len(names) or listed.vararg is not None)):
        raise LadleError(
            f"Function '{name}' takes {', '.join(names) or 'nothing'}, but {count} types of arguments are declared."
        )
    return [*names, *(f"x{number}" for number in range(len(names), count))][:count]


def _check_source(name: str, text: str, given: Callable[..., object] | str) -> None:
    try:
        code = compile_source(name, text)
    except SyntaxError as error:
        raise _not_python(name, error) from None
    except ValueError as error:
        raise LadleError(f"The text of function '{name}' is not Python: {error}") from None
    used: set[str] = set()
    made: set[str] = set()
    for part in _parts(code):
        for step in dis.get_instructions(part):
            if step.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                used.add(step.argval)
            elif step.opname in ("STORE_GLOBAL", "STORE_NAME"):
                made.add(step.argval)
    around: dict[str, object] = {} if isinstance(given, str) else given.__globals__
    for missing in sorted(used - made - set(dir(builtins)) - {"__name__"}):
        if missing not in PROVIDED or around.get(missing, PROVIDED[missing]) is not PROVIDED[missing]:
            raise LadleError(
                f"Function '{name}' uses '{missing}' from outside, but {_ALONE}.", hint=_import_hint(missing, around)
            )


def _parts(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _parts(constant)


def _import_hint(name: str, around: dict[str, object]) -> str:
    value = around.get(name)
    if isinstance(value, ModuleType):
        path = value.__name__
        return f"import it inside the function: import {path}" + ("" if path == name else f" as {name}")
    module = getattr(value, "__module__", None)
    if module is not None and module != "__main__" and getattr(value, "__name__", None) == name:
        return f"import it inside the function: from {module} import {name}"
    return f"define or import {name} inside the function"
