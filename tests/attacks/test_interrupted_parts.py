"""A part of a split that is interrupted between its charge and the note of what it asked.

If the charge were in the ledger, at nothing, because another part has paid, and the part's own
total did not know of it, then the next request on that part would be free as well, and the first
key would be drawn again at no cost: a part would be measured as often as it is interrupted, for one
price. A timer does it within a second. So both are written in one transaction.
"""

import sys

import pyarrow as pa
import pytest

import psephos as ps
from psephos.errors import BudgetExceededError, PsephosError
from psephos.kernel import storage, vault

ONE = ps.epsilon("1")


@pytest.fixture
def opened(tmp_path):
    path = tmp_path / "people.ledger"
    ledger = ps.Ledger.create(path, dataset="people", unit=ps.add_remove_row(), budget=ONE)
    table = ps.protect(pa.table({"s": [0, 1, 1]}), ps.Domain.of(s=2), ledger=path)
    parts = table.split("s")
    parts["0"].noisy_count(spend=ONE)
    return parts["1"], ledger


def answers(part, keys):
    shown = []
    for key in keys:
        try:
            shown.append(part.noisy_count(spend=ONE, key=key).values[0])
        except PsephosError:
            continue
    return shown


def interrupted(*_, **__):
    raise KeyboardInterrupt


@pytest.mark.parametrize("where", ["totals_of", "set_totals", "append", "keep", "kept"])
def test_wherever_the_ledger_is_cut_short(where, opened, monkeypatch):
    part, ledger = opened
    with monkeypatch.context() as patch:
        patch.setattr(storage, where, interrupted)
        for key in "abc":
            with pytest.raises((KeyboardInterrupt, BudgetExceededError)):
                part.noisy_count(spend=ONE, key=key)
    assert len(answers(part, "abc")) * ONE <= ledger.spent()
    ledger.verify()


def test_after_the_charge(opened, monkeypatch):
    part, ledger = opened
    with monkeypatch.context() as patch:
        patch.setattr(vault.Draws, "noise", interrupted)
        for key in "abc":
            with pytest.raises((KeyboardInterrupt, BudgetExceededError)):
                part.noisy_count(spend=ONE, key=key)
    assert len(answers(part, "abc")) * ONE <= ledger.spent()


def test_by_a_request_of_the_same_thread(opened):
    """What a signal handler asks in the middle of a request, whose totals are then old."""
    part, ledger = opened
    shown = []

    def look(frame, event, _):
        if event == "call" and frame.f_code.co_name == "_charge":
            sys.setprofile(None)
            shown.extend(answers(part, ["inner"]))

    sys.setprofile(look)
    try:
        shown.extend(answers(part, ["outer"]))
    finally:
        sys.setprofile(None)
    assert len(shown) * ONE <= ledger.spent()
