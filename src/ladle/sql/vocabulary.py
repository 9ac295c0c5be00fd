"""What of the parser's vocabulary is understood: classes of nodes, and the arguments of each that something acts on.

sqlglot reads the SQL of some thirty systems, and hands over whatever it read. A part of a tree that nobody looks at
would be accepted and ignored, so nothing is understood that is not listed here (decision 17). An argument is listed
when the binder or the translation to DuckDB acts on it, when sqlglot writes it into Spark's text unchanged, or when
code further on refuses it with a better message. `sql/understood.py` checks trees against these lists.
"""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from ladle.sql.dialect import Bounds, NowBracket, RangeBracket, RecursionLevel, RowsBracket

_Args = Mapping[str, str]


def _all(arguments: str, *classes: type[exp.Expr]) -> dict[type[exp.Expr], frozenset[str]]:
    return {each: frozenset(arguments.split()) for each in classes}


_QUERY = "with_ order limit offset bounds"
_PLACED = "sort distribute cluster"

_PIVOT = "default_on_null identify_pivot_strings prefixed_pivot_columns pivot_column_naming value_columns_first"
"""What the parser says of its own of every PIVOT."""

HANDLED: Mapping[type[exp.Expr], frozenset[str]] = {
    # queries
    **_all(
        f"{_QUERY} {_PLACED} expressions distinct from_ joins laterals where group having windows qualify",
        exp.Select,
    ),
    **_all(f"{_QUERY} {_PLACED} this expression distinct by_name", exp.Union),
    **_all(f"{_QUERY} {_PLACED} this expression distinct", exp.Intersect, exp.Except),
    **_all(f"{_QUERY} this alias pivots", exp.Subquery),
    **_all(f"{_QUERY} expressions alias", exp.Values),
    **_all("expressions recursive", exp.With),
    **_all("this alias level", exp.CTE),
    **_all("this", RecursionLevel),
    **_all("begin end", Bounds),
    # clauses
    **_all("this", exp.From, exp.Where, exp.Having, exp.Qualify),
    **_all("expressions grouping_sets cube rollup all", exp.Group),
    **_all("expressions", exp.Cube, exp.Rollup, exp.GroupingSets, exp.Order, exp.Sort, exp.Distribute, exp.Cluster),
    **_all("this desc nulls_first", exp.Ordered),
    **_all("expression", exp.Limit, exp.Offset),
    **_all("direction count limit_options", exp.Fetch),
    **_all("rows", exp.LimitOptions),
    **_all("expressions on", exp.Distinct),
    # FROM
    **_all("this db catalog alias joins version sample pivots", exp.Table),
    **_all("this expression kind", exp.Version),
    **_all("percent size bucket_numerator bucket_denominator seed", exp.TableSample),
    **_all("this columns", exp.TableAlias),
    **_all(f"expressions fields alias unpivot include_nulls columns {_PIVOT}", exp.Pivot),
    **_all("this alias", exp.PivotAlias),
    **_all("this on side kind using method", exp.Join),
    **_all("this view outer alias", exp.Lateral),
    **_all("this", RangeBracket),
    **_all("this expressions", RowsBracket),
    **_all("", NowBracket),
    # windows
    **_all("this partition_by order spec alias over", exp.Window),
    **_all("kind start start_side end end_side", exp.WindowSpec),
    **_all("this expression", exp.Filter, exp.WithinGroup),
    **_all("this", exp.IgnoreNulls, exp.RespectNulls),
    # names and constants
    **_all("this table db catalog", exp.Column),
    **_all("this quoted", exp.Identifier),
    **_all("this alias", exp.Alias),
    **_all("this expressions", exp.Aliases),
    **_all("except_", exp.Star),
    **_all("this is_string", exp.Literal),
    **_all("this", exp.Boolean, exp.HexString, exp.RawString, exp.Var),
    **_all("this unit fraction_in_string", exp.Interval),
    **_all("this expression", exp.IntervalSpan),
    **_all("", exp.Null, exp.CurrentDate, exp.CurrentTimestamp),
    # calls
    **_all("this expressions", exp.Anonymous, exp.Lambda),
    **_all("this expression", exp.Kwarg),
    **_all("this to safe", exp.Cast, exp.TryCast),
    **_all("this expression", exp.Extract),
    **_all("this substr position", exp.StrPosition),
    **_all("this start length", exp.Substring),
    **_all("this expression position", exp.Trim),
    **_all("this expression from_ for_", exp.Overlay),
    **_all("expressions safe coalesce", exp.Concat),
    **_all("this ifs default", exp.Case),
    **_all("this true false", exp.If),
    **_all("this", exp.Exists, exp.Any, exp.All),
    # operators
    **_all("this", exp.Paren, exp.Neg, exp.Not, exp.BitwiseNot),
    **_all("this expression", exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.IntDiv, exp.And, exp.Or, exp.Is, exp.Dot),
    **_all("this expression", exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ),
    **_all("this expression", exp.BitwiseAnd, exp.BitwiseOr, exp.BitwiseXor, exp.Escape, exp.Collate, exp.RegexpLike),
    **_all("this expression", exp.BitwiseLeftShift, exp.BitwiseRightShift),
    **_all("this expression safe", exp.Div, exp.DPipe),
    **_all("this expression negate", exp.Like, exp.ILike),
    **_all("this low high", exp.Between),
    **_all("this expressions query", exp.In),
    **_all("this expressions", exp.Bracket),
    **_all("expressions bracket_notation", exp.Array),
    **_all("expressions", exp.Tuple),
    # types
    **_all("this expressions nested", exp.DataType),
    **_all("this", exp.DataTypeParam),
    **_all("this kind", exp.ColumnDef),
    # refused by name, where functions are looked up
    **_all("", exp.CurrentUser, exp.CurrentRole, exp.SessionUser),
}
"""The arguments of each class of nodes that something acts on. Everything else is refused."""

