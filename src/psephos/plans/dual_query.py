"""DualQuery: a game between queries and records (Gaboardi et al. 2014, Algorithm 1).

In every round the query player draws s queries that the records so far undercount, privately, and
the data player answers with a record that satisfies as many of them as it can find, in copies that
differ in what the drawn queries do not decide (psephos.plans.free_values). The records are the
estimate: each stands for an equal share of the rows. No vector of cells is needed, nor a table
of counts: only the queries' counts, which stay in the kernel.

**What it costs.** A draw of round t spends (t - 1)·u in epsilon, u being twice the learning rate η
over the number of rows n (for persons with up to k rows, over n/k); round 1 is drawn from public
randomness and is free. T rounds of s draws together book, as exponential mechanisms do,

    ρ = s u² (1² + … + (T - 1)²) / 8 = s u² (T - 1) T (2T - 1) / 48.

Noisy counts of all values, before the first round, are a tenth of the whole. Copies of a record
cost nothing: they enter the kernel's sums as so many records, at a rate that is smaller by as much.
The paper's own Theorem 4.1 prices the same game at (4ηT √(2sT ln(1/δ))/n, δ), several times more.

**What it is worth.** Theorem 4.2 promises an error α only for far more rounds than are played here,
so none is promised. On generated tables of 10⁴ to 5·10⁵ rows η = 5/2 was near the best at all
budgets, and so were s = 50 up to some 130 rounds and s ≈ T³/40,000 beyond: where a budget is large,
more rounds of few draws learn nothing (`python -m benchmarks.dual_query rounds`, and KDD99 in
benchmarks/README.md). T follows: sT³ ≈ 6ρn²/η².
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, get_args

import numpy as np
from numpy.random import Generator

from psephos.domain.conjunctions import Conjunctions
from psephos.errors import BudgetError, WorkloadError, checked_whole, name_list
from psephos.infer.estimate import Estimate
from psephos.infer.records import RecordEstimate
from psephos.kernel.budget import Budget, exact
from psephos.kernel.conversion import delta_bound
from psephos.kernel.unit import Unit
from psephos.plans.best_response import (
    BestResponse,
    DrawnQueries,
    LocalSearch,
    SolverImproved,
    with_free_cells,
)
from psephos.plans.free_values import (
    COUNTS_SHARE,
    CheapPolicy,
    FreePolicy,
    ValueShares,
    counts_pay,
    free_cells,
)
from psephos.plans.registry import plan
from psephos.plans.session import PlanVector
from psephos.values import Array
from psephos.workload.workload import Workload

DRAWS_A_ROUND, LEARNING_RATE = 50, Fraction(5, 2)
FEWEST_ROUNDS, MOST_GAME_ROUNDS = 5, 1000
MOST_GAME_DRAWS, MOST_GAME_QUERIES = 1000, 500_000
ROOT_SCALE = 1 << 40
MOST_COPIES, RECORD_CODES, MOST_RECORD_CODES = 64, 1 << 24, 1 << 28
"""Records of a round, and the codes of all records of a game, which a bundle holds: by default,
and at most."""
DRAWS_OF_WORTH = 100
"""A value is kept for one drawn query in so many, and for more than one in any case."""
OUTLINE_DELTA = "1e-6"
"""At which a game's epsilon is told to people."""


