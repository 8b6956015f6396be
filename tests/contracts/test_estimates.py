"""One law suite for every estimate: what it answers, and what it says about its answers.

An estimate joins by one line in ESTIMATES.
"""

from collections.abc import Callable
from dataclasses import FrozenInstanceError, dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose

import psephos as ps
from psephos import matrix as mx
from psephos.infer.entropy import maximum_entropy
from psephos.infer.local_tables import local_tables
from psephos.infer.nonnegative import nonnegative

DOMAIN = ps.Domain.of(sex=["F", "M"], age=range(5))
COUNTS = np.array([40, 0, 12, 3, 7, 0, 0, 25, 1, 90])
CUBE = ps.marginals(DOMAIN, up_to=2)
PREFIXES = ps.Workload(DOMAIN, [ps.product(age=ps.prefix()), ps.product(sex=ps.identity())])
GROUPS = ps.Workload(DOMAIN, [ps.product(sex=ps.identity(), age=ps.ranges([(0, 1), (2, 4)]))])
RUNS = 300


@dataclass(frozen=True)
class EvenSpread:
    """A third party's estimate: a noisy total, spread evenly over all cells."""

    domain: ps.Domain
    total: float
    simulation: bool
    biased: bool = True

    def answer(self, workload):
        cells = np.full(self.domain.shape, self.total / self.domain.size)
        values = workload.answer(cells)
        return ps.Answers(workload, values, biased=True, simulation=self.simulation)


@dataclass(frozen=True)
class NoisyCells:
    """A third party's unbiased estimate: cells as they were measured, with one variance."""

    domain: ps.Domain
    cells: Any
    variance: float
    simulation: bool
    biased: bool = False

    def answer(self, workload):
        values = workload.answer(self.cells.reshape(self.domain.shape))
        return ps.Answers(workload, values, self.variances, simulation=self.simulation)

    def variances(self, workload):
        rows = np.concatenate([workload.kron(i).dense() for i in range(len(workload.products))])
        return self.variance * (rows**2).sum(axis=1)


def measure(strategy, seed, simulation):
    data = ps.simulate(COUNTS, DOMAIN, unit=ps.add_remove_row(), budget=ps.epsilon(9), seed=seed)
    measurement = data.vectorise().measure(strategy.query, spend=ps.epsilon("1/2"))
    return replace(measurement, simulation=simulation)


def least_squares(strategy):
    return lambda seed, simulation: ps.infer.least_squares(measure(strategy, seed, simulation))


def without_negatives(strategy, **options):
    return lambda *run: nonnegative(least_squares(strategy)(*run), **options)


def entropy(strategy, workload):
    return lambda *run: maximum_entropy(least_squares(strategy)(*run), workload)


def local(strategy, workload):
    return lambda *run: local_tables(least_squares(strategy)(*run), workload)


def reduced(seed, simulation):
    """A vector reduced to groups, each measured, and a few ranges with less noise."""
    data = ps.simulate(COUNTS, DOMAIN, unit=ps.add_remove_row(), budget=ps.epsilon(9), seed=seed)
    groups = data.vectorise().reduce(mx.Partition([0, 0, 1, 1, 1, 2, 2, 2, 2, 0]))
    ranges = mx.Ranges.intervals(10, [0, 4], [6, 9])
    several = [
        groups.measure(mx.Identity(3), spend=ps.epsilon("1/2")),
        data.vectorise().measure(ranges, spend=ps.epsilon(2)),
    ]
    return [replace(measurement, simulation=simulation) for measurement in several]


def cells(method, **options):
    return lambda *run: method(measure(CELLS, *run), **options)


def tables(method, **options):
    return lambda *run: method(measure(TABLES, *run), **options)


def groups(method, **options):
    return lambda *run: method(reduced(*run), **options)


def even_spread(seed, simulation):
    measurement = measure(ps.select.identity(CUBE), seed, simulation)
    return EvenSpread(DOMAIN, float(measurement.values.sum()), simulation)


def noisy_cells(seed, simulation):
    measurement = measure(ps.select.identity(CUBE), seed, simulation)
    return NoisyCells(DOMAIN, measurement.values, measurement.noise[0].exact_variance, simulation)


@dataclass(frozen=True)
class Example:
    """An estimate by seed and simulation flag, and the workloads that it can answer."""

    estimate: Callable[[int, bool], ps.Estimate]
    workloads: tuple[ps.Workload, ...] = (CUBE, PREFIXES, GROUPS)
    spread_known: bool = True
    """Of unbiased ones: have they standard errors?"""


CELLS, TABLES = ps.select.identity(CUBE), ps.select.workload(CUBE)
UNION = ps.select.opt_union(PREFIXES, restarts=1)
MERGED = ps.select.hdmm(GROUPS, restarts=1)
ESTIMATES = {
    "least squares of cells": Example(least_squares(CELLS)),
    "least squares of tables": Example(least_squares(TABLES)),
    "least squares of a union": Example(least_squares(UNION), (PREFIXES,)),
    "least squares of merged cells": Example(least_squares(MERGED), (GROUPS,)),
    "graphical model": Example(tables(ps.infer.graphical_model)),
    "non-negative cells": Example(without_negatives(CELLS)),
    "non-negative tables": Example(without_negatives(TABLES, hold_total=True)),
    "non-negative groups": Example(
        lambda *run: nonnegative(ps.infer.least_squares(reduced(*run)), total=178)
    ),
    "plain recovery of cells": Example(cells(ps.infer.plain_recovery)),
    "tables consistent in L1": Example(tables(ps.infer.consistent, norm="l1"), spread_known=False),
    "expanded cells": Example(cells(ps.infer.expanded)),
    "expanded groups": Example(groups(ps.infer.expanded)),
    "expanded groups of a public total": Example(groups(ps.infer.expanded, total=178)),
    "weights of groups": Example(groups(ps.infer.multiplicative_weights, total=178)),
    "thresholded cells": Example(cells(ps.infer.thresholded)),
    "maximum entropy of tables": Example(entropy(TABLES, CUBE)),
    "maximum entropy of merged cells": Example(entropy(MERGED, GROUPS)),
    "local tables": Example(local(TABLES, CUBE)),
    "a third party's biased one": Example(even_spread),
    "a third party's unbiased one": Example(noisy_cells),
}


