"""Charts of a release, each from one Vega-Lite spec, for a notebook or a file.

They need altair and vl-convert, which the extra `plots` installs; both are imported when a chart is
made and not before. `draw_table` is for those who set their papers with matplotlib.
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from psephos.errors import ReleaseError, UnsupportedError
from psephos.report.points import NUMBER_COLUMNS, PART, TOTAL, Points, shape_of

MOST_BARS = 40
MOST_PANELS = 6
HEAT_MAP_SIDE = 120  # the most rows or columns of a heat map
COLOURS = ["#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee"]  # Tol's bright scheme
FONT = "Arial, Liberation Sans, Helvetica, sans-serif"  # one width for all, so labels fit
WIDTH = 400
PLOTS_EXTRA = "pip install 'psephos[plots]'"
MATPLOTLIB = "pip install matplotlib"
LISTED_COUNTS = 60  # on matplotlib's axes, the most counts one below the other; more are a line


@dataclass(frozen=True)
class Style:
    """What the parts of one chart have in common."""

    alt: Any
    ordered: Sequence[str]
    titles: Mapping[str, str]
    extent: tuple[float, float] | None = None
    width: int = WIDTH
    order: Mapping[str, list[str]] = field(default_factory=dict)
    numbers: Sequence[str] = NUMBER_COLUMNS

    def title(self, name: str) -> str | None:
        return self.titles.get(name, name) or None

    def count(self) -> Any:
        """The scale of counts."""
        return self.alt.Undefined if self.extent is None else self.alt.Scale(domain=self.extent)


def table_chart(
    table: pa.Table,
    title: str,
    *,
    ordered: Sequence[str] = (),
    titles: Mapping[str, str] | None = None,
) -> Any:
    """A chart of one table of a view: counts with their noise intervals.

    Bars for one attribute, grouped bars or lines for two, a heat map where there are too many for
    either, and small multiples for more. Totals are left out where there is anything else.

    Args:
        table: labels, then count, stderr, low and high, as `Bundle.table` gives it
        title: what it is called
        ordered: attributes whose values follow each other, such as ages
        titles: what to call attributes
    """
    points = Points.of(table)
    numbers = NUMBER_COLUMNS if points.has_errors else NUMBER_COLUMNS[:1]
    style = Style(_module("altair"), tuple(ordered), titles or {}, numbers=numbers)
    if PART not in points.labels:
        return _configured(_titled_chart(points.without_totals().distinct(), title, style))
    parts = list(points.split([PART]))
    charts = [
        _titled_chart(part.without_totals().distinct(), name, style)
        for (name,), part in parts[:MOST_PANELS]
    ]
    note = f"the first {MOST_PANELS} of {len(parts):,} parts" if len(parts) > MOST_PANELS else ""
    column = style.alt.vconcat(*charts, title=_title(title, note), spacing=28)
    scales = dict.fromkeys(("color", "opacity", "yOffset"), "independent")
    return _configured(column.resolve_scale(**scales))


def save_chart(chart: Any, path: str | os.PathLike[str]) -> None:
    """Write a chart as .png, .svg, .html (all scripts inside) or .json (the Vega-Lite spec)."""
    place = Path(path)
    vlc = _module("vl_convert")
    spec = chart.to_dict()
    if place.suffix == ".png":
        place.write_bytes(vlc.vegalite_to_png(spec, scale=2))
    elif place.suffix == ".svg":
        place.write_text(vlc.vegalite_to_svg(spec), encoding="utf-8")
    elif place.suffix == ".html":
        place.write_text(vlc.vegalite_to_html(spec, bundle=True), encoding="utf-8")
    elif place.suffix == ".json":
        place.write_text(chart.to_json(), encoding="utf-8")
    else:
        raise UnsupportedError(
            f"a chart is saved as .png, .svg, .html or .json, got {place.name!r}"
        )


# ---- matplotlib --------------------------------------------------------------------------------


def draw_table(points: Points, title: str, axes: Any = None) -> Any:
    """Counts and their noise intervals on matplotlib's axes, without totals; returns the axes."""
    cells = points.without_totals()
    if axes is None:
        axes = _new_axes(len(cells))
    count, low, high = (np.array(cells.numbers[name]) for name in ("count", "low", "high"))
    columns = [name for name in cells.labels if name != PART] or list(cells.labels)
    rows = zip(*(cells.labels[name] for name in columns), strict=True)
    words = [", ".join(row) for row in rows] or ["all"]
    if len(cells) <= LISTED_COUNTS:
        place = np.arange(len(cells))[::-1]
        axes.hlines(place, low, high, color="tab:blue", alpha=0.5, linewidth=3)
        axes.plot(count, place, "o", color="tab:blue", markersize=4)
        axes.set_yticks(place, words)
        axes.set_xlabel("count")
    else:
        axes.fill_between(np.arange(len(cells)), low, high, alpha=0.3, linewidth=0)
        axes.plot(count, linewidth=1)
        ticks = np.linspace(0, len(cells) - 1, 6).astype(int)
        axes.set_xticks(ticks, [words[i] for i in ticks])
        axes.set_ylabel("count")
        axes.set_xlabel(", ".join(columns))
    axes.set_title(title)
    return axes


