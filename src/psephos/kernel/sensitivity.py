"""How far one row can move the answers: exact, by exact matrix type, all rules in this file.

A matrix without a rule here is not measured. What comes to the rules was admitted by `gate`: it is
of a listed type to the letter, a copy that the caller cannot reach, with whole entries.

Privacy: columns(A, p)[c] = Σ_i |A[i, c]|^p exactly, for integer A. One row more in cell c moves
A x by column c, so Δ₁ = max_c Σ_j w_j‖A_j[:, c]‖₁ bounds the weighted L1 move of a query per
unit of distance and Δ₂² the weighted squared L2 move (triangle inequality over the path of rows).
(tests/kernel/test_sensitivity.py)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from fractions import Fraction
from functools import partial, reduce
from operator import add, mul
from typing import Any

import numpy as np

import psephos.matrix as mx
from psephos.errors import RefusedError
from psephos.kernel.query import Query
from psephos.matrix.base import Norm, Transposed
from psephos.values import Array, largest

SAFE = 1 << 62
MOST_CASES = 4 * 10**6
MOST_CELLS_LISTED = 5 * 10**7
MOST_RIVALS = 64
PIECE = 1 << 16


def _one(value: int) -> Array:
    """One number that stands for every column."""
    return np.array([value], dtype=np.int64 if value < SAFE else object)


def exactly(operation: Callable[[Any, Any], Any], x: Array, y: Array) -> Array:
    """Sums or products of integers, in Python's integers where 64 bits could overflow."""
    if operation(largest(x), largest(y)) >= SAFE:
        x, y = x.astype(object), y.astype(object)
    return np.asarray(operation(x, y))


def _powers(entries: Array, power: Norm, rows: int = 1) -> Array:
    """|entries|^power, in numbers wide enough for the sum of so many rows."""
    small = largest(entries) ** power * rows < SAFE
    return np.asarray(np.abs(entries.astype(np.int64 if small else object)) ** power)


def _of_sparse(sparse: mx.Sparse, power: Norm) -> Array:
    powers = _powers(sparse.entries.data, power, sparse.shape[0])
    sums = np.zeros(sparse.shape[1], dtype=powers.dtype)
    np.add.at(sums, sparse.entries.indices, powers)
    return sums


def _counted(flags: mx.Matrix, power: Norm) -> Array:
    """Of entries 0 and 1: the transpose applied to ones counts them."""
    return flags._apply_t(np.ones((1, flags.shape[0], 1), dtype=np.int64))[0, :, 0]


def _listed(matrix: mx.Matrix, power: Norm) -> Array:
    """A number for each column, also where one stands for all."""
    return np.broadcast_to(columns(matrix, power), matrix.shape[1])


def _of_kron(kron: mx.Kron, power: Norm) -> Array:
    """All products, in the order of a Kronecker product's columns."""
    sums = [columns(factor, power) for factor in kron.factors]
    if any(each.size > 1 for each in sums):
        if kron.shape[1] > MOST_CELLS_LISTED:
            raise _too_large(kron.shape[1])
        sums = [_listed(factor, power) for factor in kron.factors]
    return reduce(lambda before, last: exactly(mul, before[:, None], last).ravel(), sums)


def _places(matrix: mx.Matrix) -> Any:
    """Where each cell goes, if to one place; it then has that column of what follows."""
    if type(matrix) is mx.Partition:
        return matrix.groups
    if type(matrix) is not mx.Sparse or matrix.entries.nnz != matrix.shape[1]:
        return None
    entries, (rows, cells) = matrix.entries, matrix.shape
    places = np.full(cells, -1)
    places[entries.indices] = np.repeat(np.arange(rows), np.diff(entries.indptr))
    return places if (entries.data == 1).all() and (places >= 0).all() else None


def _of_pidentity(matrix: mx.PIdentity, power: Norm) -> Array:
    below = np.asarray(_powers(matrix.rows, power, matrix.shape[0]).sum(axis=0))
    return exactly(add, _powers(matrix.diagonal, power), below)


def _summed(arrays: Iterable[Array]) -> Array:
    return reduce(partial(exactly, add), arrays)


