"""Blocks without a common closed form: LSMR, preconditioned by the nearest Kronecker product.

X = Σ_j c_j ⊗_i Y_ij has no closed inverse for three or more products, but it has a nearest single
product ⊗Z_i with Z_i = Σ_j a_ij Y_ij (Van Loan and Pitsianis 1993, by alternating least squares in
the few numbers a_ij). LSMR on K ⊗Z_i^(-1/2) then needs tens of iterations instead of hundreds.

Traces are estimated from random signs (Hutchinson 1990), and say how well.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator, default_rng
from scipy.sparse.linalg import LinearOperator, lsmr

from psephos.errors import TooLargeError
from psephos.inverse.axis import DENSE_AXIS
from psephos.inverse.form import Factors, FittedVector, Form
from psephos.inverse.product import axis_inverse
from psephos.matrix import Dense, Diagonal, Identity, Kron, Matrix, Stack
from psephos.values import Array

PROBES = 24
"""Vectors of random signs from which a trace is estimated."""
SINGLE_QUERIES = 2000
"""The most queries whose variances are solved for one by one."""
PROBED_QUERIES = 10**8
"""The most queries that vectors of random signs are drawn for."""
LSMR_TOLERANCE = 1e-12
WORK_ITERATIONS = 100
"""Iterations that `work` counts for one solution."""


@dataclass(frozen=True, eq=False)
class IterativeForm(Form):
    """Any blocks: every solution is a run of LSMR."""

    blocks: tuple[Matrix, ...]
    precisions: tuple[float, ...]
    preconditioner: Matrix
    exact = False

    @classmethod
    def of(
        cls, blocks: Sequence[Matrix], precisions: Sequence[float], shape: tuple[int, ...]
    ) -> IterativeForm:
        return cls(tuple(blocks), tuple(precisions), nearest_root(blocks, precisions, shape))

    @property
    def relative_error(self) -> float:
        """The standard error of a trace of many queries, at most."""
        return math.sqrt(2 / PROBES)

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

    def _least_squares(self, target: Array) -> Array:
        blocks = self._scaled_blocks()
        z = lsmr(blocks, target, atol=LSMR_TOLERANCE, btol=LSMR_TOLERANCE, maxiter=2000)[0]
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

    def trace(self, factors: Factors) -> float:
        queries = Kron(factors)
        if queries.shape[0] <= PROBES:
            return float(self.variances(factors).sum())
        rng = default_rng(0)
        sizes = []
        for _ in range(PROBES):
            sizes.append((self._half_solution(_combination(queries, rng)) ** 2).sum())
        return float(np.mean(sizes))

    def variances(self, factors: Factors) -> Array:
        queries = Kron(factors)
        if queries.shape[0] > SINGLE_QUERIES:
            raise TooLargeError(
                f"the variances of {queries.shape[0]:,} queries would each need a run of LSMR, "
                f"over the limit of {SINGLE_QUERIES:,}; choose a strategy with a closed form (a "
                "product, two products, marginals), or ask for fewer queries",
                queries.shape[0],
                SINGLE_QUERIES,
            )
        rows = (queries.row(i) for i in range(queries.shape[0]))
        return np.array([(self._half_solution(row) ** 2).sum() for row in rows])

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


def _combination(queries: Matrix, rng: Generator) -> Array:
    """The sum of all queries, each with a random sign."""
    if queries.shape[0] > PROBED_QUERIES:
        raise TooLargeError(
            f"the error of {queries.shape[0]:,} queries would be estimated from random sums of "
            f"them, over the limit of {PROBED_QUERIES:,}; choose a strategy with a closed form (a "
            "product, two products, marginals), or ask for fewer queries",
            queries.shape[0],
            PROBED_QUERIES,
        )
    return queries.rmatvec(rng.integers(0, 2, queries.shape[0]) * 2.0 - 1)


def nearest_product(
    blocks: Sequence[Matrix], precisions: Sequence[float], shape: tuple[int, ...]
) -> list[Array] | None:
    """The Z_i of the product ⊗Z_i nearest to Σ c_j ⊗Y_ij; None where blocks are no products."""
    products = [b for b in blocks if isinstance(b, Kron)]
    fits = all(tuple(f.shape[1] for f in b.factors) == shape for b in products)
    if len(products) < len(blocks) or not fits or max(shape) > DENSE_AXIS:
        return None
    grams = [
        [b.factors[i].gram().dense(limit=n * n) for b in products] for i, n in enumerate(shape)
    ]
    inner = [np.array([[float((y * z).sum()) for z in ys] for y in ys]) for ys in grams]
    scale = [np.sqrt(np.diag(m)) for m in inner]
    c = np.array(precisions) * np.prod(scale, axis=0)
    inner = [m / np.outer(s, s) for m, s in zip(inner, scale, strict=True)]
    parts = [np.ones(len(blocks)) for _ in shape]
    for _ in range(10):
        for i in range(len(shape)):
            parts[i] = c.copy()
            for k, part in enumerate(parts):
                if k != i:
                    parts[i] *= inner[k] @ part / (part @ inner[k] @ part)
    return [
        np.asarray(sum(a / size * y for a, size, y in zip(part, s, ys, strict=True)))
        for ys, part, s in zip(grams, parts, scale, strict=True)
    ]


def nearest_root(
    blocks: Sequence[Matrix], precisions: Sequence[float], shape: tuple[int, ...]
) -> Matrix:
    """⊗Z_i^(-1/2) for the product ⊗Z_i nearest to Σ c_j ⊗Y_ij; the identity if there is none."""
    grams = nearest_product(blocks, precisions, shape)
    if grams is None:
        return _column_scaling(blocks, precisions)
    roots: list[Matrix] = []
    for z in grams:
        values, vectors = np.linalg.eigh(z)
        inside = values > values[-1] * len(values) * 1e-13
        roots.append(Dense(vectors[:, inside] / np.sqrt(values[inside])))
    return Kron(tuple(roots))


def _column_scaling(blocks: Sequence[Matrix], precisions: Sequence[float]) -> Matrix:
    """One over the length of each column."""
    lengths = np.zeros(blocks[0].shape[1])
    for block, c in zip(blocks, precisions, strict=True):
        lengths += c * block.sqr()._column_sums()
    if not lengths.all():
        return Identity(lengths.size)
    return Diagonal(1 / np.sqrt(lengths))
