"""A guide by few cells: the inverse itself where they are all, and never a wrong direction."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from psephos import matrix as mx
from psephos.infer import heavy_cells
from psephos.infer.heavy_cells import HeavyCells
from psephos.infer.table_tree import TableTree

SHAPE = (5, 4, 3)
FACTORS = (
    (mx.Identity(5), mx.Ones(1, 5), mx.PIdentity([1, 2, 1, 1, 3], [[1, 2, 0, 1, 1]]), mx.Prefix(5)),
    (mx.Identity(4), mx.Ones(1, 4), mx.Partition([0, 0, 1, 1])),
    (mx.Identity(3), mx.Ones(1, 3), mx.Dense([[1, -2, 0.5]])),
)
STACKS = st.lists(st.tuples(*map(st.sampled_from, FACTORS)).map(mx.Kron), min_size=1, max_size=4)
SEEDS = st.integers(0, 2**32).map(np.random.default_rng)


def written(tree: TableTree) -> np.ndarray:
    return np.column_stack([tree.apply(unit) for unit in np.eye(tree.cells)])


def guide_at(tree, x, strength, variances):
    heavy = HeavyCells.of(tree, variances)
    assert heavy is not None
    diagonal = written(tree) ** 2 @ x
    return heavy, heavy.guide(x, strength, diagonal, strength * variances)


@given(STACKS, SEEDS, st.sampled_from([0.01, 1.0, 100.0]))
def test_precision_bounds_every_cell(blocks, rng, variance):
    tree = TableTree.of(blocks, SHAPE)
    variances = np.repeat(rng.uniform(0.5, 2, len(blocks)) * variance, tree.rows)
    heavy = HeavyCells.of(tree, variances)
    assert heavy is not None
    assert heavy.precision >= (written(tree).T ** 2 @ (1 / variances)).max() * (1 - 1e-12)


@given(STACKS, SEEDS)
def test_with_all_weight_in_few_cells_it_is_the_inverse(blocks, rng):
    tree = TableTree.of(blocks, SHAPE)
    x, variances = np.zeros(tree.cells), np.repeat(rng.uniform(0.5, 2, len(blocks)), tree.rows)
    x[rng.choice(tree.cells, 2, replace=False)] = rng.uniform(50, 500, 2)
    heavy, guide = guide_at(tree, x, 0.5, variances)
    if heavy.most < 2:
        return
    assert guide is not None
    a, v = written(tree), rng.normal(size=tree.size)
    image = a @ (x * (a.T @ v)) + 0.5 * variances * v
    assert_allclose(guide(image), v, atol=1e-6 * np.abs(v).max())


@given(STACKS, SEEDS)
def test_it_is_symmetric_and_positive(blocks, rng):
    """Conjugate gradients need no more: whatever it leaves out costs directions only."""
    tree = TableTree.of(blocks, SHAPE)
    x, variances = rng.exponential(30, tree.cells), np.ones(tree.size)
    _, guide = guide_at(tree, x, 2.0, variances)
    assert guide is not None
    matrix = np.column_stack([guide(unit) for unit in np.eye(tree.size)])
    assert_allclose(matrix, matrix.T, atol=1e-9)
    assert np.linalg.eigvalsh(matrix).min() > 0


def test_light_cells_and_long_factors_have_none(monkeypatch):
    tree = TableTree.of([mx.Kron((mx.Identity(5), mx.Identity(4), mx.Ones(1, 3)))], SHAPE)
    _, guide = guide_at(tree, np.ones(60), 10.0, np.ones(20))
    assert guide is None
    monkeypatch.setattr(heavy_cells, "WRITTEN_ENTRIES", 20)
    assert HeavyCells.of(tree, np.ones(20)) is None


@pytest.mark.parametrize("many", [1, 3])
def test_no_more_cells_than_there_is_memory_for(many):
    tree = TableTree.of([mx.Kron((mx.Prefix(5), mx.Prefix(4), mx.Identity(3)))] * many, SHAPE)
    heavy = HeavyCells.of(tree, np.ones(tree.size))
    assert heavy is not None
    assert heavy.most == 60 // (20 * many)  # entries of a column at most


def test_columns_as_long_as_all_cells_leave_no_room_for_any():
    """Else all cells were taken where there was room for none."""
    factors = tuple(mx.Dense(np.arange(1, n * n + n + 1).reshape(n + 1, n)) for n in (4, 5))
    tree = TableTree.of([mx.Kron(factors)], (4, 5))
    assert HeavyCells.of(tree, tree.repeated([1.0])) is None
