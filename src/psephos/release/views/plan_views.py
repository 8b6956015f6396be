"""The views of a release that a plan made which adapts to the data: biased, and without errors.

    raw          the noisy integers of its measurements, with their noise intervals
    consistent   the plan's estimate, moved to hold a declared total and cells declared to be empty:
                 everything adds up, and it is biased by what the plan assumes
    published    cells of which none is negative, that hold the same, in whole numbers: those whose
                 tables are nearest to the plan's estimate; counts of made-up rows where that has no
                 vector of cells

Of the last two nobody knows the error: that of the noise alone would leave out what is wrong by
assumption, for example that all cells of a bucket are alike. So no interval is printed.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from psephos.errors import ReleaseError
from psephos.infer.estimate import Answers, CellEstimate, Estimate
from psephos.infer.least_squares import LeastSquares
from psephos.infer.records import counted_answers
from psephos.infer.rounding import round_cells
from psephos.release.methods.method import held_cells, held_words, nonnegative_cells
from psephos.release.methods.planned import Retraced
from psephos.release.spec.entries import View
from psephos.release.views.published_groups import PublishedGroups
from psephos.release.views.statistics import counting_part
from psephos.release.views.synthetic import public_generator
from psephos.release.views.views import Views
from psephos.synthesis.quality import SyntheticQuality, quality_of
from psephos.synthesis.sample import sample
from psephos.synthesis.table import SyntheticTable
from psephos.values import Array, whole_numbers
from psephos.workload.workload import Workload

PLAN = "plan"
"""What the published view was rounded from, where it is a plan's own estimate."""


@dataclass(frozen=True, eq=False)
class PlanViews(Views):
    """All numbers of a plan's release, from its requests alone."""

    retraced: Retraced | None = None

    @property
    def has_errors(self) -> bool:
        """Nobody knows how far a biased estimate is off."""
        return False

    @property
    def simulation(self) -> bool:
        """Is it a rehearsal on made-up data?"""
        return self._retraced.run.estimate.simulation

    @property
    def _retraced(self) -> Retraced:
        if self.retraced is None:
            raise ReleaseError("the views of a plan come from its steps")
        return self.retraced

    @property
    def estimate(self) -> LeastSquares:
        """There is no closed form."""
        raise ReleaseError(
            f"the estimate of {self._retraced.run.name!r} is biased and has no closed form; see "
            "`consistent` and `solution`"
        )

    @property
    def total_gap(self) -> None:
        """How noisy the plan's own total is, is not known."""
        return None

    @property
    def nearest(self) -> None:
        """Its tables are sums of the plan's estimate."""
        return None

    @cached_property
    def vector(self) -> Array:
        """The plan's estimate of every cell, with what the release file declares of them held."""
        return held_cells(self.job, self.plan_cells)

    @cached_property
    def plan_cells(self) -> Array:
        """The plan's estimate of every cell as it is."""
        cells = getattr(self._retraced.run.estimate, "vector", None)
        if cells is None:
            raise ReleaseError(
                f"plan {self._retraced.run.name!r} gives no estimate of every cell, which its "
                "tables would be sums of"
            )
        return np.asarray(cells, dtype=float)

    def plan_answers(self, workload: Workload) -> Answers:
        """The answers of another workload over the same domain: biased, without errors."""
        if not self.has_cells:
            return self._retraced.run.estimate.answer(workload)
        domain = self.job.workload.domain
        return CellEstimate(domain, self.vector, PLAN, self.simulation).answer(workload)

    @property
    def plan_estimate(self) -> Estimate:
        """What the plan returned."""
        return self._retraced.run.estimate

    @property
    def has_cells(self) -> bool:
        """Does the plan estimate every cell?"""
        return getattr(self._retraced.run.estimate, "vector", None) is not None

    @cached_property
    def synthetic(self) -> SyntheticTable | None:
        """The made-up rows; where the plan has no vector, published tables are counts of them."""
        if self.has_cells:
            return super().synthetic
        total = self.job.file.total
        rows = sample(self._retraced.run.estimate, generator=public_generator(self.job), rows=total)
        return replace(rows, simulation=self.simulation)

    def quality_of(self, table: SyntheticTable) -> SyntheticQuality:
        """How far some rows are from the plan's estimate."""
        if self.has_cells:
            return super().quality_of(table)
        workload = counting_part(self.job.workload)
        return quality_of(table, self._retraced.run.estimate, workload)

    @cached_property
    def published(self) -> Array:
        """The answers of all tables in whole numbers, none negative."""
        if self.has_cells or self.synthetic is None:
            return super().published
        return whole_numbers(
            counted_answers(self.job.workload.domain, self.synthetic.records, self.job.workload)
        )

    @cached_property
    def consistent(self) -> Array:
        """The answers of all tables: sums of the cells, where there are some."""
        if not self.has_cells:
            return np.asarray(self.plan_answers(self.job.workload).values, dtype=float)
        return self.job.workload.answer(self.vector.reshape(self.job.workload.domain.shape))

    @cached_property
    def solution(self) -> Array:
        """The nearest cells of which none is negative, zero where no row can be."""
        return nonnegative_cells(self.job, self.plan_cells)

    @cached_property
    def cells(self) -> Array:
        """They in whole numbers."""
        return round_cells(self.solution, self.job.workload)

    @property
    def groups(self) -> PublishedGroups | None:
        """Plans estimate every cell, so that all tables are sums of them."""
        return None

    @property
    def kinds(self) -> tuple[View, ...]:
        """The views that were asked for; a plan without noisy numbers has no raw ones."""
        return tuple(v for v in self.job.file.output.views if v != "raw" or self.steps)

    @property
    def published_facts(self) -> dict[str, Any]:
        """What the published view was rounded from."""
        name, held = self._retraced.run.name, held_words(self.job)
        reason = f"the estimate of {name}, in the nearest cells of which none is negative"
        reason += f"; it holds {held}, and so does the consistent view" if held else ""
        if not self.has_cells:
            reason = f"made-up rows, which come from the estimate of {name}"
        return {"method": PLAN, "reason": reason, "steps": 0, "gap": 0.0}
