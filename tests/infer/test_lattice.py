"""Exact quantiles of sums of whole-number noise, against sums written out and closed forms."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psephos.infer.lattice import lattice_quantiles
from psephos.infer.quantiles import noise_quantile
from psephos.kernel.noise import DiscreteGaussian, DiscreteLaplace

REACH = 40


def chances(noise):
    """The probabilities of -40 to 40."""
    x = np.arange(-REACH, REACH + 1)
    if isinstance(noise, DiscreteLaplace):
        weights = np.exp(-np.abs(x) / float(noise.scale))
    else:
        weights = np.exp(-(x**2) / (2 * float(noise.variance)))
    return weights / weights.sum()


def written_out(factors, noises):
    """The distribution of Σ factor · noise, by convolution; its centre is in the middle."""
    total = np.ones(1)
    for factor, noise in zip(factors, noises, strict=True):
        spread = np.zeros(2 * REACH * factor + 1)
        spread[::factor] = chances(noise)
        total = np.convolve(total, spread)
    return total


@given(
    factors=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    parameters=st.lists(st.fractions(Fraction(1, 50), 2, max_denominator=50), min_size=4),
    kinds=st.lists(st.booleans(), min_size=4, max_size=4),
    step=st.sampled_from([1.0, 0.5, 1 / 3, 0.7, 12.25]),
    confidence=st.sampled_from([0.5, 0.9, 0.95, 0.99]),
)
def test_quantiles_are_those_of_sums_written_out(factors, parameters, kinds, step, confidence):
    noises = [
        DiscreteGaussian(parameter) if gaussian else DiscreteLaplace(parameter)
        for _, parameter, gaussian in zip(factors, parameters, kinds, strict=False)
    ]
    effects = step * np.array([factors]) * [(-1) ** i for i in range(len(factors))]
    (width,) = lattice_quantiles(effects, noises, [1] * len(factors), confidence)
    whole = width / step
    assert whole == pytest.approx(round(whole), abs=1e-6)
    total = written_out(factors, noises)
    away = np.abs(np.arange(total.size) - total.size // 2)
    assert total[away <= round(whole)].sum() >= confidence - 1e-9
    assert total[away < round(whole)].sum() < confidence + 1e-9


@pytest.mark.parametrize("scale", ["1/100", "1", "17", "1e6"])
def test_a_single_noise_has_its_own_quantile(scale):
    noise = DiscreteLaplace(Fraction(scale))
    effects = np.array([[0.25, 0, 1e-17], [0, -3, 0]])
    widths = lattice_quantiles(effects, [noise], [3], 0.95)
    np.testing.assert_allclose(widths, noise_quantile(noise, 0.95) * np.array([0.25, 3]))


def test_what_has_no_common_step_or_a_tiny_one_is_left_to_others():
    narrow, wide = DiscreteLaplace(Fraction(3)), DiscreteLaplace(Fraction(10**6))
    golden = (1 + 5**0.5) / 2
    assert np.isnan(lattice_quantiles(np.array([[1, golden]]), [narrow], [2], 0.95)).all()
    assert np.isnan(lattice_quantiles(np.array([[1, 1]]), [wide], [2], 0.95)).all()
    assert lattice_quantiles(np.zeros((1, 2)), [narrow], [2], 0.95).tolist() == [0]


def test_steps_are_found_among_parts_of_the_least_effect():
    noise = DiscreteLaplace(Fraction(1, 2))
    pairs = [pair for pair in product(range(1, 13), repeat=2) if max(pair) > 1]
    widths = lattice_quantiles(np.array(pairs) / 12, [noise], [2], 0.95)
    assert not np.isnan(widths).any()
