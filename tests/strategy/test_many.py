"""Many attributes, from rows to answers: a domain whose cells nobody could list."""

import numpy as np
import pyarrow as pa
import pytest

import psephos as ps

NAMES = [f"a{i}" for i in range(40)]
DOMAIN = ps.Domain.of(dict.fromkeys(NAMES, 5))
BUDGETS = {"laplace": ps.epsilon(10), "gaussian": ps.rho(2)}


@pytest.mark.parametrize("noise", BUDGETS)
def test_marginals_of_many_attributes_end_to_end(noise):
    rows = np.random.default_rng(0).integers(0, 5, (500, len(NAMES)))
    table = pa.table({name: rows[:, i] for i, name in enumerate(NAMES)})
    pairs = [NAMES[i : i + 2] for i in range(0, len(NAMES), 2)]
    workload = ps.marginals(DOMAIN, of=[*((name,) for name in NAMES), *map(tuple, pairs)])
    strategy = ps.select.hdmm(workload, noise, restarts=1)
    assert strategy.cost.method == "subspaces"
    assert strategy.cost.cells < 10**4
    data = ps.simulate(table, DOMAIN, unit=ps.add_remove_row(), budget=BUDGETS[noise], seed=0)
    measured = data.vectorise().measure(strategy.query, spend=BUDGETS[noise])
    answers = ps.infer.least_squares([measured]).answer(workload)
    true = [np.bincount(rows[:, i], minlength=5) for i in range(len(NAMES))]
    true += [
        np.bincount(5 * rows[:, i] + rows[:, i + 1], minlength=25) for i in range(0, len(NAMES), 2)
    ]
    z = (answers.values - np.concatenate(true)) / answers.stderr
    assert 0.8 < np.sqrt((z**2).mean()) < 1.2
    assert abs(z).max() < 6
    predicted = strategy.query_variances(workload, BUDGETS[noise], ps.add_remove_row())
    np.testing.assert_allclose(answers.stderr**2, predicted)


def test_the_found_strategy_is_the_one_that_was_scored():
    workload = ps.marginals(DOMAIN, k=1)
    strategy = ps.select.hdmm(workload, "gaussian", restarts=1)
    fresh = ps.Strategy(
        strategy.domain,
        strategy.noise,
        strategy.query,
        strategy.name,
        strategy.rounding_loss,
        strategy.rivals,
    )
    assert strategy == fresh
    assert hash(strategy) == hash(fresh)
    assert strategy.expected_error(workload) == fresh.expected_error(workload)
