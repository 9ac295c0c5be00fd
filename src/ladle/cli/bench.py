"""`ladle bench NAME`: every module of `ladle.bench` with `DESCRIPTION` and `run(args)` is a benchmark."""

from __future__ import annotations

import argparse
import sys
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules

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
            ladle bench epoch
        """,
    )
    bench.add_argument("name", nargs="?", metavar="NAME", help="which one")
    bench.add_argument("args", nargs=argparse.REMAINDER, metavar="...", help="its own arguments (--help shows them)")


def _bench(args: argparse.Namespace) -> int:
    names = _names()
    if args.name is None:
        width = max(map(len, names), default=0)
        for name in names:
            sys.stdout.write(f"{name:<{width}}  {import_module(f'ladle.bench.{name}').DESCRIPTION}\n")
        return 0
    if args.name not in names:
        raise unknown("benchmark", args.name, names)
    result = import_module(f"ladle.bench.{args.name}").run(args.args)
    return result if isinstance(result, int) else 0


def _names() -> list[str]:
    package = find_spec("ladle.bench")
    if package is None or package.submodule_search_locations is None:
        return []
    found = (module.name for module in iter_modules(package.submodule_search_locations))
    return sorted(name for name in found if not name.startswith("_"))
