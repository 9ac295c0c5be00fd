"""A program that opens a warehouse, asks one question and says how long that took, from its start, in seconds.

For `ladle bench checks`: with `unchecked` as the last argument no checksum is verified. What only that needs to import
is not counted.
"""

import sys
import time

_BEGAN = time.perf_counter()


def main(path: str, question: str, *how: str) -> None:
    from contextlib import ExitStack

    from ladle.connection import connect
    from ladle.stem import pairs, results  # noqa: F401 -- what is replaced must be there, with either

    imported = time.perf_counter()
    from ladle.bench.checks import SETTINGS, without_checks

    replaced = time.perf_counter()
    with ExitStack() as stack:
        if "unchecked" in how:
            stack.enter_context(without_checks())
        db = stack.enter_context(connect(path, read_only=True, settings=SETTINGS))
        db.sql(question)
        sys.stdout.write(f"{time.perf_counter() - _BEGAN - (replaced - imported)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
