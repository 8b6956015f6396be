"""From the noisy answers of parts to tables: consistent at all levels, and in whole numbers.

Parts are estimated together by least squares on the tree (`infer.two_pass`); the consistent numbers
of a part's children add up to its own. Nothing here holds the cells of all smallest parts at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import NormalDist

import numpy as np

from psephos.domain.part_tree import PartTree
from psephos.errors import ReleaseError
from psephos.infer.local_fits import LocalFits
from psephos.infer.two_pass import TreeFit, two_pass
from psephos.inverse.choice import form_of, precision
from psephos.inverse.part_levels import LevelNoise, PartClasses
from psephos.kernel.parts.measurement import PartMeasurement
from psephos.matrix import Kron
from psephos.release.bundle.files import report_damage
from psephos.values import Array
from psephos.workload.workload import Workload

KINDS = ("estimates", "handed-down")
"""What is stored of each level above the smallest."""


def half_width_factor(confidence: float, currency: str) -> float:
    """Half-width over standard error, never too small for the noise that is drawn.

    An error is a sum of independent noises. Under Gaussian noise it is normal; under Laplace noise
    its tails lie between those of the normal and of a single Laplace law, so the wider is taken.

    >>> round(half_width_factor(0.95, "rho"), 3), round(half_width_factor(0.95, "epsilon"), 3)
    (1.96, 2.118)
    """
    normal = NormalDist().inv_cdf((1 + confidence) / 2)
    laplace = math.log(1 / (1 - confidence)) / math.sqrt(2)
    return max(normal, laplace) if currency == "epsilon" else normal


@dataclass(frozen=True, eq=False, repr=False)
class PartEstimates:
    """Estimates of all parts from one measurement; large levels lie in files of a folder."""

    measurement: PartMeasurement
    folder: Path | None = None
    """Where large levels go while they are worked out."""
    stored: Path | None = None
    """Where levels lie that were worked out before."""

    @property
    def tree(self) -> PartTree:
        return self.measurement.tree

    @cached_property
    def noise(self) -> LevelNoise:
        """The noise of levels and blocks, as a product that is never less than it is."""
        return LevelNoise.of(
            [[law.exact_variance for law in laws] for laws in self.measurement.noise]
        )

    @cached_property
    def _fits(self) -> LocalFits:
        query, domain = self.measurement.query, self.measurement.domain
        return LocalFits.of(query, self.noise.block_variances, domain.shape)

    def local(self, level: int, start: int, stop: int) -> Array:
        """The estimate of some parts of a measured level from their own answers alone."""
        answers = self.measurement.answers_of(level, start, stop)
        ends = np.cumsum([block.matrix.shape[0] for block in self.measurement.query.blocks])
        return self._fits.cells(np.split(answers, ends[:-1], axis=1))

    @cached_property
    def fit(self) -> TreeFit:
        """Least squares on all levels together."""
        cells = self.measurement.domain.size
        if self.stored is None:
            return two_pass(self.tree, self.noise, self.local, cells, self.folder)
        parents = [self.tree.parents(level) for level in range(1, len(self.tree.names))]
        factors = PartClasses.of(parents).factors(self.noise.precisions)
        values, sums = (
            tuple(self._read(kind, level) for level in range(factors.last)) for kind in KINDS
        )
        return TreeFit(self.tree, factors, self.local, cells, values, sums)

    def write(self, folder: Path) -> None:
        """Keep what is worked out of all levels above the smallest."""
        for kind, arrays in zip(KINDS, (self.fit.values, self.fit.handed_down), strict=True):
            for level, array in enumerate(arrays):
                np.save(folder / f"{kind}-{level}.npy", array)

    def _read(self, kind: str, level: int) -> Array:
        place = (self.stored or Path()) / f"{kind}-{level}.npy"
        shape = (self.tree.sizes[level], self.measurement.domain.size)
        with report_damage(place):
            array: Array = np.load(place, mmap_mode="r", allow_pickle=False)
            if array.shape != shape or array.dtype != np.float64:
                raise ReleaseError(f"{place} is damaged: its shape is not {shape}")
            return array

    def standard_errors(self, workload: Workload) -> Array:
        """Of each query in a part whose variance factor is 1."""
        blocks = [block.matrix for block in self.measurement.query.blocks]
        precisions = [precision(variance) for variance in self.noise.block_variances]
        form = form_of(blocks, precisions, workload.domain.shape)
        workload.check_covered(form)
        products = range(len(workload.products))
        variances = np.concatenate([form.variances(workload.factors(i)) for i in products])
        return np.asarray(np.sqrt(variances))


def answers_of_cells(workload: Workload, cells: Array) -> Array:
    """The answers of each row of cells, an array (parts, queries)."""
    columns = np.ascontiguousarray(cells.T)
    matrices = [Kron(workload.factors(i)) for i in range(len(workload.products))]
    return np.ascontiguousarray(np.concatenate([each.matmat(columns) for each in matrices]).T)
