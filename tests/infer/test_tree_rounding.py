"""Whole numbers down a tree: they add up, none is negative, and tables stay near."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng

import psephos as ps
from psephos.errors import ShapeError
from psephos.infer import tree_rounding as module
from psephos.infer.tree_rounding import _Families, _projected, whole_numbers_down
from psephos.infer.two_pass import two_pass
from psephos.inverse.part_levels import LevelNoise
from tests.part_trees import part_trees, tree_of

DOMAIN = ps.Domain.of(a=4, b=3)
WORKLOADS = {
    "marginals": ps.marginals(DOMAIN, up_to=2),
    "ranges": ps.Workload(
        DOMAIN, [ps.product(a=ps.prefix(), weight=2.0), ps.product(a=ps.all_range())]
    ),
    "merged": ps.Workload(DOMAIN, [ps.product(a=ps.ranges([(0, 1), (2, 3)]), b=ps.identity())]),
}


def fit_of(tree, counts, spread, seed, scales=None):
    """Least squares from noisy counts of every part, the leaves' true counts given."""
    rng = default_rng(seed)
    scales = scales or [1.0] * len(tree.names)
    z = []
    for edges, scale in zip(tree.edges, scales, strict=True):
        true = np.add.reduceat(counts, edges[:-1], axis=0)
        z.append(true + np.sqrt(scale) * spread * rng.normal(0, 1, true.shape))
    noise = LevelNoise.of([[scale] for scale in scales])
    return two_pass(tree, noise, lambda level, a, b: z[level][a:b], counts.shape[1])


def gather(fit, workload, folder=None):
    """All levels, and runs come level by level and in the order of parts."""
    levels = [[] for _ in fit.tree.names]
    last = (0, 0)
    for run in whole_numbers_down(fit, [workload] * len(levels), folder):
        assert (run.level, run.start) == last or (run.level, run.start) == (last[0] + 1, 0)
        assert run.cells.shape == (run.stop - run.start, fit.cells)
        assert run.cells.dtype == np.int64
        last = (run.level, run.stop)
        levels[run.level].append(run.cells)
    return [np.concatenate(runs) for runs in levels]


