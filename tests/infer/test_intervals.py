"""Noise intervals: exact quantiles of single noises, and coverage of simulated ones."""

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import psephos as ps
from psephos.infer import intervals
from psephos.infer.intervals import half_widths, noise_quantile
from psephos.kernel.measurement import noise_for
from psephos.kernel.noise import DiscreteGaussian, DiscreteLaplace

UNIT = ps.add_remove_row()


@given(
    parameter=st.fractions(Fraction(1, 20), Fraction(60)),
    confidence=st.sampled_from([0.5, 0.9, 0.95, 0.999]),
    gaussian=st.booleans(),
)
def test_quantiles_are_the_least_that_cover(parameter, confidence, gaussian):
    noise = DiscreteGaussian(parameter) if gaussian else DiscreteLaplace(parameter)
    x = np.arange(3000)
    weights = np.exp(-(x**2) / float(2 * parameter)) if gaussian else np.exp(-x / float(parameter))
    weights[1:] *= 2
    within = np.cumsum(weights) / weights.sum()
    k = noise_quantile(noise, confidence)
    assert within[k] >= confidence - 1e-9
    assert k == 0 or within[k - 1] < confidence + 1e-9


def setting(noise):
    domain = ps.Domain.of(a=4, b=3)
    W = ps.marginals(domain, up_to=2)
    chosen = (ps.select.workload if noise == "laplace" else ps.select.residual)(W, noise)
    budget = ps.epsilon("1/2") if noise == "laplace" else ps.rho("1/20")
    rows = [block.matrix.shape[0] for block in chosen.query.blocks]
    noises = noise_for(chosen.query, budget, UNIT, 1)
    return W, chosen, budget, rows, noises, chosen.form(budget, UNIT)


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_intervals_cover_as_often_as_they_say(noise):
    W, chosen, budget, rows, noises, form = setting(noise)
    widths = half_widths(form, noises, rows, W, confidence=0.9)
    counts = np.arange(12) * 7
    data = ps.simulate(
        counts, W.domain, unit=UNIT, budget=budget * 1000, seed=1
    ).vectorise()  # fmt: skip
    runs, starts = 400, np.cumsum([0, *W.query_counts])
    each, together = np.zeros(W.shape[0]), np.zeros(len(W.products))
    for _ in range(runs):
        answers = ps.infer.least_squares(data.measure(chosen.query, spend=budget)).answer(W)
        inside = np.abs(answers.values - W.answer(counts)) <= widths.per_query
        each += inside
        gaps = np.abs(answers.values - W.answer(counts))
        for i, (a, b) in enumerate(pairwise(starts)):
            together[i] += gaps[a:b].max() <= widths.per_table[i] + 1e-9
    # 5 standard deviations of 400 tosses at 0.9, and 2 % for the simulated widths themselves
    assert (np.abs(each / runs - 0.9) < 5 * np.sqrt(0.09 / runs) + 0.02).all()
    assert (np.abs(together / runs - 0.9) < 5 * np.sqrt(0.09 / runs) + 0.02).all()


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_the_three_ways_agree(noise, monkeypatch):
    W, _, _, rows, noises, form = setting(noise)
    effects = half_widths(form, noises, rows, W)
    monkeypatch.setattr(intervals, "LOOPED", 1500)
    monkeypatch.setattr(intervals, "HELD", 9999 * 20)
    looped = half_widths(form, noises, rows, W)
    assert (effects.draws, looped.draws) == (9999, 1500)
    monkeypatch.setattr(intervals, "HELD", 10)
    pooled = half_widths(form, noises, rows, W)
    assert pooled.method == "simulated, shape pooled over each table"
    for other in (looped, pooled):
        np.testing.assert_allclose(other.per_query, effects.per_query, rtol=0.15)
        np.testing.assert_allclose(other.per_table, effects.per_table, rtol=0.15)


def test_the_same_seed_gives_the_same_widths():
    W, _, _, rows, noises, form = setting("laplace")
    first, second = (half_widths(form, noises, rows, W, draws=199) for _ in range(2))
    np.testing.assert_array_equal(first.per_query, second.per_query)


@pytest.mark.parametrize(
    "options", [{"confidence": 1.0}, {"confidence": 0}, {"confidence": 0.99999}]
)
def test_bad_input(options):
    W, _, _, rows, noises, form = setting("laplace")
    with pytest.raises(ps.UnsupportedError):
        half_widths(form, noises, rows, W, **options)


def test_wide_noise_is_no_matter_of_memory():
    small, wide = DiscreteGaussian(Fraction(10**6)), DiscreteGaussian(Fraction(10**26))
    assert noise_quantile(wide, 0.95) == pytest.approx(1e10 * noise_quantile(small, 0.95), rel=1e-3)
    for variance in (10**6 - 1, 10**6 + 1):  # either side of the change of formula
        assert noise_quantile(DiscreteGaussian(Fraction(variance)), 0.95) == 1960


def test_high_confidence_gets_the_draws_it_needs():
    W, _, _, rows, noises, form = setting("laplace")
    assert half_widths(form, noises, rows, W, confidence=0.999, draws=99).draws == 999
