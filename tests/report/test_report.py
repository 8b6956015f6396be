"""The report is one sound page that holds the whole release, with or without charts."""

import html
import itertools
import re
import sys
from html.parser import HTMLParser
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest

from psephos.errors import ReleaseError, UnsupportedError
from psephos.release.pages.facts import ReleaseFacts
from psephos.release.pages.page import write_report
from psephos.release.preflight.checks import create_ledger
from psephos.release.preflight.forecast import forecast_measured as plan
from psephos.release.run import rehearse, release
from psephos.release.spec.job import Job
from psephos.release.views.layout import cross_tables
from psephos.report import table_charts as charts
from psephos.report.cross_table import HeadingAxis, laid_out
from psephos.report.page_table import MOST_ROWS
from tests.release.conftest import RELEASE, write_job

ODD = '<b>&"'
SVG = "{http://www.w3.org/2000/svg}"
NINETY_NINE = tuple(map(str, range(99)))
AGES = [HeadingAxis("age", "age", NINETY_NINE, (False,) * 99, (0,) * 99)], []
FILE = """
name = "home"
title = "Homes & <owners>"
publisher = "Office of <i>Counts</i>"
description = "Who owns.\\n\\nAnd who does not."
facts = ["Everyone lives somewhere."]
source = "men.csv"
zeros = ["age < 2 AND own = 1"]
[privacy]
unit = "person"
column = "id"
max_rows = 2
[ledger]
path = "men.ledger"
dataset = "men"
{budget}
[budget]
{budget}
[schema.age]
integers = [0, 29]
title = "Age in years"
fact = "birthdays are public"
unknown = "clip"
[schema.age.levels]
broad = [0, 20]
[schema.own]
values = [0, 1]
labels = ["rents", '<b>&"']
unknown = "other"
[[tables]]
name = "t1"
title = "Owners <all>"
sql = "SELECT own, COUNT(*) FROM t WHERE age < 20 GROUP BY own"
[[tables]]
name = "t2"
rows = ["age.broad"]
columns = ["own"]
weight = 2
[[tables]]
name = "long"
rows = ["age"]
columns = ["own"]
{long}
[selection]
strategy = "identity"
[output]
formats = ["csv", "parquet", "wide"]
"""
MORE = '[[tables]]\nname = "all"\nqueries = { age = "all_range" }'


def job_in(folder, budget='epsilon = "0.5"', long=MORE):
    (folder / "release.toml").write_text(FILE.format(budget=budget, long=long))
    rows = [f"{i},{i % 30},{i % 2}" for i in range(300)]
    (folder / "men.csv").write_text("\n".join(["id,age,own", *rows]) + "\n")
    return Job.read(folder)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    job = job_in(tmp_path_factory.mktemp("release"))
    create_ledger(job)
    return release(job, unchecked=True)


@pytest.fixture(scope="module")
def rehearsal(tmp_path_factory):
    return rehearse(job_in(tmp_path_factory.mktemp("rehearsal"), 'rho = "1/50"', ""), rows=500)


@pytest.fixture(params=["bundle", "rehearsal"])
def page(request):
    return request.getfixturevalue(request.param).report.read_text(encoding="utf-8")


@pytest.fixture
def without_plots(monkeypatch):
    monkeypatch.setitem(sys.modules, "vl_convert", None)


class Reader(HTMLParser):
    """Checks that elements close in order; keeps text, ids and links."""

    def __init__(self, page):
        super().__init__()
        self.open, self.text, self.ids, self.links, self.elements = [], [], [], [], []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.handle_startendtag(tag, attrs)
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        for name, value in attrs:
            assert not name.startswith("on"), name
            self.ids += [value] if name == "id" else []
            self.links += [value] if name in ("href", "src", "data") else []

    def handle_endtag(self, tag):
        assert self.open.pop() == tag, (tag, self.getpos())

    def handle_data(self, data):
        self.text.append(data)

    @property
    def words(self):
        return " ".join("".join(self.text).split())

    def count(self, tag):
        return sum(name == tag for name, _ in self.elements)


def test_the_page_is_sound(page):
    read = Reader(page)
    assert len(read.ids) == len(set(read.ids))
    assert read.count("h1") == 1
    assert read.count("caption") == read.count("table") > 5
    for tag, attrs in read.elements:
        assert tag not in ("script", "link", "iframe", "img", "object")
        if tag == "th":
            assert attrs["scope"] in ("row", "col", "rowgroup", "colgroup")
        if tag == "svg":
            assert attrs.get("aria-hidden") == "true" or attrs["aria-label"]


