"""The table that is farthest from a guess of it: how PrivBayes chooses parents.

Zhang, Cormode, Procopiuc, Srivastava and Xiao 2014 score an attribute with its parents by how far
their joint table is from the product of its margins, which a row moves by up to about 6 counts
(3/N + 2/N² of half the distance, in shares). Here the product comes from noisy margins, rounded to
whole numbers, and is public: the score of table c is Σ_i |(A_c x)_i - g_ci|, and a row moves it by
1. A first look at the margins pays for that.

Privacy: by the triangle inequality | ‖A x' - g‖₁ - ‖A x - g‖₁ | ≤ ‖A(x' - x)‖₁, and per unit of
distance that is at most the largest L1 column of A, 1 for a marginal: a row counts in one of its
cells. Larger tables have larger scores, by noise alone; let candidates of like size compete
(tests/contracts/test_scores.py, tests/kernel/test_choose.py::test_dependent_attributes_are_likely).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from operator import add
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from psephos.errors import RefusedError, ShapeError
from psephos.kernel import gate, sensitivity
from psephos.kernel.budget import Mechanism
from psephos.kernel.scores.mechanisms import Draws
from psephos.matrix import Matrix
from psephos.values import Array, largest

LARGEST_GUESS = 1 << 61


@dataclass(frozen=True, eq=False)
class FarFromIndependent:
    """Choose a table of counts that a guess of it misses by far, by the exponential mechanism.

    Args:
        candidates: a matrix for each table, e.g. a marginal: a Kron of identities and totals
        guesses: whole numbers for each table, one for each of its counts
    """

    candidates: tuple[Matrix, ...]
    guesses: tuple[ArrayLike, ...]
    mechanism: ClassVar[Mechanism] = "exponential"

    def admitted(self, cells: int) -> FarFromIndependent:
        """The same from the kernel's own parts; what is no score over so many cells is refused."""
        candidates, guesses = self.candidates, self.guesses
        tuples = type(candidates) is tuple and type(guesses) is tuple
        if not tuples or len(candidates) != len(guesses):
            raise RefusedError("candidates and guesses are tuples, of a guess for each candidate")
        matrices = tuple(gate.admit(candidate, "matrix") for candidate in candidates)
        for matrix in matrices:
            if matrix.shape[1] != cells:
                shown = f"a candidate {matrix.shape[1]:,} columns"
                raise ShapeError(f"the vector has {cells:,} cells, {shown}")
        numbers = tuple(
            _whole(guess, m.shape[0]) for guess, m in zip(guesses, matrices, strict=True)
        )
        admitted = FarFromIndependent(matrices, numbers)
        if not matrices or admitted.sensitivity == 0:
            raise RefusedError("there is no candidate, or all are zero; nothing to choose by")
        return admitted

    @property
    def parts(self) -> Sequence[Any]:
        """The candidates and the guesses."""
        return "far from independent", self.candidates, self.guesses

    @cached_property
    def sensitivity(self) -> int:
        """The largest L1 column of a candidate: 1 for marginals."""
        return max((sensitivity.stability(matrix) for matrix in self.candidates), default=0)

    def tables(self, cells: int) -> tuple[Matrix, ...]:
        """The candidates are looked at."""
        return self.candidates

    def scores(self, answers: Sequence[Array]) -> list[int]:
        """How far each true table is from its guess."""
        pairs = zip(answers, self.guesses, strict=True)
        return [_sum_of_sizes(sensitivity.exactly(add, true, -np.asarray(g))) for true, g in pairs]

    def draw(self, answers: Sequence[Array], epsilon: Fraction, draws: Draws) -> Array:
        """The number of a candidate."""
        scores = self.scores(answers)
        return np.array([draws.choice(scores, epsilon, self.sensitivity, self.mechanism)])


def _whole(guess: ArrayLike, size: int) -> Array:
    """A copy of whole numbers, and no subclass."""
    try:
        copy = np.array(guess)
    except (TypeError, ValueError, MemoryError):
        copy = np.array([])
    if copy.shape != (size,) or copy.dtype.kind not in "iu" or largest(copy) >= LARGEST_GUESS:
        shown = f"{copy.dtype} of shape {copy.shape}"
        raise ShapeError(f"a guess must be {size:,} whole numbers below 2^61, got {shown}")
    return copy.astype(np.int64)


def _sum_of_sizes(numbers: Array) -> int:
    wide = largest(numbers) * numbers.size >= sensitivity.SAFE
    return int(np.abs(numbers.astype(object) if wide else numbers).sum())
