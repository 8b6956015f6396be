"""What a plan sees of the data: a vector that it may cut, reduce, measure and choose by.

A plan's body is written like its paper; this file does the rest. Every request gets a key of its
own, made of the plan's key and the request's number, so that a run that was cut short is taken up
where it stopped: what was paid for is replayed by the ledger, in the order in which it was asked.
The whole price is looked at before the first request, and no request goes beyond it. Whatever a
plan decides at random and in public follows from its key, so that a second run decides the same.
What it works out in floats may differ in the last digit from machine to machine; so a transcript
keeps each question as it was before it is charged, and a later run asks that very question again.

Nothing here is trusted: the vector behind it charges for every request and decides what is shown.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Literal, NamedTuple, NoReturn, Protocol

import numpy as np
from numpy.random import Generator, default_rng

from psephos.domain.conjunctions import Conjunctions
from psephos.domain.domain import Domain
from psephos.errors import BudgetError, RefusedError, WorkloadError
from psephos.kernel import gate
from psephos.kernel.budget import RHO_OF_EPSILON, Budget, Mechanism
from psephos.kernel.measurement import Measurement
from psephos.kernel.protected import ProtectedVector
from psephos.kernel.query import Query
from psephos.kernel.scores import PARTITIONS, SCORES, PrivateSearch, Score, UndercountedQueries
from psephos.kernel.unit import Unit
from psephos.matrix import Matrix, Partition, total
from psephos.strategy.strategy import Strategy
from psephos.values import Array

TOTAL_SHARE = "1/20"
"""What a noisy number of rows gets of the budget where none is declared."""

UNSPENT = Fraction(1, 2**20)
"""What a plan may leave of its budget: shares that are roots are rounded down to a fraction."""

RequestKind = Literal["measure", "choose", "partition", "draw", "count"]
PRIVATE_SEARCHES: dict[str, Any] = {kind.__name__: kind for kind in (*SCORES, *PARTITIONS)}
"""Private searches by their names."""


class Transcript(Protocol):
    """The questions of a run, step by step, in the kernel's canonical bytes."""

    def settled(self, step: int, question: bytes) -> bytes:
        """The question of a step as it was first written down: this one, if none was."""


class PlanRequest(NamedTuple):
    """One request of a plan: what kind, what it spent, and what came of it."""

    kind: RequestKind
    spend: Budget
    result: Measurement | Partition | int | Array
    price: Budget
    """What a ledger books for it in the currency of the plan's budget."""

    @property
    def values(self) -> Array:
        """The result as the ledger stores it: noisy integers, a number, lengths, or numbers."""
        if isinstance(self.result, Measurement):
            return self.result.values
        if isinstance(self.result, np.ndarray):
            return self.result
        if isinstance(self.result, Partition):  # of intervals, one after the other
            return np.bincount(self.result.groups).astype(np.int64)
        return np.array([self.result], dtype=np.int64)


def step_key(key: str, step: int) -> str:
    """The ledger's key of a step, from that of the whole plan.

    >>> step_key("pets", 0), step_key("pets", 1)
    ('pets', 'pets step 2')
    """
    return key if step == 0 else f"{key} step {step + 1}"


def question_of(written: bytes) -> tuple[Any, ...]:
    """The kind of a request, what it asks, and its spend, from a transcript; or it is refused."""
    question = gate.from_bytes(written)
    whole = type(question) is tuple and len(question) >= 3 and type(question[-1]) is Budget
    if whole and question[0] == "measure" and len(question) == 3 and type(question[1]) is Query:
        return tuple(question)
    if whole and question[0] in ("choose", "partition") and question[1] in PRIVATE_SEARCHES:
        return tuple(question)
    counted = whole and question[0] == "count" and type(question[1]) is np.ndarray
    if counted and len(question) == 3 and question[1].dtype == np.int32:
        return tuple(question)
    kinds = [str, np.ndarray, int, int]
    drawn = whole and question[0] == "draw" and [type(part) for part in question[1:-1]] == kinds
    if drawn and question[2].dtype == np.int32 and min(question[3:5]) >= 1:
        return tuple(question)
    raise RefusedError("this is no request of a plan")


