"""The views of a release from its requests, as runs, bundles and verification have them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from psephos.infer.intervals import Widths
from psephos.release.bundle.requests import ReleaseRequest
from psephos.release.methods.kind import ReleaseMethod, kind_by
from psephos.release.spec.job import Job
from psephos.release.views.views import Views
from psephos.values import Array


def views_of(
    job: Job,
    requests: Sequence[ReleaseRequest[Any]],
    method: ReleaseMethod | None = None,
    *,
    planned: Widths | None = None,
    coordinates: Array | None = None,
    claim: Mapping[str, Any] | None = None,
    progress: Callable[[str], None] | None = None,
) -> Views:
    """All numbers of a release, from its own requests.

    Args:
        job: what was asked; it knows the requests that it builds on
        requests: its own
        method: a plan that adapts to the data, whose steps are taken again
        planned: the half-widths, where the plan of this very release worked them out
        coordinates: of the tables nearest in another norm, as a bundle has them
        claim: what a manifest says of the published view
        progress: hears what is being worked out
    """
    adaptive = method is not None and method.adaptive
    kind = kind_by(job, adaptive=adaptive)
    facts = {"coordinates": coordinates, "claim": claim, "progress": progress}
    options = {"method": method} if adaptive else facts
    return Views(kind.estimate(job, requests, **options), planned=planned)
