"""The exponential mechanism has exactly its probabilities, ties and far-off scores included."""

from fractions import Fraction

import numpy as np
import pytest
from scipy.stats import chisquare

from psephos import matrix as mx
from psephos.domain.domain import Domain
from psephos.errors import BudgetError, RefusedError, ShapeError
from psephos.kernel.budget import epsilon, rho
from psephos.kernel.noise import exponential
from psephos.kernel.simulate import counted, simulation
from psephos.kernel.unit import add_remove_row


@pytest.mark.parametrize(
    ("scores", "eps", "reach"),
    [([0, 0, 0], "1", 1), ([5, 3, 3, 0], "1", 1), ([100, 90, 0], "1/3", 7), ([2, 1], "4", 3)],
)
def test_probabilities(scores, eps, reach):
    draws = 6000
    found = np.bincount(
        [exponential(scores, Fraction(eps), reach) for _ in range(draws)], minlength=len(scores)
    )
    weights = np.exp(float(Fraction(eps)) * (np.array(scores) - max(scores)) / (2 * reach))
    expected = draws * weights / weights.sum()
    likely = expected > 1
    assert found[~likely].sum() <= 20
    observed = np.append(found[likely], found[~likely].sum())
    wanted = np.append(expected[likely], expected[~likely].sum())
    if wanted[-1] == 0:
        observed, wanted = observed[:-1], wanted[:-1]
    assert chisquare(observed, wanted * observed.sum() / wanted.sum()).pvalue > 1e-6


def test_what_cannot_be_chosen():
    for bad in (([], "1", 1), ([1], "1", 0), ([1], "0", 1)):
        with pytest.raises(RefusedError):
            exponential(bad[0], Fraction(bad[1]), bad[2])


def handle(budget=None):
    domain = Domain.of(x=4)
    source = counted(np.array([100, 0, 0, 50]), domain)
    table = simulation(
        source, domain, unit=add_remove_row(), budget=budget or epsilon("10"), seed=0
    )
    return table.vectorise()


def test_the_worst_approximated_query_is_likely():
    v = handle()
    assert v.choose(mx.Identity(4), [0, 0, 0, 50], spend=epsilon("2")) == 0
    assert v.choose(mx.Identity(4), [100, 0, 0, 0], spend=epsilon("2")) == 3


def test_scores_move_by_the_largest_entry():
    from psephos.kernel.sensitivity import largest_entry

    assert largest_entry(mx.Scaled(-7, mx.Prefix(3))) == 7
    assert largest_entry(mx.Kron((mx.Dense([[3, -4]]), mx.Prefix(2)))) == 4


def test_requests_that_have_no_rule():
    v = handle()
    with pytest.raises(ShapeError, match="whole 64-bit numbers"):
        v.choose(mx.Identity(4), [0.5, 0, 0, 0], spend=epsilon("1"))
    with pytest.raises(ShapeError):
        v.choose(mx.Identity(4), [0, 0, 0], spend=epsilon("1"))
    with pytest.raises(ShapeError, match="uint64"):  # it would wrap around
        v.choose(mx.Identity(4), np.full(4, 2**63, dtype=np.uint64), spend=epsilon("1"))
    with pytest.raises(RefusedError, match="zero"):
        v.choose(mx.Dense([[0, 0, 0, 0]]), [0, 0, 0, 0], spend=epsilon("1"))
    with pytest.raises(BudgetError, match="paid in epsilon"):
        handle(rho("1")).choose(mx.Identity(4), [0, 0, 0, 0], spend=rho("1/10"))


def test_a_rho_budget_books_an_eighth_of_the_square():
    v = handle(rho("1"))
    v.choose(mx.Identity(4), [0, 0, 0, 0], spend=epsilon("2"))
    assert v._vault.ledger.spent == Fraction(4, 8)


def test_draws_go_on_until_a_candidate_is_kept():
    """Of 5,000 candidates all but one are hopeless, and a first batch has 16."""
    assert exponential([0] * 5000 + [10**6], Fraction(1), 1) == 5000
