"""The requests of a plan that adapts to the data, as a bundle keeps them, and its steps once more.

    requests/1/question.bin           the kind of request, what it asks, and its spend
    requests/1/measurements.parquet   what came of it: noisy integers, a number, or lengths
    requests/1/receipt.json           the charge in the ledger, and how far the ledger had come

Questions are on disk before they are charged, so that a run that was cut short goes on with the
very same ones, on any machine. Whoever has them and the answers can take the plan's public steps
again: the kernel works out what each request would be called in the ledger, and that has to be what
was paid for (`retrace`).
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from psephos.domain.domain import Domain
from psephos.errors import PsephosError, ReleaseError
from psephos.kernel.budget import Budget, Currency, Mechanism
from psephos.kernel.measurement import Measurement
from psephos.kernel.protected import ProtectedTable
from psephos.kernel.recorded_ledger import RecordedLedger, RequestRecord
from psephos.kernel.replay import replayed
from psephos.kernel.scores import UndercountedQueries
from psephos.plans.registry import PlanRun, run
from psephos.plans.session import (
    PRIVATE_SEARCHES,
    RequestKind,
    question_of,
)
from psephos.release.bundle.files import read_bytes, sync_folder
from psephos.release.bundle.requests import QUESTION_FILE, ReleaseRequest
from psephos.release.methods.kind import ReleaseMethod
from psephos.release.preflight.store import make_folder, selection_folder
from psephos.release.spec.job import Job


@dataclass(frozen=True, eq=False)
class PlanQuestion:
    """What a step of a plan asked, in the kernel's canonical bytes."""

    kind: RequestKind
    content: bytes
    size: int
    """How many integers answer it."""
    declared: Domain
    """The schema of the table."""

    @classmethod
    def read(cls, folder: Path, declared: Domain, facts: dict[str, Any]) -> PlanQuestion:
        """The question in a folder, of which the manifest says these facts."""
        content = read_bytes(folder / QUESTION_FILE)
        try:
            kind = question_of(content)[0]
        except PsephosError:
            raise ReleaseError(
                f"{folder / QUESTION_FILE} is damaged; get the bundle again"
            ) from None
        if kind != facts["kind"]:
            raise ReleaseError(f"{folder} holds another kind of request than its manifest says")
        return cls(kind, content, facts["answers"], declared)

    @property
    def file_names(self) -> tuple[str, ...]:
        """The one file that it lies in."""
        return (QUESTION_FILE,)

    def write(self, folder: Path) -> None:
        (folder / QUESTION_FILE).write_bytes(self.content)

    def facts(self, edition: str) -> dict[str, Any]:
        """What a manifest says of it."""
        return {"kind": self.kind, "answers": self.size}

    @property
    def mechanism(self) -> Mechanism:
        """By which it is priced."""
        if self.kind in ("measure", "count"):
            return "noise"
        if self.kind == "draw":
            return UndercountedQueries.mechanism
        mechanism: Mechanism = PRIVATE_SEARCHES[question_of(self.content)[1]].mechanism
        return mechanism

    def price(self, spend: Budget, currency: Currency) -> Budget:
        """What a ledger of a currency books for it; several draws share a spend."""
        draws = int(question_of(self.content)[4]) if self.kind == "draw" else 1
        return spend.booked(currency, self.mechanism, draws)

    def measure(self, table: ProtectedTable, spend: Budget, key: str) -> NoReturn:
        """Nothing: a plan asks it of a vector that its earlier steps made."""
        raise ReleaseError("the steps of a plan are taken again together")


PlannedRequest = ReleaseRequest[PlanQuestion]


@dataclass(frozen=True)
class QuestionFiles:
    """The questions of a run in a folder beside the release file, each there before its charge."""

    folder: Path

    @classmethod
    def of(cls, job: Job) -> QuestionFiles:
        """Those of a job."""
        make_folder(selection_folder(job))
        folder = selection_folder(job) / f"{job.request[:32]}.questions"
        make_folder(folder)
        return cls(folder)

    def settled(self, step: int, question: bytes) -> bytes:
        """The question of a step as it is on disk, where it is put if it is the first."""
        place = self.folder / f"{step + 1}.bin"
        if place.exists():
            return read_bytes(place)
        draft = place.with_suffix(f".{os.getpid()}")
        try:
            with draft.open("wb") as file:
                file.write(question)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, place)
            sync_folder(self.folder)
        except OSError as error:
            raise ReleaseError(
                f"{place} cannot be written: {error.strerror or error}; make room. Step {step + 1} "
                "was not charged, and earlier ones are not charged again"
            ) from None
        return question

    def first(self, count: int) -> list[bytes]:
        """Those of the first steps."""
        return [self.settled(step, b"") for step in range(count)]


@dataclass
class StoredQuestions:
    """The questions that a bundle holds, and which of them the plan asks again to the letter."""

    questions: Sequence[bytes]
    same: list[bool] = field(default_factory=list)

    def settled(self, step: int, question: bytes) -> bytes:
        """The question of a step as it is in the bundle."""
        if step >= len(self.questions):
            raise ReleaseError(f"the plan asks more than the {step} requests of the bundle")
        self.same.append(self.questions[step] == question)
        return self.questions[step]


@dataclass
class HeldQuestions:
    """Questions of a rehearsal, held in memory."""

    questions: list[bytes] = field(default_factory=list)

    def settled(self, step: int, question: bytes) -> bytes:
        """The question as it is: a rehearsal begins anew each time."""
        self.questions.append(question)
        return question

    def first(self, count: int) -> list[bytes]:
        """Those of the first steps."""
        return self.questions[:count]


@dataclass(frozen=True, eq=False)
class Retraced:
    """A plan's steps, taken again from its questions and answers."""

    run: PlanRun
    same: tuple[bool, ...]
    """Which questions this machine would ask to the letter."""

    @property
    def measurements(self) -> tuple[Measurement, ...]:
        """The noisy integers among the results."""
        results = (request.result for request in self.run.requests)
        return tuple(result for result in results if isinstance(result, Measurement))


def retrace(job: Job, method: ReleaseMethod, requests: Sequence[PlannedRequest]) -> Retraced:
    """Take a plan's public steps again; a request that was not paid for as it is asked is refused.

    Of questions that floats work out, the one in the bundle is asked: it is the one that was paid.
    """
    stored = StoredQuestions([request.question.content for request in requests])
    records = [
        RequestRecord(
            request.receipt.get("charge", {}).get("fingerprint"), request.key, request.values
        )
        for request in requests
    ]
    simulation = any(request.simulation for request in requests)
    if not simulation and any(record.fingerprint is None for record in records):
        raise ReleaseError("a receipt does not name the request that it is for")
    limit = job.file.ledger.budget()
    ledger = RecordedLedger(job.unit, limit, requests[0].receipt["dataset_id"], records)
    table = replayed(job.workload.domain, ledger, edition=job.file.edition, simulation=simulation)
    if job.budget is None:
        raise ReleaseError(f"the release of {method.name} states no budget; get the bundle again")
    try:
        plan_run = run(
            method.name,
            table.vectorise(),
            job.workload,
            spend=job.budget,
            key=requests[0].key,
            transcript=stored,
            **method.options,
        )
    except PsephosError as error:
        raise ReleaseError(f"the steps of {method.name} cannot be taken again: {error}") from None
    if len(plan_run.requests) < len(requests):
        raise ReleaseError(f"{method.name} asks fewer requests than the {len(requests)} there are")
    return Retraced(plan_run, tuple(stored.same))
