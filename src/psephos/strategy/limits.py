"""How far a strategy is from the best possible: a limit that no Gaussian mechanism can pass.

A strategy whose columns have L2 norm at most one errs by tr(X⁻¹G), G = WᵀW, with diag X ≤ 1. By
duality every λ ≥ 0 with Σλ = 1 bounds that from below by (tr (Λ^½ G Λ^½)^½)²; the uniform λ gives
the SVD bound (Li and Miklau 2013). Here λ is a product of one law for each attribute.

G is a sum of products of small Grams. An attribute's Grams, scaled by its λ, are made block
diagonal together: its space splits into pieces that all of them leave invariant, equal ones counted
once with their number. The whole is then block diagonal over tuples of such pieces, each as wide as
the product of their sizes, which is small where cells are many.

Where a tuple is still too wide, its largest product stands for the sum: a sum of positive matrices
has roots no smaller than any of its terms. The limit then holds, and is looser.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import product as all_tuples

import numpy as np
from numpy.random import default_rng
from scipy.sparse import csr_array
from scipy.sparse.csgraph import connected_components

from psephos.errors import TooLargeError
from psephos.matrix import Identity, Matrix, Ones
from psephos.matrix.columns import gram_diagonal
from psephos.strategy.factors import checked_selection
from psephos.values import Array
from psephos.variances import NoiseKind
from psephos.workload.workload import Workload

WIDEST_AXIS = 1024
"""Grams of longer attributes are not written out, unless each is a table's or a total's."""
MOST_TUPLES = 10**6
MOST_WORK = 3 * 10**9
"""Steps of all eigenvalues for one λ, a second or two; beyond them one product stands for all."""
SAME = 1e-8
"""Relative size below which numbers of a Gram count as equal, or as nothing."""
POWERS = (0.5, 1.0)
"""λ is tried as these powers of what would be best for each attribute by itself."""
LAW_ROUNDS = 12
STILL = 1e-3
"""A round that gains less than this share is the last."""


@dataclass(frozen=True, eq=False)
class Subspace:
    """A subspace that all Grams of an attribute leave invariant, and how often it occurs.

    `grams` has a square array for each distinct Gram, as it acts on one copy.
    """

    grams: Array
    copies: int

    @property
    def size(self) -> int:
        """The dimension of one copy."""
        return int(self.grams.shape[1])

    @cached_property
    def root_traces(self) -> Array:
        """Tr B^½ for each of the Grams."""
        return np.array([_roots(np.linalg.eigvalsh(gram)).sum() for gram in self.grams])


@dataclass(frozen=True, eq=False)
class Axis:
    """The Grams of one attribute in pieces; `kinds` numbers the Gram of each product."""

    pieces: tuple[Subspace, ...]
    kinds: tuple[int, ...]

    def reach(self, product: int) -> list[int]:
        """The pieces on which the Gram of a product is not zero."""
        kind = self.kinds[product]
        return [k for k, piece in enumerate(self.pieces) if piece.grams[kind].any()]


def gaussian_limit(workload: Workload) -> float:
    """A number that ‖A‖₂²‖WA⁺‖²_F of no strategy A is below.

    It is in the units of `Strategy.expected_error` for Gaussian noise: the ratio of the two says
    how far a strategy can be from the best. Raises TooLargeError if an attribute is too long, or
    too many attributes meet.

    >>> from psephos import Domain, Workload, identity, prefix, product
    >>> W = Workload(Domain.of(sex=2, age=3), [product(sex=identity()), product(age=prefix())])
    >>> round(gaussian_limit(W), 2)
    9.26
    """
    checked_selection(workload, NoiseKind.GAUSSIAN)
    reduced = workload.reduce().workload
    by_axis, coefficients = _factors_by_axis(reduced), _squares(reduced)
    if all(_is_table(w) for axis in by_axis for w in axis):
        return marginal_limit(reduced)
    if len(coefficients) == 1:
        roots = [_best_law(axis, np.ones(1))[1] for axis in by_axis]
        return float(coefficients[0]) * math.prod(roots) ** 2
    laws = [_best_law(axis, coefficients * others)[0] for axis, others in _with_traces(by_axis)]
    bounds = []
    for power in POWERS:
        axes = [_axis(w, _normal(law**power)) for w, law in zip(by_axis, laws, strict=True)]
        bounds.append(_bound(axes, coefficients))
    return max(bounds)


def svd_bound(workload: Workload) -> float:
    """(Σ singular values of W)²/N, which no strategy's error is below (Li and Miklau 2013).

    For every strategy A with columns of L2 norm at most one, ‖WA⁺‖²_F is at least that. Columns of
    L1 norm one have L2 norm at most one, so it holds for Laplace noise too, where it is loose. It
    is exact for products, marginals, and unions whose tuples of pieces are not too wide.

    >>> from psephos import Domain, Workload, identity, product
    >>> svd_bound(Workload(Domain.of(age=10), [product(age=identity())]))
    10.0
    """
    checked_selection(workload, NoiseKind.LAPLACE)
    by_axis = _factors_by_axis(workload)
    if all(_is_table(w) for axis in by_axis for w in axis):
        return marginal_limit(workload)
    laws = [np.full(n, 1 / n) for n in workload.domain.shape]
    return _bound([_axis(w, law) for w, law in zip(by_axis, laws, strict=True)], _squares(workload))


def _factors_by_axis(workload: Workload) -> list[list[Matrix]]:
    factors = [workload.factors(j) for j in range(len(workload.products))]
    return [[each[i] for each in factors] for i in range(len(workload.domain.shape))]


def _squares(workload: Workload) -> Array:
    return np.array([product.weight**2 for product in workload.products])


def marginal_limit(workload: Workload) -> float:
    """The limit for tables: (Σ_S √(τ_S m_S))²/N, m_S the dimension of eigenspace S."""
    shape = workload.domain.shape
    total = math.fsum(
        math.sqrt(trace * math.prod(float(shape[i] - 1) for i in axes))
        for axes, trace in workload.closure_traces().items()
    )
    return total**2 / workload.domain.size


def _is_table(queries: Matrix) -> bool:
    return isinstance(queries, Identity) or (isinstance(queries, Ones) and queries.m == 1)


def _normal(law: Array) -> Array:
    return np.asarray(law / law.sum())


def _with_traces(by_axis: Sequence[Sequence[Matrix]]) -> list[tuple[Sequence[Matrix], Array]]:
    """Each axis with what the other axes make of each product: the traces of their Grams."""
    traces = np.array([[float(gram_diagonal(w).sum()) for w in axis] for axis in by_axis])
    return [(axis, traces.prod(axis=0) / traces[i]) for i, axis in enumerate(by_axis)]


def _best_law(axis: Sequence[Matrix], coefficients: Array) -> tuple[Array, float]:
    """The λ that is best for the sum of one attribute's Grams, and tr (Λ^½ G Λ^½)^½.

    At the best, λ is in proportion to the diagonal r of the root. Each round takes λ to r²/λ, twice
    as far as to r in logarithms, which is the best in one step where G is diagonal.
    """
    n = axis[0].shape[1]
    law = np.full(n, 1 / n)
    if all(_is_table(w) for w in axis):  # no value is reduced about more than another
        return law, math.sqrt(n if isinstance(axis[0], Identity) else 1)
    gram = sum(c * _gram(w) for c, w in zip(coefficients, axis, strict=True))
    best, before = (law, 0.0), 0.0
    for _ in range(LAW_ROUNDS):
        scale = np.sqrt(law)
        values, vectors = np.linalg.eigh(scale[:, None] * gram * scale)
        roots = _roots(values)
        best = max(best, (law, float(roots.sum())), key=lambda pair: pair[1])
        if best[1] < before * (1 + STILL):
            break
        diagonal = (vectors**2) @ roots
        law = _normal(np.divide(diagonal**2, law, out=np.zeros(n), where=law > 0))
        before = best[1]
    return best


def _gram(queries: Matrix) -> Array:
    n = queries.shape[1]
    if n > WIDEST_AXIS:
        raise TooLargeError(
            f"the limit needs a Gram of {n:,} x {n:,}, over {WIDEST_AXIS:,} cells", n, WIDEST_AXIS
        )
    return np.asarray(queries.gram().dense(limit=n * n), dtype=float)


def _roots(values: Array) -> Array:
    """Square roots of eigenvalues; what rounding may have made of a zero counts as zero."""
    small = values.max(initial=0) * values.size * 1e-15
    return np.sqrt(np.where(values > small, values, 0))


def _axis(factors: Sequence[Matrix], law: Array) -> Axis:
    """The Grams of one attribute, scaled by its λ, in pieces."""
    distinct = list({id(w): w for w in factors}.values())
    number = {id(w): k for k, w in enumerate(distinct)}
    kinds = tuple(number[id(w)] for w in factors)
    if all(_is_table(w) for w in factors):  # constants, and what adds up to nothing
        each = np.array([1 / law.size if isinstance(w, Identity) else 0 for w in distinct])
        constant = np.array([1 / law.size if isinstance(w, Identity) else 1 for w in distinct])
        pieces = [Subspace(constant[:, None, None], 1), Subspace(each[:, None, None], law.size - 1)]
        return Axis(tuple(piece for piece in pieces if piece.copies), kinds)
    scale = np.sqrt(law)
    return Axis(_pieces(np.stack([scale[:, None] * _gram(w) * scale for w in distinct])), kinds)


def _pieces(grams: Array) -> tuple[Subspace, ...]:
    """Common invariant subspaces of symmetric matrices, from the eigenspaces of a random mixture.

    An eigenspace of dimension m is one direction in each of m equal pieces. A vector of it, led
    through the matrices from eigenspace to eigenspace, spans one of them. Where the sums of squares
    of the copies do not add up to those of the whole, the piece is left as it is, which is valid,
    as is one of a single copy.
    """
    norms = np.sqrt((grams**2).sum(axis=(1, 2)))
    mixture = default_rng(0).uniform(0.5, 1.5, len(grams)) / norms
    values, vectors = np.linalg.eigh(np.tensordot(mixture, grams, 1))
    turned = vectors.T @ grams @ vectors
    starts = np.flatnonzero(np.diff(values, prepend=-np.inf) > SAME * np.abs(values).max())
    spaces = np.split(np.arange(values.size), starts[1:])
    sizes = np.add.reduceat(np.add.reduceat(turned**2, starts, axis=1), starts, axis=2)
    joined = (sizes > (SAME * norms[:, None, None]) ** 2).any(axis=0)
    count, labels = connected_components(csr_array(joined), directed=False)
    pieces = []
    for label in range(count):
        members = [spaces[k] for k in np.flatnonzero(labels == label)]
        cells = np.concatenate(members)
        whole = turned[:, cells[:, None], cells]
        copies = members[0].size
        copy = _one_copy(turned, members) if copies > 1 else None
        squares = copies * (copy**2).sum() if copy is not None else np.nan
        if copy is not None and abs(squares - (whole**2).sum()) <= SAME * (whole**2).sum():
            pieces.append(Subspace(_cleared(copy, norms), copies))
        else:
            pieces.append(Subspace(_cleared(whole, norms), 1))
    return tuple(pieces)


def _cleared(grams: Array, norms: Array) -> Array:
    """Without Grams that are nothing but rounding."""
    kept = np.sqrt((grams**2).sum(axis=(1, 2))) > SAME * norms
    return np.where(kept[:, None, None], grams, 0.0)


def _one_copy(turned: Array, spaces: Sequence[Array]) -> Array | None:
    """The matrices on one of several equal pieces; None if the eigenspaces are of unequal size."""
    if len({space.size for space in spaces}) > 1:
        return None
    vectors = {0: np.eye(spaces[0].size)[0]}
    ahead = [0]
    while ahead:  # the strongest way first, from each eigenspace that has its vector
        here = ahead.pop()
        for there in range(len(spaces)):
            if there not in vectors:
                links = turned[:, spaces[there][:, None], spaces[here]] @ vectors[here]
                lengths = np.sqrt((links**2).sum(axis=1))
                best = int(lengths.argmax())
                if lengths[best] > SAME * np.abs(turned[best]).max():
                    vectors[there] = links[best] / lengths[best]
                    ahead.append(there)
    if len(vectors) < len(spaces):
        return None
    basis = np.zeros((turned.shape[1], len(spaces)))
    for k, space in enumerate(spaces):
        basis[space, k] = vectors[k]
    return np.asarray(basis.T @ turned @ basis)


def _bound(axes: Sequence[Axis], coefficients: Array) -> float:
    """(tr (Λ^½ G Λ^½)^½)², tuple of pieces by tuple."""
    products_of: dict[tuple[int, ...], list[int]] = {}
    for j in range(len(coefficients)):
        reach = [axis.reach(j) for axis in axes]
        tuples = math.prod(map(len, reach)) + len(products_of)
        if tuples > MOST_TUPLES:
            text = f"the limit needs {tuples:,} combinations of attributes"
            raise TooLargeError(text, tuples, MOST_TUPLES)
        for pieces in all_tuples(*reach):
            products_of.setdefault(pieces, []).append(j)
    total, work = 0.0, 0
    for pieces, products in sorted(products_of.items(), key=lambda item: _width(axes, item[0])):
        work += _width(axes, pieces) ** 3 if len(products) > 1 else 0
        chosen = [axis.pieces[k] for axis, k in zip(axes, pieces, strict=True)]
        terms = [
            (c, [(piece, axis.kinds[j]) for axis, piece in zip(axes, chosen, strict=True)])
            for j, c in zip(products, coefficients[products], strict=True)
        ]
        copies = math.prod([piece.copies for piece in chosen])
        total += copies * (_root_trace(terms) if work <= MOST_WORK else _largest_term(terms))
    return total**2


def _width(axes: Sequence[Axis], pieces: tuple[int, ...]) -> int:
    return math.prod([axis.pieces[k].size for axis, k in zip(axes, pieces, strict=True)])


ProductTerm = tuple[float, list[tuple[Subspace, int]]]
"""The weight of a product, and its Gram on a piece of each attribute."""


def _root_trace(terms: Sequence[ProductTerm]) -> float:
    """The trace of (Σ_j c_j ⊗_i B_ji)^½."""
    if len(terms) == 1:
        return _largest_term(terms)
    total: Array = np.zeros((1, 1))
    for c, factors in terms:
        total = total + c * reduce(np.kron, [piece.grams[kind] for piece, kind in factors])
    return float(_roots(np.linalg.eigvalsh(total)).sum())


def _largest_term(terms: Sequence[ProductTerm]) -> float:
    """No more than `_root_trace`: the largest tr (c_j ⊗_i B_ji)^½, a product over attributes."""
    return max(
        math.sqrt(c) * math.prod([float(piece.root_traces[kind]) for piece, kind in factors])
        for c, factors in terms
    )
