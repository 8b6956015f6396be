"""PrivBayes: long attributes have parents by their pieces, and tables lead to whole tables."""

import numpy as np
import pytest

import psephos as ps

DOMAIN = ps.Domain.of(income=400, group=2)
TABLES = ps.Workload(DOMAIN, [ps.product(income=ps.prefix(), group=ps.identity())])


def counts():
    """Incomes of one group are low, those of the other high."""
    table = np.zeros(DOMAIN.shape, dtype=np.int64)
    table[:100, 0], table[300:, 1] = 20, 20
    return table


def error(name, **options):
    budget = ps.epsilon(1)
    data = ps.simulate(counts(), DOMAIN, unit=ps.add_remove_row(), budget=budget, seed=1)
    done = ps.plans.run(name, data.vectorise(), TABLES, spend=budget, key="k", **options)
    return np.abs(done.answer(TABLES).values - TABLES.answer(counts())).max()


@pytest.mark.parametrize("name", ["PrivBayes", "PrivBayesLS"])
def test_a_long_attribute_has_parents_by_its_pieces(name):
    """Without them both groups would have the same incomes, 1,000 rows off. Half is allowed."""
    assert error(name) < 500


def test_tables_can_be_measured_by_hdmm():
    assert error("PrivBayesLS", selector="hdmm") < 500


def test_no_network_is_needed_for_questions_without_attributes():
    line = ps.Workload(DOMAIN, [ps.product()])
    budget = ps.epsilon(1)
    data = ps.simulate(counts(), DOMAIN, unit=ps.add_remove_row(), budget=budget, seed=1)
    done = ps.plans.run("PrivBayesLS", data.vectorise(), line, spend=budget, selector="hdmm")
    assert abs(done.answer(line).values[0] - 4000) < 400
