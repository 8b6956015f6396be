"""Refusals that point at the place: the reason, the line of SQL underlined, what to write."""

from __future__ import annotations

import re
from typing import TypeAlias

from sqlglot import exp
from sqlglot.errors import ParseError, SqlglotError

from psephos.errors import SqlError

Place: TypeAlias = exp.Expr | str


def refuse(reason: str, sql: str, place: Place, remedy: str) -> SqlError:
    """The error to raise: `place` is a node of the statement, or a word to look for in it.

    >>> print(refuse("no column 'agee'", "SELECT agee FROM t", "agee", "age"))
    no column 'agee'
      SELECT agee FROM t
             ^^^^
    write: age
    """
    start, end = span(sql, place)
    return _underlined(reason, sql, start, end, remedy)


def span(sql: str, place: Place) -> tuple[int, int]:
    """Where a node or a word stands in the statement, as start and end offsets.

    Nodes without a position of their own (NULL, an AND) borrow those of their parts; what cannot
    be found at all is the whole statement.
    """
    if isinstance(place, exp.Expr):
        # A function's own position is its name, which says enough.
        own = [place] if "start" in place.meta else place.walk()
        marks = [node.meta for node in own if "start" in node.meta]
        if marks:
            return min(m["start"] for m in marks), max(m["end"] for m in marks) + 1
        place = place.sql(comments=False)
    word = re.search(rf"(?<!\w){re.escape(place)}(?!\w)", sql, flags=re.IGNORECASE)
    return word.span() if place and word else (0, len(sql))


def unreadable(error: SqlglotError, sql: str, dialect: str) -> SqlError:
    """The parser's complaint, in words."""
    remedy = "SELECT ..., COUNT(*) FROM t WHERE ... GROUP BY ..., or name the SQL dialect="
    found = error.errors[0] if isinstance(error, ParseError) and error.errors else None
    if not found or found.get("line") is None:
        # The tokenizer gives up where a quotation mark or a comment is left open.
        text = f"this is not {dialect} SQL: a quotation mark or a comment is never closed"
        opened = max(sql.rfind("'"), sql.rfind('"'), sql.rfind("`"), sql.rfind("/*"), 0)
        return _underlined(text, sql, opened, opened + 1, remedy)
    token = found.get("highlight") or ""
    before = sum(len(line) + 1 for line in sql.split("\n")[: found["line"] - 1])
    start = max(before + found["col"] - len(token), 0)
    reason = f"this is not {dialect} SQL: {token!r} cannot stand here"
    if "missing" in (found.get("description") or ""):
        reason = f"this is not {dialect} SQL: something is missing after {token!r}"
    return _underlined(reason, sql, start, start + len(token), remedy)


def _underlined(reason: str, sql: str, start: int, end: int, remedy: str) -> SqlError:
    line_start = sql.rfind("\n", 0, start) + 1
    line_end = sql.find("\n", start)
    line = sql[line_start : line_end if line_end >= 0 else len(sql)].rstrip()
    # Tabs stay tabs, so that the marks stand under the token however wide a tab is shown.
    indent = re.sub(r"[^\t]", " ", sql[line_start:start])
    marks = "^" * max(min(end, line_start + len(line)) - start, 1)
    message = f"{reason}\n  {line}\n  {indent}{marks}\nwrite: {remedy}"
    return SqlError(message, sql, start, end)
