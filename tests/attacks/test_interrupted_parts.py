"""A part of a split that is interrupted between its charge and the note of it.

The charge is in the ledger, at nothing, because another part has paid; the part's own total does
not know of it. The next request on that part is free as well, and then the first key is asked for
again: a replay, at no cost. So a part is measured as often as it is interrupted, for one price. A
timer does it within a second, because closing the ledger takes longest of all.
"""

import sys

import pyarrow as pa
import pytest

import psephos as ps
from psephos.errors import PsephosError
from psephos.kernel import lineage, vault

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


def test_after_the_charge(opened, monkeypatch):
    part, ledger = opened
    with monkeypatch.context() as patch:
        patch.setattr(vault, "count", interrupted)
        for key in "abc":
            with pytest.raises(KeyboardInterrupt):
                part.noisy_count(spend=ONE, key=key)
    assert len(answers(part, "abc")) * ONE <= ledger.spent()


@pytest.mark.parametrize("noted", [1, 2])
def test_while_it_is_noted(noted, opened, monkeypatch):
    """Totals are written from the leaf up, and the part's own, which is what counts, late."""
    part, ledger = opened
    vector = part.vectorise()
    real, left = lineage.Node.spent, []

    def set_some(node, total):
        if not left:
            raise KeyboardInterrupt
        left.pop()
        real.fset(node, total)

    for key in "ab":
        left[:] = [None] * (noted - 1)
        with monkeypatch.context() as patch:
            patch.setattr(lineage.Node, "spent", property(real.fget, set_some))
            with pytest.raises(KeyboardInterrupt):
                vector.noisy_count(spend=ONE, key=key)
    assert len(answers(vector, "ab")) * ONE <= ledger.spent()


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
