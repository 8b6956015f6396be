"""Tables that count persons: each a request of its own, beside the tables that count rows.

persons/1/measurements.parquet   the noisy integers of the first such table
persons/1/receipt.json           its charge in the ledger
persons/NAME.csv                 the table: labels, the count from 0, the noisy one, its error
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

from psephos.errors import BudgetExceededError
from psephos.kernel.budget import Budget, Currency
from psephos.kernel.ledger import Ledger
from psephos.release.methods.kind import PersonsRequest, RunHandle
from psephos.release.spec.job import Job
from psephos.release.spec.persons import PersonsTable


def measure_persons(handle: RunHandle) -> list[PersonsRequest]:
    """All tables of persons, each charged and measured; what was paid for before is not again."""
    pairs = zip(handle.job.persons, handle.job.persons_keys, strict=True)
    return [handle.ask(handle.declared, table, table.spend, key) for table, key in pairs]


def check_persons_affordable(job: Job, spend: Budget, ledger: Ledger) -> None:
    """Refuse before anything is charged if rows and persons together cost more than is left.

    What was paid for before, under the key of the rows and its steps or that of a table of persons,
    costs nothing.
    """
    if not job.persons:
        return
    left = ledger.remaining()
    history = {entry.key for entry in ledger.history()}
    pairs = zip(job.persons, job.persons_keys, strict=True)
    due = [table for table, key in pairs if key not in history]
    persons, rows = persons_spend(due, left.currency), spend.booked(left.currency)
    rows = Budget(left.currency, max(Fraction(0), rows.amount - ledger.paid(job.key).amount))
    if rows + persons > left:
        raise BudgetExceededError(
            f"the tables of rows cost {rows}, those of persons {persons}, and {left} remains; "
            "lower [budget] or what [[persons]] spend. Nothing was charged",
            rows + persons,
            left,
        )


def persons_spend(tables: Sequence[PersonsTable], currency: Currency) -> Budget:
    """What tables of persons cost together in a ledger of a currency."""
    costs = [table.spend.booked(currency) for table in tables]
    return sum(costs, start=Budget(currency, Fraction(0)))