@dataclass
class Session:
    """The requests of one run of a plan, in order, and what they may cost together."""

    plan: str
    budget: Budget
    key: str | None
    transcript: Transcript | None = None
    requests: list[PlanRequest] = field(default_factory=list)
    progress: Callable[[int, int | None], None] = field(default=lambda step, steps: None)
    """Told the number of a request before it is made, and of how many, where that is known."""
    steps: int | None = None
    _sums: list[Fraction] = field(default_factory=lambda: [Fraction(0)])

    @property
    def spent(self) -> Budget:
        """The sum of all prices, to which those of the newest requests alone are added."""
        for request in self.requests[len(self._sums) - 1 :]:
            self._sums.append(self._sums[-1] + request.price.amount)
        return Budget(self.budget.currency, self._sums[-1])

    def next_key(self, price: Budget) -> str | None:
        """The key of the next request; one that the plan's budget does not hold is refused."""
        if self.spent + price > self.budget:
            raise BudgetError(
                f"plan {self.plan!r} has spent {self.spent} of its {self.budget} and asks for "
                f"{price}; its steps must add up to its budget"
            )
        self.progress(len(self.requests) + 1, self.steps)
        return None if self.key is None else step_key(self.key, len(self.requests))

    def price(self, spend: Budget, mechanism: Mechanism, draws: int = 1) -> Budget:
        """What a ledger in the currency of the plan's budget books for a request."""
        return spend.booked(self.budget.currency, mechanism, draws)

    def settled_query(self, query: Query, spend: Budget) -> Query:
        """The query that this step measures: as an earlier run wrote it down, or as it is now."""
        if self.transcript is None:
            return query
        settled: Query = self._settled(("measure", query), spend)[1]
        if settled.shape[1] != query.shape[1]:
            raise self._strange()
        return settled

    def settled_search(self, kind: RequestKind, search: Any, cells: int, spend: Budget) -> Any:
        """The private search of this step, in the same way."""
        if self.transcript is None:
            return search
        admitted = type(search).admitted(search, cells)
        name = type(search).__name__
        _, earlier, *parts = self._settled((kind, name, *admitted.parts[1:]), spend)
        if earlier != name:
            raise self._strange()
        return PRIVATE_SEARCHES[name](*parts)

    def settled_records(
        self, queries: str, records: Array, rows: int, draws: int, spend: Budget
    ) -> Array:
        """The records that this step adds to a game of queries, in the same way."""
        if self.transcript is None:
            return records
        parts = self._settled(("draw", queries, records, rows, draws), spend)
        _, earlier, settled, *numbers = parts
        if earlier != queries or numbers != [rows, draws] or settled.shape != records.shape:
            raise self._strange()
        return np.asarray(settled)

    def check_counted(self, attributes: Array, spend: Budget) -> None:
        """Refuse to count the values of other attributes than an earlier run wrote down."""
        if self.transcript is None:
            return
        if not np.array_equal(self._settled(("count", attributes), spend)[1], attributes):
            raise self._strange()

    def _settled(self, question: tuple[Any, ...], spend: Budget) -> tuple[Any, ...]:
        if self.transcript is None:
            return question
        step = len(self.requests)
        written = gate.to_bytes((*question, spend))
        settled = self.transcript.settled(step, written)
        *parts, amount = question_of(settled)
        if parts[0] != question[0] or amount != spend:
            raise self._strange()
        return tuple(parts)

    def _strange(self) -> RefusedError:
        return RefusedError(
            f"step {len(self.requests) + 1} of plan {self.plan!r} was written down as another kind "
            "of request than the plan makes now; run the release as it was begun, with the same "
            "file and version"
        )

    def check_spent(self) -> None:
        """A plan that leaves some of its budget has not done what it was paid for."""
        if not self.budget * (1 - UNSPENT) <= self.spent <= self.budget:
            raise BudgetError(
                f"plan {self.plan!r} spent {self.spent} of its {self.budget}; the steps of a plan "
                "add up to its budget exactly, so that its price is what it costs"
            )