@dataclass(frozen=True)
class GameParameters:
    """How a game is played: T rounds of s draws, at a learning rate, for so many rows.

    `unit_spend` is the epsilon of a single draw in round 2; one in round t spends t - 1 times that.
    """

    rows: int
    rounds: int
    draws: int
    unit_spend: Fraction
    max_rows: int = 1
    """Of a person; 1 where rows are protected."""

    @classmethod
    def solved(
        cls,
        rows: int,
        *,
        budget: Budget | None = None,
        rounds: int | None = None,
        draws: int | None = None,
        learning_rate: Any = None,
        max_rows: int = 1,
    ) -> GameParameters:
        """The parameters that fit together, of which those that are not given are worked out.

        With a budget, what is left open follows: the learning rate if rounds are given, else the
        rounds. Without one, all three others are needed, and `rho` is what they cost.

        Args:
            rows: the declared number of rows
            budget: in rho; `epsilon_delta(...)` gives the rho of a pair
            rounds: T
            draws: s, how many queries are drawn in a round
            learning_rate: η, text such as "2.5"
            max_rows: the most rows of a person

        >>> import psephos as ps
        >>> game = GameParameters.solved(30_162, budget=ps.epsilon_delta("1", "0.001"))
        >>> game.rounds, game.draws, round(game.learning_rate, 2)
        (101, 50, 2.53)
        >>> game.at_delta("0.001")                     # never more than was asked for
        epsilon 1
        >>> round(game.by_theorem("0.001"), 1)         # the paper's own accounting
        8.9
        """
        rows = checked_whole(rows, "rows", 1)
        max_rows = checked_whole(max_rows, "max_rows", 1)
        if rounds is not None:
            rounds = checked_whole(rounds, "rounds", 2)
        if draws is not None:
            draws = checked_whole(draws, "draws", 1)
        rate = None if learning_rate is None else exact(learning_rate, "learning_rate")
        unit = None if rate is None else 2 * rate * max_rows / rows
        if budget is None:
            if rounds is None or draws is None or unit is None:
                raise BudgetError(
                    "without a budget, give rounds, draws and learning_rate; the game's rho "
                    "follows from them"
                )
            return cls(rows, rounds, draws, unit, max_rows)
        _check_rho(budget)
        if rounds is not None and unit is not None and draws is None:
            draws = int(48 * budget.amount / (unit**2 * _squares(rounds)))
            if draws < 1:
                raise BudgetError(
                    f"{rounds} rounds at a learning rate of {float(rate or 0):g} cost more than "
                    f"{budget} with a single draw each; take fewer rounds, or leave one of them out"
                )
        if rounds is None:
            unit = unit or 2 * LEARNING_RATE * max_rows / rows
            squares = 48 * budget.amount / unit**2
            draws = fitting_draws(squares) if draws is None else draws
            rounds = _affordable_rounds(squares / draws)
            if rounds < FEWEST_ROUNDS:
                raise BudgetError(
                    f"{budget} for {rows:,} rows allows {rounds} round{'s' * (rounds > 1)} of "
                    f"{draws} draws, too few to learn anything; spend more, or insist with "
                    "rounds = ... (in a release file [method] options, under its name)"
                )
            rounds = min(rounds, MOST_GAME_ROUNDS)
        draws = DRAWS_A_ROUND if draws is None else draws
        if unit is not None and draws * unit**2 * _squares(rounds) / 48 > budget.amount:
            raise BudgetError(
                f"{rounds} rounds of {draws} draws at a learning rate of {float(rate or 0):g} "
                f"cost more than {budget}; leave one of the three out"
            )
        unit = _root_below(48 * budget.amount / (draws * _squares(rounds)))
        return cls(rows, rounds, draws, unit, max_rows)

    @property
    def learning_rate(self) -> float:
        """The paper's η."""
        return float(self.unit_spend * self.rows / (2 * self.max_rows))

    @property
    def rho(self) -> Budget:
        """What the game costs."""
        amount = self.draws * self.unit_spend**2 * _squares(self.rounds) / 48
        return Budget("rho", Fraction(amount))

    def spend(self, round_: int) -> Budget:
        """The epsilon of all draws of a round, from the second on."""
        return Budget("epsilon", self.draws * self.unit_spend * (round_ - 1))

    def at_delta(self, delta: Any) -> Budget:
        """The epsilon that the game costs at a delta."""
        return self.rho.at_delta(delta)

    def delta_at(self, epsilon: Any) -> float:
        """The delta at which the game costs an epsilon."""
        return float(delta_bound(self.rho.amount, exact(epsilon, "epsilon")))

    def by_theorem(self, delta: Any) -> float:
        """The epsilon that the paper's Theorem 4.1 states for the same game, for comparison."""
        log = math.log(1 / float(exact(delta, "delta")))
        steps = math.sqrt(2 * self.draws * self.rounds * log)
        return 4 * self.learning_rate * self.max_rows * self.rounds * steps / self.rows

    def __str__(self) -> str:
        return (
            f"{self.rounds} rounds of {self.draws} draws at a learning rate of "
            f"{self.learning_rate:.3g} for {self.rows:,} rows"
        )


