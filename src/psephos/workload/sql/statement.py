"""Statements as data: what they count, under which conditions, grouped by which keys."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from sqlglot import TokenType, exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from psephos.errors import SqlError
from psephos.workload.sql.aggregates import Count, read_aggregate
from psephos.workload.sql.clauses import (
    Conditions,
    Key,
    check_aliases,
    check_selected,
    conjuncts,
    group_key,
    grouping_sets,
    is_count,
)
from psephos.workload.sql.columns import ColumnNames
from psephos.workload.sql.refusals import (
    check_allowed,
    check_depth,
    check_length,
    check_parentheses,
    refuse,
    unreadable,
)

FIRST_GROUPS = (
    "which groups come first depends on the true counts, which are private",
    "the query without it; every group is answered",
)
# Clauses that a counting query may not have: the words they are known by, the reason, the remedy.
REFUSED_CLAUSES: dict[str, tuple[str, str, str]] = {
    "having": (
        "HAVING",
        "HAVING chooses groups by their true counts, which are private",
        "the query without HAVING, and choose among its answers",
    ),
    "limit": ("LIMIT TOP FETCH", *FIRST_GROUPS),
    "offset": ("OFFSET", *FIRST_GROUPS),
    "distinct": ("DISTINCT", "DISTINCT does nothing here: each group comes once", "SELECT alone"),
    "joins": (
        "",
        "a join is not supported, because the domain describes the rows of one table",
        "FROM one table; join beforehand and mind how often a person then appears",
    ),
    "with_": ("WITH", "WITH is not supported", "one SELECT over the table itself"),
    "qualify": ("QUALIFY", "QUALIFY looks at other rows", "a condition in WHERE"),
}
ALLOWED_CLAUSES = frozenset({"expressions", "from_", "where", "group", "order"})


@dataclass(frozen=True)
class Statement:
    """One counting query; `tables` are the names that may stand before a column's dot."""

    sql: str
    dialect: str
    table: str
    tables: frozenset[str]
    conditions: Conditions
    counts: tuple[Count, ...]
    sets: tuple[tuple[Key, ...], ...]


def read_statements(text: str, dialect: str, columns: ColumnNames) -> Iterator[Statement]:
    """The counting queries of a text, between semicolons."""
    try:
        reader = Dialect.get_or_raise(dialect)
    except ValueError as error:
        raise SqlError(f"{error}; dialect= takes a name that sqlglot knows") from None
    check_length(text)
    try:
        tokens = reader.tokenize(text)
    except SqlglotError as error:
        raise unreadable(error, text, dialect) from None
    ends = [i for i, token in enumerate(tokens) if token.token_type == TokenType.SEMICOLON]
    for first, end in zip([0, *(i + 1 for i in ends)], [*ends, len(tokens)], strict=True):
        if first < end:
            sql = text[tokens[first].start : tokens[end - 1].end + 1]
            check_parentheses(tokens[first:end], sql)
            yield _statement(_parse(sql, reader, dialect, columns), sql, dialect, columns)


def _parse(sql: str, reader: Dialect, dialect: str, columns: ColumnNames) -> exp.Select:
    word = re.match(r"\W|\w+", sql)
    head = word.group() if word else sql
    if head.upper() not in ("SELECT", "WITH", "FROM", "("):
        raise refuse(
            f"only SELECT is read here, and {head.upper()} is not",
            sql,
            head,
            "SELECT ..., COUNT(*) FROM ... GROUP BY ...",
        )
    try:
        tree = reader.parser().parse(reader.tokenize(sql), sql)[0]
    except SqlglotError as error:
        tree = _with_columns_named_as_keywords(sql, reader, columns)
        if tree is None:
            raise unreadable(error, sql, dialect) from None
    if tree is not None:
        check_depth(tree, sql)
    if isinstance(tree, exp.SetOperation):
        raise refuse(
            f"{tree.key.upper()} of queries is not supported",
            sql,
            tree.key,
            "each SELECT as a statement of its own; a workload holds them all",
        )
    if not isinstance(tree, exp.Select):
        raise refuse("this is not a plain SELECT", sql, head, "SELECT COUNT(*) FROM ...")
    for national in list(tree.find_all(exp.National)):
        # sqlglot holds N'a' and N'A' for equal; as plain text they are not.
        plain = exp.Literal.string(national.name)
        plain.update_positions(national)
        national.replace(plain)
    return tree


