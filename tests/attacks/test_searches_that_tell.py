"""What `choose` and `partition` reveal of a row, by many runs on two neighbours.

Bounds are judged at a confidence at which a sound kernel fails less than once in a million runs.
"""

import numpy as np
import pytest

import psephos.matrix as mx
from psephos.audit.runs import Samples, bound_result, chi_square
from psephos.audit.stage import protect_rows
from psephos.domain.domain import Domain
from psephos.kernel import vault
from psephos.kernel.budget import epsilon
from psephos.kernel.noise import DiscreteLaplace
from psephos.kernel.scores import (
    NoisyIntervals,
    PrivTree,
    WholePartitions,
    WorstApproximated,
    noisy_intervals,
    whole_partitions,
)
from psephos.kernel.unit import add_remove_row

ALPHA = 1e-9
FEW, MORE = 150, 400
CHOICE_SPEND = epsilon("2")
CHOICE_QUERIES = mx.Dense(np.array([[1, 0], [1, 1]]))
CHOICE_ESTIMATE = [-3, 6]
CHOICE_SCORES = (
    (3, 3),
    (4, 2),
)  # |0 + 3|, |0 - 3|; with one row in the first cell |1 + 3|, |1 - 3|

PARTITION_COUNTS = ((5, 6, 5), (5, 7, 5))
PARTITION_SCORES = (
    (-2, -3, -3, -3),
    (-3, -4, -4, -3),
)  # not cut, cut behind the first cell, behind the second, behind both; each interval costs 1


def choices(place, often):
    """What `choose` reveals of a row, and whether it chooses as often as its charge allows."""
    ledger = place.endless_ledger(add_remove_row(), CHOICE_SPEND.currency)
    domain, nobody, row = Domain.of(x=2), np.empty(0, int), np.zeros(1, int)
    sides = [protect_rows(domain, rows, rows, ledger).vectorise() for rows in (nobody, row)]
    score = WorstApproximated(CHOICE_QUERIES, CHOICE_ESTIMATE)
    chosen = [[], []]
    before = ledger.spent()
    for _ in range(often):
        for side, vector in enumerate(sides):
            chosen[side].append(vector.choose(score, spend=CHOICE_SPEND))
    charge = (ledger.spent() - before) / (2 * often)
    samples = Samples()
    for side in (0, 1):
        samples.add(side, np.array(chosen[side], float))
    yield bound_result(f"choose, {ledger.unit}", charge, samples, ALPHA)
    expected = [chances_of(scores, charge.amount) * often for scores in CHOICE_SCORES]
    observed = [np.bincount(side, minlength=2) for side in chosen]
    name = "choices, beside the exponential mechanism for the charge"
    yield chi_square(name, observed, expected)


def partitions(place, often):
    """The same of `partition`: three cells, of which the middle one may have one row more."""
    ledger = place.endless_ledger(add_remove_row(), CHOICE_SPEND.currency)
    searches = (WholePartitions(1, "all"), NoisyIntervals(1, "all"), PrivTree())
    rows = [np.repeat(np.arange(3), counts) for counts in PARTITION_COUNTS]
    vectors = [protect_rows(Domain.of(x=3), cells, cells, ledger).vectorise() for cells in rows]
    cuts = {type(search).__name__: [[], []] for search in searches}
    before = ledger.spent()
    for _ in range(often):
        for search in searches:
            for side, vector in enumerate(vectors):
                groups = vector.partition(search, spend=CHOICE_SPEND).groups
                cuts[type(search).__name__][side].append(int(np.diff(groups) @ [1, 2]))
    charge = (ledger.spent() - before) / (2 * len(searches) * often)
    for name, sides in cuts.items():
        samples = Samples()
        for side in (0, 1):
            samples.add(side, np.array(sides[side], float))
        yield bound_result(f"partition by {name}, {ledger.unit}", charge, samples, ALPHA)
    expected = [chances_of(scores, charge.amount) for scores in PARTITION_SCORES]
    observed = [np.bincount(side, minlength=4) for side in cuts["WholePartitions"]]
    name = "partitions, beside the exponential mechanism for the charge"
    pairs = zip(expected, observed, strict=True)
    yield chi_square(name, observed, [chances * counts.sum() for chances, counts in pairs])


def chances_of(scores, charge):
    """P ∝ exp(epsilon · score / 2), as each score moves by 1 with a row."""
    weights = np.exp(float(charge) * np.array(scores) / 2)
    return np.asarray(weights / weights.sum())


def test_choices_reveal_no_more_than_is_charged(place):
    assert all(f.ok for f in choices(place, FEW))


def test_choices_that_tell_too_much(monkeypatch, place):
    true = vault.Draws.choice
    sharp = lambda self, scores, e, *rest: true(self, scores, 3 * e, *rest)  # noqa: E731
    monkeypatch.setattr(vault.Draws, "choice", sharp)
    assert not all(f.ok for f in choices(place, MORE))


def test_partitions_reveal_no_more_than_is_charged(place):
    assert all(f.ok for f in partitions(place, FEW))


@pytest.mark.slow
def test_partitions_that_tell_too_much(monkeypatch, place):
    with monkeypatch.context() as broken:
        broken.setattr(whole_partitions, "rounded_rate", lambda rate: 3 * rate)
        assert [f.ok for f in partitions(place, FEW)] == [True, True, True, False]
    sharp = lambda scale: DiscreteLaplace(scale / 100)  # noqa: E731
    monkeypatch.setattr(noisy_intervals, "DiscreteLaplace", sharp)
    assert [f.ok for f in partitions(place, MORE)] == [True, False, True, True]
