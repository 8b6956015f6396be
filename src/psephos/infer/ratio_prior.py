"""What noisy cells were before the noise, as all of a table's cells together suggest.

A table of noisy cells w = x + noise has a guess q > 0 for every cell, e.g. that attributes are
independent. How far guesses are off is read from the table itself: the ratio x/q is taken to be
drawn from a distribution that is the same for all cells of about the same q/σ, a mixture of

    the atom 0,   the atom 1,   the uniform distributions on [r_k, r_k+1],   0 = r_0 < r_1 < …

whose weights maximise the likelihood of the noisy cells (Robbins 1956; Kiefer and Wolfowitz 1956),
by the EM steps of Dempster, Laird and Rubin (1977). A cell becomes its mean given w. Where guesses
are right the atom 1 takes over and cells become their guesses; where a table is sparse the atom 0
does, and what stands out from the noise stays as it is; counts far above the noise are hardly moved
at all, whatever the weights. No cell becomes negative.

*Moments.* For noise of density f and unit variance, and t(a) the integral of f, of u f or of u² f
from a ≥ 0 on, the integrals from q r_k - w to q r_k+1 - w are differences of t, since f is even:
that gives the likelihood of each uniform and the mean and the mean square of x - w under it.

*Pooling.* A table has few cells of one size. So the weights of all tables of a family come first,
and each table starts from them, as if it had `FAMILY_CELLS` more cells that follow the family.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.random import default_rng

from psephos.values import Array

EDGES_BELOW = [0, 1 / 32, 1 / 8, 1 / 4, 1 / 2, 0.7, 0.83, 0.9, 0.96]
EDGES_ABOVE = [1.04, 1.1, 1.2, 1.4, 2, 3, 4, 8, 16, 64, 256, 2**10, 2**14, 2**20]
EDGES = np.array([*EDGES_BELOW, *EDGES_ABOVE])
"""The edges r_k of the uniform distributions of ratios, finest about 1."""
SIZES = np.array([0.003, 0.03, 0.1, 0.3, 1, 3, 10, 100])
"""Guesses q/σ between two of these share one distribution of ratios."""
FAMILY_CELLS = 20.0
"""So many cells that follow its family are added to those of each size of a table."""
START_CELLS = 12.0
"""So many cells are added to those of a family: a third have the ratio 1, the others any."""
FAMILY_STEPS = 60
TABLE_STEPS = 20
"""EM steps: they end long before the last digit, which is worth nothing here."""
SAMPLED_CELLS = 20_000
"""The most cells of one size of a table that its weights are estimated from."""
FAMILY_SAMPLE = 3_000
"""The same for the weights of a family."""
CHUNK_CELLS = 1 << 14
SAMPLE_SEED = 1956
LEAST_LIKELIHOOD = 1e-280
NoiseShape = Literal["laplace", "normal"]
Weights = Mapping[int, Array]
"""For each number of a size, the weights of the atoms 0 and 1 and of the uniforms."""


@dataclass(frozen=True, eq=False)
class NoisyCells:
    """Noisy cells, a guess for each, the standard deviation of their noise and its shape."""

    values: Array
    guesses: Array
    deviation: float
    shape: NoiseShape

    def sizes(self) -> Array:
        """The number of each cell's size."""
        return np.searchsorted(SIZES, self.guesses / self.deviation)

    def likelihoods(self, cells: Array) -> Array:
        """The likelihood of some cells under the atoms 0 and 1 and under every uniform."""
        return self._integrals(cells, moments=False)[0]

    def _integrals(self, cells: Array, *, moments: bool) -> list[Array]:
        """∫ f, and if asked ∫ u f and ∫ u² f, with u = (x - w)/σ, a row for each cell."""
        w = self.values[cells][:, None] / self.deviation
        q = self.guesses[cells][:, None] / self.deviation
        u = q * EDGES - w
        widths = q * np.diff(EDGES)
        tails = _tails(np.abs(u), self.shape)
        atoms = np.concatenate([-w, q - w], axis=1)
        masses = _density(np.abs(atoms), self.shape)
        uniforms = [_between(u, tails[0]) / widths]
        if moments:
            uniforms += [-np.diff(tails[1]) / widths, _between(u, tails[2]) / widths]
        return [
            np.concatenate([masses * atoms**k, integral], axis=1)
            for k, integral in enumerate(uniforms)
        ]

    def posterior(self, weights: Weights) -> tuple[Array, Array]:
        """The mean and the variance of every cell given its noisy value."""
        mean, variance = np.empty_like(self.values), np.empty_like(self.values)
        sizes = self.sizes()
        for size in np.unique(sizes):
            members = np.flatnonzero(sizes == size)
            for start in range(0, members.size, CHUNK_CELLS):
                cells = members[start : start + CHUNK_CELLS]
                mass, first, second = (
                    part @ weights[int(size)] for part in self._integrals(cells, moments=True)
                )
                known = mass > LEAST_LIKELIHOOD
                mass = np.where(known, mass, 1.0)
                move = np.where(known, first / mass, 0.0)
                mean[cells] = self.values[cells] + self.deviation * move
                spread = np.where(known, second / mass - move**2, 1.0)
                variance[cells] = self.deviation**2 * np.maximum(spread, 0)
        return np.maximum(mean, 0), variance


