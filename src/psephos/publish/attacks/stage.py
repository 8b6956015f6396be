"""Where attacks take place: made-up tables behind real ledgers in a folder that is removed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from psephos.domain import Domain
from psephos.kernel.budget import Budget, Currency
from psephos.kernel.ledger import Ledger
from psephos.kernel.protected import ProtectedTable
from psephos.kernel.unit import Unit
from psephos.protect import protect

ROOMY = 2**30
PLENTY = Fraction(10**24)
Integers = NDArray[Any]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Stage:
    """A folder of ledgers for tables that nobody is in."""

    folder: Path
    _numbers: Iterator[int] = field(default_factory=count)

    def ledger(self, unit: Unit, budget: Budget) -> Ledger:
        """A new ledger, for one attack."""
        path = self.folder / f"{next(self._numbers)}.ledger"
        return Ledger.create(path, dataset="made up", unit=unit, budget=budget)

    def rich(self, unit: Unit, currency: Currency) -> Ledger:
        """A new ledger that does not run out."""
        return self.ledger(unit, Budget(currency, PLENTY))


@contextmanager
def stage() -> Iterator[Stage]:
    """A stage in memory, where the system has room for it: made-up ledgers need not last."""
    shared = Path("/dev/shm")
    usable = shared.is_dir() and os.access(shared, os.W_OK | os.X_OK)
    roomy = usable and shutil.disk_usage(shared).free > ROOMY
    with tempfile.TemporaryDirectory(prefix="psephos-audit-", dir=shared if roomy else None) as at:
        yield Stage(Path(at))


def opened(domain: Domain, cells: Integers, persons: Integers, ledger: Ledger) -> ProtectedTable:
    """The real private path to a table of one row for each listed cell, of the person beside it."""
    columns = np.unravel_index(cells, domain.shape)
    named = dict(zip(domain.names, (pa.array(c, pa.int64()) for c in columns), strict=True))
    named["person"] = pa.array(persons, pa.int64())
    return protect(pa.table(named), domain, ledger=ledger)


def copies_of(
    counts: Integers, one: Integers, unit: Unit, copies: int
) -> tuple[Integers, Integers]:
    """Cells and persons of the rows of copies of a small table.

    Args:
        counts: how often each cell of a copy occurs in the base; every row is someone else's
        one: how often it occurs in the rows of the one unit that is hidden; a person with all the
            rows that count gets two more like the last of them, to be cut off
        unit: what is hidden
        copies: how many there are, one after the other

    >>> from psephos.kernel.unit import add_remove_row
    >>> copies_of(np.array([1, 0]), np.array([0, 1]), add_remove_row(), 2)
    (array([0, 1, 2, 3]), array([0, 1, 3, 4]))
    """
    base = np.repeat(np.arange(counts.size), counts)
    hidden = np.repeat(np.arange(one.size), one)
    if unit.person is not None and hidden.size == unit.max_rows:
        hidden = np.append(hidden, np.repeat(hidden[-1], 2))
    rows = np.concatenate([base, hidden])
    who = np.concatenate([np.arange(base.size), np.full(hidden.size, base.size)])
    if unit.person is None:
        who = np.arange(rows.size)
    starts = np.arange(copies)[:, None]
    return (starts * counts.size + rows).ravel(), (starts * (rows.size + 1) + who).ravel()
