"""Do measurements contradict each other? From the noisy integers alone, at a known rate."""

from dataclasses import replace

import numpy as np
import pytest
from numpy.random import default_rng

import psephos as ps
from psephos.infer.agreement import _Moves, agreement
from psephos.infer.least_squares import block_answers, least_squares
from psephos.inverse.choice import precision
from psephos.inverse.iterative import IterativeForm

DOMAIN = ps.Domain.of(sex=["F", "M"], age=range(8))
CUBE = ps.Workload.from_sql(DOMAIN, "SELECT sex, age, COUNT(*) FROM t GROUP BY CUBE (sex, age)")
BY_SEX = ps.Workload.from_sql(DOMAIN, "SELECT sex, COUNT(*) FROM t GROUP BY sex")
COUNTS = default_rng(0).integers(0, 200, DOMAIN.size)
STRATEGIES = {
    "cells": ps.select.identity(CUBE),
    "the tables": ps.select.hdmm(CUBE, restarts=1),
    "by sex": ps.select.hdmm(BY_SEX, restarts=1),
}
SPENDS = [ps.epsilon("0.1"), ps.epsilon("1"), ps.epsilon("10"), ps.rho("0.1")]


def handle(counts, seed):
    return ps.simulate(
        counts, DOMAIN, unit=ps.add_remove_row(), budget=ps.rho("1000000"), seed=seed
    ).vectorise()


def estimate_of(past, present, strategy, spend, seed):
    """Least squares on one measurement of each state."""
    return least_squares(
        [
            handle(past, 2 * seed).measure(STRATEGIES["cells"].query, spend=spend),
            handle(present, 2 * seed + 1).measure(STRATEGIES[strategy].query, spend=spend),
        ]
    )


@pytest.mark.parametrize("spend", SPENDS, ids=str)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_one_state_of_the_data_agrees(strategy, spend):
    workload = BY_SEX if strategy == "by sex" else CUBE
    for seed in range(40):
        estimate = estimate_of(COUNTS, COUNTS, strategy, spend, seed)
        assert agreement(estimate, workload, [0], seed=seed).ok


@pytest.mark.parametrize("spend", SPENDS, ids=str)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_twice_the_rows_contradict(strategy, spend):
    workload = BY_SEX if strategy == "by sex" else CUBE
    for seed in range(3):
        estimate = estimate_of(COUNTS, 3 * COUNTS, strategy, spend, seed)
        sizes = agreement(estimate, workload, [0], seed=seed)
        assert sizes.largest > sizes.largest_bound


def test_small_changes_of_many_numbers_contradict_together():
    """No cell is far off, and the total is the same."""
    domain = ps.Domain.of(cell=range(600))
    workload = ps.Workload.from_sql(domain, "SELECT cell, COUNT(*) FROM t GROUP BY cell")
    turns = np.tile([4, -4], 300)
    measurements = [
        ps.simulate(counts, domain, unit=ps.add_remove_row(), budget=ps.epsilon("1"), seed=seed)
        .vectorise()
        .measure(ps.select.identity(workload).query, spend=ps.epsilon("1"))
        for seed, counts in enumerate((np.full(600, 50), 50 + turns))
    ]
    sizes = agreement(least_squares(measurements), workload, [0], seed=0)
    assert sizes.largest <= sizes.largest_bound
    assert sizes.typical > sizes.typical_bound
    assert not sizes.ok


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_counts_cancel(strategy):
    """Another data set under the same noise gives the same sizes: nothing but noise is in them."""
    workload = BY_SEX if strategy == "by sex" else CUBE
    spend = ps.epsilon("1/2")
    one = agreement(estimate_of(COUNTS, COUNTS, strategy, spend, 5), workload, [0], seed=1)
    many = COUNTS[::-1] * 1000
    other = agreement(estimate_of(many, many, strategy, spend, 5), workload, [0], seed=1)
    np.testing.assert_allclose(
        [one.largest, one.typical], [other.largest, other.typical], rtol=1e-6
    )
    assert (one.largest_bound, one.query) == (other.largest_bound, other.query)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_moves_have_the_standard_error_that_they_are_measured_in(strategy):
    workload = BY_SEX if strategy == "by sex" else CUBE
    moves = _Moves.of(estimate_of(COUNTS, COUNTS, strategy, SPENDS[1], 0), workload, [0])
    noise = np.concatenate(list(moves.draw(20_000, 0)), axis=1)
    moving = moves.scale > 0
    assert moving.any()
    np.testing.assert_allclose(noise[moving].std(axis=1), moves.scale[moving], rtol=0.06)
    np.testing.assert_allclose(noise[~moving], 0, atol=1e-6)


def test_without_a_closed_form_the_draws_tell():
    for present, ok in ((COUNTS, True), (3 * COUNTS, False)):
        estimate = estimate_of(COUNTS, present, "cells", SPENDS[1], 1)
        blocks = block_answers(estimate.measurements)
        form = IterativeForm.of(
            [block.matrix for block in blocks],
            [precision(block.noise.exact_variance) for block in blocks],
            DOMAIN.shape,
        )
        sizes = agreement(replace(estimate, form=form), CUBE, [0], seed=0)
        assert sizes.ok == ok


def test_what_the_others_do_not_determine_is_left_out():
    measured = estimate_of(COUNTS, COUNTS, "by sex", SPENDS[1], 0)
    assert agreement(measured, CUBE, [0], seed=0).queries == 3  # two sexes and the total
    ages = ps.Workload.from_sql(DOMAIN, "SELECT age, COUNT(*) FROM t GROUP BY age")
    assert agreement(measured, ages, [0], seed=0).queries == 0
    assert agreement(measured, ages, [0], seed=0).ok


@pytest.mark.parametrize("spend", ["20", "500"])
def test_where_draws_are_all_zero_one_unit_of_noise_is_no_sign(spend):
    """At a huge budget the integers are exact; nor is the rounding of floats a contradiction."""
    for rows, ok in ((0, True), (1, True), (3, False)):
        moved = COUNTS + rows * (np.arange(DOMAIN.size) == 3)
        estimate = estimate_of(COUNTS, moved, "cells", ps.epsilon(spend), 0)
        assert agreement(estimate, CUBE, [0], seed=0).ok == ok