@given(
    tree=part_trees(),
    name=st.sampled_from(sorted(WORKLOADS)),
    seed=st.integers(0, 10**6),
    mean=st.sampled_from([0.2, 3.0, 50.0]),
    numbers=st.sampled_from([12, 40, 1 << 22]),
)
def test_children_add_up_to_their_parents(tree, name, seed, mean, numbers):
    counts = default_rng(seed).poisson(mean, (tree.leaves, DOMAIN.size)).astype(float)
    fit = fit_of(tree, counts, 2.0, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FAMILY_NUMBERS", numbers)
        levels = gather(fit, WORKLOADS[name])
    assert [len(level) for level in levels] == list(tree.sizes)
    for level, cells in enumerate(levels):
        assert (cells >= 0).all()
        if level:
            first = np.searchsorted(tree.parents(level), np.arange(tree.sizes[level - 1]))
            assert (np.add.reduceat(cells, first, axis=0) == levels[level - 1]).all()


@given(tree=part_trees(), name=st.sampled_from(sorted(WORKLOADS)), seed=st.integers(0, 10**6))
def test_counts_without_noise_stay_as_they_are(tree, name, seed):
    counts = default_rng(seed).poisson(2.0, (tree.leaves, DOMAIN.size)).astype(float)
    levels = gather(fit_of(tree, counts, 0.0, seed), ps.marginals(DOMAIN, up_to=2))
    for edges, cells in zip(tree.edges, levels, strict=True):
        assert (cells == np.add.reduceat(counts, edges[:-1], axis=0)).all()


@given(sizes=st.lists(st.integers(1, 5), min_size=1, max_size=3), seed=st.integers(0, 10**6))
def test_projection_is_the_nearest_point(sizes, seed):
    """x = (w - τg)₊ with one τ for a family and cell: the conditions of the minimum."""
    rng = default_rng(seed)
    edges = np.cumsum([0, *sizes])
    w = rng.normal(0, 3, (edges[-1], 6))
    g = rng.choice([0.5, 1.0, 3.0], edges[-1])
    sums = rng.integers(0, 4, (len(sizes), 6)).astype(float)
    z = _projected(w, g, edges, sums)
    assert (z >= 0).all()
    assert np.add.reduceat(z, edges[:-1], axis=0) == pytest.approx(sums, abs=1e-9)
    slope = (w - z) / g[:, None]
    for start, stop in pairwise(edges):
        for cell in range(6):
            positive = z[start:stop, cell] > 1e-12
            tau = slope[start:stop, cell][positive]
            if tau.size:
                assert tau == pytest.approx(np.full(tau.size, tau[0]), abs=1e-9)
                assert (slope[start:stop, cell] <= tau[0] + 1e-9).all()


@given(seed=st.integers(0, 10**6), name=st.sampled_from(sorted(WORKLOADS)))
def test_splitting_finds_the_least_distance(seed, name):
    """No feasible direction lowers Σ |W(x - x̂)|²/g: moves between two children, and random ones."""
    rng, workload = default_rng(seed), WORKLOADS[name]
    estimates = rng.normal(0.3, 2, (3, DOMAIN.size))
    g = rng.choice([0.5, 1.0, 3.0], 3)
    sums = rng.integers(0, 4, (1, DOMAIN.size)).astype(float)
    families = _Families.of(workload)
    edges = np.array([0, 3])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FAMILY_STEPS", 3000)
        patch.setattr(module, "NEAR_ENOUGH", 1e-9)
        nearest = families._nearest(estimates, g, edges, sums)
    W = workload.matrix.dense()

    def distance(x):
        return float((((x - estimates) @ W.T) ** 2 / g[:, None]).sum())

    least = distance(nearest)
    for _ in range(30):
        other = _projected(nearest + rng.normal(0, 0.3, nearest.shape), g, edges, sums)
        assert least <= distance(other) * (1 + 1e-6) + 1e-6
    assert least <= distance(_projected(estimates, g, edges, sums)) * (1 + 1e-6) + 1e-6


@given(seed=st.integers(0, 10**6), name=st.sampled_from(["marginals", "ranges"]))
def test_tables_of_children_stay_near_when_they_are_rounded(seed, name):
    rng, workload = default_rng(seed), WORKLOADS[name]
    real = rng.gamma(0.5, 1.0, (20, DOMAIN.size))
    sums = np.rint(real.sum(axis=0, keepdims=True))
    real *= sums / real.sum(axis=0, keepdims=True)
    whole = _Families.of(workload)._rounded(real, np.array([0, 20]), sums)
    assert (whole.sum(axis=0) == sums[0]).all()
    assert (np.abs(whole - real) < 1).all()
    totals = np.abs((whole - real).sum(axis=1))
    assert totals.max() < 2.5
    assert np.sqrt((totals**2).mean()) < 0.8


def test_tables_of_small_parts_are_closer_than_least_squares():
    """Sparse children: cells are far closer, and totals are not pushed towards each other."""
    tree, rng = tree_of([[4], [12] * 4]), default_rng(5)
    domain = ps.Domain.of(a=20, b=5)
    W = ps.marginals(domain, up_to=2)
    sizes = rng.lognormal(3, 1.2, tree.leaves)
    shares = rng.dirichlet(np.full(5, 0.4))[None, None] * rng.dirichlet(np.full(20, 3.0))[:, None]
    counts = rng.poisson(sizes[:, None] * shares.reshape(1, -1)).astype(float)
    squares = np.zeros((2, 2))
    for seed in range(4):
        fit = fit_of(tree, counts, 2.0, seed)
        estimates, whole = fit.estimates(2, 0, tree.leaves), gather(fit, W)[2]
        for i, cells in enumerate((estimates, whole)):
            gaps = cells - counts
            squares[i] += (gaps**2).mean(), (gaps.sum(axis=1) ** 2).mean()
    assert squares[1, 0] < 0.35 * squares[0, 0]
    assert squares[1, 1] < 1.1 * squares[0, 1]


def test_levels_go_to_files(tmp_path, monkeypatch):
    from psephos.infer import two_pass as fits

    tree = tree_of([[3], [2, 2, 1]])
    counts = default_rng(1).poisson(2.0, (5, DOMAIN.size)).astype(float)
    in_memory = gather(fit_of(tree, counts, 1.0, 1), WORKLOADS["marginals"])
    monkeypatch.setattr(fits, "NUMBERS_IN_MEMORY", 12)
    in_files = gather(fit_of(tree, counts, 1.0, 1), WORKLOADS["marginals"], tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["whole-1.level"]
    for one, other in zip(in_memory, in_files, strict=True):
        assert (one == other).all()


def test_tables_over_other_cells_are_refused():
    tree = tree_of([[2]])
    fit = fit_of(tree, np.ones((2, 5)), 1.0, 1)
    with pytest.raises(ShapeError, match="a part has 5 cells, got tables over"):
        next(whole_numbers_down(fit, [WORKLOADS["marginals"]] * 2))
