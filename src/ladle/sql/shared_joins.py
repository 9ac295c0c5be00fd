"""Joins that can be shared: scans of one FROM that comparisons between them connect (PSoup section 5).

The bound statement stays what it is. Beside it there is another one, in which the joined scans are one relation and the
comparisons that join them are gone: it is run over what the shared joins give. Outer joins, and conditions of any other
form, stay in the statement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
from sqlglot import exp

from ladle.plan import Edge, JoinFactor, JoinKey, Relop, SharedJoin
from ladle.plan.join import make_edge
from ladle.plan.keys import key_kind
from ladle.sql.conform import NotConformant, translate_value
from ladle.sql.conformant.parser_names import MIXED
from ladle.sql.dialect import DIALECT
from ladle.sql.function_calls import functions_of
from ladle.sql.resolve import scans_of
from ladle.sql.scopes import SCAN, ScanDraft
from ladle.sql.split import canonical_factor, conjuncts
from ladle.sql.trees import copied

_RELOPS: dict[type[exp.Expr], Relop] = {
    exp.EQ: Relop.EQ,
    exp.LT: Relop.LT,
    exp.LTE: Relop.LE,
    exp.GT: Relop.GT,
    exp.GTE: Relop.GE,
}
_INNER = ("", "INNER", "CROSS")


def conditions_to_where(select: exp.Select) -> None:
    """Where all joins are inner ones, ON says nothing that WHERE would not: one place is enough."""
    joins = select.args.get("joins") or []
    if not joins or not all(_is_inner(join) for join in joins):
        return
    terms = [join.args["on"] for join in joins if join.args.get("on") is not None]
    if not terms:
        return
    for join in joins:
        if join.args.get("on") is not None:
            join.set("on", None)
            join.set("kind", "CROSS")
    where = select.args.get("where")
    terms += [where.this] if where is not None else []
    select.set("where", exp.Where(this=exp.and_(*terms)))


def shared_joins(
    tree: exp.Expression, drafts: Sequence[ScanDraft]
) -> tuple[exp.Expression, tuple[SharedJoin, ...], dict[str, pa.Schema]] | None:
    """The statement over joins, those joins, and the columns of their relations; None where nothing is joined so."""
    tree = copied(tree)
    found: list[_FoundJoin] = []
    for select in tree.find_all(exp.Select):
        found += _joins_of(select, drafts, len(found))
    if not found:
        return None
    owners = {number: join for join in found for number in join.scans}
    for column in list(tree.find_all(exp.Column)):
        join = owners.get(column.meta.get(SCAN, -1))
        if join is not None:
            number = column.meta[SCAN]
            name = join.column(number, column.name)
            column.replace(exp.column(exp.to_identifier(name, quoted=True), table=_quoted(join.relation)))
    joins = []
    schemas = {}
    for join in found:
        # A relation without columns could not tell how many rows it has.
        if not join.columns:
            first = join.scans[0]
            join.column(first, drafts[first].schema.timestamp_column)
        joins.append(SharedJoin(join.relation, join.edges, tuple(join.columns)))
        schemas[join.relation] = pa.schema(
            [pa.field(name, drafts[scan].schema.arrow.field(column).type) for name, scan, column in join.columns]
        )
    return tree, tuple(joins), schemas


@dataclass
class _FoundJoin:
    relation: str
    scans: tuple[int, ...]
    edges: tuple[Edge, ...]
    columns: dict[tuple[str, int, str], None] = field(default_factory=dict)

    def column(self, scan: int, column: str) -> str:
        name = f"_s{scan}.{column}"
        self.columns[name, scan, column] = None
        return name


def _joins_of(select: exp.Select, drafts: Sequence[ScanDraft], count: int) -> list[_FoundJoin]:
    """The joins of one FROM, which then reads them in the place of their scans."""
    tables = _tables(select, drafts)
    where = select.args.get("where")
    if tables is None or where is None:
        return []
    factors: dict[tuple[int, int], list[JoinFactor]] = {}
    rest: list[exp.Expression] = []
    for conjunct in conjuncts(where.this):
        own = _factors(conjunct, tables, drafts)
        if not own:
            rest.append(conjunct)
        for pair, factor in own:
            factors.setdefault(pair, []).append(factor)
    found: list[_FoundJoin] = []
    for scans in _connected(list(tables), list(factors)):
        edges = tuple(
            make_edge(left, right, (drafts[left].stream, drafts[right].stream), own)
            for (left, right), own in factors.items()
            if left in scans
        )
        found.append(_FoundJoin(f"_j{count + len(found)}", scans, edges))
    if not found:
        return []
    joined = {number for join in found for number in join.scans}
    sources = [_table(join.relation) for join in found]
    sources += [table for number, table in tables.items() if number not in joined]
    select.set("from_", exp.From(this=sources[0]))
    select.set("joins", [exp.Join(this=source) for source in sources[1:]])
    select.set("where", exp.Where(this=exp.and_(*rest)) if rest else None)
    return found


def _tables(select: exp.Select, drafts: Sequence[ScanDraft]) -> dict[int, exp.Table] | None:
    """What FROM reads, by scan; None unless that is several scans, and nothing else, in inner joins."""
    from_, joins = select.args.get("from_"), select.args.get("joins") or []
    if from_ is None or not joins or select.args.get("laterals"):
        return None
    if not all(_is_inner(join) and join.args.get("on") is None for join in joins):
        return None
    numbers = {drafted.relation: number for number, drafted in enumerate(drafts)}
    tables: dict[int, exp.Table] = {}
    for node in (from_.this, *(join.this for join in joins)):
        number = numbers.get(node.name) if isinstance(node, exp.Table) else None
        if number is None:
            return None
        tables[number] = node
    return tables


def _is_inner(join: exp.Join) -> bool:
    plain = not (join.args.get("side") or join.args.get("method") or join.args.get("using"))
    return plain and (join.args.get("kind") or "").upper() in _INNER


def _factors(
    conjunct: exp.Expression, tables: Mapping[int, exp.Table], drafts: Sequence[ScanDraft]
) -> list[tuple[tuple[int, int], JoinFactor]]:
    """A conjunct as comparisons between two of the scans; none when it is anything else."""
    while isinstance(conjunct, exp.Paren):
        conjunct = conjunct.this
    if isinstance(conjunct, exp.Between):
        parts = [
            (conjunct.this, Relop.GE, conjunct.args["low"]),
            (conjunct.this, Relop.LE, conjunct.args["high"]),
        ]
    elif type(conjunct) in _RELOPS:
        parts = [(conjunct.this, _RELOPS[type(conjunct)], conjunct.expression)]
    else:
        return []
    found = []
    for left, relop, right in parts:
        one, other = _owner(left, tables), _owner(right, tables)
        if one is None or other is None or one == other:
            return []
        pair = _comparison(left, relop, right, drafts[one], drafts[other])
        if pair is None:
            return []
        found.append(((one, other), pair) if one < other else ((other, one), pair.flipped))
    return found


def _owner(node: exp.Expression, tables: Mapping[int, exp.Table]) -> int | None:
    """The scan that an expression is about, if it is about one of these and nothing else."""
    scans = scans_of(node)
    if len(scans) != 1 or node.find(exp.Query, exp.Window, exp.Placeholder) is not None:
        return None
    (number,) = scans
    return number if number in tables else None


def _comparison(
    left: exp.Expression, relop: Relop, right: exp.Expression, one: ScanDraft, other: ScanDraft
) -> JoinFactor | None:
    try:
        left_key, left_type = _key(left, one)
        right_key, right_type = _key(right, other)
    except NotConformant:
        return None
    integers = pa.types.is_signed_integer(left_type) and pa.types.is_signed_integer(right_type)
    if key_kind(left_type) is None or not (left_type == right_type or integers):
        return None
    return JoinFactor(left_key, relop, right_key)


def _key(node: exp.Expression, drafted: ScanDraft) -> tuple[JoinKey, pa.DataType]:
    schema = drafted.schema.arrow
    canonical = canonical_factor(node)
    used = {column.name for column in canonical.find_all(exp.Column)}
    columns = tuple(name for name in schema.names if name in used)
    if isinstance(canonical, exp.Column):
        return JoinKey(canonical.sql(DIALECT), columns), schema.field(columns[0]).type
    value = translate_value(canonical.copy(), {each.name: each.type for each in schema})
    return JoinKey(canonical.sql(DIALECT), columns, value.sql, functions_of(canonical)), value.type


def _connected(numbers: Sequence[int], pairs: Sequence[tuple[int, int]]) -> list[tuple[int, ...]]:
    """Groups of two and more scans that pairs connect."""
    group = {number: {number} for number in numbers}
    for left, right in pairs:
        together = group[left] | group[right]
        for number in together:
            group[number] = together
    found = {tuple(sorted(members)) for members in group.values() if len(members) > 1}
    return sorted(found)


def _table(name: str) -> exp.Table:
    table = exp.Table(this=_quoted(name), alias=exp.TableAlias(this=_quoted(name)))
    table.meta[MIXED] = True
    return table


def _quoted(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)
