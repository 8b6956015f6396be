"""The records of requests that were paid for, in place of a ledger: nothing is charged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from psephos.errors import RefusedError
from psephos.kernel.budget import Budget
from psephos.kernel.ledger import Charge
from psephos.kernel.measurement import pack
from psephos.kernel.unit import Unit
from psephos.values import Array


class RequestRecord(NamedTuple):
    """A request that was answered: the ledger's name for it, its key, and what came of it."""

    fingerprint: str | None
    """None for a simulation, whose requests nobody wrote down."""
    key: str
    values: Array


@dataclass(frozen=True)
class RecordedAnswer:
    """What stands for a request."""

    key: str
    values: bytes | memoryview


@dataclass
class RecordedLedger:
    """Records in their order; each answers the request that it was paid for, and no other."""

    unit: Unit
    budget: Budget
    dataset_id: str
    records: Sequence[RequestRecord]
    answered: int = 0

    def remaining(self) -> Budget:
        """What was paid for costs nothing, so nothing is spent."""
        return self.budget

    def paid(self, key: str) -> Budget:
        """All of it was paid for."""
        return self.budget

    def _charge(self, charge: Charge) -> RecordedAnswer:
        number = self.answered + 1
        if number > len(self.records):
            raise RefusedError(f"{self.answered} requests were answered, and this is one more")
        record = self.records[self.answered]
        if charge.key is not None and record.key != charge.key:
            raise RefusedError(f"request {number} was answered under another key")
        if record.fingerprint is not None and record.fingerprint != charge.fingerprint:
            raise RefusedError(f"request {number} was paid for another query, or at another spend")
        self.answered = number
        return RecordedAnswer(record.key, pack(record.values))
