"""One round of DualQuery: exact draws, the right sign, and what a row can move."""

from decimal import Context, Decimal
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare

import psephos as ps
from psephos.domain.conjunctions import Conjunctions
from psephos.domain.domain import Domain
from psephos.errors import (
    BudgetError,
    BudgetExceededError,
    DomainError,
    PsephosError,
    RefusedError,
    ShapeError,
)
from psephos.kernel.budget import epsilon, rho
from psephos.kernel.ledger import Ledger
from psephos.kernel.recorded_ledger import RecordedLedger, RequestRecord
from psephos.kernel.replay import replayed
from psephos.kernel.scores import UndercountedQueries
from psephos.kernel.scores.dual_query import LARGEST_SCORE, _drawn, _weights
from psephos.kernel.scores.exponentials import falls_below, rounded_rate
from psephos.kernel.scores.mechanisms import Draws
from psephos.kernel.simulate import SeededDraws
from psephos.kernel.unit import add_remove_row, person, substitute_row
from psephos.protect import protect
from psephos.without_ledger import simulate

DOMAIN = Domain.of(sex=["F", "M"], smokes=["no", "yes"], region=3)
QUERIES = Conjunctions.every(DOMAIN, 2)
RECORDS = np.array([[0, 1, 2], [1, 1, 0]])


def held(queries, records):
    """In how many records each conjunction holds."""
    return queries.holds(records).sum(axis=1)


def exact_chances(counts, records, rows, rate):
    """Probabilities from the definition: exp(-λ Σ_t (n q(xᵗ) - c_q)), negations beside."""
    scores = rows * held(QUERIES, records) - len(records) * np.asarray(counts)
    exponents = np.concatenate([-scores, scores]) * rate
    weights = np.exp(exponents - exponents.max())
    return weights / weights.sum()


def check_frequencies(drawn, chances):
    observed, expected = np.bincount(drawn, minlength=chances.size), len(drawn) * chances
    likely = expected >= 5
    observed = np.append(observed[likely], observed[~likely].sum())
    expected = np.append(expected[likely], expected[~likely].sum())
    if expected[-1] < 1:
        assert observed[-1] <= 20
        observed, expected = observed[:-1], expected[:-1]
    assert chisquare(observed, expected * observed.sum() / expected.sum()).pvalue > 1e-6


@pytest.mark.parametrize("draws", [Draws(), SeededDraws(np.random.default_rng(3))])
@pytest.mark.parametrize("eps", ["1/2", "4", "400"])
def test_draws_have_their_probabilities(draws, eps):
    """By chi-square against the definition, on a tiny case."""
    counts = np.arange(len(QUERIES)) % 7
    number = 4000
    game = UndercountedQueries(QUERIES, RECORDS, 9, number).admitted(DOMAIN)
    drawn = game.draw(counts, Fraction(eps) * number, draws)
    rate = float(Fraction(eps)) / (2 * len(RECORDS))
    check_frequencies(drawn, exact_chances(counts, RECORDS, 9, rate))


