"""What depends on other cells is seen, also where an estimate of the condition overlooks it."""

import numpy as np

from psephos.inverse.least_norm import least_norm
from psephos.matrix import Kron, Partition, PIdentity, Ranges


def test_a_dependent_cell_is_not_taken_for_measured():
    """Eleven of twelve directions are measured; a Cholesky factor exists all the same."""
    blocks = [
        Kron((Partition([0, 1, 0]), PIdentity(np.array([3, 1, 2, 1]), np.array([[3, 0, 0, 0]])))),
        Ranges((12,), np.array([[3], [3]]), np.array([[3], [6]])),
        Kron((Partition([0, 0, 1]), Partition([1, 0, 1, 0]))),
    ]
    values = [np.zeros(block.shape[0]) for block in blocks]
    values[-1][-1] = 1
    rows = np.vstack([block.dense() for block in blocks])
    wanted = np.linalg.pinv(rows) @ np.concatenate(values)
    assert np.allclose(least_norm(blocks, [0.25] * 3, values, (3, 4)), wanted, atol=1e-6)