def _new_axes(counts: int) -> Any:
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        raise ReleaseError(f"matplotlib is not installed: {MATPLOTLIB}") from None
    height = 1 + 0.25 * counts if counts <= LISTED_COUNTS else 4.0
    return plt.subplots(figsize=(7, max(2.0, height)), layout="constrained")[1]


# ---- shapes ------------------------------------------------------------------------------------


def _titled_chart(points: Points, title: str, style: Style) -> Any:
    chart, note = _chart_of(points, style)
    constant = [
        f"{style.title(name)}: {words[0]}"
        for name, words in points.labels.items()
        if name not in points.columns and points.columns and words[0] != TOTAL
    ]
    notes = [*constant, *filter(None, (points.note, note))]
    return chart.properties(title=_title(title, "; ".join(notes)))


def _chart_of(points: Points, style: Style) -> tuple[Any, str]:
    """The chart of some points, and what it leaves out."""
    shape, columns = shape_of(points, style.ordered)
    style = replace(style, order=style.order or {n: points.values(n) for n in points.labels})
    if shape == "bars":
        cut = points.largest(MOST_BARS)
        return _bars(cut, columns[0], style), cut.note.removeprefix(points.note).strip(", ")
    if shape == "line":
        return _line(points, columns[0], style), ""
    if shape == "panels":
        return _panels(points, columns, style)
    if shape == "heat":
        cut = points.first(columns[0], HEAT_MAP_SIDE).first(columns[1], HEAT_MAP_SIDE)
        return _heat(cut, columns[0], columns[1], style), cut.note.removeprefix(points.note).strip(
            ", "
        )
    draw = _groups if shape == "groups" else _lines
    return draw(points, columns[0], columns[1], style), ""


