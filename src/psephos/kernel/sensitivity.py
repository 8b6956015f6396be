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
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

import psephos.matrix as mx
from psephos.errors import RefusedError
from psephos.frozen import Array
from psephos.kernel.query import Block, Query
from psephos.matrix.base import Norm, Transposed

SAFE = 1 << 62
GRID_LIMIT = 10**6


@dataclass(frozen=True)
class Columns:
    """One number for each of n columns: all the same (`values` is an int) or listed."""

    n: int
    values: int | Array

    @property
    def largest(self) -> int:
        return self.values if isinstance(self.values, int) else int(self.values.max())

    def listed(self) -> Array:
        if isinstance(self.values, int):
            small = self.values < SAFE
            return np.full(self.n, self.values, dtype=np.int64 if small else object)
        return self.values

    def times(self, factor: int) -> Columns:
        if isinstance(self.values, int):
            return Columns(self.n, self.values * factor)
        return Columns(self.n, _wide(self.values, self.largest * factor) * factor)


def _wide(values: Array, reach: int) -> Array:
    """Python integers where 64 bits could overflow."""
    return values if reach < SAFE else values.astype(object)


def add(parts: list[Columns]) -> Columns:
    """Column by column."""
    if all(isinstance(part.values, int) for part in parts):
        return Columns(parts[0].n, sum(part.largest for part in parts))
    reach = sum(part.largest for part in parts)
    total = _wide(parts[0].listed(), reach).copy()
    for part in parts[1:]:
        total = total + _wide(part.listed(), reach)
    return Columns(parts[0].n, total)


def outer(parts: list[Columns]) -> Columns:
    """All products, in the order of a Kronecker product's columns."""
    n = math.prod(part.n for part in parts)
    reach = math.prod(part.largest for part in parts)
    if all(isinstance(part.values, int) for part in parts):
        return Columns(n, reach)
    made: Array = np.ones(1, dtype=np.int64 if reach < SAFE else object)
    for part in parts:
        made = np.multiply.outer(made, _wide(part.listed(), reach)).ravel()
    return Columns(n, made)


def _power(entries: Array, p: Norm) -> Array:
    exact = entries.astype(object)
    return np.asarray(abs(exact) if p == 1 else exact**2)


def _sums(entries: Array, p: Norm) -> Array:
    """Column sums of |entries|^p of an integer array, exactly."""
    most = max(abs(int(entries.max())), abs(int(entries.min()))) ** p * entries.shape[0]
    if most < SAFE:
        wide = entries.astype(np.int64)
        return np.asarray((np.abs(wide) if p == 1 else wide * wide).sum(axis=0))
    return np.asarray(_power(entries, p).sum(axis=0))


def _dense(a: mx.Dense, p: Norm) -> Columns:
    return Columns(a.shape[1], _sums(a.array, p))


def _sparse(a: mx.Sparse, p: Norm) -> Columns:
    sums = np.zeros(a.shape[1], dtype=object)
    np.add.at(sums, a.entries.indices, _power(a.entries.data, p))
    return Columns(a.shape[1], sums)


def _listed(a: mx.Matrix, values: Any) -> Columns:
    return Columns(a.shape[1], np.asarray(values))


def _counted(a: mx.Matrix, p: Norm) -> Columns:
    """Entries 0 and 1: the transpose applied to ones counts them."""
    ones = np.ones((1, a.shape[0], 1), dtype=np.int64)
    return _listed(a, a._apply_t(ones)[0, :, 0])


def _reordered(a: mx.Permuted, p: Norm) -> Columns:
    inner = columns(a.base, p)
    if isinstance(inner.values, int):
        return inner
    values = np.empty_like(inner.values)
    values[a.order] = inner.values
    return Columns(inner.n, values)


def _transposed(a: Transposed, p: Norm) -> Columns:
    """Suffix counts, and the members of groups."""
    rule = TRANSPOSES.get(type(a.base))
    if rule is None:
        raise refused(a)
    return _listed(a, rule(a.base))