def test_the_page_fetches_nothing(page):
    read = Reader(page)
    assert read.links
    inner = [link for link in read.links if link.startswith("#")]
    assert all(link[1:] in read.ids for link in inner)
    files = [link for link in read.links if not link.startswith("#")]
    assert all(re.fullmatch(r"(tables|published|consistent)/[\w.%-]+", link) for link in files)
    assert "http" not in page
    assert "@import" not in page
    assert not re.search(r"url\((?!#)", page)


def numbers_on(page):
    """The numbers of every table on a page, by what the table is called."""
    tables = {}
    for piece in re.findall(r'<table class="cross.*?</table>', page, flags=re.DOTALL):
        caption = re.search(r"<caption[^>]*>(.*?)</caption>", piece)[1]
        cells = re.findall(r"<td[^>]*>([^<]*?) ?(?:<small>|</td>)", piece)
        title = html.unescape(caption).split(", part ")[0]
        tables.setdefault(title, []).extend(filter(None, cells))
    return tables


def test_the_page_holds_every_table(bundle):
    page = bundle.report.read_text(encoding="utf-8")
    read = Reader(page)
    shown = numbers_on(page)
    for table in bundle.job.tables:
        assert table.title in read.words
        numbers = [
            f"{number:,}" for number in bundle.table(table.name, "published")["count"].to_pylist()
        ]
        if table.name != "all":
            assert sorted(shown[table.title]) == sorted(numbers)
    assert len(shown["all"]) == MOST_ROWS
    assert "Shown are 60 of 465 rows, totals included; the files hold them all." in read.words


def test_links_beside_a_table_lead_to_its_files(bundle):
    read = Reader(bundle.report.read_text(encoding="utf-8"))
    links = [unquote(link) for link in read.links if not link.startswith("#")]
    files = {f"tables/{t.name}.csv" for t in bundle.job.tables}
    files |= {f"published/{t.name}.{k}" for t in bundle.job.tables for k in ("csv", "parquet")}
    assert set(links) == files
    assert all((bundle.path / link).is_file() for link in links)


def test_every_number_has_its_margin(bundle):
    """On a page of published numbers the ± beside each covers its interval."""
    page = bundle.report.read_text(encoding="utf-8")
    (html_table,) = re.findall(
        r'<table class="cross.*?</table>', page.split("Table 2. t2</h2>")[1], re.DOTALL
    )[:1]
    cells = re.findall(r"<td[^>]*>([\d,]+) <small>±\xa0([\d,]+)</small>", html_table)
    (table,) = [each for each in bundle.job.tables if each.name == "t2"]
    (laid_out,) = cross_tables(bundle.job, table, bundle.table("t2", "published"))
    low, high = laid_out.grid("low").ravel(), laid_out.grid("high").ravel()
    assert len(cells) == low.size
    for (number, margin), down, up in zip(cells, low, high, strict=True):
        count, half = (int(text.replace(",", "")) for text in (number, margin))
        assert count - half <= down <= up <= count + half


def test_the_page_says_what_was_asked_and_spent(bundle):
    words = Reader(bundle.report.read_text()).words
    sentences = ["Homes & <owners>", "Office of <i>Counts</i>", "And who does not.", "Age in years"]
    sentences += ["birthdays are public", "Everyone lives somewhere.", "age < 2 AND own = 1"]
    sentences += ["SELECT own, COUNT(*) FROM t WHERE age < 20 GROUP BY own", "rows: age.broad"]
    sentences += ["ε = 0.5", "all rows of one person added or removed", "at most 2 rows", "entry 1"]
    sentences += [
        "Pr[M(D) ∈ S] ≤ eε · Pr[M(D′) ∈ S]",
        "psephos verify BUNDLE",
        "psephos ask BUNDLE",
    ]
    sentences += ["every cell (Identity)", "estimates the bias", bundle.receipt["charge"]["time"]]
    sentences += [f"Office of <i>Counts</i> ({bundle.receipt['charge']['time'][:4]})"]
    for text in sentences:
        assert text in words, text
    assert "REHEARSAL" not in words


def test_counts_lie_in_their_intervals(tmp_path):
    """Even among many empty cells, where estimates are far from the consistent ones."""
    place = write_job(tmp_path, RELEASE.replace('"age.broad"', '"age"'), "age,pet\n5,cat\n")
    job = Job.read(place)
    create_ledger(job)
    bundle = release(job, unchecked=True)
    page = Reader(bundle.report.read_text(encoding="utf-8"))
    for table in job.tables:
        for row in bundle.table(table.name, "published").to_pylist():
            assert 0 <= row["low"] <= row["count"] <= row["high"]
    aloud = [
        attrs for tag, attrs in page.elements if tag == "caption" and attrs.get("class") == "aloud"
    ]
    assert len(aloud) == len(job.tables)


