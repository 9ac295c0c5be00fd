"""A user's function: vectorised Python, one Arrow array per argument to one array of the same length.

Its source is durable truth, like the texts of queries. Each version has an id of its own, never used again, and in a
bound text a call has the name of its version: what was derived with one version can't be taken for another's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pyarrow as pa

from ladle.json_values import JsonFields, JsonObject
from ladle.schema import Column, decode_schema, encode_schema, type_name

_RESULT = "returns"


@dataclass(frozen=True)
class Function:
    """One version of a function."""

    id: int
    name: str
    parameters: tuple[Column, ...]
    returns: pa.DataType
    source: str
    """Python that defines a function of this name; or an expression of SQL."""
    inlined: bool = False
    """Whether it is SQL: a call of it is its body, and nothing is called when a query runs."""

    @property
    def symbol(self) -> str:
        """What a bound text calls this version."""
        return f"{self.name.lower()}__{self.id}"

    @property
    def arguments(self) -> tuple[str, ...]:
        """The types of its arguments, as SQL writes them."""
        return tuple(type_name(parameter.type) for parameter in self.parameters)

    @property
    def signature(self) -> str:
        """The function as it is declared: name, arguments, result."""
        listed = ", ".join(f"{parameter.name} {type_name(parameter.type)}" for parameter in self.parameters)
        return f"{self.name}({listed}) RETURNS {type_name(self.returns)}"

    def looks_like(self, other: Function) -> bool:
        """Whether queries may have the one in the other's place."""
        return self.arguments == other.arguments and self.returns == other.returns

    def __deepcopy__(self, memo: dict[int, object]) -> Function:
        return self

    def to_json(self) -> JsonObject:
        """Encode the function for the log."""
        fields = [pa.field(parameter.name, parameter.type) for parameter in self.parameters]
        types = encode_schema(pa.schema([*fields, pa.field(_RESULT, self.returns)]))
        value: JsonObject = {"id": self.id, "name": self.name, "types": types, "source": self.source}
        if self.inlined:
            value["language"] = "sql"
        return value

    @staticmethod
    def from_json(value: JsonFields) -> Function:
        """Decode the function from the log."""
        *parameters, result = decode_schema(value["types"])
        columns = tuple(Column(field.name, field.type) for field in parameters)
        inlined = value.get("language") == "sql"
        return Function(value["id"], value["name"], columns, result.type, value["source"], inlined)


def distinct_functions(functions: Iterable[Function]) -> tuple[Function, ...]:
    """Functions without repetitions, in the order in which they are first named."""
    return tuple(dict.fromkeys(functions))