def _direct(a: mx.DirectSum, p: Norm) -> Columns:
    return _listed(a, np.concatenate([columns(part, p).listed() for part in a.parts]))


TRANSPOSES: dict[type, Callable[[Any], Any]] = {
    mx.Prefix: lambda base: np.arange(1, base.n + 1),
    mx.Partition: lambda base: np.bincount(base.groups),
}
RULES: dict[type, Callable[[Any, Norm], Columns]] = {
    mx.Identity: lambda a, p: Columns(a.n, 1),
    mx.Ones: lambda a, p: Columns(a.n, a.m),
    mx.Prefix: lambda a, p: _listed(a, a.n - np.arange(a.n)),
    mx.Difference: lambda a, p: _listed(a, [2] * (a.n - 1) + [1]),
    mx.Haar: lambda a, p: _counted(mx.Haar(a.n, 1), p),
    mx.AllRange: lambda a, p: _listed(a, (np.arange(a.n) + 1) * (a.n - np.arange(a.n))),
    mx.WidthRange: _counted,
    mx.Ranges: _counted,
    mx.Partition: lambda a, p: Columns(a.groups.size, 1),
    mx.Marginals: lambda a, p: Columns(a.shape[1], sum(abs(w) ** p for w in a.weights)),
    mx.Diagonal: lambda a, p: _listed(a, _power(a.weights, p)),
    mx.Dense: _dense,
    mx.Sparse: _sparse,
    mx.Permuted: _reordered,
    Transposed: _transposed,
    mx.Scaled: lambda a, p: columns(a.base, p).times(abs(a.factor) ** p),
    mx.Stack: lambda a, p: add([columns(part, p) for part in a.parts]),
    mx.DirectSum: _direct,
    mx.Kron: lambda a, p: outer([columns(factor, p) for factor in a.factors]),
}


def columns(a: mx.Matrix, p: Norm) -> Columns:
    """Σ_i |A[i, c]|^p for every column c of an admitted matrix, exactly."""
    rule = RULES.get(type(a))
    if rule is None:
        raise refused(a)
    return rule(a, p)


def refused(a: object) -> RefusedError:
    """No rule, no measurement."""
    known = ", ".join(sorted(kind.__name__ for kind in RULES))
    return RefusedError(
        f"the kernel has no rule for {type(a).__name__}; it measures integer matrices of exactly "
        f"these types: {known}"
    )


def admit(a: mx.Matrix) -> mx.Matrix:
    """A private copy of a matrix of known type with integer entries, or a refusal."""
    if type(a) not in RULES:
        raise refused(a)
    if type(a) is Transposed:
        if type(a.base) not in TRANSPOSES:
            raise refused(a)
        return admit(a.base).T
    if type(a) is mx.Sparse:
        copy: mx.Matrix = mx.Sparse(a.entries)
    else:
        copy = type(a)(*(_copied(value) for value in a._own_fields()))
    if copy.entry_type.kind != "i":
        raise RefusedError(
            f"{type(a).__name__} has entries that are not whole numbers; counts are measured by "
            "integer queries, so scale and round it first"
        )
    return copy


def _copied(value: Any) -> Any:
    if isinstance(value, mx.Matrix):
        return admit(value)
    if isinstance(value, tuple):
        return tuple(_copied(item) for item in value)
    if isinstance(value, np.ndarray):
        return value.copy()
    if type(value) in (int, float):
        return value
    raise RefusedError(f"the kernel does not measure with {type(value).__name__}")


def admit_query(query: Query) -> Query:
    """A private copy of a query whose blocks all have rules."""
    if type(query) is not Query:
        raise refused(query)
    return Query(tuple(Block(admit(b.matrix), Fraction(b.weight)) for b in query.blocks))


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
    return _largest(_terms(a, 1, 1), 1)


