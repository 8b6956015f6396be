"""Days in a row, and the weeks, months, quarters and years that they lie in.

Weeks are those of ISO 8601: they begin on Monday, and the first of a year holds its first Thursday,
so 2021-01-03 lies in 2020-W53.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import date, datetime
from itertools import pairwise
from typing import Any

import numpy as np

from psephos.domain.values import Level
from psephos.errors import DomainError
from psephos.values import Array, frozen

MOST_DAYS = 200_000
"""The most days of an attribute: more than five centuries."""


def _week(day: date) -> str:
    year, week, _ = day.isocalendar()
    return f"{year:04}-W{week:02}"


PERIODS: dict[str, Callable[[date], str]] = {
    "day": date.isoformat,
    "week": _week,
    "month": lambda day: f"{day.year:04}-{day.month:02}",
    "quarter": lambda day: f"{day.year:04}-Q{(day.month + 2) // 3}",
    "year": lambda day: f"{day.year:04}",
}
"""What the period of a day is called."""


def _months(days: Array) -> Array:
    return days.astype("datetime64[M]").astype(np.int64)


PERIOD_NUMBERS: dict[str, Callable[[Array], Array]] = {
    "day": lambda days: days.astype(np.int64),
    "week": lambda days: (days.astype(np.int64) + 3) // 7,  # 1970-01-01 was a Thursday
    "month": _months,
    "quarter": lambda days: _months(days) // 3,
    "year": lambda days: _months(days) // 12,
}
"""The numbers of the periods of many days."""


def as_day(given: Any) -> date:
    """A day from a date or its text, such as "1920-01-31"."""
    if isinstance(given, date) and not isinstance(given, datetime):
        return given
    try:
        if isinstance(given, str) and len(given) == len("1920-01-31"):
            return date.fromisoformat(given)
    except ValueError:
        pass
    raise DomainError(f'a day is written "1920-01-31" (year, month, day), got {given!r}')


def days_between(first: Any, last: Any) -> tuple[date, ...]:
    """Every day from the first to the last, both included.

    >>> [str(day) for day in days_between("2020-02-28", "2020-03-01")]
    ['2020-02-28', '2020-02-29', '2020-03-01']
    """
    start, end = as_day(first), as_day(last)
    number = (end - start).days + 1
    if number < 1:
        raise DomainError(f"dates from {start} to {end} are none; write the first day first")
    if number > MOST_DAYS:
        raise DomainError(
            f"dates from {start} to {end} are {number:,} days, over the limit of {MOST_DAYS:,}; "
            "declare the years that can occur"
        )
    return tuple(map(date.fromordinal, range(start.toordinal(), end.toordinal() + 1)))


def period_groups(name: str, period: str, values: Sequence[Any]) -> Level:
    """A level of the weeks, months, quarters or years of some days.

    >>> period_groups("week", "week", days_between("2020-12-31", "2021-01-05")).labels
    ('2020-W53', '2021-W01')
    """
    if period not in PERIODS:
        raise DomainError(f"level {name!r}: {period!r} is none of {', '.join(PERIODS)}")
    if set(map(type, values)) != {date}:
        raise DomainError(f"level {name!r}: a {period} is a level of dates; declare dates")
    ordinals = np.fromiter(map(date.toordinal, values), np.int64, len(values))
    days = (ordinals - date(1970, 1, 1).toordinal()).astype("datetime64[D]")
    _, first, groups = np.unique(
        PERIOD_NUMBERS[period](days), return_index=True, return_inverse=True
    )
    order = np.argsort(first)
    labels = tuple(PERIODS[period](values[i]) for i in first[order])
    return Level(name, frozen(np.argsort(order)[groups.reshape(-1)]), labels)


def groups_of_days(name: str, starts: Sequence[Any], values: Sequence[date]) -> Level:
    """A level from the first day of each group."""
    days = [as_day(start) for start in starts]
    if not days or days != sorted(set(days)) or days[0] != values[0] or days[-1] > values[-1]:
        raise DomainError(
            f"level {name!r}: the first days of groups must increase, begin with {values[0]} and "
            f"end by {values[-1]}"
        )
    cuts = [*((day - values[0]).days for day in days), len(values)]
    groups = np.repeat(np.arange(len(days)), np.diff(cuts))
    labels = [f"{values[a]} to {values[b - 1]}" for a, b in pairwise(cuts)]
    return Level(name, frozen(groups), tuple(labels))
