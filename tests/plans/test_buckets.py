"""DAWA's second stage: Greedy-H as in its paper, or HDMM on the buckets that were found."""

import numpy as np

import psephos as ps
from psephos.plans.buckets import on_buckets

PREFIXES = ps.Workload(ps.Domain.of(cell=64), [ps.product(cell=ps.prefix())])
COUNTS = np.repeat([40, 0, 7, 90, 3], [10, 30, 9, 5, 10])
SPEND = ps.epsilon("1")


def run(**options):
    data = ps.simulate(COUNTS, PREFIXES.domain, unit=ps.add_remove_row(), budget=SPEND, seed=0)
    return ps.plans.run("DAWA", data.vectorise(), PREFIXES, spend=SPEND, **options)


def test_hdmm_measures_the_buckets_that_greedy_h_would():
    trees, searched = run(), run(selector="hdmm")
    buckets = trees.requests[0].result
    assert searched.requests[0].result == buckets
    questions = on_buckets(PREFIXES, buckets)
    best = ps.select.hdmm(questions, restarts=1)
    assert searched.requests[1].result.query == best.query
    assert trees.requests[1].result.query == ps.select.greedy_h(questions).query
    assert best.expected_error(questions) <= ps.select.greedy_h(questions).expected_error(questions)
