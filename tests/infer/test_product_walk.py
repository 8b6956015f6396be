"""Entropy steps of one product in few vectors: the same as those by θ."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose

import psephos as ps
from psephos.infer import bregman, entropy, product_walk, slab_product, tangents
from psephos.infer.entropy import maximum_entropy
from psephos.infer.least_squares import LeastSquares, least_squares
from psephos.infer.slab_product import SlabProduct, dot
from psephos.matrix import Dense, Kron, PIdentity
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


def test_a_product_has_the_same_risk(monkeypatch):
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


def test_a_product_needs_six_vectors(monkeypatch):
    monkeypatch.setattr("psephos.infer.prior_model.CLASS_CELLS", 1 << 40)
    estimate, workload = ranges((40, 40, 80), 3000, 5)
    tracemalloc.start()
    maximum_entropy(estimate, workload)
    peak = tracemalloc.get_traced_memory()[1] / 8 / estimate.domain.size
    tracemalloc.stop()
    assert peak <= 7  # small factors and slabs weigh something beside so few cells
