"""The derivative of entropy steps, by which their risk counts what they take from the noise.

Let y move by dy, log q by s and T by dT. From g = 0 at every step (psephos.infer.bregman),

    (H + λ) dθ_k = dy + λ dθ_{k-1} - b,   b = A(x (s - x·s/T)) + Ax dT/T,
    dx_k = x (Aᵀdθ_k + s - their x-weighted mean) + x dT/T,

which is the derivative of the whole iteration, one linear system for every step.

*Derivatives without cells.* Prior and asked queries are told by what was measured, so that there
are S and V with Aᵀ S = s, the moves of the prior's logarithm, and AᵀV = Wᵀ L dy, the queries along
the probes. With Θ = dθ + S the derivative of a step becomes

    (H + λ) Θ_k = dy + λ Θ_{k-1} - Ax dT/T,   A dx = H Θ_k + Ax dT/T,   (L dy)·(W dx) = V·(A dx),

in which no cell is left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from psephos.infer.asked_risk import AskedRisk
from psephos.infer.bregman import EntropyProblem, ExponentialPoint
from psephos.infer.few_numbers import Factored, WrittenCurvature
from psephos.infer.table_tree import TableTree
from psephos.values import Array

RIDGE = 1e-11
"""What is added to AAᵀ, as a share of its mean, so that it has a factor."""
SAME_CELLS = 1e-5
"""How far cells may be from those that they stand for, as a share of the largest."""
TANGENT_SHARE = 0.02
"""The share of a derivative that conjugate gradients leave."""


@dataclass(frozen=True, eq=False)
class Tangents:
    """Derivatives along all probes, one after the other: each is a vector of cells."""

    risk: AskedRisk
    several: tuple[Tangent, ...]
    near: Factored | None = None
    """H + λ where the last step ended; None before, and where numbers are many."""

    def step(self, problem: EntropyProblem, point: ExponentialPoint, strength: float) -> Tangents:
        """The derivatives after one step more, which ended at this point."""
        near = problem.factor(point, strength)
        several = tuple(each.step(problem, point, strength, near) for each in self.several)
        return replace(self, several=several, near=near)

    def passed(self, problem: EntropyProblem, point: ExponentialPoint) -> tuple[float, float]:
        """What share of the noise in the asked numbers is let through; degrees of freedom."""
        changes, traces = [], []
        for tangent in self.several:
            move = tangent.cells(problem, point)
            changes.append(self.risk.answers(move))
            traces.append(tangent.values @ (problem.tree.apply(move) / problem.variances))
            del move
        return self.risk.passed(changes), float(np.mean(traces))


@dataclass(frozen=True, eq=False)
class TableMove:
    """A move s of the prior's logarithm that is a sum of tables: s = Bᵀ of these, B a tree."""

    tree: TableTree
    tables: Array

    def cells(self) -> Array:
        """s, in memory of its own."""
        return self.tree.transpose(self.tables)


@dataclass(frozen=True, eq=False)
class CellMove:
    """A move of the prior's logarithm, cell by cell."""

    logarithms: Array
    """In half precision: a derivative needs no more, and there is one for every probe."""

    @classmethod
    def of(cls, cells: Array) -> CellMove:
        """A move of all cells; one that half precision cannot hold is cut."""
        most = float(np.finfo(np.float16).max)
        return cls(np.clip(cells, -most, most, out=cells).astype(np.float16))

    def cells(self) -> Array:
        """s, in memory of its own."""
        return self.logarithms.astype(float)


