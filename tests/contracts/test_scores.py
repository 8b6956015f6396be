"""Laws of all private searches, by scores or for partitions; one joins by a line in EXAMPLES."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psephos import matrix as mx
from psephos.domain.conjunctions import Conjunctions
from psephos.domain.domain import Domain
from psephos.errors import BudgetError, BudgetExceededError, RefusedError
from psephos.kernel.budget import RHO_OF_EPSILON, epsilon, rho
from psephos.kernel.ledger import Ledger
from psephos.kernel.scores import (
    PARTITIONS,
    SCORES,
    FarFromIndependent,
    NoisyIntervals,
    PrivTree,
    UndercountedQueries,
    WholePartitions,
    WorstApproximated,
)
from psephos.kernel.scores.mechanisms import MECHANISMS, Draws
from psephos.kernel.unit import FINEST_SPEND, add_remove_row
from psephos.protect import protect

CELLS = 5
WHOLE = st.integers(-3, 3)
LENGTHS = st.sampled_from(["aligned", "dyadic", "all"])
PENALTIES = st.one_of(st.none(), st.integers(0, 20))


def matrices(draw):
    rows = draw(st.integers(1, 4))
    entries = draw(st.lists(WHOLE, min_size=rows * CELLS, max_size=rows * CELLS))
    queries = np.array(entries).reshape(rows, CELLS)
    queries[0, 0] = 1  # a score that looks at nothing is refused
    return mx.Dense(queries)


@st.composite
def worst_approximated(draw):
    return WorstApproximated(matrices(draw), draw(st.lists(WHOLE, min_size=5, max_size=5)))


@st.composite
def far_from_independent(draw):
    tables = tuple(matrices(draw) for _ in range(draw(st.integers(1, 3))))
    guesses = [draw(st.lists(WHOLE, min_size=t.shape[0], max_size=t.shape[0])) for t in tables]
    return FarFromIndependent(tables, tuple(guesses))


EXAMPLES = {
    WorstApproximated: worst_approximated(),
    FarFromIndependent: far_from_independent(),
    WholePartitions: st.builds(WholePartitions, PENALTIES, LENGTHS),
    NoisyIntervals: st.builds(NoisyIntervals, PENALTIES, LENGTHS),
    PrivTree: st.just(PrivTree()),
}
EXAMPLE = {
    WorstApproximated: WorstApproximated(mx.Identity(CELLS), [0] * CELLS),
    FarFromIndependent: FarFromIndependent((mx.Identity(CELLS),) * 2, ([0] * CELLS, [9] * CELLS)),
    WholePartitions: WholePartitions(),
    NoisyIntervals: NoisyIntervals(),
    PrivTree: PrivTree(),
}
GAME = UndercountedQueries(Conjunctions([[0], [0]], [[1], [3]]), [[2], [3]], 10, 3)


def result(cells, search, **options):
    """What the handle gives for a search, as plain numbers."""
    if type(search) in SCORES:
        return cells.choose(search, **options)
    partition = cells.partition(search, **options)
    assert type(partition) is mx.Partition
    return partition.groups.tolist()


def test_every_search_is_here():
    assert set(EXAMPLES) == set(EXAMPLE) == set(SCORES) | set(PARTITIONS)


def each_of(kinds):
    return pytest.mark.parametrize("kind", kinds, ids=lambda kind: kind.__name__)


each_search = each_of(SCORES + PARTITIONS)


@each_of(SCORES)
@given(data=st.data())
def test_a_row_moves_no_score_further_than_it_says(kind, data):
    score = data.draw(EXAMPLES[kind]).admitted(CELLS)
    counts = np.array(data.draw(st.lists(st.integers(0, 9), min_size=CELLS, max_size=CELLS)))
    more = counts.copy()
    more[data.draw(st.integers(0, CELLS - 1))] += 1
    answers = ([table.matvec(x) for table in score.tables(CELLS)] for x in (counts, more))
    here, there = (score.scores(each) for each in answers)
    assert len(here) == len(there) >= 1
    moves = [abs(a - b) for a, b in zip(here, there, strict=True)]
    assert max(moves) <= score.sensitivity
    assert all(type(each) is int for each in here)


@each_of(PARTITIONS)
@given(data=st.data())
def test_intervals_cover_the_cells(kind, data):
    search = data.draw(EXAMPLES[kind]).admitted(CELLS)
    numbers = st.integers(-(2**70), 2**70) | st.integers(0, 9)
    counts = np.array(data.draw(st.lists(numbers, min_size=CELLS, max_size=CELLS)), object)
    spend = Fraction(data.draw(st.sampled_from(["1/1000000000000", "1/3", "7", "1000000000"])))
    lengths = search.draw([counts], spend, Draws())
    assert lengths.sum() == CELLS
    assert lengths.min() >= 1
    if getattr(search, "lengths", "all") != "all":
        assert all(length & (length - 1) == 0 for length in lengths.tolist())


@each_search
@given(data=st.data())
def test_what_is_admitted_is_the_kernel_s_own(kind, data):
    search = data.draw(EXAMPLES[kind])
    admitted = search.admitted(CELLS)
    assert type(admitted) is kind
    assert isinstance(admitted.parts[0], str)
    assert [table.shape[1] for table in admitted.tables(CELLS)] == [CELLS] * len(
        admitted.tables(CELLS)
    )
    if kind in SCORES:
        assert admitted.sensitivity >= 1
        assert not {id(t) for t in admitted.tables(CELLS)} & {id(t) for t in search.tables(CELLS)}
        with pytest.raises(Exception, match=r"cells|columns|numbers"):
            search.admitted(CELLS + 1)


@each_search
def test_its_mechanism_has_a_draw_and_a_price(kind):
    assert kind.mechanism in RHO_OF_EPSILON
    assert kind.mechanism in MECHANISMS or kind not in SCORES


@pytest.fixture
def vector(tmp_path, request):
    ledger = Ledger.create(
        tmp_path / "ledger", dataset="d", unit=add_remove_row(), budget=request.param
    )
    source = tmp_path / "x.csv"
    source.write_text("x\n" + "0\n" * 9 + "3\n")
    return ledger, protect(source, Domain.of(x=CELLS), ledger=ledger).vectorise()


@each_search
@pytest.mark.parametrize("vector", [epsilon("1"), rho("1")], indirect=True)
def test_a_result_is_charged_and_replayed(vector, kind):
    ledger, cells = vector
    spend = epsilon("1/2")
    first = result(cells, EXAMPLE[kind], spend=spend, key="k")
    price = ledger.spent()
    assert price == spend.booked(ledger.budget.currency, kind.mechanism)
    for _ in range(5):
        assert result(cells, EXAMPLE[kind], spend=spend, key="k") == first
    assert ledger.spent() == price
    with pytest.raises(BudgetError, match=r"paid in epsilon|cannot pay"):
        result(cells, EXAMPLE[kind], spend=rho("1/9"))
    with pytest.raises(BudgetExceededError):
        result(cells, EXAMPLE[kind], spend=epsilon("9"))
    assert ledger.spent() == price


@each_search
@pytest.mark.parametrize("vector", [epsilon("1")], indirect=True)
def test_a_crash_after_the_charge_pays_once(vector, kind, monkeypatch):
    ledger, cells = vector
    options = {"spend": epsilon("1/2"), "key": "k"}
    with monkeypatch.context() as broken:
        broken.setattr(kind, "draw", lambda *_: 1 / 0)
        with pytest.raises(Exception, match="failed inside"):
            result(cells, EXAMPLE[kind], **options)
    assert ledger.spent() == epsilon("1/2")
    first = result(cells, EXAMPLE[kind], **options)
    assert result(cells, EXAMPLE[kind], **options) == first
    assert ledger.spent() == epsilon("1/2")


EXTREMES = [f"1e{sign}{power}" for sign in "+-" for power in (40, 60, 61, 90, 100, 299)]


@pytest.mark.parametrize("vector", [epsilon("1e299")], indirect=True)
@pytest.mark.parametrize("amount", EXTREMES)
@each_of((*SCORES, *PARTITIONS, UndercountedQueries))
def test_an_extreme_spend_is_answered_or_not_charged(vector, kind, amount):
    """No noise is refused after the charge; far behind a stability, small spends are smaller."""
    ledger, cells = vector
    for handle in (cells, cells.transform(mx.Scaled(2**40, mx.Identity(CELLS)))):
        spent, options = ledger.spent(), {"spend": epsilon(amount), "key": f"k {handle is cells}"}
        refusal, asked = "", handle is cells or kind is not UndercountedQueries
        try:
            if kind is not UndercountedQueries:
                result(handle, EXAMPLE[kind], **options)
            elif asked:
                handle.draw_queries(GAME, **options)
        except BudgetError as error:
            refusal = str(error)
        assert ("2^-200 to 2^200 per row" in refusal) == bool(refusal)
        assert (ledger.spent() == spent) == (bool(refusal) or not asked)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("each", [FINEST_SPEND, 1 / FINEST_SPEND])
def test_mechanisms_draw_at_every_spend_that_is_admitted(mechanism, each):
    """Whichever a score is drawn by, for scores that move far."""
    for reach in (1, 2**63 * CELLS):
        assert Draws().choice([0, 9, 2**70], each, reach, mechanism) in range(3)


@each_search
@pytest.mark.parametrize("vector", [epsilon("1")], indirect=True)
def test_a_key_stands_for_one_request(vector, kind):
    """Another search, another field of it, or another way to use it is another request."""
    ledger, cells = vector
    options = {"spend": epsilon("1/9"), "key": "k"}
    result(cells, EXAMPLE[kind], **options)
    others = [search for search in EXAMPLE.values() if type(search) is not kind]
    if kind in (WholePartitions, NoisyIntervals):
        others += [kind(1), kind(lengths="all")]
    for other in others:
        with pytest.raises(BudgetError, match="key"):
            result(cells, other, **options)
    assert ledger.spent() == epsilon("1/9")


@each_search
@pytest.mark.parametrize("vector", [epsilon("1")], indirect=True)
def test_no_other_type_is_taken_for_it(vector, kind):
    class Equal(type):
        """Says yes to every question."""

        def __eq__(cls, other):
            return True

        def __hash__(cls):
            return hash(kind)

    ask = vector[1].choose if kind in SCORES else vector[1].partition
    for meta in (type, type("Meta", (Equal, type(kind)), {})):
        forged = object.__new__(kind)
        forged.__dict__.update(EXAMPLE[kind].__dict__)
        object.__setattr__(forged, "__class__", meta(kind.__name__, (kind,), {}))
        with pytest.raises(RefusedError, match="no rule to"):
            ask(forged, spend=epsilon("1/9"))
    other = PARTITIONS if kind in SCORES else SCORES
    with pytest.raises(RefusedError, match="no rule to"):
        ask(EXAMPLE[other[0]], spend=epsilon("1/9"))
    assert vector[0].spent().amount == Fraction(0)


@each_search
@pytest.mark.parametrize("vector", [epsilon("1")], indirect=True)
def test_methods_put_on_an_instance_are_not_called(vector, kind):
    """A frozen value has a __dict__, and what lies there would be found before its methods."""
    called = []
    search = object.__new__(kind)
    search.__dict__.update(EXAMPLE[kind].__dict__)
    for name in ("admitted", "scores", "parts", "sensitivity", "mechanism", "tables", "draw"):
        search.__dict__[name] = lambda *_: called.append(True)
    result(vector[1], search, spend=epsilon("1/9"))
    assert not called
    assert vector[0].spent() == epsilon("1/9")
