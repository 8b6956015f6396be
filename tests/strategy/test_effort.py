"""Searches that are cut short, or bounded by counted work."""

import math

import pytest

import psephos as ps


def mixed_release():
    age = ps.Attribute.integers(0, 31).with_level("ten", 10)
    domain = ps.Domain.of({"age": age, "sex": ps.Attribute.of(["F", "M"])})
    tables = [
        ps.product(age=ps.prefix()),
        ps.product(age=ps.level("ten"), sex=ps.identity()),
        ps.product(age=ps.identity()),
    ]
    return ps.Workload(domain, tables)


def test_an_interrupt_takes_the_best_so_far_where_it_may():
    workload = mixed_release()

    def interrupt_at(count):
        seen = []

        def listener(name, ratio):
            seen.append(ratio)
            if len(seen) == count:
                raise KeyboardInterrupt

        return listener

    best = ps.select.hdmm(workload, progress=interrupt_at(6), interruptible=True)
    assert not best.complete
    assert best.name.endswith("(stopped)")
    identity = ps.select.identity(workload).expected_error(workload)
    assert best.expected_error(workload) <= identity
    with pytest.raises(KeyboardInterrupt):
        ps.select.hdmm(workload, progress=interrupt_at(6))


def test_effort_bounds_a_search_and_more_is_never_worse():
    workload = mixed_release()
    seen = {}
    for effort in (0.01, 3, None):
        names = []
        strategy = ps.select.hdmm(
            workload,
            restarts=4,
            effort=effort,
            progress=lambda name, _, names=names: names.append(name),
        )
        assert strategy.complete
        seen[effort] = len(names), strategy.expected_error(workload)
    assert seen[0.01][0] <= seen[3][0] <= seen[None][0]
    assert seen[0.01][1] >= seen[3][1] >= seen[None][1]


@pytest.mark.parametrize("effort", [0, -1, math.inf, math.nan, "ten", True])
def test_effort_is_a_number_of_seconds(effort):
    with pytest.raises(ps.WorkloadError, match="effort is a positive number of seconds"):
        ps.select.hdmm(mixed_release(), effort=effort)


def test_the_same_strategy_on_any_number_of_cores():
    one, two = (ps.select.hdmm(mixed_release(), restarts=2, cores=cores) for cores in (1, 2))
    assert one.query == two.query


def test_a_start_ends_when_it_takes_longer_than_its_share():
    domain = ps.Domain.of(a=120, b=40)
    ranges, every = ps.all_range(), ps.identity()
    workload = ps.Workload(domain, [ps.product(a=ranges, b=every), ps.product(b=ranges)])
    strategy = ps.select.hdmm(workload, "gaussian", effort=1e-3, restarts=1)
    identity = ps.select.identity(workload, "gaussian")
    assert strategy.expected_error(workload) <= identity.expected_error(workload)
