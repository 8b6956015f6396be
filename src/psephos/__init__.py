"""psephos: a whole workload of counting queries, answered under differential privacy.

The names below follow the way of the data: what exists (domain), which rows (predicate), what is
asked (workload), how it is computed (matrix), and what can go wrong (errors).
"""

from psephos import matrix
from psephos.attribute import Attribute, Level
from psephos.domain import Domain
from psephos.errors import (
    DomainError,
    PredicateError,
    PsephosError,
    ShapeError,
    SqlError,
    TooLargeError,
    UnsupportedError,
    WorkloadError,
)
from psephos.predicate import Predicate, col
from psephos.workload import census
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
from psephos.workload.reduce import Reduction
from psephos.workload.workload import Workload

__version__ = "0.1.0"

__all__ = [  # noqa: RUF022 - in the order of the data's way
    # what exists
    "Attribute",
    "Level",
    "Domain",
    # which rows
    "col",
    "Predicate",
    # what is asked of one attribute
    "QuerySet",
    "identity",
    "total",
    "identity_total",
    "prefix",
    "all_range",
    "width_range",
    "ranges",
    "masks",
    "groups",
    "level",
    "predicates",
    "permuted",
    "stacked",
    # what is asked
    "product",
    "Product",
    "Workload",
    "marginals",
    "range_marginals",
    "prefix_product",
    "range_product",
    "census",
    "Reduction",
    # how it is computed
    "matrix",
    # what can go wrong
    "PsephosError",
    "DomainError",
    "PredicateError",
    "ShapeError",
    "UnsupportedError",
    "TooLargeError",
    "WorkloadError",
    "SqlError",
]
