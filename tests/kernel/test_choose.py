"""The exponential mechanism has exactly its probabilities, ties and far-off scores included."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

from psephos import matrix as mx
from psephos.domain.domain import Domain
from psephos.errors import BudgetError, RefusedError, ShapeError
from psephos.kernel.budget import epsilon, rho
from psephos.kernel.noise import DiscreteLaplace
from psephos.kernel.scores.far_from_independent import FarFromIndependent
from psephos.kernel.scores.mechanisms import exponential, noisy_minimum
from psephos.kernel.scores.worst_approximated import WorstApproximated
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


@pytest.mark.parametrize("mechanism", [exponential, noisy_minimum])
def test_what_cannot_be_chosen(mechanism):
    for bad in (([], "1", 1), ([1], "1", 0), ([1], "0", 1)):
        with pytest.raises(RefusedError):
            mechanism(bad[0], Fraction(bad[1]), bad[2])


def choice_probabilities(scores, rate, far=200):
    """P(i is chosen) by adding up all noise: the first of the least noise - score wins."""
    ratio = np.exp(-rate)
    law = (1 - ratio) / (1 + ratio) * ratio ** np.abs(np.arange(-far, far + 1.0))
    totals = [np.arange(-far, far + 1) - score for score in scores]
    chances = []
    for i, total in enumerate(totals):
        wins = law.copy()
        for j, other in enumerate(totals):
            if j != i:
                # j loses to i at a tie if it stands behind it
                beaten = other[None, :] > total[:, None] if j < i else other >= total[:, None]
                wins *= (beaten * law).sum(axis=1)
        chances.append(wins.sum())
    return np.array(chances)


@given(
    scores=st.lists(st.integers(-4, 4), min_size=2, max_size=4),
    moves=st.lists(st.integers(-2, 2), min_size=4, max_size=4),
    eps=st.sampled_from(["1/2", "1", "2"]),
)
def test_noisy_minima_cost_their_epsilon(scores, moves, eps):
    """Exactly: scores that move by up to 2 change no probability by more than exp(ε)."""
    epsilon_, reach = float(Fraction(eps)), 2
    neighbours = [score + move for score, move in zip(scores, moves, strict=False)]
    rate = epsilon_ / (2 * reach)
    here, there = (choice_probabilities(s, rate) for s in (scores, neighbours))
    assert here.sum() == pytest.approx(1, abs=1e-6)
    assert (here <= there * np.exp(epsilon_) * (1 + 1e-6) + 1e-7).all()


def test_noisy_minima_have_their_probabilities():
    scores, draws = [3, 0, 3, -5], 6000
    counts = np.bincount(
        [noisy_minimum(scores, Fraction(1), 2) for _ in range(draws)], minlength=len(scores)
    )
    expected = draws * choice_probabilities(scores, 1 / 4)
    assert chisquare(counts, expected * draws / expected.sum()).pvalue > 1e-6
    assert DiscreteLaplace(Fraction(4)).exact_variance == pytest.approx(31.83, abs=0.01)


def test_scores_that_the_kernel_does_not_list_are_refused():
    class Mine(WorstApproximated):
        pass

    for score in (Mine(mx.Identity(4), [0] * 4), mx.Identity(4), object()):
        with pytest.raises(RefusedError, match="no rule to choose by"):
            handle().choose(score, spend=epsilon("1"))


def handle(budget=None):
    domain = Domain.of(x=4)
    source = counted(np.array([100, 0, 0, 50]), domain)
    table = simulation(
        source, domain, unit=add_remove_row(), budget=budget or epsilon("10"), seed=0
    )
    return table.vectorise()


def test_the_worst_approximated_query_is_likely():
    v = handle()
    assert v.choose(WorstApproximated(mx.Identity(4), [0, 0, 0, 50]), spend=epsilon("2")) == 0
    assert v.choose(WorstApproximated(mx.Identity(4), [100, 0, 0, 0]), spend=epsilon("2")) == 3


def test_scores_move_by_the_largest_entry():
    from psephos.kernel.sensitivity import largest_entry

    assert largest_entry(mx.Scaled(-7, mx.Prefix(3))) == 7
    assert largest_entry(mx.Kron((mx.Dense([[3, -4]]), mx.Prefix(2)))) == 4


def test_requests_that_have_no_rule():
    v = handle()
    with pytest.raises(ShapeError, match="whole 64-bit numbers"):
        v.choose(WorstApproximated(mx.Identity(4), [0.5, 0, 0, 0]), spend=epsilon("1"))
    with pytest.raises(ShapeError):
        v.choose(WorstApproximated(mx.Identity(4), [0, 0, 0]), spend=epsilon("1"))
    with pytest.raises(ShapeError, match="uint64"):  # it would wrap around
        v.choose(
            WorstApproximated(mx.Identity(4), np.full(4, 2**63, dtype=np.uint64)),
            spend=epsilon("1"),
        )
    with pytest.raises(ShapeError, match="the vector has 4 cells, the matrix 5 columns"):
        v.choose(WorstApproximated(mx.Identity(5), [0, 0, 0, 0]), spend=epsilon("1"))
    with pytest.raises(RefusedError, match="zero"):
        v.choose(WorstApproximated(mx.Dense([[0, 0, 0, 0]]), [0, 0, 0, 0]), spend=epsilon("1"))
    with pytest.raises(BudgetError, match="paid in epsilon"):
        handle(rho("1")).choose(WorstApproximated(mx.Identity(4), [0, 0, 0, 0]), spend=rho("1/10"))


def test_a_rho_budget_books_an_eighth_of_the_square():
    v = handle(rho("1"))
    v.choose(WorstApproximated(mx.Identity(4), [0, 0, 0, 0]), spend=epsilon("2"))
    assert v._vault.ledger.spent == Fraction(4, 8)


def test_dependent_attributes_are_likely():
    """Of three pairs of attributes, one pair goes together; all margins are halves."""
    domain = Domain.of(x=2, y=2, z=2)
    x = np.zeros((2, 2, 2), np.int64)
    x[0, 0], x[1, 1] = 250, 250
    table = simulation(
        counted(x, domain), domain, unit=add_remove_row(), budget=epsilon("10"), seed=0
    )
    factors = {True: mx.Identity(2), False: mx.total(2)}
    pairs = [(True, False, True), (True, True, False), (False, True, True)]
    candidates = tuple(mx.Kron(tuple(factors[kept] for kept in pair)) for pair in pairs)
    score = FarFromIndependent(candidates, ([250] * 4,) * 3)
    assert table.vectorise().choose(score, spend=epsilon("1/10")) == 1
    assert score.admitted(8).sensitivity == 1


def test_distances_of_tables_do_not_wrap_around():
    huge = 2**61 - 1
    score = FarFromIndependent((mx.Identity(4),), ([-huge] * 4,)).admitted(4)
    assert score.scores([np.full(4, huge)]) == [8 * huge]
    doubled = FarFromIndependent((mx.Identity(4), mx.Dense([[3, 0, 0, 1]])), ([0] * 4, [0]))
    assert doubled.admitted(4).sensitivity == 3


@pytest.mark.parametrize(
    ("candidates", "guesses"),
    [
        ([mx.Identity(4)], ([0] * 4,)),
        ((mx.Identity(4),), [[0] * 4]),
        ((mx.Identity(4),), ()),
        ((), ()),
        ((mx.Identity(4),), ([0.5] * 4,)),
        ((mx.Identity(4),), ([2**61] * 4,)),
        ((mx.Identity(4),), ([0] * 3,)),
        ((mx.Identity(4),), (object(),)),
        ((mx.Identity(4),), ([[1], [1, 2]],)),
        ((mx.Identity(3),), ([0] * 3,)),
        ((mx.Dense([[0, 0, 0, 0]]),), ([0],)),
        ((mx.Dense([[0.5, 0, 0, 0]]),), ([0],)),
        ((object(),), ([0] * 4,)),
    ],
)
def test_tables_that_have_no_rule(candidates, guesses):
    v = handle()
    with pytest.raises((ShapeError, RefusedError)):
        v.choose(FarFromIndependent(candidates, guesses), spend=epsilon("1"))
    assert v._vault.ledger.spent == 0


def test_draws_go_on_until_a_candidate_is_kept():
    """Of 5,000 candidates all but one are hopeless, and a first batch has 16."""
    assert exponential([0] * 5000 + [10**6], Fraction(1), 1) == 5000


def test_a_winner_that_is_seldom_proposed_is_waited_for():
    scores = [0] * 999 + [10**6]
    assert {exponential(scores, Fraction(1), 1) for _ in range(5)} == {999}
