"""Requests that are cut short, copied or refused, and what the ledger knows of them afterwards."""

import os
import subprocess
import sys
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pytest

import psephos as ps
from psephos import matrix as mx
from psephos.errors import BudgetExceededError, PsephosError
from psephos.kernel import codec, gate, sensitivity, vault
from psephos.kernel.query import Query

ONE = ps.epsilon("1")


def opened(folder, name="people", budget=ONE):
    path = folder / name
    ledger = ps.Ledger.create(path, dataset=name, unit=ps.add_remove_row(), budget=budget)
    return ps.protect(pa.table({"s": [0, 1, 1]}), ps.Domain.of(s=2), ledger=path), ledger


def at(event, name, work):
    """Work that is done in the middle of a request, as a signal handler does it."""

    def look(frame, happened, _):
        if happened == event and frame.f_code.co_name == name:
            sys.setprofile(None)
            work()

    sys.setprofile(look)


def test_another_ledgers_refusal_takes_no_charge_back(tmp_path):
    table, ledger = opened(tmp_path)
    poor, _ = opened(tmp_path, "poor", ps.epsilon("1/100"))
    part = table.split("s")
    part["0"].noisy_count(spend=ONE)
    for key in "abc":
        at("return", "_charge", lambda: poor.noisy_count(spend=ONE))
        with pytest.raises(BudgetExceededError):
            part["1"].noisy_count(spend=ONE, key=key)
    again = ps.protect(pa.table({"s": [0, 1, 1]}), ps.Domain.of(s=2), ledger=ledger.path)
    shown = []
    for key in "abc":
        try:
            shown.append(again.split("s")["1"].noisy_count(spend=ONE, key=key))
        except PsephosError:
            continue
    assert len(shown) <= ledger.spent().amount


def test_a_request_is_not_answered_in_two_processes(tmp_path):
    """A fork in the middle of a request: both go on with totals that were found for one."""
    table, ledger = opened(tmp_path)
    part = table.split("s")
    part["0"].noisy_count(spend=ONE)
    children, shown = [], 0
    at("call", "_charge", lambda: children.append(os.fork()))
    try:
        part["1"].noisy_count(spend=ONE)
        shown = 1
    except BaseException:  # noqa: BLE001 - whatever it is, nothing was shown
        pass
    finally:
        sys.setprofile(None)
        if children == [0]:
            os._exit(shown)
    shown += os.waitstatus_to_exitcode(os.waitpid(children[0], 0)[1])
    assert shown <= ledger.spent().amount


def test_a_second_interruption_shows_no_frames(tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    table, _ = opened(tmp_path)
    monkeypatch.setattr(vault.Draws, "noise", interrupted)
    monkeypatch.setattr(vault, "_bare", interrupted)
    with pytest.raises(KeyboardInterrupt) as caught:
        table.vectorise().measure(mx.Identity(2), spend=ONE)
    context = caught.value.__context__
    assert context is None or context.__traceback__ is None


def test_a_sum_that_is_rounded_up_stays_within_the_budget(tmp_path):
    table, ledger = opened(tmp_path, budget=ps.epsilon("0.1"))
    left = Fraction(1, 10)
    for place, end in enumerate((1, 3, 7, 9, 13, 19, 21)):
        bottom = 10**299 + end
        amount = Fraction(bottom // 100 if place < 6 else left * bottom // 1, bottom)
        left -= amount
        try:
            table.noisy_count(spend=ps.epsilon(amount))
        except BudgetExceededError:
            continue
    ledger.verify()
    assert ledger.spent() <= ledger.budget


@pytest.mark.parametrize("key", ["a", "", 5])
def test_a_refused_key_makes_nothing_dearer(key, tmp_path):
    table, ledger = opened(tmp_path, budget=ps.epsilon("3"))
    part = table.split("s")
    part["0"].noisy_count(spend=ONE, key="a")
    with pytest.raises(PsephosError):
        part["1"].noisy_count(spend=ONE, key=key)
    part["1"].noisy_count(spend=ONE, key="b")
    assert ledger.spent() == ONE


def test_ends_of_rows_that_wrap_around_are_refused():
    """Their differences wrap around to numbers that are not negative, and numpy writes that far."""
    ends = np.array([0, 2**63 - 1, -(2**63), -1, 4])
    term = codec.Term("Sparse", (np.ones(4, np.int8), np.arange(4), ends, (4, 4)))
    script = (
        "import sys\nfrom psephos.errors import PsephosError\nfrom psephos.kernel import gate\n"
        "try:\n    gate.from_bytes(sys.stdin.buffer.read())\nexcept PsephosError:\n    pass\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script], input=codec.encode(term), capture_output=True, check=False
    )
    assert ran.returncode == 0


def test_a_sign_is_a_whole_number():
    """An array of one unsigned sign makes floats of counts, and they round beyond 2^53."""
    try:
        matrix = gate.admit(mx.Haar(4, np.array(1, np.uint64)), "matrix")
    except PsephosError:
        return
    factor = 2**53 + 1
    before = factor * np.array([9, 19, 13, 19])
    after = before + factor * np.array([0, 0, 0, 1])
    answers = [sensitivity.answers(matrix, x).astype(object) for x in (before, after)]
    assert np.abs(answers[1] - answers[0]).sum() <= factor * sensitivity.sensitivity(
        Query.of(matrix), 1
    )


def test_a_long_axis_that_is_summed_over_takes_no_memory():
    axis = mx.Ones(1, 10**13)
    query = Query.of(
        [
            (mx.Kron((mx.Identity(2), mx.Ones(1, 2), axis)), 1),
            (mx.Kron((mx.Ones(1, 2), mx.Identity(2), axis)), 1),
        ]
    )
    assert sensitivity.sensitivity(gate.admit(query, "query"), 1) == 2


@pytest.mark.parametrize("edges", [None, (0, 10**400)])
def test_values_that_no_engine_can_read_are_refused_before_a_charge(edges, tmp_path):
    ledger = ps.Ledger.create(tmp_path / "l", dataset="p", unit=ps.add_remove_row(), budget=ONE)

    def measured():
        if edges is None:
            attribute = ps.Attribute((10**400, 0.5))
        else:
            attribute = ps.Attribute((edges,), ("all",), edges=edges)
        domain = ps.Domain(("s",), (attribute,))
        table = ps.protect(pa.table({"s": [0, 1]}), domain, ledger=ledger.path)
        return table.vectorise().measure(mx.Identity(domain.size), spend=ONE)

    with pytest.raises(PsephosError):
        measured()
    assert ledger.spent().amount == 0