def test_a_rehearsal_says_so(rehearsal):
    page = rehearsal.report.read_text()
    words = Reader(page).words
    assert words.count("REHEARSAL on made-up data") == 2
    assert "<title>Rehearsal: " in page
    assert "zCDP" in words
    assert "δ = 10⁻⁶" in words


def test_labels_are_escaped(page):
    assert "<b>" not in page
    assert "<i>" not in page
    assert ODD in "".join(Reader(page).text)


def test_nothing_of_the_source_is_on_the_page(bundle):
    assert "men.csv" not in bundle.report.read_text()


def test_pages_need_no_packages_for_plots(bundle, tmp_path, without_plots):
    write_report(ReleaseFacts(plan(bundle.job), bundle.views), tmp_path / "report.html")
    read = Reader((tmp_path / "report.html").read_text())
    assert read.count("figure") == len(bundle.job.tables)
    bundle.plot("t1").save(tmp_path / "t1.svg")
    with pytest.raises(UnsupportedError, match="psephos\\[plots\\]"):
        bundle.plot("t1").save(tmp_path / "t1.png")


FORTY = """
name = "forty"
title = "Pairs"
source = "x.csv"
privacy = { unit = "add_remove_row" }
ledger = { path = "x.ledger", dataset = "x", epsilon = "10" }
budget = { epsilon = "1" }
"""


@pytest.mark.slow
def test_a_page_of_45_tables_is_light(tmp_path):
    sizes = [2, 3, 4, 5, 5, 6, 7, 8, 8, 20]
    schema = [f"[schema.attribute{i}]\nintegers = [1, {n}]\n" for i, n in enumerate(sizes)]
    pairs = '[[tables]]\nname = "pairs"\nbuilder = "marginals"\nk = 2\n'
    (tmp_path / "release.toml").write_text(FORTY + "".join(schema) + pairs)
    page = rehearse(Job.read(tmp_path), rows=5000).report.read_text(encoding="utf-8")
    read = Reader(page)
    assert sum(attrs.get("class") == "result" for _, attrs in read.elements) == 45
    assert "Tables45 Numbers" in read.words
    assert len(page.encode()) < 1_000_000


# ---- charts ------------------------------------------------------------------------------------


def table_of(**columns):
    rows = list(itertools.product(*columns.values()))
    count = np.arange(len(rows)) * 10.0 - 5
    labels = {name: [str(row[i]) for row in rows] for i, name in enumerate(columns)}
    return pa.table(
        labels | {"count": count, "stderr": count * 0 + 3, "low": count - 6, "high": count + 6}
    )


def marks(chart):
    """How many marks of each kind the picture has, legends and axes aside."""
    numbers = {"rect": 0, "rule": 0, "line": 0, "band": 0}
    for panel in ElementTree.fromstring(chart.svg).findall(f"{SVG}svg"):
        for node in panel.findall(f"{SVG}g"):
            numbers["rect"] += len(node.findall(f"{SVG}rect"))
            for path in node.findall(f"{SVG}path"):
                numbers[path.get("class", "rule")] += 1
    return {kind: number for kind, number in numbers.items() if number}


CASES = {
    "bars": (table_of(own=["rents", ODD]), (), {"rect": 2, "rule": 2}),
    "total": (table_of(), (), {"rect": 1, "rule": 1}),
    "totals": (table_of(own=["rents", "owns", "total"]), (), {"rect": 2, "rule": 2}),
    "many": (table_of(own=range(70)), (), {"rect": 60, "rule": 60}),
    "same": (table_of(own=["a", "a", "b"]), (), {"rect": 3, "rule": 3}),
    "line": (table_of(age=range(50)), ("age",), {"line": 1, "band": 1}),
    "groups": (table_of(age="abc", own="xy"), (), {"rect": 6, "rule": 6}),
    "lines": (table_of(age=range(50), own="xy"), ("age",), {"line": 2, "band": 2}),
    "heat": (table_of(age="abcdefghi", own="uvwxyz"), (), {"rect": 54}),
    "long heat": (table_of(job=range(70), own="uvwxyz"), (), {"rect": 360}),
    "heat in panels": (table_of(a="abcdefg", b="uvwxyz", c="opqrst"), (), {"rect": 252}),
    "panels": (table_of(sex="fm", age="abc", own="xy"), (), {"rect": 12, "rule": 12}),
}


