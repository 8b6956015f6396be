"""Records answer the requests that they were paid for, and nothing lies behind them."""

from fractions import Fraction

import numpy as np
import pandas as pd
import pytest

import psephos as ps
from psephos.kernel.recorded_ledger import RecordedLedger, RequestRecord
from psephos.kernel.replay import answered, replayed

DOMAIN = ps.Domain.of(age=8)
ROW, EPSILON = ps.add_remove_row(), ps.epsilon("1")


@pytest.fixture
def paid(tmp_path):
    """A real ledger with three kinds of charges, and what came of them."""
    source = tmp_path / "people.csv"
    source.write_text("age\n" + "\n".join(str(i % 5) for i in range(200)))
    ledger = ps.Ledger.create(tmp_path / "ledger", dataset="d", unit=ROW, budget=ps.epsilon("3"))
    vector = ps.protect(source, DOMAIN, ledger=ledger).vectorise()
    return ledger, [request(vector) for request in REQUESTS]


def measured(vector):
    return vector.measure(ps.matrix.Prefix(8), spend=EPSILON, key="a").values


def chosen(vector):
    score = ps.WorstApproximated(ps.matrix.Identity(8), np.zeros(8, dtype=np.int64))
    return np.array([vector.choose(score, spend=EPSILON, key="b")])


def cut(vector):
    partition = vector.partition(ps.WholePartitions(), spend=EPSILON, key="c")
    return np.bincount(partition.groups)


REQUESTS = [measured, chosen, cut]


def handle(ledger, values, **more):
    entries = {entry.key: entry for entry in ledger.history()}
    pairs = zip("abc", values, strict=True)
    records = [RequestRecord(entries[key].fingerprint, key, result) for key, result in pairs]
    book = RecordedLedger(ROW, ps.epsilon("3"), ledger.dataset_id, records)
    return replayed(DOMAIN, book, **more).vectorise()


def test_the_same_requests_get_the_same_answers(paid):
    ledger, values = paid
    spent = ledger.spent()
    vector = handle(ledger, values)
    for request, result in zip(REQUESTS, values, strict=True):
        np.testing.assert_array_equal(request(vector), result)
    assert ledger.spent() == spent


def test_the_noise_is_that_of_the_spend(paid):
    again = handle(*paid).measure(ps.matrix.Prefix(8), spend=EPSILON, key="a")
    assert again.noise == (ps.DiscreteLaplace(Fraction(8)),)
    assert not again.simulation


@pytest.mark.parametrize(
    "asked_otherwise",
    [
        lambda v: v.measure(ps.matrix.Prefix(8), spend=ps.epsilon("2"), key="a"),
        lambda v: v.measure(ps.matrix.Identity(8), spend=EPSILON, key="a"),
        lambda v: v.reduce(ps.matrix.Partition(range(8))).measure(
            ps.matrix.Prefix(8), spend=EPSILON, key="a"
        ),
        chosen,
    ],
)
def test_another_request_gets_nothing(paid, asked_otherwise):
    with pytest.raises(ps.RefusedError, match="request 1 was"):
        asked_otherwise(handle(*paid))


def test_another_state_of_the_data_gets_nothing(paid):
    with pytest.raises(ps.RefusedError, match="another query"):
        measured(handle(*paid, edition="2025"))


def test_there_is_nothing_beyond_the_records(paid):
    vector = handle(*paid)
    for request in REQUESTS:
        request(vector)
    with pytest.raises(ps.RefusedError, match="3 requests were answered, and this is one more"):
        measured(vector)


def test_there_are_no_counts_behind_it(paid):
    vector = handle(*paid)
    with pytest.raises(ps.RefusedError, match="no data behind"):
        vector._vault.tables([("age",)], ())
    with pytest.raises(ps.RefusedError, match="no data behind"):
        vector._vault.table()


def test_what_was_paid_for_is_within_the_budget(paid):
    vector = handle(*paid)
    for key in ("a", None):
        vector.check_budget(ps.epsilon("3"), key=key)
    with pytest.raises(ps.BudgetExceededError):
        vector.check_budget(ps.epsilon("7"), key="a")


def test_simulations_say_so():
    records = [RequestRecord(None, "a", np.arange(8))]
    book = RecordedLedger(ROW, EPSILON, "simulation", records)
    vector = replayed(DOMAIN, book, simulation=True).vectorise()
    assert vector.measure(ps.matrix.Identity(8), spend=EPSILON).simulation


def test_what_a_ledger_has_answered_is_read_without_data_and_nothing_else_is_charged(tmp_path):
    book = ps.Ledger.create(tmp_path / "l", dataset="d", unit=ROW, budget=ps.epsilon("4"))
    data = ps.protect(pd.DataFrame({"age": [1, 2, 2]}), DOMAIN, ledger=book, edition="2024")
    spend = ps.epsilon("1")
    first = data.vectorise().measure(ps.matrix.Identity(8), spend=spend, key="a")
    book = ps.Ledger.open(tmp_path / "l")
    again = answered(DOMAIN, book, edition="2024").vectorise()
    assert again.measure(ps.matrix.Identity(8), spend=spend, key="a").values.tolist() == (
        first.values.tolist()
    )
    for key in ("b", None):
        with pytest.raises(ps.RefusedError, match="nothing was answered under this key"):
            again.measure(ps.matrix.Identity(8), spend=spend, key=key)
    for other in (again, answered(DOMAIN, book, edition="2025").vectorise()):
        with pytest.raises(ps.LedgerError, match="belongs to another request"):
            other.measure(ps.matrix.Prefix(8), spend=spend, key="a")
    assert ps.Ledger.open(tmp_path / "l").spent() == spend
