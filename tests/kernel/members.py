"""One matrix of every type that the kernel has a rule for, and products that take other ways."""

import numpy as np
import scipy.sparse as sp

from psephos import matrix as mx

ENTRIES = sp.csr_array([[0, 2], [3, -1]])
WIDE = mx.PIdentity(np.arange(1, 91), np.ones((6, 90), int))
MEMBERS = [
    mx.Identity(4),
    mx.Ones(3, 4),
    mx.Prefix(4),
    mx.Prefix(4).T,
    mx.Partition([0, 1, 1, 0]).T,
    mx.Difference(4),
    mx.Haar(5),
    mx.AllRange(4),
    mx.WidthRange(5, 3),
    mx.Ranges.intervals(4, [0, 1], [2, 3]),
    mx.Partition([0, 1, 1, 0]),
    mx.Marginals.of((2, 3), {(0,): 2, (): -1}),
    mx.Diagonal([3, -2]),
    mx.Dense([[1, -5], [0, 2]]),
    mx.Dense(4 * np.eye(4, dtype=np.int16) - np.ones((4, 4), dtype=np.int16)),
    mx.Sparse(ENTRIES),
    mx.PIdentity([3, 1], [[2, -1], [0, 5]]),
    mx.Compose((mx.PIdentity([3, 1], [[2, -1]]), mx.Partition([0, 1, 1, 0]))),
    mx.Permuted(mx.Prefix(3), [2, 0, 1]),
    mx.Scaled(-3, mx.Prefix(3)),
    mx.Stack((mx.Identity(3), mx.Prefix(3))),
    mx.DirectSum((mx.Identity(2), mx.Prefix(3))),
    mx.Kron((mx.Prefix(3), mx.Haar(3), mx.total(2))),
    mx.Kron(
        (mx.Dense(np.ones((5, 90), int)), mx.PIdentity(np.arange(1, 91), np.ones((6, 90), int)))
    ),
    mx.Kron((mx.PIdentity(np.arange(1, 91), np.ones((6, 90), int)), mx.Identity(90))),
    mx.Kron((mx.total(3), mx.total(2), mx.Identity(2), mx.Identity(3), mx.Sparse(ENTRIES))),
]
