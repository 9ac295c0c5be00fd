"""The engine: what makes streams, standing queries and answers out of the layers below."""

from ladle.engine.database import Database
from ladle.handles import Query, Stream

__all__ = ["Database", "Query", "Stream"]