TURNED = (mx.Prefix, mx.Partition)  # transposes that have a rule; entries 0 and 1
RULES: dict[type, Callable[[Any, Norm], Array]] = {
    mx.Identity: lambda identity, power: _one(1),
    mx.Ones: lambda ones, power: _one(ones.m),
    mx.Prefix: lambda prefix, power: prefix.n - np.arange(prefix.n),
    mx.Difference: lambda difference, power: np.minimum(difference.n - np.arange(difference.n), 2),
    mx.Haar: lambda haar, power: _counted(mx.Haar(haar.n, 1), power),
    mx.AllRange: lambda every, power: (np.arange(every.n) + 1) * (every.n - np.arange(every.n)),
    mx.WidthRange: _counted,
    mx.Ranges: _counted,
    mx.Partition: lambda partition, power: _one(1),
    mx.Marginals: lambda tables, power: _one(sum(abs(w) ** power for w in tables.weights)),
    mx.Diagonal: lambda diagonal, power: _powers(diagonal.weights, power),
    mx.Dense: lambda dense, power: _powers(dense.array, power, dense.shape[0]).sum(axis=0),
    mx.Sparse: _of_sparse,
    mx.PIdentity: _of_pidentity,
    mx.Compose: lambda two, power: _listed(two.parts[0], power)[_places(two.parts[1])],
    mx.Permuted: lambda mixed, power: _listed(mixed.base, power)[np.argsort(mixed.order)],
    Transposed: _counted,
    mx.Scaled: lambda s, power: exactly(mul, columns(s.base, power), _one(abs(s.factor) ** power)),
    mx.Stack: lambda stack, power: _summed(columns(part, power) for part in stack.parts),
    mx.DirectSum: lambda blocks, power: np.concatenate([_listed(b, power) for b in blocks.parts]),
    mx.Kron: _of_kron,
}
LARGEST: dict[type, Callable[[Any], int]] = {
    mx.Marginals: lambda tables: max(abs(weight) for weight in tables.weights),
    mx.Diagonal: lambda diagonal: largest(diagonal.weights),
    mx.Dense: lambda dense: largest(dense.array),
    mx.Sparse: lambda sparse: largest(sparse.entries.data),
    mx.PIdentity: lambda matrix: max(largest(matrix.diagonal), largest(matrix.rows)),
    mx.Compose: lambda product: largest_entry(product.parts[0]),
    mx.Permuted: lambda mixed: largest_entry(mixed.base),
    mx.Scaled: lambda scaled: abs(scaled.factor) * largest_entry(scaled.base),
    mx.Stack: lambda stack: max(largest_entry(part) for part in stack.parts),
    mx.DirectSum: lambda blocks: max(largest_entry(part) for part in blocks.parts),
    mx.Kron: lambda kron: math.prod(largest_entry(factor) for factor in kron.factors),
}
SIGNS: list[type] = [mx.Identity, mx.Ones, mx.Prefix, mx.Difference, mx.Haar, mx.Partition]
SIGNS += [mx.AllRange, mx.WidthRange, mx.Ranges, Transposed]
LARGEST |= dict.fromkeys(SIGNS, lambda matrix: 1)  # their entries are -1, 0 and 1


def columns(matrix: mx.Matrix, power: Norm) -> Array:
    """Σ_i |A[i, c]|^power for every column c, or one number if all agree."""
    require_rule(matrix)
    return RULES[type(matrix)](matrix, power)


def largest_entry(matrix: mx.Matrix) -> int:
    """Max |A[i, c]|: how far one row can move a single answer."""
    require_rule(matrix)
    return LARGEST[type(matrix)](matrix)


def require_rule(matrix: mx.Matrix) -> None:
    """No rule, or entries that are not whole: no measurement."""
    known = type(matrix) in RULES
    if type(matrix) is Transposed:
        known = type(matrix.base) in TURNED
    elif type(matrix) is mx.Compose:
        known = len(matrix.parts) == 2 and _places(matrix.parts[1]) is not None
    if not known:
        names = ", ".join(sorted(kind.__name__ for kind in RULES))
        rule = f"it measures {names}, of which Compose of a matrix and of places of cells"
        raise RefusedError(f"the kernel has no rule for {type(matrix).__name__}; {rule}")
    if matrix.entry_type.kind != "i":
        what = f"{type(matrix).__name__} has entries that are not whole numbers below 2^62"
        raise RefusedError(f"{what}; counts are measured by integers, so scale and round it first")