def _with_columns_named_as_keywords(
    sql: str, reader: Dialect, columns: ColumnNames
) -> exp.Expr | None:
    """A statement in which columns such as `union` stand without quotes; None if it is not one."""
    tokens = reader.tokenize(sql)
    for token in tokens:
        keyword = token.token_type not in (TokenType.VAR, TokenType.STRING, TokenType.NUMBER)
        if keyword and columns.sources(token.text, quoted=True):
            token.token_type = TokenType.IDENTIFIER
    try:
        return reader.parser().parse(tokens, sql)[0]
    except SqlglotError:
        return None


def _statement(select: exp.Select, sql: str, dialect: str, columns: ColumnNames) -> Statement:
    _check_clauses(select, sql)
    table = _table(select, sql)
    where = select.args.get("where")
    counts = [item for item in select.expressions if is_count(item)]
    if not counts:
        raise refuse(
            "this query counts nothing", sql, "SELECT", "SELECT ..., COUNT(*) FROM ... GROUP BY ..."
        )
    shown = tuple(item for item in select.expressions if not is_count(item))
    aliases = {item.alias: item.unalias() for item in shown if item.alias}
    selected = tuple(item.unalias() for item in shown if item.find(exp.Column))

    def key(expression: exp.Expr) -> Key:
        return group_key(expression, select, aliases, sql, dialect, columns)

    sets = grouping_sets(select.args.get("group"), selected, sql)
    key_sets = tuple(tuple(key(expression) for expression in keys) for keys in sets)
    check_selected(shown, key_sets, sql, dialect)
    statement = Statement(
        sql=sql,
        dialect=dialect,
        table=table.name,
        tables=frozenset({table.alias_or_name.casefold()}),
        conditions=conjuncts(where.this if where else None),
        counts=tuple(read_aggregate(item, sql, dialect) for item in counts),
        sets=key_sets,
    )
    for count in statement.counts:
        for condition in (*statement.conditions, *count.conditions):
            check_allowed(condition, sql)
            check_aliases(condition, aliases, sql, columns)
    return statement


def _check_clauses(select: exp.Select, sql: str) -> None:
    for clause, content in select.args.items():
        if clause in ALLOWED_CLAUSES or not content:
            continue
        name = clause.strip("_").upper()
        words, reason, remedy = REFUSED_CLAUSES.get(
            clause, (name, f"{name} is not part of a counting query", "the query without it")
        )
        parts = content if isinstance(content, list) else [content]
        place = parts[0] if isinstance(parts[0], exp.Expr) else "SELECT"
        present = [word for word in words.split() if re.search(rf"\b{word}\b", sql, re.IGNORECASE)]
        raise refuse(reason, sql, present[0] if present else place, remedy)


def _table(select: exp.Select, sql: str) -> exp.Table:
    source = select.args.get("from_")
    if source is None:
        raise refuse("FROM is missing", sql, "SELECT", "SELECT COUNT(*) FROM the_table")
    table: exp.Table = source.this
    plain = isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier)
    if plain:
        start = table.this.meta.get("start")
        # DuckDB reads FROM 'people.csv' as a file; here FROM is a name and nothing is opened.
        plain = start is None or sql[start] != "'"
    if not plain:
        raise refuse(
            "FROM takes the name of the table; files, functions and sub-queries are not read",
            sql,
            table,
            "FROM the_table",
        )
    extra = [k for k, v in table.args.items() if v and k not in ("this", "db", "catalog", "alias")]
    alias = table.args.get("alias")
    if extra or (alias is not None and alias.args.get("columns")):
        what = extra[0].upper() if extra else "a list of column names"
        raise refuse(f"{what} after the table is not supported", sql, table, "FROM the_table")
    return table
