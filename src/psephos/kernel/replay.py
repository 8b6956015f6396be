"""Requests that were answered before, answered again from their records: no data, no draws.

Whoever has the results of a plan's requests can take its public steps again. The handle that
`replayed` gives asks like any other, so that lineages, noise and fingerprints are worked out by the
same code; each request is answered by the next record, if that is the one which was paid for.

`answered` does the same for what a ledger has stored: asked again under its key, it is read from
there, and data that have changed or gone since need not be opened.

Privacy: there is nothing behind it. The source refuses to count, so a handle shows no more than its
records do, and a ledger that is asked for anything else charges nothing
(tests/kernel/test_replay.py).
"""

from __future__ import annotations

from typing import Any, NoReturn

from psephos.domain.domain import Domain
from psephos.errors import BudgetError, RefusedError
from psephos.kernel import gate
from psephos.kernel.ledger import Charge, Ledger, Request
from psephos.kernel.lineage import Node, root_name
from psephos.kernel.protected import ProtectedTable
from psephos.kernel.recorded_ledger import RecordedLedger
from psephos.kernel.scores.mechanisms import Draws
from psephos.kernel.snapshot import Snapshot
from psephos.kernel.unit import Cap
from psephos.kernel.vault import Vault


class NoSource:
    """Where the data would be."""

    row_abilities = frozenset({"row_cells", "persons"})

    def take(self, domain: Domain, cap: Cap | None, folder: Any = None) -> NoReturn:
        """There are no rows."""
        raise RefusedError("there are no data behind records")


class AnsweredLedger(Ledger):
    """A ledger that gives what it has stored, and takes no charge."""

    def _charge(self, charge: Charge) -> Request | BudgetError:
        # What is stored stays, so it is still there in the transaction that reads it.
        if not any(e.key == charge.key and e.values_hash for e in self.history()):
            raise RefusedError("nothing was answered under this key; open the data to ask")
        return super()._charge(charge)


def answered(domain: Domain, ledger: Ledger, *, edition: str = "") -> ProtectedTable:
    """A handle without data to what a ledger has answered: ask again under the same keys."""
    schema: Domain = gate.admit(domain, "domain")
    ledger.verify()
    book = AnsweredLedger.open(ledger.path)
    vault = Vault(Snapshot(NoSource(), schema, None), schema, book, Draws())
    return ProtectedTable(schema, vault, Node(root_name(vault.schema, edition)))


class SimulatedRecords(Draws):
    """Records of a simulation say so; nothing is drawn."""

    simulation = True


def replayed(
    domain: Domain, ledger: RecordedLedger, *, edition: str = "", simulation: bool = False
) -> ProtectedTable:
    """A handle whose requests are answered by records, in their order.

    >>> import numpy as np
    >>> import psephos as ps
    >>> from psephos.kernel.recorded_ledger import RequestRecord
    >>> records = [RequestRecord(None, "total", np.array([52]))]
    >>> ledger = RecordedLedger(ps.add_remove_row(), ps.epsilon("1"), "people", records)
    >>> table = replayed(ps.Domain.of(age=100), ledger, simulation=True)
    >>> table.vectorise().noisy_count(spend=ps.epsilon("1")).values
    array([52])
    """
    schema: Domain = gate.admit(domain, "domain")
    draws = SimulatedRecords() if simulation else Draws()
    vault = Vault(Snapshot(NoSource(), schema, None), schema, ledger, draws)
    return ProtectedTable(schema, vault, Node(root_name(vault.schema, edition)))