_MODIFIERS: _Args = {
    "match": "MATCH_RECOGNIZE",
    "connect": "CONNECT BY",
    "pivots": "PIVOT here",
    "prewhere": "PREWHERE",
    "qualify": "QUALIFY",
    "distribute": "DISTRIBUTE BY",
    "sort": "SORT BY",
    "cluster": "CLUSTER BY",
    "locks": "FOR UPDATE",
    "sample": "TABLESAMPLE here",
    "settings": "SETTINGS",
    "format": "FORMAT",
    "options": "OPTION",
    "for_": "FOR",
}
_AFTER_QUERY: _Args = {
    **_MODIFIERS,
    "laterals": "LATERAL after a query in parentheses",
    "joins": "JOIN after a query in parentheses",
    "where": "WHERE after a query in parentheses",
    "group": "GROUP BY after a query in parentheses",
    "having": "HAVING after a query in parentheses",
    "windows": "WINDOW after a query in parentheses",
}
_AFTER_SET: _Args = {name: word for name, word in _AFTER_QUERY.items() if name not in _PLACED.split()}
_BY_NAME: _Args = {"by_name": "BY NAME", "side": "LEFT", "kind": "CORRESPONDING", "on": "ON"}
_CAST: _Args = {"format": "FORMAT", "action": "this form of CAST", "default": "DEFAULT"}
_TRY_CAST: _Args = {
    **_CAST,
    "requires_string": "this form of CAST",
    "null_on_text_overflow": "this form of CAST",
    "probe_date_format": "this form of CAST",
}