@pytest.fixture(params=ESTIMATES)
def example(request):
    return ESTIMATES[request.param]


@pytest.fixture
def estimate(example):
    return example.estimate(0, True)


def test_it_has_the_face_of_an_estimate(estimate):
    assert isinstance(estimate, ps.Estimate)
    assert estimate.domain == DOMAIN
    assert isinstance(estimate.biased, bool)
    assert isinstance(estimate.simulation, bool)
    assert not isinstance(DOMAIN, ps.Estimate)


def test_answers_are_over_the_queries_of_the_workload(example, estimate):
    for workload in example.workloads:
        answers = estimate.answer(workload)
        assert isinstance(answers, ps.Answers)
        assert answers.workload == workload
        assert answers.values.shape == (workload.shape[0],)
        assert len(answers) == workload.shape[0]
        assert np.isfinite(answers.values).all()


def test_products_are_answered_one_by_one(example, estimate):
    """Whatever else is asked with it; and weights, which say what matters, change no answer."""
    for workload in example.workloads:
        together = estimate.answer(workload)
        ends = np.cumsum(workload.query_counts)[:-1]
        for product, values in zip(workload.products, np.split(together.values, ends), strict=True):
            for weight in (1, 3):
                alone = ps.Workload(DOMAIN, [replace(product, weight=weight)])
                assert_allclose(estimate.answer(alone).values, values, atol=1e-9)


def test_answers_add_up(example, estimate):
    """Linear in the queries: a table's numbers sum to the total."""
    total = ps.Workload(DOMAIN, [ps.product()])
    by_sex = ps.Workload(DOMAIN, [ps.product(sex=ps.identity())])
    halves = estimate.answer(by_sex).values
    assert_allclose(halves.sum(), estimate.answer(total).values[0], atol=1e-6)


@pytest.mark.parametrize("simulation", [True, False])
def test_what_is_made_up_says_so(example, simulation):
    estimate = example.estimate(0, simulation)
    answers = estimate.answer(example.workloads[0])
    assert estimate.simulation == answers.simulation == simulation
    assert repr(answers).startswith("Simulated") == simulation


def test_bias_passes_on_and_is_said(example, estimate):
    answers = estimate.answer(example.workloads[0])
    assert answers.biased == estimate.biased
    assert ("biased" in repr(answers)) == estimate.biased
    assert ("biased" in answers._repr_html_()) == estimate.biased


def test_unbiased_answers_have_standard_errors(example, estimate):
    for workload in example.workloads:
        answers = estimate.answer(workload)
        if not estimate.biased:
            assert (answers.stderr is not None) == example.spread_known
        if answers.stderr is not None:
            assert answers.stderr.shape == answers.values.shape
            assert np.isfinite(answers.stderr).all()
            assert (answers.stderr > 0).all()
        assert ("±" in answers._repr_html_()) == (answers.stderr is not None)


def test_unbiased_answers_are_the_truth_on_average(example):
    """Where spread is not known, errors are shown to be odd (tests/infer/test_consistent.py)."""
    if example.estimate(0, True).biased or not example.spread_known:
        return
    workload = example.workloads[-1]
    answers = [example.estimate(seed, True).answer(workload) for seed in range(RUNS)]
    gaps = np.array([each.values for each in answers]) - workload.answer(COUNTS)
    stderr = answers[0].stderr
    assert np.abs(gaps.mean(axis=0) / stderr).max() < 5.5 / np.sqrt(RUNS)  # p < 1e-6 for 20 of them
    assert 0.8 < (gaps**2).mean() / (stderr**2).mean() < 1.25


def test_frames_have_a_column_for_what_is_known(example, estimate):
    workload = example.workloads[0]
    answers = estimate.answer(workload)
    numbers = ["estimate"] if answers.stderr is None else ["estimate", "stderr"]
    labels = [name for name in DOMAIN.names if any(name in p.factors for p in workload.products)]
    frame = answers.to_pandas()
    assert list(frame.columns) == ["table", *labels, *numbers]
    assert answers.to_polars().columns == answers.to_arrow().column_names == list(frame.columns)
    assert answers.to_polars().shape == answers.to_arrow().shape == frame.shape
    assert len(frame) == workload.shape[0]
    assert_allclose(frame["estimate"], answers.values)
    if answers.stderr is not None:
        assert_allclose(frame["stderr"], answers.stderr)


def test_other_domains_are_refused(estimate):
    with pytest.raises(ps.PsephosError):
        estimate.answer(ps.marginals(ps.Domain.of(sex=["F", "M"], age=range(6)), up_to=1))


def test_answers_are_values(example, estimate):
    answers = estimate.answer(example.workloads[0])
    with pytest.raises(FrozenInstanceError):
        answers.values = None


def test_standard_errors_are_computed_when_somebody_looks():
    def refuse(workload):
        raise AssertionError("nobody looked")

    answers = ps.Answers(CUBE, np.zeros(CUBE.shape[0]), refuse)
    assert len(answers) == CUBE.shape[0]
    assert repr(answers)
    with pytest.raises(AssertionError, match="nobody looked"):
        answers.columns()