def test_what_is_undercounted_is_drawn():
    """The sign: records that never hold a frequent query make it likely, and not its negation."""
    rows = 1000
    counts = np.full(len(QUERIES), rows // 2)
    missed, doubled = held(QUERIES, RECORDS) == 0, held(QUERIES, RECORDS) == 2
    assert missed.any()
    game = UndercountedQueries(QUERIES, RECORDS, rows, 200).admitted(DOMAIN)
    drawn = game.draw(counts, Fraction(200), Draws())
    plain = drawn[drawn < len(QUERIES)]
    assert plain.size > 0
    assert missed[plain].all()
    overcounted = drawn[drawn >= len(QUERIES)] - len(QUERIES)
    assert doubled[overcounted].all()


def test_bounds_decide_the_time_and_not_the_probabilities(monkeypatch):
    """Weights that are up to twice too large are made up for by drawing again."""
    from psephos.kernel.scores.exponentials import UNIT, UpperExponentials

    true = UpperExponentials.of

    def crude(self, numbers):
        upper = true(self, numbers)
        return upper._replace(mantissa=np.full_like(upper.mantissa, UNIT + 20))

    monkeypatch.setattr(UpperExponentials, "of", crude)
    gaps, rate = np.array([0, 1, 2, 5, 40, 400]), Fraction(1, 3)
    weights = np.exp(-gaps / 3)
    check_frequencies(_drawn(gaps, rate, 4000, Draws()), weights / weights.sum())


@pytest.mark.parametrize("rate", ["1/1000", "4", "6", "8", "12", "32"])
def test_the_largest_gaps_do_not_fail(rate):
    """Whether a draw succeeds must not depend on the counts: the farthest candidate included."""
    gaps = np.array([0, 2 * LARGEST_SCORE, LARGEST_SCORE, 1 << 55])
    assert set(_drawn(gaps, rounded_rate(Fraction(rate)), 20, Draws()).tolist()) == {0}


def test_far_candidates_are_judged_without_numbers_as_long_as_they_are_far(monkeypatch):
    """exp(-2⁵⁸) is compared with a few bits, not written out."""
    assert not falls_below(Fraction(1 << 58), 40, [(1, 1)], SeededDraws(np.random.default_rng(0)))


@given(
    gaps=st.lists(st.integers(0, 2 * LARGEST_SCORE) | st.integers(0, 100), min_size=1),
    rate=st.sampled_from(["1/1000", "1/3", "4", "32"]),
    bits=st.integers(30, 40),
)
def test_weights_are_above_and_close(gaps, rate, bits):
    """On both sides of the gap from which on all weights are 1."""
    edge = int(bits * Fraction(6931, 10000) / Fraction(rate))
    gaps = np.array([*gaps, *range(max(edge - 3, 0), edge + 4)])
    exactly = Context(prec=60)
    for gap, weight in zip(gaps.tolist(), _weights(gaps, Fraction(rate), bits), strict=True):
        gamma = Fraction(rate) * gap
        power = exactly.exp(-exactly.divide(Decimal(gamma.numerator), gamma.denominator))
        true = exactly.multiply(power, 2**bits)
        assert true <= int(weight) <= true * (1 + Decimal(2) ** -19) + 1


@pytest.mark.parametrize("candidates", [3, 1000, 1 << 23])
def test_weights_of_many_candidates_stay_in_64_bits(candidates):
    gaps = np.zeros(candidates, dtype=np.int64)
    drawn = _drawn(gaps, Fraction(1), 50, Draws())
    assert drawn.min() >= 0
    assert drawn.max() < candidates


@given(
    counts=st.lists(st.integers(0, 30), min_size=len(QUERIES), max_size=len(QUERIES)),
    moves=st.lists(st.integers(-1, 1), min_size=len(QUERIES), max_size=len(QUERIES)),
    eps=st.sampled_from(["1/2", "1", "3"]),
)
def test_a_draw_costs_its_epsilon(counts, moves, eps):
    """Exactly: counts that move by a row change no probability by more than exp(ε).

    And log-ratios lie in a range of ε, which is what ε²/8-zCDP rests on.
    """
    game = UndercountedQueries(QUERIES, RECORDS, 20, 1).admitted(DOMAIN)
    rate = float(Fraction(eps)) / (2 * len(RECORDS))
    ratios = []
    neighbours = np.maximum(np.array(counts) + np.array(moves), 0)
    chances = []
    for some in (np.array(counts), neighbours):
        scores = game.scores(some)
        exponents = np.concatenate([-scores, scores]) * rate
        weights = np.exp(exponents - exponents.max())
        chances.append(np.log(weights) - np.log(weights.sum()))
    ratios = chances[0] - chances[1]
    assert np.abs(ratios).max() <= float(Fraction(eps)) + 1e-9
    assert ratios.max() - ratios.min() <= float(Fraction(eps)) + 1e-9


@given(
    counts=st.lists(st.integers(0, 30), min_size=len(QUERIES), max_size=len(QUERIES)),
    place=st.integers(0, len(QUERIES) - 1),
)
def test_a_row_moves_a_score_by_the_number_of_rounds(counts, place):
    game = UndercountedQueries(QUERIES, RECORDS, 20, 1).admitted(DOMAIN)
    more = np.array(counts)
    more[place] += 1
    moved = game.scores(np.array(counts)) - game.scores(more)
    assert moved[place] in (0, len(RECORDS))
    assert np.count_nonzero(moved) <= 1


ROWS = "id,sex,smokes,region\n" + "".join(
    f"{i // 2},{'FM'[i % 2]},{'no' if i % 3 else 'yes'},{i % 3}\n" for i in range(60)
)


@pytest.fixture
def people(tmp_path):
    file = tmp_path / "people.csv"
    file.write_text(ROWS)

    def opened(unit, budget):
        place = tmp_path / "people.ledger"
        ledger = Ledger.create(place, dataset="people", unit=unit, budget=budget)
        return ledger, protect(str(file), DOMAIN, ledger=place)

    return opened


GAME = UndercountedQueries(QUERIES, RECORDS, 60, 8)


@pytest.mark.parametrize(
    ("unit", "reach"),
    [
        (add_remove_row(), 1),
        (substitute_row(), 1),
        (person("id", max_rows=2), 2),
        (person("id", max_rows=2, change="substitute"), 2),
    ],
)
def test_the_rate_is_per_row_that_counts_move(people, monkeypatch, unit, reach):
    """And a part of a split goes by the distance, since a row may leave one and enter another."""
    rates = []
    monkeypatch.setattr(
        UndercountedQueries,
        "draw",
        lambda self, counts, eps, draws: rates.append(eps) or np.zeros(8, np.int64),
    )
    _, table = people(unit, rho("10"))
    table.vectorise().draw_queries(GAME, spend=epsilon("1/2"), key="a")
    assert rates == [Fraction(1, 2) / reach]
    few = Conjunctions.every(DOMAIN.project(["smokes", "region"]), 2)
    part = table.where(ps.col("sex") == "F").split("sex")["F"].vectorise()
    game = UndercountedQueries(few, RECORDS[:, 1:], 60, 8)
    part.draw_queries(game, spend=epsilon("1/2"), key="b")
    assert rates[1] == Fraction(1, 2) / unit.distance


def test_counts_come_from_the_rows_that_are_there(people, monkeypatch):
    seen = []
    monkeypatch.setattr(
        UndercountedQueries,
        "draw",
        lambda self, counts, *_: seen.append(counts) or np.zeros(8, np.int64),
    )
    _, table = people(add_remove_row(), rho("10"))
    table.vectorise().draw_queries(GAME, spend=epsilon("1"), key="all")
    women = table.where(ps.col("sex") == "F").vectorise()
    women.draw_queries(GAME, spend=epsilon("1"), key="women")
    few = table.keep("region", "sex")
    asked = Conjunctions.every(few.domain, 2)
    game = UndercountedQueries(asked, np.array([[0, 0]]), 60, 8)
    few.vectorise().draw_queries(game, spend=epsilon("1"), key="few")
    rows = [line.split(",")[1:] for line in ROWS.splitlines()[1:]]
    codes = np.array([["FM".index(a), ["no", "yes"].index(b), int(c)] for a, b, c in rows])
    assert seen[0].tolist() == held(QUERIES, codes).tolist()
    assert seen[1].tolist() == held(QUERIES, codes[codes[:, 0] == 0]).tolist()
    assert seen[2].tolist() == held(asked, codes[:, [2, 0]]).tolist()


def test_records_are_those_of_the_round_whatever_was_asked_before(people, monkeypatch):
    """One more, other ones, fewer, and other queries: what is kept of a round is not taken over."""
    seen = []
    monkeypatch.setattr(
        UndercountedQueries,
        "draw",
        lambda self, *_: seen.append(self._tally.counts) or np.zeros(8, np.int64),
    )
    _, table = people(add_remove_row(), rho("10"))
    vector, few = table.vectorise(), QUERIES.take(np.arange(5, 0, -1))
    other = RECORDS[::-1]
    grown = np.vstack([RECORDS, RECORDS[:1]])
    rounds = [(QUERIES, RECORDS), (QUERIES, grown), (QUERIES, other), (few, other), (few, grown),
              (QUERIES, grown), (QUERIES, RECORDS[:1])]  # fmt: skip
    for i, (queries, records) in enumerate(rounds):
        game = UndercountedQueries(queries, records, 60, 8)
        vector.draw_queries(game, spend=epsilon("1"), key=f"round {i}")
    assert [told.tolist() for told in seen] == [held(*each).tolist() for each in rounds]


def test_what_a_ledger_books_for_a_round(people):
    """s draws at ε/s each: ε of a ledger in epsilon, s(ε/s)²/8 of one in rho."""
    ledger, table = people(substitute_row(), rho("1"))
    drawn = table.vectorise().draw_queries(GAME, spend=epsilon("2"), key="round 2")
    assert drawn.shape == (8,)
    assert ledger.remaining() == rho("1") - rho("1/16")
    again = table.vectorise().draw_queries(GAME, spend=epsilon("2"), key="round 2")
    assert again.tolist() == drawn.tolist()
    assert ledger.remaining() == rho("15/16")
    with pytest.raises(BudgetExceededError):
        table.vectorise().draw_queries(GAME, spend=epsilon("100"), key="round 3")


def test_what_a_ledger_in_epsilon_books(people):
    ledger, table = people(add_remove_row(), epsilon("3"))
    table.vectorise().draw_queries(GAME, spend=epsilon("2"), key="round 2")
    assert ledger.remaining() == epsilon("1")


@pytest.mark.parametrize(
    "other",
    [
        UndercountedQueries(QUERIES, RECORDS[::-1], 60, 8),
        UndercountedQueries(QUERIES, RECORDS, 61, 8),
        UndercountedQueries(QUERIES, RECORDS, 60, 7),
        UndercountedQueries(QUERIES.take(range(5)), RECORDS, 60, 8),
    ],
)
def test_a_key_stands_for_one_round(people, other):
    _, table = people(add_remove_row(), rho("1"))
    table.vectorise().draw_queries(GAME, spend=epsilon("1"), key="round 2")
    with pytest.raises(PsephosError):
        table.vectorise().draw_queries(other, spend=epsilon("1"), key="round 2")


class Likeness(UndercountedQueries):
    """A subclass could see counts in its own `draw`."""


def liar(name, field):
    parts = {"queries": QUERIES, "records": RECORDS, "rows": 60, "draws": 8, name: field}
    game = object.__new__(UndercountedQueries)
    for each, value in parts.items():
        object.__setattr__(game, each, value)
    return game


@pytest.mark.parametrize(
    "game",
    [
        Likeness(QUERIES, RECORDS, 60, 8),
        liar("queries", "all of them"),
        liar("records", RECORDS.astype(float)),
        liar("records", RECORDS[:0]),
        liar("records", [[0, 1, 2], [1, 1]]),
        liar("records", Likeness),
        liar("records", RECORDS[:, :2]),
        liar("records", RECORDS - 1),
        liar("records", RECORDS + 1),
        liar("records", RECORDS.astype(np.int64) << 40),
        liar("rows", 0),
        liar("rows", True),
        liar("rows", 60.0),
        liar("rows", 1 << 60),
        liar("draws", 0),
        liar("draws", 1 << 40),
        liar("queries", Conjunctions(np.array([[7]]), np.array([[0]]))),
        liar("queries", Conjunctions(np.zeros((0, 1), int), np.zeros((0, 1), int))),
        liar("records", np.broadcast_to(np.int64(0), (1 << 40, 3))),
        liar("queries", Conjunctions(np.array([[2]]), np.array([[3]]))),
        "a game",
    ],
)
def test_strange_rounds_are_refused_before_a_charge(people, game):
    ledger, table = people(add_remove_row(), rho("1"))
    with pytest.raises((RefusedError, ShapeError, DomainError, ps.WorkloadError)):
        table.vectorise().draw_queries(game, spend=epsilon("1"), key="round 2")
    assert ledger.remaining() == rho("1")


@pytest.mark.parametrize(
    "numbers",
    [np.zeros(7, np.int64), np.zeros(9, np.int64), np.full(8, 2 * len(QUERIES)), np.full(8, -1)],
)
def test_records_of_another_game_are_refused(numbers):
    """Whoever verifies a release reads what others have stored."""
    book = RecordedLedger(add_remove_row(), rho("1"), "people", [RequestRecord(None, "k", numbers)])
    vector = replayed(DOMAIN, book).vectorise()
    with pytest.raises(RefusedError, match="not 8 numbers of these queries"):
        vector.draw_queries(GAME, spend=epsilon("1"), key="k")


def test_a_round_that_nobody_admitted_has_no_scores():
    with pytest.raises(RefusedError, match="as the kernel has admitted it"):
        GAME.scores(np.zeros(len(QUERIES), np.int64))


def test_a_neighbour_at_zero_is_drawn_from_like_any_other(tmp_path):
    """A count of 0 behind the largest declared number of rows once made the request fail."""
    domain = Domain.of(sex=["F", "M"])
    file = tmp_path / "people.csv"
    file.write_text("sex\n" + "F\n" * 5)
    place = tmp_path / "people.ledger"
    Ledger.create(place, dataset="people", unit=add_remove_row(), budget=epsilon("20"))
    one = Conjunctions(np.array([[0]]), np.array([[1]]))
    game = UndercountedQueries(one, np.array([[1]]), LARGEST_SCORE, 1)
    vector = protect(str(file), domain, ledger=place).vectorise()
    assert vector.draw_queries(game, spend=epsilon("12"), key="k").tolist() == [1]


def test_domains_of_endless_values_are_refused_before_a_charge(tmp_path):
    domain = Domain.of(sex=["F", "M"], number=range(10**12))
    options = {"unit": add_remove_row(), "budget": epsilon("1"), "seed": 0}
    from psephos.kernel.replay import NoSource
    from psephos.kernel.simulate import simulation

    table = simulation(NoSource(), domain, **options)
    game = UndercountedQueries(Conjunctions(np.array([[0]]), np.array([[1]])), [[0, 0]], 9, 1)
    with pytest.raises(RefusedError, match="over 2\\^31 values"):
        table.vectorise().draw_queries(game, spend=epsilon("1"))
    assert "epsilon 1 left" in repr(table)


def test_only_tables_of_rows_are_played_on(people):
    ledger, table = people(add_remove_row(), rho("1"))
    vector = table.vectorise().transform(ps.matrix.Identity(DOMAIN.size))
    with pytest.raises(RefusedError, match="before a transform"):
        vector.draw_queries(GAME, spend=epsilon("1"))
    with pytest.raises(BudgetError, match="paid in epsilon"):
        table.vectorise().draw_queries(GAME, spend=rho("1"))
    assert ledger.remaining() == rho("1")


def test_a_simulation_repeats_by_its_seed():
    counts = np.arange(DOMAIN.size)
    options = {"unit": add_remove_row(), "budget": rho("1"), "seed": 4}
    first, second = (
        simulate(counts, DOMAIN, **options).vectorise().draw_queries(GAME, spend=epsilon("1"))
        for _ in range(2)
    )
    assert first.tolist() == second.tolist()
