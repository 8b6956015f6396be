"""Random programs: several snapshots of rows that change, interruptions, and the exact loss.

A program opens handles, changes the rows between them, asks, is interrupted anywhere, asks again
under the same keys, and is refused. Its loss is that of all answers that its ledger has stored: the
unit lies anywhere in each state of the rows, and answers move as in `exact`, computed from rows
without the kernel. It must not exceed what the ledger says is spent. Which state an answer was
drawn over is known from the source that served it, whatever the ledger says; and at spends so large
that the noise is zero, which changes no ratio, the answer itself must be that of this state.
"""

from __future__ import annotations

import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import reduce
from mmap import mmap
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

import psephos.matrix as mx
from psephos.audit.exact import BASES, CURRENCIES, UNITS, loss_weight, neighbours
from psephos.audit.stage import AttackResult, GotThrough, Stage, require, rows_of_copies
from psephos.domain.domain import Domain
from psephos.domain.predicate import col
from psephos.engines.duckdb.reader import Reader
from psephos.engines.frames import ArrowTable
from psephos.engines.protocol import Batches, Columns
from psephos.engines.row_store import RowStore
from psephos.errors import PredicateError, PsephosError, RefusedError
from psephos.kernel.budget import Budget
from psephos.kernel.measurement import Measurement
from psephos.kernel.noise import DiscreteLaplace
from psephos.kernel.protected import ProtectedTable, ProtectedVector
from psephos.kernel.query import Query
from psephos.kernel.replay import answered
from psephos.kernel.unit import Cap, Unit
from psephos.protect import protect, protect_again
from psephos.values import Array

PROGRAMS = 30
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


@dataclass
class World:
    """Rows that change: the others' in each state, and those of the unit, which are hidden."""

    domain: Domain
    unit: Unit
    hidden: list[Array]
    now: int = 0
    failing: bool = False

    def rows(self, state: int, hidden: Array) -> Array:
        """A row's person and its cell of each attribute, with these rows of the unit."""
        cells = np.repeat(np.arange(hidden.size), np.roll(BASES[1], state))
        unit = np.repeat(np.arange(hidden.size), hidden)
        persons = np.append(np.arange(cells.size), np.full(unit.size, cells.size))
        codes = np.unravel_index(np.append(cells, unit), self.domain.shape)
        return np.column_stack([persons, *codes])


