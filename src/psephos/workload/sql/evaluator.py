"""Conditions and keys, evaluated for every declared value by a DuckDB that can reach nothing.

Its tables hold declared values only, never data. A cell for undeclared entries is NULL in them, so
that no comparison holds.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import duckdb
import numpy as np
from sqlglot import exp

from psephos.domain.values import OTHER
from psephos.errors import SqlError
from psephos.values import Array
from psephos.workload.sql.binding import BoundExpression, bind, source_type
from psephos.workload.sql.columns import ColumnNames, ColumnSource
from psephos.workload.sql.declared_values import (
    check_constants,
    cut_message,
    some_values,
    whole_bins,
)
from psephos.workload.sql.refusals import refuse
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
        return codes, tuple("(null)" if v is None else str(v) for _, v in groups)

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
