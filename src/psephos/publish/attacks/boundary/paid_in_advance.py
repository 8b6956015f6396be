"""A key that is paid for before its request is made, at a price of the payer's choice.

The story: charging was a public method of the ledger, and a replay compared neither price nor
budget. Whoever knew the fingerprint of a request (a failed one tells it) charged a millionth under
it and then measured at epsilon 1000, on a ledger of 1, as a replay that costs nothing.
"""

from __future__ import annotations

import psephos.matrix as mx
from psephos.errors import BudgetExceededError
from psephos.kernel.budget import epsilon
from psephos.kernel.ledger import Ledger
from psephos.kernel.measurement import request_fingerprint
from psephos.kernel.query import Query
from psephos.publish.attacks.attempt import CELLS, ONE, Attack, GotThrough, open_table, require
from psephos.publish.attacks.stage import Stage

TINY = epsilon("1/1000000")


def _paid_in_advance(stage: Stage) -> None:
    public = [name for name in dir(Ledger) if not name.startswith("_")]
    sly = [name for name in public if "charge" in name or "store" in name]
    require(not sly, f"anyone may call {', '.join(sly)} of a ledger")
    # As if an earlier version had recorded a lower price for the same request.
    table, ledger = open_table(stage, ONE)
    vector, cells = table.vectorise(), mx.Identity(CELLS)
    lineage = vector.measure(cells, spend=epsilon("1/100"), key="first").lineage
    for key, spend in (("dear", epsilon("1/2")), ("beyond all", epsilon("1000"))):
        mark = request_fingerprint(lineage, Query.of(cells), spend)
        ledger._charge(key, mark, TINY, TINY, label="sly", schema="s")
        before = ledger.spent()
        try:
            vector.measure(cells, spend=spend, key=key)
        except BudgetExceededError:
            continue
        paid = ledger.spent() - before
        require(spend <= ledger.budget, f"a request of {spend} was granted by {ledger.budget}")
        if paid + TINY != spend:
            raise GotThrough(f"a request of {spend} cost {paid} after {TINY} in advance")


ATTACKS = (Attack("a key paid for in advance", "pays the rest, if it can", _paid_in_advance),)