def _terms(a: mx.Matrix, p: Norm, factor: int) -> list[tuple[int, mx.Matrix]]:
    """A stack of scaled matrices as a list: the column sums of all of it are their sum."""
    if type(a) is mx.Stack:
        return [term for part in a.parts for term in _terms(part, p, factor)]
    if type(a) is mx.Scaled:
        return _terms(a.base, p, factor * abs(int(a.factor)) ** p)
    return [(factor, a)]


def _largest(terms: list[tuple[int, mx.Matrix]], p: Norm) -> int:
    """The largest column of a sum of terms, without writing out the columns of products."""
    if len(terms) == 1:
        factor, a = terms[0]
        if type(a) is mx.Kron:
            return factor * math.prod(_largest(_terms(f, p, 1), p) for f in a.factors)
        return factor * columns(a, p).largest
    krons = [a for _, a in terms if type(a) is mx.Kron]
    if len(krons) == len(terms) and len({tuple(f.shape[1] for f in a.factors) for a in krons}) == 1:
        found = _largest_on_grid([factor for factor, _ in terms], krons, p)
        if found is not None:
            return found
    return add([columns(a, p).times(factor) for factor, a in terms]).largest


def _largest_on_grid(factors: list[int], krons: list[mx.Kron], p: Norm) -> int | None:
    """On each axis only the different tuples of the products' columns matter, and they are few."""
    total = np.array(factors, dtype=object)[:, None]
    for axis in range(len(krons[0].factors)):
        rows = [columns(a.factors[axis], p).listed() for a in krons]
        if any(row.dtype == object for row in rows):
            return None
        different = np.unique(np.stack(rows), axis=1).astype(object)
        total = (total[:, :, None] * different[:, None, :]).reshape(len(krons), -1)
        if total.size > GRID_LIMIT:
            return None
    return int(total.sum(axis=0).max())


def largest_entry(a: mx.Matrix) -> int:
    """Max |A[i, c]|: how far one row can move a single answer."""
    if type(a) not in RULES:
        raise refused(a)
    if isinstance(a, mx.Kron):
        return math.prod(largest_entry(factor) for factor in a.factors)
    if isinstance(a, mx.Stack | mx.DirectSum):
        return max(largest_entry(part) for part in a.parts)
    if isinstance(a, mx.Scaled):
        return abs(int(a.factor)) * largest_entry(a.base)
    if isinstance(a, mx.Permuted):
        return largest_entry(a.base)
    if isinstance(a, mx.Marginals):
        return max(abs(int(w)) for w in a.weights)
    listed = {mx.Dense: "array", mx.Diagonal: "weights"}.get(type(a))
    entries = getattr(a, listed) if listed else a.entries.data if isinstance(a, mx.Sparse) else None
    if entries is None:
        return 1
    return (
        max((abs(int(e)) for e in (entries.max(), entries.min())), default=0) if entries.size else 0
    )


def _reach(a: mx.Matrix) -> int:
    """At least every partial result on the way to A x, per unit of Σ|x|."""
    if isinstance(a, mx.Kron):
        return math.prod(max(1, _reach(factor)) for factor in a.factors)
    if isinstance(a, mx.Stack | mx.DirectSum):
        return max(_reach(part) for part in a.parts)
    if isinstance(a, mx.Scaled):
        return max(1, abs(int(a.factor))) * _reach(a.base)
    # Sums on the way are of entries times counts, so Σ|x| times the largest entry bounds them.
    return max(1, largest_entry(a))


def answers(a: mx.Matrix, x: Array) -> Array:
    """A x in integers, in 64 bits where they suffice and in Python's integers where not.

    Only the time this takes depends on the counts, never its success or its value.
    """
    reach = _reach(a) * _mass(x)
    wide = x if reach < SAFE else x.astype(object)
    return np.asarray(a.matvec(wide))


def _mass(x: Array) -> int:
    """At least Σ|x|, exactly."""
    if x.dtype == object:
        return int(np.abs(x).sum())
    halves = (np.abs(x >> 32).sum(), (x & 0xFFFFFFFF).sum())
    return (int(halves[0]) << 32) + int(halves[1])
