"""Tables and their components: for every set S of axes, the part orthogonal to 1 along just S.

    c_S = ⊗_{i∈S} (I - 11ᵀ/nᵢ) ⊗_{i∉S} 1ᵀ x            x = Σ_S c_S spread over the other axes

Spreading divides by the number of cells it spreads over. Both ways go along a tree of axes, so
that each sum is made from a smaller table than the last. Where several blocks see a component,
its estimate is their average, weighted by inverse variance (`ComponentAverages`).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np

from psephos.matrix.core import totals
from psephos.matrix.marginals import Axes
from psephos.values import Array

LARGE_TABLE = 1 << 14
"""A table of more cells is kept as it is, for the subspaces that no other block sees."""
STACKED_CELLS = 1 << 18
"""Cells of small tables of one shape that are taken together."""


@dataclass(frozen=True)
class MarginalBlock:
    """One block: the axes it does not sum over, the residual ones of them, its λ on every S.

    What is measured along a residual axis may be other rows than nI - 11ᵀ, such as x₀ - x₁ of two
    values: then a matrix takes its answers to those.
    """

    axes: Axes
    residual: Axes = ()
    strength: float = 1.0
    turned: tuple[tuple[int, Array], ...] = ()

    @property
    def count(self) -> int:
        """How many S it sees."""
        return 1 << len(self.axes) - len(self.residual)

    def subspaces(self) -> Iterator[Axes]:
        """Every S it sees: those between its residual axes and all its axes."""
        return subspaces_between(self.residual, self.axes)


@dataclass(frozen=True, eq=False)
class ComponentAverages:
    """Estimated components c_S, and large tables for the S that only one block sees."""

    shape: tuple[int, ...]
    information: Mapping[Axes, float]
    draws: int = 1
    """How many sets of answers are averaged side by side: the rows of every table."""
    components: dict[Axes, Array] = field(default_factory=dict)
    large_tables: list[tuple[MarginalBlock, Array, dict[Axes, Array]]] = field(default_factory=list)
    """A block, its answers, and what it alone says of the components that others see too."""

    @classmethod
    def of(
        cls,
        shape: tuple[int, ...],
        information: Mapping[Axes, float],
        blocks: Sequence[MarginalBlock],
        values: Sequence[Array],
    ) -> ComponentAverages:
        """The inverse-variance averages of all blocks; values have a row for each draw."""
        averages = cls(shape, information, len(values[0]))
        count: dict[Axes, int] = {}
        for block in blocks:
            for s in block.subspaces():
                count[s] = count.get(s, 0) + 1
        groups: dict[tuple[Axes, Axes], list[int]] = {}
        for j, block in enumerate(blocks):
            grid = averages._grid(block.axes)
            if math.prod(grid) > LARGE_TABLE and count[block.axes] == 1:
                components: dict[Axes, Array] = {}
                averages.large_tables.append((block, values[j], components))
                shared = [s for s in block.subspaces() if count[s] > 1]
                averages._add([block], values[j], shared, components)
                continue
            places = tuple(k for k, i in enumerate(block.axes) if i in block.residual)
            groups.setdefault((grid, places), []).append(j)
        for (grid, _), members in groups.items():
            many = max(1, STACKED_CELLS // (averages.draws * math.prod(grid)))
            for start in range(0, len(members), many):
                some = [blocks[j] for j in members[start : start + many]]
                stacked = np.array([values[j] for j in members[start : start + many]], dtype=float)
                subspaces = [*some[0].subspaces()]
                averages._add(some, stacked.reshape(-1, math.prod(grid)), subspaces, {})
        return averages

    def _grid(self, axes: Sequence[int]) -> Axes:
        return tuple(self.shape[i] for i in axes)

    def _add(
        self,
        blocks: list[MarginalBlock],
        answers: Array,
        subspaces: list[Axes],
        components: dict[Axes, Array],
    ) -> None:
        """Weight blocks of one shape and kind into the averages.

        What a single block says by itself is written into `components`.
        """
        first = blocks[0]
        place = {i: k for k, i in enumerate(first.axes)}
        places = [tuple(place[i] for i in s) for s in subspaces]
        scale = 1 / math.prod(map(float, self._grid(first.residual)))
        for positions, tables in components_of(answers, self._grid(first.axes), places):
            tables *= scale
            for block, table in zip(
                blocks, tables.reshape(len(blocks), self.draws, -1), strict=True
            ):
                s = tuple(block.axes[k] for k in positions)
                if len(blocks) == 1:
                    components[s] = table
                part = table * (block.strength / self.information[s])
                if s in self.components:
                    self.components[s] += part
                else:
                    self.components[s] = part

    def tables(self, axes: Axes) -> Array:
        """The estimated marginal on some axes, flat, a row for each draw.

        A component nobody saw counts as zero.
        """
        inside = self._inside(self.components, axes)
        place = {i: k for k, i in enumerate(axes)}
        parts: list[tuple[Array, float]] = []
        for block, answers, components in self.large_tables:
            common = tuple(i for i in block.axes if i in place)
            if not set(block.residual) <= set(common):
                continue
            if components.keys() >= set(subspaces_between(block.residual, common)):
                continue  # other blocks see all that these axes need, and the averages hold it
            for s, table in self._inside(components, axes).items():
                inside[s] = inside[s] - table
            parts.append(self._part(block, answers, common, axes))
        grid = self._grid(axes)
        empty = np.zeros((self.draws, math.prod(grid)))
        out = assemble(inside, grid, self.draws) if inside else empty
        for part, spread in parts:
            cube = out.reshape(self.draws, *grid)
            cube += part if spread == 1 else part / spread
        return out

    def _inside(self, components: Mapping[Axes, Array], axes: Axes) -> dict[Axes, Array]:
        """The components of a marginal on some axes, keyed by places among those axes."""
        place = {i: k for k, i in enumerate(axes)}
        if len(components) < 1 << len(axes):
            inside = [s for s in components if all(i in place for i in s)]
        else:
            inside = [s for s in subspaces_between((), axes) if s in components]
        return {tuple(place[i] for i in s): components[s] for s in inside}

    def _part(
        self, block: MarginalBlock, answers: Array, common: Axes, axes: Axes
    ) -> tuple[Array, float]:
        """A large table summed to the common axes, and over how many cells it is spread."""
        keep = [k for k, i in enumerate(block.axes) if i in common]
        part = sum_to_axes(answers, self._grid(block.axes), keep)
        for i in block.residual:
            before = self.draws * math.prod(self._grid([j for j in common if j < i]))
            part = subtract_means(part.reshape(before, -1), [self.shape[i]]) / self.shape[i]
        sizes = [self.draws, *(self.shape[i] if i in common else 1 for i in axes)]
        spread = math.prod(float(self.shape[i]) for i in axes if i not in common)
        return part.reshape(sizes), spread


def sum_to_axes(tables: Array, grid: Sequence[int], axes: Sequence[int]) -> Array:
    """Every row of tables summed over all axes but these.

    >>> sum_to_axes(np.arange(6.0)[None], [2, 3], [0])
    array([[ 3., 12.]])
    """
    count = len(tables)
    sizes = list(grid)
    runs: list[tuple[int, int]] = []
    for i in range(len(grid)):
        if i in axes:
            continue
        if runs and runs[-1][1] == i:
            runs[-1] = (runs[-1][0], i + 1)
        else:
            runs.append((i, i + 1))
    # The longest run first: it leaves the least to read.
    for start, end in sorted(runs, key=lambda run: -math.prod(grid[run[0] : run[1]])):
        before = count * math.prod(sizes[:start])
        cube = tables.reshape(before, math.prod(sizes[start:end]), -1)
        tables = totals(cube)
        sizes[start:end] = [1] * (end - start)
    return tables.reshape(count, -1)


def subtract_means(tables: Array, sizes: Sequence[int]) -> Array:
    """Every row of tables less its means along every axis, as a new array."""
    residuals = np.array(tables, dtype=float)
    before = len(residuals)
    for n in sizes:
        cube = residuals.reshape(before, n, -1)
        cube -= totals(cube) / n
        before *= n
    return residuals


def components_of(
    tables: Array, grid: Sequence[int], subspaces: Sequence[Axes]
) -> Iterator[tuple[Axes, Array]]:
    """The components of every row of tables on some S, one after the other.

    >>> dict(components_of(np.array([[1.0, 2.0, 6.0]]), [3], [(), (0,)]))
    {(): array([[9.]]), (0,): array([[-2., -1.,  3.]])}
    """
    count = len(tables)

    def down(
        tables: Array, prefix: Axes, later: list[int], family: Sequence[Axes]
    ) -> Iterator[tuple[Axes, Array]]:
        """Tables over the prefix and the later axes, for the S whose first axes are the prefix."""
        before = count * math.prod(grid[i] for i in prefix)
        used = [i for i in later if any(i in s for s in family)]
        if len(used) < len(later):
            places = [k for k, i in enumerate(later) if i in used]
            tables = sum_to_axes(tables.reshape(before, -1), [grid[i] for i in later], places)
        if not used:
            yield prefix, subtract_means(tables.reshape(count, -1), [grid[i] for i in prefix])
            return
        here, rest = used[0], used[1:]
        drop = [s for s in family if here not in s]
        if drop:
            yield from down(totals(tables.reshape(before, grid[here], -1)), prefix, rest, drop)
        yield from down(tables, (*prefix, here), rest, [s for s in family if here in s])

    if subspaces:
        yield from down(tables, (), list(range(len(grid))), subspaces)


def assemble(components: Mapping[Axes, Array], grid: Sequence[int], rows: int = 1) -> Array:
    """The tables with these components and no others, flat, as many rows as components have.

    >>> assemble({(): np.array([[9.0]]), (0,): np.array([[-2.0, -1.0, 3.0]])}, [3])
    array([[1., 2., 6.]])
    """

    def up(before: int, axis: int, family: list[Axes]) -> Array:
        """The sum of a family of one prefix of so many cells; new, but for a lone component."""
        if axis == len(grid):
            return components[family[0]]
        n = grid[axis]
        keep = [s for s in family if axis in s]
        drop = [s for s in family if axis not in s]
        part = up(before * n, axis + 1, keep).reshape(before, n, -1) if keep else None
        if not drop:
            return np.asarray(part)
        spread = up(before, axis + 1, drop).reshape(before, 1, -1) / n
        if part is None:
            return np.repeat(spread, n, axis=1)
        return np.add(part, spread, out=part if len(keep) > 1 else None)

    tables = up(rows, 0, list(components)).reshape(rows, -1)
    return tables.copy() if len(components) == 1 else tables


def subspaces_between(smallest: Axes, largest: Axes) -> Iterator[Axes]:
    """Every set of axes that holds the smallest and lies in the largest.

    >>> list(subspaces_between((1,), (0, 1)))
    [(1,), (0, 1)]
    """
    free = [i for i in largest if i not in smallest]
    for k in range(len(free) + 1):
        for more in combinations(free, k):
            yield tuple(sorted(smallest + more)) if smallest else more
