"""The sizes of the house: no class with too many calls, `engine/` small, and one name for one thing."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import ladle

ROOT = Path(ladle.__file__).parent
TREES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(ROOT.rglob("*.py"))}
CALLS_MAX = 25
ENGINE_LINES_MAX = 2_500
NOT_CALLED = {"property", "cached_property", "overload", "abstractmethod"}
"""What is read like an attribute; what is told to a type checker; and what a class only demands of others."""
ANY = {
    "archive/log.py: Body",
    "columns.py: AnyArray",
    "columns.py: Value",
    "config.py: Setting",
    "engine/commands/declaration.py: COMMANDS",
    "execute/partials.py: TreeNode",
    "json_values.py: JsonFields",
    "json_values.py: JsonRow",
    "pipeline/interface.py: OwnBatch",
    "protocols/http/bodies.py: table_schema",
    "protocols/http/guarded.py: __init__",
}
"""Where `typing.Any` stands: mostly once in an alias, whose docstring says why no type fits."""


def classes() -> list[tuple[str, ast.ClassDef]]:
    return [
        (f"{path.relative_to(ROOT)}: {node.name}", node)
        for path, tree in TREES.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]


def calls(of: ast.ClassDef) -> list[str]:
    functions = [node for node in of.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [
        each.name
        for each in functions
        if not each.name.startswith("_")
        and not {ast.unparse(one).rpartition(".")[2] for one in each.decorator_list} & (NOT_CALLED | {"setter"})
    ]


def test_no_class_has_too_many_calls() -> None:
    assert {name: len(calls(node)) for name, node in classes() if len(calls(node)) > CALLS_MAX} == {}


def test_what_people_have_is_one_class_and_its_base() -> None:
    """Not many bases that each have a few of a class's calls: what is the same elsewhere is one base."""
    bases = {name: [ast.unparse(base) for base in node.bases] for name, node in classes()}
    assert (
        bases["engine/database.py: Database"] == bases["client/remote_database.py: RemoteDatabase"] == ["PythonCalls"]
    )
    many = {name for name, of in bases.items() if len([base for base in of if base not in ("str", "Enum")]) > 2}
    assert many == set()


def test_names_are_not_given_twice() -> None:
    """A leading underscore makes no other name; `__init__` is the package's."""
    modules = Counter(path.stem.lstrip("_") for path in TREES if path.stem not in ("__init__", "__main__"))
    named = Counter(node.name.lstrip("_") for _, node in classes())
    assert [name for name, times in (modules + Counter()).items() if times > 1] == []
    assert [name for name, times in named.items() if times > 1] == []


def users_of_any(tree: ast.Module) -> set[str]:
    """What `Any` stands in: the name that is assigned, or the function."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign):
            parts, name = [node.annotation, *([] if node.value is None else [node.value])], ast.unparse(node.target)
        elif isinstance(node, ast.Assign):
            parts, name = [node.value], ast.unparse(node.targets[0])
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            parts, name = [node.args, *([] if node.returns is None else [node.returns])], node.name
        elif isinstance(node, ast.ClassDef):
            parts, name = node.bases, node.name
        else:
            continue
        if any(isinstance(each, ast.Name) and each.id == "Any" for part in parts for each in ast.walk(part)):
            found.add(name)
    return found


def test_any_stands_where_no_type_fits() -> None:
    used = {path: users_of_any(tree) for path, tree in TREES.items()}
    assert {f"{path.relative_to(ROOT)}: {name}" for path, names in used.items() for name in names} == ANY
    names = [node for tree in TREES.values() for node in ast.walk(tree) if isinstance(node, ast.Name)]
    assert sum(name.id == "Any" for name in names) == len(ANY), "also in casts, and once in each place"


def test_the_engine_is_small() -> None:
    assert sum(len(path.read_text().splitlines()) for path in (ROOT / "engine").rglob("*.py")) < ENGINE_LINES_MAX
