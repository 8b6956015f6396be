"""What a statement asks, in pieces: each condition and key over as few attributes as decide it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from sqlglot import exp

from psephos.errors import SqlError
from psephos.frozen import Array
from psephos.workload.sql.declared import some_values
from psephos.workload.sql.evaluate import Evaluator
from psephos.workload.sql.explain import refuse
from psephos.workload.sql.keys import Key, wording
from psephos.workload.sql.statement import Count, Statement


@dataclass(frozen=True)
class Piece:
    """A condition or a group key, over the attributes that decide it.

    `codes` has one axis per attribute: the truth of a condition, the group of a key; None stands
    for the column itself, or for a level of it, which are not written out. `text` names it, and
    is empty for a share of a condition.
    """

    axes: tuple[str, ...]
    place: exp.Expr
    text: str
    codes: Array | None = None
    labels: tuple[str, ...] = ()
    level: str | None = None


@dataclass(frozen=True)
class Table:
    """One table of counts: the keys of a grouping set, and the conditions on its rows."""

    name: str
    statement: Statement
    keys: tuple[Piece, ...]
    conditions: tuple[Piece, ...]

    @property
    def pieces(self) -> tuple[Piece, ...]:
        return (*self.keys, *self.conditions)


def tables_of(statement: Statement, evaluator: Evaluator) -> Iterator[Table]:
    """One table per grouping set and count."""
    where = [p for c in statement.conditions for p in _condition(c, statement, evaluator)]
    keys = {key: _key(key, statement, evaluator) for keys in statement.sets for key in keys}
    filters = {
        count: [p for c in count.conditions for p in _condition(c, statement, evaluator)]
        for count in statement.counts
    }
    for chosen in statement.sets:
        for count in statement.counts:
            pieces = _different(keys[key] for key in chosen)
            conditions = (*where, *filters[count])
            hidden = _hidden(pieces, conditions, statement.dialect)
            name = _name(chosen, count, statement, hidden)
            yield Table(name, statement, pieces, conditions)


def _different(keys: Iterable[Piece]) -> tuple[Piece, ...]:
    """The keys without repetitions: age, AGE and p.age are one column."""
    seen = {(key.axes, key.level, key.text if key.codes is not None else None): key for key in keys}
    return tuple(seen.values())


def _hidden(keys: Sequence[Piece], conditions: Sequence[Piece], dialect: str) -> list[str]:
    """Conditions that no label will show: on an attribute that is grouped by, or on several."""
    grouped = {name for key in keys for name in key.axes}
    lost = [c for c in conditions if len(c.axes) > 1 or grouped & set(c.axes)]
    return list(dict.fromkeys(c.text or wording(c.place, dialect) for c in lost))


def _name(keys: Sequence[Key], count: Count, statement: Statement, hidden: Sequence[str]) -> str:
    name = " × ".join(key.name for key in keys) or "total"
    if hidden:
        name = f"{name} where {' AND '.join(hidden)}"
    return name if len(statement.counts) == 1 else f"{name}: {count.name}"


def _condition(condition: exp.Expr, statement: Statement, evaluator: Evaluator) -> Iterator[Piece]:
    """The condition as pieces that must all hold, each over as few attributes as it can be."""
    found = evaluator.condition(condition, statement)
    text = wording(condition, statement.dialect)
    axes, truth = found.axes, found.codes.astype(bool)
    if not truth.any():
        domain = evaluator.columns.domain
        values = "; ".join(f"{name} is declared as {some_values(domain[name])}" for name in axes)
        raise never(statement, condition, f" ({values})" if values else "")
    axis = 0
    while len(axes) > 1 and axis < len(axes):
        # An attribute splits off if the truth is its own share times that of the others.
        others = tuple(i for i in range(len(axes)) if i != axis)
        own, rest = (np.asarray(truth.any(axis=gone)) for gone in (others, axis))
        if np.array_equal(np.expand_dims(rest, axis) & np.expand_dims(own, others), truth):
            if not own.all():
                yield Piece((axes[axis],), condition, "", own)
            axes, truth = tuple(axes[i] for i in others), rest
        else:
            axis += 1
    if not truth.all():
        # What is left of a condition that was split is no longer said by its text.
        yield Piece(axes, condition, text if axes == found.axes else "", truth)


def _key(key: Key, statement: Statement, evaluator: Evaluator) -> Piece:
    expression = key.expression
    if isinstance(expression, exp.Column):
        source = evaluator.columns.resolve(expression, statement.sql, statement.tables)
        return Piece((source.name,), expression, key.name, level=source.level)
    found = evaluator.key(expression, statement)
    axes, codes = found.axes, found.codes
    for axis in reversed(range(len(axes))):
        first = codes.take([0], axis=axis)
        if len(axes) > 1 and (codes == first).all():
            axes, codes = axes[:axis] + axes[axis + 1 :], first.squeeze(axis)
    return Piece(axes, expression, key.name, codes, found.labels)


def never(statement: Statement, place: exp.Expr | str, why: str) -> SqlError:
    """The refusal of a query that could count nothing."""
    return refuse(
        f"the answer is 0 whatever the data: no declared value meets the condition{why}",
        statement.sql,
        place,
        "a condition that some declared value meets, or leave the query out",
    )
