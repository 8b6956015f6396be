"""What all attacks share: synthetic tables behind real ledgers, and the form of a result.

A stage is a folder of ledgers that is removed after the audit. An attack on it either counts how
often events occur on two neighbouring tables, and turns that into a lower bound on the loss, or it
tries something that must be refused, and raises GotThrough if it is not.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from scipy.stats import beta

from psephos.domain.domain import Domain
from psephos.kernel.budget import Budget, Currency, epsilon
from psephos.kernel.ledger import Ledger
from psephos.kernel.protected import ProtectedTable
from psephos.kernel.unit import Unit, add_remove_row
from psephos.protect import protect
from psephos.values import Array

AttackKind = Literal["exact loss", "lower bound", "draws", "behaviour"]

PLENTY = Fraction(10**24)
TABLE_CELLS = 100
TABLE_DOMAIN = Domain.of(x=TABLE_CELLS)
TRUE_COUNTS = np.arange(TABLE_CELLS) % 3
CELLS_OF_ROWS = np.repeat(np.arange(TABLE_CELLS), TRUE_COUNTS)
ONE = epsilon("1")
SILENCE = epsilon(10**18)  # noise of a scale so small that it is zero


@dataclass(frozen=True)
class AttackResult:
    """One attack: what was claimed against it, and what it found.

    `charge` and `loss`, what was charged and what was found, are in the currency named in
    `claimed`, at `delta` if there is one; None where an attack gets through or does not.
    """

    kind: AttackKind
    name: str
    claimed: str
    verdict: str
    ok: bool
    runs: int
    charge: float | None = None
    loss: float | None = None
    delta: float | None = None


@dataclass(frozen=True)
class Attack:
    """What is tried, and what should come of it; `attempt` raises GotThrough if more does."""

    name: str
    claimed: str
    attempt: Callable[[Stage], None]


class GotThrough(Exception):
    """The attack worked; the text says how."""


@dataclass(frozen=True)
class Stage:
    """A folder of ledgers for synthetic tables."""

    folder: Path
    _numbers: Iterator[int] = field(default_factory=count)

    def ledger(self, unit: Unit, budget: Budget) -> Ledger:
        """A new ledger, for one attack."""
        path = self.folder / f"{next(self._numbers)}.ledger"
        return Ledger.create(path, dataset="made up", unit=unit, budget=budget)

    def endless_ledger(self, unit: Unit, currency: Currency) -> Ledger:
        """A new ledger that does not run out."""
        return self.ledger(unit, Budget(currency, PLENTY))


@contextmanager
def temporary_stage(parent: Path | None = None) -> Iterator[Stage]:
    """A stage in a folder, by default where the system has its temporary files."""
    with tempfile.TemporaryDirectory(prefix="psephos-audit-", dir=parent) as folder:
        yield Stage(Path(folder))


def protect_rows(domain: Domain, cells: Array, persons: Array, ledger: Ledger) -> ProtectedTable:
    """The real private path to a table of one row for each listed cell, of the person beside it."""
    codes = np.unravel_index(cells, domain.shape)
    columns = dict(zip(domain.names, (pa.array(c, pa.int64()) for c in codes), strict=True))
    columns["person"] = pa.array(persons, pa.int64())
    return protect(pa.table(columns), domain, ledger=ledger)


def open_table(stage: Stage, budget: Budget | None = None) -> tuple[ProtectedTable, Ledger]:
    """The table of TRUE_COUNTS behind a new ledger, endless if there is no budget."""
    ledger = stage.endless_ledger(add_remove_row(), "epsilon")
    if budget is not None:
        ledger = stage.ledger(add_remove_row(), budget)
    return protect_rows(TABLE_DOMAIN, CELLS_OF_ROWS, CELLS_OF_ROWS, ledger), ledger


def rows_of_copies(counts: Array, hidden: Array, unit: Unit, copies: int) -> tuple[Array, Array]:
    """Cells and persons of the rows of copies of a small table.

    Args:
        counts: how often each cell of a copy occurs in the base; every row is someone else's
        hidden: how often it occurs in the rows of the one unit that is hidden; a person with all
            the rows that count gets two more like the last of them, to be cut off
        unit: what is hidden
        copies: how many there are, one after the other

    >>> from psephos.kernel.unit import add_remove_row
    >>> rows_of_copies(np.array([1, 0]), np.array([0, 1]), add_remove_row(), 2)
    (array([0, 1, 2, 3]), array([0, 1, 3, 4]))
    """
    base_cells = np.repeat(np.arange(counts.size), counts)
    hidden_cells = np.repeat(np.arange(hidden.size), hidden)
    if unit.person is not None and hidden_cells.size == unit.max_rows:
        hidden_cells = np.append(hidden_cells, np.repeat(hidden_cells[-1], 2))
    cells = np.concatenate([base_cells, hidden_cells])
    persons = np.concatenate(
        [np.arange(base_cells.size), np.full(hidden_cells.size, base_cells.size)]
    )
    if unit.person is None:
        persons = np.arange(cells.size)
    starts = np.arange(copies)[:, None]
    return (starts * counts.size + cells).ravel(), (starts * (cells.size + 1) + persons).ravel()


def lower_bounds(often: Array, rarely: Array, runs: int, alpha: float, delta: float = 0.0) -> Array:
    """Lower bounds on epsilon from how often events occurred on either of two neighbours.

    With P ≥ p and Q ≤ q by Clopper and Pearson, each at confidence 1 - alpha, P ≤ exp(ε)Q + δ gives

        ε ≥ ln((p - δ) / q)

    >>> lower_bounds(np.array([900, 500]), np.array([300, 500]), 1000, 1e-3).round(3)
    array([0.918, 0.   ])
    """
    low = np.where(often > 0, beta.ppf(alpha, often, runs - often + 1), 0.0)
    high = np.where(rarely < runs, beta.ppf(1 - alpha, rarely + 1, runs - rarely), 1.0)
    ratio = np.maximum(low - delta, high) / high  # at least 1: losing nothing is always possible
    return np.asarray(np.log(ratio))


def verdict(what: str, loss: float, charge: float, ok: bool) -> str:
    """Both numbers, with the sign between them."""
    return f"{what} {loss:.4g} {'<=' if ok else '>'} charge {charge:.4g}"


def require(holds: Any, otherwise: str) -> None:
    """This must hold, or the attack got through."""
    if not holds:
        raise GotThrough(otherwise)
