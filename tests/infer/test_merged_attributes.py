"""Measurements over merged attributes answer what they answered, and what looks at both."""

import numpy as np
import pytest

import psephos as ps
from psephos.infer.least_squares import over_merged_domain

UNIT = ps.add_remove_row()


def measured(select, shape=(3, 4, 2)):
    domain = ps.Domain.of({f"a{i}": n for i, n in enumerate(shape)})
    W = ps.marginals(domain, up_to=2)
    strategy = select(W)
    counts = np.arange(domain.size) * 5
    data = ps.simulate(counts, domain, unit=UNIT, budget=ps.epsilon(1), seed=3)
    return counts, W, data.vectorise().measure(strategy.query, spend=ps.epsilon(1))


@pytest.mark.parametrize("pair", [("a0", "a1"), ("a0", "a2"), ("a1", "a2")])
@pytest.mark.parametrize(
    "select",
    [ps.select.identity, ps.select.workload, lambda W: ps.select.opt_product(W, restarts=1)],
)
def test_the_same_questions_have_the_same_answers(select, pair):
    _, W, measurement = measured(select)
    merged = W.domain.merge(pair)
    over_pair = over_merged_domain(measurement, merged)
    before = ps.infer.least_squares(measurement).answer(W)
    after = ps.infer.least_squares(over_pair).answer(W.over(merged))
    ends = np.cumsum(W.query_counts)[:-1]
    for one, other in zip(np.split(after.values, ends), np.split(before.values, ends), strict=True):
        np.testing.assert_allclose(np.sort(one), np.sort(other), atol=1e-7)  # axes have moved
    np.testing.assert_allclose(np.sort(after.stderr), np.sort(before.stderr), rtol=1e-7)


def test_either_condition_is_a_sum_of_cells():
    _, W, measurement = measured(ps.select.identity)
    either = ps.Workload.from_sql(W.domain, "SELECT COUNT(*) FROM t WHERE a0 = 1 OR a2 = 0")
    cells = ps.infer.least_squares(measurement).vector.reshape(W.domain.shape)
    expected = cells[1].sum() + cells[[0, 2], :, 0].sum()
    answer = ps.infer.least_squares(over_merged_domain(measurement, either.domain)).answer(either)
    assert answer.values == pytest.approx([expected])


def test_other_domains_are_refused():
    _, W, measurement = measured(ps.select.identity)
    with pytest.raises(ps.UnsupportedError, match="does not merge"):
        over_merged_domain(measurement, ps.Domain.of(b=24))
    with pytest.raises(ps.UnsupportedError, match="does not merge"):
        over_merged_domain(measurement, W.domain)
