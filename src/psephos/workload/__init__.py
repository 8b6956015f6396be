"""Counting queries: query sets, products, workloads, and the ways to write them down."""

from psephos.workload.builders import marginals, prefix_product, range_marginals, range_product
from psephos.workload.product import Product, product
from psephos.workload.queries import (
    QuerySet,
    all_range,
    groups,
    identity,
    identity_total,
    level,
    masks,
    permuted,
    predicates,
    prefix,
    ranges,
    stacked,
    total,
    width_range,
)
from psephos.workload.workload import Reduction, Workload

__all__ = [
    "Product",
    "QuerySet",
    "Reduction",
    "Workload",
    "all_range",
    "census",
    "groups",
    "identity",
    "identity_total",
    "level",
    "marginals",
    "masks",
    "permuted",
    "predicates",
    "prefix",
    "prefix_product",
    "product",
    "range_marginals",
    "range_product",
    "ranges",
    "stacked",
    "total",
    "width_range",
]
