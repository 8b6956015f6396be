"""Least squares on a tree of parts, beside generalised least squares written out."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.random import default_rng

import psephos as ps
from psephos.errors import ShapeError, UnsupportedError
from psephos.infer import two_pass as module
from psephos.infer.local_fits import LocalFits
from psephos.infer.two_pass import two_pass
from psephos.inverse.part_levels import LevelNoise, PartClasses
from psephos.kernel.query import Query
from psephos.matrix import Identity, Kron, total
from tests.part_trees import level_matrices, level_precisions, part_trees, tree_of

DOMAIN = ps.Domain.of(a=3, b=2)
QUERIES = {
    "cells": Query.of(Identity(6)),
    "marginals": ps.marginals(DOMAIN, up_to=2).query,
    "weighted": Query.of([(Kron((Identity(3), total(2))), 1), (Identity(6), "3/4")]),
    "prefixes": ps.select.hdmm(
        ps.Workload(DOMAIN, [ps.product(a=ps.prefix()), ps.product(b=ps.identity())]), restarts=1
    ).query,
    "one marginal": Query.of(Kron((Identity(3), total(2)))),  # leaves much open
    "two marginals": ps.marginals(DOMAIN, k=1).query,
    "residuals": ps.select.residual(ps.marginals(DOMAIN, k=1)).query,
}
NAMES = st.sampled_from(sorted(QUERIES))


def noise_of(u, variances):
    """Each level's noise, as a multiple of the blocks' variances."""
    return LevelNoise.of([[v / x for v in variances if x] for x in u])


def block_rows(query):
    return np.cumsum([0, *(block.matrix.shape[0] for block in query.blocks)])


@given(tree=part_trees(), name=NAMES, seed=st.integers(0, 10**6), data=st.data())
def test_is_generalised_least_squares(tree, name, seed, data):
    u = data.draw(level_precisions(tree))
    query, rng = QUERIES[name], default_rng(seed)
    variances = rng.choice([0.5, 1.0, 4.0], len(query.blocks))
    A = np.concatenate([block.matrix.dense() for block in query.blocks])
    rows = block_rows(query)
    C = np.repeat(1 / variances, np.diff(rows))
    P = level_matrices(tree)
    y = [rng.normal(0, 9, (len(level), len(A))) for level in P]

    fits = LocalFits.of(query, variances, DOMAIN.shape)
    noise = noise_of(u, variances)

    def read(level, start, stop):
        assert u[level] > 0, "what was not measured cannot be read"
        parts = y[level][start:stop]
        return fits.cells([parts[:, a:b] for a, b in pairwise(rows)])

    fit = two_pass(tree, noise, read, DOMAIN.size)

    roots = [np.sqrt(np.kron(np.full(len(level), x), C)) for level, x in zip(P, u, strict=True)]
    levels = zip(P, roots, strict=True)
    design = np.concatenate([root[:, None] * np.kron(level, A) for level, root in levels])
    target = np.concatenate([root * each.ravel() for root, each in zip(roots, y, strict=True)])
    dense = np.linalg.lstsq(design, target, rcond=1e-10)[0].reshape(tree.leaves, -1)
    covariance = np.linalg.pinv(design.T @ design, rcond=1e-10)
    within = np.diag(A @ np.linalg.pinv((A.T * C) @ A, rcond=1e-10) @ A.T)
    last = max(level for level, x in enumerate(u) if x > 0)
    for level in range(last + 1):
        estimates = fit.estimates(level, 0, tree.sizes[level])
        expected = P[level] @ dense @ A.T  # only what was measured is determined
        scale = 1 + np.abs(expected).max()
        assert np.abs(estimates @ A.T - expected).max() < 1e-9 * scale
        W = np.kron(P[level], A)
        variance = np.einsum("ij,jk,ik->i", W, covariance, W).reshape(-1, len(A))
        factors = fit.variance_factors(level)[:, None] / u[last] * within
        assert factors == pytest.approx(variance, rel=1e-9)
    for level in range(1, last + 1):
        sums = np.add.reduceat(
            fit.estimates(level, 0, tree.sizes[level]),
            np.searchsorted(tree.parents(level), np.arange(tree.sizes[level - 1])),
            axis=0,
        )
        above = fit.estimates(level - 1, 0, tree.sizes[level - 1])
        assert sums == pytest.approx(above, rel=1e-9, abs=1e-9)


@given(tree=part_trees(), data=st.data(), run=st.integers(1, 40))
def test_runs_of_any_length_give_the_same(tree, data, run):
    u = data.draw(level_precisions(tree))
    rng = default_rng(run)
    z = [rng.normal(0, 9, (size, 3)) for size in tree.sizes]
    noise = noise_of(u, [1.0])

    def read(level, start, stop):
        return z[level][start:stop]

    whole = two_pass(tree, noise, read, 3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "NUMBERS_OF_A_RUN", run)
        some = two_pass(tree, noise, read, 3)
        for level in range(whole.factors.last + 1):
            parts = [part for places, part in some.runs(level) if len(places) == len(part)]
            together = whole.estimates(level, 0, tree.sizes[level])
            assert np.concatenate(parts) == pytest.approx(together, rel=1e-12, abs=1e-12)


def test_levels_above_the_smallest_go_to_files(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "NUMBERS_IN_MEMORY", 6)
    tree = tree_of([[3], [2, 2, 1]])
    z = [default_rng(level).normal(0, 9, (size, 3)) for level, size in enumerate(tree.sizes)]
    noise = noise_of([1, 1, 1], [1.0])
    fit = two_pass(tree, noise, lambda level, a, b: z[level][a:b], 3, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["estimates-1.level", "sums-1.level"]
    monkeypatch.undo()
    again = two_pass(tree, noise, lambda level, a, b: z[level][a:b], 3)
    for level in range(3):
        assert (
            fit.estimates(level, 0, tree.sizes[level])
            == again.estimates(level, 0, tree.sizes[level])
        ).all()


def test_what_is_read_is_left_alone_and_what_is_given_out_is_a_copy():
    tree = tree_of([[2]])
    z = [np.array([[9.0]]), np.array([[2.0], [4.0]])]
    fit = two_pass(tree, noise_of([1, 1], [1.0]), lambda level, a, b: z[level][a:b], 1)
    for level in (0, 1):
        fit.estimates(level, 0, level + 1)[:] = 7
    assert (fit.estimates(0, 0, 1), z[0].item()) == (8.0, 9.0)
    assert fit.estimates(1, 0, 2).ravel().tolist() == [3.0, 5.0]
    assert z[1].ravel().tolist() == [2.0, 4.0]


def test_refusals_say_what_is_wrong():
    tree = tree_of([[2]])
    z = [np.array([[9.0]]), np.array([[2.0], [4.0]])]
    fit = two_pass(tree, noise_of([1, 0], [1.0]), lambda level, a, b: z[level][a:b], 1)
    assert fit.estimates(0, 0, 1) == 9.0
    with pytest.raises(UnsupportedError, match="parts of 'level 1' were not measured"):
        fit.estimates(1, 0, 1)
    with pytest.raises(UnsupportedError, match="were not measured"):
        fit.variance_factors(1)
    with pytest.raises(ShapeError, match="has 1 parts, got 0:2"):
        fit.estimates(0, 0, 2)
    with pytest.raises(ShapeError, match="there is no level 2"):
        fit.estimates(2, 0, 1)
    with pytest.raises(ShapeError, match=r"have the shape \(2, 2\), got \(2, 1\)"):
        two_pass(tree, noise_of([1, 1], [1.0]), lambda level, a, b: z[level][a:b], 2)
    with pytest.raises(ShapeError, match=r"blocks have \[6\] answers"):
        LocalFits.of(QUERIES["cells"], [1.0], DOMAIN.shape).cells([np.zeros((2, 5))])


@given(name=NAMES, seed=st.integers(0, 10**6), count=st.integers(1, 4))
def test_local_fits_are_those_of_each_part(name, seed, count):
    query, rng = QUERIES[name], default_rng(seed)
    variances = rng.choice([0.5, 1.0, 4.0], len(query.blocks))
    A = np.concatenate([block.matrix.dense() for block in query.blocks])
    rows = block_rows(query)
    C = np.repeat(1 / variances, np.diff(rows))
    y = rng.integers(-50, 50, (count, len(A)))
    expected = y * C @ A @ np.linalg.pinv((A.T * C) @ A, rcond=1e-10)
    blocks = [y[:, a:b] for a, b in pairwise(rows)]
    cells = LocalFits.of(query, variances, DOMAIN.shape).cells(blocks)
    assert cells == pytest.approx(expected, rel=1e-9, abs=1e-8)


@given(tree=part_trees(), data=st.data())
def test_classes_hold_parts_with_equal_factors(tree, data):
    u = data.draw(level_precisions(tree))
    classes = PartClasses.of([tree.parents(level) for level in range(1, len(tree.names))])
    factors = classes.factors(u)
    P = level_matrices(tree)[: factors.last + 1]
    edges = tree.edges[factors.last][:-1]
    H = sum(x * (p[:, edges].T @ p[:, edges]) for x, p in zip(u, P, strict=False))
    inverse = np.linalg.inv(H)
    for level, p in enumerate(P):
        diagonal = np.einsum("ij,jk,ik->i", p[:, edges], inverse, p[:, edges])
        assert factors.variances(level) == pytest.approx(diagonal, rel=1e-9)
        assert factors.trace(level) == pytest.approx(diagonal.sum(), rel=1e-9)
        assert classes.counts[level].sum() == tree.sizes[level]


def test_a_regular_tree_has_one_class_a_level():
    tree = tree_of([[50], [60] * 50])
    parents = [tree.parents(level) for level in (1, 2)]
    assert [len(counts) for counts in PartClasses.of(parents).counts] == [1, 1, 1]


@given(st.lists(st.lists(st.floats(0.01, 100), min_size=3, max_size=3), min_size=1, max_size=4))
def test_no_noise_counts_as_less_than_it_is(variances):
    noise = LevelNoise.of(variances)
    for each, scale in zip(variances, noise.scales, strict=True):
        for variance, block in zip(each, noise.block_variances, strict=True):
            assert variance <= scale * block * (1 + 1e-12)
    assert noise.block_variances == tuple(variances[-1])


def test_factors_refuse_levels_that_nobody_measured():
    classes = PartClasses.of([np.array([0, 0])])
    with pytest.raises(ShapeError, match="2 levels need as many precisions"):
        classes.factors([0.0, 0.0])
    with pytest.raises(ShapeError, match="at least one level is measured"):
        LevelNoise.of([[], []])
    assert classes.factors([1.0, 0.0]).trace(1) == np.inf
