"""Best responses are valid records, the same every time, and the best where that can be known."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from psephos.domain.conjunctions import Conjunctions
from psephos.domain.domain import Domain
from psephos.errors import ShapeError, WorkloadError
from psephos.plans.best_response import (
    DrawnQueries,
    LocalSearch,
    SolverImproved,
    _colours,
    with_free_cells,
)
from psephos.plans.best_response import _Clauses as Clauses

SEARCHES = {
    "local": LocalSearch(),
    "one start": LocalSearch(starts=1, throws=0),
    "solver": SolverImproved(LocalSearch(starts=1, throws=0), nodes=10**6, most_queries=10**6),
}
every_search = pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES)


@st.composite
def draws(draw):
    """Sizes, and drawn queries of up to three attributes; some are there twice, or both ways."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    rows = []
    for _ in range(draw(st.integers(0, 12))):
        axes = draw(st.sets(st.integers(0, len(sizes) - 1), min_size=1, max_size=3))
        rows.append({f"a{a}": draw(st.integers(0, sizes[a] - 1)) for a in axes})
    rows += rows[: draw(st.integers(0, 2))]
    domain = Domain.of({f"a{i}": n for i, n in enumerate(sizes)})
    negated = draw(st.lists(st.booleans(), min_size=len(rows), max_size=len(rows)))
    return sizes, DrawnQueries(Conjunctions.of(domain, rows), negated)


def most(sizes, drawn):
    records = np.array(list(itertools.product(*map(range, sizes))))
    return int(drawn.satisfied(records).max())


def valid(record, sizes):
    return record.shape == (len(sizes),) and ((record >= 0) & (record < np.array(sizes))).all()


@every_search
@settings(max_examples=30)
@given(case=draws(), seed=st.integers(0, 9), free=st.sampled_from(["first", "uniform", "codes"]))
def test_a_valid_record_the_same_every_time(search, case, seed, free):
    sizes, drawn = case
    policy = np.array(sizes) - 1 if free == "codes" else free
    local = LocalSearch(3, 2, free=policy)
    search = local if isinstance(search, LocalSearch) else SolverImproved(local, most_queries=99)
    first, second = (search(drawn, sizes, np.random.default_rng(seed)) for _ in range(2))
    assert valid(first, sizes)
    np.testing.assert_array_equal(first, second)


@settings(max_examples=40)
@given(case=draws())
def test_the_solver_comes_to_the_best(case):
    sizes, drawn = case
    record = SEARCHES["solver"](drawn, sizes, np.random.default_rng(0))
    assert drawn.satisfied(record)[0] == most(sizes, drawn)


@settings(max_examples=40)
@given(case=draws())
def test_many_starts_come_to_the_best_of_few_records(case):
    sizes, drawn = case
    record = LocalSearch(starts=64)(drawn, sizes, np.random.default_rng(0))
    assert drawn.satisfied(record)[0] == most(sizes, drawn)


def sample(number, ways=3, attributes=40, seed=0):
    domain = Domain.binary(attributes)
    some = Conjunctions.sampled(domain, ways=ways, number=number, seed=seed)
    negated = np.random.default_rng(seed).random(number) < 0.5
    return domain.shape, DrawnQueries(some, negated)


def test_the_solver_does_not_make_it_worse():
    for seed in range(4):
        sizes, drawn = sample(60, seed=seed)
        scores = [
            int(drawn.satisfied(search(drawn, sizes, np.random.default_rng(0)))[0])
            for search in (LocalSearch(1, 0), SolverImproved(LocalSearch(1, 0), nodes=10**4))
        ]
        assert scores[0] <= scores[1]


def test_starts_and_throws_pay():
    scores = {"one": 0, "many": 0}
    for seed in range(6):
        sizes, drawn = sample(300, attributes=60, seed=seed)
        for name, search in (("one", LocalSearch(1, 0)), ("many", LocalSearch())):
            record = search(drawn, sizes, np.random.default_rng(0))
            scores[name] += int(drawn.satisfied(record)[0])
    assert scores["one"] < scores["many"]


def test_the_wrong_sign_is_seen():
    """A test of the tests: the record that avoids the drawn queries satisfies far fewer."""
    sizes, drawn = sample(80)
    turned = DrawnQueries(drawn.conjunctions, ~drawn.negated)
    best, worst = (
        int(drawn.satisfied(LocalSearch()(each, sizes, np.random.default_rng(0)))[0])
        for each in (drawn, turned)
    )
    assert best > 50
    assert worst < 30


