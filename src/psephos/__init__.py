"""psephos: a whole workload of counting queries, answered under differential privacy.

The names below follow the way of the data: what exists (domain), which rows (predicate), what is
asked (workload), how it is computed (matrix), what may be spent (budget, unit, ledger), the handles
that spend it (protect, simulate), and what can go wrong (errors).
"""

from psephos import infer, matrix, plans
from psephos.audit.audit import audit
from psephos.domain.attribute import Attribute
from psephos.domain.domain import Domain
from psephos.domain.predicate import Predicate, col
from psephos.domain.values import Level
from psephos.errors import (
    BudgetError,
    BudgetExceededError,
    DomainError,
    LedgerError,
    PredicateError,
    PsephosError,
    RefusedError,
    ReleaseError,
    ShapeError,
    SourceError,
    SqlError,
    TooLargeError,
    UnsupportedError,
    WorkloadError,
)
from psephos.infer.estimate import Answers, Estimate
from psephos.infer.least_squares import LeastSquares
from psephos.kernel.budget import Budget, epsilon, epsilon_delta, rho
from psephos.kernel.ledger import Ledger
from psephos.kernel.measurement import Measurement
from psephos.kernel.query import Query
from psephos.kernel.unit import Unit, add_remove_row, person, substitute_row
from psephos.protect import check, protect, simulate
from psephos.release.ask import ask, price
from psephos.release.bundle import Bundle
from psephos.release.forecast import Forecast, plan
from psephos.release.preflight import check_release
from psephos.release.run import rehearse, release
from psephos.release.verify import verify
from psephos.strategy import select
from psephos.strategy.strategy import Strategy
from psephos.version import __version__ as __version__
from psephos.workload import census
from psephos.workload.builders import (
    marginals,
    prefix_product,
    range_marginals,
    range_product,
    relative,
)
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
    "relative",
    # what is measured for it
    "select",
    "Strategy",
    # how it is computed
    "matrix",
    # what may be spent
    "epsilon",
    "rho",
    "epsilon_delta",
    "Budget",
    "add_remove_row",
    "substitute_row",
    "person",
    "Unit",
    "Ledger",
    # what is measured
    "check",
    "protect",
    "simulate",
    "Query",
    "Measurement",
    # what it tells
    "infer",
    "Estimate",
    "LeastSquares",
    "Answers",
    "plans",
    # what is published
    "check_release",
    "plan",
    "Forecast",
    "rehearse",
    "release",
    "Bundle",
    "verify",
    "ask",
    "price",
    "audit",
    # what can go wrong
    "PsephosError",
    "DomainError",
    "PredicateError",
    "ShapeError",
    "UnsupportedError",
    "TooLargeError",
    "WorkloadError",
    "SqlError",
    "BudgetError",
    "BudgetExceededError",
    "LedgerError",
    "SourceError",
    "RefusedError",
    "ReleaseError",
]
