"""The eddy (CACQ section 3): in which order tuples visit operators, decided while they flow."""

from ladle.eddy.routing import Account, Policy, Router

__all__ = ["Account", "Policy", "Router"]
