"""Kronecker products, applied axis by axis, in cache-sized blocks and in place.

A vector of n₁·…·n_d cells is a tensor; A₁ ⊗ … ⊗ A_d applies A_i along axis i (McKenna et al. 2018,
Algorithm 1). Done one axis after another that would read and write the whole vector d times and
hold two of them. Instead neighbouring axes are taken together while a block of them fits in cache,
factors that shrink the tensor go first, and every pass after the first writes over its own input.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import chain

import numpy as np

from psephos.errors import ShapeError
from psephos.matrix.base import Matrix, first_appearance
from psephos.matrix.core import Identity, Ones, is_total
from psephos.values import Array

KRON_BITS = 100_000
"""The most binary digits that the size of a product may have."""
BLOCK_CELLS = 1 << 16
"""Cells of a block: the block and its results fit in the second- and third-level cache."""


@dataclass(frozen=True, eq=False, repr=False)
class Kron(Matrix):
    """All combinations of the factors' queries, one attribute to a factor.

    >>> Kron((Identity(2), Ones(1, 3))) @ np.arange(6)
    array([ 3, 12])
    """

    factors: tuple[Matrix, ...]

    def __post_init__(self) -> None:
        flat = tuple(self.factors)
        # A hundred attributes may have the same total: each object is looked at once.
        different = {id(factor): factor for factor in flat}.values()
        for factor in different:
            if not isinstance(factor, Matrix):
                raise ShapeError(
                    f"Kron is made of matrices, got {type(factor).__name__}; "
                    "wrap arrays as Dense(...)"
                )
        if any(isinstance(factor, Kron) for factor in different):
            parts = (f.factors if isinstance(f, Kron) else (f,) for f in flat)
            flat = tuple(chain.from_iterable(parts))
        if not flat:
            raise ShapeError("Kron needs at least one matrix, got none")
        object.__setattr__(self, "factors", flat)
        bits = sum(times * max(shape).bit_length() for shape, times in self._sizes())
        if bits > KRON_BITS:
            raise ShapeError(f"a Kron of {len(flat):,} factors has a size of over {KRON_BITS} bits")
        kinds = {factor.entry_type for factor in {id(f): f for f in flat}.values()}
        object.__setattr__(self, "entry_type", np.result_type(*kinds))

    def _sizes(self) -> list[tuple[tuple[int, int], int]]:
        """The shape of every different factor, and how often it is there."""
        times = Counter(map(id, self.factors))
        return [(f.shape, times[key]) for key, f in {id(f): f for f in self.factors}.items()]

    @cached_property
    def shape(self) -> tuple[int, int]:
        sizes = self._sizes()
        rows, columns = (math.prod(shape[k] ** times for shape, times in sizes) for k in (0, 1))
        return rows, columns

    def _apply(self, x: Array) -> Array:
        return kron_apply(self.factors, x)

    def _apply_t(self, y: Array) -> Array:
        return kron_apply(tuple(factor.T for factor in self.factors), y)

    def _transpose(self) -> Matrix:
        return Kron(tuple(factor.T for factor in self.factors))

    @property
    def is_nonnegative(self) -> bool:
        return all(factor.is_nonnegative for factor in self.factors)

    def gram(self) -> Matrix:
        return Kron(tuple(factor.gram() for factor in self.factors))

    def abs(self) -> Matrix:
        return Kron(tuple(factor.abs() for factor in self.factors))

    def sqr(self) -> Matrix:
        return Kron(tuple(factor.sqr() for factor in self.factors))

    def pinv(self) -> Matrix:
        return Kron(tuple(factor.pinv() for factor in self.factors))

    def _column_sums(self) -> Array:
        return reduce(_outer, (factor._column_sums() for factor in self.factors))

    def _largest_column_sum(self) -> float:
        """The product of the factors' if none is negative (McKenna et al. 2018, Theorem 3)."""
        if self.is_nonnegative:
            return math.prod(factor._largest_column_sum() for factor in self.factors)
        return super()._largest_column_sum()

    def sum(self) -> float:
        return math.prod(factor.sum() for factor in self.factors)

    def trace(self) -> float:
        if any(factor.shape[0] != factor.shape[1] for factor in self.factors):
            raise self._unsupported("trace()")
        return math.prod(factor.trace() for factor in self.factors)

    def row(self, i: int) -> Array:
        i = self._row_index(i)
        rows = []
        for factor in reversed(self.factors):
            i, r = divmod(i, factor.shape[0])
            rows.append(factor.row(r))
        return reduce(_outer, reversed(rows))

    def column_groups(self) -> Array:
        """Equal where all factors are equal, or where a factor is zero on both sides."""
        groups: Array = np.zeros(1, dtype=np.int64)
        zero: Array = np.zeros(1, dtype=bool)
        for factor in self.factors:
            numbers = factor.column_groups()
            wide = groups[:, None] * (int(numbers.max()) + 1) + numbers
            groups = first_appearance(wide.ravel())
            zero = (zero[:, None] | (factor.column_norms(1) == 0)).ravel()
        return first_appearance(np.where(zero, -1, groups))


def _outer(a: Array, b: Array) -> Array:
    return np.multiply.outer(a, b).ravel()


