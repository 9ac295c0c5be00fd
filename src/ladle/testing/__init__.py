"""For tests: a database without a JVM, a clock that moves when told, a source that stops where told.

These are for users (docs/testing.md). The other modules are Ladle's own: generators, the oracle, faults.
"""

from ladle.clock import ManualClock
from ladle.testing.inline import connect_inline
from ladle.testing.scripted import ScriptedSource

__all__ = ["ManualClock", "ScriptedSource", "connect_inline"]
