"""Algorithm 2 over snapshots, on one page: what is booked, and what is lost at worst.

A world has the parts a and b of a split, and a split of a into c and d. A request has a place, a
price and a key; processes ask it over snapshots of the rows, are cut short anywhere, and ask again.
Of a request one draw at most is ever stored, and only what is stored is seen. A row lies in one
leaf of each snapshot, in any of them: so the worst loss is, over all snapshots together, the sum of
the largest sums of stored prices on the way to a leaf.
"""

from typing import NamedTuple

LEAVES = (("a", "c"), ("a", "d"), ("b",))
PLACES = ((), ("a",), ("b",), ("a", "c"), ("a", "d"))
SNAPSHOTS = range(3)


class Ask(NamedTuple):
    place: tuple[str, ...]
    price: int


class State(NamedTuple):
    """What a ledger and the processes around it know after some steps."""

    charges: tuple[tuple[int, int, int], ...] = ()
    """(request, snapshot, amount asked), sorted."""
    granted: frozenset[tuple[int, int]] = frozenset()
    """(request, snapshot) that some process holds a grant for, and may store a draw of."""
    stored: tuple[tuple[int, int], ...] = ()
    """(request, snapshot) of the draws that are seen."""
    booked: int = 0


def bill(asks, charges, snapshot):
    """By the definition: of each split the part that was asked for most pays for all its parts."""
    own = dict.fromkeys(PLACES, 0)
    for request, here, asked in charges:
        if here == snapshot:
            own[asks[request].place] += asked
    root, a, b, c, d = own.values()
    return root + max(a + max(c, d), b)


def amount(asks, state, request, snapshot):
    """The rule: what a request without a stored draw is asked to pay before it is drawn."""
    split = asks[request].place != ()
    before = [c[2] for c in state.charges if c[0] == request and (c[1] == snapshot or not split)]
    return asks[request].price - sum(before)


def charge(asks, state, request, snapshot, rule=amount):
    """A process asks: charged by the rule, and granted."""
    asked = rule(asks, state, request, snapshot)
    granted = state.granted | {(request, snapshot)}
    if not asked:
        return state._replace(granted=granted)
    charges = tuple(sorted([*state.charges, (request, snapshot, asked)]))
    rise = bill(asks, charges, snapshot) - bill(asks, state.charges, snapshot)
    return State(charges, granted, state.stored, state.booked + rise)


def steps(asks, state, rule=amount):
    """All that may happen next; to be cut short is that nothing does."""
    seen = {request for request, _ in state.stored}
    for request in set(range(len(asks))) - seen:
        for snapshot in SNAPSHOTS:
            if (request, snapshot) in state.granted:
                stored = tuple(sorted([*state.stored, (request, snapshot)]))
                yield state._replace(stored=stored)
            yield charge(asks, state, request, snapshot, rule)


def loss(asks, state):
    """The most that a row can lose, wherever it lies in each snapshot."""
    return sum(
        max(
            sum(
                asks[request].price
                for request, snapshot in state.stored
                if snapshot == here and leaf[: len(asks[request].place)] == asks[request].place
            )
            for leaf in LEAVES
        )
        for here in {snapshot for _, snapshot in state.stored}
    )


def histories(asks, rule=amount):
    """All states that can be reached, each once; snapshots are named in the order of their use."""
    known, waiting = set(), [State()]
    while waiting:
        state = waiting.pop()
        if state in known:
            continue
        known.add(state)
        yield state
        first = 1 + max((s for _, s in state.granted), default=-1)
        for after in steps(asks, state, rule):
            if all(s <= first for _, s in after.granted):
                waiting.append(after)