def test_policies_for_free_attributes():
    sizes = [3] * 400
    drawn = DrawnQueries(Conjunctions([[7, 8]], [[2, 1]]), [False])
    generator = np.random.default_rng(0)
    first = LocalSearch()(drawn, sizes, generator)
    assert first[[7, 8]].tolist() == [2, 1]
    assert np.flatnonzero(first).tolist() == [7, 8]
    uniform = LocalSearch(free="uniform")(drawn, sizes, generator)
    assert np.bincount(uniform).min() > 90
    codes = np.arange(400) % 3
    chosen = LocalSearch(free=codes)(drawn, sizes, generator)
    assert np.delete(chosen, [7, 8]).tolist() == np.delete(codes, [7, 8]).tolist()
    for wrong in ([0, 1], np.full(400, 3), np.full(400, -1)):
        with pytest.raises(WorkloadError, match="one cell for each of 400"):
            LocalSearch(free=wrong)(drawn, sizes, generator)
    with pytest.raises(WorkloadError, match='"first", "uniform" or a list'):
        LocalSearch(free="last")
    assert LocalSearch(free=codes) == LocalSearch(free=codes.tolist())


def test_a_value_that_nobody_names_is_taken_where_all_named_ones_are_refused():
    drawn = DrawnQueries(Conjunctions([[0], [0]], [[0], [1]]), [True, True])
    for search in SEARCHES.values():
        assert search(drawn, [4], np.random.default_rng(0)).tolist() == [2]
    again = LocalSearch(free=[3])(drawn, [4], np.random.default_rng(0))
    assert again.tolist() == [3]


def test_half_a_million_attributes():
    sizes = np.full(512_000, 2)
    some = Conjunctions.sampled(Domain.binary(512_000), ways=3, number=100, seed=0)
    drawn = DrawnQueries(some, np.arange(100) % 2 == 0)
    record = SolverImproved()(drawn, sizes, np.random.default_rng(0))
    assert record.shape == (512_000,)
    assert drawn.satisfied(record)[0] == 100


@given(case=draws())
def test_attributes_that_move_together_share_no_query(case):
    sizes, drawn = case
    problem = Clauses.of(drawn, np.array(sizes))
    groups = _colours(problem)
    members = [int(a) for group in groups for a in group]
    assert sorted(members) == list(range(problem.axes.size))
    for group in groups:
        clauses = problem.clause[np.isin(problem.attribute, group)]
        assert len(clauses) == len(set(clauses.tolist()))


def test_what_does_not_fit_is_refused():
    drawn = DrawnQueries(Conjunctions([[3]], [[2]]), [False])
    with pytest.raises(ShapeError, match="names attribute 3 of 2"):
        LocalSearch()(drawn, [2, 2], np.random.default_rng(0))
    with pytest.raises(ShapeError, match="does not have"):
        LocalSearch()(drawn, [2] * 4, np.random.default_rng(0))
    with pytest.raises(ShapeError, match="as many signs"):
        DrawnQueries(Conjunctions([[3]], [[2]]), [False, True])


@st.composite
def answered_draws(draw):
    """Drawn queries, an answer to them, and copies of free cells."""
    sizes, drawn = draw(draws())
    cells = [st.integers(0, n - 1) for n in sizes]
    record, *free = ([draw(cell) for cell in cells] for _ in range(1 + draw(st.integers(1, 4))))
    return sizes, drawn, np.array(record), np.array(free)


@given(case=answered_draws(), worth=st.sampled_from(["0", "1/2", "1", "3"]))
def test_free_cells_are_taken_wherever_the_records_are_worth_no_more(case, worth):
    """What is kept loses more than that if it is freed, and copies have one or the other."""
    sizes, drawn, record, free = case
    worth = Fraction(worth)
    copies = with_free_cells(drawn, record, free, sizes, worth)
    assert ((copies == record) | (copies == free)).all()
    satisfied = int(drawn.satisfied(copies).sum())
    for axis in range(len(sizes)):
        other = copies.copy()
        other[:, axis] = free[:, axis]
        if (other != copies).any():
            loss = satisfied - int(drawn.satisfied(other).sum())
            assert loss > worth * len(free)
    np.testing.assert_array_equal(copies, with_free_cells(drawn, record, free, sizes, worth))


def test_a_query_that_was_drawn_once_decides_no_attribute():
    """Three attributes that only it names are freed together, those of one drawn twice are kept."""
    conjunctions = Conjunctions([[0, 1, 2], [3, 4, 5], [3, 4, 5]], np.ones((3, 3), dtype=int))
    drawn = DrawnQueries(conjunctions, [False] * 3)
    free = np.zeros((2, 7), dtype=int)
    record = np.array([1, 1, 1, 1, 1, 1, 1])
    copies = with_free_cells(drawn, record, free, [2] * 7, Fraction(1))
    assert copies.tolist() == 2 * [[0, 0, 0, 1, 1, 1, 0]]
    kept = with_free_cells(drawn, record, free, [2] * 7, Fraction(1, 2))
    assert kept.tolist() == 2 * [[1, 1, 1, 1, 1, 1, 0]]
