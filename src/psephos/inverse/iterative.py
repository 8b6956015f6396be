"""Blocks without a common closed form: LSMR, preconditioned by the nearest Kronecker product.

X = Σ_j c_j ⊗_i Y_ij = K'K has no closed inverse for three or more products, but a nearest single
product M. LSMR (Fong and Saunders 2011) on K M^(-1/2) needs tens of iterations instead of hundreds.

Variances of many queries are estimated from few solutions. With signs e drawn at random and a
query w, let a = w'X⁺K'e, whose variance w'X⁺w is sought, and b = w'M⁻¹K'e, what the product would
answer. Two of their moments are known exactly and axis by axis,

    E[b²] = w'M⁻¹XM⁻¹w = γ,    E[ab] = w'M⁻¹XX⁺w = w'M⁻¹w = α,

so that with t = α/γ, the regression of a on b,

    w'X⁺w = α²/γ + E[(a - tb)²].

The first term is a lower bound whatever M is; only the second one is sampled. The nearer M is to X,
the smaller it is, and the spread of the estimate with it. The same holds for sums over queries.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import Generator, default_rng
from scipy.sparse.linalg import LinearOperator, lsmr

from psephos.errors import TooLargeError
from psephos.inverse.axis import DENSE_AXIS
from psephos.inverse.form import Factors, FittedVector, Form
from psephos.inverse.nearest_product import NearestProduct, column_scaling
from psephos.inverse.product import axis_inverse
from psephos.matrix import Kron, Matrix, Stack
from psephos.values import Array

MOST_SAMPLES, FEWEST_SAMPLES = 48, 8
"""Solutions from which variances are estimated; up to the first number queries are solved alone."""
HELD_SAMPLES = 30_000_000
"""Numbers of all solutions that are held, where that leaves enough of them."""
PROBED_QUERIES = 10**8
"""The most queries whose answers are sampled."""
LSMR_TOLERANCE, SAMPLE_TOLERANCE = 1e-12, 1e-8
WORK_ITERATIONS = 100
"""Iterations that `work` counts for one solution."""


@dataclass(frozen=True, eq=False)
class IterativeForm(Form):
    """Any blocks: every solution is a run of LSMR."""

    blocks: tuple[Matrix, ...]
    precisions: tuple[float, ...]
    preconditioner: Matrix
    nearest: NearestProduct | None
    exact = False

    @classmethod
    def of(
        cls, blocks: Sequence[Matrix], precisions: Sequence[float], shape: tuple[int, ...]
    ) -> IterativeForm:
        nearest = NearestProduct.of(blocks, precisions, shape)
        root = column_scaling(blocks, precisions) if nearest is None else nearest.root
        return cls(tuple(blocks), tuple(precisions), root, nearest)

    def _scaled_blocks(self) -> LinearOperator:
        """The map z ↦ K R z, with K the blocks scaled to unit noise and x = R z."""
        roots = [math.sqrt(c) for c in self.precisions]

        def forward(z: Array) -> Array:
            x = self.preconditioner.matvec(np.ravel(z))
            pairs = zip(self.blocks, roots, strict=True)
            return np.concatenate([root * block.matvec(x) for block, root in pairs])

        def backward(y: Array) -> Array:
            return self.preconditioner.rmatvec(self._scaled_transpose(np.ravel(y)))

        shape = (sum(b.shape[0] for b in self.blocks), self.preconditioner.shape[1])
        return LinearOperator(shape, matvec=forward, rmatvec=backward, dtype=float)

    def _scaled_transpose(self, y: Array) -> Array:
        """Kᵀy."""
        out, start = np.zeros(self.blocks[0].shape[1]), 0
        for block, c in zip(self.blocks, self.precisions, strict=True):
            out += math.sqrt(c) * block.rmatvec(y[start : start + block.shape[0]])
            start += block.shape[0]
        return out

    def _least_squares(self, target: Array, tolerance: float = LSMR_TOLERANCE) -> Array:
        blocks = self._scaled_blocks()
        z = lsmr(blocks, target, atol=tolerance, btol=tolerance, maxiter=2000)[0]
        return self.preconditioner.matvec(z)

    def _half_solution(self, weights: Array) -> Array:
        """(K⁺)ᵀw: its squared length is wᵀX⁺w."""
        blocks = self._scaled_blocks()
        target = self.preconditioner.rmatvec(weights)
        transpose = LinearOperator(
            blocks.shape[::-1], matvec=blocks.rmatvec, rmatvec=blocks.matvec, dtype=float
        )
        return np.asarray(
            lsmr(transpose, target, atol=LSMR_TOLERANCE, btol=LSMR_TOLERANCE, maxiter=2000)[0]
        )

    @property
    def _sample_count(self) -> int:
        cells = self.blocks[0].shape[1]
        return int(np.clip(HELD_SAMPLES // (2 * cells), FEWEST_SAMPLES, MOST_SAMPLES))

    @cached_property
    def _samples(self) -> tuple[tuple[Array, Array], ...]:
        """X⁺K'e and M⁻¹K'e for random signs e; the signs are public and always the same."""
        rows = sum(b.shape[0] for b in self.blocks)
        rng, pairs = default_rng(0), []
        for _ in range(self._sample_count):
            signs = rng.integers(0, 2, rows) * 2.0 - 1
            solution = self._least_squares(signs, SAMPLE_TOLERANCE)
            image = self.preconditioner.rmatvec(self._scaled_transpose(signs))
            pairs.append((solution, self.preconditioner.matvec(image)))
        return tuple(pairs)

    def trace(self, factors: Factors) -> float:
        return self._estimate(factors)[0]

    def trace_spreads(self, products: Sequence[Factors]) -> Array:
        sampled = [math.prod(w.shape[0] for w in factors) > MOST_SAMPLES for factors in products]
        pairs = zip(products, sampled, strict=True)
        return np.array(
            [self._estimate(each)[1] if estimated else 0.0 for each, estimated in pairs]
        )

    def _estimate(self, factors: Factors) -> tuple[float, float]:
        """A trace and the standard error of that number, which is 0 if it is exact."""
        queries = Kron(factors)
        if queries.shape[0] <= MOST_SAMPLES:
            return float(self.variances(factors).sum()), 0.0
        _check_sampled(queries)
        known, slope = 0.0, 0.0
        if self.nearest is not None:
            first, second = self.nearest.traces(factors)
            known, slope = first**2 / second, first / second
        sizes = np.array([(queries.matvec(a - slope * b) ** 2).sum() for a, b in self._samples])
        spread = float(sizes.std(ddof=1)) / math.sqrt(sizes.size)
        return known + float(sizes.mean()), spread

    def variances(self, factors: Factors) -> Array:
        """The variance of every answer: of a few queries exactly, else estimated.

        The relative standard error of an estimate is √(2/n) for n samples times the share that is
        sampled, at most about.
        """
        queries = Kron(factors)
        if queries.shape[0] <= MOST_SAMPLES:
            rows = (queries.row(i) for i in range(queries.shape[0]))
            return np.array([(self._half_solution(row) ** 2).sum() for row in rows])
        _check_sampled(queries)
        known, slope = np.zeros(queries.shape[0]), np.zeros(queries.shape[0])
        if self.nearest is not None:
            first, second = self.nearest.variances(factors)
            np.divide(first, second, out=slope, where=second > 0)
            known = slope * first
        sampled = np.zeros(queries.shape[0])
        for a, b in self._samples:
            sampled += (queries.matvec(a) - slope * queries.matvec(b)) ** 2
        return known + sampled / len(self._samples)

    def covers(self, factors: Factors) -> bool:
        """Do blocks determine the queries, by their factors; else, to the solver's accuracy?"""
        return self._spans(factors) or self._reaches(factors)

    def _spans(self, factors: Factors) -> bool:
        """Is there an axis on which the blocks that span the queries on all others do so together?

        That is enough; products that only several blocks together determine in other ways are
        left to the solver.
        """
        krons = [block for block in self.blocks if isinstance(block, Kron)]
        widths = [w.shape[1] for w in factors]
        krons = [k for k in krons if [f.shape[1] for f in k.factors] == widths]
        if not krons or max(widths) > DENSE_AXIS:
            return False
        known: dict[tuple[int, int], bool] = {}
        for kron in krons:
            for i, (f, w) in enumerate(zip(kron.factors, factors, strict=True)):
                if (i, id(f)) not in known:
                    known[i, id(f)] = axis_inverse(f).spans(w)
        for i, w in enumerate(factors):
            others = [
                kron.factors[i]
                for kron in krons
                if all(known[k, id(f)] for k, f in enumerate(kron.factors) if k != i)
            ]
            if others and axis_inverse(Stack(tuple(others))).spans(w):
                return True
        return False

    def _reaches(self, factors: Factors) -> bool:
        """Are random combinations of the queries reached?"""
        queries, rng = Kron(factors), default_rng(1)
        for _ in range(3):
            weights = _combination(queries, rng)
            residual = weights - self._scaled_transpose(self._half_solution(weights))
            if np.linalg.norm(residual) > 1e-6 * np.linalg.norm(weights):
                return False
        return True

    def fit(self, values: Sequence[Array]) -> FittedVector:
        pairs = zip(self.precisions, values, strict=True)
        targets = np.concatenate([math.sqrt(c) * y for c, y in pairs])
        if targets.ndim == 1:
            return FittedVector(self._least_squares(targets))
        return FittedVector(np.stack([self._least_squares(y) for y in targets.T], axis=1))

    @property
    def work(self) -> int:
        return WORK_ITERATIONS * (
            self.preconditioner.shape[0] + sum(b.shape[0] for b in self.blocks)
        )

    @property
    def sampling_work(self) -> int:
        return self._sample_count * self.work


def _check_sampled(queries: Matrix) -> None:
    if queries.shape[0] > PROBED_QUERIES:
        raise TooLargeError(
            f"the error of {queries.shape[0]:,} queries would be estimated from samples of their "
            f"answers, over the limit of {PROBED_QUERIES:,}; choose a strategy with a closed form "
            "(a product, two products, marginals), or ask for fewer queries",
            queries.shape[0],
            PROBED_QUERIES,
        )


def _combination(queries: Matrix, rng: Generator) -> Array:
    """A random combination of the queries; random signs alone could cancel what is not reached."""
    _check_sampled(queries)
    return queries.rmatvec(rng.standard_normal(queries.shape[0]))
