"""Normal equations are looked at without their solver: what solves them passes, nothing else."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from numpy.random import default_rng

import psephos as ps
from psephos.infer.certificates import unsolved_share
from psephos.kernel.query import Block, Query

DOMAIN = ps.Domain.of(a=6, b=4, c=3)
WORKLOADS = {
    "cells": [ps.product(a=ps.identity(), b=ps.identity(), c=ps.identity())],
    "marginals": ps.marginals(DOMAIN, up_to=2).products,
    "ranges": [ps.product(a=ps.all_range(), b=ps.prefix()), ps.product(c=ps.identity_total())],
    "total": [ps.product()],
}


def measured(products, *, seed=0):
    counts = default_rng(seed).integers(0, 50, DOMAIN.shape)
    budget = ps.rho(4)
    data = ps.simulate(counts, DOMAIN, unit=ps.add_remove_row(), budget=budget, seed=seed)
    return data.vectorise().measure(ps.Workload(DOMAIN, products).query, spend=ps.rho(1))


@pytest.mark.parametrize("name", WORKLOADS)
def test_least_squares_solves_its_normal_equations(name):
    estimate = ps.infer.least_squares(measured(WORKLOADS[name]))
    assert unsolved_share(estimate) < 1e-9


def test_several_measurements_and_blocks_that_are_no_products():
    vector = ps.matrix.Dense(default_rng(1).integers(0, 2, (5, DOMAIN.size)))
    counts = default_rng(0).integers(0, 50, DOMAIN.shape)
    data = ps.simulate(counts, DOMAIN, unit=ps.add_remove_row(), budget=ps.rho(4), seed=0)
    cells = data.vectorise()
    blocks = (vector, ps.matrix.Identity(DOMAIN.size))
    query = Query(tuple(Block(matrix, Fraction(1)) for matrix in blocks))
    both = [cells.measure(query, spend=ps.rho(1)), cells.measure(query, spend=ps.rho(2))]
    assert unsolved_share(ps.infer.least_squares(both)) < 1e-9


@pytest.mark.parametrize("name", WORKLOADS)
@pytest.mark.parametrize("seed", range(3))
def test_answers_that_are_a_little_off_do_not_pass(name, seed):
    """One number of one block, by a standard deviation of its noise."""
    estimate = ps.infer.least_squares(measured(WORKLOADS[name], seed=seed))
    first, *others = estimate.blocks
    values = first.values.astype(float)
    values[default_rng(seed).integers(values.size)] += np.sqrt(first.variance)
    moved = replace(estimate, blocks=(first._replace(values=values), *others))
    assert unsolved_share(moved) > 1e-2
