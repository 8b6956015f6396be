"""Expressions over columns, rewritten as DuckDB's expressions over declared values.

No name of the schema enters the text: columns are numbered, numbers that a binned column is
compared with become ranks, and long alternatives become lists, so that a = 1 OR a = 2 OR b = 3 is
a IN (1, 2) OR b = 3.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from functools import reduce
from typing import Any, TypeAlias

from sqlglot import ErrorLevel, exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types

from psephos.domain.attribute import Attribute
from psephos.domain.values import OTHER
from psephos.workload.sql.columns import ColumnNames, ColumnSource
from psephos.workload.sql.declared_values import Ranks, compared_numbers, number_of
from psephos.workload.sql.refusals import FRACTION_TYPES, INTEGER_TYPES, refuse
from psephos.workload.sql.statement import Statement

ConnectorType: TypeAlias = type[exp.Or] | type[exp.And]
EqualityType: TypeAlias = type[exp.EQ] | type[exp.NEQ]

# fmt: off
NULL_TESTS = (
    exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Coalesce, exp.Concat, exp.Greatest, exp.Least,
)
# fmt: on
"""Expressions that tell NULL from values."""


@dataclass(frozen=True)
class BoundExpression:
    """An expression as DuckDB's text over a table t, and what each column of t stands for.

    `axes` are the attributes that decide it, in the domain's order; `ranks` stand for the values
    of those that are binned.
    """

    text: str
    axes: tuple[str, ...]
    columns: dict[str, ColumnSource]
    ranks: dict[str, Ranks]


def bind(expression: exp.Expr, statement: Statement, columns: ColumnNames) -> BoundExpression:
    """The expression over numbered columns; what declared values cannot decide is refused."""
    root = exp.Paren(this=expression.copy())
    names: dict[ColumnSource, str] = {}
    numbers: dict[str, list[exp.Expr]] = {}
    clear: set[int] = set()
    for column in list(root.find_all(exp.Column)):
        source = columns.resolve(column, statement.sql, statement.tables)
        attribute = columns.attribute(source)
        if source.level is None and attribute.unknown == "other":
            _check_null_tests(source.name, column, statement, clear)
        if source.level is None and attribute.edges is not None:
            nodes = compared_numbers(column, source.name, statement.sql)
            numbers.setdefault(source.name, []).extend(nodes)
        if source not in names:
            if not source_type(source, columns):
                raise _undecidable(source.name, attribute, column, statement)
            names[source] = _column_name(source, columns)
        column.replace(exp.column(names[source], table="t"))
    ranks: dict[str, Ranks] = {}
    for binned, nodes in numbers.items():
        values = [number_of(node) or 0 for node in nodes]
        ranks[binned] = Ranks.of(columns.domain[binned], values)
        for node, value in zip(nodes, values, strict=True):
            rank = exp.Literal.number(ranks[binned].of_number(value))
            if isinstance(node, exp.Literal):
                node.set("this", rank.this)  # replacing it would look through all of a long IN
            else:
                node.replace(rank)
    sources = {name: source for source, name in names.items()}
    attributes = {source.name for source in names}
    axes = tuple(name for name in columns.domain.names if name in attributes)
    types = {name: source_type(source, columns) for name, source in sources.items()}
    return BoundExpression(_duckdb(root, types, expression, statement), axes, sources, ranks)


def column_type(values: Sequence[Any]) -> str | None:
    """DuckDB's type for declared values, or None where they have no single one."""
    if isinstance(values, range):
        return "BIGINT"
    values = [value for value in values if value is not OTHER]
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int} and any(value is not None and abs(value) >= 2**63 for value in values):
        return None
    if any(isinstance(value, datetime) and value.tzinfo is not None for value in values):
        return None
    names = {int: "BIGINT", str: "VARCHAR", bool: "BOOLEAN", date: "DATE", datetime: "TIMESTAMP"}
    if kinds and kinds <= {int, float}:
        return "BIGINT" if kinds == {int} else "DOUBLE"
    return names.get(kinds.pop()) if len(kinds) == 1 else None


def source_type(source: ColumnSource, columns: ColumnNames) -> str:
    """The type of a source's column, or "": ranks are whole numbers and levels are text."""
    attribute = columns.attribute(source)
    if source.level is not None:
        return "VARCHAR"
    return "BIGINT" if attribute.edges is not None else column_type(attribute.values) or ""


def list_values(root: exp.Expr, types: Mapping[str, str]) -> None:
    """Rewrite a = 1 OR a = 2 as IN, and a <> 1 AND a <> 2 as NOT IN, below the root.

    A list is looked up once, however long; where a is NULL, both forms are. Only whole numbers
    for a column of whole numbers and texts for one of texts are listed, so that no type changes.

    >>> import sqlglot
    >>> tree = sqlglot.parse_one("SELECT a = 1 OR b < 2 OR a = 3")
    >>> list_values(tree, {"a": "BIGINT", "b": "BIGINT"})
    >>> tree.sql()
    'SELECT (a IN (1, 3) OR b < 2)'
    """
    pairs: tuple[tuple[ConnectorType, EqualityType], ...] = ((exp.Or, exp.EQ), (exp.And, exp.NEQ))
    for connector, comparison in pairs:
        tops = [n for n in root.find_all(connector) if not isinstance(n.parent, connector)]
        for top in tops:
            _list_parts(top, connector, comparison, types)


