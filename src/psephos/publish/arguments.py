"""Arguments of the public calls, checked: what is given by mistake is refused by its name."""

from __future__ import annotations

from typing import Any

from psephos.errors import ReleaseError
from psephos.kernel.budget import Budget
from psephos.strategy.factors import checked_whole

FEWEST_DRAWS = 19
"""The largest of 19 draws covers 95 % of the noise."""


def check_draws(draws: Any) -> None:
    """Refuse anything but enough draws of simulated noise."""
    checked_whole(draws, "draws", FEWEST_DRAWS)


def check_budget(budget: Any) -> None:
    """Refuse anything but an exact amount."""
    if not isinstance(budget, Budget):
        raise ReleaseError(
            f'budget is an exact amount such as ps.epsilon("0.5") or ps.rho("0.1"), got {budget!r}'
        )
