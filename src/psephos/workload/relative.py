"""Weights for relative error: queries that count few rows matter as much as those that count many.

A selection minimises the sum of squared errors, where wide queries dominate. Dividing every query
by its size before selecting (McKenna et al. 2018, section 9) turns that into relative error. The
result is for selection alone; answers are asked of the workload itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from psephos.attribute import Attribute
from psephos.errors import WorkloadError
from psephos.frozen import Array
from psephos.matrix import Compose, Diagonal, Matrix
from psephos.workload.product import Product
from psephos.workload.query_sets import MatrixQueries, QuerySet, SetLabels

if TYPE_CHECKING:
    from psephos.workload.workload import Workload


def relative(workload: Workload, guess: Mapping[str, Any] | None = None) -> Workload:
    """The workload with every query divided by its expected size.

    Without a guess the size of a query is its L1 norm: the number of cells that it counts. A guess
    gives, for some attributes, how the rows are spread over the values (any positive scale); the
    size of a query is then what it counts if attributes are independent. A guess is declared by a
    person and public: never computed from the data.

    >>> from psephos import Domain, Workload, prefix, product
    >>> W = relative(Workload(Domain.of(age=4), [product(age=prefix())]))
    >>> W.matrix.dense()
    array([[1.        , 0.        , 0.        , 0.        ],
           [0.5       , 0.5       , 0.        , 0.        ],
           [0.33333333, 0.33333333, 0.33333333, 0.        ],
           [0.25      , 0.25      , 0.25      , 0.25      ]])
    """
    from psephos.workload.workload import Workload

    if not isinstance(workload, Workload):
        raise WorkloadError(f"relative takes a workload, got {type(workload).__name__}")
    shares = _checked(workload, guess)
    products = []
    for asked in workload.products:
        items, size = [], 1.0
        for name, attribute in zip(workload.domain.names, workload.domain.attributes, strict=True):
            spread = shares.get(name, np.ones(attribute.size))
            queries = asked.factors.get(name)
            if queries is None:
                size *= float(spread.sum())
            else:
                matrix = workload._factor(name, queries)
                items.append((name, _divided(queries, matrix, attribute, spread)))
        products.append(Product(tuple(items), asked.weight / size, asked.title))
    return Workload(workload.domain, tuple(products))


def _divided(queries: QuerySet, matrix: Matrix, attribute: Attribute, spread: Array) -> QuerySet:
    sizes = matrix.abs().matvec(spread.astype(float))
    positive = sizes > 0
    weights = np.divide(1.0, sizes, out=np.zeros_like(sizes), where=positive)
    if positive.all() and np.ptp(sizes) == 0:
        made: Matrix = matrix if weights[0] == 1 else matrix * float(weights[0])
    else:
        made = Compose((Diagonal(weights), matrix))
    return MatrixQueries(made, SetLabels(queries, attribute))


def _checked(workload: Workload, guess: Mapping[str, Any] | None) -> dict[str, Array]:
    if not isinstance(guess, Mapping | None):
        raise WorkloadError(f"a guess is a dict of attribute: numbers, got {type(guess).__name__}")
    shares = {}
    for name, given in (guess or {}).items():
        size = workload.domain[name].size
        try:
            spread = np.asarray(given, dtype=float)
        except (TypeError, ValueError):
            spread = np.empty(0)
        if spread.shape != (size,) or not np.isfinite(spread).all() or (spread <= 0).any():
            raise WorkloadError(
                f"the guess for {name!r} must be {size} positive numbers, one for each value"
            )
        shares[name] = spread / spread.mean()
    return shares