@dataclass(frozen=True)
class _Pass:
    """Some neighbouring factors, applied together on blocks of a (left, n, right) tensor."""

    start: int
    factors: tuple[Matrix, ...]

    @property
    def rows(self) -> int:
        return math.prod(factor.shape[0] for factor in self.factors)

    @property
    def columns(self) -> int:
        return math.prod(factor.shape[1] for factor in self.factors)

    @property
    def growth(self) -> float:
        return self.rows / self.columns

    def into(self, x: Array, out: Array, spare: Array) -> None:
        """The factors on a small (left, n, right) array, those that shrink it first.

        `spare` has two rows as long as x or out, whichever is longer; x may be the second.
        """
        left, _, right = x.shape
        if len(self.factors) == 1:
            self.factors[0]._apply_into(x, out)
            return
        sizes = [factor.shape[1] for factor in self.factors]
        for step, (i, factor) in enumerate(_shrinking_first(self.factors)):
            a, b = math.prod(sizes[:i]), math.prod(sizes[i + 1 :])
            x = x.reshape(left * a, sizes[i], b * right)
            sizes[i] = factor.shape[0]
            if factor._streams:
                result = _workspace(spare[step % 2], (left * a, sizes[i], b * right))
                factor._apply_into(x, result)
                x = result
            else:
                x = factor._apply(x)
        out[...] = x.reshape(left, self.rows, right)


def _workspace(memory: Array, shape: tuple[int, ...]) -> Array:
    """The beginning of a row of memory, as an array of this shape."""
    return memory[: math.prod(shape)].reshape(shape)


def _shrinking_first(factors: Sequence[Matrix]) -> list[tuple[int, Matrix]]:
    active = [(i, f) for i, f in enumerate(factors) if not isinstance(f, Identity)]
    return sorted(active, key=lambda pair: pair[1].shape[0] / pair[1].shape[1])


def _plan(factors: Sequence[Matrix]) -> list[_Pass]:
    """The passes in order: neighbours share one while their block fits in cache, totals do not."""
    passes: list[_Pass] = []
    neighbours: list[Matrix] = []
    for i in reversed(range(len(factors))):
        alone = is_total(factors[i]) or (bool(neighbours) and is_total(neighbours[0]))
        size = math.prod(max(factor.shape) for factor in [factors[i], *neighbours])
        if neighbours and (alone or size > BLOCK_CELLS):
            passes.append(_Pass(i + 1, tuple(neighbours)))
            neighbours = []
        neighbours = [factors[i], *neighbours]
    passes.append(_Pass(0, tuple(neighbours)))
    busy = [p for p in passes if not all(isinstance(f, Identity) for f in p.factors)]
    return sorted((_trimmed(p) for p in busy), key=lambda p: p.growth)


def _trimmed(p: _Pass) -> _Pass:
    """The pass without identities at its ends, which need no work."""
    busy = [i for i, f in enumerate(p.factors) if not isinstance(f, Identity)]
    return _Pass(p.start + busy[0], p.factors[busy[0] : busy[-1] + 1])


def kron_apply(factors: Sequence[Matrix], x: Array) -> Array:
    """The Kronecker product of the factors along the middle axis of x."""
    left, _, right = x.shape
    factors = _merged_totals(factors)
    passes = _plan(factors)
    if not passes:
        return x
    sizes = [factor.shape[1] for factor in factors]
    shapes = []
    for p in passes:
        end = p.start + len(p.factors)
        before = left * math.prod(sizes[: p.start])
        after = math.prod(sizes[end:]) * right
        shapes.append((before, after))
        sizes[p.start : end] = [factor.shape[0] for factor in p.factors]
    dtype = np.result_type(x, *(factor.entry_type for factor in factors))
    results = [a * p.rows * b for p, (a, b) in zip(passes, shapes, strict=True)]
    work = np.empty(max(results), dtype=dtype)
    source = x.reshape(-1)
    for p, (a, b), size in zip(passes, shapes, results, strict=True):
        _run(p, source.reshape(a, p.columns, b), work[:size].reshape(a, p.rows, b))
        source = work[:size]
    if 2 * source.size < work.size:
        source = source.copy()
    return source.reshape(left, -1, right)


def _merged_totals(factors: Sequence[Matrix]) -> list[Matrix]:
    """Neighbouring totals are one total, neighbouring identities one identity."""
    merged: list[Matrix] = []
    for factor in factors:
        last = merged[-1] if merged else None
        if isinstance(factor, Identity) and isinstance(last, Identity):
            merged[-1] = Identity(last.n * factor.n)
        elif isinstance(factor, Ones) and isinstance(last, Ones):
            merged[-1] = Ones(last.m * factor.m, last.n * factor.n)
        else:
            merged.append(factor)
    return merged


def _run(p: _Pass, source: Array, target: Array) -> None:
    """One pass, block by block; source may be the same memory as target.

    In place, slab l is read at l·n·right and written at l·m·right. Going up when the slabs shrink
    and down when they grow, no slab is overwritten before it was read.
    """
    left, n, right = source.shape
    m = p.rows
    in_place = np.may_share_memory(source, target)
    if not in_place and len(p.factors) == 1 and p.factors[0]._streams and (right > 1 or m == 1):
        # Long rows go through at memory speed as they are.
        p.factors[0]._apply_into(source, target)
        return
    slabs = max(1, min(left, BLOCK_CELLS // (max(n, m) * right)))
    starts = range(0, left, slabs)
    # A slab that moves does so by whole rows, so a column only ever meets itself.
    width = right
    if max(n, m) * right > 2 * BLOCK_CELLS and right > 1:
        width = max(1, min(max(16, BLOCK_CELLS // max(n, m)), right // 8))
    spare = np.empty((2, slabs * max(n, m) * width), dtype=target.dtype)
    for start in reversed(starts) if m > n else starts:
        block = source[start : start + slabs]
        out = target[start : start + slabs]
        for c in range(0, right, width):
            part = block[:, :, c : c + width]
            if in_place:
                copy = _workspace(spare[1], part.shape)
                copy[...] = part
                part = copy
            p.into(part, out[:, :, c : c + width], spare)