def family_weights(family: Iterable[NoisyCells]) -> Weights:
    """The weights that all tables of a family have in common."""
    samples: dict[int, list[Array]] = {}
    for table in family:
        for size, cells in _sampled(table, FAMILY_SAMPLE):
            samples.setdefault(size, []).append(table.likelihoods(cells))
    return {
        size: _weights(np.concatenate(rows), _start(), START_CELLS, FAMILY_STEPS)
        for size, rows in sorted(samples.items())
    }


def table_weights(table: NoisyCells, family: Weights) -> Weights:
    """The weights of one table, drawn towards its family's."""
    weights = {}
    for size, cells in _sampled(table, SAMPLED_CELLS):
        start = family.get(size, _start())
        weights[size] = _weights(table.likelihoods(cells), start, FAMILY_CELLS, TABLE_STEPS)
    return weights


def _start() -> Array:
    """Weights before anything is known: a third for the guess, the others even."""
    others = EDGES.size  # the atom 0 and the uniforms
    weights = np.full(others + 1, 2 / (3 * others))
    weights[1] = 1 / 3
    return weights


def _sampled(table: NoisyCells, most: int) -> Iterable[tuple[int, Array]]:
    """Cells of each size, a sample of them where they are many: the same on every machine."""
    sizes = table.sizes()
    for size in np.unique(sizes):
        cells = np.flatnonzero(sizes == size)
        if cells.size > most:
            cells = np.sort(default_rng(SAMPLE_SEED).choice(cells, most, replace=False))
        yield int(size), cells


def _weights(likelihoods: Array, start: Array, cells: float, steps: int) -> Array:
    """Weights of greatest likelihood, with so many more cells that are shared as at the start."""
    largest = likelihoods.max(axis=1, keepdims=True)
    scaled = likelihoods / np.maximum(largest, LEAST_LIKELIHOOD)
    weights = start
    for _ in range(steps):
        mass = np.maximum(scaled @ weights, LEAST_LIKELIHOOD)
        counts = weights * ((1 / mass) @ scaled) + cells * start
        weights = counts / counts.sum()
    return weights


def _density(a: Array, shape: NoiseShape) -> Array:
    """f(a) of noise of unit variance."""
    if shape == "laplace":
        return np.asarray(math.sqrt(0.5) * np.exp(-math.sqrt(2) * a))
    return np.asarray(math.sqrt(0.5 / math.pi) * np.exp(-0.5 * a**2))


def _tails(a: Array, shape: NoiseShape) -> tuple[Array, Array, Array]:
    """∫ f, ∫ u f and ∫ u² f from a ≥ 0 on, of noise of unit variance."""
    if shape == "laplace":
        b = math.sqrt(0.5)
        tail = 0.5 * np.exp(a / -b)
        return tail, (a + b) * tail, (a * (a + 2 * b) + 2 * b**2) * tail
    from scipy.special import ndtr

    tail, density = ndtr(-a), _density(a, shape)
    return tail, density, tail + a * density


def _between(u: Array, tails: Array) -> Array:
    """Integrals of an even function between neighbours of each row of u; 1 is that of all."""
    left, right = tails[:, :-1], tails[:, 1:]
    below, above = u[:, 1:] < 0, u[:, :-1] >= 0
    inside = np.where(below, right - left, np.where(above, left - right, 1 - left - right))
    return np.maximum(inside, 0)
