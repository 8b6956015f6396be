"""Latent classes: their fit, their derivative, and what maximum entropy makes of them."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import psephos as ps
from psephos import matrix as mx
from psephos.infer import latent_classes, prior_model
from psephos.infer.entropy import maximum_entropy
from psephos.infer.latent_classes import (
    LatentClasses,
    _ClassProblem,
    fit_classes,
    tells_interactions,
)
from psephos.infer.table_tree import TableTree

SHAPE = (4, 3, 2, 2)
FACTORS = [
    [mx.Identity(4), mx.Ones(1, 4), mx.Prefix(4), mx.Partition([0, 0, 1, 1])],
    [mx.Identity(3), mx.Ones(1, 3), mx.Dense([[1, -1, 0], [0, 2, 1]])],
    [mx.Identity(2), mx.Ones(1, 2)],
    [mx.Identity(2), mx.Ones(1, 2)],
]
BLOCKS = st.lists(st.tuples(*map(st.sampled_from, FACTORS)), min_size=1, max_size=3)


def dense(tree):
    return np.array([tree.transpose(row) for row in np.eye(tree.size)])


def joint(shares, tables):
    """All cells of some classes, one class after the other."""
    cells = np.zeros(SHAPE)
    for c, share in enumerate(shares):
        cells += share * np.einsum("a,b,c,d->abcd", *(table[c] for table in tables))
    return cells.ravel()


@settings(max_examples=40)
@given(BLOCKS, st.integers(0, 99))
def test_the_slope_is_that_of_the_squared_distance(blocks, seed):
    tree = TableTree.of([mx.Kron(factors) for factors in blocks], SHAPE)
    rng = np.random.default_rng(seed)
    point, values = rng.normal(size=(1, 3, sum(SHAPE) + 1)), rng.normal(size=(1, tree.size)) * 9
    variances = tree.repeated([0.5 + b for b in range(len(blocks))])
    problem = _ClassProblem.of(tree, values, variances, np.array([50.0]))
    a, total = dense(tree), np.array([not all(map(mx.is_total, block)) for block in tree.blocks])
    counts = np.repeat(total, tree.rows)  # totals are held, and tell classes nothing

    def distance(move):
        shares, tables = problem.classes(point + move)
        x = 50 * joint(shares[0], [table[0] for table in tables])
        return 0.5 * (counts * (a @ x - values[0]) ** 2 / variances).sum()

    direction = rng.normal(size=point.shape)
    expected = (distance(1e-5 * direction) - distance(-1e-5 * direction)) / 2e-5
    assert_allclose((problem.slope(point) * direction).sum(), expected, rtol=1e-5, atol=1e-3)


def test_cells_are_those_of_all_classes():
    rng = np.random.default_rng(3)
    tables = tuple(rng.dirichlet(np.ones(n), size=5) for n in SHAPE)
    shares = rng.dirichlet(np.ones(5))
    assert_allclose(LatentClasses(shares, tables).cells(), joint(shares, tables))
    assert_allclose(LatentClasses(np.ones(1), (tables[0][:1],)).cells(), tables[0][0])


def pair_tree(n):
    whole, total = mx.Identity(n), mx.Ones(1, n)
    sets = ((whole, whole, total), (whole, total, whole), (total, whole, whole))
    return TableTree.of([mx.Kron(factors) for factors in sets], (n, n, n))


def test_classes_find_what_independence_misses():
    rng, n = np.random.default_rng(0), 6
    rows = rng.dirichlet(np.full(n, 0.3), size=(2, 3))
    truth = sum(0.5 * np.einsum("a,b,c->abc", *several) for several in rows)
    tree = pair_tree(n)
    tables = [truth.sum(axis=tuple(j for j in range(3) if j != i)) for i in range(3)]
    exact = 1000 * tree.apply(truth.ravel())
    starts = [np.log(table)[None] for table in tables]
    (classes,) = fit_classes(tree, exact[None], np.ones(tree.size), [1000.0], starts)
    independent = np.einsum("a,b,c->abc", *tables).ravel()
    gaps = [np.abs(tree.apply(x) - tree.apply(truth.ravel())).sum()
            for x in (classes.cells(), independent)]  # fmt: skip
    assert gaps[0] < 0.2 * gaps[1]


def test_every_row_of_values_is_fitted_for_itself_and_last_digits_stay_last_digits():
    rng, tree = np.random.default_rng(1), pair_tree(4)
    values = rng.normal(20, 9, size=(3, tree.size))
    values[2] = values[0] * (1 + 1e-12)
    starts = [np.log(rng.dirichlet(np.ones(4), size=1)).repeat(3, axis=0) for _ in range(3)]
    together = fit_classes(tree, values, np.full(tree.size, 4.0), [99.0] * 3, starts)
    alone = fit_classes(tree, values[1:2], np.full(tree.size, 4.0), [99.0], [s[:1] for s in starts])
    assert_allclose(together[1].cells(), alone[0].cells(), rtol=1e-9)
    assert_allclose(together[2].cells(), together[0].cells(), rtol=1e-6)
    assert np.abs(together[1].cells() - together[0].cells()).max() > 1e-3


def test_numbers_about_one_attribute_each_tell_no_classes():
    one_way = [mx.Kron((mx.Identity(4), mx.Ones(1, 3))), mx.Kron((mx.Ones(1, 4), mx.Identity(3)))]
    assert not tells_interactions(TableTree.of(one_way, (4, 3)))
    both = [mx.Kron((mx.Identity(4), mx.Identity(3)))]
    assert tells_interactions(TableTree.of(both, (4, 3)))
    assert not tells_interactions(TableTree.of(both, (4, 3), whole=True))


# ---- maximum entropy ---------------------------------------------------------------------------

DOMAIN = ps.Domain.of(a=8, b=6, c=5, d=3)
TABLES = ps.marginals(DOMAIN, k=2)


def mixture(rows, seed):
    rng = np.random.default_rng(seed)
    counts = np.zeros(DOMAIN.size, dtype=np.int64)
    for part in rng.multinomial(rows, np.full(4, 0.25)):
        columns = [rng.choice(n, size=part, p=rng.dirichlet(np.full(n, 0.5))) for n in DOMAIN.shape]
        np.add.at(counts, np.ravel_multi_index(columns, DOMAIN.shape), 1)
    return counts


def fitted(counts, epsilon="1", seed=0):
    spend = ps.epsilon(epsilon)
    data = ps.simulate(counts, DOMAIN, unit=ps.add_remove_row(), budget=spend, seed=seed)
    return ps.infer.least_squares(data.vectorise().measure(TABLES.query, spend=spend))


@pytest.fixture
def classes_everywhere(monkeypatch):
    monkeypatch.setattr(prior_model, "CLASS_CELLS", 1)


@pytest.mark.usefixtures("classes_everywhere")
def test_facts_hold_and_known_steps_lead_to_the_same_cells():
    zeros = np.arange(DOMAIN.size) % 7 == 0
    counts = np.where(zeros, 0, mixture(3000, 1))
    estimate = fitted(counts)
    options = {"zeros": zeros, "total": float(counts.sum())}
    free = maximum_entropy(estimate, TABLES, **options)
    several = [maximum_entropy(estimate, TABLES, **options, classes=c) for c in (False, True)]
    assert [each.classes for each in several] == [False, True]
    assert free.risk == min(each.risk for each in several)
    for each in several:
        assert (each.vector >= 0).all()
        assert not each.vector[zeros].any()
        assert_allclose(each.vector.sum(), counts.sum())
        again = maximum_entropy(estimate, TABLES, **options, steps=each.steps, classes=each.classes)
        assert_allclose(again.vector, each.vector, rtol=1e-6, atol=1e-6)
    assert not maximum_entropy(estimate, TABLES, **options, steps=2).classes


@pytest.mark.usefixtures("classes_everywhere")
def test_closer_where_rows_come_in_classes():
    counts, errors = mixture(1000, 2), []
    truth = TABLES.answer(counts)
    for seed in range(6):
        estimate = fitted(counts, seed=seed)
        several = (maximum_entropy(estimate, TABLES, classes=c) for c in (False, True, None))
        errors.append([np.sqrt(np.mean((TABLES.answer(e.vector) - truth) ** 2)) for e in several])
    independent, classes, chosen = np.mean(errors, axis=0)
    assert classes < 0.98 * independent
    assert chosen < 0.99 * independent


@pytest.mark.usefixtures("classes_everywhere")
def test_the_risk_of_classes_is_about_their_error():
    """The derivative at one place would miss half of what they take from the noise."""
    counts = mixture(400, 3)
    truth, pairs = TABLES.answer(counts), []
    for seed in range(12):
        estimate = maximum_entropy(fitted(counts, "0.3", seed), TABLES, classes=True)
        pairs.append((estimate.risk, np.mean((TABLES.answer(estimate.vector) - truth) ** 2)))
    risk, error = np.mean(pairs, axis=0)
    assert 0.5 * error < risk < 2.5 * error


def test_a_given_prior_and_few_cells_leave_classes_out():
    estimate = fitted(mixture(3000, 1))
    assert not maximum_entropy(estimate, TABLES, classes=True).classes
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prior_model, "CLASS_CELLS", 1)
        prior = np.ones(DOMAIN.size)
        assert not maximum_entropy(estimate, TABLES, prior=prior, classes=True).classes
        patch.setattr(latent_classes, "MOST_CLASS_NUMBERS", 10)
        assert not maximum_entropy(estimate, TABLES, classes=True).classes