class ChangingRows:
    """An engine whose rows are those of a world, now; `state` is the one it served last."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._served = mmap(-1, 1)  # shared with forked children

    @property
    def state(self) -> int:
        """The state of the rows that were read last, by this process or a child of it."""
        return self._served[0]

    def serve(self) -> Array:
        """The rows of now, for one reading, which may be told to fail."""
        if self._world.failing:
            raise OSError("out of reach")
        self._served[0] = self._world.now
        return self._world.rows(self.state, self._world.hidden[self.state])

    def columns(self) -> Columns:
        """See `Engine`."""
        return self._table().columns()

    def version(self) -> None:
        """Nothing says when the rows change."""

    def snapshot(self) -> AbstractContextManager[Batches]:
        """See `Engine`."""
        self.serve()
        return self._table().snapshot()

    def _table(self) -> ArrowTable:
        """A person who has as many rows as count has two more, which are cut off."""
        world, base = self._world, np.roll(BASES[1], self.state)
        cells, persons = rows_of_copies(base, world.hidden[self.state], world.unit, 1)
        codes = np.unravel_index(cells, world.domain.shape)
        columns = dict(zip(world.domain.names, codes, strict=True)) | {"person": persons}
        return ArrowTable(pa.table({n: pa.array(c, pa.int64()) for n, c in columns.items()}))


class CellReader(Reader):
    """A reader of rows that are cells already, which takes no time."""

    engine: ChangingRows

    def take(self, domain: Domain, cap: Cap | None, folder: Any = None) -> RowStore:
        """The rows of now."""
        rows = self.engine.serve()
        begins = np.append(True, np.diff(rows[:, 0]) > 0)
        columns = [*rows[:, 1:].T, begins] if cap else list(rows[:, 1:].T)
        return RowStore.of(domain, [columns], persons=cap is not None, folder=folder)


class Step(NamedTuple):
    """How a handle is derived, and the same computed from rows, or from the vector of counts."""

    derive: Callable[[Any], Any]
    compute: Callable[[Array], Array]


Choices = list[Step]
"""The parts of a split, or one step."""


def _attribute(table: Any, rng: Random) -> tuple[str, int, int]:
    """The name of an attribute, its column in rows, and one of its values."""
    axis = rng.randrange(len(table.domain))
    return table.domain.names[axis], 1 + axis, rng.randrange(table.domain.shape[axis])


def _names(table: Any, rng: Random) -> tuple[tuple[str, ...], list[int]]:
    """Some attributes in any order, and their columns in rows."""
    number = rng.randint(1, len(table.domain))
    axes = rng.sample(range(len(table.domain)), number)
    return tuple([table.domain.names[a] for a in axes]), [1 + a for a in axes]


def _where(table: Any, rng: Random) -> Choices:
    name, column, value = _attribute(table, rng)
    left_out = table.domain[name].values[value]
    return [Step(lambda t: t.where(col(name) != left_out), lambda x: x[x[:, column] != value])]


def _keep(table: Any, rng: Random) -> Choices:
    names, columns = _names(table, rng)
    return [Step(lambda t: t.keep(*names), lambda x: x[:, [0, *columns]])]


def _split(table: Any, rng: Random) -> Choices:
    name, column, _ = _attribute(table, rng)
    gone = [column] if len(table.domain) > 1 else []

    def part(i: int) -> Step:
        return Step(
            lambda t: list(t.split(name).values())[i],
            lambda x: np.delete(x[x[:, column] == i], gone, axis=1),
        )

    return [part(i) for i in range(table.domain[name].size)]


def _group_by(table: Any, rng: Random) -> Choices:
    names, columns = _names(table, rng)
    shape, count = [table.domain[n].size for n in names], f"count of {len(table.domain)}"

    def compute(x: Array) -> Array:
        groups = np.ravel_multi_index(tuple(x[:, columns].T), shape)
        sizes = np.bincount(groups, minlength=math.prod(shape))
        codes = np.unravel_index(np.arange(sizes.size), shape)
        return np.column_stack([np.arange(sizes.size), *codes, np.minimum(sizes, 2)])

    return [Step(lambda t: t.group_by(*names, most=2, count=count), compute)]


def _persons(table: Any, rng: Random) -> Choices:
    names, columns = _names(table, rng)
    return [Step(lambda t: t.persons(*names), lambda x: np.unique(x[:, [0, *columns]], axis=0))]


def _merged(table: Any, rng: Random) -> Choices:
    domain = table.domain
    one, other = domain.names[:2]
    merged, size = domain.merge((one, other)), domain[other].size

    def compute(x: Array) -> Array:
        return np.column_stack([x[:, 0], x[:, 1] * size + x[:, 2], x[:, 3:]])

    return [Step(lambda t: protect_again(t, merged), compute)]


def _vectorise(table: Any, _: Random) -> Choices:
    shape, size = table.domain.shape, table.domain.size

    def compute(x: Array) -> Array:
        return np.bincount(np.ravel_multi_index(tuple(x[:, 1:].T), shape), minlength=size)

    return [Step(lambda t: t.vectorise(), compute)]


def _groups(vector: Any, rng: Random) -> Array:
    number = rng.randint(1, vector.size)
    groups = [*range(number), *rng.choices(range(number), k=vector.size - number)]
    rng.shuffle(groups)
    return np.array(groups)


def _cell_split(vector: Any, rng: Random) -> Choices:
    groups = _groups(vector, rng)

    def part(i: int) -> Step:
        return Step(lambda v: v.split(mx.Partition(groups))[i], lambda x: x[groups == i])

    return [part(i) for i in range(groups.max() + 1)]


def _reduce(vector: Any, rng: Random) -> Choices:
    groups = _groups(vector, rng)
    sums = groups == np.arange(groups.max() + 1)[:, None]
    return [Step(lambda v: v.reduce(mx.Partition(groups)), lambda x: sums @ x)]


def _transform(vector: Any, rng: Random) -> Choices:
    entries = np.array([rng.choices(range(-2, 4), k=vector.size) for _ in range(3)])
    return [Step(lambda v: v.transform(mx.Dense(entries)), lambda x: entries @ x)]


TABLE_STEPS = _split, _split, _where, _keep, _group_by, _persons
VECTOR_STEPS = _cell_split, _cell_split, _reduce, _transform
TOTAL, CELLS, PREFIXES = (
    (mx.total, lambda x: x.sum(keepdims=True)), (mx.Identity, lambda x: x), (mx.Prefix, np.cumsum),
)  # fmt: skip
QUERIES: tuple[Any, ...] = (
    ((CELLS, "1"),), ((TOTAL, "1"),), ((PREFIXES, "1"),),
    ((CELLS, "1"), (TOTAL, "3"), (PREFIXES, "1/2")),
)  # fmt: skip
"""Blocks, each with its matrix and the same computed, and its weight."""


@dataclass(frozen=True)
class ProgramRequest:
    """A measurement behind some steps, on whichever handle."""

    key: str
    steps: tuple[Step, ...]
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
    derived: dict[tuple[Step, ...], Any] = field(default_factory=dict)


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
    refusals: int


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
        steps = (_split, _cell_split) if plain else (*TABLE_STEPS, *VECTOR_STEPS)
        self.steps = rng.sample(steps, 1 if plain else 3)
        self.prices = [1] if plain else [1, 1, 2]
        self.nearness = 0.9 if plain else 0.5
        self.queries = QUERIES[:1] if plain else rng.sample(QUERIES, 2)
        self.rate, self.by_cells = rng.choice((0, 1 / 3)), seed % 4 > 0
        self.tables: list[OpenedRows] = []
        self.requests: list[ProgramRequest] = []
        self.choices: dict[Step, Choices] = {}
        self.answers: dict[str, list[int]] = {}
        self.losses: defaultdict[int, Any] = defaultdict(int)
        self.loss = self.worst = Fraction(0)
        self.refusals = 0

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
            refusals=self.refusals,
        )

    def _open(self) -> None:
        """A new handle, to rows that may have changed; earlier ones have theirs, or take these."""
        self.world.now += self.rng.randrange(STATES)
        self.world.now %= STATES
        rows = ChangingRows(self.world)
        source = CellReader(rows) if self.by_cells else rows
        table = protect(source, self.world.domain, ledger=self.ledger)
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
            kinds.insert(0, _merged)
        handle: Any = reduce(lambda t, step: step.derive(t), steps, table)
        for kind in (*kinds, _vectorise):
            if isinstance(handle, ProtectedTable) and kind in VECTOR_STEPS:
                handle = self._extend(steps, handle, _vectorise)
            if isinstance(handle, ProtectedTable) is (kind not in VECTOR_STEPS):
                handle = self._extend(steps, handle, kind)
        spend = Budget(self.currency, PRICE * rng.choice(self.prices))
        return ProgramRequest(
            str(len(self.requests)), tuple(steps), rng.choice(self.queries), spend
        )

    def _extend(self, steps: list[Step], handle: Any, kind: Callable[..., Choices]) -> Any:
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
            self.refusals += not kind
            require(kind or self.ledger.spent() == before, "a refused request was charged")
        self.counts[kind] += bool(kind) and measurement is None
        if request.key not in self.answers and self._entries().get(request.key):
            self._add_loss(request, opened.source)
        if measurement is not None:
            same = measurement.values.tolist() == self.answers[request.key]
            require(same, "a key was answered twice, differently")
        return measurement is not None

    def _entries(self) -> dict[str, str | None]:
        """The keys that were charged, with the hash of their values if they are stored."""
        return {entry.key: entry.values_hash for entry in self.ledger.history()}

    def _add_loss(self, request: ProgramRequest, source: ChangingRows) -> None:
        """Of an answer that is stored, over the rows served: Σ|d|/b or Σd²/2v between neighbours.

        It is read from the ledger, since a request that was interrupted has not returned.
        """
        spent, state = self.ledger.spent(), source.state
        stored = request.ask(OpenedRows(answered(self.world.domain, self.ledger), source))
        require(self.ledger.spent() == spent, "a replay was charged")
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