@pytest.mark.parametrize("case", CASES)
def test_charts_have_a_mark_for_each_count(case):
    table, ordered, numbers = CASES[case]
    chart = charts.table_chart(table, "Some <title>", ordered=ordered, titles={"age": "Age.[0]"})
    assert marks(chart) == numbers


def test_column_names_need_no_quoting():
    chart = charts.table_chart(table_of(**{"a.b[0]:N 'x'": "pqr", "count_": "xy"}), "")
    assert marks(chart)["rect"] == 6


def test_parts_have_a_chart_each():
    one, two = table_of(age="abc"), table_of(own="xy")
    names = ("count", "stderr", "low", "high")
    numbers = {n: one[n].to_pylist() + two[n].to_pylist() for n in names}
    labels = {"part": ["age"] * 3 + ["own"] * 2, "age": [*"abc", "total", "total"]}
    labels["own"] = ["total"] * 3 + [*"xy"]
    chart = charts.table_chart(pa.table(labels | numbers), "both")
    assert len(ElementTree.fromstring(chart.svg).findall(f"{SVG}svg")) == 2
    assert marks(chart)["rect"] == 5


def test_a_chart_is_the_figure_of_the_report(bundle):
    """Drawn once: the same marks, mark for mark, beside the table on the page."""
    page = bundle.report.read_text(encoding="utf-8")
    for table in bundle.job.tables:
        chart = bundle.plot(table.name, "published")
        pieces = re.findall(r'<g class="s\d">.*?</g>', chart.svg.split("<svg", 2)[2])
        assert pieces
        assert all(piece in page for piece in pieces)


def test_a_chart_needs_nothing_else(bundle):
    chart = bundle.plot("t2")
    assert chart.title == "t2"
    assert chart._repr_svg_() == chart.svg
    assert "var(" not in chart.svg
    assert "url(" not in chart.svg
    assert chart.svg.count("http") == 1  # what it is: the namespace of SVG
    ids = [node.tag for node in ElementTree.fromstring(chart.svg).iter()]
    assert f"{SVG}script" not in ids
    assert repr(chart) == "Chart(title='t2')"


@pytest.mark.parametrize("ending", ["png", "svg", "html"])
def test_charts_are_saved(bundle, tmp_path, ending):
    place = tmp_path / f"chart.{ending}"
    bundle.plot("t2", "published").save(place)
    assert place.stat().st_size > 1000
    if ending == "html":
        assert not re.search(r"<(script|link)[^>]*(src|href)=", place.read_text())


def test_other_endings_are_refused(bundle, tmp_path):
    with pytest.raises(UnsupportedError, match=r"\.svg, \.html or \.png"):
        bundle.plot("t1").save(tmp_path / "chart.gif")


def test_plots_of_unknown_tables_are_refused(bundle):
    with pytest.raises(ReleaseError, match="no table"):
        bundle.plot("t9")


# ---- notebooks ---------------------------------------------------------------------------------


def test_values_show_themselves_in_notebooks(bundle):
    forecast = plan(bundle.job)
    for value, word in [(bundle, "t1"), (forecast, "Owners <all>"), (bundle.strategy, "answers")]:
        read = Reader(value._repr_html_())
        assert word in read.words
    assert "every cell (Identity)" in Reader(forecast._repr_html_()).words


def test_a_page_without_a_publisher_and_with_a_cap(bundle, tmp_path):
    page = bundle.report.read_text(encoding="utf-8")
    assert "At most 2 rows of each person are counted, in all tables alike." in page
    assert "Office of &lt;i&gt;Counts&lt;/i&gt; (20" in page
    job = job_in(tmp_path, long="")
    nobody = job.file.model_copy(update={"publisher": ""})
    page = rehearse(Job.of(nobody, tmp_path), rows=10).report.read_text(encoding="utf-8")
    assert "[publisher]" not in page
    assert "<p>Homes &amp; &lt;owners&gt; (n.d.). Rehearsal on made-up data, ε = 0.5" in page


def test_tables_are_drawn_with_matplotlib_too(release_path, tmp_path):
    import matplotlib as mpl

    mpl.use("agg")
    bundle = release(release_path)
    axes = bundle.draw("pets", "published")
    assert axes.get_title() == bundle.job.tables[0].title
    words = [label.get_text() for label in axes.get_yticklabels()]
    assert len(words) == 3 * 4  # no totals
    assert words[0].endswith("cat")
    axes.figure.savefig(tmp_path / "pets.png")
    assert (tmp_path / "pets.png").stat().st_size > 1000
    assert bundle.draw("young", axes=axes) is axes
    line = charts.draw_tables([laid_out("ages", "ages", table_of(age=range(99)), AGES)], "ages")
    assert line.get_xticklabels()[-1].get_text() == "98"
