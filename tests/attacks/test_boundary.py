"""Attacks on the kernel's boundary: each gets through or does not, the same on every machine.

Those that depend on an installation are in `psephos.audit.behaviour`. A kernel that is broken on
purpose lets them through.
"""

import copy
import pickle
from fractions import Fraction

import numpy as np
import pytest

import psephos.matrix as mx
from psephos.audit.stage import (
    CELLS_OF_ROWS,
    ONE,
    SILENCE,
    TABLE_CELLS,
    TABLE_DOMAIN,
    TRUE_COUNTS,
    GotThrough,
    open_table,
    protect_rows,
    require,
)
from psephos.errors import BudgetExceededError
from psephos.kernel.budget import epsilon
from psephos.kernel.ledger import Ledger
from psephos.kernel.noise import DiscreteLaplace
from psephos.kernel.query import Query
from psephos.kernel.scores import FarFromIndependent, WorstApproximated
from psephos.kernel.unit import add_remove_row
from tests.attacks.forgeries import require_nothing_spent, require_refusal
from tests.broken_rules import forget_stability, refund_charges

HANDLE_READERS = (
    np.asarray, np.sum, iter, list, len, bool, float, pickle.dumps, copy.copy, copy.deepcopy,
    lambda handle: handle[0], lambda handle: 1 in handle, lambda handle: np.ones(1) @ handle,
)  # fmt: skip
"""Ways to read an array or an entry out of an object."""


def scale(measurement):
    (noise,) = measurement.noise
    return noise.scale if isinstance(noise, DiscreteLaplace) else noise.variance


def test_floats_zero_negative_and_endless_amounts_are_refused(place):
    table, ledger = open_table(place, ONE)
    nan, infinity = float("nan"), float("inf")
    for amount in (0.1, -1, "-0.1", 0, "0", nan, infinity, "nan", "inf", "1/0", True, None, -0.5):
        require_refusal(f"epsilon({amount!r})", epsilon, amount)
    for forgery in (Fraction(-1), Fraction(0), 0.5, nan, infinity):
        spend = epsilon("1/2")
        object.__setattr__(spend, "amount", forgery)
        require_refusal(f"a spend forged to {forgery}", table.noisy_count, spend=spend)
    for number in (0.1, "0.1", 1, None):
        require_refusal(f"spend={number!r}", table.noisy_count, spend=number)
    require_nothing_spent(ledger)


def test_a_scaled_mask_pays_for_its_scale(place):
    factor = 10**6
    vector = open_table(place)[0].vectorise().transform(mx.Scaled(factor, mx.Identity(TABLE_CELLS)))
    measurement = vector.measure(mx.Identity(TABLE_CELLS), spend=epsilon("1/10"))
    require(scale(measurement) >= 10 * factor, "the noise of a scaled mask is not scaled")
    matches = (np.round(measurement.values / factor) == TRUE_COUNTS).sum()  # 5 in 100 by chance
    require(
        matches < TABLE_CELLS / 2,
        f"{matches} of {TABLE_CELLS} counts came back through a scaled mask",
    )


class LyingMatrix(mx.Dense):
    """A matrix that reports norms of zero, so that its noise would be zero."""

    def abs(self):
        return mx.Dense(np.zeros(self.shape, dtype=int))

    def sqr(self):
        return self.abs()

    def column_norms(self, p=2):
        return np.zeros(self.shape[1])


def test_a_matrix_that_lies_about_its_size_is_refused(place):
    table, ledger = open_table(place)
    vector, liar = table.vectorise(), LyingMatrix(1000 * np.eye(TABLE_CELLS, dtype=int))
    what = "a matrix that lies about itself"
    for matrix in (liar, mx.Stack((mx.Identity(TABLE_CELLS), liar)), mx.Scaled(2, liar)):
        require_refusal(what, vector.measure, matrix, spend=ONE)
        require_refusal(what, vector.measure, Query.of([(matrix, 1)]), spend=ONE)
        require_refusal(what, vector.transform, matrix)
    require_refusal(what, vector.choose, WorstApproximated(liar, TRUE_COUNTS), spend=ONE)
    require_refusal(what, vector.choose, FarFromIndependent((liar,), (TRUE_COUNTS,)), spend=ONE)
    require_nothing_spent(ledger)


