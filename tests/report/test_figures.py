"""Figures of a page: each number once, scales from zero, labels that never become markup."""

import itertools
import re
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest

from psephos.report.cross_table import HeadingAxis, laid_out
from psephos.report.drawing import ticks
from psephos.report.figures import MOST_FACETS, SHADES, figure_of, shades
from psephos.report.page_table import page_tables, shown_part

ODD = '<b>&"'


def axis(name, labels, *, totals=True, **more):
    words = tuple(map(str, labels)) + ("total",) * totals
    marks = (False,) * len(labels) + (True,) * totals
    return HeadingAxis(name, name.capitalize(), words, marks, (0,) * len(words), **more)


def table_of(down, across=(), values=None, margin=6.0):
    """A table over all combinations of labels; its numbers are 10, 20, 30 … unless given."""
    axes = [*down, *across]
    rows = list(itertools.product(*(each.labels for each in axes)))
    labels = {each.column: [row[k] for row in rows] for k, each in enumerate(axes)}
    count = np.arange(1, len(rows) + 1) * 10.0 if values is None else np.array(values, dtype=float)
    numbers = {"count": count, "stderr": count * 0 + 3, "low": count - margin}
    data = pa.table(labels | numbers | {"high": count + margin})
    return laid_out("t", "A table", data, (down, across))


def drawn(figure):
    """How many marks of each kind there are in all panels."""
    counts = {"rect": 0, "line": 0, "band": 0, "rule": 0}
    for svg in figure.chart:
        for node in ElementTree.fromstring(svg).iter():
            if node.tag == "rect":
                counts["rect"] += 1
            elif node.tag == "g":
                looks = [child.get("class") for child in node if child.tag == "path"]
                counts["line"] += looks.count("line")
                counts["band"] += looks.count("band")
                counts["rule"] += looks.count(None)
    return {kind: number for kind, number in counts.items() if number}


SEX, REGION = axis("sex", "fm"), axis("region", "abcd")
AGE = axis("age", range(30), ordered=True, widths=(1.0,) * 30 + (float("nan"),))
CDF = axis("income", range(8), totals=False, ordered=True, cumulative=True)
BINS = axis("income", ["0", "1", "2"], ordered=True, widths=(10.0, 40.0, 50.0, float("nan")))
MANY = [axis("work", range(9)), axis("home", range(8))]
CASES = {
    "bars": (table_of([REGION]), {"rect": 4, "rule": 4}),
    "groups": (table_of([REGION], [SEX]), {"rect": 8, "rule": 8}),
    "line": (table_of([AGE]), {"line": 1, "band": 1}),
    "lines": (table_of([AGE], [SEX]), {"line": 2, "band": 2}),
    "steps": (table_of([CDF], [SEX]), {"line": 2, "band": 2}),
    "density": (table_of([BINS]), {"rect": 3, "rule": 3}),
    "facets": (table_of([axis("part", "xy"), REGION], [SEX]), {"rect": 16, "rule": 16}),
    "lines in facets": (table_of([axis("work", range(7)), AGE], [SEX]), {"line": 14, "band": 14}),
}


@pytest.mark.parametrize("case", CASES)
def test_figures_have_a_mark_for_each_number_that_is_no_total(case):
    cross, marks = CASES[case]
    figure = figure_of(cross, "95 %", "words")
    assert drawn(figure) == marks
    assert "95 % noise interval" in figure.legend[-1].text


@pytest.mark.parametrize("case", CASES)
def test_every_colour_is_in_the_legend(case):
    figure = figure_of(CASES[case][0], "95 %", "words")
    colours = set(re.findall(r'<g class="(s\d)"', "".join(figure.chart)))
    assert colours == {key.look for key in figure.legend} - {"band", "rule"}


@pytest.mark.parametrize("case", CASES)
def test_scales_start_at_zero(case):
    figure = figure_of(CASES[case][0], "95 %", "words")
    for svg in figure.chart:
        assert 'class="zero"' in svg
        assert 'role="img" aria-label="words' in svg


def test_steps_rise_at_the_end_of_a_value_and_never_fall():
    figure = figure_of(table_of([CDF]), "95 %", "words")
    (path,) = re.findall(r'class="line" d="M([^"]*)"', figure.chart[0])
    points = [tuple(map(float, pair.split())) for pair in path.split("L")]
    for (x0, y0), (x1, y1) in itertools.pairwise(points):
        assert x0 == x1 or y0 == y1
        assert x1 >= x0
        assert y1 <= y0  # upwards is less
    assert len({x for x, _ in points}) == 9  # where it starts, and the end of each value


