"""What private searches go by: one a file, each with the theorem that bounds what it tells.

A search says which tables of counts it looks at, and draws its result from them; its mechanism says
what that books in rho (`budget.RHO_OF_EPSILON`). `ProtectedVector.choose` and `partition` take the
types listed here, by identity, and no other; `draw_queries` takes `UndercountedQueries`.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Any, ClassVar, Protocol, Self

from psephos.kernel.budget import Mechanism
from psephos.kernel.scores.dual_query import UndercountedQueries
from psephos.kernel.scores.far_from_independent import FarFromIndependent
from psephos.kernel.scores.mechanisms import Draws
from psephos.kernel.scores.noisy_intervals import NoisyIntervals
from psephos.kernel.scores.priv_tree import PrivTree
from psephos.kernel.scores.whole_partitions import WholePartitions
from psephos.kernel.scores.worst_approximated import WorstApproximated
from psephos.matrix import Matrix
from psephos.values import Array


class PrivateSearch(Protocol):
    """A private search; what it draws costs epsilon per unit of distance."""

    mechanism: ClassVar[Mechanism]

    @property
    def parts(self) -> Sequence[Any]:
        """What makes this search, for the ledger's fingerprint: its name first."""

    def admitted(self, cells: int) -> Self:
        """The same search over so many cells, rebuilt by the gate from each field read once."""

    def tables(self, cells: int) -> tuple[Matrix, ...]:
        """The queries whose true answers are looked at."""

    def draw(self, answers: Sequence[Array], epsilon: Fraction, draws: Draws) -> Array:
        """The result, from the true answers of each of the tables."""


class Score(PrivateSearch, Protocol):
    """A whole number for every candidate, the larger the better."""

    @property
    def sensitivity(self) -> int:
        """How far one row can move the score of a candidate; at least 1."""

    def scores(self, answers: Sequence[Array]) -> list[int]:
        """The scores, from the true answers of the tables."""


SCORES: tuple[type[Score], ...] = (WorstApproximated, FarFromIndependent)
"""The scores of candidates that the kernel has a rule for; a result is a candidate's number."""

PARTITIONS: tuple[type[PrivateSearch], ...] = (WholePartitions, NoisyIntervals, PrivTree)
"""The searches for partitions into intervals; a result is the lengths of the intervals."""

__all__ = [
    "PARTITIONS",
    "SCORES",
    "FarFromIndependent",
    "NoisyIntervals",
    "PrivTree",
    "PrivateSearch",
    "Score",
    "UndercountedQueries",
    "WholePartitions",
    "WorstApproximated",
]
