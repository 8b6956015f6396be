"""The tables of counts of a statement, in pieces over as few attributes as decide each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

import numpy as np
from sqlglot import exp

from psephos.errors import SqlError
from psephos.values import Array
from psephos.workload.sql.clauses import Conditions, Key, conjuncts, wording
from psephos.workload.sql.declared_values import some_values
from psephos.workload.sql.evaluator import Evaluator
from psephos.workload.sql.refusals import refuse
from psephos.workload.sql.statement import Count, Statement

CONDITIONS_AT_ONCE = 256
"""Conditions that DuckDB evaluates together; after an error they are evaluated one by one."""


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


@dataclass(frozen=True)
class CountTable:
    """One table of counts: the keys of a grouping set, and the conditions on its rows."""

    name: str
    statement: Statement
    keys: tuple[TablePiece, ...]
    conditions: tuple[TablePiece, ...]

    @property
    def pieces(self) -> tuple[TablePiece, ...]:
        return (*self.keys, *self.conditions)


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
            yield CountTable(name, statement, pieces, conditions)


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
