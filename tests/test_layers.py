"""A package imports only from those above it, and each heavy library is imported in one place only."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import ladle

ROOT = Path(ladle.__file__).parent

LAYERS = (
    (
        "errors",
        "command",
        "config",
        "access",
        "schema",
        "clock",
        "columns",
        "collector",
        "foreign",
        "json_values",
        "interrupt",
        "shipped",
        "thread_stop",
    ),
    ("present", "delta"),
    ("derived",),
    ("plan",),
    ("sql",),
    ("evaluate",),
    ("archive",),
    ("eddy",),
    ("stem",),
    ("operators",),
    ("pipeline",),
    ("formats", "answer", "status"),
    ("handles",),
    ("catalog",),
    ("execute",),
    ("define",),
    ("ingest",),
    ("backup", "housekeeping"),
    ("engine",),
    ("protocols",),
    ("client", "connection"),
    ("testing",),
    ("demo",),
    ("cli",),
)
ONLY_IN = {
    "sqlglot": {"sql"},
    "duckdb": {"evaluate"},
    "deltalake": {"archive"},
    "pyspark": {"pipeline"},
    "py4j": {"pipeline"},
    "numba": {"stem"},
    "llvmlite": {"stem"},
    "fastapi": {"protocols"},
    "uvicorn": {"protocols"},
    "starlette": {"protocols"},
    "pydantic": {"protocols"},
    "prometheus_client": {"protocols"},
    "httpx": {"client"},
    "paho": {"ingest"},
}
# What only a type checker reads, and the name of Spark's session in public signatures.
ALLOWED = {
    ("engine", "pyspark"),
    ("connection", "pyspark"),
    ("client", "pyspark"),
    ("handles", "pyspark"),
    ("ingest", "pyspark"),
    ("demo", "pyspark"),
}


def modules() -> Iterator[tuple[str, Path]]:
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        if parts != ("__init__",):
            yield parts[0], path


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module is not None:
            yield node.module
            if node.module == "ladle":
                yield from (f"ladle.{alias.name}" for alias in node.names)


@pytest.mark.parametrize(("package", "path"), [pytest.param(*m, id=str(m[1].relative_to(ROOT))) for m in modules()])
def test_imports_point_upwards(package: str, path: Path) -> None:
    levels = {name: level for level, names in enumerate(LAYERS) for name in names}
    assert package in levels, f"say in LAYERS where {package} belongs"
    for name in imports(path):
        top, _, rest = name.partition(".")
        if top == "ladle" and rest and rest.partition(".")[0] in levels:
            assert levels[rest.partition(".")[0]] <= levels[package], f"{path.name} imports {name}"
        if top in ONLY_IN and (package, top) not in ALLOWED:
            assert package in ONLY_IN[top], f"{path.name} imports {top}"


@pytest.mark.parametrize("path", [pytest.param(p, id=str(p.relative_to(ROOT))) for _, p in modules()])
def test_modules_stay_small(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 500
