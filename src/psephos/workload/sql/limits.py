"""How long and how deep a statement may be: what the parser and DuckDB surely follow."""

from __future__ import annotations

from collections.abc import Iterable

from sqlglot import Token, TokenType, exp

from psephos.errors import SqlError

LENGTH = 2_000_000
"""Characters of one text of SQL."""
PARENTHESES = 20
"""Levels of parentheses; the parser spends some 30 calls on each, of the 1,000 Python allows."""
OPERATORS = 100
"""Levels of operators, functions and CASE; AND and OR in a row are one level, however many."""


def check_length(text: str) -> None:
    """Refuses a text that would take minutes to read."""
    if len(text) > LENGTH:
        raise SqlError(
            f"this text of SQL has {len(text):,} characters, over the limit of {LENGTH:,}; write "
            "ranges (BETWEEN), or declare a level of the column and name its groups"
        )


def check_parentheses(tokens: Iterable[Token], sql: str) -> None:
    """Refuses parentheses that are nested deeper than the parser can follow."""
    depth = 0
    for token in tokens:
        if token.token_type == TokenType.L_PAREN:
            depth += 1
        elif token.token_type == TokenType.R_PAREN:
            depth -= 1
        if depth > PARENTHESES:
            raise too_deep(sql)


def check_depth(tree: exp.Expr, sql: str) -> None:
    """Refuses operators, functions and CASE nested deeper than can be written out again."""
    stack = [(tree, 0)]
    while stack:
        node, depth = stack.pop()
        if depth > OPERATORS:
            raise too_deep(sql)
        for child in node.iter_expressions():
            in_a_row = isinstance(node, exp.And | exp.Or) and type(child) is type(node)
            stack.append((child, depth if in_a_row else depth + 1))


def too_deep(sql: str = "") -> SqlError:
    """The refusal of a statement that is nested too deeply."""
    return SqlError(
        f"this statement is nested too deeply: at most {PARENTHESES} levels of parentheses and "
        f"{OPERATORS} of operators, functions and CASE are read (a OR b OR c is one level); write "
        "it flatter, with OR and AND side by side, IN lists or one CASE of many WHEN",
        sql,
    )
