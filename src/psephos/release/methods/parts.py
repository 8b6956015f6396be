"""Releases in parts: one strategy, asked in every part of every level, for one charge.

The plan is on disk before the charge, the charge before any noise, and the manifest of sealed
answers in the ledger before any of them is read (`kernel.parts.handle`).
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from psephos.kernel.parts.measurement import PartMeasurement
from psephos.release.methods.kind import SILENT, PersonsRequest, RunHandle, Say, search_progress
from psephos.release.parts.bundle import PartsBundle
from psephos.release.parts.estimates import PartEstimates
from psephos.release.parts.plan import PartsForecast, forecast_parts, store_plan
from psephos.release.parts.write import write_parts
from psephos.release.spec.job import Job


class SealedAnswers(NamedTuple):
    """The noisy answers of all parts, and the receipt of their one charge."""

    measurement: PartMeasurement
    receipt: dict[str, Any]


class InParts:
    """Measure the same strategy in all parts, and estimate them by least squares on their tree."""

    def forecast(
        self, job: Job, say: Say = SILENT, *, paid: bool = False, **options: Any
    ) -> PartsForecast:
        """The strategy and the weights of levels; those that were stored, if any were."""
        say("looking for the best strategy and the weights of levels")
        progress = options.get("progress") or search_progress(say)
        return forecast_parts(job, progress=progress, budget=options.get("budget"))

    def store(self, forecast: PartsForecast) -> None:
        """The strategy and the weights, before they are charged."""
        store_plan(forecast)

    def keys(self, job: Job) -> Sequence[str] | None:
        """There is one request."""
        return [job.key]

    def measure(self, forecast: PartsForecast, handle: RunHandle) -> SealedAnswers:
        """The sealed answers of all parts."""
        handle.say("counting and drawing noise, part by part")
        job, plan = forecast.job, forecast.plan
        handle.folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        measurement = handle.declared.parts(*job.file.by).measure(
            plan.query,
            weights=plan.weights,
            spend=forecast.budget,
            folder=handle.folder,
            key=handle.key,
            runner=handle.runner,
        )
        return SealedAnswers(measurement, handle.receipt(measurement.key))

    def read(self, folder: Path, manifest: dict[str, Any], job: Job) -> SealedAnswers:
        """The answers of a bundle."""
        bundle = PartsBundle(folder, manifest)
        return SealedAnswers(bundle.measurement, bundle.receipt)

    def estimate(self, job: Job, requests: SealedAnswers, **options: Any) -> PartEstimates:
        """Least squares over all parts."""
        return PartEstimates(requests.measurement, **options)

    def write(
        self,
        forecast: PartsForecast,
        requests: SealedAnswers,
        persons: Sequence[PersonsRequest],
        place: Path,
        say: Say,
    ) -> PartsBundle:
        """All tables of all parts, run by run."""
        return write_parts(forecast, requests.measurement, requests.receipt, place, say)
