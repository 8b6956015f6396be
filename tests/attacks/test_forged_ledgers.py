"""Ledgers that hold more than their file says, and charges that were entered beforehand."""

from dataclasses import replace

import psephos.matrix as mx
from psephos.audit.stage import (
    CELLS_OF_ROWS,
    ONE,
    TABLE_CELLS,
    TABLE_DOMAIN,
    GotThrough,
    open_table,
    protect_rows,
    require,
)
from psephos.errors import BudgetExceededError
from psephos.kernel.budget import epsilon
from psephos.kernel.ledger import Charge, Ledger
from psephos.kernel.measurement import request_fingerprint
from psephos.kernel.query import Query
from tests.attacks.forgeries import require_nothing_spent, require_refusal, tamper

TINY = epsilon("1/1000000")


def test_a_key_paid_for_in_advance(place):
    """A key that is paid for before its request comes, at a price of the payer's choice.

    The story: charging was a public method of the ledger, and a replay compared neither price nor
    budget. Whoever knew the fingerprint of a request (a failed one tells it) charged a millionth
    under it and then measured at epsilon 1000, on a ledger of 1, as a replay that costs nothing.
    """
    public = [name for name in dir(Ledger) if not name.startswith("_")]
    writers = [name for name in public if "charge" in name or "store" in name]
    require(not writers, f"anyone may call {', '.join(writers)} of a ledger")
    # As if an earlier version had recorded a lower price for the same request.
    table, ledger = open_table(place, ONE)
    vector, cells = table.vectorise(), mx.Identity(TABLE_CELLS)
    lineage = vector.measure(cells, spend=epsilon("1/100"), key="first").lineage
    for key, spend in (("dear", epsilon("1/2")), ("beyond all", epsilon("1000"))):
        fingerprint = request_fingerprint(lineage, Query.of(cells), spend)
        ledger._charge(Charge(key, fingerprint, TINY, label="sly", schema="s", snapshot="none"))
        before = ledger.spent()
        try:
            vector.measure(cells, spend=spend, key=key)
        except BudgetExceededError:
            continue
        charge = ledger.spent() - before
        require(spend <= ledger.budget, f"a request of {spend} was granted by {ledger.budget}")
        if charge + TINY != spend:
            raise GotThrough(f"a request of {spend} cost {charge} after {TINY} in advance")


class FreeLedger(Ledger):
    """A ledger that charges nothing."""

    def _charge(self, charge):
        request = super()._charge(charge)
        return replace(request, values=None)

    def verify(self, **_):
        """All is well."""


def test_ledgers_that_say_more_than_their_file(place):
    """Ledgers that say more than their file.

    The story: a ledger is a value like others, so `dataclasses.replace(ledger, budget=...)` makes
    one over the same file that holds whatever it likes, and a subclass can charge nothing at all.
    What counts is the file: the kernel opens it by itself.
    """
    _, ledger = open_table(place, ONE)
    plenty = epsilon("1000")
    parts = {name: getattr(ledger, name) for name in ("path", "dataset", "dataset_id", "unit")}
    forgeries = {
        "a ledger with another budget": lambda: replace(ledger, budget=plenty),
        "a ledger changed by hand": lambda: tamper(Ledger.open(ledger.path), budget=plenty),
        "a ledger of its own kind": lambda: FreeLedger(**parts, budget=plenty, _seen=[]),
    }
    for what, forge in forgeries.items():
        table = protect_rows(TABLE_DOMAIN, CELLS_OF_ROWS, CELLS_OF_ROWS, forge())
        require_refusal(what, table.noisy_count, spend=epsilon("2"))
    require_nothing_spent(ledger)
