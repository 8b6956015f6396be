"""A kind of release: what it forecasts, what it asks of the data, and what is made of the answers.

    measure    the best strategy, measured once: errors are known beforehand   (methods.measured)
    a plan     that adapts to the data: its errors are simulated               (methods.adaptive)
    in parts   one query in every part of every level                          (methods.parts)

Run and rehearsal are the same for all of them (`psephos.release.run`); tables of persons go with
any (methods.persons). Another kind joins by `register_kind`, under the name that release files give
it: `[method] name = "…"`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from psephos.domain.domain import Domain
from psephos.kernel.budget import Budget
from psephos.kernel.parts.runners import Runner
from psephos.kernel.protected import ProtectedTable
from psephos.release.bundle.requests import Q, ReleaseRequest
from psephos.release.preflight.room import StepCost
from psephos.release.preflight.store import MEASURE, Progress
from psephos.release.spec.job import Job
from psephos.release.spec.persons import PersonsTable
from psephos.values import Array

if TYPE_CHECKING:
    from psephos.plans.registry import NamedPlan

Say = Callable[[str], None]
SILENT: Say = lambda _: None  # noqa: E731 - a value, the default of those who say what they do
PersonsRequest = ReleaseRequest[PersonsTable]
MEMBERS = {
    "measured": "psephos.release.methods.measured.Measured",
    "adaptive": "psephos.release.methods.adaptive.Adaptive",
    "in parts": "psephos.release.methods.parts.InParts",
}
"""Where each lies; it is imported when a release is of it."""
_REGISTERED: dict[str, ReleaseKind] = {}


@dataclass(frozen=True)
class ReleaseMethod:
    """A plan's name and options, and why it is this one."""

    name: str
    options: Mapping[str, Any]
    reason: str

    def outline(self, job: Job) -> str:
        """What is known of the plan's steps beforehand, in words; empty if nothing is."""
        plan = named_plan(self.name)
        if plan is None or plan.outline is None or job.budget is None:
            return ""
        return plan.outline(job.workload, job.budget, job.unit, self.options)

    @property
    def adaptive(self) -> bool:
        """Does what is measured depend on the data?"""
        plan = named_plan(self.name)
        return plan is not None and plan.adaptive


def named_plan(name: str) -> NamedPlan | None:
    """The plan of a name; None where the best strategy is measured."""
    from psephos.plans.registry import PLANS

    return PLANS.get(name)


@dataclass(frozen=True, eq=False)
class RunHandle:
    """What a run asks: one state of the rows, under a key, with a receipt for every answer."""

    job: Job
    key: str
    tables: Callable[[Domain], ProtectedTable]
    """The rows under a domain of their columns."""
    receipt: Callable[[str], dict[str, Any]]
    """That of a key."""
    folder: Path
    """Where sealed answers of parts lie."""
    say: Say
    runner: Runner | None = None

    @cached_property
    def declared(self) -> ProtectedTable:
        """The rows under the declared attributes."""
        return self.tables(self.job.domain)

    @cached_property
    def rows(self) -> ProtectedTable:
        """The rows that tables of rows are asked of: attributes may be merged there."""
        return self.tables(self.job.questions.domain)

    def ask(
        self, table: ProtectedTable, question: Q, spend: Budget, key: str, name: str = ""
    ) -> ReleaseRequest[Q]:
        """What comes of a question that is asked by itself."""
        measurement = question.measure(table, spend, key)
        simulation = measurement.simulation
        return self.request(question, spend, key, measurement.values, simulation, name)

    def request(
        self,
        question: Q,
        spend: Budget,
        key: str,
        values: Array,
        simulation: bool,
        name: str = "",
    ) -> ReleaseRequest[Q]:
        """What was asked under a key and what came of it, with its receipt."""
        file, unit = self.job.file, self.job.unit
        return ReleaseRequest(
            name or file.name, question, spend, key, file.edition, values, self.receipt(key), unit,
            simulation,
        )  # fmt: skip


@dataclass(frozen=True)
class ForecastRow:
    """The error of a table's numbers, in every part of a level if there are parts."""

    table: str
    level: str
    parts: int
    numbers: int
    """In each part."""
    rmse: float
    simulated: bool = False
    """On a stand-in or made-up rows, since it depends on the data; else it is exact."""

    def facts(self) -> dict[str, Any]:
        """What a manifest says of it."""
        facts = asdict(self)
        del facts["simulated"]
        return facts


class ReleaseForecast(Protocol):
    """What a release will cost, and what it takes to write it."""

    @property
    def job(self) -> Job: ...

    @property
    def budget(self) -> Budget:
        """What its tables of rows cost."""

    @property
    def rows(self) -> Sequence[ForecastRow]:
        """The error of every table."""

    @property
    def steps(self) -> Sequence[StepCost]:
        """What takes time and memory after counting."""

    @property
    def disk_bytes(self) -> int:
        """About what the bundle takes."""

    def shortage(self, remaining: Budget) -> str:
        """What to do where it costs more than is left."""


class ReleaseKind(Protocol):
    """How tables of rows are measured and published."""

    def forecast(self, job: Job, say: Say = SILENT, *, paid: bool = False, **options: Any) -> Any:
        """What will be measured, a `ReleaseForecast`; what was paid for is asked as it was then.

        Options are those of `psephos.release.run.plan`.
        """

    def store(self, forecast: Any) -> None:
        """Write down what is about to be charged: a run that was cut short asks the same."""

    def keys(self, job: Job) -> Sequence[str] | None:
        """The keys of all requests; None where their number follows from the data."""

    def measure(self, forecast: Any, handle: RunHandle) -> Any:
        """All requests, charged and answered; what was paid for before is not again."""

    def read(self, folder: Path, manifest: dict[str, Any], job: Job) -> Any:
        """The requests of a bundle, those that it builds on first."""

    def estimate(self, job: Job, requests: Any, **options: Any) -> Any:
        """What requests tell of the tables: a `ReleaseEstimate`, with the options of `views_of`."""

    def write(
        self,
        forecast: Any,
        requests: Any,
        persons: Sequence[PersonsRequest],
        place: Path,
        say: Say,
    ) -> Any:
        """The bundle, whole or not at all."""


def search_progress(say: Say) -> Progress:
    """Say how far a search for a strategy has come."""
    return lambda name, gain: say(f"{name}: {gain:.2f}× better than cells")


def register_kind(name: str, kind: ReleaseKind) -> None:
    """Let release files ask for a kind of release by the name of their method."""
    _REGISTERED[name] = kind


def registered_kind(name: str) -> ReleaseKind | None:
    """The kind of a name that `register_kind` was given."""
    return _REGISTERED.get(name)


def kind_of(job: Job) -> ReleaseKind:
    """The kind of a release, by its file and what `auto` decides."""
    if job.tree is not None:
        return member("in parts")
    if job.method.name == MEASURE or registered_kind(job.method.name) is not None:
        return kind_by(job, adaptive=False)
    method_of = import_module("psephos.release.methods.method").method_of
    return kind_by(job, adaptive=method_of(job).adaptive)


def kind_by(job: Job, *, adaptive: bool) -> ReleaseKind:
    """The kind of a release that is not in parts, where it is known whether it adapts to data."""
    return registered_kind(job.method.name) or member("adaptive" if adaptive else "measured")


def member(name: str) -> ReleaseKind:
    """One of `MEMBERS`."""
    module, _, kind = MEMBERS[name].rpartition(".")
    one: ReleaseKind = getattr(import_module(module), kind)()
    return one
