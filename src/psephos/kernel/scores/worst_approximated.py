"""The query that an estimate answers worst (Hardt, Ligett and McSherry 2012).

The score of query i is |W_i x - W_i x̂|, for an estimate x̂ of whole numbers.

Privacy: one row adds at most max_j |W_ij| to W_i x, and the absolute value does not stretch it, so
the largest entry of W bounds how far a score moves; `sensitivity.largest_entry` has the rule
(tests/kernel/test_choose.py::test_scores_move_by_the_largest_entry).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from psephos.errors import RefusedError, ShapeError
from psephos.kernel import gate, sensitivity
from psephos.kernel.budget import Mechanism
from psephos.kernel.scores.mechanisms import Draws
from psephos.matrix import Matrix
from psephos.values import Array


@dataclass(frozen=True, eq=False)
class WorstApproximated:
    """Choose a query that an estimate of the cells answers badly, by the exponential mechanism.

    Args:
        queries: the candidates, one a row
        estimate: whole numbers, one for each cell
    """

    queries: Matrix
    estimate: ArrayLike
    mechanism: ClassVar[Mechanism] = "exponential"

    def admitted(self, cells: int) -> WorstApproximated:
        """The same from the kernel's own parts; an estimate of other cells is refused."""
        queries: Matrix = gate.admit(self.queries, "matrix")
        try:
            estimate = np.array(self.estimate)  # a copy, and no subclass
        except (TypeError, ValueError, MemoryError):
            estimate = np.array([])
        whole = estimate.dtype.kind in "iu" and estimate.dtype != np.uint64
        if estimate.shape != (cells,) or not whole:
            shown = f"{estimate.dtype} of shape {estimate.shape}"
            raise ShapeError(f"the estimate must be {cells:,} whole 64-bit numbers, got {shown}")
        admitted = WorstApproximated(queries, estimate.astype(np.int64))
        if admitted.sensitivity == 0:
            raise RefusedError("all queries are zero; there is nothing to choose by")
        return admitted

    @property
    def parts(self) -> Sequence[Any]:
        """The queries and the estimate."""
        return "worst approximated", self.queries, self.estimate

    @cached_property
    def sensitivity(self) -> int:
        """The largest entry of the queries."""
        return sensitivity.largest_entry(self.queries)

    def tables(self, cells: int) -> tuple[Matrix, ...]:
        """The candidates are looked at."""
        return (self.queries,)

    def scores(self, answers: Sequence[Array]) -> list[int]:
        """How far each true answer is from the estimate's."""
        near = sensitivity.answers(self.queries, np.asarray(self.estimate))
        pairs = zip(answers[0], near, strict=True)
        return [abs(int(true) - int(guess)) for true, guess in pairs]

    def draw(self, answers: Sequence[Array], epsilon: Fraction, draws: Draws) -> Array:
        """The number of a candidate."""
        scores = self.scores(answers)
        return np.array([draws.choice(scores, epsilon, self.sensitivity, self.mechanism)])
