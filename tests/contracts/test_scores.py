"""Laws of all scores that private choices go by; a new score joins by one line in EXAMPLES."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from psephos import matrix as mx
from psephos.domain.domain import Domain
from psephos.errors import BudgetError, BudgetExceededError, RefusedError
from psephos.kernel.budget import RHO_OF_EPSILON, epsilon, rho
from psephos.kernel.ledger import Ledger
from psephos.kernel.scores import SCORES, WorstApproximated
from psephos.kernel.scores.mechanisms import MECHANISMS
from psephos.kernel.unit import add_remove_row
from psephos.protect import protect

CELLS = 5
WHOLE = st.integers(-3, 3)


@st.composite
def worst_approximated(draw):
    rows = draw(st.integers(1, 4))
    entries = draw(st.lists(WHOLE, min_size=rows * CELLS, max_size=rows * CELLS))
    queries = np.array(entries).reshape(rows, CELLS)
    queries[0, 0] = 1  # a score that looks at nothing is refused
    return WorstApproximated(mx.Dense(queries), draw(st.lists(WHOLE, min_size=5, max_size=5)))


EXAMPLES = {WorstApproximated: worst_approximated()}


def test_every_score_is_here():
    assert set(EXAMPLES) == set(SCORES)


def each_score(law):
    return pytest.mark.parametrize("kind", SCORES, ids=lambda kind: kind.__name__)(law)


@each_score
@given(data=st.data())
def test_a_row_moves_no_score_further_than_it_says(kind, data):
    score = data.draw(EXAMPLES[kind]).admitted(CELLS)
    counts = np.array(data.draw(st.lists(st.integers(0, 9), min_size=CELLS, max_size=CELLS)))
    more = counts.copy()
    more[data.draw(st.integers(0, CELLS - 1))] += 1
    here, there = (score.scores(score.queries.matvec(x)) for x in (counts, more))
    assert len(here) == len(there) >= 1
    moves = [abs(a - b) for a, b in zip(here, there, strict=True)]
    assert max(moves) <= score.sensitivity
    assert all(type(each) is int for each in here)


@each_score
@given(data=st.data())
def test_what_is_admitted_is_the_kernel_s_own(kind, data):
    score = data.draw(EXAMPLES[kind])
    admitted = score.admitted(CELLS)
    assert type(admitted) is kind
    assert admitted.queries is not score.queries
    assert admitted.sensitivity >= 1
    assert isinstance(admitted.parts[0], str)
    with pytest.raises(Exception, match=r"cells|columns|numbers"):
        score.admitted(CELLS + 1)


@each_score
def test_its_mechanism_has_a_draw_and_a_price(kind):
    assert kind.mechanism in MECHANISMS
    assert kind.mechanism in RHO_OF_EPSILON


@pytest.fixture
def vector(tmp_path, request):
    ledger = Ledger.create(
        tmp_path / "ledger", dataset="d", unit=add_remove_row(), budget=request.param
    )
    source = tmp_path / "x.csv"
    source.write_text("x\n" + "0\n" * 9 + "3\n")
    return ledger, protect(source, Domain.of(x=CELLS), ledger=ledger).vectorise()


def example(kind):
    return {WorstApproximated: WorstApproximated(mx.Identity(CELLS), [0] * CELLS)}[kind]


@each_score
@pytest.mark.parametrize("vector", [epsilon("1"), rho("1")], indirect=True)
def test_a_choice_is_charged_and_replayed(vector, kind):
    ledger, cells = vector
    spend = epsilon("1/2")
    first = cells.choose(example(kind), spend=spend, key="k")
    price = ledger.spent()
    assert price == spend.booked(ledger.budget.currency, kind.mechanism)
    assert cells.choose(example(kind), spend=spend, key="k") == first
    assert ledger.spent() == price
    with pytest.raises(BudgetError, match=r"paid in epsilon|cannot pay"):
        cells.choose(example(kind), spend=rho("1/9"))
    with pytest.raises(BudgetExceededError):
        cells.choose(example(kind), spend=epsilon("9"))
    assert ledger.spent() == price


@each_score
@pytest.mark.parametrize("vector", [epsilon("1")], indirect=True)
def test_no_other_type_is_taken_for_it(vector, kind):
    twin = type(kind.__name__, (kind,), {})
    forged = example(kind)
    object.__setattr__(forged, "__class__", twin)
    with pytest.raises(RefusedError, match="no rule for scoring by"):
        vector[1].choose(forged, spend=epsilon("1/9"))
    assert vector[0].spent().amount == Fraction(0)


@each_score
@pytest.mark.parametrize("vector", [epsilon("1")], indirect=True)
def test_methods_put_on_an_instance_are_not_called(vector, kind):
    """A frozen value has a __dict__, and what lies there would be found before its methods."""
    called = []
    score = example(kind)
    for name in ("admitted", "scores", "parts", "sensitivity", "mechanism"):
        score.__dict__[name] = lambda *_: called.append(True)
    vector[1].choose(score, spend=epsilon("1/9"))
    assert not called
    assert vector[0].spent() == epsilon("1/9")
