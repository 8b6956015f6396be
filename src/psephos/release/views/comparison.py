"""Do the noisy integers that a release averages agree with each other?

A release that builds on others averages with them only if their noisy integers agree with its own.
An edition is what the owner says about the source; this is what the numbers say. The comparison is
a function of what was paid for, so it costs nothing, and whoever has the bundle can repeat it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

from psephos.errors import ReleaseError
from psephos.infer.agreement import Agreement, agreement
from psephos.release.views.views import Views


@dataclass(frozen=True)
class Comparison:
    """Some of the past releases beside all other measurements."""

    names: tuple[str, ...]
    table: str
    agreement: Agreement

    @property
    def ok(self) -> bool:
        """Noise alone can explain what parts them."""
        return self.agreement.ok

    def __str__(self) -> str:
        moves, names = self.agreement, ", ".join(map(repr, self.names))
        if moves.ok:
            return (
                f"{names}: within {moves.largest:,.1f} standard errors of what else was measured; "
                f"noise alone stays within {moves.largest_bound:,.1f}"
            )
        return (
            f"{names} contradict{'s' if len(self.names) == 1 else ''} what else was measured: they "
            f"are up to {moves.largest:,.0f} standard errors apart, most in table {self.table!r}, "
            f"where noise alone stays within {moves.largest_bound:,.0f}, and {moves.typical:,.1f} "
            f"over all tables, where it stays within {moves.typical_bound:,.1f}"
        )


def compare_past(views: Views) -> list[Comparison]:
    """All past releases together beside the new measurement, then each one beside all others."""
    past = views.job.past
    if not past:
        return []
    seed = int.from_bytes(hashlib.sha256(views.estimate.steps[0].key.encode()).digest()[:8], "big")
    everything = tuple(range(len(past)))
    groups = dict.fromkeys([everything, *((i,) for i in everything)])
    comparisons = []
    for group in groups:
        moves = agreement(views.least_squares, views.job.workload, group, seed=seed)
        tables = views.job.tables
        table = next(t.name for t in tables if moves.query < t.rows(views.job.workload).stop)
        comparisons.append(Comparison(tuple(past[i].name for i in group), table, moves))
    return comparisons


def worst_of(comparisons: list[Comparison]) -> Comparison:
    """The one that is the farthest beyond noise."""
    return max(
        comparisons,
        key=lambda each: (not each.ok, each.agreement.largest, each.agreement.typical),
    )


def require_agreement(views: Views) -> None:
    """Refuse to average measurements that contradict each other; what was paid for is kept."""
    comparisons = compare_past(views)
    if all(each.ok for each in comparisons):
        return
    wider = "" if views.job.budget else "; its intervals are then wider than the targets ask for"
    raise ReleaseError(
        f"builds_on: {worst_of(comparisons)}. So the source is not the data that was measured "
        "then, and an average would be of neither. The charge stays, and what was measured is "
        "stored in the ledger: remove builds_on, leave the name and all else as it is, and release "
        f"again, which costs nothing more{wider}. Give the next state of the data an `edition`"
    )
