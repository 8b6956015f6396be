"""Releases of the best strategy, measured once: the error of every number is known beforehand.

What does not adapt to the data is a way to choose a strategy, and everything else is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from psephos.release.bundle.bundle import Bundle
from psephos.release.bundle.requests import MeasuredRequest, StrategyQuestion, read_requests
from psephos.release.bundle.write import write_bundle
from psephos.release.methods.kind import SILENT, PersonsRequest, RunHandle, Say, search_progress
from psephos.release.methods.method import method_of
from psephos.release.pages.facts import ReleaseFacts
from psephos.release.pages.page import write_report
from psephos.release.preflight.forecast import Forecast, forecast_measured, forecast_paid
from psephos.release.preflight.selection import store_request, stored_request
from psephos.release.preflight.store import AUTO
from psephos.release.spec.job import Job
from psephos.release.views.estimates import MeasuredEstimate
from psephos.release.views.of_requests import views_of
from psephos.release.views.views import Views


class Measured:
    """Measure the best strategy for all tables, and estimate by least squares."""

    def forecast(
        self, job: Job, say: Say = SILENT, *, paid: bool = False, **options: Any
    ) -> Forecast:
        """The best strategy; one that was paid for is the one that was stored."""
        request = stored_request(job) if paid else None
        if request is not None:
            return forecast_paid(job, *request)
        say("looking for the best strategy")
        return forecast_measured(job, **{"progress": search_progress(say), **options})

    def store(self, forecast: Forecast) -> None:
        """The strategy and its spend, before they are charged."""
        store_request(forecast.job, forecast.strategy, forecast.budget)

    def keys(self, job: Job) -> Sequence[str] | None:
        """There is one request."""
        return [job.key]

    def measure(self, forecast: Forecast, handle: RunHandle) -> Sequence[MeasuredRequest]:
        """The noisy answers to the strategy."""
        handle.say("counting and drawing noise")
        forecast.strategy.check_reconstructible()  # what is paid for has to be of use
        question = StrategyQuestion(forecast.strategy, forecast.job.cells)
        return [handle.ask(handle.rows, question, forecast.budget, handle.key)]

    def read(self, folder: Path, manifest: dict[str, Any], job: Job) -> Sequence[MeasuredRequest]:
        """The requests of a bundle, those that it builds on first."""
        return read_requests(folder, manifest, job.questions.domain, job.unit)

    def estimate(
        self, job: Job, requests: Sequence[MeasuredRequest], **options: Any
    ) -> MeasuredEstimate:
        """Least squares, and what is published of it."""
        return MeasuredEstimate(job, tuple(each.measurement for each in requests), **options)

    def write(
        self,
        forecast: Forecast,
        requests: Sequence[MeasuredRequest],
        persons: Sequence[PersonsRequest],
        place: Path,
        say: Say,
    ) -> Bundle:
        """All files, and the page with the rivals of the strategy."""
        method = method_of(forecast.job)
        reason = method.reason if forecast.job.file.method.name == AUTO else ""

        def report(views: Views, where: Path) -> None:
            write_report(ReleaseFacts(forecast, views, requests, persons, reason), where)

        # Past measurements come with noise of their own, which a rehearsal draws anew.
        measured = [request.question.strategy for request in (*forecast.job.past, *requests)]
        widths = forecast.widths if measured == [forecast.strategy] else None
        views = views_of(forecast.job, requests, planned=widths, progress=say)
        return write_bundle(
            views, requests, place, method=method, report=report, progress=say, persons=persons
        )
