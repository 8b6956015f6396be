"""How far one row can move the answers: exact, by exact matrix type, all rules in this file.

A matrix is admitted only if its type is listed here, to the letter: a subclass could lie about
itself. What is admitted is a copy, taken before anything is checked, so nothing that the caller
still holds can change it afterwards.

Privacy: columns(A, p)[c] = Σ_i |A[i, c]|^p exactly, for integer A. One row more in cell c moves
A x by column c, so Δ₁ = max_c Σ_j w_j‖A_j[:, c]‖₁ bounds the weighted L1 move of a query per
unit of distance and Δ₂² the weighted squared L2 move (triangle inequality over the path of rows).
(tests/kernel/test_sensitivity.py)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial, reduce
from operator import add, mul
from typing import Any

import numpy as np

import psephos.matrix as mx
from psephos.errors import RefusedError
from psephos.frozen import Array, largest
from psephos.kernel.query import Block, Query
from psephos.matrix.base import Norm, Transposed

SAFE = 1 << 62
GRID_LIMIT = 10**6
PIECE = 1 << 16


def _one(value: int) -> Array:
    """One number that stands for every column."""
    return np.array([value], dtype=np.int64 if value < SAFE else object)


def exactly(operation: Callable[[Any, Any], Any], x: Array, y: Array) -> Array:
    """Sums or products of integers, in Python's integers where 64 bits could overflow."""
    if operation(largest(x), largest(y)) >= SAFE:
        x, y = x.astype(object), y.astype(object)
    return np.asarray(operation(x, y))


def _powers(entries: Array, p: Norm, rows: int = 1) -> Array:
    """|entries|^p, in numbers wide enough for the sum of so many rows."""
    small = largest(entries) ** p * rows < SAFE
    return np.asarray(np.abs(entries.astype(np.int64 if small else object)) ** p)


def _sparse(a: mx.Sparse, p: Norm) -> Array:
    powers = _powers(a.entries.data, p, a.shape[0])
    sums = np.zeros(a.shape[1], dtype=powers.dtype)
    np.add.at(sums, a.entries.indices, powers)
    return sums


def _counted(a: mx.Matrix, p: Norm) -> Array:
    """Entries 0 and 1: the transpose applied to ones counts them."""
    return a._apply_t(np.ones((1, a.shape[0], 1), dtype=np.int64))[0, :, 0]


def _listed(a: mx.Matrix, p: Norm) -> Array:
    """A number for each column, also where one stands for all."""
    return np.broadcast_to(columns(a, p), a.shape[1])


def _outer(a: mx.Kron, p: Norm) -> Array:
    """All products, in the order of a Kronecker product's columns."""
    parts = [columns(factor, p) for factor in a.factors]
    if any(part.size > 1 for part in parts):
        parts = [_listed(factor, p) for factor in a.factors]
    return reduce(lambda x, y: exactly(mul, x[:, None], y).ravel(), parts)


def _places(a: mx.Matrix) -> Any:
    """Where each cell goes, if to one place; it then has that column of what follows."""
    if type(a) is mx.Partition:
        return a.groups
    if type(a) is not mx.Sparse:
        return None
    by_cell = a.entries.tocsc()
    once = (np.diff(by_cell.indptr) == 1).all() and (by_cell.data == 1).all()
    return by_cell.indices if once else None


def _pidentity(a: mx.PIdentity, p: Norm) -> Array:
    below = np.asarray(_powers(a.rows, p, a.shape[0]).sum(axis=0))
    return exactly(add, _powers(a.diagonal, p), below)


