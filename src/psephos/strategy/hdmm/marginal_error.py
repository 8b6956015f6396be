"""The squared error of weighted marginals, over all sets of attributes or over listed ones.

M(θ) stacks the marginal of every set a with weight θ_a. All Grams of marginals share eigenspaces
indexed by sets S (see psephos.matrix.marginals). With N_a = Π_{i∉a} n_i and the workload's τ_S,

    λ_S = Σ_{a⊇S} θ_a² N_a        E = Σ_S τ_S / λ_S        C = (Σ θ)² E
    ∂C/∂θ_a = 2 (Σθ) E - 2 (Σθ)² θ_a N_a g_a                g_a = Σ_{S⊆a} τ_S / λ_S²

λ_S = 0 is no harm where τ_S = 0. C is the expected squared error of M(θ) under Laplace noise in
units of 2/ε² (McKenna et al. 2018, Problem 4, there in O(4^d)). N_a and τ_S are kept divided by
Π n_i and Σ τ, so that a hundred attributes stay within floating point; C is put right at the end.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Protocol

import numpy as np
import scipy.sparse as sp

from psephos.errors import ShapeError
from psephos.matrix.marginals import Axes
from psephos.strategy.deadline import NEVER, Deadline
from psephos.values import Array


class MarginalSets(Protocol):
    """The sets that may be measured, and the error of weights on them (one row per strategy)."""

    @property
    def outside(self) -> Array:
        """N_a for every set, divided by the number of cells."""

    @property
    def scale(self) -> float:
        """C in its own units: Σ τ / Π n_i."""

    def parts(self, weights: Array) -> tuple[Array, Array]:
        """E, and g_a for every set."""

    def named(self, chosen: Array) -> tuple[Axes, ...]:
        """The axes of chosen sets."""


@dataclass(frozen=True, eq=False)
class Lattice:
    """All 2^d sets, numbered by Σ_{i∈a} 2^i: both sums by transforms, O(d 2^d)."""

    axes: int
    outside: Array
    traces: Array
    scale: float

    @classmethod
    def of(cls, shape: Sequence[int], traces: Array) -> Lattice:
        """From τ_S for all 2^d sets."""
        outside = np.ones(1)
        for n in shape:
            outside = np.concatenate([outside, outside / n])
        total = float(traces.sum())
        return cls(len(shape), outside, traces / total, total / math.prod(map(float, shape)))

    def parts(self, weights: Array) -> tuple[Array, Array]:
        eigenvalues = self._sums(weights**2 * self.outside, 0, 1)
        once, twice = _ratios(self.traces, eigenvalues)
        return once.sum(axis=-1), self._sums(twice, 1, 0)

    def _sums(self, values: Array, to: int, source: int) -> Array:
        """Superset (0 ← 1) or subset (1 ← 0) sums of every row, in place."""
        for i in range(self.axes):
            pairs = values.reshape(-1, 2, 1 << i)
            pairs[:, to] += pairs[:, source]
        return values

    def named(self, chosen: Array) -> tuple[Axes, ...]:
        codes = np.flatnonzero(chosen).tolist()
        return tuple(tuple(i for i in range(self.axes) if c >> i & 1) for c in codes)


@dataclass(frozen=True, eq=False)
class ListedSets:
    """Listed sets, and the S that the workload needs: both sums by one sparse matrix."""

    sets: tuple[Axes, ...]
    outside: Array
    traces: Array
    scale: float
    contains: sp.csr_array
    contained: sp.csr_array

    @classmethod
    def of(
        cls, shape: Sequence[int], traces: Mapping[Axes, float], sets: Iterable[Axes]
    ) -> ListedSets:
        """From the positive τ_S, and the sets that may be measured."""
        listed = tuple(dict.fromkeys(sets))
        contained = incidence(len(shape), listed, list(traces))
        tau = np.array(list(traces.values()))
        total = float(tau.sum())
        logs = np.log(np.array(shape, dtype=float))
        inside = np.zeros(len(listed))
        for rows, block in by_length(listed):
            inside[rows] = logs[block].sum(axis=1)
        scale = total / math.prod(map(float, shape))
        return cls(listed, np.exp(-inside), tau / total, scale, contained.T.tocsr(), contained)

    def parts(self, weights: Array) -> tuple[Array, Array]:
        eigenvalues = (self.contains @ (weights**2 * self.outside).T).T
        once, twice = _ratios(self.traces, eigenvalues)
        return once.sum(axis=-1), (self.contained @ twice.T).T

    def named(self, chosen: Array) -> tuple[Axes, ...]:
        return tuple(self.sets[j] for j in np.flatnonzero(chosen).tolist())


def positive_traces(d: int, traces: Array | Mapping[Axes, float]) -> dict[Axes, float]:
    """τ_S where it is positive, from all 2^d of them or from a mapping."""
    if isinstance(traces, Mapping):
        return {tuple(axes): float(tau) for axes, tau in traces.items() if tau > 0}
    traces = np.asarray(traces, dtype=float)
    if traces.shape != (1 << d,):
        raise ShapeError(f"{d} axes have 2^{d} traces, got an array of shape {traces.shape}")
    codes = np.flatnonzero(traces > 0).tolist()
    return {tuple(i for i in range(d) if c >> i & 1): float(traces[c]) for c in codes}


def by_length(sets: Sequence[Axes]) -> Iterator[tuple[Array, Array]]:
    """Sets of one length at a time: where they stand, and their axes as an array."""
    lengths = np.array([len(axes) for axes in sets])
    for k in np.unique(lengths).tolist():
        places = np.flatnonzero(lengths == k)
        yield (
            places,
            np.array([sets[j] for j in places.tolist()], dtype=np.int64).reshape(len(places), k),
        )


def incidence(d: int, sets: Sequence[Axes], inner: Sequence[Axes]) -> sp.csr_array:
    """A 1 where a set (row) contains an inner set (column)."""
    largest = max(map(len, inner))
    exact = np.int64 if d <= 62 or (d + 1) ** largest < 1 << 62 else object
    places = np.array([(d + 1) ** j for j in range(largest)], dtype=exact)

    def codes(axes: Array) -> Array:
        """One whole number for each set, none for two."""
        if d <= 62:
            return np.asarray((1 << axes).sum(axis=-1))
        return np.asarray(((axes + 1) * places[: axes.shape[-1]]).sum(axis=-1))

    known = {}
    for numbers, axes in by_length(inner):
        code = codes(axes)
        order = np.argsort(code)
        known[axes.shape[1]] = (code[order], numbers[order])
    rows, columns = [], []
    for numbers, block in by_length(sets):
        for k, (code, where) in known.items():
            if k > block.shape[1]:
                continue
            picks = list(combinations(range(block.shape[1]), k))
            inner_codes = codes(block[:, np.array(picks, dtype=np.int64).reshape(len(picks), k)])
            nearest = np.minimum(np.searchsorted(code, inner_codes), len(code) - 1)
            hits = code[nearest] == inner_codes
            rows.append(numbers[np.nonzero(hits)[0]])
            columns.append(where[nearest[hits]])
    row, column = np.concatenate(rows), np.concatenate(columns)
    shape = (len(sets), len(inner))
    return sp.coo_array((np.ones(len(row)), (row, column)), shape=shape).tocsr()


def _ratios(traces: Array, eigenvalues: Array) -> tuple[Array, Array]:
    """τ/λ and τ/λ², zero where τ is; what no measured set contains has infinite error."""
    needed = traces > 0
    with np.errstate(divide="ignore", over="ignore"):
        once = np.divide(traces, eigenvalues, out=np.zeros_like(eigenvalues), where=needed)
        twice = np.divide(once, eigenvalues, out=np.zeros_like(once), where=needed)
    return once, twice


def objective(sets: MarginalSets, weights: Array) -> tuple[float, Array]:
    """C and its gradient at one vector of weights.

    >>> lattice = Lattice.of((2, 2), np.array([4.0, 0.0, 0.0, 0.0]))  # the total alone is asked
    >>> objective(lattice, np.array([1.0, 0.0, 0.0, 1.0]))
    (3.2, array([-1.92,  3.2 ,  3.2 ,  1.92]))
    """
    total = float(weights.sum())
    error, slopes = sets.parts(weights)
    value = total**2 * float(error)
    gradient = 2 * total * error - 2 * total**2 * weights * sets.outside * slopes
    return sets.scale * value, sets.scale * gradient


def descend(
    sets: MarginalSets,
    weights: Array,
    *,
    steps: int,
    tolerance: float = 1e-9,
    deadline: Deadline = NEVER,
) -> tuple[Array, Array]:
    """Many strategies at once, each improved at every step until none moves; errors C beside them.

    1/λ_S is convex in the terms x_a = θ_a² N_a, so E ≤ Σ_a g_a(θ°) x°_a² / x_a with equality at the
    present θ°. Under Σθ = 1 that bound is least at θ_a ∝ θ°_a (θ°_a N_a g_a)^{1/3}: C never rises,
    no step size is chosen, and a weight of zero stays zero.
    """
    weights = weights / weights.sum(axis=-1, keepdims=True)
    errors = np.full(len(weights), np.inf)
    active = np.arange(len(weights))
    for _ in range(steps):
        now = weights[active]
        error, slopes = sets.parts(now)
        moving = np.isfinite(error) & (error < (1 - tolerance) * errors[active])
        errors[active] = error
        active, now = active[moving], now[moving]
        if not len(active) or deadline.passed:
            break
        now *= np.cbrt(now * sets.outside * (slopes[moving] / error[moving, None]))
        weights[active] = now / now.sum(axis=-1, keepdims=True)
    return weights, sets.scale * sets.parts(weights)[0]
