"""Where attacks take place: made-up tables behind real ledgers in a folder that is removed.

What one attack found, and the arithmetic of lower bounds.

What attacks that need no statistics share: a table, and how they tell that they got through.
"""

from __future__ import annotations

import os
import shutil
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
from numpy.typing import NDArray
from scipy.stats import beta

from psephos.domain.domain import Domain
from psephos.errors import PsephosError
from psephos.kernel.budget import Budget, Currency, epsilon
from psephos.kernel.ledger import Ledger
from psephos.kernel.protected import ProtectedTable
from psephos.kernel.unit import Unit, add_remove_row
from psephos.protect import protect

Kind = Literal["exact loss", "lower bound", "draws", "behaviour"]
Numbers = NDArray[Any]


@dataclass(frozen=True)
class Finding:
    """One attack: what was claimed against it, and what it found.

    `charge` and `found` are losses in one currency, named in `claimed`, at `delta` if there is one;
    None where an attack gets through or does not.
    """

    kind: Kind
    name: str
    claimed: str
    verdict: str
    ok: bool
    runs: int
    charge: float | None = None
    found: float | None = None
    delta: float | None = None


def lower_bounds(
    often: Numbers, rarely: Numbers, runs: int, alpha: float, delta: float = 0.0
) -> Numbers:
    """Lower bounds on epsilon from how often events were seen on either of two neighbours.

    With P ≥ p and Q ≤ q by Clopper and Pearson, each at confidence 1 - alpha, P ≤ exp(ε)Q + δ gives

        ε ≥ ln((p - δ) / q)

    >>> lower_bounds(np.array([900, 500]), np.array([300, 500]), 1000, 1e-3).round(3)
    array([0.918, 0.   ])
    """
    low = np.where(often > 0, beta.ppf(alpha, often, runs - often + 1), 0.0)
    high = np.where(rarely < runs, beta.ppf(1 - alpha, rarely + 1, runs - rarely), 1.0)
    shown = np.maximum(low - delta, high)  # at least 0: losing nothing is always possible
    return np.asarray(np.log(shown / high))


def verdict(what: str, found: float, charge: float, ok: bool) -> str:
    """Both numbers, with the sign between them."""
    return f"{what} {found:.4g} {'<=' if ok else '>'} charge {charge:.4g}"


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


CELLS = 100
DOMAIN = Domain.of(x=CELLS)
TRUE = np.arange(CELLS) % 3
ROWS = np.repeat(np.arange(CELLS), TRUE)
ONE = epsilon("1")
SILENCE = epsilon(10**18)  # noise of a scale so small that it is zero


class GotThrough(Exception):
    """The attack worked; the text says how."""


@dataclass(frozen=True)
class Attack:
    """What is tried, and what should come of it; `attempt` raises GotThrough if more does."""

    name: str
    claimed: str
    attempt: Callable[[Stage], None]


def open_table(stage: Stage, budget: Budget | None = None) -> tuple[ProtectedTable, Ledger]:
    """The table of TRUE counts behind a new ledger, which does not run out unless told to."""
    ledger = stage.rich(add_remove_row(), "epsilon")
    if budget is not None:
        ledger = stage.ledger(add_remove_row(), budget)
    return opened(DOMAIN, ROWS, ROWS, ledger), ledger


def refused(what: str, attempt: Callable[..., Any], *given: Any, **named: Any) -> None:
    """The attempt must end in a refusal."""
    try:
        attempt(*given, **named)
    except (PsephosError, TypeError):
        return
    raise GotThrough(f"{what} was not refused")


def require(holds: Any, otherwise: str) -> None:
    """This must hold, or the attack got through."""
    if not holds:
        raise GotThrough(otherwise)


def learned(values: Any) -> int:
    """How many of the true counts these answers are."""
    return int((np.asarray(values) == TRUE).sum()) if len(values) == CELLS else 0
