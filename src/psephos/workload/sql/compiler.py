"""Counting queries in SQL, as products of query sets over a domain.

A statement becomes tables of counts, and a table becomes pieces, each over as few attributes as
decide it: the table is the product of their query sets.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from sqlglot import exp

from psephos.domain.attribute import Attribute
from psephos.domain.domain import Domain
from psephos.errors import DomainError, SqlError, WorkloadError
from psephos.values import Array, frozen
from psephos.workload.cell_numbers import CellNumbers, numbers_of
from psephos.workload.product import Product, product, regroup
from psephos.workload.queries import QuerySet, groups, identity, level, masks
from psephos.workload.sql.aggregates import Count
from psephos.workload.sql.clauses import Conditions, Key, conjuncts, wording
from psephos.workload.sql.columns import ColumnNames
from psephos.workload.sql.declared_values import some_values
from psephos.workload.sql.evaluator import Evaluator
from psephos.workload.sql.refusals import refuse, too_deep
from psephos.workload.sql.statement import Statement, read_statements
from psephos.workload.statistics import (
    LINEAR_KINDS,
    Statistic,
    build_statistic,
    spread_numbers,
)

MERGE_LIMIT = 10_000
"""The most combinations of values that one condition looks at, unless the caller says more."""
CONDITIONS_AT_ONCE = 256
"""Conditions that DuckDB evaluates together; after an error they are evaluated one by one."""


def compile_sql(
    domain: Domain,
    statements: Sequence[str] | str,
    *,
    dialect: str | None = None,
    merge_limit: int = MERGE_LIMIT,
) -> tuple[Domain, list[Product]]:
    """One product for every grouping set of every statement, and the domain they are over.

    The domain is unchanged, unless a condition or a key looks at several attributes at once
    in a way that is no product of single-attribute conditions: these attributes are then merged,
    up to `merge_limit` combinations.

    Args:
        domain: the public schema of the table that the statements count
        statements: texts of one or more statements: SELECT keys, COUNT(*) FROM t WHERE ...
            GROUP BY ...
        dialect: the SQL dialect, by sqlglot's name for it; DuckDB's when left out
        merge_limit: the most combinations of values that a single condition may look at

    >>> domain = Domain.of(sex=["F", "M"], age=range(100))
    >>> _, tables = compile_sql(domain, "SELECT sex, COUNT(*) FROM t WHERE age > 17 GROUP BY sex")
    >>> [table.name for table in tables]
    ['sex']
    """
    tables = read_sql(domain, statements, dialect=dialect, merge_limit=merge_limit)
    merged, blocks = merge_attributes(domain, tables, merge_limit)
    return merged, sql_products(tables, domain, merged, blocks)


def compile_statistics(
    domain: Domain,
    statements: Sequence[str] | str,
    *,
    dialect: str | None = None,
    merge_limit: int = MERGE_LIMIT,
) -> tuple[Domain, list[Statistic]]:
    """A statistic for every aggregate and grouping set, and the domain they are over."""
    tables = read_sql(domain, statements, dialect=dialect, merge_limit=merge_limit)
    merged, blocks = merge_attributes(domain, tables, merge_limit)
    return merged, sql_statistics(tables, domain, merged, blocks)


def read_sql(
    domain: Domain,
    statements: Sequence[str] | str,
    *,
    dialect: str | None = None,
    merge_limit: int = MERGE_LIMIT,
) -> list[CountTable]:
    """One table for every grouping set of every statement, before attributes are merged."""
    if not isinstance(domain, Domain):
        raise SqlError(f"the domain comes first, then the statements; got {type(domain).__name__}")
    if isinstance(merge_limit, bool) or not isinstance(merge_limit, int):
        raise SqlError(f"merge_limit is a whole number, got {merge_limit!r}")
    if not isinstance(statements, Iterable):
        raise SqlError(f"statements must be text or a list of texts, got {statements!r}")
    texts = [statements] if isinstance(statements, str) else list(statements)
    try:
        return _tables(ColumnNames(domain), texts, dialect or "duckdb", merge_limit)
    except RecursionError:  # the caller's own calls left too few for the parser
        raise too_deep() from None


def merge_attributes(
    domain: Domain, tables: Sequence[CountTable], merge_limit: int = MERGE_LIMIT
) -> tuple[Domain, tuple[tuple[str, ...], ...]]:
    """The domain that all tables together need, and the blocks of attributes merged in it."""
    _check_statements([table.statement for table in tables])
    return _merge(domain, tables, merge_limit)


def sql_products(
    tables: Sequence[CountTable], domain: Domain, merged: Domain, blocks: Sequence[tuple[str, ...]]
) -> list[Product]:
    """One product for every table, over the domain in which these blocks are merged."""
    products = []
    for table in tables:
        if table.aggregate.kind not in LINEAR_KINDS:
            raise refuse(
                f"{table.aggregate.name} is no count or sum of rows, but follows from some",
                table.statement.sql,
                table.aggregate.place or "SELECT",
                "COUNT(*) and SUM(column) here; in Python, Statistics.from_sql takes it as it is",
            )
        (part,) = _statistic(table, domain, merged, blocks, {}).products
        products.append(replace(part, name=table.name))
    return products


def sql_statistics(
    tables: Sequence[CountTable],
    domain: Domain,
    merged: Domain,
    blocks: Sequence[tuple[str, ...]],
    units: Mapping[str, str] | None = None,
) -> list[Statistic]:
    """A statistic for every table; `units` say what the numbers of attributes are in."""
    return [_statistic(table, domain, merged, blocks, units or {}) for table in tables]


def _statistic(
    table: CountTable,
    domain: Domain,
    merged: Domain,
    blocks: Sequence[tuple[str, ...]],
    units: Mapping[str, str],
) -> Statistic:
    aggregate = table.aggregate
    groups = _product(table, domain, merged, blocks)
    if aggregate.kind == "count":
        return build_statistic("count", merged, groups)
    if aggregate.kind == "share":
        whole, within = _whole(table, domain, merged, blocks)
        return build_statistic(
            "share", merged, groups, whole=whole, within=within, scale=aggregate.scale
        )
    if table.numbers is None:
        raise SqlError(f"{aggregate.name} has no numbers", table.statement.sql)
    axis, spread = spread_numbers(merged, table.numbers.attribute, table.numbers.cells)
    try:
        return build_statistic(
            aggregate.kind,
            merged,
            groups,
            of=table.numbers.text,
            axis=axis,
            numbers=table.numbers.cells,
            spread=spread,
            levels=aggregate.levels,
            unit=units.get(table.numbers.text, ""),
        )
    except WorkloadError as error:
        raise refuse(
            str(error), table.statement.sql, aggregate.place or "SELECT", "another column"
        ) from None


def _whole(
    table: CountTable, domain: Domain, merged: Domain, blocks: Sequence[tuple[str, ...]]
) -> tuple[Product, tuple[str, ...]]:
    """What shares are of: the table without the keys that are not partitioned by."""
    names = {wording(key, table.statement.dialect).casefold() for key in table.aggregate.partition}
    kept = tuple(key for key in table.keys if key.texts[0].casefold() in names)
    if len(kept) < len(names):
        raise refuse(
            "PARTITION BY names a key that is not grouped by",
            table.statement.sql,
            table.aggregate.place or "SELECT",
            "PARTITION BY a key of GROUP BY",
        )
    left = {name for key in kept for name in key.axes}
    within = {name for key in table.keys if key not in kept for name in key.axes}
    together = [set(block) for block in blocks if _is_joint(table, block)]
    if left & within or any(left & block and within & block for block in together):
        raise refuse(
            "this partitions by a key of a column that another key looks at too",
            table.statement.sql,
            table.aggregate.place or "SELECT",
            "keys of different columns",
        )
    whole = _product(replace(table, keys=kept), domain, merged, blocks)
    return whole, (*within, *("*".join(block) for block in blocks if within & set(block)))


@dataclass(frozen=True)
class TablePiece:
    """A condition or a group key, over the attributes that decide it.

    `codes` has one axis per attribute: the truth of a condition, the group of a key; None stands
    for the column itself, or for a level of it, which are not written out. `texts` describe it,
    and are empty for a part of a condition.
    """

    axes: tuple[str, ...]
    place: exp.Expr
    texts: tuple[str, ...]
    codes: Array | None = None
    labels: tuple[str, ...] = ()
    level: str | None = None


@dataclass(frozen=True, eq=False)
class SummedColumn:
    """What is summed or averaged: a column, or an expression of one."""

    text: str
    attribute: str
    cells: CellNumbers


@dataclass(frozen=True, eq=False)
class CountTable:
    """One table: the keys of a grouping set, the conditions on its rows, and its aggregate."""

    name: str
    statement: Statement
    keys: tuple[TablePiece, ...]
    conditions: tuple[TablePiece, ...]
    aggregate: Count
    numbers: SummedColumn | None = None

    @property
    def pieces(self) -> tuple[TablePiece, ...]:
        return (*self.keys, *self.conditions)


def _tables(
    columns: ColumnNames, texts: Sequence[str], dialect: str, limit: int
) -> list[CountTable]:
    """The tables that all statements ask for."""
    statements: list[Statement] = []
    for text in texts:
        if not isinstance(text, str):
            raise SqlError(f"statements must be text, got {type(text).__name__}")
        statements.extend(read_statements(text, dialect, columns))
    _check_statements(statements)
    with Evaluator(columns, limit) as evaluator:
        return [table for statement in statements for table in tables_of(statement, evaluator)]


def _check_statements(statements: Sequence[Statement]) -> None:
    if not statements:
        raise SqlError("no statement was given; write SELECT COUNT(*) FROM t")
    first = statements[0].table
    for statement in statements[1:]:
        if statement.table.casefold() != first.casefold():
            raise refuse(
                f"a workload counts the rows of one table, here {first!r} and {statement.table!r}",
                statement.sql,
                statement.table,
                f"FROM {first}, or a workload for each table",
            )


def tables_of(statement: Statement, evaluator: Evaluator) -> Iterator[CountTable]:
    """One table per grouping set and count."""
    where = list(_conditions(statement.conditions, statement, evaluator))
    keys = {key: _key(key, statement, evaluator) for keys in statement.sets for key in keys}
    filters = {
        count: list(_conditions(count.conditions, statement, evaluator))
        for count in statement.counts
    }
    for grouping_set in statement.sets:
        for count in statement.counts:
            pieces = _different(keys[key] for key in grouping_set)
            conditions = (*where, *filters[count])
            hidden = _hidden(pieces, conditions, statement.dialect)
            name = _name(grouping_set, count, statement, hidden)
            numbers = _numbers(count, statement, evaluator)
            yield CountTable(name, statement, pieces, conditions, count, numbers)


def _numbers(count: Count, statement: Statement, evaluator: Evaluator) -> SummedColumn | None:
    """The numbers that an aggregate sums, cell by cell."""
    argument = count.argument
    if argument is None:
        return None
    text, domain = wording(argument, statement.dialect), evaluator.columns.domain
    if isinstance(argument, exp.Column):
        source = evaluator.columns.resolve(argument, statement.sql, statement.tables)
        try:
            if source.level is not None:
                raise DomainError("it is a grouping, and its groups are no numbers")
            return SummedColumn(source.name, source.name, numbers_of(domain[source.name]))
        except DomainError as error:
            raise refuse(
                f"{text}: {error}", statement.sql, argument, "a column of numbers, or COUNT(*)"
            ) from None
    outcome = evaluator.key(argument, statement)
    try:
        values = [None if word == "(null)" else float(word) for word in outcome.labels]
    except ValueError:
        values = []
    if len(outcome.axes) != 1 or not values or not all(map(_is_finite, values)):
        raise refuse(
            f"{text} is no number that one column decides",
            statement.sql,
            argument,
            "a column of numbers, or CASE WHEN ... THEN number ELSE number END of one column",
        )
    known = np.array([value is not None for value in values])[outcome.codes]
    cells = np.array([value or 0.0 for value in values])[outcome.codes]
    whole = cells.astype(np.int64) if (cells == np.rint(cells)).all() else cells
    return SummedColumn(text, outcome.axes[0], CellNumbers(frozen(whole), frozen(known)))


def _is_finite(value: float | None) -> bool:
    return value is None or math.isfinite(value)


def _different(keys: Iterable[TablePiece]) -> tuple[TablePiece, ...]:
    """The keys without repetitions: age, AGE and p.age are one column."""
    by_content = {
        (key.axes, key.level, key.texts if key.codes is not None else None): key for key in keys
    }
    return tuple(by_content.values())


def _hidden(
    keys: Sequence[TablePiece], conditions: Sequence[TablePiece], dialect: str
) -> list[str]:
    """Conditions that no label will show: on an attribute that is grouped by, or on several."""
    grouped = {name for key in keys for name in key.axes}
    unlabelled = [c for c in conditions if len(c.axes) > 1 or grouped & set(c.axes)]
    texts = (c.texts or (wording(part, dialect) for part in conjuncts(c.place)) for c in unlabelled)
    return list(dict.fromkeys(chain.from_iterable(texts)))


def _name(keys: Sequence[Key], count: Count, statement: Statement, hidden: Sequence[str]) -> str:
    name = " × ".join(key.name for key in keys) or "total"
    if hidden:
        name = f"{name} where {' AND '.join(hidden)}"
    return name if len(statement.counts) == 1 else f"{name}: {count.name}"


def _conditions(
    conditions: Conditions, statement: Statement, evaluator: Evaluator
) -> Iterator[TablePiece]:
    """All conditions as pieces; those on the same columns are worked out together."""
    by_columns: dict[frozenset[str], list[exp.Expr]] = {}
    for condition in conditions:
        names = frozenset(column.name.casefold() for column in condition.find_all(exp.Column))
        by_columns.setdefault(names, []).append(condition)
    for group in by_columns.values():
        for first in range(0, len(group), CONDITIONS_AT_ONCE):
            yield from _together(group[first : first + CONDITIONS_AT_ONCE], statement, evaluator)


def _together(
    conditions: Sequence[exp.Expr], statement: Statement, evaluator: Evaluator
) -> Iterator[TablePiece]:
    """The pieces of conditions that must all hold; an error names the one at fault, if one is."""
    if len(conditions) == 1:
        return _condition(conditions[0], conditions, statement, evaluator)
    try:
        return iter(list(_condition(exp.and_(*conditions), conditions, statement, evaluator)))
    except SqlError:
        for condition in conditions:
            for _ in _condition(condition, [condition], statement, evaluator):
                pass
    raise always_zero(statement, "WHERE", ", all conditions taken together")


def _condition(
    condition: exp.Expr, parts: Sequence[exp.Expr], statement: Statement, evaluator: Evaluator
) -> Iterator[TablePiece]:
    """The condition as pieces that must all hold, each over as few attributes as it can be."""
    outcome = evaluator.condition(condition, statement)
    texts = tuple(wording(part, statement.dialect) for part in parts)
    axes, truth = outcome.axes, outcome.codes.astype(bool)
    if not truth.any():
        domain = evaluator.columns.domain
        values = "; ".join(f"{name} is declared as {some_values(domain[name])}" for name in axes)
        raise always_zero(statement, condition, f" ({values})" if values else "")
    axis = 0
    while len(axes) > 1 and axis < len(axes):
        # An attribute splits off if the truth is a condition on it AND one on the others.
        others = tuple(i for i in range(len(axes)) if i != axis)
        single, rest = (np.asarray(truth.any(axis=summed)) for summed in (others, axis))
        if np.array_equal(np.expand_dims(rest, axis) & np.expand_dims(single, others), truth):
            if not single.all():
                yield TablePiece((axes[axis],), condition, (), single)
            axes, truth = tuple(axes[i] for i in others), rest
        else:
            axis += 1
    if not truth.all():
        # The text of a condition that was split does not describe the rest of it.
        yield TablePiece(axes, condition, texts if axes == outcome.axes else (), truth)


def _key(key: Key, statement: Statement, evaluator: Evaluator) -> TablePiece:
    expression = key.expression
    if isinstance(expression, exp.Column):
        source = evaluator.columns.resolve(expression, statement.sql, statement.tables)
        return TablePiece((source.name,), expression, (key.name,), level=source.level)
    outcome = evaluator.key(expression, statement)
    axes, codes = outcome.axes, outcome.codes
    for axis in reversed(range(len(axes))):
        first = codes.take([0], axis=axis)
        if len(axes) > 1 and (codes == first).all():
            axes, codes = axes[:axis] + axes[axis + 1 :], first.squeeze(axis)
    return TablePiece(axes, expression, (key.name,), codes, outcome.labels)


def always_zero(statement: Statement, place: exp.Expr | str, why: str) -> SqlError:
    """The error of a query whose answer is zero whatever the data."""
    return refuse(
        f"the answer is 0 whatever the data: no declared value meets the condition{why}",
        statement.sql,
        place,
        "a condition that some declared value meets, or leave the query out",
    )


def _merge(
    domain: Domain, tables: Sequence[CountTable], limit: int
) -> tuple[Domain, tuple[tuple[str, ...], ...]]:
    """The domain with every set of attributes joined that some piece looks at together."""
    blocks: list[tuple[str, ...]] = []
    for table in tables:
        for piece in table.pieces:
            if len(piece.axes) < 2 or any(set(piece.axes) <= set(block) for block in blocks):
                continue
            touched = [block for block in blocks if set(block) & set(piece.axes)]
            union = set(piece.axes).union(*touched)
            joined = tuple(name for name in domain.names if name in union)
            cells = math.prod(domain[name].size for name in joined)
            if cells > limit:
                raise refuse(
                    f"the statements look at {', '.join(joined)} together, {cells:,} "
                    f"combinations, over merge_limit={limit:,}",
                    table.statement.sql,
                    piece.place,
                    "conditions on single columns joined by AND, workloads with fewer statements, "
                    "or a higher merge_limit=",
                )
            blocks = [block for block in blocks if block not in touched] + [joined]
    for block in blocks:
        domain = domain.merge(block)
    return domain, tuple(blocks)


def _product(
    table: CountTable, domain: Domain, merged: Domain, blocks: Sequence[tuple[str, ...]]
) -> Product:
    """The table as a product: a joint query set where a piece needs several attributes at once."""
    attributes = {name for piece in table.pieces for name in piece.axes}
    names = [name for name in domain.names if name in attributes]
    factors: dict[str, QuerySet] = {}
    for block in blocks:
        if _is_joint(table, block):
            factors["*".join(block)] = _query_set(table, block, domain)
            names = [name for name in names if name not in block]
    for name in names:
        factors[name] = _query_set(table, (name,), domain)
    return regroup(product(factors, name=table.name), domain, merged)


def _is_joint(table: CountTable, block: Sequence[str]) -> bool:
    """Does a piece of the table look at several attributes of a block at once?"""
    return any(len(piece.axes) > 1 and set(piece.axes) <= set(block) for piece in table.pieces)


def _query_set(table: CountTable, block: tuple[str, ...], domain: Domain) -> QuerySet:
    """The table's query set on a block of attributes: a query for each group that can occur."""
    keys = [piece for piece in table.keys if set(piece.axes) <= set(block)]
    conditions = [piece for piece in table.conditions if set(piece.axes) <= set(block)]
    if len(block) == 1 and len(keys) == 1 and not conditions and keys[0].codes is None:
        return identity() if keys[0].level is None else level(keys[0].level)
    shape = tuple(domain[name].size for name in block)
    truth = np.ones(shape, dtype=bool)
    for piece in conditions:
        truth = truth & _spread(_codes(piece, domain)[0], piece.axes, block)
    if not truth.any():
        raise always_zero(table.statement, "WHERE", ", all conditions taken together")
    if not keys:
        labels = _condition_label(conditions)
        cells = np.flatnonzero(truth)
        if labels and len(block) == len(cells) == 1 and _has_labels(domain[block[0]]):
            labels = [f"{block[0]} = {domain[block[0]].label(int(cells[0]))}"]
        return masks(truth.reshape(1, -1), labels=labels)
    coded = [_codes(piece, domain) for piece in keys]
    spread = [
        np.broadcast_to(_spread(codes, piece.axes, block), shape)[truth]
        for piece, (codes, _) in zip(keys, coded, strict=True)
    ]
    groups_of_codes, of_cell = np.unique(np.stack(spread, axis=1), axis=0, return_inverse=True)
    group_of_cell = np.full(truth.size, -1)
    group_of_cell[np.flatnonzero(truth)] = of_cell.ravel()
    labels = [
        ", ".join(names[code] for (_, names), code in zip(coded, group, strict=True))
        for group in groups_of_codes.tolist()
    ]
    return groups(group_of_cell, labels)