def test_areas_of_densities_are_counts():
    figure = figure_of(table_of([BINS], values=[100, 200, 300, 600], margin=1), "95 %", "words")
    sizes = re.findall(r'width="([\d.]+)" height="([\d.]+)"/><path', figure.chart[0])
    areas = [(float(width) + 0.8) * float(height) for width, height in sizes]
    assert np.allclose(np.array(areas) / areas[0], [1, 2, 3], rtol=0.02)
    assert "the area of a bar is the count" in figure.caption


def test_what_is_too_narrow_to_see_is_said():
    assert "too narrow to see" in figure_of(table_of([REGION], margin=0.05), "95 %", "").caption
    assert "too narrow to see" not in figure_of(table_of([REGION], margin=5), "95 %", "").caption


def test_tables_of_many_by_many_are_shaded():
    cross = table_of(MANY[:1], MANY[1:])
    assert figure_of(cross, "95 %", "words") is None
    levels, legend = shades(cross)
    assert levels.shape == cross.shape
    assert not levels[cross.totals].any()
    assert levels.max() == SHADES == len(legend)
    order = np.argsort(cross.values[~cross.totals])
    assert (np.diff(levels[~cross.totals][order]) >= 0).all()
    assert shades(table_of([REGION], [SEX])) is None
    (panel,) = page_tables(cross, levels)
    assert {number.shade for row in panel.rows for number in row.numbers} == {*range(SHADES + 1)}


def test_many_facets_are_cut_and_said():
    cross = table_of([axis("work", range(MOST_FACETS + 3)), AGE], [SEX])
    figure = figure_of(cross, "95 %", "words")
    assert len(figure.chart) == MOST_FACETS
    assert f"The first {MOST_FACETS} of {MOST_FACETS + 3} panels" in figure.caption


def test_labels_and_words_are_escaped():
    odd = axis("pet", [ODD, "dog"])
    for cross in (table_of([odd]), table_of([AGE], [odd]), table_of([odd, REGION], [SEX])):
        svg = "".join(figure_of(cross, "95 %", ODD).chart)
        assert "<b>" not in svg
        texts = [n.text for s in re.findall(r"<svg.*?</svg>", svg) for n in
                 ElementTree.fromstring(s).iter() if n.text]  # fmt: skip
        assert any(ODD in text for text in texts)


def test_one_number_has_no_figure():
    assert figure_of(table_of([axis("sex", ["f"], totals=False)]), "95 %", "") is None


@pytest.mark.parametrize(("low", "high"), [(0, 23), (0, 1e7), (-3, 4), (0, 0.02), (0, 1)])
def test_ticks_are_round_and_inside(low, high):
    marks = ticks(low, high)
    assert 2 <= len(marks) <= 6
    assert low - 1e-9 <= marks[0] <= marks[-1] <= high + 1e-9
    assert 0 in marks


# ---- tables on a page --------------------------------------------------------------------------


def test_outer_headings_are_lines_of_their_own():
    (panel,) = page_tables(table_of([REGION, SEX]))
    heads = [row.heading for row in panel.rows if not row.numbers]
    assert heads == ["Region: a", "Region: b", "Region: c", "Region: d", "Region: total"]
    assert panel.corner == "Sex"
    assert [row.total for row in panel.rows[:4]] == [False, False, False, True]


def test_wide_tables_are_set_in_panels():
    cross = table_of([SEX], [axis("age", range(30))], values=np.arange(93) * 1000)
    panels = page_tables(cross)
    assert len(panels) > 1
    heads = [head.text for panel in panels for head in panel.heads[-1]]
    assert heads == [*map(str, range(30)), "total"]
    numbers = [n.text for panel in panels for row in panel.rows for n in row.numbers]
    assert sorted(numbers) == sorted(f"{n:,}.0" for n in range(0, 93_000, 1000))


def test_panels_keep_groups_of_columns_together():
    down, across = [SEX], [axis("region", "abcdef"), axis("home", "xyz")]
    panels = page_tables(table_of(down, across, values=np.arange(84) * 100_000))
    assert len(panels) > 1
    assert all(head.span == 4 for panel in panels for head in panel.heads[0])


def test_long_tables_are_cut_and_keep_their_total():
    cross = table_of([axis("age", range(300))], [SEX])
    part = shown_part(cross, 60)
    assert part.shape == (21, 3)
    assert part.rows.words(20) == ("total",)
    assert shown_part(table_of([axis("age", range(21))], [SEX]), 60).shape == (22, 3)