def _list_parts(
    top: exp.Expr, connector: ConnectorType, comparison: EqualityType, types: Mapping[str, str]
) -> None:
    lists: dict[str, exp.In] = {}
    parts: list[exp.Expr] = []
    comparisons = 0
    for part in top.flatten(unnest=False):
        inner = part.unnest()
        if not isinstance(inner, comparison) or not _is_plain(inner, types):
            parts.append(part)
            continue
        comparisons += 1
        if inner.left.name not in lists:
            listed = lists[inner.left.name] = exp.In(this=inner.left, expressions=[])
            parts.append(listed if connector is exp.Or else exp.Not(this=listed))
        lists[inner.left.name].append("expressions", inner.right)
    if len(lists) < comparisons:
        top.replace(exp.Paren(this=reduce(lambda a, b: connector(this=a, expression=b), parts)))


def _is_plain(comparison: exp.Binary, types: Mapping[str, str]) -> bool:
    """Does it compare a column with a constant of the column's type?"""
    column, value = comparison.left, comparison.right
    if not isinstance(column, exp.Column) or not isinstance(value, exp.Literal):
        return False
    kind = "VARCHAR" if value.is_string else "BIGINT" if value.name.isdigit() else None
    return types.get(column.name) == kind


def _column_name(source: ColumnSource, columns: ColumnNames) -> str:
    axis = columns.domain.axis(source.name)
    if source.level is None:
        return f"c{axis}"
    levels = [level.name for level in columns.attribute(source).levels]
    return f"c{axis}_{levels.index(source.level)}"


def _duckdb(root: exp.Expr, types: dict[str, str], place: exp.Expr, statement: Statement) -> str:
    """The expression in DuckDB's dialect; `types` decide what / means in that of the statement."""
    try:
        select = exp.Select(expressions=[root], from_=exp.From(this=exp.to_table("t")))
        list_values(select, types)
        annotate_types(select, schema={"t": {"i": "BIGINT", **types}}, dialect=statement.dialect)
        if statement.dialect != "duckdb":
            _check_rounding(select, place, statement)
            _divide_integers(select)
        result: exp.Expr = select.expressions[0]
        return result.sql("duckdb", comments=False, unsupported_level=ErrorLevel.RAISE, copy=False)
    except SqlglotError:
        raise refuse(
            f"this part of {statement.dialect} SQL has no counterpart in DuckDB, which decides it",
            statement.sql,
            place,
            "it with comparisons, IN, LIKE, CASE and arithmetic",
        ) from None


def _divide_integers(select: exp.Expr) -> None:
    """7 / 2 is 3 in the dialects that mark it as typed; DuckDB writes that 7 // 2."""
    for division in list(select.find_all(exp.Div)):
        left, right = division.left, division.right
        if (
            division.args.get("typed")
            and left.is_type(*INTEGER_TYPES)
            and right.is_type(*INTEGER_TYPES)
        ):
            if division.args.get("safe"):
                right = exp.Nullif(this=right, expression=exp.Literal.number(0))
            whole = exp.IntDiv(this=exp.Paren(this=left), expression=exp.Paren(this=right))
            division.replace(exp.Paren(this=whole))


def _check_rounding(select: exp.Expr, place: exp.Expr, statement: Statement) -> None:
    for cast in select.find_all(exp.Cast):
        inner = cast.this.unnest()
        whole = isinstance(inner, exp.Floor | exp.Ceil | exp.Round)
        if cast.to.this in INTEGER_TYPES and inner.is_type(*FRACTION_TYPES) and not whole:
            raise refuse(
                "dialects differ in whether a CAST of a fraction to a whole number rounds or cuts",
                statement.sql,
                place,
                "CAST(FLOOR(...) AS INT) or CAST(ROUND(...) AS INT)",
            )


def _check_null_tests(name: str, column: exp.Column, statement: Statement, clear: set[int]) -> None:
    """Refuse a test for NULL of a column with undeclared entries, which compare as NULL does.

    `clear` has the nodes known to be in no such test, so that a long OR is climbed once.
    """
    node: exp.Expr | None = column
    while node is not None and id(node) not in clear and not isinstance(node, NULL_TESTS):
        clear.add(id(node))
        node = node.parent
    if isinstance(node, NULL_TESTS):
        raise refuse(
            f"undeclared entries of {name!r} have their own cell (other), which is neither NULL "
            "nor a value",
            statement.sql,
            column,
            f"comparisons of {name} with its declared values, GROUP BY {name}, or COUNT(*)",
        )


def _undecidable(
    name: str, attribute: Attribute, column: exp.Column, statement: Statement
) -> Exception:
    if attribute.parts:
        return refuse(
            f"{name!r} is merged of {', '.join(part for part, _ in attribute.parts)}, and a "
            "condition on combinations cannot be decided",
            statement.sql,
            column,
            "the domain as it was before attributes were merged",
        )
    values = (v for v in attribute.values if v is not None and v is not OTHER)
    kinds = sorted({type(value).__name__ for value in values})
    return refuse(
        f"the declared values of {name!r} have no single SQL type (they are "
        f"{', '.join(kinds) or 'all missing'})",
        statement.sql,
        column,
        f"GROUP BY {name}, or declare values of one type",
    )
