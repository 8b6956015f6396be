"""Kronecker products, applied axis by axis, in cache-sized blocks and in place.

A vector of n₁·…·n_d cells is a tensor; A₁ ⊗ … ⊗ A_d applies A_i along axis i (McKenna et al. 2018,
Algorithm 1). Done one axis after another that would read and write the whole vector d times and
hold two of them. Instead neighbouring axes are taken together while a block of them fits in cache,
factors that shrink the tensor go first, and every pass after the first writes over its own input.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from itertools import chain

import numpy as np

from psephos.errors import ShapeError
from psephos.matrix.base import Matrix, first_appearance
from psephos.matrix.core import Identity, Ones, is_total, total
from psephos.values import Array

KRON_BITS = 100_000
"""The most binary digits that the size of a product may have."""
BLOCK_CELLS = 1 << 16
"""Cells of a block: the block and its results fit in the second- and third-level cache."""


class NamedFactors(tuple[Matrix, ...]):
    """The factors of a product that names a few of many attributes, the others being summed over.

    It is the tuple of all of them, and tells those that are named without a look at each. What is
    measured is rebuilt from plain tuples by the kernel's gate: nothing is believed there.
    """

    totals: AxisTotals
    named: tuple[int, ...]

    @classmethod
    def of(cls, totals: AxisTotals, named: Mapping[int, Matrix]) -> NamedFactors:
        """From the factors of the attributes that are named."""
        factors = totals.factors.copy()
        for axis, factor in named.items():
            factors[axis] = factor
        product = cls(factors)
        product.totals, product.named = totals, tuple(sorted(named))
        return product


class AxisTotals:
    """The total of every attribute, one object for those of one size."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        of_size: dict[int, Matrix] = {n: total(n) for n in shape}
        self.shape = shape
        self.factors = [of_size[n] for n in shape]
        self.different = _by_id(self.factors)
        self.cells = math.prod(shape)


@dataclass(frozen=True, eq=False, repr=False)
class Kron(Matrix):
    """All combinations of the factors' queries, one attribute to a factor.

    >>> Kron((Identity(2), Ones(1, 3))) @ np.arange(6)
    array([ 3, 12])
    """

    factors: tuple[Matrix, ...]

    def __post_init__(self) -> None:
        given, flat = self.factors, tuple(self.factors)
        different = _named(given) if type(given) is NamedFactors else _by_id(flat)
        for factor in different.values():
            if not isinstance(factor, Matrix):
                raise ShapeError(
                    f"Kron is made of matrices, got {type(factor).__name__}; "
                    "wrap arrays as Dense(...)"
                )
        if any(isinstance(factor, Kron) for factor in different.values()):
            parts = (f.factors if isinstance(f, Kron) else (f,) for f in flat)
            flat = tuple(chain.from_iterable(parts))
            different = _by_id(flat)
        elif type(given) is NamedFactors:
            active = tuple([(i, given[i]) for i in given.named if not is_total(given[i])])
            rows = math.prod([factor.shape[0] for _, factor in active])
            size = rows, given.totals.cells
            self.__dict__.update(grid=given.totals.shape, active=active, shape=size)
        if not flat:
            raise ShapeError("Kron needs at least one matrix, got none")
        longest = max(max(factor.shape) for factor in different.values()).bit_length()
        if len(flat) * longest > KRON_BITS and _bits(flat) > KRON_BITS:
            raise ShapeError(f"a Kron of {len(flat):,} factors has a size of over {KRON_BITS} bits")
        kinds = {factor.entry_type for factor in different.values()}
        kind = kinds.pop() if len(kinds) == 1 else np.result_type(*kinds)
        self.__dict__.update(factors=flat, entry_type=kind)

    @cached_property
    def grid(self) -> tuple[int, ...]:
        """The cells of each factor."""
        widths = {key: factor.shape[1] for key, factor in _by_id(self.factors).items()}
        return tuple(map(widths.__getitem__, map(id, self.factors)))

    @cached_property
    def active(self) -> tuple[tuple[int, Matrix], ...]:
        """The factors that are not the total, each with its place.

        >>> Kron((Ones(1, 3), Identity(2))).active
        ((1, Identity(n=2)),)
        """
        sums = {key for key, factor in _by_id(self.factors).items() if is_total(factor)}
        return tuple([(i, f) for i, f in enumerate(self.factors) if id(f) not in sums])

    @cached_property
    def shape(self) -> tuple[int, int]:
        rows = math.prod([factor.shape[0] for _, factor in self.active])  # a total has one
        return rows, math.prod(self.grid)

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


def _bits(factors: Sequence[Matrix]) -> int:
    return sum(max(factor.shape).bit_length() for factor in factors)


def _named(factors: NamedFactors) -> dict[int, Matrix]:
    """As `_by_id`, and perhaps totals that are not there."""
    named = {id(factors[i]): factors[i] for i in factors.named}
    return factors.totals.different | named if len(factors.named) < len(factors) else named


def _by_id(factors: Sequence[Matrix]) -> dict[int, Matrix]:
    """Every different object once; a hundred attributes may share the same total."""
    return dict(zip(map(id, factors), factors, strict=True))


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