def sensitivity(query: Query, power: Norm) -> Fraction:
    """max_c Σ_j w_j Σ_i |A_j[i, c]|^p: Δ₁ for p = 1, the square of Δ₂ for p = 2."""
    scale = math.lcm(*(block.weight.denominator for block in query.blocks))
    weighted = [(int(block.weight * scale), block.matrix) for block in query.blocks]
    total = _largest([term for w, a in weighted for term in _terms(w, a, power)], power)
    if total == 0:
        raise RefusedError("this query is zero everywhere; it measures nothing")
    return Fraction(total, scale)


def stability(matrix: mx.Matrix) -> int:
    """How much farther apart vectors can be after a transformation: the largest L1 column."""
    return _largest(_terms(1, matrix, 1), 1)


Weighted = tuple[int, mx.Matrix]


def _terms(weight: int, matrix: mx.Matrix, power: Norm) -> list[Weighted]:
    """A stack of scaled matrices as a list: its column sums are the weighted sum of theirs."""
    if type(matrix) is mx.Stack:
        return [term for part in matrix.parts for term in _terms(weight, part, power)]
    if type(matrix) is mx.Scaled:
        return _terms(weight * abs(int(matrix.factor)) ** power, matrix.base, power)
    return [(weight, matrix)]


def _largest(terms: list[Weighted], power: Norm) -> int:
    """The largest column sum of all terms together, without the columns of products if it can."""
    weight, matrix = terms[0]
    if len(terms) == 1 and type(matrix) is mx.Kron:
        return weight * math.prod(_largest(_terms(1, f, power), power) for f in matrix.factors)
    if {type(a) for _, a in terms} == {mx.Kron} and len({a.grid for _, a in terms}) == 1:  # type: ignore[attr-defined]
        return _largest_on_grid(terms, power)
    sums = [exactly(mul, columns(matrix, power), _one(weight)) for weight, matrix in terms]
    return largest(_summed(sums))


def _largest_on_grid(terms: list[Weighted], power: Norm) -> int:
    """The same for products over one grid, from the column sums of their factors.

    Cell (c₁, …, c_d) has the sum Σ_j w_j Π_i s_ij[c_i], with s_ij ≥ 0 the column sums of factor i
    of product j, which are 1 for a total. Sums that all values of an axis share multiply the
    weight; a product without others, such as a marginal, adds one number to all cells.
    """
    constant, weights, varied = 0, [], []
    known: dict[int, Array] = {}  # the terms hold the factors, so no other gets their ids
    for weight, kron in terms:
        sums = {}
        for i, factor in kron.active:  # type: ignore[attr-defined]
            if id(factor) not in known:
                known[id(factor)] = columns(factor, power)
            sums[i] = known[id(factor)]
        weight *= math.prod([int(each[0]) for each in sums.values() if each.size == 1])
        if different := {i: each for i, each in sums.items() if each.size > 1}:
            weights.append(weight)
            varied.append(different)
        else:
            constant += weight
    axes = sorted({axis for sums in varied for axis in sums})
    return constant + _largest_sum(weights, [_values(varied, axis) for axis in axes])


def _values(varied: list[dict[int, Array]], axis: int) -> Array:
    """The values of an axis that may lie in the largest sum: a column s_1[c], s_2[c], … each."""
    here = {id(sums[axis]): sums[axis] for sums in varied if axis in sums}
    row = {key: number for number, key in enumerate(here, start=1)}
    different = dict.fromkeys(zip(*(each.tolist() for each in here.values()), strict=True))
    kind = np.result_type(*here.values())
    listed = _undominated(np.array([(1, *each) for each in different], dtype=kind).T)
    return listed[[row[id(sums[axis])] if axis in sums else 0 for sums in varied]]


