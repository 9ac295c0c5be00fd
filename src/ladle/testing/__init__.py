"""For tests: an engine without a JVM, generators, the oracle, faults."""

from ladle.testing.inline import connect_inline

__all__ = ["connect_inline"]