def _bars(points: Points, name: str, style: Style) -> Any:
    alt = style.alt
    y = alt.Y("a0:N", sort=points.values(name), title=style.title(name), axis=_rows(alt))
    step = alt.Step(22 if len(points) <= MOST_BARS // 2 else 16)
    base = alt.Chart(_data(alt, points, [name]), width=style.width, height=step)
    base = base.encode(y=y, tooltip=_tooltip(alt, [name], style))
    x = alt.X("count:Q", title="count", scale=style.count())
    bars = base.mark_bar(color=COLOURS[0]).encode(x=x)
    return bars + _rules(base, alt)


def _groups(points: Points, long: str, short: str, style: Style) -> Any:
    alt = style.alt
    series = style.order.get(short) or points.values(short)
    base = alt.Chart(_data(alt, points, [long, short]), width=style.width)
    base = base.encode(
        y=alt.Y("a0:N", sort=points.values(long), title=style.title(long), axis=_rows(alt)),
        yOffset=alt.YOffset("a1:N", sort=series, scale=alt.Scale(domain=series)),
        tooltip=_tooltip(alt, [long, short], style),
    )
    bars = base.mark_bar().encode(
        x=alt.X("count:Q", title="count", scale=style.count()), color=_series(series, short, style)
    )
    step = {"step": 15, "for": "offset"}
    return (bars + _rules(base, alt)).properties(height=step)


def _line(points: Points, name: str, style: Style) -> Any:
    alt = style.alt
    base = alt.Chart(_data(alt, points, [name]), width=style.width, height=220)
    base = base.encode(x=_run(points, name, style))
    band = base.mark_area(color=COLOURS[0], opacity=0.3).encode(
        y=alt.Y("low:Q", title="count", scale=style.count()), y2="high:Q"
    )
    line = base.mark_line(color=COLOURS[0]).encode(
        y=alt.Y("count:Q", title="count"), tooltip=_tooltip(alt, [name], style)
    )
    return band + line


def _lines(points: Points, long: str, short: str, style: Style) -> Any:
    alt = style.alt
    series = style.order.get(short) or points.values(short)
    base = alt.Chart(_data(alt, points, [long, short]), width=style.width, height=220)
    base = base.encode(x=_run(points, long, style), color=_series(series, short, style))
    band = base.mark_area(opacity=0.25).encode(
        y=alt.Y("low:Q", title="count", scale=style.count(), stack=None), y2="high:Q"
    )
    line = base.mark_line().encode(
        y=alt.Y("count:Q", title="count"), tooltip=_tooltip(alt, [long, short], style)
    )
    return band + line


def _heat(points: Points, long: str, short: str, style: Style) -> Any:
    """Counts as strength of one colour, which reads alike on light and on dark pages."""
    alt = style.alt
    down, across = points.values(long), points.values(short)
    turned = len(down) > len(across) and long in style.ordered  # time and age run to the right
    names = [short, long] if turned else [long, short]
    if turned:
        down, across = across, down
    low, high = style.extent or points.extent
    wide = min(40.0, max(4.0, style.width / len(across)))
    tall = min(24.0, max(6.0 if names[0] in style.ordered else 13.0, 420 / len(down)))
    run: dict[str, Any] = {"labelOverlap": "greedy", "labelAngle": 0, "labelSeparation": 6}
    runs = run if names[1] in style.ordered else {}
    return (
        alt.Chart(_data(alt, points, names), width=alt.Step(wide), height=alt.Step(tall))
        .mark_rect(color=COLOURS[0])
        .encode(
            y=alt.Y("a0:N", sort=down, title=style.title(names[0]), axis=_rows(alt)),
            x=alt.X("a1:N", sort=across, title=style.title(names[1]), axis=_axis(alt, **runs)),
            opacity=alt.Opacity(
                "count:Q", title="count", scale=alt.Scale(domain=[low, high], range=[0.03, 1])
            ),
            tooltip=_tooltip(alt, names, style),
        )
    )


def _panels(points: Points, columns: list[str], style: Style) -> tuple[Any, str]:
    """One chart for each combination of the short columns, on one scale."""
    names = [name for name in points.labels if name in columns[2:]]
    parts = list(points.split(names))
    narrow = replace(style, extent=points.extent, width=WIDTH // 2)
    charts = []
    for key, part in parts[:MOST_PANELS]:
        words = [f"{style.title(name)}: {label}" for name, label in zip(names, key, strict=True)]
        charts.append(_chart_of(part, narrow)[0].properties(title=", ".join(words)))
    note = f"the first {MOST_PANELS} of {len(parts):,} panels" if len(parts) > MOST_PANELS else ""
    return style.alt.concat(*charts, columns=2).resolve_scale(opacity="shared"), note


# ---- pieces ------------------------------------------------------------------------------------


def _data(alt: Any, points: Points, names: Sequence[str]) -> Any:
    return alt.InlineData(values=points.rows(names))


def _axis(alt: Any, **more: Any) -> Any:
    return alt.Axis(**{"labelLimit": 200, **more})


def _rows(alt: Any) -> Any:
    """An axis of labels, one below the other; its title lies above it, however long it is."""
    above = {"titleAngle": 0, "titleAlign": "left", "titleX": 0, "titleY": -8, "titleLimit": 400}
    return _axis(alt, titleBaseline="bottom", **above)


def _run(points: Points, name: str, style: Style) -> Any:
    alt = style.alt
    axis = _axis(alt, labelOverlap="greedy", labelAngle=0, labelSeparation=6)
    return alt.X("a0:O", sort=points.values(name), title=style.title(name), axis=axis)


def _series(values: list[str], name: str, style: Style) -> Any:
    alt = style.alt
    scale = alt.Scale(domain=values, range=COLOURS[: len(values)])
    legend = alt.Legend(symbolOpacity=1, titleLimit=400)
    return alt.Color("a1:N", title=style.title(name), sort=values, scale=scale, legend=legend)


def _rules(base: Any, alt: Any) -> Any:
    """Noise intervals."""
    return base.mark_rule(color="#333333", strokeWidth=1.5).encode(
        x=alt.X("low:Q", title="count"), x2="high:Q"
    )


def _tooltip(alt: Any, names: Sequence[str], style: Style) -> list[Any]:
    labels = [alt.Tooltip(f"a{k}:N", title=style.title(n) or "") for k, n in enumerate(names)]
    return labels + [alt.Tooltip(f"{name}:Q", format=",.1f") for name in style.numbers]


def _title(text: str, note: str) -> dict[str, Any]:
    if not text:
        return {"text": note, "anchor": "start", "fontWeight": "normal", "fontSize": 12}
    return {"text": text, "anchor": "start", **({"subtitle": note} if note else {})}


def _configured(chart: Any) -> Any:
    return chart.configure(
        font=FONT,
        axis={"labelFontSize": 12, "titleFontSize": 12, "titleFontWeight": "normal"},
        legend={"orient": "bottom", "labelFontSize": 12, "titleFontSize": 12},
        title={"fontSize": 14, "subtitleFontSize": 12},
        view={"stroke": None},
    )


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        raise UnsupportedError(f"plots need altair and vl-convert: {PLOTS_EXTRA}") from None
