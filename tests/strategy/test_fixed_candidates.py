"""No search loses to a strategy that is written down, where that is scored in a moment."""

import numpy as np
import pytest

import psephos as ps
from psephos.strategy.hdmm import fixed_candidates as fixed
from psephos.strategy.hdmm import operators
from psephos.strategy.hdmm.fixed_candidates import fixed_candidates
from psephos.variances import NoiseKind

SHUFFLED = np.random.default_rng(0).permutation(30)
WORKLOADS = {
    "prefixes": ps.Workload(ps.Domain.of(a=100), [ps.product(a=ps.prefix())]),
    "ranges": ps.Workload(ps.Domain.of(a=81), [ps.product(a=ps.all_range())]),
    "windows": ps.Workload(ps.Domain.of(a=64), [ps.product(a=ps.width_range(16))]),
    "shuffled": ps.Workload(
        ps.Domain.of(a=30), [ps.product(a=ps.permuted(ps.all_range(), SHUFFLED))]
    ),
    "grid": ps.Workload(ps.Domain.of(a=16, b=9), [ps.product(a=ps.prefix(), b=ps.all_range())]),
    "union": ps.Workload(
        ps.Domain.of(a=20, b=20),
        [ps.product(a=ps.prefix(), b=ps.identity()), ps.product(b=ps.prefix(), weight=3.0)],
    ),
    "tables": ps.marginals(ps.Domain.of(a=4, b=3, c=5), k=2),
    "long": ps.Workload(ps.Domain.of(a=12_000), [ps.product(a=ps.prefix())]),
}
NAMES = ["workload", "privelet", "hb", "h2", "quadtree"]


def errors_of(workload, noise):
    """The errors of all that are written down; some refuse."""
    errors = {}
    for name in ["identity", *NAMES]:
        if name == "workload" and max(workload.domain.shape) > fixed.UNLIKE_AXIS:
            continue
        try:
            errors[name] = getattr(ps.select, name)(workload, noise).expected_error(workload)
        except (ps.WorkloadError, ps.TooLargeError):
            continue
    return errors


@pytest.mark.slow
@pytest.mark.parametrize("noise", NoiseKind)
@pytest.mark.parametrize("name", WORKLOADS)
def test_a_search_never_loses_to_what_is_written_down(name, noise):
    workload = WORKLOADS[name]
    errors = errors_of(workload, noise)
    assert {"identity", "privelet", "hb"} <= set(errors)
    strategy = ps.select.hdmm(workload, noise, restarts=1)
    assert strategy.expected_error(workload) <= min(errors.values()) * (1 + 1e-9)
    rivals = {rival.name: rival.error for rival in strategy.rivals}
    for each in errors.keys() - {"workload"}:  # whose rival is the mechanism without inference
        assert rivals[each] == pytest.approx(errors[each])


@pytest.mark.parametrize("noise", NoiseKind)
@pytest.mark.parametrize("name", WORKLOADS)
def test_without_any_search_the_best_of_them_wins(name, noise, monkeypatch):
    monkeypatch.setattr(operators, "HDMM_OPERATORS", [])
    workload = WORKLOADS[name]
    errors = errors_of(workload, noise)
    strategy = ps.select.hdmm(workload, noise)
    assert strategy.expected_error(workload) == pytest.approx(min(errors.values()))
    assert errors[strategy.name] == pytest.approx(min(errors.values()))


def names_of(workload):
    return [strategy.name for strategy in fixed_candidates(workload, NoiseKind.LAPLACE)]


def test_what_takes_long_to_score_is_left_out(monkeypatch):
    grid = WORKLOADS["grid"]
    assert names_of(grid) == NAMES
    assert names_of(ps.Workload(ps.Domain.of(a=400_000), [ps.product(a=ps.prefix())])) == [
        "privelet",
        "hb",
    ]
    assert names_of(ps.marginals(ps.Domain.of(dict.fromkeys("abcdefgh", 40)), k=1)) == [
        "workload",
        "privelet",
    ]
    windows = ps.Workload(ps.Domain.of(a=5000), [ps.product(a=ps.width_range(70))])
    assert names_of(windows) == []
    monkeypatch.setattr(fixed, "QUICK_SECONDS", 0.0)
    assert names_of(grid) == NAMES[1:]
    monkeypatch.setattr(fixed, "QUICK_PRODUCTS", 0)
    assert names_of(grid) == []