class PlanVector:
    """A protected vector inside of a plan, with the budget and the keys of the run."""

    def __init__(self, vector: ProtectedVector, session: Session) -> None:
        self._vector, self._session = vector, session

    @property
    def domain(self) -> Domain:
        """The public schema of the cells."""
        return self._vector.domain

    @property
    def size(self) -> int:
        """How many counts there are."""
        return self._vector.size

    @property
    def unit(self) -> Unit:
        """Whose presence is protected."""
        return self._vector.unit

    @property
    def simulation(self) -> bool:
        """Is this made-up or public data?"""
        return self._vector.simulation

    def expect(self, steps: int) -> None:
        """How many requests there will be, for whoever watches the run."""
        self._session.steps = steps

    def measure(self, queries: Strategy | Query | Matrix, *, spend: Budget) -> Measurement:
        """Noisy answers (EKTELO's Vector Laplace)."""
        given = queries.query if isinstance(queries, Strategy) else queries
        price = self._session.price(spend, "noise")
        key = self._session.next_key(price)
        query = given if isinstance(given, Query) else Query.of(given)
        query = self._session.settled_query(query, spend)
        result = self._vector.measure(query, spend=spend, key=key)
        self._note("measure", spend, price, result)
        return result

    def count_values(self, attributes: Array, *, spend: Budget) -> Array:
        """Noisy counts of every value of some attributes, by their numbers in rising order."""
        price = self._session.price(spend, "noise")
        key = self._session.next_key(price)
        axes = np.asarray(attributes).astype(np.int32)
        self._session.check_counted(axes, spend)
        result = self._vector.count_values(axes, spend=spend, key=key)
        self._note("count", spend, price, result)
        return result

    def choose(self, score: Score, *, spend: Budget) -> int:
        """The number of a candidate that scores high."""
        price = self._session.price(spend, type(score).mechanism)
        key = self._session.next_key(price)
        score = self._session.settled_search("choose", score, self.size, spend)
        result = self._vector.choose(score, spend=spend, key=key)
        self._note("choose", spend, price, result)
        return result

    def partition(self, search: PrivateSearch, *, spend: Budget) -> Partition:
        """The cells in intervals of like counts."""
        price = self._session.price(spend, type(search).mechanism)
        key = self._session.next_key(price)
        search = self._session.settled_search("partition", search, self.size, spend)
        result = self._vector.partition(search, spend=spend, key=key)
        self._note("partition", spend, price, result)
        return result

    def reduce(self, partition: Partition) -> PlanVector:
        """The sums over groups of cells."""
        return PlanVector(self._vector.reduce(partition), self._session)

    def transform(self, matrix: Matrix) -> PlanVector:
        """The vector after a linear map with whole entries."""
        return PlanVector(self._vector.transform(matrix), self._session)

    @property
    def left(self) -> Budget:
        """What the plan may still spend."""
        return self._session.budget - self._session.spent

    def public_random(self, purpose: str) -> Generator:
        """Random numbers that anyone can draw again: they follow from the plan and its key."""
        mark = "\n".join((self._session.plan, self._session.key or "", purpose))
        return default_rng(list(hashlib.sha256(mark.encode()).digest()))

    def play(self, queries: Conjunctions, rows: int) -> QueryGame:
        """DualQuery's game: queries that records undercount, round after round."""
        return QueryGame(self._vector, self._session, queries, rows)

    def _note(
        self,
        kind: RequestKind,
        spend: Budget,
        price: Budget,
        result: Measurement | Partition | int | Array,
    ) -> None:
        self._session.requests.append(PlanRequest(kind, spend, result, price))

    def __repr__(self) -> str:
        session = self._session
        return f"PlanVector({self.domain}; {session.spent} of {session.budget} spent)"


