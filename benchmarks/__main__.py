"""Run a benchmark: `make bench BENCH_ARGS='NAME ...'`, or `python -m benchmarks NAME ...`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import benchmarks
from ladle.errors import LadleError, unknown


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Run a benchmark and print its figures; without a name, list the benchmarks.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="which one")
    parser.add_argument("args", nargs=argparse.REMAINDER, metavar="...", help="its own arguments (--help shows them)")
    asked = parser.parse_args(argv)
    known = descriptions()
    if asked.name is None:
        width = max(map(len, known), default=0)
        for name, module in known.items():
            sys.stdout.write(f"{name:<{width}}  {module.DESCRIPTION}\n")
        return 0
    try:
        if asked.name not in known:
            raise unknown("benchmark", asked.name, list(known))
        result = known[asked.name].run(asked.args)
    except LadleError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return result if isinstance(result, int) else 0


def descriptions() -> dict[str, Any]:
    """The benchmarks by name. A module without a description measures something for others."""
    names = sorted(module.name for module in iter_modules(benchmarks.__path__) if not module.name.startswith("_"))
    modules = {name: import_module(f"benchmarks.{name}") for name in names}
    return {name: module for name, module in modules.items() if hasattr(module, "DESCRIPTION")}


if __name__ == "__main__":
    sys.exit(main())
