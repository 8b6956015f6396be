"""Which estimate the published view is rounded from, decided from public facts alone.

    entropy         non-negative, as far from independent attributes as the noisy numbers urge: the
                    closest to the truth for tables of cells, the more so the smaller the counts
    least squares   the non-negative cells whose tables are nearest to the consistent ones: never
                    further from the truth than those, in sum over all tables

Ranges over a long axis add up many cells. What helps each cell, to be drawn towards a prior, adds
up there to more than noise; so tables of such ranges get the second. The noisy numbers themselves
do not tell reliably which is closer, hence the rule looks at the questions only.
"""

from __future__ import annotations

from dataclasses import dataclass

from psephos.infer.entropy import MaximumEntropy, maximum_entropy
from psephos.infer.least_squares import LeastSquares
from psephos.infer.nonnegative import NonNegative, nonnegative
from psephos.release.request import Job
from psephos.release.spec.entries import PublishedMethod
from psephos.workload.workload import Workload

MOST_SUMS = 16
"""A value may be part of so many sums along its attribute, before these count as ranges."""


@dataclass(frozen=True)
class PublishedRule:
    """The estimate that is rounded, and why it is this one."""

    method: PublishedMethod
    reason: str

    @classmethod
    def of(cls, job: Job) -> PublishedRule:
        """What the release file says, or what its tables suggest."""
        chosen = job.file.output.published
        if chosen != "auto":
            return cls(chosen, "as the release file says")
        ranges = longest_ranges(job.workload)
        if ranges is None:
            return cls("entropy", "no table adds up the same values many times, as ranges do")
        number, name, sums = ranges
        title = job.workload.products[number].title
        reason = f"{title!r} adds up values of {name!r}, one of them {sums:,} times over"
        return cls("least squares", reason)

    def fit(
        self, job: Job, estimate: LeastSquares, steps: int | None = None
    ) -> MaximumEntropy | NonNegative:
        """The cells before they are rounded; by so many steps of entropy, if these are known."""
        workload, total = job.workload, job.file.total
        if self.method == "entropy":
            return maximum_entropy(estimate, workload, zeros=job.zeros, total=total, steps=steps)
        return nonnegative(
            estimate, workload=workload, zeros=job.zeros, hold_total=True, total=total
        )


def longest_ranges(workload: Workload) -> tuple[int, str, int] | None:
    """The product and the attribute with the longest ranges, and in how many sums a value is."""
    longest: tuple[int, str, int] | None = None
    for number in range(len(workload.products)):
        for name, factor in zip(workload.domain.names, workload.factors(number), strict=True):
            sums = int(factor.column_norms(1).max())
            if sums > (MOST_SUMS if longest is None else longest[2]):
                longest = number, name, sums
    return longest
