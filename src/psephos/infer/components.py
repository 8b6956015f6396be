"""Tables and their components: for every set S of axes, the part orthogonal to 1 along just S.

    c_S = ⊗_{i∈S} (I - 11ᵀ/nᵢ) ⊗_{i∉S} 1ᵀ x            x = Σ_S c_S spread over the other axes

Spreading divides by the number of cells it spreads over. Both ways go along a tree of axes, so
that each sum is made from a smaller table than the last.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from psephos.frozen import Array
from psephos.matrix.core import totals

Axes = tuple[int, ...]


def summed(tables: Array, grid: Sequence[int], keep: Sequence[int]) -> Array:
    """Every row of tables summed over all axes but those kept.

    >>> summed(np.arange(6.0)[None], [2, 3], [0])
    array([[ 3., 12.]])
    """
    left = len(tables)
    sizes = list(grid)
    runs: list[tuple[int, int]] = []
    for i in range(len(grid)):
        if i in keep:
            continue
        if runs and runs[-1][1] == i:
            runs[-1] = (runs[-1][0], i + 1)
        else:
            runs.append((i, i + 1))
    # The longest run first: it leaves the least to read.
    for start, end in sorted(runs, key=lambda run: -math.prod(grid[run[0] : run[1]])):
        before = left * math.prod(sizes[:start])
        cube = tables.reshape(before, math.prod(sizes[start:end]), -1)
        tables = totals(cube)
        sizes[start:end] = [1] * (end - start)
    return tables.reshape(left, -1)


def centred(tables: Array, sizes: Sequence[int]) -> Array:
    """Every row of tables less its means along every axis, as a new array."""
    made = np.array(tables, dtype=float)
    before = len(made)
    for n in sizes:
        cube = made.reshape(before, n, -1)
        cube -= totals(cube) / n
        before *= n
    return made


def analysed(
    tables: Array, grid: Sequence[int], wanted: Sequence[Axes]
) -> Iterator[tuple[Axes, Array]]:
    """The wanted components of every row of tables, one S after the other.

    >>> dict(analysed(np.array([[1.0, 2.0, 6.0]]), [3], [(), (0,)]))
    {(): array([[9.]]), (0,): array([[-2., -1.,  3.]])}
    """
    left = len(tables)

    def down(
        tables: Array, kept: Axes, later: list[int], family: Sequence[Axes]
    ) -> Iterator[tuple[Axes, Array]]:
        """Tables over the kept axes and the later ones, for the S whose first axes are the kept."""
        before = left * math.prod(grid[i] for i in kept)
        used = [i for i in later if any(i in s for s in family)]
        if len(used) < len(later):
            places = [k for k, i in enumerate(later) if i in used]
            tables = summed(tables.reshape(before, -1), [grid[i] for i in later], places)
        if not used:
            yield kept, centred(tables.reshape(left, -1), [grid[i] for i in kept])
            return
        here, rest = used[0], used[1:]
        drop = [s for s in family if here not in s]
        if drop:
            yield from down(totals(tables.reshape(before, grid[here], -1)), kept, rest, drop)
        yield from down(tables, (*kept, here), rest, [s for s in family if here in s])

    if wanted:
        yield from down(tables, (), list(range(len(grid))), wanted)


def assembled(components: Mapping[Axes, Array], grid: Sequence[int], rows: int = 1) -> Array:
    """The tables with these components and no others, flat, as many rows as components have.

    >>> assembled({(): np.array([[9.0]]), (0,): np.array([[-2.0, -1.0, 3.0]])}, [3])
    array([[1., 2., 6.]])
    """

    def up(kept: int, axis: int, family: list[Axes]) -> Array:
        """The sum of a family of one kept prefix: a new array, but for a component on its own."""
        if axis == len(grid):
            return components[family[0]]
        n = grid[axis]
        keep = [s for s in family if axis in s]
        drop = [s for s in family if axis not in s]
        part = up(kept * n, axis + 1, keep).reshape(kept, n, -1) if keep else None
        if not drop:
            return np.asarray(part)
        spread = up(kept, axis + 1, drop).reshape(kept, 1, -1) / n
        if part is None:
            return np.repeat(spread, n, axis=1)
        return np.add(part, spread, out=part if len(keep) > 1 else None)

    made = up(rows, 0, list(components)).reshape(rows, -1)
    return made.copy() if len(components) == 1 else made
