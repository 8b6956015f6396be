"""Bounds on noise hold against its exact weights."""

from fractions import Fraction as F

import pytest

from psephos.errors import RefusedError
from psephos.infer.tails import tail_bound
from psephos.kernel.noise import DiscreteLaplace
from tests.kernel.test_noise import SCALES, gaussian, weights


@pytest.mark.parametrize("scale", SCALES[:-1], ids=str)
@pytest.mark.parametrize("beta", [0.3, F(1, 1000), 1e-9])
def test_the_bound_holds(scale, beta):
    for law in (DiscreteLaplace(scale), gaussian(scale)):
        k = tail_bound(law, beta)
        assert isinstance(k, int)
        _, beyond = weights(law, k)
        assert beyond <= float(beta) + 1e-13


@pytest.mark.parametrize("beta", [0, 1, -0.5])
def test_beta_is_a_probability(beta):
    with pytest.raises(RefusedError, match="probability"):
        tail_bound(DiscreteLaplace(F(1)), beta)
