"""Names in scope: which relation and column an identifier means, by Spark's rules.

Names are compared without case. A scope holds the relations of one FROM clause; a subquery's scope has its outer
query's as parent, so that correlated columns are found there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from ladle.errors import Position, SqlError, Unsupported, unknown
from ladle.plan import AsOf, Factor, Sample, TimeWindow, Window
from ladle.schema import StreamSchema, TableSchema, as_written
from ladle.sql.position import SourceText

SCAN = "ladle_scan"
"""Key in a bound column's `meta`: the number of the scan it reads."""

TABLE = "ladle_table"
"""Key in a bound column's `meta`: the number of the table it reads."""

NUMBERED = "ladle_numbered"
"""Key in the `meta` of a mention of a table: its scan has the numbers of its rows."""

NAME = "ladle_name"
"""Key in a bound column's `meta`: the name people know it by."""


@dataclass(frozen=True)
class Field:
    """A column of a relation: the name people use and the one in the rendered text."""

    name: str
    column: str
    plain: bool = False
    """Known to have no fields of its own, so that `a.b` can't mean its field."""


@dataclass
class Relation:
    """Something in FROM: a stream's scan, a table, a subquery, a CTE, VALUES or a table function."""

    alias: str
    """The alias in the rendered text; unique among all scopes that can see it."""
    qualifiers: tuple[tuple[str, ...], ...]
    """Lower-case names it may be qualified with: `quarantine` and `trades.quarantine`."""
    fields: tuple[Field, ...]
    hidden: tuple[Field, ...] = ()
    """Columns that can be named but are not part of `*`."""
    scan: int | None = None
    table: int | None = None
    unlisted: frozenset[str] = frozenset()
    """Columns, in lower case, that only a qualified name means: USING in parentheses made one column of two."""
    pushable: bool = True
    """Whether a condition of WHERE on it may be applied before the join."""

    def find(self, name: str) -> list[Field]:
        """The columns of that name; hidden ones only if there are no others."""
        hits = [item for item in self.fields if item.name.lower() == name]
        return hits or [item for item in self.hidden if item.name.lower() == name]

    def column(self, item: Field) -> exp.Column:
        """A column of this relation as a node, qualified."""
        node = exp.column(exp.to_identifier(item.column, quoted=True), table=exp.to_identifier(self.alias, quoted=True))
        node.meta[NAME] = item.name
        if self.scan is not None:
            node.meta[SCAN] = self.scan
        if self.table is not None:
            node.meta[TABLE] = self.table
        return node


