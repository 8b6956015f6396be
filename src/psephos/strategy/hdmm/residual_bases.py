"""Marginals whose attributes are asked by prefixes, ranges or levels, under Gaussian noise.

As in `residual` there is one block for each set S of attributes, ⊗_{i∈S} Rᵢ ⊗_{i∉S} 1ᵀ. The rows of
Rᵢ sum to zero, so that blocks of different S know nothing of each other, and its columns have one
length, so that the blocks' prices add up. For unit columns and weights w_S the summed variance is

    Σ_S w_S · Σ_S τ_S / w_S,    τ_S = Σ_j c_j Π_{i∈S} tr((RᵢᵀRᵢ)⁺G_ij) Π_{i∉S} 1ᵀG_ij1/nᵢ²,

least at w_S ∝ √τ_S, where it is (Σ √τ_S)². What is left is one problem for each attribute: the
least tr(X⁺G) over X with X1 = 0 and a diagonal of ones. It is convex, and has the fixed point of
`gaussian` with the same certificate: G1 = 0 makes X1 = 0 at every step.

*Whole numbers.* Rows are rounded so that they still sum to zero, each making up for what rows
before it did to the lengths of columns. What columns then differ by is made up by a few more rows
that sum to zero. So all columns have exactly one length, and the kernel's sensitivity is a sum over
blocks, however many attributes there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh

from psephos.inverse.marginal_blocks import residual_basis
from psephos.matrix import Dense, Identity, Matrix, Ones, Stack
from psephos.matrix.marginals import Axes
from psephos.strategy.deadline import NEVER, Deadline
from psephos.strategy.hdmm.marginal_error import positive_traces
from psephos.strategy.hdmm.residual import residual_matrix
from psephos.values import Array
from psephos.workload.workload import Moments, Workload

SHORTEST_BASIS, LONGEST_BASIS = 4, 1024
"""Cells of an attribute that gets a basis of its own; others are measured value by value."""
BASIS_BITS = 10
"""Columns have lengths of about 2^bits, where all attributes of a block leave room for that."""
LEAST_BITS, LARGEST_BITS = 6, 14
GAP = 1e-4
"""The certified share of tr(X⁺G) that another X could save."""
STEPS = 100
"""The most steps of the fixed point."""
FAINT = 1e-6
"""What differences count at least, beside the average: all of them have to be told."""
BASIS_ROUNDS = 2
"""Attributes that are asked in several ways: bases and what they are worth take turns."""
LEAST_BASIS_GAIN = 1e-3
"""A basis of its own has to save this share of an attribute's variance."""
FILLING_ROWS = 30
"""The most rows that make up for different lengths of columns."""
LENGTHS, LONGER = 100, 1 / 16
"""How many lengths are tried, and by which share they may grow; mostly the first will do."""

Traces = Callable[[Moments], Array | Mapping[Axes, float]]


@dataclass(frozen=True, eq=False)
class BasisBlocks:
    """For every attribute its rows R, for every set of attributes the weight of their product."""

    matrices: Mapping[int, Matrix]
    sets: list[Axes]
    weights: Array
    rounding_loss: float
    """By which share the RMSE grew when bases became whole numbers."""


def opt_residual_bases(
    workload: Workload, traces: Traces, room: int, deadline: Deadline = NEVER
) -> BasisBlocks | None:
    """The best basis of each attribute and the best weights; None if values one by one are best.

    `traces` gives the τ_S of the workload for other moments of its query sets, and `room` is how
    many bits the entries of a block may have.
    """
    problem = _Problem.of(workload, traces)
    varying, shapes = problem.by_value.copy(), {}
    known: dict[bytes, Array | None] = {}
    for turn in range(BASIS_ROUNDS):
        for axis, numbers in problem.lines.items():
            if turn and len(numbers) == 1:
                continue
            grams = [problem.gram(k) for k in numbers]
            prices = problem.prices(varying, numbers)
            gram = np.asarray(sum(c * g for c, g in zip(prices, grams, strict=True)))
            key = gram.tobytes()
            if key not in known:
                known[key] = best_basis(gram, deadline)
            x = known[key]
            if x is not None:
                shapes[axis] = x
                inverse = np.linalg.pinv(x, rcond=1e-12, hermitian=True)
                varying[numbers] = [float((inverse * g).sum()) for g in grams]
    if not shapes:
        return None
    return problem.whole(varying, shapes, room)