def _has_labels(attribute: Attribute) -> bool:
    """Do the values have labels that differ from them?"""
    if attribute.names is None or attribute.edges is not None:
        return False
    return attribute.names != tuple(str(value) for value in attribute.values)


def _condition_label(conditions: Sequence[TablePiece]) -> list[str] | None:
    """All conditions as one label, or None where a condition has no text of its own."""
    if not all(piece.texts for piece in conditions):
        return None
    texts = list(dict.fromkeys(text for piece in conditions for text in piece.texts))
    mixed = [f"({text})" if " OR " in text and len(texts) > 1 else text for text in texts]
    return [" AND ".join(mixed)]


def _codes(piece: TablePiece, domain: Domain) -> tuple[Array, Sequence[str]]:
    """The piece's codes and labels, with a column or a level written out."""
    if piece.codes is not None:
        return piece.codes, piece.labels
    attribute = domain[piece.axes[0]]
    if piece.level is None:
        return np.arange(attribute.size), attribute.labels
    grouping = attribute.level(piece.level)
    return grouping.groups, grouping.labels


def _spread(codes: Array, axes: Sequence[str], block: Sequence[str]) -> Array:
    """Codes with one axis for every attribute of the block, to be broadcast."""
    sizes = dict(zip(axes, codes.shape, strict=True))
    return codes.reshape([sizes.get(name, 1) for name in block])