@dataclass
class Scope:
    """The relations that a query's expressions may name, and the scope around them."""

    source: SourceText
    parent: Scope | None = None
    relations: list[Relation] = field(default_factory=list)
    merged: dict[str, exp.Expression] = field(default_factory=dict)
    """Columns of USING and NATURAL joins: what the unqualified name means."""
    merged_names: dict[str, str] = field(default_factory=dict)

    def chain(self) -> Iterator[Scope]:
        """This scope, and those around it."""
        scope: Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.parent

    def add(self, relation: Relation, position: Position | None) -> None:
        """Add a relation. A name that another one has is refused."""
        taken = {qualifier for other in self.relations for qualifier in other.qualifiers}
        if clash := taken.intersection(relation.qualifiers):
            name = ".".join(next(iter(clash)))
            raise SqlError(
                f"Two relations of this FROM are called '{name}'.",
                hint="give one of them another name with AS",
                position=position,
            )
        self.relations.append(relation)

    def alias_for(self, wanted: str) -> str:
        """An alias that hides none that an inner expression may still need."""
        used = {relation.alias.lower() for scope in self.chain() for relation in scope.relations}
        alias, number = wanted, 0
        while alias.lower() in used:
            number += 1
            alias = f"{wanted}_{number}"
        return alias

    def lookup(self, parts: Sequence[exp.Identifier]) -> exp.Expression | None:
        """What a possibly qualified name means in this scope alone; None if nothing."""
        names = [part.name.lower() for part in parts]
        for length in range(min(len(names) - 1, 2), 0, -1):
            hits = [
                (relation, item)
                for relation in self.relations
                if tuple(names[:length]) in relation.qualifiers
                for item in relation.find(names[length])
                if not (item.plain and len(names) > length + 1)
            ]
            if hits:
                return self._only(hits, parts, length)
        if names[0] in self.merged:
            return _fields_of(self.merged[names[0]].copy(), parts[1:])
        hits = [
            (relation, item)
            for relation in self.relations
            if names[0] not in relation.unlisted
            for item in relation.find(names[0])
            if not (item.plain and len(names) > 1)
        ]
        return self._only(hits, parts, 0) if hits else None

    def _only(self, hits: list[tuple[Relation, Field]], parts: Sequence[exp.Identifier], index: int) -> exp.Expression:
        if len(hits) > 1:
            name = parts[index].name
            where = " and ".join(dict.fromkeys(".".join(relation.qualifiers[0]) for relation, _ in hits))
            raise SqlError(
                f"Column '{name}' is ambiguous: it is in {where}"
                + (" more than once." if len({id(relation) for relation, _ in hits}) == 1 else "."),
                hint=f"write {'.'.join(hits[0][0].qualifiers[0])}.{name}" if len(hits) > 1 and not index else None,
                position=self.source.of(parts[index]),
            )
        relation, item = hits[0]
        return _fields_of(relation.column(item), parts[index + 1 :])

    def star(self) -> list[tuple[str, exp.Expression]]:
        """The columns of `*`: those of USING first, then the rest in FROM's order."""
        columns = [(self.merged_names[name], node.copy()) for name, node in self.merged.items()]
        for relation in self.relations:
            for item in relation.fields:
                if item.name.lower() not in self.merged and item.name.lower() not in relation.unlisted:
                    columns.append((item.name, relation.column(item)))
        return columns

    def starred(self, columns: Sequence[tuple[str, exp.Expression]], parts: Sequence[exp.Identifier]) -> int:
        """Which of a star's columns EXCEPT names; it must be one of them, and only one, as in Spark."""
        names = tuple(part.name.lower() for part in parts)
        owners = [self._owner(column) for _, column in columns]
        hits = [
            number
            for number, (name, _) in enumerate(columns)
            if name.lower() == names[-1]
            and (len(names) == 1 or ((owner := owners[number]) is not None and names[:-1] in owner.qualifiers))
        ]
        name = ".".join(part.name for part in parts)
        position = self.source.of(parts[0])
        if not hits:
            if any(each.lower() in names[:-1] for each, _ in columns):
                raise Unsupported("EXCEPT leaves out columns, not fields inside of them.", position=position)
            known = [
                as_written(each)
                if len(names) == 1 or owner is None
                else f"{'.'.join(owner.qualifiers[0])}.{as_written(each)}"
                for (each, _), owner in zip(columns, owners, strict=True)
            ]
            raise unknown("column", name, known, position=position)
        if len(hits) > 1:
            where = list(dict.fromkeys(".".join(each.qualifiers[0]) for n in hits if (each := owners[n]) is not None))
            raise SqlError(
                f"Column '{name}' is ambiguous: it is in {' and '.join(where)}"
                + (" more than once." if len(where) == 1 else "."),
                hint=f"write {where[0]}.{name}" if len(where) > 1 else None,
                position=position,
            )
        return hits[0]

    def _owner(self, column: exp.Expression) -> Relation | None:
        """The relation that a column of a star is one of; None for what USING makes of two."""
        table = column.table if isinstance(column, exp.Column) else ""
        same = [each for scope in self.chain() for each in scope.relations if each.alias == table]
        # Relations of a join in parentheses have one alias.
        return next((each for each in same if any(item.column == column.name for item in each.fields)), None)

    def relation(self, parts: Sequence[exp.Identifier]) -> Relation | None:
        """The relation that a qualifier means, here or around; or None."""
        names = tuple(part.name.lower() for part in parts)
        for scope in self.chain():
            for relation in scope.relations:
                if names in relation.qualifiers:
                    return relation
        return None

    def unknown_column(self, parts: Sequence[exp.Identifier]) -> Exception:
        """The error for a column that no relation has, with those there are."""
        known: list[str] = []
        for relation in self.relations:
            prefix = ".".join(relation.qualifiers[0]) + "." if len(parts) > 1 or len(self.relations) > 1 else ""
            known.extend(prefix + as_written(item.name) for item in (*relation.fields, *relation.hidden))
        name = ".".join(part.name for part in parts)
        return unknown("column", name, known, position=self.source.of(parts[0]))


@dataclass
class ScanDraft:
    """One mention of a stream while its query is being bound."""

    relation: str
    stream: str
    schema: StreamSchema
    window: Window
    factors: list[Factor] = field(default_factory=list)
    past: AsOf | None = None
    sample: Sample | None = None


@dataclass(frozen=True)
class TableDraft:
    """A table that a query mentions, while it is being bound; as of one moment it is one however often it is
    mentioned.
    """

    relation: str
    table: str
    schema: TableSchema
    past: AsOf | None = None


@dataclass(frozen=True)
class Cte:
    """A common table expression: its name and its columns."""

    name: str
    fields: tuple[Field, ...]
    written: exp.CTE | None = None
    """What is bound when it is mentioned, since a window of the mention may go into it."""
    around: Around | None = None
    """What that sees, which stands where it is written, and not where it is mentioned."""
    bound: dict[tuple[Within, ...], Cte] = field(default_factory=dict)
    """What it became, for each set of windows on its rows."""


@dataclass(frozen=True)
class Recursion:
    """A common table expression that reads itself: its name in the bound text, and as it is written."""

    name: str
    alias: exp.Expression


@dataclass(frozen=True)
class Within:
    """A window on rows, and the moment as of which they are read: NOW in the window is the NOW of that."""

    window: TimeWindow
    past: AsOf | None = None


@dataclass(frozen=True)
class Around:
    """What a query sees of the queries around it."""

    parent: Scope | None = None
    window: TimeWindow | None = None
    ctes: Mapping[str, Cte] = field(default_factory=dict)
    within: tuple[Within, ...] = ()
    """Windows that the times of the rows given here must be in."""
    recursion: Recursion | None = None
    """What the query itself is, if it is one."""

    def inside(self, scope: Scope) -> Around:
        """What a subquery of an expression sees of this."""
        return replace(self, parent=scope, within=())


def _fields_of(node: exp.Expression, parts: Sequence[exp.Identifier]) -> exp.Expression:
    """`struct.field.field` as nested dots."""
    for part in parts:
        node = exp.Dot(this=node, expression=exp.to_identifier(part.name, quoted=True))
    return node


def parts_of(column: exp.Column) -> list[exp.Identifier]:
    """The parts of a column's name, the qualifier first."""
    return [part for part in column.parts if isinstance(part, exp.Identifier)]
