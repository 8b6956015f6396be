"""Conditions and keys, evaluated for every declared value by a DuckDB that can reach nothing.

Its tables hold declared values only, never data. A cell for undeclared entries is NULL in them, so
that no comparison holds.

Expressions are first rewritten over these tables. No name of the schema enters the text: columns
are numbered, numbers that a binned column is compared with become ranks, and long alternatives
become lists, so that a = 1 OR a = 2 OR b = 3 is a IN (1, 2) OR b = 3.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, time
from functools import reduce
from types import TracebackType
from typing import Any, Self, TypeAlias

import duckdb
import numpy as np
from sqlglot import ErrorLevel, exp
from sqlglot.errors import SqlglotError
from sqlglot.optimizer.annotate_types import annotate_types

from psephos.domain.attribute import Attribute
from psephos.domain.values import OTHER
from psephos.errors import SqlError
from psephos.values import Array
from psephos.workload.sql.columns import ColumnNames, ColumnSource
from psephos.workload.sql.declared_values import (
    Ranks,
    check_constants,
    compared_numbers,
    cut_message,
    number_of,
    some_values,
    whole_bins,
)
from psephos.workload.sql.refusals import FRACTION_TYPES, INTEGER_TYPES, refuse
from psephos.workload.sql.statement import Statement

LOCKED_CONFIG = {
    "enable_external_access": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "threads": "1",
    "lock_configuration": "true",
}

# fmt: off
NULL_TESTS = (
    exp.Is, exp.NullSafeEQ, exp.NullSafeNEQ, exp.Coalesce, exp.Concat, exp.Greatest, exp.Least,
)
# fmt: on
"""Expressions that tell NULL from values."""

ConnectorType: TypeAlias = type[exp.Or] | type[exp.And]
EqualityType: TypeAlias = type[exp.EQ] | type[exp.NEQ]


@dataclass(frozen=True)
class Outcome:
    """The value of an expression for every combination of its attributes' cells.

    `codes` has one axis per attribute; code k stands for `labels[k]`, or is the truth itself.
    """

    axes: tuple[str, ...]
    codes: Array
    labels: tuple[str, ...] = ()


class Evaluator:
    """Evaluates expressions over the declared values of a domain, each once."""

    def __init__(self, columns: ColumnNames, merge_limit: int) -> None:
        self.columns = columns
        self.merge_limit = merge_limit
        self._connection = duckdb.connect(":memory:", config=dict(LOCKED_CONFIG))
        self._tables: dict[ColumnSource, str] = {}
        self._outcomes: dict[Any, Outcome] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._connection.close()

    def condition(self, expression: exp.Expr, statement: Statement) -> Outcome:
        """Where the condition holds; NULL is not holding, as in a WHERE."""
        self._check_constants(expression, statement)
        return self._outcome("truth", expression, statement)

    def key(self, expression: exp.Expr, statement: Statement) -> Outcome:
        """The group of every cell, numbered in order of first appearance; NULL is a group."""
        self._check_constants(expression, statement)
        return self._outcome("group", expression, statement)

    def _check_constants(self, expression: exp.Expr, statement: Statement) -> None:
        def possible(equality: exp.Expr) -> bool:
            bind(equality, statement, self.columns)  # refuses what is never compared
            try:
                return bool(self._outcome("truth", equality, statement).codes.any())
            except SqlError:
                if not isinstance(equality.expression, exp.Literal):
                    raise
                return False  # text where there are numbers: no value of the column

        check_constants(expression, statement, self.columns, possible)

    def _outcome(self, kind: str, expression: exp.Expr, statement: Statement) -> Outcome:
        bound = bind(expression, statement, self.columns)
        key = (kind, bound.text, *((name, ranks.marks) for name, ranks in bound.ranks.items()))
        if key not in self._outcomes:
            self._check_size(bound, expression, statement)
            try:
                points, shape = self._points(bound)
                codes, labels = (
                    (self._truth(bound.text, points), ())
                    if kind == "truth"
                    else self._groups(bound.text, points)
                )
            except duckdb.Error as error:
                raise self._failure(error, bound, expression, statement) from None
            codes = self._cells(codes.reshape(shape), bound, expression, statement)
            self._outcomes[key] = Outcome(bound.axes, codes, labels)
        return self._outcomes[key]

    def _truth(self, text: str, points: str) -> Array:
        rows = self._connection.execute(
            f"SELECT COALESCE(CAST({text} AS BOOLEAN), FALSE) AS v FROM ({points}) AS t ORDER BY i"
        ).fetchnumpy()
        return np.asarray(rows["v"], dtype=bool)

    def _groups(self, text: str, points: str) -> tuple[Array, tuple[str, ...]]:
        run = self._connection.execute
        run(f"CREATE OR REPLACE TEMP TABLE e AS SELECT i, {text} AS v FROM ({points}) AS t")
        groups = run("SELECT MIN(i) AS first, v FROM e GROUP BY v ORDER BY first").fetchall()
        rows = run("SELECT MIN(i) OVER (PARTITION BY v) AS first FROM e ORDER BY i").fetchnumpy()
        codes = np.searchsorted([first for first, _ in groups], rows["first"])
        return codes, tuple(_key_label(v) for _, v in groups)

    def _points(self, bound: BoundExpression) -> tuple[str, list[int]]:
        """A query for all combinations of declared values, numbered by i, and their shape."""
        columns: list[str] = []
        tables: list[str] = []
        index, shape = "0", []
        for axis, name in enumerate(bound.axes):
            base = f"b{axis}"
            size = self.columns.domain[name].size
            if name in bound.ranks:
                ranks = bound.ranks[name]
                size = len(ranks.points)
                points = [None if rank < 0 else rank for rank in ranks.points.tolist()]
                self._fill(base, "BIGINT", points, ranks.bins.tolist())
                tables.append(base)
            else:
                tables.append(f"(SELECT range AS i, range AS cell FROM range({size})) AS {base}")
            for column, source in bound.columns.items():
                if source == ColumnSource(name) and name in bound.ranks:
                    columns.append(f"{base}.v AS {column}")
                elif source.name == name:
                    table = self._table(source)
                    tables[-1] += f" JOIN {table} ON {table}.cell = {base}.cell"
                    columns.append(f"{table}.v AS {column}")
            index = f"({index} * {size} + {base}.i)"
            shape.append(size)
        select_list = ", ".join([f"{index} AS i", *columns])
        source_text = f" FROM {' CROSS JOIN '.join(tables)}" if tables else ""
        return f"SELECT {select_list}{source_text}", shape

    def _table(self, source: ColumnSource) -> str:
        """The table of an attribute's declared values, or of a level's labels."""
        if source not in self._tables:
            table = f"s{len(self._tables)}"
            attribute = self.columns.attribute(source)
            values = attribute.values
            if source.level is not None:
                level = attribute.level(source.level)
                entries: list[Any] = [level.labels[group] for group in level.groups]
                self._fill(table, "VARCHAR", entries, None)
            elif isinstance(values, range):
                self._connection.execute(
                    f"CREATE TABLE {table} AS SELECT range AS i, range AS cell, "
                    "$start + range * $step AS v FROM range($size)",
                    {"start": values.start, "step": values.step, "size": len(values)},
                )
            else:
                entries = [None if value is OTHER else value for value in values]
                self._fill(table, source_type(source, self.columns), entries, None)
            self._tables[source] = table
        return self._tables[source]

    def _fill(self, table: str, kind: str, values: list[Any], cells: list[int] | None) -> None:
        """A table (i, cell, v); values go in as parameters, never as text."""
        self._connection.execute(
            f"CREATE OR REPLACE TABLE {table} AS SELECT UNNEST(RANGE(LEN($values))) AS i, "
            f"UNNEST($cells::BIGINT[]) AS cell, UNNEST($values::{kind}[]) AS v",
            {"values": values, "cells": list(range(len(values))) if cells is None else cells},
        )

    def _cells(
        self, codes: Array, bound: BoundExpression, expression: exp.Expr, statement: Statement
    ) -> Array:
        """Codes of cells instead of points; a bin whose points differ is refused."""
        for name, ranks in bound.ranks.items():
            codes, cut = whole_bins(codes, bound.axes.index(name), ranks)
            if cut is not None:
                reason, remedy = cut_message(name, self.columns.domain[name], ranks, cut)
                raise refuse(reason, statement.sql, expression, remedy)
        return codes

    def _check_size(
        self, bound: BoundExpression, expression: exp.Expr, statement: Statement
    ) -> None:
        sizes = [self.columns.domain[name].size for name in bound.axes]
        if len(sizes) > 1 and math.prod(sizes) > self.merge_limit:
            raise refuse(
                f"this looks at {' and '.join(bound.axes)} together, {math.prod(sizes):,} "
                f"combinations, over merge_limit={self.merge_limit:,}",
                statement.sql,
                expression,
                "conditions on single columns joined by AND, coarser values, or a higher "
                "merge_limit=",
            )

    def _failure(
        self,
        error: duckdb.Error,
        bound: BoundExpression,
        expression: exp.Expr,
        statement: Statement,
    ) -> SqlError:
        """The error with DuckDB's reason, in which columns have the names of the schema again."""
        first = str(error).strip().splitlines()[0]
        text = first.split("Error: ", 1)[-1]
        for column, source in bound.columns.items():
            name = (source.level or source.name).replace("\\", r"\\")
            text = re.sub(rf"\b(t\.)?{column}\b", name, text)
        names = [source.name for source in bound.columns.values() if source.level is None]
        have = "; ".join(f"{n} has {some_values(self.columns.domain[n])}" for n in names)
        return refuse(
            f"this cannot be worked out: {text}",
            statement.sql,
            expression,
            f"comparisons of a column with values of its own type{f' ({have})' if have else ''}",
        )


def _key_label(value: Any) -> str:
    """What the group of a key is called; a time at midnight is a day."""
    if isinstance(value, datetime) and value.time() == time():
        value = value.date()
    return "(null)" if value is None else str(value)


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


def _column_name(source: ColumnSource, columns: ColumnNames) -> str:
    axis = columns.domain.axis(source.name)
    if source.level is None:
        return f"c{axis}"
    levels = [level.name for level in columns.attribute(source).levels]
    return f"c{axis}_{levels.index(source.level)}"


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
