"""Implicit linear algebra: matrices known by what they do to vectors.

Leaves store at most what they list; combinations store their parts. Nothing here knows of privacy
or of data.
"""

from psephos.matrix.base import DENSE_LIMIT, Matrix
from psephos.matrix.combine import Compose, Scaled, Sum, compose
from psephos.matrix.core import (
    Diagonal,
    Difference,
    Identity,
    Ones,
    Prefix,
    is_total,
    suffix,
    total,
)
from psephos.matrix.explicit import Dense, Partition, Permuted, Sparse
from psephos.matrix.gram import Gram, Semiseparable
from psephos.matrix.haar import Haar
from psephos.matrix.kron import AxisTotals, Kron, NamedFactors
from psephos.matrix.marginals import Eigenspaces, Marginals, MarginalsGram, superset_sums
from psephos.matrix.pidentity import Downdate, PIdentity
from psephos.matrix.ranges import AllRange, Ranges, WidthRange
from psephos.matrix.stack import DirectSum, Stack, by_group

__all__ = [
    "DENSE_LIMIT",
    "AllRange",
    "AxisTotals",
    "Compose",
    "Dense",
    "Diagonal",
    "Difference",
    "DirectSum",
    "Downdate",
    "Eigenspaces",
    "Gram",
    "Haar",
    "Identity",
    "Kron",
    "Marginals",
    "MarginalsGram",
    "Matrix",
    "NamedFactors",
    "Ones",
    "PIdentity",
    "Partition",
    "Permuted",
    "Prefix",
    "Ranges",
    "Scaled",
    "Semiseparable",
    "Sparse",
    "Stack",
    "Sum",
    "WidthRange",
    "by_group",
    "compose",
    "is_total",
    "suffix",
    "superset_sums",
    "total",
]
