"""The same handles over public or made-up data, with play money and a seed.

Results say that they are simulations and are refused wherever a release is made. The noise here
is floating-point and repeatable: good for studying error, worthless for privacy.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from psephos.domain.domain import Domain
from psephos.errors import DomainError
from psephos.kernel import gate
from psephos.kernel.budget import Budget, Mechanism
from psephos.kernel.cell_counts import CellCounts
from psephos.kernel.lineage import Node, root_name
from psephos.kernel.noise import DiscreteLaplace, Noise
from psephos.kernel.play_money import PlayMoney
from psephos.kernel.protected import ProtectedTable
from psephos.kernel.scores.mechanisms import Draws
from psephos.kernel.snapshot import Snapshot
from psephos.kernel.source import Source
from psephos.kernel.unit import Cap, Unit
from psephos.kernel.vault import Vault
from psephos.values import Array


@dataclass(frozen=True)
class SeededDraws(Draws):
    """Repeatable noise of the right distribution, up to floating point."""

    generator: np.random.Generator
    simulation = True

    def noise(self, noise: Noise, size: int) -> Array:
        if isinstance(noise, DiscreteLaplace):
            p = -math.expm1(-1 / float(noise.scale))
            first, second = (self.generator.geometric(p, size) for _ in range(2))
            return first - second
        sigma = math.sqrt(float(noise.variance))
        if sigma > 50:
            return np.rint(self.generator.normal(0, sigma, size)).astype(np.int64)
        support = np.arange(-math.ceil(12 * sigma) - 1, math.ceil(12 * sigma) + 2)
        weights = np.exp(-(support**2) / (2 * sigma**2))
        return self.generator.choice(support, size, p=weights / weights.sum())

    def choice(self, scores: list[int], epsilon: Fraction, reach: int, mechanism: Mechanism) -> int:
        rate = float(epsilon) / (2 * reach)
        law = self.generator.gumbel if mechanism == "exponential" else self.generator.laplace
        return int(np.argmax(rate * np.array(scores) + law(size=len(scores))))

    def below(self, bound: int) -> int:
        return int(self.generator.integers(bound))


@dataclass(frozen=True, eq=False, repr=False)
class CountedSource:
    """Counts given as an array over the whole domain."""

    cells: Array
    row_abilities = frozenset({"row_cells"})

    def take(self, domain: Domain, cap: Cap | None, folder: Any = None) -> CellCounts:
        return CellCounts(domain, self.cells)


def counted(counts: Array, domain: Domain) -> CountedSource:
    """A source of given cell counts."""
    array = np.asarray(counts)
    if array.dtype.kind not in "iu" or array.size != domain.size or (array < 0).any():
        raise DomainError(
            f"simulate needs {domain.size_text} whole counts, none negative, one for each cell; "
            f"got {array.dtype} of shape {array.shape}"
        )
    return CountedSource(array.astype(np.int64).reshape(-1))


def simulation(
    source: Source, domain: Domain, *, unit: Unit, budget: Budget, seed: int, edition: str = ""
) -> ProtectedTable:
    """Handles over a source that is not private; see the module's text."""
    money = PlayMoney(gate.admit(unit, "unit"), gate.budget(budget, "a budget"))
    draws = SeededDraws(np.random.default_rng(seed))
    vault = Vault(Snapshot(source, domain, money.unit.cap), domain, money, draws)
    return ProtectedTable(domain, vault, Node(root_name(vault.schema, edition)))