def _check_rho(budget: Budget) -> None:
    if budget.currency != "rho":
        raise BudgetError(
            f"DualQuery is paid in rho, got {budget}: hundreds of rounds add up to a large "
            'epsilon and to a small rho; take ps.epsilon_delta("1", "1e-6"), in a release file '
            "[budget] epsilon and delta, and a ledger in rho"
        )


def _squares(rounds: int) -> int:
    """Six times 1² + … + (T - 1)²."""
    return (rounds - 1) * rounds * (2 * rounds - 1)


def fitting_draws(squares: Fraction) -> int:
    """How many draws a round has, of a budget for so many draws times (T - 1)T(2T - 1).

    About T³/40,000: the more rounds there are, the more each is worth drawing for.
    """
    return max(DRAWS_A_ROUND, min(math.isqrt(int(squares / 80_000)), MOST_GAME_DRAWS))


def _affordable_rounds(squares: Fraction) -> int:
    """The most rounds T ≥ 1 with (T - 1)T(2T - 1) at most this."""
    rounds = 1
    while _squares(2 * rounds) <= squares:
        rounds *= 2
    step = rounds
    while step > 1:
        step //= 2
        if _squares(rounds + step) <= squares:
            rounds += step
    return rounds


def _root_below(square: Fraction) -> Fraction:
    """A fraction whose square is at most this, by less than a part in 10¹²."""
    scale = ROOT_SCALE
    while square * scale * scale < ROOT_SCALE * ROOT_SCALE:
        scale *= 2
    return Fraction(math.isqrt(int(square * scale * scale)), scale)


def game_outline(workload: Workload, budget: Budget, unit: Unit, options: Mapping[str, Any]) -> str:
    """What is counted, how a game will be played, and what it costs by either accounting."""
    if options.get("rows") is None:
        return ""
    names = ("rounds", "draws", "learning_rate")
    given = {name: options[name] for name in names if options.get(name) is not None}
    attributes = attributes_of(workload)
    counting, game = _priced(
        int(options["rows"]), budget, unit, options.get("free"), len(attributes), **given
    )
    spent = game.rho if counting is None else game.rho + counting
    eps = float(spent.at_delta(OUTLINE_DELTA).amount)
    paper = game.by_theorem(OUTLINE_DELTA)
    first = last = ""
    if counting is not None:
        share = f"{float(COUNTS_SHARE):.0%}".replace("%", " %")
        first = f"noisy counts of the values of {len(attributes):,} attributes for {share}, then "
        last = " for the rounds alone"
    return (
        f"{first}{game}: epsilon {eps:.3g} at delta {OUTLINE_DELTA} by zCDP, where the paper's "
        f"Theorem 4.1 has {paper:.3g}{last}"
    )


