"""`ladle bench NAME`: every module of `ladle.bench` with `DESCRIPTION` and `run(args)` is a benchmark."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any

from ladle.cli.terminal import Commands, command
from ladle.errors import unknown


def add(commands: Commands) -> None:
    bench = command(
        commands,
        "bench",
        _bench,
        help="measure this machine",
        description="Run a benchmark and print its figures; without a name, list the benchmarks.",
        examples="""
            ladle bench
            ladle bench peers --quick
            ladle bench psoup
        """,
    )
    bench.add_argument("name", nargs="?", metavar="NAME", help="which one")
    bench.add_argument("args", nargs=argparse.REMAINDER, metavar="...", help="its own arguments (--help shows them)")


def _bench(args: argparse.Namespace) -> int:
    benchmarks = _benchmarks()
    if args.name is None:
        width = max(map(len, benchmarks), default=0)
        for name, module in benchmarks.items():
            sys.stdout.write(f"{name:<{width}}  {module.DESCRIPTION}\n")
        return 0
    if args.name not in benchmarks:
        raise unknown("benchmark", args.name, list(benchmarks))
    result = benchmarks[args.name].run(args.args)
    return result if isinstance(result, int) else 0


def _benchmarks() -> dict[str, Any]:
    """By name. A module without a description measures something for others."""
    package = find_spec("ladle.bench")
    if package is None or package.submodule_search_locations is None:
        return {}
    names = sorted(module.name for module in iter_modules(package.submodule_search_locations))
    modules = {name: import_module(f"ladle.bench.{name}") for name in names if not name.startswith("_")}
    return {name: module for name, module in modules.items() if hasattr(module, "DESCRIPTION")}
