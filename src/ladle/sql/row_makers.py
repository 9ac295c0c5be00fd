"""Functions that make rows, in FROM and in the SELECT list, and the columns that they make.

In a SELECT list `posexplode(xs) AS (p, x)` means `LATERAL VIEW posexplode(xs) AS p, x` behind FROM, and that is what it
is bound to. Only ORDER BY, and the items after it, can name its columns. Where the query groups, the rows are made of
what the groups give.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
from sqlglot import exp

from ladle.errors import Position, SqlError, TypeMismatch, Unsupported
from ladle.schema import type_name
from ladle.sql.conformant.datatypes import arrow_type
from ladle.sql.naming import output_name
from ladle.sql.position import SourceText
from ladle.sql.resolve import GENERATORS, has_aggregate
from ladle.sql.scopes import NAME, SCAN, TABLE
from ladle.sql.trees import aliased, wrapped

if TYPE_CHECKING:
    from ladle.sql.binder import Binder

_MAPS = frozenset(
    (
        *("map", "map_concat", "map_filter", "map_from_arrays", "map_from_entries", "map_zip_with", "str_to_map"),
        *("transform_keys", "transform_values"),
    )
)
"""Functions that give a MAP, of which rows are made of two columns."""

_BELOW = "_below"


def generator_of(item: exp.Expr) -> tuple[exp.Anonymous, list[exp.Identifier]] | None:
    """The call of an item of the SELECT list that makes rows, and the names that its columns are given."""
    call = item.this if isinstance(item, exp.Alias | exp.Aliases) else item
    if not isinstance(call, exp.Anonymous) or call.name.lower() not in GENERATORS:
        return None
    names = item.expressions if isinstance(item, exp.Aliases) else [item.args["alias"]] if item is not call else []
    return call, list(names)


def only_generator(select: exp.Select, source: SourceText) -> exp.Expr | None:
    """The item of a SELECT list that makes rows; Spark has one at most."""
    found = [item for item in select.expressions if generator_of(item) is not None]
    if len(found) > 1:
        raise SqlError(
            "A SELECT list has one function that makes rows, and this is a second one.",
            hint="write LATERAL VIEW explode(x) t AS a for one of them",
            position=source.of(found[1]),
        )
    return found[0] if found else None


def is_grouped(select: exp.Select) -> bool:
    """Whether a query groups its rows, as it is written."""
    clauses = any(select.args.get(key) is not None for key in ("group", "having"))
    return clauses or any(has_aggregate(item) for item in select.expressions)


def over_groups(select: exp.Select, item: exp.Expr, source: SourceText) -> exp.Select:
    """`SELECT k, explode(collect_list(x)) ... GROUP BY k` as a query that makes rows of what the groups give."""
    found = generator_of(item)
    assert found is not None
    call, _ = found
    _refuse_positions(select, select.expressions.index(item) + 1, source)
    outer = wrapped(select)
    for each in outer.args["order"].expressions if outer.args.get("order") is not None else ():
        if has_aggregate(each):
            raise Unsupported(
                "ORDER BY beside a function that makes rows names columns of the SELECT list.",
                hint="put it into the SELECT list, give it a name with AS, and order by that",
                position=source.of(each),
            )
    arguments = [(f"{_BELOW}{at}", each.copy()) for at, each in enumerate(call.expressions)]
    taken: set[str] = set()
    above: list[exp.Expr] = []
    below: list[exp.Expr] = []
    for each in select.expressions:
        if each is item:
            continue
        name = each.alias if isinstance(each, exp.Alias) else output_name(each)
        inside = name if name.lower() not in taken else f"{_BELOW}_{len(taken)}"
        taken.add(name.lower())
        kept = isinstance(each, exp.Alias) and inside == name
        below.append(each if kept else aliased(each.unalias(), inside))
        above.append(aliased(exp.column(exp.to_identifier(inside, quoted=True)), name))
    constant = [isinstance(each, exp.Literal | exp.Null | exp.Boolean) for _, each in arguments]
    below += [aliased(each, name) for (name, each), still in zip(arguments, constant, strict=True) if not still]
    at = select.expressions.index(item)
    call.set(
        "expressions",
        [each if still else exp.column(name) for (name, each), still in zip(arguments, constant, strict=True)],
    )
    select.set("expressions", below)
    outer.set("expressions", [*above[:at], item, *above[at:]])
    outer.set("from_", exp.From(this=exp.Subquery(this=select)))
    return outer


def _refuse_positions(select: exp.Select, place: int, source: SourceText) -> None:
    """GROUP BY counts the items of the SELECT list, one of which is not there when groups are made."""
    group = select.args.get("group")
    literals = () if group is None else group.find_all(exp.Literal)
    positions = [
        each for each in literals if each.parent is group and each.name.isdecimal() and int(each.name) >= place
    ]
    if group is not None and (group.args.get("all") or positions):
        raise Unsupported(
            "GROUP BY a position, or ALL, does not go with a function that makes rows before it.",
            hint="name what is grouped by",
            position=source.of(positions[0]) if positions else source.of(select.expressions[place - 1]),
        )


def column_names(binder: Binder, call: exp.Anonymous, given: Sequence[str], position: Position | None) -> list[str]:
    """The names of the columns that a bound call makes: those that are given, else Spark's."""
    own = _own_names(binder, call, len(given), position)
    if given and len(given) != len(own):
        raise SqlError(
            f"{call.name.lower()} makes {len(own)} column{'s' * (len(own) != 1)} here, and {len(given)} "
            f"{'are' if len(given) != 1 else 'is'} named.",
            hint=f"name each of them, like AS ({', '.join(own)})",
            position=position,
        )
    return list(given) or own


