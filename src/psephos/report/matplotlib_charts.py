"""Tables on matplotlib's axes, for those who set their papers with it; altair is the usual way."""

from __future__ import annotations

from typing import Any

import numpy as np

from psephos.errors import ReleaseError
from psephos.report.points import PART, Points

EXTRA = "pip install matplotlib"
LISTED = 60
"""The most counts that are listed one below the other; more are a line with a band."""


def draw(points: Points, title: str, axes: Any = None) -> Any:
    """Counts and their noise intervals, without totals; returns the axes they are drawn on."""
    shown = points.without_totals()
    if axes is None:
        axes = _new_axes(len(shown))
    count, low, high = (np.array(shown.numbers[name]) for name in ("count", "low", "high"))
    columns = [name for name in shown.labels if name != PART] or list(shown.labels)
    rows = zip(*(shown.labels[name] for name in columns), strict=True)
    words = [", ".join(row) for row in rows] or ["all"]
    if len(shown) <= LISTED:
        place = np.arange(len(shown))[::-1]
        axes.hlines(place, low, high, color="tab:blue", alpha=0.5, linewidth=3)
        axes.plot(count, place, "o", color="tab:blue", markersize=4)
        axes.set_yticks(place, words)
        axes.set_xlabel("count")
    else:
        axes.fill_between(np.arange(len(shown)), low, high, alpha=0.3, linewidth=0)
        axes.plot(count, linewidth=1)
        ticks = np.linspace(0, len(shown) - 1, 6).astype(int)
        axes.set_xticks(ticks, [words[i] for i in ticks])
        axes.set_ylabel("count")
        axes.set_xlabel(", ".join(columns))
    axes.set_title(title)
    return axes


def _new_axes(counts: int) -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ReleaseError(f"matplotlib is not installed: {EXTRA}") from None
    height = 1 + 0.25 * counts if counts <= LISTED else 4.0
    return plt.subplots(figsize=(7, max(2.0, height)), layout="constrained")[1]
