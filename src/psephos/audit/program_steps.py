"""Ways to derive a handle and to ask it, each beside the same computed from rows.

Rows have a column for the person, and one for the cell of each attribute; tables go to tables in
this form, then to the vector of their counts, and vectors to vectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import numpy as np

import psephos.matrix as mx
from psephos.domain.predicate import col
from psephos.protect import protect_again
from psephos.values import Array


class ProgramStep(NamedTuple):
    """How a handle is derived, and the same computed from rows, or from the vector of counts."""

    derive: Callable[[Any], Any]
    compute: Callable[[Array], Array]


Choices = list[ProgramStep]
"""The parts of a split, or one step."""


def _attribute(table: Any, rng: Random) -> tuple[str, int, int]:
    """The name of an attribute, its column in rows, and one of its values."""
    axis = rng.randrange(len(table.domain))
    return table.domain.names[axis], 1 + axis, rng.randrange(table.domain.shape[axis])


def _names(table: Any, rng: Random) -> tuple[tuple[str, ...], list[int]]:
    """Some attributes in any order, and their columns in rows."""
    number = rng.randint(1, len(table.domain))
    axes = rng.sample(range(len(table.domain)), number)
    return tuple([table.domain.names[a] for a in axes]), [1 + a for a in axes]


def where_not(table: Any, rng: Random) -> Choices:
    """The rows with any but one value."""
    name, column, value = _attribute(table, rng)
    left_out = table.domain[name].values[value]
    return [
        ProgramStep(lambda t: t.where(col(name) != left_out), lambda x: x[x[:, column] != value])
    ]


def keep_some(table: Any, rng: Random) -> Choices:
    """Some of the columns."""
    names, columns = _names(table, rng)
    return [ProgramStep(lambda t: t.keep(*names), lambda x: x[:, [0, *columns]])]


def split_table(table: Any, rng: Random) -> Choices:
    """The parts by one attribute."""
    name, column, _ = _attribute(table, rng)
    gone = [column] if len(table.domain) > 1 else []

    def part(i: int) -> ProgramStep:
        return ProgramStep(
            lambda t: list(t.split(name).values())[i],
            lambda x: np.delete(x[x[:, column] == i], gone, axis=1),
        )

    return [part(i) for i in range(table.domain[name].size)]


def group_rows(table: Any, rng: Random) -> Choices:
    """The sizes of groups, cut at two."""
    names, columns = _names(table, rng)
    shape, count = [table.domain[n].size for n in names], f"count of {len(table.domain)}"

    def compute(x: Array) -> Array:
        groups = np.ravel_multi_index(tuple(x[:, columns].T), shape)
        sizes = np.bincount(groups, minlength=math.prod(shape))
        codes = np.unravel_index(np.arange(sizes.size), shape)
        return np.column_stack([np.arange(sizes.size), *codes, np.minimum(sizes, 2)])

    return [ProgramStep(lambda t: t.group_by(*names, most=2, count=count), compute)]


def count_persons(table: Any, rng: Random) -> Choices:
    """One row for each person and combination of values."""
    names, columns = _names(table, rng)
    return [
        ProgramStep(lambda t: t.persons(*names), lambda x: np.unique(x[:, [0, *columns]], axis=0))
    ]


def merge_two(table: Any, rng: Random) -> Choices:
    """Another handle to the rows, with the first two columns in one."""
    domain = table.domain
    one, other = domain.names[:2]
    merged, size = domain.merge((one, other)), domain[other].size

    def compute(x: Array) -> Array:
        return np.column_stack([x[:, 0], x[:, 1] * size + x[:, 2], x[:, 3:]])

    return [ProgramStep(lambda t: protect_again(t, merged), compute)]


def vectorise(table: Any, _: Random) -> Choices:
    """The counts of all cells."""
    shape, size = table.domain.shape, table.domain.size

    def compute(x: Array) -> Array:
        return np.bincount(np.ravel_multi_index(tuple(x[:, 1:].T), shape), minlength=size)

    return [ProgramStep(lambda t: t.vectorise(), compute)]


def _groups(vector: Any, rng: Random) -> Array:
    number = rng.randint(1, vector.size)
    groups = [*range(number), *rng.choices(range(number), k=vector.size - number)]
    rng.shuffle(groups)
    return np.array(groups)


def split_cells(vector: Any, rng: Random) -> Choices:
    """The parts by a random partition of the cells."""
    groups = _groups(vector, rng)

    def part(i: int) -> ProgramStep:
        return ProgramStep(lambda v: v.split(mx.Partition(groups))[i], lambda x: x[groups == i])

    return [part(i) for i in range(groups.max() + 1)]


def reduce_cells(vector: Any, rng: Random) -> Choices:
    """Sums over groups of cells."""
    groups = _groups(vector, rng)
    sums = groups == np.arange(groups.max() + 1)[:, None]
    return [ProgramStep(lambda v: v.reduce(mx.Partition(groups)), lambda x: sums @ x)]


def transform_cells(vector: Any, rng: Random) -> Choices:
    """Three random sums with weights."""
    entries = np.array([rng.choices(range(-2, 4), k=vector.size) for _ in range(3)])
    return [ProgramStep(lambda v: v.transform(mx.Dense(entries)), lambda x: entries @ x)]


TABLE_STEP_KINDS = split_table, split_table, where_not, keep_some, group_rows, count_persons
VECTOR_STEP_KINDS = split_cells, split_cells, reduce_cells, transform_cells
TOTAL, CELLS, PREFIXES = (
    (mx.total, lambda x: x.sum(keepdims=True)), (mx.Identity, lambda x: x), (mx.Prefix, np.cumsum),
)  # fmt: skip
QUERIES: tuple[Any, ...] = (
    ((CELLS, "1"),), ((TOTAL, "1"),), ((PREFIXES, "1"),),
    ((CELLS, "1"), (TOTAL, "3"), (PREFIXES, "1/2")),
)  # fmt: skip
"""Blocks, each with its matrix and the same computed, and its weight."""