@dataclass(frozen=True, eq=False)
class Tangent:
    """The derivative of the iteration along one move of y, log q and T; dθ so far."""

    values: Array
    """dy, in the order of the tree."""
    prior: TableMove | CellMove
    """s."""
    total: float
    theta: Array

    def cells(self, problem: EntropyProblem, point: ExponentialPoint) -> Array:
        """The move dx at a point, by the dθ so far."""
        change = problem.tree.transpose(self.theta)
        change += self.prior.cells()
        return _reweighted(change, problem, point, self.total)

    def step(
        self,
        problem: EntropyProblem,
        point: ExponentialPoint,
        strength: float,
        near: Factored | None = None,
    ) -> Tangent:
        """The derivative after one step more, which ended at this point."""
        change = _reweighted(self.prior.cells(), problem, point, self.total)
        rest = self.values - problem.tree.apply(change)
        del change  # a vector of cells less while the system is solved
        rest -= problem.curvature(point, self.theta)
        # (H + λ)(dθ_k - dθ_{k-1}) = dy - b - H dθ_{k-1}
        move = problem.solve(point, strength, rest, TANGENT_SHARE, near)
        return replace(self, theta=self.theta + move)


def _reweighted(
    change: Array, problem: EntropyProblem, point: ExponentialPoint, total: float
) -> Array:
    """The move x (change - its x-weighted mean) + x dT/T of cells whose logarithms move."""
    change -= (float(point.x @ change) - total) / problem.total
    change *= point.x
    return change


@dataclass(frozen=True, eq=False)
class FewTangents:
    """Derivatives of the iteration along all probes, a column for each."""

    risk: AskedRisk
    values: Array
    """dy."""
    totals: Array
    """dT."""
    queries: Array
    """V."""
    theta: Array
    """Θ so far."""
    images: Array
    """HΘ where the last step ended."""
    written: WrittenCurvature
    near: Factored
    """H + λ where the last step ended."""

    @classmethod
    def of(
        cls, problem: EntropyProblem, tangents: Sequence[Tangent], risk: AskedRisk
    ) -> FewTangents | None:
        """None where numbers are many, or do not tell what the prior and the questions are."""
        written, tree = problem.written, problem.tree
        if written is None or any(isinstance(each.prior, CellMove) for each in tangents):
            return None
        gram = written.at(np.ones(tree.cells))
        ridge = np.full(tree.size, RIDGE * float(gram.trace()) / tree.size)
        inverse = Factored.of(gram, ridge)

        def numbers(cells: Array) -> Array | None:
            """Numbers θ with Aᵀθ = these cells, a column for each; None if there are none."""
            theta = inverse.solve(np.column_stack([tree.apply(column) for column in cells]))
            images = np.array([tree.transpose(np.ascontiguousarray(t)) for t in theta.T])
            off, size = float(np.abs(images - cells).max()), float(np.abs(cells).max())
            return theta if off <= SAME_CELLS * size else None

        moves = numbers(np.array([tangent.prior.cells() for tangent in tangents]))
        queries = numbers(np.array([risk.spread(image) for image in risk.probes]))
        if moves is None or queries is None:
            return None
        values = np.column_stack([tangent.values for tangent in tangents])
        totals = np.array([tangent.total for tangent in tangents])
        near = problem.factored(written, problem.start(), problem.first_strength())
        return cls(risk, values, totals, queries, moves, near.image(moves), written, near)

    def step(
        self, problem: EntropyProblem, point: ExponentialPoint, strength: float
    ) -> FewTangents:
        """The derivatives after one step more, which ended at this point."""
        near = problem.factored(self.written, point, strength)
        images = near.image(self.theta)
        rest = self.values - np.outer(point.answers, self.totals / problem.total)
        rest -= images
        move = near.solve(rest)
        images += rest  # and HΔ = rest - λΔ for the solution Δ, without another product
        images -= problem.ridge(strength)[:, None] * move
        return replace(self, theta=self.theta + move, images=images, near=near)

    def passed(self, problem: EntropyProblem, point: ExponentialPoint) -> tuple[float, float]:
        """What share of the noise in the asked numbers is let through; degrees of freedom."""
        moves = self.images + np.outer(point.answers, self.totals / problem.total)
        share = float((self.queries * moves).sum()) / self.risk.probed_noise
        freedom = float((self.values * moves / problem.variances[:, None]).sum())
        return share, freedom / self.totals.size
