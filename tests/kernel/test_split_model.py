"""All short histories of requests behind splits, over snapshots, cut short at every step."""

import tempfile
from itertools import combinations_with_replacement
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from psephos.kernel.ledger import Ledger
from psephos.kernel.lineage import Node
from tests.kernel.ledgers import SHM, charge, make
from tests.kernel.split_model import PLACES, SNAPSHOTS, Ask, State, amount, histories, loss, steps
from tests.kernel.split_model import charge as charge_model

WORLDS = list(combinations_with_replacement([Ask(p, n) for p in PLACES for n in (1, 2)], 3))


def violations(worlds, rule=amount):
    return sum(loss(w, state) > state.booked for w in worlds for state in histories(w, rule))


def test_no_history_loses_more_than_is_booked():
    tight = 0
    for asks in WORLDS[::30]:
        for state in histories(asks):
            assert loss(asks, state) <= state.booked, (asks, state)
            tight += loss(asks, state) == state.booked > 0
    assert tight > 1000


@pytest.mark.slow
def test_no_history_of_any_world_loses_more_than_is_booked():
    assert violations(WORLDS) == 0


def pay_the_difference(asks, state, request, snapshot):
    """Of the price and of what was booked, in whichever snapshot."""
    return asks[request].price - sum(c[2] for c in state.charges if c[0] == request)


def free_again(asks, state, request, snapshot):
    """A key that was charged once is drawn for nothing, over any rows."""
    return 0 if any(c[0] == request for c in state.charges) else asks[request].price


@pytest.mark.parametrize("rule", [pay_the_difference, free_again])
def test_rules_that_look_right_are_caught(rule):
    asks = (Ask(("a",), 1), Ask(("b",), 1))
    assert violations([asks], rule) > 0


def test_a_row_that_moves_between_snapshots_is_seen_twice():
    asks = (Ask(("a",), 5), Ask(("b",), 5))
    state = State()
    for request, snapshot in ((0, 0), (1, 1)):
        state = charge_model(asks, state, request, snapshot)
        state = state._replace(stored=(*state.stored, (request, snapshot)))
    assert loss(asks, state) == state.booked == 10


def node_of(place):
    node = Node("root")
    for part in place:
        node = node.split(f"split of {node.name}").step(part)
    return node.step("vectorise")


@given(
    asks=st.tuples(*[st.builds(Ask, st.sampled_from(PLACES), st.integers(1, 3))] * 3),
    choices=st.lists(st.integers(0, 20), max_size=14),
)
def test_the_ledger_books_what_the_model_does(asks, choices):
    """Every charge and every stored draw of a random history, on a ledger that is opened anew."""
    with tempfile.TemporaryDirectory(dir=SHM) as folder:
        ledger = make(Path(folder), "1000")
        state = State()
        for choice in choices:
            options = list(steps(asks, state))
            if not options:
                break
            after = options[choice % len(options)]
            for request, snapshot in after.granted - state.granted:
                one = asks[request]
                args = (one.price, str(request), "f", *node_of(one.place).branches)
                assert charge(ledger, *args, snapshot=str(snapshot)).values is None
            for request, snapshot in set(after.stored) - set(state.stored):
                one = asks[request]
                args = (one.price, str(request), "f", *node_of(one.place).branches)
                charge(ledger, *args, snapshot=str(snapshot))._store(b"v")
            state = after
            assert ledger.spent().amount == state.booked
            ledger = Ledger.open(ledger.path)
        drawn = {int(e.key): int(e.snapshot) for e in ledger.history() if e.values_hash}
        assert drawn == dict(state.stored)
        for request, snapshot in state.stored:
            one = asks[request]
            branches = node_of(one.place).branches
            for other in SNAPSHOTS:
                again = charge(ledger, one.price, str(request), "f", *branches, snapshot=str(other))
                assert again.values == b"v"
                assert again.snapshot == str(snapshot)
        assert ledger.spent().amount == state.booked
        ledger.verify()
