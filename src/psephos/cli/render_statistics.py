"""Statistics in the terminal: sums, means, shares and quantiles, and changes between editions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from psephos.cli.render import number_columns, rest_words

if TYPE_CHECKING:
    from psephos.release.change import EditionChange
    from psephos.release.preflight.statistic_forecast import StatisticForecast


def statistic_words(row: dict[str, Any]) -> list[str]:
    """What a number is, such as a mean of ages; the number itself, and its interval."""
    unit = row.get("unit", "")  # a layout of many rows leaves it out
    unit = "" if unit in row["statistic"].split() else unit
    value = row["value"]
    words = [escape(f"{row['statistic']} ({unit})" if unit else row["statistic"])]
    words.append("no rows" if value != value else value_text(value))
    if "low" in row:
        words.append(f"{value_text(row['low'])} to {value_text(row['high'])}")
    return words


def rich_forecasts(stand_in: str, statistics: Sequence[StatisticForecast]) -> RenderableType:
    """How wide the intervals of statistics are on a stand-in; nothing if there are none."""
    if not statistics:
        return ""
    heads = ("numbers", "± typical", "± widest", "too few rows")
    table = Table(
        "table",
        "statistic",
        *number_columns(*heads, no_wrap=True),
        title=f"Statistics on {stand_in}: a forecast, no promise",
    )
    for each in statistics:
        widths = (f"{value_text(each.typical)}", f"{value_text(each.widest)}")
        words = (escape(each.table), escape(f"{each.statistic} ({each.unit})"))
        table.add_row(*words, f"{each.numbers:,}", *widths, f"{each.untold:,}")
    return table


def value_text(number: float) -> str:
    """A number of a statistic, with about five digits."""
    return f"{number:,.0f}" if abs(number) >= 10_000 else f"{number:,.5g}"


def rich_changes(changes: EditionChange, names: Sequence[str]) -> list[RenderableType]:
    """The change of some tables, and what it means."""
    return [*(rich_change(changes, name) for name in names), change_words(changes)]


def rich_change(changes: EditionChange, name: str, most: int = 40) -> RenderableType:
    """The change of one table: old, new, difference with its interval, percent."""
    numbers = changes.table(name)
    labels = numbers.column_names[: numbers.column_names.index("old")]
    old, new = changes.editions
    mark = "made up: " if changes.simulation else ""
    shown = [label for label in labels if label != "unit"]
    errors, percent = "low" in numbers.column_names, "percent" in numbers.column_names
    heads = [old, new, "change", *(["noise interval"] * errors), *(["percent"] * percent)]
    table = Table(
        *shown,
        *number_columns(*map(escape, heads)),
        title=escape(f"{mark}{name}: {old} to {new}"),
        caption=rest_words(numbers.num_rows - most, "(--output writes them all)"),
    )
    for row in numbers.slice(0, most).to_pylist():
        words = [escape(str(row[label])) for label in shown]
        words += [value_text(row["old"]), value_text(row["new"]), f"{row['change']:+,.5g}"]
        if errors:
            words.append(f"{row['low']:+,.5g} to {row['high']:+,.5g}")
        if percent:
            words.append(_percent_text(row))
        table.add_row(*words)
    return table


def _percent_text(row: dict[str, Any]) -> str:
    if not math.isfinite(row["percent"]):
        return "–"
    text = f"{row['percent']:+,.2f} %"
    ends = [row.get(end, math.nan) for end in ("percent_low", "percent_high")]
    return f"{text} ({ends[0]:+,.2f} to {ends[1]:+,.2f})" if all(map(math.isfinite, ends)) else text


def change_words(changes: EditionChange) -> str:
    """What differences and intervals are, and which tables have none."""
    text = (
        "Differences of the consistent views. The two releases have independent noise; intervals "
        f"at {changes.confidence:.0%} cover the privacy noise of both, and nothing else."
    )
    left_out = "; ".join(f"{name}: {why}" for name, why in changes.left_out.items())
    return f"{text}\nleft out: {left_out}" if left_out else text