class QueryGame:
    """Rounds of draws from queries; records are written down before the draw that they decide.

    A question holds the newest records alone and names the queries by their hash: with a million
    queries and hundreds of rounds, a bundle could not hold more.
    """

    def __init__(
        self, vector: ProtectedVector, session: Session, queries: Conjunctions, rows: int
    ) -> None:
        self._vector, self._session, self._queries, self._rows = vector, session, queries, rows
        self._hash = gate.fingerprint(queries.attributes, queries.values)
        self._records = np.zeros((0, len(vector.domain)), dtype=np.int32)

    @property
    def records(self) -> Array:
        """The records so far, as they were written down."""
        return self._records

    def draw(self, newest: Array, draws: int, *, spend: Budget) -> Array:
        """Numbers of queries that records undercount with these, as many in every round.

        Several records of a round are one answer, each for an equal share: the kernel's text holds
        with the number of all records in place of that of rounds, and so does the price.
        """
        price = self._session.price(spend, UndercountedQueries.mechanism, draws)
        key = self._session.next_key(price)
        some = np.atleast_2d(newest).astype(np.int32)
        some = self._session.settled_records(self._hash, some, self._rows, draws, spend)
        self._records = np.concatenate([self._records, some])
        game = UndercountedQueries(self._queries, self._records, self._rows, draws)
        result = self._vector.draw_queries(game, spend=spend, key=key)
        self._session.requests.append(PlanRequest("draw", spend, result, price))
        return result


class FirstMeasurement(Exception):
    """Ends a plan at its first measurement, of which only the question was wanted."""

    def __init__(self, query: Query) -> None:
        super().__init__("what a plan measures first")
        self.query = query


class QuestionVector(PlanVector):
    """A vector without counts: it tells what a plan would measure first."""

    def __init__(self, domain: Domain) -> None:
        self._domain = domain

    @property
    def domain(self) -> Domain:
        """The public schema of the cells."""
        return self._domain

    @property
    def size(self) -> int:
        """How many counts there would be."""
        return self._domain.size

    def measure(self, queries: Strategy | Query | Matrix, *, spend: Budget) -> NoReturn:
        """The plan ends here."""
        query = queries.query if isinstance(queries, Strategy) else queries
        raise FirstMeasurement(query if isinstance(query, Query) else Query.of(query))


def shares(budget: Budget, *parts: Any) -> Sequence[Budget]:
    """A budget in parts, given as shares in text; the last is whatever is left.

    >>> from psephos.kernel.budget import epsilon
    >>> shares(epsilon("1"), "1/4", "1/4")
    [epsilon 1/4 (~0.25), epsilon 1/4 (~0.25), epsilon 1/2 (~0.5)]
    """
    several = [budget * part for part in parts]
    left = budget.amount - sum(each.amount for each in several)
    if left <= 0:  # said before the first of them is spent
        raise BudgetError(f"shares leave something for the last step: below 1 in all, got {parts}")
    return [*several, Budget(budget.currency, left)]


def choice_spend(budget: Budget) -> Budget:
    """The epsilon that a private choice may spend so that no more than this is booked for it.

    From rho it is rounded down to 40 binary digits, so that what is booked is a short fraction.

    >>> from psephos.kernel.budget import rho
    >>> choice_spend(rho("1/8"))
    epsilon 1
    """
    if budget.currency == "epsilon":
        return budget
    square = budget.amount / RHO_OF_EPSILON["exponential"]
    digits = 40 + max(0, square.denominator.bit_length() - square.numerator.bit_length()) // 2
    root = math.isqrt(math.floor(square * (1 << 2 * digits)))
    return Budget("epsilon", Fraction(root, 1 << digits))


def check_epsilon(budget: Budget, words: str) -> None:
    """Refuse a budget in rho where what a plan does, in words, has a price in epsilon alone."""
    if budget.currency != "epsilon":
        raise BudgetError(
            f"{words}, which is paid in epsilon, got {budget}; spend epsilon, which a ledger in "
            'rho books too: ps.epsilon("1"), or [budget] epsilon alone in a release file'
        )


def positive_option(name: str, value: float) -> float:
    """An option that is a finite number above zero; others are refused before anything is asked."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number):
        raise WorkloadError(f"{name} is a number, got {value!r}")
    if not 0 < value < math.inf:
        raise WorkloadError(f"{name} is a finite number above 0, got {value!r}")
    return float(value)


def known_rows(
    vector: PlanVector, budget: Budget, rows: float | None
) -> tuple[float, Budget, list[Measurement]]:
    """The number of rows, declared or with noise; what is left of the budget; what was measured."""
    if rows is not None:
        return positive_option("rows", rows), budget, []
    first, rest = shares(budget, TOTAL_SHARE)
    measured = vector.measure(total(vector.size), spend=first)
    return max(1.0, float(measured.values[0])), rest, [measured]
