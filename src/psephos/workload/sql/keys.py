"""Group keys: positions, aliases and expressions, and whether SELECT shows nothing but them."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from psephos.workload.sql.allowed import check_allowed
from psephos.workload.sql.columns import Columns
from psephos.workload.sql.counts import is_count
from psephos.workload.sql.explain import refuse


@dataclass(frozen=True)
class Key:
    """An expression to group by, and what to call it."""

    name: str
    expression: exp.Expr


def key_of(
    expression: exp.Expr,
    select: exp.Select,
    named: dict[str, exp.Expr],
    sql: str,
    dialect: str,
    columns: Columns,
) -> Key:
    """The key that a position, an alias or an expression of GROUP BY stands for."""
    place = expression
    if isinstance(expression, exp.Literal) and not expression.is_string:
        number = int(expression.name) if expression.name.isdigit() else 0
        items = select.expressions
        if not 1 <= number <= len(items) or is_count(items[number - 1]):
            raise refuse(
                f"GROUP BY {expression.name} is not the position of a column in SELECT",
                sql,
                expression,
                "the name of a column",
            )
        expression = items[number - 1].unalias()
    elif isinstance(expression, exp.Column) and not expression.table:
        alias = _aliased(expression, named)
        quoted = bool(expression.this.args.get("quoted"))
        if alias is not None and wording(alias, dialect).casefold() != expression.name.casefold():
            if columns.named(expression.name, quoted):
                raise refuse(
                    f"{expression.name!r} is both a column and an alias, and dialects differ in "
                    "which of them GROUP BY means",
                    sql,
                    expression,
                    "another alias",
                )
            expression = alias
    check_allowed(expression, sql)
    if expression.find(exp.Column) is None:
        raise refuse("this key names no column", sql, place, "GROUP BY a column")
    names = [name for name, item in named.items() if item == expression]
    return Key(names[0] if names else wording(expression, dialect), expression)


def check_selected(
    shown: tuple[exp.Expr, ...], sets: tuple[tuple[Key, ...], ...], sql: str, dialect: str
) -> None:
    """Every column of the SELECT list must be grouped by; constants and GROUPING() are let be."""
    keys = {wording(key.expression, dialect).casefold() for keys in sets for key in keys}
    for item in shown:
        node = item.unalias()
        if isinstance(node, exp.Grouping | exp.GroupingId):
            continue
        check_allowed(node, sql)
        if node.find(exp.Column) is None:
            continue
        text = wording(node, dialect)
        if text.casefold() not in keys:
            raise refuse(f"{text} is selected but not grouped by", sql, node, f"GROUP BY {text}")


def wording(expression: exp.Expr, dialect: str) -> str:
    """The expression in the words of its dialect, without table names and comments."""
    plain = exp.Paren(this=expression.copy())
    for column in plain.find_all(exp.Column):
        column.set("table", None)
    for negation in list(plain.find_all(exp.Not)):
        test = negation.this
        if isinstance(test, exp.Is) and isinstance(test.expression, exp.Null):
            # sqlglot would write NOT x IS NULL.
            negation.replace(exp.Is(this=test.this, expression=exp.Not(this=exp.Null())))
    found = plain.this
    return (
        found.name
        if isinstance(found, exp.Column)
        else found.sql(dialect, comments=False, copy=False)
    )


def _aliased(column: exp.Column, named: dict[str, exp.Expr]) -> exp.Expr | None:
    """The expression that SELECT gave this name to."""
    found = [item for name, item in named.items() if name.casefold() == column.name.casefold()]
    return found[0] if found else None


def check_aliases(
    condition: exp.Expr, named: dict[str, exp.Expr], sql: str, columns: Columns
) -> None:
    """Refuses a condition on an alias, which some dialects know and others do not."""
    for column in condition.find_all(exp.Column):
        alias = _aliased(column, named)
        if alias is not None and not columns.named(column.name, quoted=False):
            raise refuse(
                f"{column.name!r} is an alias, and SELECT comes after conditions are decided",
                sql,
                column,
                alias.sql(comments=False),
            )
