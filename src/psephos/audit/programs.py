"""Random programs: several snapshots of rows that change, interruptions, and the exact loss.

A program opens handles, changes the rows between them, asks, is interrupted anywhere, asks again
under the same keys, and is refused. Its loss is that of all answers that its ledger has stored: the
unit lies anywhere in each state of the rows, and answers, computed from rows without the kernel,
move as in `neighbours`. It must not exceed what the ledger says is spent. Which state an answer was
drawn over is known from the source that served it, whatever the ledger says; and at spends so large
that the noise is zero, which changes no ratio, the answer itself must be that of this state.
"""

from __future__ import annotations

import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from psephos.audit.changing_rows import ChangingRows, World
from psephos.audit.neighbours import CURRENCIES, UNITS, loss_weight, neighbours
from psephos.audit.program_steps import (
    QUERIES,
    TABLE_STEP_KINDS,
    VECTOR_STEP_KINDS,
    Choices,
    ProgramStep,
    merge_two,
    split_cells,
    split_table,
    vectorise,
)
from psephos.audit.stage import AttackResult, GotThrough, Stage, require
from psephos.domain.domain import Domain
from psephos.errors import PredicateError, PsephosError, RefusedError
from psephos.kernel.budget import Budget
from psephos.kernel.measurement import Measurement
from psephos.kernel.noise import DiscreteLaplace
from psephos.kernel.protected import ProtectedTable, ProtectedVector
from psephos.kernel.query import Query
from psephos.kernel.replay import answered
from psephos.protect import protect
from psephos.values import Array

PROGRAMS = 20
"""How many programs `psephos audit` tries."""
STATES = 4
"""How many states the rows of a program have."""
PRICE = Fraction(10**10)
"""At this spend noise is zero, and its parameters are small enough to be exact."""
SHAPES = {"x": 4, "y": 2}, {"x": 2, "y": 4}, {"x": 2, "y": 2, "z": 2}
ROOMS = tuple([str(Path(sys.modules[room].__file__ or "").parent) for room in (
    "psephos.kernel", "psephos.engines",
)])  # fmt: skip
"""The folders in whose lines a request is interrupted."""
PHASES = ("measure", "request", "_charge", "draw", "take", "_store")
"""Functions of a request from whose first call on lines are counted."""


@dataclass(frozen=True)
class ProgramRequest:
    """A measurement behind some steps, on whichever handle."""

    key: str
    steps: tuple[ProgramStep, ...]
    query: Any
    spend: Budget

    def ask(self, opened: OpenedRows) -> Measurement:
        """By the kernel; handles that were derived before are used again."""
        if self.steps not in opened.derived:
            opened.derived[self.steps] = reduce(lambda t, s: s.derive(t), self.steps, opened.table)
        vector: ProtectedVector = opened.derived[self.steps]
        blocks = [(matrix(vector.size), weight) for (matrix, _), weight in self.query]
        return vector.measure(Query.of(blocks), spend=self.spend, key=self.key)

    def answers(self, rows: Array) -> list[Array]:
        """Of each block, computed without the kernel."""
        vector = reduce(lambda x, step: step.compute(x), self.steps, rows)
        return [compute(vector) for (_, compute), _ in self.query]


@dataclass(frozen=True)
class OpenedRows:
    """A handle, its source, and what was derived from it."""

    table: ProtectedTable
    source: ChangingRows
    derived: dict[tuple[ProgramStep, ...], Any] = field(default_factory=dict)


@contextmanager
def at_some_line(rng: Random, act: Callable[[], None]) -> Iterator[None]:
    """Acts once, at a random line of the kernel or of an engine, as a signal handler would."""
    phase, left = rng.choice(PHASES), int(1000 ** rng.random())

    def line(frame: Any, event: str, _: Any) -> Any:
        nonlocal left
        if event == "line" and not phase:
            left -= 1
            if left == 0:
                act()
        return line

    def call(frame: Any, *_: Any) -> Any:
        nonlocal phase
        if not frame.f_code.co_filename.startswith(ROOMS):
            return None
        if frame.f_code.co_name == phase:
            phase = ""
        return line

    before = sys.gettrace()
    sys.settrace(call)
    try:
        yield
    finally:
        sys.settrace(before)


def _interrupt() -> None:
    raise KeyboardInterrupt


Interruption = Callable[["Program", Callable[[], Measurement]], Measurement | None]


def interrupt_line(program: Program, ask: Callable[[], Measurement]) -> Measurement:
    """An exception at a random line."""
    with at_some_line(program.rng, _interrupt):
        return ask()


def fail_reading(program: Program, ask: Callable[[], Measurement]) -> Measurement:
    """The source cannot be read."""
    program.world.failing = True
    try:
        return ask()
    finally:
        program.world.failing = False


INTERRUPTIONS: dict[str, Interruption] = {"line": interrupt_line, "reading": fail_reading}


