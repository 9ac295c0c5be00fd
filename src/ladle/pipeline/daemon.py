"""The parent of Spark's Python workers on this machine. What a task needs is loaded here once, so that a worker has it
from the moment it is forked: Numba and Arrow alone would take each worker a second. PySpark has a worker look for
garbage after each task, which took 70 ms; what is loaded here is none, and frozen it is not looked at.
"""

from __future__ import annotations


def main() -> None:
    """Load what tasks need, then be the parent of Spark's Python workers."""
    import gc

    import pyarrow.parquet  # noqa: F401
    import pyspark.worker  # noqa: F401
    from pyspark.daemon import manager

    import ladle.pipeline.spark
    import ladle.stem.backfill_kernel
    import ladle.stem.epoch_kernel
    import ladle.stem.kernels  # noqa: F401

    gc.collect()
    gc.freeze()
    manager()


if __name__ == "__main__":
    main()