REFUSED: Mapping[type[exp.Expr], _Args] = {
    exp.Select: {
        **{name: word for name, word in _MODIFIERS.items() if name not in ("qualify", *_PLACED.split())},
        "kind": "SELECT AS",
        "hint": "a hint",
        "into": "INTO",
        "operation_modifiers": "this form of SELECT",
        "exclude": "EXCLUDE",
    },
    exp.Union: {**_AFTER_SET, **{name: word for name, word in _BY_NAME.items() if name != "by_name"}},
    exp.Intersect: {**_AFTER_SET, **_BY_NAME},
    exp.Except: {**_AFTER_SET, **_BY_NAME},
    exp.Subquery: {name: word for name, word in _AFTER_QUERY.items() if name != "pivots"},
    exp.Values: {"pivots": "PIVOT here"},
    exp.With: {"search": "SEARCH", "cycle": "CYCLE", "udfs": "FUNCTION in WITH"},
    exp.CTE: {"scalar": "a scalar WITH", "materialized": "MATERIALIZED", "key_expressions": "USING KEY"},
    exp.Group: {"totals": "WITH TOTALS"},
    exp.Order: {"this": "ORDER BY inside a call", "siblings": "ORDER SIBLINGS BY"},
    exp.Sort: {"this": "SORT BY inside a call", "siblings": "SORT SIBLINGS BY"},
    exp.Distribute: {"this": "DISTRIBUTE BY inside a call", "siblings": "DISTRIBUTE SIBLINGS BY"},
    exp.Pivot: {
        "this": "this form of PIVOT",
        "using": "USING in PIVOT",
        "group": "GROUP BY in PIVOT",
        "into": "INTO in UNPIVOT",
        "with_": "WITH in PIVOT",
    },
    exp.Ordered: {"with_fill": "WITH FILL"},
    exp.Limit: {
        "this": "LIMIT inside a call",
        "offset": "this form of LIMIT",
        "limit_options": "ROWS, PERCENT or WITH TIES after LIMIT",
        "expressions": "LIMIT ... BY",
    },
    exp.Offset: {"this": "OFFSET inside a call", "expressions": "OFFSET ... BY"},
    exp.LimitOptions: {"percent": "PERCENT", "with_ties": "WITH TIES"},
    exp.Table: {
        "laterals": "LATERAL inside of a join in parentheses",
        "hints": "a hint on a table",
        "system_time": "FOR SYSTEM_TIME",
        "format": "FORMAT",
        "pattern": "PATTERN",
        "ordinality": "WITH ORDINALITY",
        "when": "AT or BEFORE",
        "only": "ONLY",
        "partition": "PARTITION",
        "changes": "CHANGES",
        "rows_from": "ROWS FROM",
        "indexed": "INDEXED BY",
    },
    exp.TableSample: {
        "expressions": "this form of TABLESAMPLE",
        "method": "this form of TABLESAMPLE",
        "rows": "this form of TABLESAMPLE",
        "bucket_field": "ON in TABLESAMPLE",
    },
    exp.Join: {
        "global_": "GLOBAL JOIN",
        "hint": "a hint on a join",
        "match_condition": "MATCH_CONDITION",
        "nearest": "NEAREST",
        "directed": "DIRECTED",
        "expressions": "ARRAY JOIN",
        "pivots": "PIVOT here",
    },
    exp.Lateral: {"cross_apply": "APPLY", "ordinality": "WITH ORDINALITY"},
    exp.Window: {"first": "FIRST or LAST in OVER"},
    exp.WindowSpec: {"exclude": "EXCLUDE in a window's frame"},
    exp.Column: {"join_mark": "(+)", "shadow": "this form of a column"},
    exp.Identifier: {"global_": "a global name", "temporary": "a temporary name"},
    exp.Star: {"replace": "* REPLACE", "rename": "* RENAME", "ilike": "* ILIKE"},
    exp.HexString: {"is_integer": "this form of a number"},
    exp.CurrentDate: {"this": "an argument here"},
    exp.CurrentTimestamp: {"this": "an argument here", "sysdate": "SYSDATE"},
    exp.CurrentUser: {"this": "an argument here"},
    exp.Cast: _CAST,
    exp.TryCast: _TRY_CAST,
    exp.StrPosition: {"occurrence": "this form of POSITION", "clamp_position": "this form of POSITION"},
    exp.Substring: {"zero_start": "this form of SUBSTRING"},
    exp.Trim: {"collation": "COLLATE in TRIM"},
    exp.Exists: {"expression": "this form of EXISTS"},
    exp.Is: {"negate": "this form of IS"},
    exp.RegexpLike: {"flag": "this form of RLIKE", "full_match": "this form of RLIKE"},
    exp.BitwiseAnd: {"padside": "this form of &"},
    exp.BitwiseOr: {"padside": "this form of |"},
    exp.BitwiseXor: {"padside": "this form of ^"},
    exp.BitwiseLeftShift: {"requires_int128": "this form of <<"},
    exp.BitwiseRightShift: {"requires_int128": "this form of >>"},
    exp.Div: {"typed": "this form of /"},
    exp.Between: {"symmetric": "SYMMETRIC"},
    exp.In: {"unnest": "IN UNNEST", "field": "IN without parentheses", "is_global": "GLOBAL IN"},
    exp.Bracket: {
        "offset": "this form of [ ]",
        "safe": "this form of [ ]",
        "returns_list_for_maps": "this form of [ ]",
        "json_access": "this form of [ ]",
    },
    exp.Array: {"struct_name_inheritance": "this form of ARRAY", "value_constructor": "this form of ARRAY"},
    exp.DataType: {
        "values": "values of a type",
        "kind": "this form of a type",
        "nullable": "NULL or NOT NULL in a type",
        "collate": "COLLATE in a type",
    },
    exp.DataTypeParam: {"expression": "this form of a length"},
    exp.ColumnDef: {
        "constraints": "a constraint or COMMENT in a type",
        "exists": "IF NOT EXISTS in a type",
        "position": "FIRST or AFTER in a type",
        "default": "DEFAULT in a type",
        "output": "this form of a field",
    },
}
"""What SQL calls the arguments of listed classes that nothing acts on."""

CLASSES: Mapping[type[exp.Expr], str] = {
    exp.AtTimeZone: "AT TIME ZONE",
    exp.BitString: "a bit string",
    exp.ByteString: "a byte string",
    exp.JSONExtract: "a path with : or ->",
    exp.JSON: "IS JSON",
    exp.National: "a national string",
    exp.Slice: "a slice with :",
    exp.Struct: "a struct in braces",
    exp.Unnest: "UNNEST",
    exp.Xor: "XOR",
    exp.HavingMax: "HAVING MAX or HAVING MIN in a call",
}
"""What SQL calls classes that are not listed."""

MAY_BE_FALSE = frozenset(
    (
        *("typed", "ordinality", "percent", "with_ties", "symmetric", "struct_name_inheritance", "value_constructor"),
        *("is_integer", "offset"),
    )
)
"""Arguments that the parser sets to False when nothing was written; elsewhere False may be a word, such as LAST."""

WORDS: Mapping[tuple[type[exp.Expr], str], frozenset[object]] = {
    # False is GROUP BY DISTINCT
    (exp.Group, "all"): frozenset([True]),
    (exp.Window, "over"): frozenset(["OVER"]),
    (exp.WindowSpec, "kind"): frozenset(["ROWS", "RANGE"]),
    (exp.Trim, "position"): frozenset(["BOTH", "LEADING", "TRAILING"]),
    (exp.Join, "method"): frozenset(["NATURAL"]),
    (exp.Join, "side"): frozenset(["LEFT", "RIGHT", "FULL"]),
    (exp.Join, "kind"): frozenset(["INNER", "OUTER", "CROSS", "SEMI", "ANTI"]),
}
"""Values of listed arguments that are words; others are refused."""
