"""Entropy steps of one product in few vectors: the same as those by θ."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import psephos as ps
from psephos.infer import bregman, entropy, product_guides, product_walk, slab_product, tangents
from psephos.infer.entropy import maximum_entropy
from psephos.infer.least_squares import LeastSquares, least_squares
from psephos.infer.measured_cells import MeasuredCells
from psephos.infer.prior_model import PriorModel
from psephos.infer.product_guides import CellGuide, GuidedProduct, IndependentGuide
from psephos.infer.product_walk import ProductProblem, ProductWalk
from psephos.infer.slab_product import SlabProduct, dot
from psephos.infer.table_tree import TableTree
from psephos.matrix import Dense, Kron, PIdentity, Prefix
from psephos.workload.workload import Workload

UNIT = ps.add_remove_row()


@given(
    shapes=st.lists(st.tuples(st.integers(1, 4), st.integers(1, 4)), min_size=1, max_size=4),
    seed=st.integers(0, 99),
    numbers=st.integers(1, 40),
)
def test_slabs_are_the_product(shapes, seed, numbers):
    rng = np.random.default_rng(seed)
    factors = tuple(Dense(rng.integers(-3, 4, shape).astype(float)) for shape in shapes)
    product, kron = SlabProduct(factors), Kron(factors)
    x = rng.integers(-9, 10, kron.shape[1]).astype(float)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slab_product, "SLAB_NUMBERS", numbers)
        parts = list(product.slabs(product.buffer(x, float)))
        gathered = product.gather(x, np.float64)
        square = dot(x, x)
    assert [some.start for some, _ in parts] == sorted(some.start for some, _ in parts)
    assert_allclose(np.concatenate([part for _, part in parts]), kron @ x)
    assert_allclose(gathered, kron @ x)
    assert square == pytest.approx(float(x @ x))


def ranges(shape: tuple[int, ...], rows: int, seed: int) -> tuple[LeastSquares, Workload]:
    """Least squares of a measured product of p-Identities, and prefixes."""
    rng = np.random.default_rng(seed)
    domain = ps.Domain.of({f"a{i}": n for i, n in enumerate(shape)})
    factors = tuple(
        PIdentity(np.ones(n, dtype=int), rng.integers(0, 2, (2, n)) | (np.arange(n) < 2))
        for n in shape
    )
    counts = rng.multinomial(rows, rng.dirichlet(np.full(domain.size, 0.1))).reshape(shape)
    data = ps.simulate(counts, domain, unit=UNIT, budget=ps.rho(1), seed=seed)
    measurement = data.vectorise().measure(Kron(factors), spend=ps.rho("0.1"))
    return least_squares(measurement), ps.prefix_product(domain)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("zeros", [False, True])
def test_a_product_takes_the_same_steps(monkeypatch, seed, zeros):
    monkeypatch.setattr(product_guides, "GUIDED_AXIS", 1)  # so steps go towards what was measured
    estimate, workload = ranges((20, 9, 27), 3000, seed)
    flags = np.arange(estimate.domain.size) % 7 == 0 if zeros else None
    by_theta = maximum_entropy(estimate, workload, zeros=flags, steps=3, total=3000)
    monkeypatch.setattr(product_walk, "SLAB_CELLS", 1)
    by_cells = maximum_entropy(estimate, workload, zeros=flags, steps=3, total=3000)
    values = by_theta.answer(workload).values
    assert_allclose(by_cells.answer(workload).values, values, atol=0.01 * values.max())
    assert by_cells.vector.sum() == pytest.approx(3000)
    if zeros:
        assert not by_cells.vector[flags].any()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("asked", [ps.prefix_product, ps.range_product])
def test_steps_towards_asked_answers_are_those_by_theta(monkeypatch, seed, asked):
    estimate, _ = ranges((20, 9, 27), 3000, seed)
    workload = asked(estimate.domain)
    monkeypatch.setattr(product_walk, "SLAB_CELLS", 1)
    measured = MeasuredCells.of(estimate)
    probes = measured.probes()[:1]
    model = PriorModel.of(measured, probes, None, None, 3000)
    problem = ProductProblem.of(measured, probes, workload).in_answers()
    walk, strength = ProductWalk(problem, model, told=False), 0.0
    tree = TableTree.of([Kron(problem.product.factors)], measured.shape)
    values = tree.apply(tree.arrange(estimate.vector))
    variances = np.broadcast_to(problem.variance, tree.size)
    dual = bregman.EntropyProblem(tree, values, variances, model.logarithms, model.total)
    point = dual.start()
    for _ in range(4):
        strength = strength * walk.ratio() if strength else walk.first_strength()
        assert walk.advance(strength) <= product_walk.RANGE_GAP
        point, _ = dual.step(point, strength)
        apart = tree.apply(tree.arrange(walk.x) - point.x)
        assert np.sqrt(np.mean(apart**2) / problem.variance) <= 0.03


@pytest.mark.slow
def test_a_product_has_the_same_risk(monkeypatch):
    monkeypatch.setattr(product_guides, "GUIDED_AXIS", 1)  # as above
    for module in (bregman, entropy):
        monkeypatch.setattr(module, "GAP_TOLERANCE", 1e-4)
    for module in (tangents, product_walk):
        monkeypatch.setattr(module, "TANGENT_SHARE", 1e-4)
    monkeypatch.setattr(product_walk, "RANGE_GAP", 1e-4)
    estimate, workload = ranges((20, 9, 27), 3000, 5)
    told: list[list[float]] = [[], []]
    maximum_entropy(estimate, workload, progress=lambda _, risk: told[0].append(risk))
    monkeypatch.setattr(product_walk, "SLAB_CELLS", 1)
    fit = maximum_entropy(estimate, workload, progress=lambda _, risk: told[1].append(risk))
    shorter = min(map(len, told))
    assert shorter > 5
    assert_allclose(told[1][:shorter], told[0][:shorter], atol=0.01 * told[0][0])
    again = maximum_entropy(estimate, workload, steps=fit.steps)
    assert_allclose(again.vector, fit.vector, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize(("rows", "budget"), [(30_000, "1/50"), (3_000, "1"), (3_000, "50")])
def test_ranges_over_a_plane_come_out_closer_than_least_squares(monkeypatch, rows, budget):
    monkeypatch.setattr(product_walk, "SLAB_CELLS", 1)
    domain, spend = ps.Domain.of(a=32, b=32), ps.epsilon(budget)
    workload = ps.prefix_product(domain)
    strategy = ps.select.hdmm(workload, restarts=1)
    rng = np.random.default_rng(7)
    hills = [rng.normal(centre, spread, (rows, 2)) for centre, spread in ((9, 3), (20, 5))]
    places = np.clip(np.concatenate(hills), 0, 31).astype(int)
    counts = np.zeros((32, 32), dtype=np.int64)
    np.add.at(counts, tuple(places.T), 1)
    truth, errors = workload.answer(counts), []
    for seed in range(4):
        data = ps.simulate(counts, domain, unit=UNIT, budget=spend, seed=seed)
        estimate = least_squares(data.vectorise().measure(strategy.query, spend=spend))
        fit = maximum_entropy(estimate, workload)
        answers = (estimate.answer(workload).values, fit.answer(workload).values)
        errors.append([np.mean((each - truth) ** 2) for each in answers])
    plain, positive = np.mean(errors, axis=0)
    assert positive < plain
    again = maximum_entropy(estimate, workload, steps=fit.steps)  # as whoever verifies does
    assert_allclose(again.vector, fit.vector, rtol=1e-9)


@pytest.mark.parametrize("few", [False, True])
def test_guides_are_inverses_where_cells_are_what_they_suppose(few):
    shape, ridge = (6, 5, 4), 30.0
    factors = tuple(Prefix(n) for n in shape)
    rng = np.random.default_rng(3)
    if few:
        x = np.zeros(120)
        x[[7, 50, 51, 93, 119]] = [30, 2, 500, 1, 70]
    else:
        shares = tuple(Dense(rng.dirichlet(np.full(n, 50))[:, None]) for n in shape)
        x = 600 * Kron(shares).dense()[:, 0]
    a = Kron(factors).dense()
    r = rng.normal(size=120)
    guided = GuidedProduct(SlabProduct(factors), SlabProduct(tuple(f.T for f in factors)))
    guide = guided.guide(x, float(x.sum()), ridge)
    assert isinstance(guide, CellGuide if few else IndependentGuide)
    exact = ridge * np.linalg.solve(a @ (x[:, None] * a.T) + ridge * np.eye(120), r)
    assert_allclose(guide.apply(r.astype(np.float32)), exact, atol=1e-4)


def test_a_product_needs_six_vectors(monkeypatch):
    monkeypatch.setattr("psephos.infer.prior_model.CLASS_CELLS", 1 << 40)
    estimate, workload = ranges((40, 40, 80), 3000, 5)
    tracemalloc.start()
    maximum_entropy(estimate, workload)
    peak = tracemalloc.get_traced_memory()[1] / 8 / estimate.domain.size
    tracemalloc.stop()
    assert peak <= 7  # small factors and slabs weigh something beside so few cells
