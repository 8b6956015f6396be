"""The expressions that a condition or a group key may be made of; all else is refused.

Each of them is a function of the row alone: no files, clocks, random numbers or other tables.
"""

from __future__ import annotations

from sqlglot import exp

from psephos.errors import SqlError
from psephos.workload.sql.explain import refuse

INTEGERS = frozenset({exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT})
FRACTIONS = frozenset({exp.DType.FLOAT, exp.DType.DOUBLE, exp.DType.DECIMAL})
TEXTS = frozenset({exp.DType.VARCHAR, exp.DType.TEXT, exp.DType.NVARCHAR})
OTHERS = frozenset(
    {
        exp.DType.BOOLEAN,
        exp.DType.DATE,
        exp.DType.DATETIME,
        exp.DType.DATETIME2,
        exp.DType.TIMESTAMP,
        exp.DType.TIMESTAMPNTZ,
    }
)
CASTS = INTEGERS | FRACTIONS | TEXTS | OTHERS
DATE_PARTS = frozenset({"YEAR", "QUARTER", "MONTH", "DAY"})

# fmt: off
OPERATORS = frozenset({
    exp.And, exp.Or, exp.Xor, exp.Not, exp.Paren,
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ,
    exp.Between, exp.In, exp.Is, exp.Like, exp.ILike, exp.Escape,
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.DPipe,
    exp.Case, exp.If,
})
LEAVES = frozenset({
    exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null,
    exp.Var, exp.DataType, exp.DataTypeParam,
})
FUNCTIONS = frozenset({
    exp.Cast, exp.TryCast, exp.Coalesce, exp.Nullif, exp.Lower, exp.Upper, exp.Trim,
    exp.Substring, exp.Left, exp.Right, exp.Length, exp.Concat,
    exp.Abs, exp.Floor, exp.Ceil, exp.Round, exp.Greatest, exp.Least,
    exp.Extract, exp.Year, exp.Quarter, exp.Month, exp.Day, exp.TsOrDsToDate,
})
# fmt: on
ALLOWED = OPERATORS | LEAVES | FUNCTIONS
NAMES = "COALESCE, NULLIF, LOWER, UPPER, TRIM, SUBSTRING, LEFT, RIGHT, LENGTH, CONCAT, ABS, FLOOR, "
NAMES += "CEIL, ROUND, GREATEST, LEAST, CAST, EXTRACT, YEAR, QUARTER, MONTH, DAY"


def check_allowed(expression: exp.Expr, sql: str) -> None:
    """Refuses an expression that holds anything but the nodes above.

    The exact type decides, so that a new subclass of an allowed node is not let in by accident.
    """
    for node in expression.walk():
        bare_word = isinstance(node, exp.Var) and not isinstance(node.parent, exp.Extract)
        if type(node) not in ALLOWED or bare_word:
            raise _refusal(node, sql)
        if isinstance(node, exp.Column) and (node.args.get("db") or node.args.get("join_mark")):
            raise refuse(
                f"{node.sql()} is more than a column", sql, node, f"{node.name}, without prefixes"
            )
        if isinstance(node, exp.In) and not (node.expressions or node.args.get("query")):
            raise refuse(
                "IN needs a list of values", sql, node, f"{node.this.sql()} IN (value, value, ...)"
            )
        if isinstance(node, exp.DataType):
            _check_type(node, sql)
        if isinstance(node, exp.Extract) and node.name.upper() not in DATE_PARTS:
            raise refuse(
                f"EXTRACT({node.name} ...) is not supported", sql, node, "EXTRACT(YEAR FROM date)"
            )
        if isinstance(node, exp.Cast) and (node.args.get("format") or node.args.get("default")):
            raise refuse("CAST with a format is not supported", sql, node, "CAST(column AS type)")


def _check_type(node: exp.DataType, sql: str) -> None:
    sized = bool(node.expressions) and node.this != exp.DType.DECIMAL
    if node.this not in CASTS or node.args.get("nested") or sized:
        # VARCHAR(3) cuts text in some dialects and not in others, so it has no single meaning.
        shown = node.args.get("kind") or node.sql()
        remedy = "SUBSTRING(column, 1, n)" if sized else "INT, DOUBLE, VARCHAR, BOOLEAN or DATE"
        raise refuse(f"CAST to {shown} is not supported", sql, node.parent or node, remedy)


def _refusal(node: exp.Expr, sql: str) -> SqlError:
    """Why this node cannot be part of a condition or a group key."""
    if isinstance(node, exp.Subquery | exp.Select | exp.Exists | exp.SetOperation):
        return refuse(
            "a sub-query looks at other rows, and a count must be decided by each row alone",
            sql,
            node,
            "a list of values, IN ('a', 'b')",
        )
    if isinstance(node, exp.Placeholder | exp.Parameter | exp.SessionParameter):
        return refuse("a parameter has no value here", sql, node, "the value in its place")
    if isinstance(node, exp.Window):
        return refuse("a window function looks at other rows", sql, node, "GROUP BY the column")
    if isinstance(node, exp.AggFunc):
        return refuse(
            f"{node.sql_name()} is an aggregate and cannot be part of a condition or a group key",
            sql,
            node,
            "a condition on the columns of one row",
        )
    if isinstance(node, exp.Func):
        name = node.name if isinstance(node, exp.Anonymous) else node.sql_name()
        return refuse(f"the function {name.upper()} is not allowed", sql, node, f"one of {NAMES}")
    return refuse(
        f"{node.sql(comments=False)} ({node.key}) is not part of a counting query",
        sql,
        node,
        "comparisons, IN, BETWEEN, LIKE, IS NULL, AND, OR, NOT, CASE and + - * / %",
    )