@plan(
    "DualQuery",
    signature="SM LM I:(SQ BR)",
    reference="Gaboardi et al. 2014",
    adaptive=True,
    most_cells=None,
    outline=game_outline,
)
def dual_query(
    vector: PlanVector,
    workload: Workload,
    budget: Budget,
    *,
    rows: int | None = None,
    queries: int | Conjunctions = MOST_GAME_QUERIES,
    rounds: int | None = None,
    draws: int | None = None,
    learning_rate: str | None = None,
    free: FreePolicy | None = None,
    copies: int | None = None,
    response: BestResponse | None = None,
) -> Estimate:
    """Tables of very many attributes, of which few records tell the frequent combinations.

    Args:
        vector: the data
        workload: whose tables' cells are the queries, or some of them
        budget: in rho
        rows: the declared number of rows
        queries: the most queries to play with, drawn evenly if there are more; or the queries
        rounds: T, worked out from the budget where it is not given
        draws: s, 50 or more where it is not given, by what the budget allows
        learning_rate: η, text such as "2.5"
        free: what attributes get that drawn queries do not decide: values "drawn" by noisy counts
            of them, for which a tenth of the budget is spent; what they have in an "earlier" record
            (and once in a while any value); "uniform" values; or the "first". Left out, it is
            "drawn" where so much buys counts within a quarter of all rows; else "earlier" where
            most attributes are named in a round, and "first" where few are: tables of so many
            attributes are mostly zeros
        copies: records of each round, which differ in drawn values; up to 64 if left out
        response: how a record is searched for; local search by default
    """
    if rows is None:
        raise WorkloadError(
            "DualQuery needs the number of rows, declared as public: total = ... in a release file "
            "or in ps.synthesize, rows = ... in ps.plans.run"
        )
    whole = int(rows) if isinstance(rows, float) and rows == int(rows) else rows
    whole = checked_whole(whole, "rows", 1)
    if free not in (None, *get_args(FreePolicy)):
        raise WorkloadError(f"free is one of {name_list(list(get_args(FreePolicy)))}, got {free!r}")
    game_queries = queries_of(workload, queries, vector.public_random("queries"))
    attributes = np.array(attributes_of(game_queries if queries is game_queries else workload))
    given = {"rounds": rounds, "draws": draws, "learning_rate": learning_rate}
    counting, parameters = _priced(whole, budget, vector.unit, free, attributes.size, **given)
    rounds, draws, width = parameters.rounds, parameters.draws, len(vector.domain)
    copies = _copies(copies, rounds * width)
    generator, sizes = vector.public_random("records"), np.array(vector.domain.shape)
    few = width <= game_queries.ways * draws
    policy: CheapPolicy
    if free is None or free == "drawn":
        policy = "uniform" if counting is not None and few else "earlier" if few else "first"
    else:
        policy = free
    vector.expect(rounds if counting is not None else rounds - 1)
    shares = None
    if counting is not None:
        counts = vector.count_values(attributes, spend=counting)
        shares = ValueShares.of(attributes, sizes[attributes], counts, whole)
    game = vector.play(game_queries, whole)

    def answer(drawn: DrawnQueries) -> Array:
        """The records of a round."""
        if shares is None:
            cells = free_cells(policy, game.records if policy == "earlier" else (), generator)
            search = SolverImproved(LocalSearch(free=cells)) if response is None else response
            return search(drawn, sizes, generator)[None]
        record = (SolverImproved() if response is None else response)(drawn, sizes, generator)
        free_records = shares.records(copies, sizes, policy, generator)
        return with_free_cells(drawn, record, free_records, sizes, least_worth(draws))

    numbers = vector.public_random("round 1").integers(2 * len(game_queries), size=draws)
    for round_ in range(2, rounds + 1):
        records = answer(drawn_queries(game_queries, numbers))
        numbers = game.draw(records, draws, spend=parameters.spend(round_))
    records = np.concatenate([game.records, answer(drawn_queries(game_queries, numbers))])
    return RecordEstimate(vector.domain, records, float(whole), vector.simulation)


def _priced(
    rows: int,
    budget: Budget,
    unit: Unit,
    free: FreePolicy | None,
    attributes: int,
    **given: Any,
) -> tuple[Budget | None, GameParameters]:
    """What counts of values are paid with, None where there are none, and the game for the rest."""
    _check_rho(budget)
    if free != "drawn" and (free is not None or not counts_pay(budget, unit, attributes, rows)):
        return None, GameParameters.solved(rows, budget=budget, max_rows=unit.max_rows, **given)
    counting = budget * COUNTS_SHARE
    playing = budget - counting
    try:
        game = GameParameters.solved(rows, budget=playing, max_rows=unit.max_rows, **given)
    except BudgetError as error:
        raise BudgetError(
            f'{error}. Of {budget} {counting} is for counts of values; free = "earlier" does '
            "without them"
        ) from None
    return counting, game


