"""Tables that count persons: each a request of its own, beside the tables that count rows.

persons/1/measurements.parquet   the noisy integers of the first such table
persons/1/receipt.json           its charge in the ledger
persons/NAME.csv                 the table: labels, the count from 0, the noisy one, its error
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

from psephos.errors import BudgetExceededError
from psephos.kernel.budget import Budget, Currency
from psephos.kernel.ledger import Ledger
from psephos.kernel.protected import ProtectedTable
from psephos.release.bundle.requests import ReleaseRequest
from psephos.release.methods.requests import request_of
from psephos.release.spec.job import Job
from psephos.release.spec.persons import PersonsTable

PersonsRequest = ReleaseRequest[PersonsTable]


def measure_persons(
    job: Job, data: ProtectedTable, receipt: Callable[[str], dict[str, Any]]
) -> list[PersonsRequest]:
    """All tables of persons, each charged and measured; what was paid for before is not again."""
    requests = []
    for table, key in zip(job.persons, job.persons_keys, strict=True):
        y = table.measure(data, table.spend, key)
        requests.append(request_of(job, table, table.spend, key, y.values, receipt, y.simulation))
    return requests


def check_persons_affordable(
    spend: Budget, key: str, tables: Sequence[PersonsTable], keys: Sequence[str], ledger: Ledger
) -> None:
    """Refuse before anything is charged if rows and persons together cost more than is left.

    What was paid for before, under the key of the rows and its steps or that of a table of persons,
    costs nothing.
    """
    if not tables:
        return
    left = ledger.remaining()
    history = {entry.key for entry in ledger.history()}
    due = [table for table, name in zip(tables, keys, strict=True) if name not in history]
    persons, rows = persons_spend(due, left.currency), spend.booked(left.currency)
    rows = Budget(left.currency, max(Fraction(0), rows.amount - ledger.paid(key).amount))
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