TURNED = (mx.Prefix, mx.Partition)  # transposes that have a rule; entries 0 and 1
RULES: dict[type, Callable[[Any, Norm], Array]] = {
    mx.Identity: lambda a, p: _one(1),
    mx.Ones: lambda a, p: _one(a.m),
    mx.Prefix: lambda a, p: a.n - np.arange(a.n),
    mx.Difference: lambda a, p: np.array([2] * (a.n - 1) + [1]),
    mx.Haar: lambda a, p: _counted(mx.Haar(a.n, 1), p),
    mx.AllRange: lambda a, p: (np.arange(a.n) + 1) * (a.n - np.arange(a.n)),
    mx.WidthRange: _counted,
    mx.Ranges: _counted,
    mx.Partition: lambda a, p: _one(1),
    mx.Marginals: lambda a, p: _one(sum(abs(w) ** p for w in a.weights)),
    mx.Diagonal: lambda a, p: _powers(a.weights, p),
    mx.Dense: lambda a, p: np.asarray(_powers(a.array, p, a.shape[0]).sum(axis=0)),
    mx.Sparse: _sparse,
    mx.PIdentity: _pidentity,
    mx.Compose: lambda a, p: _listed(a.parts[0], p)[_places(a.parts[1])],
    mx.Permuted: lambda a, p: _listed(a.base, p)[np.argsort(a.order)],
    Transposed: _counted,
    mx.Scaled: lambda a, p: exactly(mul, columns(a.base, p), _one(abs(a.factor) ** p)),
    mx.Stack: lambda a, p: reduce(partial(exactly, add), [columns(part, p) for part in a.parts]),
    mx.DirectSum: lambda a, p: np.concatenate([_listed(part, p) for part in a.parts]),
    mx.Kron: _outer,
}
LARGEST: dict[type, Callable[[Any], int]] = {
    mx.Marginals: lambda a: max(abs(w) for w in a.weights),
    mx.Diagonal: lambda a: largest(a.weights),
    mx.Dense: lambda a: largest(a.array),
    mx.Sparse: lambda a: largest(a.entries.data),
    mx.PIdentity: lambda a: max(largest(a.diagonal), largest(a.rows)),
    mx.Compose: lambda a: largest_entry(a.parts[0]),
    mx.Permuted: lambda a: largest_entry(a.base),
    mx.Scaled: lambda a: abs(a.factor) * largest_entry(a.base),
    mx.Stack: lambda a: max(largest_entry(part) for part in a.parts),
    mx.DirectSum: lambda a: max(largest_entry(part) for part in a.parts),
    mx.Kron: lambda a: math.prod(largest_entry(factor) for factor in a.factors),
}
SIGNS: list[type] = [mx.Identity, mx.Ones, mx.Prefix, mx.Difference, mx.Haar, mx.Partition]
SIGNS += [mx.AllRange, mx.WidthRange, mx.Ranges, Transposed]
LARGEST |= dict.fromkeys(SIGNS, lambda a: 1)  # their entries are -1, 0 and 1


def columns(a: mx.Matrix, p: Norm) -> Array:
    """Σ_i |A[i, c]|^p for every column c of an admitted matrix, or one number if all agree."""
    _check_known(a)
    return RULES[type(a)](a, p)


def largest_entry(a: mx.Matrix) -> int:
    """Max |A[i, c]|: how far one row can move a single answer."""
    _check_known(a)
    return LARGEST[type(a)](a)


def _check_known(a: mx.Matrix) -> None:
    """No rule, no measurement."""
    known_parts = (type(a) is not Transposed or type(a.base) in TURNED) and (
        type(a) is not mx.Compose or (len(a.parts) == 2 and _places(a.parts[1]) is not None)
    )
    if type(a) not in RULES or not known_parts:
        known = ", ".join(sorted(kind.__name__ for kind in RULES))
        raise RefusedError(
            f"the kernel has no rule for {type(a).__name__}; it measures integer matrices of "
            f"exactly these types: {known}, of which Compose of a matrix and of places of cells"
        )


def admit(a: mx.Matrix, copies: dict[int, mx.Matrix] | None = None) -> mx.Matrix:
    """A private copy of a matrix of known type with integer entries, or a refusal.

    One object is copied once: `copies` holds what has been admitted of the same query.
    """
    copies = {} if copies is None else copies
    if id(a) not in copies:
        copies[id(a)] = _admitted(a, copies)
    return copies[id(a)]


def _admitted(a: mx.Matrix, copies: dict[int, mx.Matrix]) -> mx.Matrix:
    _check_known(a)
    if type(a) is Transposed:
        return admit(a.base, copies).T
    fields = [a.entries] if type(a) is mx.Sparse else [_copied(v, copies) for v in a._own_fields()]
    copy: mx.Matrix = type(a)(*fields)
    if copy.entry_type.kind != "i":
        raise RefusedError(
            f"{type(a).__name__} has entries that are not whole numbers below 2^62; counts are "
            "measured by integer queries, so scale and round it first"
        )
    return copy


def _copied(value: Any, copies: dict[int, mx.Matrix]) -> Any:
    if isinstance(value, mx.Matrix):
        return admit(value, copies)
    if isinstance(value, tuple):
        return tuple(_copied(item, copies) for item in value)
    if isinstance(value, np.ndarray):
        return value.copy()
    if type(value) is not int:
        raise RefusedError(
            f"the kernel does not measure with {type(value).__name__}; scale and round to whole "
            "numbers below 2^62"
        )
    return value


