"""Looks at data without a ledger: the owner's own check, and simulations on data that is public."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np

import psephos.owner.check as owner
from psephos.domain.domain import Domain, checked_edition
from psephos.engines import as_source
from psephos.errors import BudgetError, DomainError
from psephos.kernel.budget import Budget
from psephos.kernel.protected import ProtectedTable
from psephos.kernel.simulate import counted, simulation
from psephos.kernel.unit import Unit
from psephos.owner.report import CheckReport
from psephos.protect import check_domain


def check(
    source: Any,
    domain: Domain,
    *,
    unit: Unit | None = None,
    max_rows_total: int | None = None,
    left_out: Collection[str] = (),
) -> CheckReport:
    """The owner's private comparison of schema and data: all mismatches at once.

    Its output holds what is in the data; it is marked PRIVATE and meant for the owner alone.

    Args:
        source: what `protect` takes
        domain: the public schema
        unit: whose presence will be protected
        max_rows_total: a declared bound on the number of rows
        left_out: columns whose undeclared entries are dropped on purpose, which is no error
    """
    check_domain(domain)
    if unit is not None and not isinstance(unit, Unit):
        raise BudgetError(f"unit is written add_remove_row() or person(...), got {unit!r}")
    if max_rows_total is not None and not _is_whole(max_rows_total):
        raise DomainError(f"max_rows_total is a whole number from 0, got {max_rows_total!r}")
    return owner.check(
        source,
        domain,
        unit=unit,
        max_rows_total=max_rows_total,
        left_out=left_out,
    )


def simulate(
    source: Any, domain: Domain, *, unit: Unit, budget: Budget, seed: int, edition: str = ""
) -> ProtectedTable:
    """The same handles over cell counts or a frame that is not private.

    Measurements say "simulation" and cannot be released; noise is repeatable by the seed.
    """
    check_domain(domain)
    if not _is_whole(seed):
        raise DomainError(f"seed is a whole number from 0, got {seed!r}")
    array = isinstance(source, np.ndarray)
    return simulation(
        counted(source, domain) if array else as_source(source),
        domain,
        unit=unit,
        budget=budget,
        seed=seed,
        edition=checked_edition(edition),
    )


def _is_whole(number: Any) -> bool:
    whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
    return bool(whole and number >= 0)
