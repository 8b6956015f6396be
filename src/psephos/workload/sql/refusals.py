"""What a statement may hold, and the errors that say what it may not.

An error points at the place: the reason, the line of SQL underlined, what to write. Texts and
nesting are limited to what the parser and DuckDB surely follow. Conditions and group keys are
functions of the row alone: no files, clocks, random numbers or other tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeAlias

from sqlglot import Token, TokenType, exp
from sqlglot.errors import ParseError, SqlglotError

from psephos.errors import SqlError

SqlPlace: TypeAlias = exp.Expr | str
"""A node of a statement, or a word to look for in it."""

LENGTH = 2_000_000
"""The most characters of one text of SQL."""
PARENTHESES = 20
"""Levels of parentheses; the parser spends some 30 calls on each, of the 1,000 Python allows."""
NESTING = 100
"""Levels of operators, functions and CASE; AND and OR in a row are one level, however many."""

INTEGER_TYPES = frozenset({exp.DType.TINYINT, exp.DType.SMALLINT, exp.DType.INT, exp.DType.BIGINT})
FRACTION_TYPES = frozenset({exp.DType.FLOAT, exp.DType.DOUBLE, exp.DType.DECIMAL})
TEXT_TYPES = frozenset({exp.DType.VARCHAR, exp.DType.TEXT, exp.DType.NVARCHAR})
# fmt: off
OTHER_TYPES = frozenset({
    exp.DType.BOOLEAN, exp.DType.DATE, exp.DType.DATETIME, exp.DType.DATETIME2,
    exp.DType.TIMESTAMP, exp.DType.TIMESTAMPNTZ,
})
CAST_TYPES = INTEGER_TYPES | FRACTION_TYPES | TEXT_TYPES | OTHER_TYPES
DATE_PARTS = frozenset({"YEAR", "QUARTER", "MONTH", "DAY"})

OPERATOR_NODES = frozenset({
    exp.And, exp.Or, exp.Xor, exp.Not, exp.Paren,
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ,
    exp.Between, exp.In, exp.Is, exp.Like, exp.ILike, exp.Escape,
    exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.Neg, exp.DPipe,
    exp.Case, exp.If,
})
LEAF_NODES = frozenset({
    exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Null,
    exp.Var, exp.DataType, exp.DataTypeParam,
})
FUNCTION_NODES = frozenset({
    exp.Cast, exp.TryCast, exp.Coalesce, exp.Nullif, exp.Lower, exp.Upper, exp.Trim,
    exp.Substring, exp.Left, exp.Right, exp.Length, exp.Concat,
    exp.Abs, exp.Floor, exp.Ceil, exp.Round, exp.Greatest, exp.Least,
    exp.Extract, exp.Year, exp.Quarter, exp.Month, exp.Day, exp.TsOrDsToDate,
    exp.TimestampTrunc, exp.DateTrunc,
})
# fmt: on
ALLOWED_NODES = OPERATOR_NODES | LEAF_NODES | FUNCTION_NODES
FUNCTION_NAMES = (
    "COALESCE, NULLIF, LOWER, UPPER, TRIM, SUBSTRING, LEFT, RIGHT, LENGTH, CONCAT, ABS, FLOOR, "
    "CEIL, ROUND, GREATEST, LEAST, CAST, EXTRACT, YEAR, QUARTER, MONTH, DAY, DATE_TRUNC"
)


def refuse(reason: str, sql: str, place: SqlPlace, remedy: str) -> SqlError:
    """The error to raise: `place` is a node of the statement, or a word to look for in it.

    >>> print(refuse("no column 'agee'", "SELECT agee FROM t", "agee", "age"))
    no column 'agee'
      SELECT agee FROM t
             ^^^^
    write: age
    """
    start, end = span(sql, place)
    return _underlined(reason, sql, start, end, remedy)


def unreadable(error: SqlglotError, sql: str, dialect: str) -> SqlError:
    """The error of a text that the parser cannot read, in words."""
    remedy = "SELECT ..., COUNT(*) FROM t WHERE ... GROUP BY ..., or name the SQL dialect="
    report = error.errors[0] if isinstance(error, ParseError) and error.errors else None
    if not report or report.get("line") is None:
        # The tokenizer gives up where a quotation mark or a comment is left open.
        text = f"this is not {dialect} SQL: a quotation mark or a comment is never closed"
        start = max(sql.rfind("'"), sql.rfind('"'), sql.rfind("`"), sql.rfind("/*"), 0)
        return _underlined(text, sql, start, start + 1, remedy)
    token = report.get("highlight") or ""
    before = sum(len(line) + 1 for line in sql.split("\n")[: report["line"] - 1])
    start = max(before + report["col"] - len(token), 0)
    reason = f"this is not {dialect} SQL: {token!r} cannot stand here"
    if "missing" in (report.get("description") or ""):
        reason = f"this is not {dialect} SQL: something is missing after {token!r}"
    return _underlined(reason, sql, start, start + len(token), remedy)


def too_deep(sql: str = "") -> SqlError:
    """The refusal of a statement that is nested too deeply."""
    return SqlError(
        f"this statement is nested too deeply: at most {PARENTHESES} levels of parentheses and "
        f"{NESTING} of operators, functions and CASE are read (a OR b OR c is one level); write "
        "it flatter, with OR and AND side by side, IN lists or one CASE of many WHEN",
        sql,
    )


def check_length(text: str) -> None:
    """Refuse a text that would take minutes to read."""
    if len(text) > LENGTH:
        raise SqlError(
            f"this text of SQL has {len(text):,} characters, over the limit of {LENGTH:,}; write "
            "ranges (BETWEEN), or declare a level of the column and name its groups"
        )


def check_parentheses(tokens: Iterable[Token], sql: str) -> None:
    """Refuse parentheses that are nested deeper than the parser can follow."""
    depth = 0
    for token in tokens:
        if token.token_type == TokenType.L_PAREN:
            depth += 1
        elif token.token_type == TokenType.R_PAREN:
            depth -= 1
        if depth > PARENTHESES:
            raise too_deep(sql)


def check_depth(tree: exp.Expr, sql: str) -> None:
    """Refuse operators, functions and CASE nested deeper than can be written out again."""
    stack = [(tree, 0)]
    while stack:
        node, depth = stack.pop()
        if depth > NESTING:
            raise too_deep(sql)
        for child in node.iter_expressions():
            in_a_row = isinstance(node, exp.And | exp.Or) and type(child) is type(node)
            stack.append((child, depth if in_a_row else depth + 1))


def check_allowed(expression: exp.Expr, sql: str) -> None:
    """Refuse an expression that holds anything but the nodes of ALLOWED_NODES.

    The exact type decides, so that a new subclass of an allowed node is not let in by accident.
    """
    for node in expression.walk():
        parts = exp.Extract | exp.TimestampTrunc
        bare_word = isinstance(node, exp.Var) and not isinstance(node.parent, parts)
        if type(node) not in ALLOWED_NODES or bare_word:
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
        if isinstance(node, exp.TimestampTrunc | exp.DateTrunc):
            _check_period(node, sql)
        if isinstance(node, exp.Cast) and (node.args.get("format") or node.args.get("default")):
            raise refuse("CAST with a format is not supported", sql, node, "CAST(column AS type)")


def _check_period(node: exp.Expr, sql: str) -> None:
    """Refuse periods of DATE_TRUNC but these; weeks begin on Monday, where the dialect says so."""
    unit = node.args.get("unit")
    period = unit.name.upper() if isinstance(unit, exp.Var | exp.Literal) else ""
    weeks = {"WEEK"} if isinstance(node, exp.TimestampTrunc) else set()
    if period not in DATE_PARTS | weeks or node.args.get("zone"):
        raise refuse(
            "DATE_TRUNC takes 'year', 'quarter', 'month' or 'day', and 'week' where weeks begin on "
            "Monday",
            sql,
            node,
            "DATE_TRUNC('month', date), or a level of the column",
        )


def span(sql: str, place: SqlPlace) -> tuple[int, int]:
    """Start and end offsets of a node or a word in the statement.

    Nodes without a position (NULL, an AND) have that of their parts; a place that is nowhere to
    be seen is the whole statement.
    """
    if isinstance(place, exp.Expr):
        # A function's position is that of its name, which says enough.
        nodes = [place] if "start" in place.meta else place.walk()
        marks = [node.meta for node in nodes if "start" in node.meta]
        if marks:
            return min(m["start"] for m in marks), max(m["end"] for m in marks) + 1
        place = place.sql(comments=False)
    word = re.search(rf"(?<!\w){re.escape(place)}(?!\w)", sql, flags=re.IGNORECASE)
    return word.span() if place and word else (0, len(sql))


def _underlined(reason: str, sql: str, start: int, end: int, remedy: str) -> SqlError:
    line_start = sql.rfind("\n", 0, start) + 1
    line_end = sql.find("\n", start)
    line = sql[line_start : line_end if line_end >= 0 else len(sql)].rstrip()
    # Tabs stay tabs, so that the marks stand under the token however wide a tab is shown.
    indent = re.sub(r"[^\t]", " ", sql[line_start:start])
    marks = "^" * max(min(end, line_start + len(line)) - start, 1)
    message = f"{reason}\n  {line}\n  {indent}{marks}\nwrite: {remedy}"
    return SqlError(message, sql, start, end)


def _check_type(node: exp.DataType, sql: str) -> None:
    sized = bool(node.expressions) and node.this != exp.DType.DECIMAL
    if node.this not in CAST_TYPES or node.args.get("nested") or sized:
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
        return refuse(
            f"the function {name.upper()} is not allowed", sql, node, f"one of {FUNCTION_NAMES}"
        )
    return refuse(
        f"{node.sql(comments=False)} ({node.key}) is not part of a counting query",
        sql,
        node,
        "comparisons, IN, BETWEEN, LIKE, IS NULL, AND, OR, NOT, CASE and + - * / %",
    )
