"""What attacks that need no statistics share: a table, and how they tell that they got through."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from psephos.domain import Domain
from psephos.errors import PsephosError
from psephos.kernel.budget import Budget, epsilon
from psephos.kernel.ledger import Ledger
from psephos.kernel.protected import ProtectedTable
from psephos.kernel.unit import add_remove_row
from psephos.publish.attacks.stage import Stage, opened

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