def _copies(copies: int | None, codes: int) -> int:
    """How many records a round has, in a game of so many codes with one record a round."""
    if copies is None:
        return max(1, min(MOST_COPIES, RECORD_CODES // codes))
    most = max(1, min(MOST_COPIES, MOST_RECORD_CODES // codes))
    if checked_whole(copies, "copies", 1) > most:
        raise WorkloadError(
            f"copies is at most {most} for so many rounds and attributes, got {copies:,}"
        )
    return copies


def least_worth(draws: int) -> Fraction:
    """How many drawn queries a value has to satisfy to count for more than chance.

    >>> least_worth(50), least_worth(500)
    (Fraction(1, 2), Fraction(1, 1))
    """
    return min(Fraction(draws, DRAWS_OF_WORTH), Fraction(1))


def attributes_of(queries: Workload | Conjunctions) -> list[int]:
    """The attributes that queries name, by their numbers."""
    if isinstance(queries, Conjunctions):
        named = np.unique(queries.attributes)
        return [int(axis) for axis in named if axis >= 0]
    kinds = (queries.kron(i).active for i in range(len(queries.products)))
    return sorted({axis for active in kinds for axis, _ in active})


def drawn_queries(queries: Conjunctions, numbers: Array) -> DrawnQueries:
    """Queries by their numbers; the second half of all numbers stands for negations."""
    return DrawnQueries(queries.take(numbers % len(queries)), numbers >= len(queries))


def queries_of(
    workload: Workload, queries: int | Conjunctions, generator: Generator
) -> Conjunctions:
    """Every cell of the tables that a workload names, or so many of them, drawn evenly.

    >>> import psephos as ps
    >>> from numpy.random import default_rng
    >>> tables = ps.marginals(ps.Domain.of(a=2, b=3, c=2), k=2)
    >>> len(queries_of(tables, 100, default_rng(0)))
    16
    """
    if isinstance(queries, Conjunctions):
        queries.check(workload.domain)
        if not len(queries):
            raise WorkloadError("there is no query to play with; give at least one conjunction")
        return queries
    most = checked_whole(queries, "queries", 1)
    shape = workload.domain.shape
    factors = (workload.kron(i).active for i in range(len(workload.products)))
    tables = [t for t in dict.fromkeys(tuple(axis for axis, _ in some) for some in factors) if t]
    if not tables:
        raise WorkloadError(
            "the workload asks for the total alone, which is declared; give tables, or queries"
        )
    sizes = [math.prod(shape[axis] for axis in axes) for axes in tables]
    chosen = _chosen_cells(sizes, most, generator)
    width = max(map(len, tables))
    attributes, values = [], []
    for axes, cells in zip(tables, chosen, strict=True):
        if not cells.size:
            continue
        codes = np.stack(np.unravel_index(cells, [shape[axis] for axis in axes]), axis=1)
        padding = ((0, 0), (0, width - len(axes)))
        values.append(np.pad(codes, padding))
        attributes.append(np.pad(np.tile(axes, (cells.size, 1)), padding, constant_values=-1))
    return Conjunctions(np.concatenate(attributes), np.concatenate(values))


def _chosen_cells(sizes: list[int], most: int, generator: Generator) -> list[Array]:
    """For each table the numbers of cells to ask about: all, or `most` in all, evenly drawn."""
    total = sum(sizes)
    if total <= most:
        return [np.arange(size) for size in sizes]
    if total >= 1 << 62:
        raise WorkloadError(
            "the tables have over 2^62 cells; ask about fewer attributes at a time, or give "
            "queries as Conjunctions"
        )
    places = np.zeros(0, dtype=np.int64)
    while places.size < most:
        more = generator.integers(total, size=2 * most)
        places = np.concatenate([places, more])
        places = places[np.sort(np.unique(places, return_index=True)[1])]
    places = np.sort(places[:most])
    ends = np.cumsum(sizes)
    parts = np.split(places, np.searchsorted(places, ends[:-1]))
    return [part - start for part, start in zip(parts, [0, *ends[:-1]], strict=True)]
