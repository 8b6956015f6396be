"""Searches over long attributes: an operator that cannot take one apart leaves the others alone."""

import psephos as ps


def test_a_long_attribute_with_a_level_is_planned():
    county = ps.Attribute.of(3000).with_level("state", 60)
    domain = ps.Domain.of(county=county, sex=2)
    tables = [
        ps.product(county=ps.level("state"), sex=ps.identity()),
        ps.product(county=ps.identity(), sex=ps.identity()),
        ps.product(sex=ps.identity()),
    ]
    strategy = ps.select.hdmm(ps.Workload(domain, tables), restarts=1)
    assert strategy.expected_error(ps.Workload(domain, tables)) > 0
