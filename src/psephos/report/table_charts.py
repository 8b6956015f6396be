"""Charts of tables: the figures of a report, by themselves; and counts on matplotlib's axes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from psephos.errors import ReleaseError
from psephos.report.chart import Chart, stacked
from psephos.report.cross_table import (
    PART,
    TOTAL,
    CrossTable,
    HeadingAxis,
    laid_out,
    with_distinct_labels,
)
from psephos.report.drawn_numbers import DrawnNumbers
from psephos.report.figures import description_of, figure_of

MOST_TABLES = 6
MATPLOTLIB = "pip install matplotlib"
LISTED_COUNTS = 60  # on matplotlib's axes, the most counts one below the other; more are a line


def table_chart(
    table: pa.Table,
    title: str,
    *,
    ordered: Sequence[str] = (),
    titles: Mapping[str, str] | None = None,
    confidence: str = "",
) -> Chart:
    """A chart of a table of labels and counts, with noise intervals where they are known.

    Args:
        table: labels, then count and, where they are known, stderr, low and high
        title: what it is called
        ordered: attributes whose values follow each other, such as ages
        titles: what to call attributes
        confidence: of the intervals, in words
    """
    parts = table[PART].unique().to_pylist() if PART in table.column_names else [None]
    crosses = []
    for part in parts:
        rows = table
        if part is not None:
            mask = pa.array([each == part for each in table[PART].to_pylist()], pa.bool_())
            rows = table.filter(mask).drop_columns(PART)
        name = title if part is None else str(part)
        crosses.append(_cross_table(rows, name, ordered, titles or {}))
    return chart_of(crosses, title, confidence)


def chart_of(tables: Sequence[CrossTable], title: str, confidence: str) -> Chart:
    """A chart of tables that are laid out, one below the other; totals are not drawn."""
    figures, several = [], len(tables) > 1
    for cross in tables[:MOST_TABLES]:
        words = confidence if cross.has_errors else None
        figure = figure_of(cross, words, description_of(cross), alone=True)
        fixed = "; ".join(f"{name}: {label}" for name, label in cross.fixed)
        if figure is not None:
            figures.append((cross.title if several else "", fixed, figure))
    cut = f"the first {MOST_TABLES} of {len(tables):,} parts" if len(tables) > MOST_TABLES else ""
    return stacked(title, figures, cut)


def _cross_table(
    table: pa.Table, title: str, ordered: Sequence[str], titles: Mapping[str, str]
) -> CrossTable:
    """A table whose labels all run down the side."""
    names = table.column_names[: table.column_names.index("count")]
    live = [name for name in names if len(table[name].unique()) > 1]
    words = {name: str(table[name][0]) for name in names if name not in live and table.num_rows}
    fixed = tuple(
        (titles.get(name, name), word) for name, word in words.items() if word not in ("", TOTAL)
    )
    data = with_distinct_labels(table, live or names[-1:])
    axes = [
        _axis(name, data[name].to_pylist(), titles.get(name, name), name in ordered)
        for name in data.column_names[: data.column_names.index("count")]
        if name in live or len(data[name].unique()) > 1
    ]
    return laid_out(title, title, data, (axes, ()), fixed=fixed)


def _axis(name: str, words: Sequence[str], title: str, ordered: bool) -> HeadingAxis:
    total = f"({TOTAL})" if f"({TOTAL})" in words else TOTAL  # a value may be called "total" too
    labels = sorted(dict.fromkeys(words), key=lambda word: word == total)  # stable: totals last
    marks = tuple(word == total for word in labels)
    return HeadingAxis(name, title, tuple(labels), marks, (0,) * len(labels), ordered=ordered)


# ---- matplotlib --------------------------------------------------------------------------------


def draw_tables(tables: Sequence[CrossTable], title: str, axes: Any = None) -> Any:
    """Numbers and their noise intervals on matplotlib's axes, without totals; returns the axes."""
    cells = [DrawnNumbers.of(cross) for cross in tables]
    count, low, high = (
        np.concatenate([getattr(each, name) for each in cells]) for name in ("value", "low", "high")
    )
    words = [each.labels(i) or "all" for each in cells for i in range(len(each.value))]
    if axes is None:
        axes = _new_axes(len(words))
    if len(words) <= LISTED_COUNTS:
        place = np.arange(len(words))[::-1]
        axes.hlines(place, low, high, color="tab:blue", alpha=0.5, linewidth=3)
        axes.plot(count, place, "o", color="tab:blue", markersize=4)
        axes.set_yticks(place, words)
        axes.set_xlabel(tables[0].heading)
    else:
        axes.fill_between(np.arange(len(words)), low, high, alpha=0.3, linewidth=0)
        axes.plot(count, linewidth=1)
        ticks = np.linspace(0, len(words) - 1, 6).astype(int)
        axes.set_xticks(ticks, [words[i] for i in ticks])
        axes.set_ylabel(tables[0].heading)
        axes.set_xlabel(", ".join(axis.title for axis in tables[0].axes))
    axes.set_title(title)
    return axes


def _new_axes(counts: int) -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ReleaseError(f"matplotlib is not installed: {MATPLOTLIB}") from None
    height = 1 + 0.25 * counts if counts <= LISTED_COUNTS else 4.0
    return plt.subplots(figsize=(7, max(2.0, height)), layout="constrained")[1]
