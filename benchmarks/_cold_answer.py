"""A program that opens a warehouse, asks one question and says what that took, from its start, in processor seconds.

For the benchmark `checks`: with `unchecked` as the last argument no checksum is verified. What only that imports
is not counted.
"""

import sys
import time

_BEGAN = time.process_time()


def main(path: str, question: str, *how: str) -> None:
    from contextlib import ExitStack

    from ladle.connection import connect
    from ladle.stem import pairs, results  # noqa: F401 -- what is replaced must be there, with either

    imported = time.process_time()
    from benchmarks.checks import SETTINGS, without_checks

    replaced = time.process_time()
    with ExitStack() as stack:
        if "unchecked" in how:
            stack.enter_context(without_checks())
        db = stack.enter_context(connect(path, read_only=True, settings=SETTINGS))
        db.sql(question)
        sys.stdout.write(f"{time.process_time() - _BEGAN - (replaced - imported)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
