"""DAWA-Striped: stripes of unlike buckets share one noise, and none is one long bucket."""

import numpy as np

import psephos as ps

DOMAIN = ps.Domain.of(group=2, value=256)
PREFIXES = ps.Workload(DOMAIN, [ps.product(group=ps.identity(), value=ps.prefix())])


def test_a_stripe_of_equal_counts_gets_no_more_noise_than_one_that_is_cut():
    """One stripe is a step, the other a jumble: their trees differ, their norms must not."""
    rng = np.random.default_rng(0)
    counts = np.stack([np.full(256, 40), rng.permutation(256) * 400]).ravel()
    budget = ps.epsilon(1)
    data = ps.simulate(counts, DOMAIN, unit=ps.add_remove_row(), budget=budget, seed=0)
    done = ps.plans.run("DAWA-Striped", data.vectorise(), PREFIXES, spend=budget)
    (block,) = done.requests[1].result.query.blocks
    sums = np.abs(block.matrix.rmatvec(np.ones(block.matrix.shape[0])))
    assert sums.min() > 0.9 * sums.max()


def test_rows_at_one_end_of_a_sparse_stripe_stay_there():
    counts = np.zeros((2, 256), dtype=np.int64)
    counts[0, :4] = 3
    budget = ps.epsilon(1)
    data = ps.simulate(counts.ravel(), DOMAIN, unit=ps.add_remove_row(), budget=budget, seed=1)
    done = ps.plans.run("DAWA-Striped", data.vectorise(), PREFIXES, spend=budget)
    lengths = np.bincount(
        np.unique(done.estimate.vector.reshape(2, 256)[0].round(9), return_inverse=True)[1]
    )
    assert lengths.max() < 256
