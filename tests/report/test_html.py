"""Templates and tables: nothing is left blank, and no text becomes markup."""

import importlib
import inspect
import json
import pkgutil
import re
from dataclasses import fields, is_dataclass, replace
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pytest
from jinja2 import UndefinedError

import psephos
from psephos.audit.audit import AuditReport
from psephos.audit.stage import AttackResult
from psephos.domain.domain import Domain
from psephos.errors import ShapeError
from psephos.infer.statistics import StatisticAnswers, Statistics, StatisticValues
from psephos.owner.report import CheckReport, Mismatch
from psephos.release.ask.ask import ask
from psephos.release.change import EditionChange
from psephos.release.methods.kind import ReleaseMethod
from psephos.release.methods.plan_forecast import plan_forecast
from psephos.release.pages.facts import ReleaseFacts
from psephos.release.pages.page import page_of
from psephos.release.preflight.forecast import forecast_measured as plan
from psephos.release.run import rehearse
from psephos.release.verify.verification import Check, Verification
from psephos.report.html import TEMPLATES, Cell, HtmlTable, environment, notebook_html, render
from psephos.report.page import page_html
from psephos.report.table_charts import table_chart
from psephos.workload.product import Product
from psephos.workload.workload import Workload
from tests.release.conftest import RELEASE, write_job
from tests.report.test_report import Reader, table_of

HOSTILE = "<script>\"&'</script>"
QUOTED = json.dumps(HOSTILE)
SQL = "SELECT pet, COUNT(*) FROM people WHERE age < 12 AND pet <> '&<i>' GROUP BY pet"


def hostile_job(folder):
    """The small release with markup in every text that a publisher writes."""
    text = RELEASE.replace('title = "Pets by age"', f"title = {QUOTED}\ndescription = {QUOTED}")
    text = text.replace('"The town"', f"{QUOTED}\nfacts = [{QUOTED}]\nedition = {QUOTED}")
    text = text.replace('title = "Age"', f"title = {QUOTED}\nfact = {QUOTED}")
    labels = json.dumps(["cat", HOSTILE, "horse", "&<i>"])
    text = text.replace('"dog", "horse"]', f'"dog", "horse", "&<i>"]\nlabels = {labels}')
    text = text.replace('columns = ["pet"]', f'columns = ["pet"]\ntitle = {QUOTED}')
    text = re.sub('sql = ".*"', f"sql = {json.dumps(SQL)}\ntitle = {QUOTED}", text)
    return write_job(folder, text)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return rehearse(hostile_job(tmp_path_factory.mktemp("hostile")), rows=200)


@pytest.fixture(scope="module")
def page(bundle):
    return page_of(ReleaseFacts(plan(bundle.job, draws=99), bundle.views))


def texts(html):
    """The text and the attributes of sound HTML that holds no script."""
    read = Reader(html)
    assert read.count("script") == read.count("i") == 0
    attributes = [value for _, attrs in read.elements for value in attrs.values()]
    return "".join(read.text) + "\n".join(attributes)


# ---- templates ---------------------------------------------------------------------------------


def test_an_unknown_variable_fails():
    template = environment().from_string("{{ nothing }}")
    with pytest.raises(UndefinedError, match="nothing"):
        template.render()
    with pytest.raises(UndefinedError, match="pieces"):
        render("notebook.html")


def test_the_page_needs_every_field(page):
    names = [field.name for field in fields(page)]
    assert page_html(SimpleNamespace(**{name: getattr(page, name) for name in names}))
    for missing in names:
        rest = {name: getattr(page, name) for name in names if name != missing}
        with pytest.raises(UndefinedError, match=missing):
            page_html(SimpleNamespace(**rest))


def test_every_template_compiles_and_escapes():
    names = environment().list_templates()
    assert {"macros.html", "notebook.html", "page.html"} <= set(names)
    for name in names:
        environment().get_template(name)
    # Only the style sheet and charts, which are SVG already, are put on the page as they are.
    source = "".join((TEMPLATES / name).read_text(encoding="utf-8") for name in names)
    unescaped = re.findall(r"{{\s*([\w.]+)[^}]*\|\s*safe\s*}}", source)
    assert set(unescaped) == {"style", "chart"}
    assert source.count("safe") == len(unescaped)


@pytest.mark.parametrize("concentrated", [True, False])
@pytest.mark.parametrize("method", ["computed", "simulated", "from quantiles"])
@pytest.mark.parametrize("simulation", [True, False])
def test_every_branch_of_the_page_is_sound(page, concentrated, method, simulation):
    page = replace(
        page,
        simulation=simulation,
        view="consistent",
        views=("raw", "consistent"),
        published_left_out=True,
        person_rows=1,
        shifts=None,
        guarantee=replace(page.guarantee, concentrated=concentrated),
        intervals=replace(page.intervals, method=method, draws=1234),
    )
    words = Reader(page_html(page)).words
    assert "The published view is left out: the domain has too many cells." in words
    assert "At most 1 row of each person are counted" in words
    assert ("zCDP" in words) == concentrated
    assert ("REHEARSAL" in words) == simulation
    assert "1,234" in words
    assert ("from quantiles" in words) == (method == "from quantiles")


