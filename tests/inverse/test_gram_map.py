"""X = Σ c_j A_jᵀA_j on a vector, whichever way its blocks are gone through."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from psephos.inverse.gram_map import gram_map
from psephos.matrix import Kron, Matrix, Partition, Prefix, total
from psephos.matrix.base import first_appearance

CELLS = 7
partitions = st.lists(st.integers(0, 4), min_size=CELLS, max_size=CELLS).map(
    lambda groups: Partition(first_appearance(np.array(groups)))
)
blocks = st.lists(st.one_of(partitions, st.just(total(CELLS))), min_size=1, max_size=4)
weights = st.sampled_from([0.25, 0.5, 1.0, 3.0])


@given(blocks, st.lists(weights, min_size=5, max_size=5), st.booleans(), st.booleans())
def test_blocks_written_out(
    blocks: list[Matrix], weights: list[float], wrapped: bool, mixed: bool
) -> None:
    if mixed:  # a block that is no partition
        blocks = [*blocks, Prefix(CELLS)]
    if wrapped:
        blocks = [Kron((block,)) for block in blocks]
    weights = weights[: len(blocks)]
    whole = sum(
        c * (block.dense().T @ block.dense()) for block, c in zip(blocks, weights, strict=True)
    )
    apply = gram_map(blocks, weights, (CELLS,))
    x = np.arange(CELLS) - 2.5
    image = apply(x)
    np.testing.assert_allclose(image, whole @ x, atol=1e-12)
    image += 1  # memory of the caller's own
    np.testing.assert_allclose(apply(x), whole @ x, atol=1e-12)
