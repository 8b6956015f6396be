"""Releases of a plan that adapts to the data: several requests, an estimate of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from psephos.errors import BudgetExceededError, ReleaseError
from psephos.plans.registry import run
from psephos.plans.session import step_key
from psephos.release.bundle.bundle import Bundle
from psephos.release.bundle.requests import request_folders
from psephos.release.bundle.write import write_bundle
from psephos.release.methods.kind import SILENT, PersonsRequest, ReleaseMethod, RunHandle, Say
from psephos.release.methods.method import method_of
from psephos.release.methods.plan_forecast import PlanForecast, plan_forecast
from psephos.release.methods.plan_steps import (
    HeldQuestions,
    PlannedRequest,
    PlanQuestion,
    QuestionFiles,
    retrace,
)
from psephos.release.pages.facts import ReleaseFacts
from psephos.release.pages.page import write_report
from psephos.release.preflight.forecast import forecast_measured
from psephos.release.spec.job import Job
from psephos.release.views.estimates import PlanEstimate
from psephos.release.views.of_requests import views_of
from psephos.release.views.views import Views


class Adaptive:
    """Run a plan that adapts to the data; each question is on disk before it is charged."""

    def forecast(
        self, job: Job, say: Say = SILENT, *, paid: bool = False, **options: Any
    ) -> PlanForecast:
        """What the plan errs by on a stand-in."""
        method = method_of(job)
        if options.get("budget") is not None:
            raise ReleaseError(
                f"method: what {method.name!r} errs by is simulated at the file's budget; write "
                "another [budget] to see it there"
            )
        say("what the plan would err by, on a stand-in")
        return plan_forecast(job, method, forecast_measured(job, **options))

    def store(self, forecast: PlanForecast) -> None:
        """Nothing yet: questions follow from earlier answers."""

    def keys(self, job: Job) -> Sequence[str] | None:
        """How many steps a plan takes may follow from the data."""
        return None

    def measure(self, forecast: PlanForecast, handle: RunHandle) -> Sequence[PlannedRequest]:
        """All requests that the plan makes."""
        job, method = forecast.job, forecast.method

        def report_step(step: int, steps: int | None) -> None:
            handle.say(f"{method.name}: request {step}" + ("" if steps is None else f" of {steps}"))

        vector = job.cells.of(handle.rows).vectorise()
        questions = HeldQuestions() if vector.simulation else QuestionFiles.of(job)
        try:
            plan_run = run(
                method.name,
                vector,
                job.workload,
                spend=forecast.budget,
                key=handle.key,
                transcript=questions,
                progress=report_step,
                **method.options,
            )
        except BudgetExceededError as error:
            text = f"{error}. This run charged nothing; lower [budget]"
            raise BudgetExceededError(text, error.requested, error.remaining) from None
        contents, domain = questions.first(len(plan_run.requests)), job.workload.domain
        requests = []
        for step, (each, content) in enumerate(zip(plan_run.requests, contents, strict=True)):
            question = PlanQuestion(each.kind, content, len(each.values), domain)
            key, simulation = step_key(handle.key, step), vector.simulation
            requests.append(handle.request(question, each.spend, key, each.values, simulation))
        return requests

    def read(self, folder: Path, manifest: dict[str, Any], job: Job) -> Sequence[PlannedRequest]:
        """The steps of a bundle's plan, in their order."""
        requests = []
        for name, facts in zip(request_folders(manifest), manifest["requests"], strict=True):
            question = PlanQuestion.read(folder / name, job.workload.domain, facts)
            requests.append(PlannedRequest.open(folder / name, question, facts, job.unit))
        return requests

    def estimate(
        self, job: Job, requests: Sequence[PlannedRequest], *, method: ReleaseMethod
    ) -> PlanEstimate:
        """The plan's own estimate: its steps are taken again."""
        retraced = retrace(job, method, requests)
        return PlanEstimate(job, retraced.run, retraced.same)

    def write(
        self,
        forecast: PlanForecast,
        requests: Sequence[PlannedRequest],
        persons: Sequence[PersonsRequest],
        place: Path,
        say: Say,
    ) -> Bundle:
        """All files, and the page with simulated errors."""
        views = views_of(forecast.job, requests, forecast.method)

        def report(_: Views, where: Path) -> None:
            write_report(ReleaseFacts(forecast, views, requests, persons), where)

        return write_bundle(
            views,
            requests,
            place,
            method=forecast.method,
            report=report,
            progress=say,
            persons=persons,
        )