def _own_names(binder: Binder, call: exp.Anonymous, given: int, position: Position | None) -> list[str]:
    name, arguments = call.name.lower().removesuffix("_outer"), call.expressions
    if any(isinstance(each, exp.Star | exp.Distinct) for each in arguments):
        arguments = []
    match name:
        case "explode" | "posexplode" if len(arguments) == 1:
            places = ["pos"] if name == "posexplode" else []
            maps = _is_map(binder, arguments[0])
            if maps is None:  # of what type it is Spark knows
                maps = given == len(places) + 2
            return [*places, *(("key", "value") if maps else ("col",))]
        case "inline" if len(arguments) == 1:
            fields = _fields(binder, arguments[0])
            if fields is None and not given:
                raise SqlError(
                    "inline makes a column of each field, and their names are not known here.",
                    hint="name them: inline(x) AS (a, b)",
                    position=position,
                )
            return fields or [""] * given
        case "range":
            return ["id"]
        case "stack" if len(arguments) > 1:
            rows = arguments[0]
            if not isinstance(rows, exp.Literal) or not rows.name.isdecimal() or int(rows.name) < 1:
                raise SqlError("stack begins with a number of rows, like stack(2, a, b).", position=position)
            return [f"col{at}" for at in range(-(-(len(arguments) - 1) // int(rows.name)))]
        case "json_tuple" if len(arguments) > 1:
            return [f"c{at}" for at in range(len(arguments) - 1)]
    forms = {"inline": "inline(x)", "stack": "stack(2, a, b)", "json_tuple": "json_tuple(x, 'a', 'b')"}
    raise SqlError(
        f"This is not how {name} is called.", hint=f"write {forms.get(name, f'{name}(x)')}", position=position
    )


def _is_map(binder: Binder, node: exp.Expr) -> bool | None:
    """Whether a bound expression is a MAP; None where that is not known before Spark looks."""
    if isinstance(node, exp.Anonymous) and node.name.lower() in _MAPS:
        return True
    found = _type(binder, node)
    return None if found is None else bool(pa.types.is_map(found))


def _fields(binder: Binder, node: exp.Expr) -> list[str] | None:
    """The fields of the structs in an array; None where they are not known before Spark looks."""
    found = _type(binder, node)
    if found is not None and not (pa.types.is_list(found) and pa.types.is_struct(found.value_type)):
        raise TypeMismatch(
            f"inline makes rows of an ARRAY of STRUCTs, not of {type_name(found)}.", position=binder.source.of(node)
        )
    if found is not None:
        return [field.name for field in found.value_type]
    first = node.expressions[0] if isinstance(node, exp.Anonymous) and node.expressions else None
    if not isinstance(first, exp.Anonymous) or not isinstance(node, exp.Anonymous) or node.name.lower() != "array":
        return None
    match first.name.lower():
        case "struct":
            return [_field(each, at) for at, each in enumerate(first.expressions, 1)]
        case "named_struct":
            names = first.expressions[::2]
            return [each.name for each in names] if all(isinstance(each, exp.Literal) for each in names) else None
    return None


def _field(node: exp.Expr, at: int) -> str:
    if isinstance(node, exp.Alias):
        return node.alias
    return str(node.meta.get(NAME, node.name)) if isinstance(node, exp.Column | exp.Dot) else f"col{at}"


def _type(binder: Binder, node: exp.Expr) -> pa.DataType | None:
    """The type of a column of a stream or table, of a field of one, or of a cast."""
    match node:
        case exp.Paren():
            return _type(binder, node.this)
        case exp.Cast():
            try:
                return arrow_type(node.to)
            except TypeMismatch:
                return None
        case exp.Dot():
            inside = _type(binder, node.this)
            if inside is None or not pa.types.is_struct(inside):
                return None
            named = [field.type for field in inside if field.name.lower() == node.name.lower()]
            return named[0] if len(named) == 1 else None
        case exp.Column():
            scan, table = node.meta.get(SCAN), node.meta.get(TABLE)
            draft = None if scan is None else binder.scans[scan].schema.arrow
            draft = draft if table is None else binder.tables[table].schema.arrow
            return draft.field(node.name).type if draft is not None and node.name in draft.names else None
    return None
