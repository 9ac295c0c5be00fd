"""USING and NATURAL: the columns that a join compares by name, and what the name alone means afterwards."""

from __future__ import annotations

from sqlglot import exp

from ladle.sql.scopes import Scope


def merge_columns(join: exp.Join, scope: Scope, right: Scope, side: str) -> None:
    """USING and NATURAL as ON: what the unqualified name means afterwards depends on which side may be missing."""
    using = [item.name for item in join.args.get("using") or ()]
    if (join.args.get("method") or "").upper() == "NATURAL":
        left = [name for name, _ in scope.star()]
        others = {name.lower() for name, _ in right.star()}
        using = [name for name in left if name.lower() in others]
        join.set("method", None)
        if not using:
            join.set("kind", "CROSS")
    if not using:
        return
    conditions = []
    positions = join.args.get("using") or [exp.to_identifier(name) for name in using]
    for name, identifier in zip(using, positions, strict=True):
        left_column = scope.lookup([identifier])
        if left_column is None:
            raise scope.unknown_column([identifier])
        right_column = right.lookup([identifier])
        if right_column is None:
            raise right.unknown_column([identifier])
        conditions.append(exp.EQ(this=left_column.copy(), expression=right_column.copy()))
        merged: exp.Expression = left_column
        if side == "RIGHT":
            merged = right_column
        elif side == "FULL":
            merged = exp.Anonymous(this="coalesce", expressions=[left_column, right_column])
        if (join.args.get("kind") or "").upper() not in ("SEMI", "ANTI"):
            scope.merged[name.lower()] = merged
            scope.merged_names.setdefault(name.lower(), left_column.name)
    join.set("using", None)
    join.set("on", exp.and_(*conditions, copy=False))
