"""COUNT(DISTINCT person): the grouping and the conditions of a statement that counts persons."""

from __future__ import annotations

from dataclasses import dataclass

import sqlglot
from sqlglot import exp

from psephos.domain.domain import Domain
from psephos.errors import SqlError
from psephos.workload.sql.compiler import TablePiece, read_sql

PERSONS_EXAMPLE = "SELECT region, COUNT(DISTINCT id) FROM people WHERE age > 17 GROUP BY region"


@dataclass(frozen=True)
class PersonsStatement:
    """What a statement groups persons by, and the conditions on their rows."""

    by: tuple[tuple[str, str | None], ...]
    """Attributes, each with the level at which it is taken, if it is one."""
    conditions: tuple[TablePiece, ...]


def read_persons(
    domain: Domain, sql: str, person: str, dialect: str | None = None
) -> PersonsStatement:
    """The grouping and conditions of `SELECT keys, COUNT(DISTINCT person) … GROUP BY keys`.

    >>> domain = Domain.of(sex=["F", "M"], age=range(100))
    >>> text = "SELECT sex, COUNT(DISTINCT id) FROM visits WHERE age > 64 GROUP BY sex"
    >>> statement = read_persons(domain, text, "id")
    >>> statement.by, [piece.axes for piece in statement.conditions]
    ((('sex', None),), [('age',)])
    """
    try:
        tree = sqlglot.parse_one(sql, dialect=dialect or "duckdb")
    except (sqlglot.errors.SqlglotError, RecursionError, ValueError):
        raise SqlError(f"this is no statement that can be read; write: {PERSONS_EXAMPLE}") from None
    counts = [count for count in tree.find_all(exp.Count) if isinstance(count.this, exp.Distinct)]
    keys = [key for count in counts for key in count.this.expressions]
    same = [isinstance(key, exp.Column) and key.name.lower() == person.lower() for key in keys]
    if len(counts) != 1 or same != [True]:
        raise SqlError(
            f"persons are counted by one COUNT(DISTINCT {person}), the column that names them; "
            f"write: {PERSONS_EXAMPLE.replace('id', person)}"
        )
    counts[0].replace(exp.Count(this=exp.Star()))
    rows = tree.sql(dialect=dialect or "duckdb")
    tables = read_sql(domain, rows, dialect=dialect)
    if len(tables) != 1:
        raise SqlError(
            f"the statement asks for {len(tables)} groupings, and counts of persons do not add up; "
            "ask for each in a table of its own"
        )
    (table,) = tables
    for key in table.keys:
        if len(key.axes) != 1 or key.codes is not None:
            raise SqlError(
                f"persons are grouped by columns and their levels, and {key.texts[0]!r} is "
                "neither; declare it as a level of the column"
            )
    if any(not piece.axes for piece in table.conditions):
        raise SqlError("a condition looks at no column; leave it out")
    return PersonsStatement(tuple((k.axes[0], k.level) for k in table.keys), table.conditions)
