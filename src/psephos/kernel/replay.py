"""Requests that were answered before, answered again from their records: no data, no draws.

Whoever has the results of a plan's requests can take its public steps again. The handle that
`replayed` gives asks like any other, so that lineages, noise and fingerprints are worked out by the
same code; each request is answered by the next record, if that is the one which was paid for.

Privacy: there is nothing behind it. The source refuses to count, so a handle shows no more than its
records do (tests/kernel/test_replay.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from psephos.domain.domain import Domain
from psephos.errors import RefusedError
from psephos.kernel import gate
from psephos.kernel.lineage import Node, root_name
from psephos.kernel.protected import ProtectedTable
from psephos.kernel.recorded_ledger import RecordedLedger
from psephos.kernel.scores.mechanisms import Draws
from psephos.kernel.source import Cells, GroupedAxis, Names, Source
from psephos.kernel.unit import Cap
from psephos.kernel.vault import Vault


class NoSource(Source):
    """Where the data would be."""

    def counts(
        self, domain: Domain, tables: Sequence[Names], keep: Cells, cap: Cap | None
    ) -> NoReturn:
        """There are no counts."""
        raise RefusedError("there are no data behind records")

    def persons(
        self, domain: Domain, axes: Sequence[GroupedAxis], keep: Cells, cap: Cap
    ) -> NoReturn:
        """There are no persons."""
        raise RefusedError("there are no data behind records")


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
    vault = Vault(NoSource(), schema, ledger, draws)
    return ProtectedTable(schema, vault, Node(root_name(vault.schema, edition)))