def admit_query(query: Query) -> Query:
    """A private copy of a query whose blocks all have rules."""
    if type(query) is not Query:
        raise RefusedError(f"a matrix or a Query is measured, got {type(query).__name__}")
    blocks = tuple(query.blocks)  # kept while they are copied, so that no two share an id
    copies: dict[int, mx.Matrix] = {}
    return Query(tuple(Block(admit(b.matrix, copies), Fraction(b.weight)) for b in blocks))


def sensitivity(query: Query, p: Norm) -> Fraction:
    """max_c Σ_j w_j Σ_i |A_j[i, c]|^p: Δ₁ for p = 1, the square of Δ₂ for p = 2."""
    scale = math.lcm(*(block.weight.denominator for block in query.blocks))
    terms = [t for b in query.blocks for t in _terms(b.matrix, p, int(b.weight * scale))]
    found = _largest(terms, p)
    if found == 0:
        raise RefusedError("this query is zero everywhere; it measures nothing")
    return Fraction(found, scale)


def stability(a: mx.Matrix) -> int:
    """How much farther apart vectors can be after a transformation: the largest L1 column."""
    return _largest(_terms(a, 1), 1)


def _terms(a: mx.Matrix, p: Norm, factor: int = 1) -> list[tuple[int, mx.Matrix]]:
    """A stack of scaled matrices as a list: the column sums of all of it are their sum."""
    if type(a) is mx.Stack:
        return [term for part in a.parts for term in _terms(part, p, factor)]
    if type(a) is mx.Scaled:
        return _terms(a.base, p, factor * abs(int(a.factor)) ** p)
    return [(factor, a)]


def _largest(terms: list[tuple[int, mx.Matrix]], p: Norm) -> int:
    """The largest column of a sum of terms, without writing out the columns of products."""
    factor, a = terms[0]
    if len(terms) == 1 and type(a) is mx.Kron:
        return factor * math.prod(_largest(_terms(f, p), p) for f in a.factors)
    found = _largest_on_grid(terms, p)
    if found is None:
        listed = [exactly(mul, columns(a, p), _one(factor)) for factor, a in terms]
        found = largest(reduce(partial(exactly, add), listed))
    return found


def _largest_on_grid(terms: list[tuple[int, mx.Matrix]], p: Norm) -> int | None:
    """For products: on each axis only the different tuples of their columns matter, a few."""
    krons = [a for _, a in terms if type(a) is mx.Kron]
    grids = {tuple(f.shape[1] for f in a.factors) for a in krons}
    if len(krons) < len(terms) or len(grids) > 1:
        return None
    total = np.array([[factor] for factor, _ in terms], dtype=object)
    for factors in zip(*(a.factors for a in krons), strict=True):
        place = {factor: i for i, factor in enumerate(dict.fromkeys(factors))}
        rows = np.stack([_listed(factor, p) for factor in place])
        if rows.dtype == object:
            return None
        different = np.unique(rows, axis=1).astype(object)[[place[f] for f in factors]]
        total = (total[:, :, None] * different[:, None, :]).reshape(len(krons), -1)
        if total.size > GRID_LIMIT:
            return None
    return largest(total.sum(axis=0))


def answers(a: mx.Matrix, x: Array) -> Array:
    """A x in integers, in 64 bits where they suffice and in Python's integers where not.

    Only the time this takes depends on the counts, never its success or its value: what is added
    and multiplied in 64 bits is exact modulo 2⁶⁴ (arrays through floats that never round, proved
    at `matrix.products`), and no answer exceeds `_reach` · Σ|x|
    (tests/kernel/test_sensitivity.py::test_answers_never_wrap_around).
    """
    return np.asarray(a.matvec(x if _reach(a) * _mass(x) < SAFE else x.astype(object)))


def _reach(a: mx.Matrix) -> int:
    """At least every number on the way to A x, per unit of Σ|x|; a factor of 0 comes too late."""
    if type(a) is mx.Kron:
        return math.prod(_reach(factor) for factor in a.factors)
    if type(a) is mx.Scaled:
        return max(1, abs(int(a.factor))) * _reach(a.base)
    if type(a) is mx.Ranges:
        return 1 << len(a.grid)  # corners, added and subtracted
    return max((_reach(part) for part in a.children), default=max(1, largest_entry(a)))


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