@dataclass(frozen=True)
class ProgramResult:
    """What a program lost, at worst, and what its ledger says is spent."""

    seed: int
    loss: Fraction
    spent: Fraction
    worst: Fraction
    requests: int
    snapshots: int
    interruptions: Counter[str]


class Program:
    """Random steps on one ledger, by a seed; everything about it but the noise is repeatable."""

    def __init__(
        self, stage: Stage, seed: int, interruptions: dict[str, Interruption] = INTERRUPTIONS
    ) -> None:
        rng = self.rng = Random(seed)
        (unit,), shape = rng.choices(UNITS, (3, 1, 3, 1)), rng.choice(SHAPES)
        placements = neighbours(unit)[0]
        hidden = [placements[rng.randrange(len(placements))] for _ in range(STATES)]
        self.seed, self.world = seed, World(Domain.of(shape), unit, hidden)
        self.currency = rng.choice(CURRENCIES)
        budget = rng.choice((6, 100, 100)) * PRICE
        self.ledger = stage.ledger(unit, Budget(self.currency, budget))
        self.interruptions, self.counts = interruptions, Counter[str]()
        # Few kinds of steps and queries in one program, so that requests meet behind a split.
        plain = rng.random() < 1 / 2
        steps = (split_table, split_cells) if plain else (*TABLE_STEP_KINDS, *VECTOR_STEP_KINDS)
        self.steps = rng.sample(steps, 1 if plain else 3)
        self.prices = [1] if plain else [1, 1, 2]
        self.nearness = 0.9 if plain else 0.5
        self.queries = QUERIES[:1] if plain else rng.sample(QUERIES, 2)
        self.rate = rng.choice((0, 1 / 3))
        self.tables: list[OpenedRows] = []
        self.requests: list[ProgramRequest] = []
        self.choices: dict[ProgramStep, Choices] = {}
        self.answers: dict[str, list[int]] = {}
        self.losses: defaultdict[int, Any] = defaultdict(int)
        self.loss = self.worst = Fraction(0)

    def run(self) -> ProgramResult:
        """All steps, then the loss of what is stored; raises GotThrough if a promise is broken."""
        self._open()
        steps = (self._open, self._ask_anew, self._ask_again, self._ask_in_vain)
        for _ in range(self.rng.randint(9, 15)):
            self.rng.choices(steps, (3, 8, 3, 1))[0]()
        self.ledger.verify()
        snapshots = {e.snapshot for e in self.ledger.history() if e.values_hash}
        return ProgramResult(
            seed=self.seed,
            loss=self.loss,
            spent=self.ledger.spent().amount,
            worst=self.worst,
            requests=len(self.answers),
            snapshots=len(snapshots),
            interruptions=self.counts,
        )

    def source(self, rows: ChangingRows) -> Any:
        """What a handle is opened to: the rows, which an engine reads."""
        return rows

    def _open(self) -> None:
        """A new handle, to rows that may have changed; earlier ones have theirs, or take these."""
        self.world.now += self.rng.randrange(STATES)
        self.world.now %= STATES
        rows = ChangingRows(self.world)
        table = protect(self.source(rows), self.world.domain, ledger=self.ledger)
        self.tables.append(OpenedRows(table, rows))

    def _request(self) -> ProgramRequest:
        """By itself, or like an earlier one up to a step; of a split it takes any part."""
        rng, table = self.rng, self.tables[0].table
        earlier = rng.choice(self.requests[-3:]).steps if self.requests else ()
        splits = [i for i, step in enumerate(earlier, 1) if len(self.choices[step]) > 1]
        beside = bool(splits) and rng.random() < self.nearness
        steps = list(earlier[: splits[-1] if beside else rng.randint(0, len(earlier))])
        steps[-1:] = [rng.choice(self.choices[step]) for step in steps[-1:]]
        kinds = rng.choices(self.steps, k=0 if beside else rng.choice((0, 1, 1, 2)))
        if not steps and rng.random() < 1 / 8:
            kinds.insert(0, merge_two)
        handle: Any = reduce(lambda t, step: step.derive(t), steps, table)
        for kind in (*kinds, vectorise):
            if isinstance(handle, ProtectedTable) and kind in VECTOR_STEP_KINDS:
                handle = self._extend(steps, handle, vectorise)
            if isinstance(handle, ProtectedTable) is (kind not in VECTOR_STEP_KINDS):
                handle = self._extend(steps, handle, kind)
        spend = Budget(self.currency, PRICE * rng.choice(self.prices))
        return ProgramRequest(
            str(len(self.requests)), tuple(steps), rng.choice(self.queries), spend
        )

    def _extend(self, steps: list[ProgramStep], handle: Any, kind: Callable[..., Choices]) -> Any:
        """The handle behind one more step, or as it was where that is refused."""
        choices = kind(handle, self.rng)
        step = self.rng.choice(choices)
        try:
            handle = step.derive(handle)
        except (RefusedError, PredicateError):  # persons of a split, values of a merged column
            return handle
        steps.append(step)
        self.choices |= dict.fromkeys(choices, choices)
        return handle

    def _ask_anew(self) -> None:
        self.requests.append(self._request())
        self._ask(self.requests[-1], self.rate)

    def _ask_again(self) -> None:
        """What was answered or not, on the same handle or another."""
        unanswered = [each for each in self.requests if each.key not in self.answers]
        if self.rng.random() < 1 / 2:
            self._open()
        if self.requests:
            self._ask(self.rng.choice(unanswered or self.requests), self.rate / 2)

    def _ask_in_vain(self) -> None:
        """At more than the budget, or under the key of another request."""
        request, more = self._request(), self.ledger.budget.amount
        charged = [each for each in self.requests if each.key in self._entries()]
        if charged and self.rng.random() < 1 / 2:
            request, more = self.rng.choice(charged), PRICE
        refused = replace(request, spend=Budget(self.currency, request.spend.amount + more))
        require(not self._ask(refused, 0), "a request that must be refused was answered")

    def _ask(self, request: ProgramRequest, rate: float) -> bool:
        """Whether there was an answer; one that is interrupted may be stored without."""
        opened = self.tables[-self.rng.choice((1, 1, 1, min(2, len(self.tables))))]
        before = self.ledger.spent()
        kind = self.rng.choice([*self.interruptions]) if self.rng.random() < rate else ""
        measurement = None
        try:
            if kind:
                measurement = self.interruptions[kind](self, lambda: request.ask(opened))
            else:
                measurement = request.ask(opened)
        except (PsephosError, KeyboardInterrupt):
            require(kind or self.ledger.spent() == before, "a refused request was charged")
        self.counts[kind] += bool(kind) and measurement is None
        if request.key not in self.answers and self._entries().get(request.key):
            self._add_loss(request, opened.source, measurement or self._replay(request, opened))
        if measurement is not None:
            same = measurement.values.tolist() == self.answers[request.key]
            require(same, "a key was answered twice, differently")
        return measurement is not None

    def _entries(self) -> dict[str, str | None]:
        """The keys that were charged, with the hash of their values if they are stored."""
        return {entry.key: entry.values_hash for entry in self.ledger.history()}

    def _replay(self, request: ProgramRequest, opened: OpenedRows) -> Measurement:
        """What the ledger has stored for a request that was interrupted."""
        spent, book = self.ledger.spent(), answered(self.world.domain, self.ledger)
        stored = request.ask(OpenedRows(book, opened.source))
        require(self.ledger.spent() == spent, "a replay was charged")
        return stored

    def _add_loss(self, request: ProgramRequest, source: ChangingRows, stored: Measurement) -> None:
        """Of a stored answer, over the rows served: Σ|d|/b or Σd²/2v between neighbours."""
        spent, state = self.ledger.spent(), source.state
        values = request.answers(self.world.rows(state, self.world.hidden[state]))
        self.answers[request.key] = stored.values.tolist()
        same = np.concatenate(values).tolist() == self.answers[request.key]
        require(same, "an answer is not that of the rows that were served")
        placements, first, second = neighbours(self.world.unit)
        tables = [request.answers(self.world.rows(state, hidden)) for hidden in placements]
        for blocks, noise in zip(zip(*tables, strict=True), stored.noise, strict=True):
            power = 1 if isinstance(noise, DiscreteLaplace) else 2
            answers = np.stack(blocks)
            moves = (abs(answers[first] - answers[second]) ** power).sum(axis=1)
            self.losses[state] = self.losses[state] + moves.astype(object) * loss_weight(noise)
        # The unit lies anywhere in each state, whatever it does in others.
        self.loss = sum((max(losses) for losses in self.losses.values()), Fraction(0))
        self.worst = max(self.worst, self.loss / spent.amount)


def random_programs(stage: Stage, seeds: Iterable[int] = range(PROGRAMS)) -> Iterator[AttackResult]:
    """One result for all programs; its loss is that of the worst, as a multiple of its charge."""
    results: list[ProgramResult] = []
    for seed in seeds:
        try:
            results.append(Program(stage, seed).run())
        except GotThrough as how:
            text = f"IT GOT THROUGH: {how}, in the program of seed {seed}"
            yield AttackResult("exact loss", "a random program", "its promises", text, False, 1)
    if results:
        yield _summary(results)


def _summary(results: Sequence[ProgramResult]) -> AttackResult:
    worst = max(results, key=lambda result: result.worst)
    interruptions = sum(result.interruptions.total() for result in results)
    requests, ok = sum(result.requests for result in results), worst.worst <= 1
    size = f"{len(results)} programs, {requests} requests, {interruptions} interruptions"
    return AttackResult(
        kind="exact loss",
        name="random programs on rows that change",
        claimed="no more than is spent, under all units",
        verdict=f"{size}, worst loss/charge {float(worst.worst):.4g}"
        + ("" if ok else f" (seed {worst.seed})"),
        ok=ok,
        runs=len(results),
        charge=1.0,
        loss=float(worst.worst),
    )