def test_an_array_changed_after_its_check_has_no_effect(place):
    entries = np.eye(TABLE_CELLS, dtype=np.int64)
    matrix = mx.Dense(entries)
    vector = open_table(place)[0].vectorise().transform(matrix)
    for array in (entries, matrix.array):
        try:
            array.setflags(write=True)
            array *= 1000
        except ValueError:  # it cannot be made writeable, which is well
            continue
    values = vector.measure(mx.Identity(TABLE_CELLS), spend=SILENCE).values
    require(values.tolist() == TRUE_COUNTS.tolist(), "an array changed after its check was used")


def test_four_times_a_tenth_of_three_tenths(place):
    table, ledger = open_table(place, epsilon("0.3"))
    for _ in range(3):
        try:
            table.noisy_count(spend=epsilon("0.1"))
        except BudgetExceededError:
            raise GotThrough("0.1 was refused of 0.3, three times over") from None
    require_refusal("a fourth 0.1 of 0.3", table.noisy_count, spend=epsilon("0.1"))
    require_refusal("1e-9 of nothing", table.noisy_count, spend=epsilon("1e-9"))
    require(ledger.spent() == epsilon("0.3"), "three times 0.1 is not booked as 0.3")


def test_a_ledger_opened_again_remembers_what_was_spent(place):
    table, ledger = open_table(place, ONE)
    table.noisy_count(spend=epsilon("3/4"))
    second = Ledger.open(ledger.path)
    require(second.spent() == epsilon("3/4"), "a ledger forgot what was spent")
    second_table = protect_rows(TABLE_DOMAIN, CELLS_OF_ROWS, CELLS_OF_ROWS, second)
    require_refusal("more than is left", second_table.noisy_count, spend=epsilon("1/2"))
    options = {"dataset": "made up", "unit": add_remove_row(), "budget": ONE}
    require_refusal("a second budget", Ledger.create, ledger.path, **options)
    second.verify()


def test_a_key_used_twice_is_charged_once(place):
    table, ledger = open_table(place, ONE)
    vector = table.vectorise()
    first = vector.measure(mx.Identity(TABLE_CELLS), spend=epsilon("1/2"), key="one")
    second = vector.measure(mx.Identity(TABLE_CELLS), spend=epsilon("1/2"), key="one")
    require(
        first.values.tolist() == second.values.tolist(), "a key was answered twice, differently"
    )
    require(ledger.spent() == epsilon("1/2"), "a replay was not free, or its first run was")
    half = epsilon("1/2")
    require_refusal(
        "a new use of a key", vector.measure, mx.total(TABLE_CELLS), spend=half, key="one"
    )


def test_handles_are_not_listed_copied_pickled_or_turned_into_arrays(place):
    table, _ = open_table(place)
    for handle in (table, table.vectorise()):
        for reader in HANDLE_READERS:
            name = getattr(reader, "__name__", "looking")
            require_refusal(f"{name} of a handle", reader, handle)
        for name in (name for name in dir(handle) if not name.startswith("_")):
            value = getattr(handle, name)
            require(not isinstance(value, np.ndarray), f"{name} of a handle shows an array")


def test_text_and_functions_as_conditions_are_never_run(place):
    table, _ = open_table(place)
    mark = place.folder / "mark"
    for text in (f"__import__('pathlib').Path({str(mark)!r}).touch()", "x > 3", "1=1; --"):
        require_refusal("text as a condition", table.where, text)
    calls = []
    require_refusal("a function as a condition", table.where, calls.append)
    require(not mark.exists() and not calls, "a condition was run")


def believe_subclasses(monkeypatch):
    monkeypatch.setattr("psephos.kernel.gate.admit", lambda a, family: a)
    monkeypatch.setattr("psephos.kernel.gate.fingerprint", lambda *_: "f")
    monkeypatch.setattr("psephos.kernel.sensitivity.stability", lambda a: 1)


def show_handles(monkeypatch):
    monkeypatch.setattr(
        "psephos.kernel.closed_handle.ClosedHandle.__iter__", lambda self: iter([1]), raising=True
    )


@pytest.mark.parametrize(
    ("broken", "attack"),
    [
        (forget_stability, test_a_scaled_mask_pays_for_its_scale),
        (believe_subclasses, test_a_matrix_that_lies_about_its_size_is_refused),
        (show_handles, test_handles_are_not_listed_copied_pickled_or_turned_into_arrays),
        (refund_charges, test_four_times_a_tenth_of_three_tenths),
        (refund_charges, test_a_ledger_opened_again_remembers_what_was_spent),
    ],
)
def test_attacks_get_through_a_broken_kernel(monkeypatch, place, broken, attack):
    broken(monkeypatch)
    with pytest.raises(GotThrough):
        attack(place)
