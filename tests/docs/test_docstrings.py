"""Every public module, class and function of the package says what it is, in words that can be read alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import ladle

PACKAGE = Path(ladle.__file__).parent
ROOT = Path(__file__).parents[2]
MODULES = sorted(PACKAGE.rglob("*.py"))
Defined = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef

# Papers may be named, with their sections; documents that the repository has not may not.
ELSEWHERE = re.compile(r"\b(?:DESIGN|FEATURES|STYLE)(?:\.md\b| (?:sections? [0-9]|describes|names))|\bshared/\w+\.md")


def public(tree: ast.AST, prefix: str = "") -> Iterator[tuple[str, Defined]]:
    """What a module defines under names without an underscore, also within its public classes and conditions."""
    for each in ast.iter_child_nodes(tree):
        if isinstance(each, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if each.name.startswith("_") or is_repeated(each):
                continue
            yield prefix + each.name, each
            if isinstance(each, ast.ClassDef):
                yield from public(each, f"{prefix}{each.name}.")
        elif isinstance(each, ast.If | ast.Try):
            yield from public(each, prefix)


def is_repeated(defined: Defined) -> bool:
    """Overloads, and setters of properties: their docstring is at the definition that comes with them."""
    return any(re.search(r"\boverload$|\.setter$", ast.unparse(each)) for each in defined.decorator_list)


@pytest.mark.parametrize("module", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_what_is_public_says_what_it_is(module: Path) -> None:
    tree = ast.parse(module.read_text(encoding="utf-8"))
    assert ast.get_docstring(tree), "the module says nothing of itself"
    assert [name for name, defined in public(tree) if not ast.get_docstring(defined)] == []


def test_what_is_undocumented_is_found() -> None:
    tree = ast.parse("class A:\n    def b(self): ...\n    def _c(self): ...\nif 1:\n    def d(): 'said'\n")
    assert [name for name, defined in public(tree) if not ast.get_docstring(defined)] == ["A", "A.b"]


def test_nothing_refers_to_documents_that_are_not_here() -> None:
    pages = [*MODULES, *ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "tests").rglob("*.py")]
    found = {
        page.name for page in pages if page != Path(__file__) and ELSEWHERE.search(page.read_text(encoding="utf-8"))
    }
    assert found == set()
