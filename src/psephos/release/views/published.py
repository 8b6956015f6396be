"""Which estimate the published view is rounded from, decided from public facts alone.

    entropy         non-negative, as far from independent attributes, or from a few classes of rows
                    inside which they are, as the noisy numbers urge: the closest to the truth for
                    tables of cells, the more so the smaller the counts
    least squares   the non-negative cells whose tables are nearest to the consistent ones: never
                    further from the truth than those, in sum over all tables

Ranges over a long axis add up many cells. What helps each cell, to be drawn towards a prior, adds
up there to more than noise; so where most numbers are such ranges, the second is taken, unless
there are so many cells that its iterations would end far from their limit. There entropy steps go
towards the asked answers of least squares (psephos.infer.product_walk for one product of ranges).
The noisy numbers do not tell reliably which is closer, hence the rule looks at the questions only.

Where tables come in groups (`published_groups`) each has its estimate, and these are
entropy steps throughout, in a group of ranges towards the asked answers: on random releases they
were closer than the nearest cells, which iterations did not reach, in a fraction of the time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from psephos.infer.entropy import EntropyClaim, MaximumEntropy, maximum_entropy
from psephos.infer.least_squares import LeastSquares
from psephos.infer.nonnegative import NONNEGATIVE_CELLS, NonNegative, nonnegative
from psephos.release.spec.entries import PublishedMethod
from psephos.release.spec.job import Job
from psephos.values import Array
from psephos.workload.workload import Workload

MOST_SUMS = 16
"""A value may be part of so many sums of a table before these count as ranges."""
RANGE_CELLS = 50_000
"""Where there are more cells, iterations do not come near the nearest ones in reasonable time."""
VECTOR_CELLS = NONNEGATIVE_CELLS
"""Domains of more cells are published in groups of tables."""
MOST_RANGES = 0.5
"""The share of ranges among all numbers above which the estimate is made for them."""


LATENT_CLASSES = "latent classes"
"""What a manifest says of an entropy estimate that is drawn towards these."""


@dataclass(frozen=True)
class PublishedRule:
    """The estimate that is rounded, and why it is this one."""

    method: PublishedMethod
    reason: str

    @classmethod
    def of(cls, job: Job, workload: Workload | None = None) -> PublishedRule:
        """What the release file says, or what its tables suggest; or a group of these."""
        chosen = job.file.output.published
        if chosen != "auto":
            return cls(chosen, "as the release file says")
        if job.prior is not None:
            return cls("entropy", "a public table stands in for the data, and it is drawn to that")
        share = share_of_ranges(job.workload if workload is None else workload)
        if share <= MOST_RANGES:
            return cls("entropy", "most numbers count single values or groups of them")
        reason = f"{share:.0%} of the numbers add up ranges along an attribute"
        if workload is not None:
            return cls("entropy", f"{reason}; steps go towards their answers by least squares")
        if (cells := job.workload.domain.size) > RANGE_CELLS:
            return cls("entropy", f"{reason}, but {cells:,} cells are too many for the other")
        return cls("least squares", reason)

    def fit(
        self, job: Job, estimate: LeastSquares, claim: Mapping[str, Any] | None = None
    ) -> MaximumEntropy | NonNegative:
        """The cells before they are rounded; what a manifest claims of them settles near ties."""
        zeros, total, sizes = job.zeros, job.file.total, job.cells.sizes_of(job.workload.domain)
        return self.fit_tables(
            job.workload, estimate, zeros, total, sizes, claim, prior=job.prior, classes=None
        )

    def fit_tables(
        self,
        workload: Workload,
        estimate: LeastSquares,
        zeros: Array | None,
        total: float | None,
        sizes: Sequence[Array],
        claim: Mapping[str, Any] | None = None,
        *,
        prior: Array | None = None,
        classes: bool | None = False,
    ) -> MaximumEntropy | NonNegative:
        """The same for some tables, over the domain of their own attributes."""
        limits: dict[str, Any] = {"zeros": zeros, "total": total, "sizes": sizes}
        if self.method != "entropy":
            return nonnegative(estimate, workload=workload, hold_total=True, **limits)
        return maximum_entropy(
            estimate,
            workload,
            prior=prior,
            classes=classes,
            in_answers=share_of_ranges(workload) > MOST_RANGES,
            claim=_entropy_claim(claim),
            **limits,
        )

    def facts(self, job: Job, fit: MaximumEntropy | NonNegative) -> dict[str, Any]:
        """What the manifest says of an estimate."""
        facts = {**asdict(self), "steps": fit.steps, "gap": fit.gap}
        if isinstance(fit, MaximumEntropy):
            prior = LATENT_CLASSES if fit.classes else "independent"
            facts["prior"] = "stand_in" if job.prior is not None else prior
            facts["in_answers"] = fit.in_answers
        return facts


def _entropy_claim(facts: Mapping[str, Any] | None) -> EntropyClaim | None:
    """What a manifest says was chosen for an entropy estimate."""
    if facts is None or "steps" not in facts:
        return None
    return EntropyClaim(facts["steps"], facts.get("prior") == LATENT_CLASSES)


def all_cells_fit(job: Job) -> bool:
    """Is there a vector of all cells, which all published tables are sums of?"""
    return job.workload.domain.size <= VECTOR_CELLS


def share_of_ranges(workload: Workload) -> float:
    """The share of numbers, as they are weighted, whose sums overlap along an attribute."""
    most = workload.factor_products(lambda factor: max(1.0, float(factor.column_norms(1).max())))
    weights = np.array([product.weight**2 for product in workload.products])
    weights *= workload.query_counts
    return float(weights[most > MOST_SUMS].sum() / weights.sum())