def _largest_sum(weights: list[int], axes: list[Array]) -> int:
    """The largest Σ_j w_j Π_i axes[i][j, c_i] over all c; else a bound at most 0.1 % above it.

    One axis after the other: a column of `sums` holds w_j Π s_ij over the axes so far, for a choice
    of values there. What is left out on the way is not needed for the largest sum:

    1. A column that is nowhere above another stays so, whatever s_ij ≥ 0 it is multiplied by.
    2. No choice of later values takes a column beyond Σ_j sums_j Π_later max_c s_ij, so one whose
       bound is not above the sum at a cell is left out.

    Columns are counted before they are made. If they are too many, the largest of these bounds is
    no less than the largest sum, and noise for it is no less than what is needed; it is taken if it
    is close to the sum at a cell (tests/kernel/test_sensitivity.py::test_largest_sums).
    """
    sums = reduce(np.append, map(_one, weights), np.zeros(0, dtype=np.int64))[:, None]
    axes = sorted(axes, key=lambda values: values.shape[1])
    best = _sum_at_a_cell(sums, axes)
    while axes:
        if sums.size * axes[0].shape[1] > MOST_CASES:
            bound = largest(_bounds(sums, axes))
            if 1000 * bound > 1001 * best:
                raise _too_large(math.prod(each.shape[1] for each in axes))
            return bound
        sums = exactly(mul, sums[:, :, None], axes[0][:, None, :]).reshape(len(sums), -1)
        axes = axes[1:]
        sums = _undominated(sums[:, _bounds(sums, axes) > best])
    return max(best, largest(_totals(sums)))


def _sum_at_a_cell(sums: Array, axes: list[Array]) -> int:
    """A large sum: of values that are taken one axis after the other, by the bound of the rest."""
    for i, here in enumerate(axes):
        sums = exactly(mul, sums, here)
        sums = sums[:, [int(np.argmax(_bounds(sums, axes[i + 1 :])))]]
    return largest(_totals(sums))


def _bounds(sums: Array, later: list[Array]) -> Array:
    """What no column's sum gets beyond on later axes."""
    return _totals(reduce(partial(exactly, mul), [a.max(axis=1)[:, None] for a in later], sums))


def _totals(sums: Array) -> Array:
    wide = largest(sums) * len(sums) >= SAFE
    return np.asarray((sums.astype(object) if wide else sums).sum(axis=0))


def _undominated(sums: Array) -> Array:
    """The columns without those that are nowhere above one of the largest."""
    sums = sums[:, np.argsort(-_totals(sums), kind="stable")]
    place = 0
    while place < min(sums.shape[1], MOST_RIVALS):
        above = np.asarray((sums > sums[:, [place]]).any(axis=0))
        above[: place + 1] = True
        sums, place = sums[:, above], place + 1
    return sums


def _too_large(number: int) -> RefusedError:
    what = f"how far a row moves this query would have to be looked for in {number:,} cells"
    return RefusedError(f"{what}; measure it in several requests, or over fewer attributes")


def answers(matrix: mx.Matrix, x: Array) -> Array:
    """A x in integers, x a vector or columns, in 64 bits where they suffice, else in Python's.

    Only the time this takes depends on the counts, never its success or its value: no number on
    the way exceeds `_growth` · Σ|x|, so that below 2⁶² nothing overflows; products of arrays
    through floats never round (proved at `matrix.products`)
    (tests/kernel/test_sensitivity.py::test_answers_never_wrap_around).
    """
    fits = _growth(matrix) * _mass(x.reshape(-1)) < SAFE
    x = x if fits else x.astype(object)
    return np.asarray(matrix.matvec(x) if x.ndim == 1 else matrix.matmat(x))


def _growth(matrix: mx.Matrix) -> int:
    """At least every number on the way from x to A x, per unit of Σ|x|.

    A leaf adds entries times counts. The factors of a product work one after the other, so theirs
    multiply, by no less than 1: a later factor of 0 does not undo what came before. Parts of a
    stack do not meet.
    """
    if type(matrix) is mx.Kron:
        return math.prod(_growth(factor) for factor in matrix.factors)
    if type(matrix) is mx.Scaled:
        return max(1, abs(int(matrix.factor))) * _growth(matrix.base)
    if type(matrix) is mx.Ranges:
        return 1 << sum(n > 1 for n in matrix.grid)  # so many corners, added and subtracted
    return max((_growth(part) for part in matrix.children), default=max(1, largest_entry(matrix)))


def _mass(x: Array) -> int:
    """At least Σ|x|, exactly; in pieces, for no second vector to be held."""
    if x.dtype == object:
        return int(np.abs(x).sum())
    total = 0
    for start in range(0, x.size, PIECE):
        part = x[start : start + PIECE]
        total += int(np.abs(part >> 32).sum()) << 32
        total += int((part & 0xFFFFFFFF).sum())
    return total