@dataclass(frozen=True, eq=False)
class _Problem:
    """What selection of bases needs to know of a workload; query sets go by their numbers."""

    workload: Workload
    traces: Traces
    by_value: Array
    """tr(X⁺G) of every query set for X = (I - 11ᵀ/n) n/(n-1): value by value, unit columns."""

    @classmethod
    def of(cls, workload: Workload, traces: Traces) -> _Problem:
        shape = workload.domain.shape
        pairs = zip(workload.moments, workload.listed.axes, strict=True)
        by_value = [v * (shape[axis] - 1) / shape[axis] for (_, v), axis in pairs]
        return cls(workload, traces, np.array(by_value))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.workload.domain.shape

    @property
    def products_by_axis(self) -> dict[int, list[int]]:
        """The query sets of every attribute that tell its values apart."""
        numbers: dict[int, list[int]] = {}
        for k, axis in enumerate(self.workload.listed.axes):
            if self.by_value[k] > 0:
                numbers.setdefault(axis, []).append(k)
        return numbers

    @property
    def lines(self) -> dict[int, list[int]]:
        """Those of attributes that may be worth a basis of their own."""
        matrices = self.workload.listed.matrices
        return {
            axis: numbers
            for axis, numbers in self.products_by_axis.items()
            if SHORTEST_BASIS <= self.shape[axis] <= LONGEST_BASIS
            and not all(is_by_value(matrices[k]) for k in numbers)
        }

    def gram(self, number: int) -> Array:
        """G of a query set on differences of values."""
        matrix = self.workload.listed.matrices[number]
        n = matrix.shape[1]
        gram = matrix.gram().dense(limit=n * n)
        gram = gram - gram.mean(axis=0)
        return np.asarray(gram - gram.mean(axis=1, keepdims=True))

    def roots(self, varying: Array) -> dict[Axes, float]:
        """√τ_S up to one factor: the weight of S if columns have unit length."""
        moments = [(c, float(v)) for (c, _), v in zip(self.workload.moments, varying, strict=True)]
        taus = positive_traces(len(self.shape), self.traces(moments))
        # The traces have 1ᵀG1/n, and here it is 1ᵀG1/n² outside of S.
        return {s: math.sqrt(t * math.prod([self.shape[i] for i in s])) for s, t in taus.items()}

    def prices(self, varying: Array, numbers: Sequence[int]) -> list[float]:
        """How fast Σ √τ_S grows with tr(X⁺G) of each query set of an attribute, the sum one.

        τ_S is linear in it: what doubling it adds is its share.
        """
        if len(numbers) == 1:
            return [1.0]
        roots = self.roots(varying)
        prices = []
        for k in numbers:
            twice = varying.copy()
            twice[k] *= 2
            more = self.roots(twice)
            prices.append(sum((more[s] ** 2 - w**2) / w for s, w in roots.items()) / varying[k])
        return [price / sum(prices) for price in prices]

    def whole(self, varying: Array, shapes: Mapping[int, Array], room: int) -> BasisBlocks | None:
        """Bases in whole numbers, and the weights that are best for them."""
        real = self.roots(varying)
        bits = max(LEAST_BITS, min([BASIS_BITS, *self._shares(real, shapes, room)]))
        matrices, lengths, worth = {}, {}, self.by_value.copy()
        known: dict[int, Dense | None] = {}  # attributes with one basis keep one matrix
        for axis, numbers in self.products_by_axis.items():
            x = shapes.get(axis)
            if x is not None and id(x) not in known:
                known[id(x)] = integer_basis(x, bits)
            matrix = None if x is None else known[id(x)]
            basis = None if matrix is None else residual_basis(matrix)
            if matrix is None or basis is None:
                n = self.shape[axis]
                matrices[axis], lengths[axis] = residual_matrix((n,), (0,)).factors[0], n * (n - 1)
                continue
            matrices[axis] = matrix
            lengths[axis] = int((matrix.array[:, 0].astype(np.int64) ** 2).sum())
            queries = self.workload.listed.matrices
            worth[numbers] = [lengths[axis] * basis.inverse.trace_with(queries[k]) for k in numbers]
        weights = self.roots(worth)
        blocks = [w / math.prod([float(lengths[i]) for i in s]) for s, w in weights.items()]
        loss = sum(weights.values()) / sum(real.values()) - 1
        return BasisBlocks(matrices, list(weights), np.array(blocks), loss)

    def _shares(self, sets: Iterable[Axes], shapes: Mapping[int, Array], room: int) -> list[int]:
        """How many bits each basis of a block may have, with nI - 11ᵀ on its other attributes."""
        shares = {
            (
                sum(i in shapes for i in s),
                sum(self.shape[i].bit_length() for i in s if i not in shapes),
            )
            for s in sets
        }
        return [(room - others) // count for count, others in shares if count]


def is_by_value(queries: Matrix) -> bool:
    """Are values asked for one by one, or all alike: G = a(I - 11ᵀ/n) on differences?"""
    pieces = queries.parts if isinstance(queries, Stack) else (queries,)
    return all(isinstance(piece, Identity | Ones) for piece in pieces)


def best_basis(gram: Array, deadline: Deadline = NEVER) -> Array | None:
    """X of the least tr(X⁺G) with X1 = 0 and a diagonal of ones at most.

    None if X = (I - 11ᵀ/n) n/(n-1) is nearly as good.

    >>> prefixes = np.tril(np.ones((4, 4)))
    >>> centre = np.eye(4) - 1 / 4
    >>> x = best_basis(centre @ prefixes.T @ prefixes @ centre)
    >>> bool(np.abs(x.sum(axis=0)).max() < 1e-12), x.diagonal().round(3)
    (True, array([1., 1., 1., 1.]))
    """
    n = len(gram)
    by_value = float(gram.trace()) * (n - 1) / n
    gram = gram + FAINT * gram.trace() / n * (np.eye(n) - 1 / n)
    weights, bound, before = np.ones(n), 0.0, 0.0
    least, best = math.inf, gram
    for _ in range(STEPS):
        half = np.sqrt(weights)
        values, vectors = eigh(gram * half * half[:, None], driver="evd", overwrite_a=True)
        roots = np.sqrt(np.maximum(values, 0))
        trace = float(roots.sum())
        square_root = (vectors * roots) @ vectors.T
        excess = square_root.diagonal() / weights
        lower, upper = trace**2 / float(weights.sum()), float(excess.max()) * trace
        bound = max(bound, lower)
        if upper < least:
            least, best = upper, square_root / half / half[:, None] / excess.max()
        if deadline.passed or least - bound <= GAP * least:
            break
        weights = weights * excess ** (2 if lower >= before else 1)
        before = lower
    best = best - best.mean(axis=0)
    best = best - best.mean(axis=1, keepdims=True)
    return best if least < (1 - LEAST_BASIS_GAIN) * by_value else None


def integer_basis(x: Array, bits: int) -> Dense | None:
    """Rows in whole numbers with RᵀR ≈ 4^bits X: they sum to zero, and columns have one length.

    None where rounding leaves something open, or lengths do not come out equal.

    >>> rows = integer_basis(np.eye(4) - 1 / 4, 6).array.astype(int)
    >>> rows.sum(axis=1).any(), np.unique((rows**2).sum(axis=0)).size
    (np.False_, 1)
    """
    for more in range(LARGEST_BITS - bits + 1):
        rows = _of_one_length(_rounded(x, bits + more))
        if rows is not None:
            narrow = np.int16 if np.abs(rows).max() < 1 << 15 else np.int64
            matrix = Dense(rows.astype(narrow))
            if residual_basis(matrix) is not None:
                return matrix
    return None


def _rounded(x: Array, bits: int) -> Array:
    """Rows in whole numbers that sum to zero, from the longest to the shortest."""
    n = len(x)
    values, vectors = np.linalg.eigh(x)
    real = (vectors * np.sqrt(np.maximum(values, 0) / x.diagonal().max())).T[:0:-1] * (1 << bits)
    rows, owed = np.zeros((n - 1, n), dtype=np.int64), np.zeros(n)
    for row, exact in zip(rows, real, strict=True):
        low = np.floor(exact)
        # The step up adds this to the square; columns that are owed length take it first.
        step = 2 * low + 1
        first = exact - low + np.clip(owed / step, -0.45, 0.45)
        row[:] = low
        row[np.argsort(-first, kind="stable")[: round(-float(low.sum()))]] += 1
        owed += exact**2 - row**2
    return rows


def _of_one_length(rows: Array) -> Array | None:
    """The rows, with a few more that bring all columns to one length; None if that fails."""
    lengths = (rows**2).sum(axis=0)
    longest = int(lengths.max())
    # Rows that sum to zero have an even sum of squares, so what is owed can be even, too.
    longest += (lengths.size * longest - int(lengths.sum())) % 2
    for k in range(LENGTHS):
        longer = 2 * (k + round(1.15**k - 1))
        if longer > longest * LONGER:
            break
        owed = longest + longer - lengths
        more: list[Array] = []
        while owed.any() and len(more) < FILLING_ROWS:
            row = _filling_row(owed)
            if not row.any():
                break
            owed = owed - row**2
            more.append(row)
        if not owed.any():
            return np.vstack([rows, *more])
    return None


def _filling_row(owed: Array) -> Array:
    """Whole numbers that sum to zero, of squares up to what each column is owed.

    The largest that fit, with signs that keep their sum small; the smallest of them give way to
    what is left of it.
    """
    row = np.sqrt(owed).astype(np.int64)
    order = np.argsort(-row, kind="stable").tolist()
    total = 0
    for j in order:
        if total > 0:
            row[j] = -row[j]
        total += int(row[j])
    for j in reversed(order):
        if total * int(row[j]) > 0:
            less = min(abs(total), abs(int(row[j]))) * (1 if total > 0 else -1)
            row[j] -= less
            total -= less
    return row