# ---- escaping ----------------------------------------------------------------------------------


def hostile(value, name=""):
    """The same facts with markup at the end of every text, charts and names of views aside."""
    if isinstance(value, str):
        return value if name in ("chart", "view", "views", "look") else value + HOSTILE
    if isinstance(value, tuple):
        return tuple(hostile(each, name) for each in value)
    if is_dataclass(value):
        each = {field.name: getattr(value, field.name) for field in fields(value)}
        return replace(value, **{key: hostile(inner, key) for key, inner in each.items()})
    return value


def strings(value, name=""):
    if isinstance(value, str) and name not in ("chart", "view", "views", "look"):
        yield value
    elif isinstance(value, tuple):
        for each in value:
            yield from strings(each, name)
    elif is_dataclass(value):
        for field in fields(value):
            yield from strings(getattr(value, field.name), field.name)


def test_no_text_of_a_page_becomes_markup(page):
    cruel = hostile(page)
    text = texts(page_html(cruel))
    assert [each for each in strings(cruel) if each not in text] == []


def test_a_hostile_release_has_a_sound_page(bundle):
    text = texts(bundle.report.read_text(encoding="utf-8"))
    assert SQL in text
    # title (thrice), publisher, description, facts, edition, attribute, two tables and a label
    assert text.count(HOSTILE) > 20


def test_charts_escape_labels_and_words():
    chart = table_chart(table_of(pet=[HOSTILE, "dog"]), HOSTILE, titles={"pet": HOSTILE})
    assert texts(chart.svg).count(HOSTILE) >= 3


MISMATCH = Mismatch(HOSTILE, HOSTILE, "error", HOSTILE, ((HOSTILE, 3),))
ATTACK = AttackResult("draws", HOSTILE, HOSTILE, HOSTILE, True, 10)
PETS = Domain.of(**{HOSTILE: [HOSTILE, "&"]})
NOTEBOOK_VALUES = {
    "Answers": lambda bundle: bundle.answer(bundle.job.workload),
    "Attribute": lambda bundle: PETS[HOSTILE],
    "AuditReport": lambda bundle: AuditReport((ATTACK,), 0.99, 1.0),
    "Bundle": lambda bundle: bundle,
    "CheckReport": lambda bundle: CheckReport(3, (MISMATCH,)),
    "Domain": lambda bundle: PETS,
    "EditionChange": lambda bundle: EditionChange(
        bundle, bundle, {HOSTILE: pa.table({"pet": [HOSTILE]})}, {}, 0.95
    ),
    "Forecast": lambda bundle: plan(bundle.job, draws=19),
    "PlanForecast": lambda bundle: plan_forecast(
        bundle.job, ReleaseMethod("Uniform", {}, HOSTILE), plan(bundle.job, draws=19)
    ),
    "Reply": lambda bundle: ask(bundle, SQL.replace("<> '&<i>'", "= 'dog'"), draws=19),
    "StatisticAnswers": lambda bundle: StatisticAnswers(
        Statistics(PETS, [psephos.share(HOSTILE)]), (StatisticValues(np.array([0.5, 0.5])),), 0.95
    ),
    "Strategy": lambda bundle: replace(bundle.strategy, name=HOSTILE),
    "Verification": lambda bundle: Verification("b", (Check(HOSTILE, True, HOSTILE),)),
    "Workload": lambda bundle: Workload(
        PETS, (Product(((HOSTILE, psephos.identity()),), name=HOSTILE),)
    ),
}


def test_every_value_with_a_notebook_view_is_in_the_law():
    classes = set()
    for module in pkgutil.walk_packages(psephos.__path__, "psephos."):
        if not module.name.endswith("__main__"):
            members = inspect.getmembers(importlib.import_module(module.name), inspect.isclass)
            classes |= {name for name, kind in members if "_repr_html_" in vars(kind)}
    assert classes == set(NOTEBOOK_VALUES)


@pytest.mark.parametrize("name", NOTEBOOK_VALUES)
def test_no_text_in_a_notebook_becomes_markup(bundle, name):
    html = NOTEBOOK_VALUES[name](bundle)._repr_html_()
    assert HOSTILE in texts(html)
    assert "<table" in html


# ---- tables ------------------------------------------------------------------------------------


def test_rows_have_a_cell_for_each_heading():
    with pytest.raises(ShapeError, match="'sizes' has 2 headings, got a row of 1 cells"):
        HtmlTable.of("sizes", ["name", "size"], [["a", "1"], ["b"]])


def test_a_table_without_headings_has_no_head():
    read = Reader(notebook_html(HtmlTable.of("sizes", [], [["a"], ["b", "c"]])))
    assert read.count("thead") == 0
    assert read.count("td") == 3


def test_cells_are_more_than_text():
    row = ["a", Cell("b", look="strong"), Cell("c", look="code"), Cell("D", name="d")]
    html = notebook_html(HtmlTable.of("cells", list("wxyz"), [row]))
    assert "<td>a</td><td><strong>b</strong></td><td><pre><code>c</code></pre></td>" in html
    assert "<td>D (<code>d</code>)</td>" in html
