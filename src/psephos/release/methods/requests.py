"""Requests of a release as they come from its measurements."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from psephos.kernel.budget import Budget
from psephos.release.bundle.requests import Q, ReleaseRequest
from psephos.release.spec.job import Job
from psephos.values import Array


def request_of(
    job: Job,
    question: Q,
    spend: Budget,
    key: str,
    values: Array,
    receipt: Callable[[str], dict[str, Any]],
    simulation: bool,
) -> ReleaseRequest[Q]:
    """What was asked under a key and what came of it, with its receipt."""
    name, edition = job.file.name, job.file.edition
    return ReleaseRequest(
        name, question, spend, key, edition, values, receipt(key), job.unit, simulation
    )
