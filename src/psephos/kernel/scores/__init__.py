"""What private choices go by: one score a file, each with the theorem that bounds it.

A score says which queries it looks at, how far one row can move it, and by which mechanism a
candidate is drawn; the mechanism says what the choice books in rho (`budget.RHO_OF_EPSILON`).
`ProtectedVector.choose` takes the types listed here, by identity, and no other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar, Protocol, Self

from psephos.kernel.budget import Mechanism
from psephos.kernel.scores.worst_approximated import WorstApproximated
from psephos.matrix import Matrix
from psephos.values import Array


class Score(Protocol):
    """A whole number for every candidate, the larger the better."""

    mechanism: ClassVar[Mechanism]

    @property
    def queries(self) -> Matrix:
        """The queries whose true answers are looked at."""

    @property
    def sensitivity(self) -> int:
        """How far one row can move the score of a candidate; at least 1."""

    @property
    def parts(self) -> Sequence[Any]:
        """What makes this score, for the ledger's fingerprint: its name first."""

    def admitted(self, cells: int) -> Self:
        """The same score over so many cells, rebuilt by the gate from each field read once."""

    def scores(self, answers: Array) -> list[int]:
        """The scores, from the true answers of `queries`."""


SCORES: tuple[type[Score], ...] = (WorstApproximated,)
"""The scores that the kernel has a rule for."""

__all__ = ["SCORES", "Score", "WorstApproximated"]
