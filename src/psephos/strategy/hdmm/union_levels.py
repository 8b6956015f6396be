"""Unions over levels: on every axis a part has a level, every value, the strategy, or the total.

In the common classes of the options of each axis (`level_axes`, and as in `inverse.classes`) the
error of any union of such parts is a sum over small blocks,

    C = (Σw)² Σ_k tr(X_k⁺ τ_k),    X_k = Σ_a c_a ⊗_i B_{ia k_i},    τ_k = Σ_j ⊗_i G_{ij k_i},

for the share w_a and the precision c_a = w_a² (Gaussian noise: w_a) of part a. Weighted marginals,
OPT_M of McKenna et al. 2018, are the case without strategies and levels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

import numpy as np

from psephos.inverse.classes import block_matrices, outer
from psephos.strategy.deadline import NEVER, Deadline
from psephos.strategy.factors import Factor, identity_factor
from psephos.strategy.gram_terms import GramOperator, GramTerms, gram_operator
from psephos.strategy.hdmm.level_axes import (
    AxisBlocks,
    AxisOption,
    CommonLevels,
    LevelAxis,
    PartOptions,
    divided_blocks,
    fixed_blocks,
    gram_seen_alone,
    gram_seen_with_levels,
    kinds_of,
    strategy_blocks,
)
from psephos.strategy.hdmm.union_pair import Slopes
from psephos.values import Array
from psephos.variances import NoiseKind

NOTABLE_SHARE = 1e-3
"""A part with less than this share of the budget is left out, unless only it answers something."""
SMALLEST_SHARE = 1e-6
"""No share is smaller while shares are searched, so that all blocks can be inverted."""
HALVING = 15
"""After so many steps the worse half of the starts is given up."""
UNSEEN = 1e-11
"""Eigenvalues below this share of the largest are those of something that no part sees."""


@dataclass(frozen=True, eq=False)
class ClassGrid:
    """Where the blocks of all combinations of classes stand among their entries."""

    shape: tuple[int, ...]
    places: list[Array]
    """For every size of block, the places of all its blocks: count x size x size."""

    @classmethod
    @lru_cache(maxsize=64)
    def of(cls, axes: tuple[tuple[tuple[int, int], ...], ...]) -> ClassGrid:
        """From the runs of classes on every axis."""
        ends = [np.cumsum([count * b * b for b, count in runs]) for runs in axes]
        shape = tuple(int(end[-1]) for end in ends)
        numbers = np.arange(math.prod(shape)).reshape(shape)
        by_size: dict[int, list[Array]] = {}
        for choice in np.ndindex(*[len(runs) for runs in axes]):
            runs = [axes[i][k] for i, k in enumerate(choice)]
            place = tuple(
                slice(int(ends[i][k]) - runs[i][1] * runs[i][0] ** 2, int(ends[i][k]))
                for i, k in enumerate(choice)
            )
            blocks = block_matrices(numbers[place], [(b, count) for b, count in runs])
            by_size.setdefault(blocks.shape[-1], []).append(blocks)
        return cls(shape, [np.concatenate(each) for each in by_size.values()])

    @property
    def work(self) -> float:
        """About the operations of one inversion."""
        return float(sum(p.shape[0] * max(1, 4 * p.shape[1] ** 3) for p in self.places))

    def inverses(self, x: Array) -> Array:
        """X_k⁻¹ of all blocks; the last two axes of an array hold their entries."""
        flat = x.reshape(*x.shape[:-2], -1)
        out = np.zeros_like(flat)
        for place in self.places:
            blocks = flat[..., place]
            if place.shape[1] == 1:
                out[..., place] = 1 / blocks
                continue
            with np.errstate(invalid="ignore"):  # singular to the last digit: no point is taken
                even = 1 / np.sqrt(np.einsum("...ii->...i", blocks))
            blocks *= even[..., :, None] * even[..., None, :]
            scaled = _inverses(blocks)
            scaled *= even[..., :, None] * even[..., None, :]
            out[..., place] = scaled
        return out.reshape(x.shape)

    def between(self, inverse: Array, tau: Array) -> Array:
        """X_k⁻¹ τ_k X_k⁻¹."""
        flat = inverse.reshape(*inverse.shape[:-2], -1)
        out, tau = np.zeros_like(flat), tau.ravel()
        for place in self.places:
            blocks = flat[..., place]
            out[..., place] = blocks @ tau[place] @ blocks
        return out.reshape(inverse.shape)

    def seen(self, even: Array) -> ClassGrid:
        """The blocks of which parts see anything, from the sum of all parts with even weights."""
        flat = even.ravel()
        places = [place[flat[place].any(axis=(1, 2))] for place in self.places]
        return ClassGrid(self.shape, [place for place in places if len(place)])

    def unseen(self, even: Array, full: dict[int, Array]) -> Array:
        """Projections onto what no part sees of these blocks.

        Blocks that are seen in full stay so whatever the factors: they are noted, by their size.
        """
        flat = even.ravel()
        out = np.zeros_like(flat)
        for place in self.places:
            b = place.shape[1]
            if b > 1:
                if b not in full:
                    values = np.linalg.eigvalsh(flat[place])
                    full[b] = values[:, 0] > np.maximum(values[:, -1], 0) * UNSEEN
                part = place[~full[b]]
                values, vectors = np.linalg.eigh(flat[part])
                outside = values <= np.maximum(values[:, -1:], 0) * UNSEEN
                out[part] = (vectors * outside[:, None, :]) @ np.swapaxes(vectors, -1, -2)
        return out.reshape(even.shape)


def _inverses(blocks: Array) -> Array:
    """The inverses of many small matrices with a diagonal of ones.

    Shares that are far apart leave some of them singular to the last digit: such shares are not
    the best, and an error that is a little too small for them does no harm.
    """
    try:
        return np.linalg.inv(blocks)
    except np.linalg.LinAlgError:
        return np.linalg.inv(blocks + 1e-12 * np.eye(blocks.shape[-1]))


@dataclass(eq=False)
class SeenBlocks:
    """What stays the same while factors change: which blocks are seen, and which in full."""

    grid: ClassGrid | None = None
    full: dict[int, Array] = field(default_factory=dict)
    unseen: Array | None = None


@dataclass(frozen=True, eq=False)
class LevelUnion:
    """Parts by their options on every axis, as a function of their shares and of the strategies.

    The factors of `slopes` and `error` are the strategies of every value, axis by axis: one that
    all parts share, or as many as the axis has.
    """

    terms: GramTerms
    noise: NoiseKind
    axes: tuple[LevelAxis, ...]
    levels: tuple[tuple[AxisOption, ...], ...]
    """On every axis the options that are no strategies of every value."""
    searched: tuple[bool, ...]
    """Are the strategies of an axis optimised?"""
    parts: tuple[PartOptions, ...]
    strategies: tuple[int, ...]
    """How many strategies of every value an axis has; they are its last options."""

    def only(self, numbers: Sequence[int]) -> LevelUnion:
        """Some of the parts."""
        return replace(self, parts=tuple(self.parts[k] for k in numbers))

    def options(self, factors: Sequence[Factor]) -> list[tuple[AxisOption, ...]]:
        """All options of every axis, with these factors for every value."""
        every, start = [], 0
        for axis, levels, count in zip(self.axes, self.levels, self.strategies, strict=True):
            cells = np.arange(axis.n)
            last = [AxisOption(cells, factor) for factor in factors[start : start + count]]
            every.append((*levels, *last))
            start += count
        return every

    def at(self, factors: Sequence[Factor]) -> UnionBlocks:
        """The union in its classes, for some factors."""
        pairs = enumerate(zip(self.axes, self.options(factors), strict=True))
        return UnionBlocks(self, [self._axis_blocks(i, *pair) for i, pair in pairs])

    def _axis_blocks(self, i: int, axis: LevelAxis, options: tuple[AxisOption, ...]) -> AxisBlocks:
        if self.strategies[i] > 1:
            return divided_blocks(axis, options)
        if self.searched[i]:
            return strategy_blocks(axis, options, self._common_levels(i))
        if i not in self._fixed:
            used = sorted({part[i] for part in self.parts})
            self._fixed[i] = fixed_blocks(axis, options, used)
        return self._fixed[i]

    def _common_levels(self, i: int) -> CommonLevels | None:
        if i not in self._levels:
            used = sorted({part[i] for part in self.parts})
            last = AxisOption(np.arange(self.axes[i].n), identity_factor(self.axes[i].n))
            self._levels[i] = CommonLevels.of(self.axes[i], (*self.levels[i], last), used)
        return self._levels[i]

    def axis_sizes(self, i: int, factors: Sequence[Factor]) -> tuple[tuple[int, int], ...]:
        """The sizes of blocks on one axis, and how many classes have them."""
        if self.strategies[i] > 1:
            return ((self.axes[i].n, 1),)
        if not self.searched[i]:
            return self._axis_blocks(i, self.axes[i], self.options(factors)[i]).sizes
        levels = self._common_levels(i)
        return ((1, 1),) if levels is None else ((1, 1), (len(levels.partition), 1))

    @cached_property
    def _fixed(self) -> dict[int, AxisBlocks]:
        return {}

    @cached_property
    def _levels(self) -> dict[int, CommonLevels | None]:
        return {}

    @cached_property
    def blocks(self) -> SeenBlocks:
        """What parts see of the classes; noted when it is first looked at."""
        return SeenBlocks()

    def error(self, shares: Array, factors: Sequence[Factor]) -> float:
        return self.at(factors).error(shares)

    def slopes(self, shares: Array, factors: Sequence[Factor]) -> Slopes:
        return self.at(factors).slopes(shares)

    def notable(self, shares: Array) -> list[int]:
        """The parts with a notable share, and those without which a product had no finer part."""
        numbers = np.flatnonzero(shares > NOTABLE_SHARE).tolist()
        for kind in self.kinds:
            if any(self.is_finer(self.parts[k], kind) for k in numbers):
                continue
            finer = [k for k, part in enumerate(self.parts) if self.is_finer(part, kind)]
            numbers.append(max(finer, key=lambda k: shares[k]))
        return sorted(set(numbers))

    @cached_property
    def kinds(self) -> list[PartOptions]:
        """The option on every axis that each product needs."""
        return kinds_of(self.axes)

    def is_finer(self, part: PartOptions, kind: PartOptions) -> bool:
        """Does a part answer all products of a kind?"""
        last = [len(axis.options) - 1 for axis in self.axes]
        cells = [min(o, every) for o, every in zip(part, last, strict=True)]
        return all(axis.joins[a, b] == a for axis, a, b in zip(self.axes, cells, kind, strict=True))


class UnionBlocks:
    """The union in the classes of its axes, the factors given.

    The longest axis stands last, and everything is a few numbers for each of its options and
    queries times what the other axes make of them: tensors are never formed part by part.
    """

    def __init__(self, union: LevelUnion, axes: list[AxisBlocks]) -> None:
        self.union, self.axes = union, axes
        self.power = union.noise.power
        self.longest = max(range(len(axes)), key=lambda i: axes[i].entries)
        self.others = [i for i in range(len(axes)) if i != self.longest]
        self.parts = self._parts(self.others)
        self.queries = self._queries(self.others)
        self.tau = self.queries.T @ self._last.queries
        self.grid, self.unseen = self._look_at_blocks()

    def _look_at_blocks(self) -> tuple[ClassGrid, Array]:
        """The blocks that are seen, and projections onto what is not seen of them.

        Few kinds of factors change the projections.
        """
        known = self.union.blocks
        fixed = all(axis.moments is None for axis in self._larger())
        if fixed and known.grid is not None and known.unseen is not None:
            return known.grid, known.unseen
        even = self._x(self._even_precisions())
        if known.grid is None:
            order = [*self.others, self.longest]
            known.grid = ClassGrid.of(tuple(self.axes[i].sizes for i in order)).seen(even)
        known.unseen = known.grid.unseen(even, known.full)
        return known.grid, known.unseen

    def _larger(self) -> list[AxisBlocks]:
        """The axes with blocks of more than one number."""
        return [axis for axis in self.axes if any(size > 1 for size, _ in axis.sizes)]

    @property
    def _last(self) -> AxisBlocks:
        return self.axes[self.longest]

    def _parts(self, axes: Sequence[int]) -> Array:
        """What every part measures on some axes, multiplied out: parts by entries."""
        return np.array(
            [
                outer([self.axes[i].options[part[i]] for i in axes]).ravel()
                for part in self.union.parts
            ]
        )

    def _queries(self, axes: Sequence[int]) -> Array:
        """What products ask on some axes, added up by their queries on the longest axis."""
        out = self.union.terms.coefficients[:, None]
        for i in axes:
            more = self.axes[i].queries[self.union.axes[i].which]
            out = (out[:, :, None] * more[:, None, :]).reshape(len(out), -1)
        sums = np.zeros((len(self._last.queries), out.shape[1]))
        np.add.at(sums, self.union.axes[self.longest].which, out)
        return sums

    @cached_property
    def _has(self) -> Array:
        """Which option of the longest axis every part has: parts by options."""
        options = [part[self.longest] for part in self.union.parts]
        return np.eye(len(self._last.options))[options]

    @cached_property
    def _users(self) -> list[tuple[int, Array]]:
        """For every option of the longest axis that parts have: which of them."""
        return [(o, np.flatnonzero(has)) for o, has in enumerate(self._has.T) if has.any()]

    def _by_option(self, precisions: Array) -> Array:
        """Σ over the parts with each option of the longest axis, on the other axes."""
        sums = np.zeros((*precisions.shape[:-1], len(self._last.options), self.parts.shape[1]))
        for o, users in self._users:
            sums[..., o, :] = precisions[..., users] @ self.parts[users]
        return np.swapaxes(sums, -1, -2)

    def _x(self, precisions: Array) -> Array:
        return np.asarray(self._by_option(precisions) @ self._last.options)

    def _even_precisions(self) -> Array:
        """Precisions at which all parts have entries of one size."""
        largest = (
            np.abs(self.parts).max(axis=1)
            * np.abs(self._last.options).max(axis=1)[self._has.argmax(axis=1)]
        )
        return np.asarray(1 / np.where(largest > 0, largest, 1))

    def _solved(self, shares: Array) -> tuple[Array, Array, Array]:
        """X⁻¹ in entries, the error at Σw = 1, and X⁻¹τX⁻¹; first those of each row of shares."""
        x = self._x(shares**self.power)
        largest = x.max(axis=(-2, -1), keepdims=True)
        inverse = self.grid.inverses(x + self.unseen * largest)
        error = (inverse * self.tau).sum(axis=(-2, -1))
        return inverse, error, self.grid.between(inverse, self.tau)

    def _seen_of(self, between: Array) -> Array:
        """⟨B_a, X⁻¹τX⁻¹⟩ for every part."""
        by_option = between @ self._last.options.T
        seen = np.empty((*between.shape[:-2], len(self.parts)))
        for o, users in self._users:
            seen[..., users] = by_option[..., o] @ self.parts[users].T
        return seen

    def error(self, shares: Array) -> float:
        total_share = float(shares.sum())
        return total_share**self.power * float(self._solved(shares)[1])

    def shares(
        self, starts: Array, steps: int = 300, deadline: Deadline = NEVER
    ) -> tuple[Array, Array]:
        """The shares improved from rows of positive starts, and C of each; the better rows stay.

        C is convex in the precisions, so at Σw = 1 it is at most Σ_a c°_a² g_a / c_a with
        g_a = ⟨B_a, X⁺τX⁺⟩, and equal at the present c°. The least of that bound comes next, so C
        never rises.
        """
        power = self.power
        w = starts / starts.sum(axis=1, keepdims=True)
        error = np.full(len(w), np.inf)
        for step in range(1, steps + 1):
            if step % HALVING == 0 and len(w) > 4:
                better = np.argsort(error, kind="stable")[: len(w) // 2]
                w, error = w[better], error[better]
            before = error
            _, error, between = self._solved(w)
            late = deadline.passed
            if late or (before - error <= 1e-7 * error).all():
                break
            g = np.maximum(self._seen_of(between), 0)
            w = w * (w ** (power - 1) * g / error[:, None]) ** (1 / (power + 1))
            w = np.maximum(w / w.sum(axis=1, keepdims=True), SMALLEST_SHARE)
        return w / w.sum(axis=1, keepdims=True), error

    def slopes(self, shares: Array) -> Slopes:
        """C, its derivative in every share, and the Gram that every strategy sees."""
        power, total_share = self.power, float(shares.sum())
        inverse, error, between = self._solved(shares)
        scale = total_share**power
        value = scale * float(error)
        g = self._seen_of(between)
        by_share = power * (value / total_share - scale * shares ** (power - 1) * g)
        grams: list[GramOperator | None] = []
        for i, searched in enumerate(self.union.searched):
            if searched:
                grams += self._grams_seen(i, scale * inverse, scale * between, shares**power)
            else:
                grams += [None] * self.union.strategies[i]
        return Slopes(value, by_share, grams)

    def _grams_seen(
        self, i: int, inverse: Array, between: Array, precisions: Array
    ) -> list[GramOperator]:
        """Γ with dC = tr(Γ dN) for every strategy of an axis, through the entries of this axis.

        ∂C/∂G_j is X⁻¹ contracted with the product's other axes, ∂C/∂B_o is -Σ c_a X⁻¹τX⁻¹
        contracted with the other axes of the parts that have option o.
        """
        axis, blocks = self.union.axes[i], self.axes[i]
        if i == self.longest:
            by_option = -self._by_option(precisions).T @ between
            by_query = self.queries @ inverse
        else:
            by_option, by_query = self._through_others(i, inverse, between, precisions)
        if self.union.strategies[i] > 1:
            first = len(self.union.levels[i])
            pairs = zip(by_option[first:], blocks.options[first:], strict=True)
            return [gram_seen_alone(slope, gram, axis.n) for slope, gram in pairs]
        if blocks.moments is None:
            return [gram_operator(by_query[:, 0], axis.queries)]
        return [gram_seen_with_levels(axis, blocks.moments, by_query, by_option)]

    def _through_others(
        self, i: int, inverse: Array, between: Array, precisions: Array
    ) -> tuple[Array, Array]:
        """∂C/∂B_o and ∂C/∂G_j of an axis that is not the longest."""
        axis, blocks, which = self.union.axes[i], self.axes[i], self.union.axes[self.longest].which
        place = self.others.index(i)
        shape = self.grid.shape[:-1]
        rest = [k for k in self.others if k != i]

        def unfolded(tensor: Array) -> Array:
            """This axis, the other axes but the longest, and a number for each of its options."""
            cube = tensor.reshape(*shape, -1)
            return np.moveaxis(cube, place, 0).reshape(shape[place], -1, tensor.shape[-1])

        seen = unfolded(between @ self._last.options.T)
        by_part = np.einsum(
            "a,ae,xeo,ao->ax", precisions, self._parts(rest), seen, self._has, optimize=True
        )
        by_option = np.zeros((len(blocks.options), blocks.entries))
        np.add.at(by_option, [part[i] for part in self.union.parts], -by_part)
        products = self.union.terms.coefficients[:, None]
        for k in rest:
            more = self.axes[k].queries[self.union.axes[k].which]
            products = (products[:, :, None] * more[:, None, :]).reshape(len(products), -1)
        answers = np.moveaxis(unfolded(inverse @ self._last.queries.T), 2, 0)[which]
        by_query = np.zeros((len(axis.queries), blocks.entries))
        np.add.at(by_query, axis.which, (answers @ products[:, :, None])[:, :, 0])
        return by_option, by_query
