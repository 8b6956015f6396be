"""Releases of more cells than a vector holds: published tables come in groups of attributes."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import psephos as ps
from psephos.cli import render
from psephos.errors import ReleaseError, UnsupportedError
from psephos.infer import table_groups
from psephos.infer.records import counted_answers
from psephos.release.ask.ask import ask
from psephos.release.bundle.bundle import Bundle
from psephos.release.bundle.files import sha256_of
from psephos.release.pages.facts import ReleaseFacts, groups_of
from psephos.release.preflight.forecast import forecast_measured as plan
from psephos.release.preflight.simulated import is_quick, made_up_columns, simulated_error
from psephos.release.run import rehearse
from psephos.release.spec.job import Job
from psephos.release.verify.verify import verify
from psephos.release.views import published, published_groups
from psephos.release.views.published_groups import NOT_TOLD, PublishedGroups

FILE = """
name = "wards"
privacy = { unit = "add_remove_row" }
ledger = { path = "wards.ledger", dataset = "wards", epsilon = "10" }
budget = { epsilon = "1" }
zeros = ["age < 4 AND sex = 'M'"]

[schema.age]
integers = [0, 11]
levels = { broad = 4 }

[schema.sex]
values = ["F", "M"]

[schema.ward]
values = ["n", "s", "w"]

[schema.month]
integers = [1, 6]

[[tables]]
name = "ages"
rows = ["age.broad", "sex"]

[[tables]]
name = "wards"
title = "Wards by month"
rows = ["ward", "month"]

[[tables]]
name = "both"
rows = ["ward", "sex"]

[[tables]]
name = "years"
queries = { age = "prefix", ward = "identity" }

[selection]
restarts = 1
"""


@pytest.fixture(autouse=True)
def limits(monkeypatch):
    """As if no vector held more than 100 cells, and groups should have at most 36."""
    monkeypatch.setattr(published, "VECTOR_CELLS", 100)
    monkeypatch.setattr(table_groups, "GROUP_CELLS", 36)


def job_of(folder, text=FILE):
    folder.mkdir(exist_ok=True)
    (folder / "release.toml").write_text(text)
    return Job.read(folder / "release.toml")


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(published, "VECTOR_CELLS", 100)
        patch.setattr(table_groups, "GROUP_CELLS", 36)
        return rehearse(job_of(tmp_path_factory.mktemp("groups") / "job"), rows=400)


@pytest.fixture
def bundle(rehearsed, tmp_path):
    shutil.copytree(rehearsed.path.parent, tmp_path / "job")
    return Bundle.open(tmp_path / "job" / rehearsed.path.name)


def counts(bundle, name):
    """A published table, an axis for each column; the last of each axis is its total."""
    table = bundle.table(name, "published").to_pandas()
    labels = [c for c in table.columns[: list(table.columns).index("count")] if c != "part"]
    return table.pivot_table(index=labels[0], columns=labels[1], values="count", sort=False)


# ---- what is published -------------------------------------------------------------------------


def test_tables_are_whole_not_negative_and_have_one_total(rehearsed):
    facts = rehearsed.manifest["published"]
    assert rehearsed.manifest["views"] == ["raw", "consistent", "published"]
    assert len(facts["groups"]) > 1
    assert facts["left_out"] == {}
    totals = set()
    for name in ("ages", "wards", "both"):
        table = counts(rehearsed, name)
        assert table.to_numpy().min() >= 0
        assert (table == table.round()).all(axis=None)
        assert_adds_up(table.to_numpy())
        totals.add(table.to_numpy()[-1, -1])
    assert totals == {facts["total"]}
    verification = verify(rehearsed.path)
    assert verification.ok, str(verification)


def assert_adds_up(table):
    np.testing.assert_array_equal(table[:-1].sum(axis=0), table[-1])
    np.testing.assert_array_equal(table[:, :-1].sum(axis=1), table[:, -1])


def test_the_interval_holds_both_numbers_and_no_negative_ones(rehearsed):
    for name in ("ages", "wards", "both", "years"):
        table = rehearsed.table(name, "published").to_pandas()
        plain = rehearsed.table(name, "consistent").to_pandas()
        assert (table["low"] >= 0).all()
        np.testing.assert_allclose(table["low"], np.minimum(plain["low"], table["count"]).clip(0))
        np.testing.assert_allclose(table["high"], np.maximum(plain["high"], table["count"]))


def test_zeros_of_one_group_are_kept(rehearsed):
    table = counts(rehearsed, "ages")
    assert table.loc["0–3", "M"] == 0
    assert rehearsed.table("ages").to_pandas()["count"].iloc[1] != 0


def test_the_gap_is_what_the_tables_show(rehearsed):
    gap = rehearsed.manifest["published"]["disagreement"]
    assert [set(g["attributes"]) for g in rehearsed.manifest["published"]["groups"]] == [
        {"age", "ward"}, {"age", "sex"}, {"sex", "ward", "month"}
    ]  # fmt: skip
    ages, wards, both = (counts(rehearsed, name) for name in ("ages", "wards", "both"))
    years = rehearsed.table("years", "published").to_pandas()
    by_ward = years[years["age"] == "up to 11"].set_index("ward")["count"]
    by_age = years.groupby("age", sort=False)["count"].sum().to_numpy()
    spreads = [
        (wards.loc["total"] if "n" in wards.columns else wards["total"])[["n", "s", "w"]] - by_ward,
        (both.loc["total"] - ages.loc["total"])[["F", "M"]],
        ages["total"].to_numpy()[:-1].cumsum() - by_age[3::4],
    ]
    assert gap["largest"] == max(np.abs(spread).max() for spread in spreads)
    # Pairs of wards, sexes and broad ages, and the total of all three groups.
    assert gap["numbers"] == 3 + 2 + 3 + 1


@pytest.mark.slow
@settings(max_examples=6, deadline=None)
@given(
    shape=st.lists(st.integers(2, 4), min_size=3, max_size=4),
    rows=st.integers(0, 60),
    seed=st.integers(0, 9),
)
def test_small_releases_are_whole_and_not_negative(tmp_path_factory, shape, rows, seed):
    names = [f"a{i}" for i in range(len(shape))]
    schema = "".join(
        f"[schema.{n}]\nintegers = [1, {k}]\n" for n, k in zip(names, shape, strict=True)
    )
    head = FILE.split("zeros")[0]
    table = '[[tables]]\nname = "all"\nbuilder = "marginals"\nup_to = 2\n'
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(published, "VECTOR_CELLS", 1)
        patch.setattr(table_groups, "GROUP_CELLS", 8)
        job = job_of(tmp_path_factory.mktemp("small") / "job", f"{head}\n{schema}\n{table}")
        bundle = rehearse(job, rows=rows, seed=seed)
        column = bundle.table("all", "published")["count"]
        assert column.type == pa.int64()
        assert column.to_numpy().min() >= 0
        assert verify(bundle.path).ok


# ---- what verification finds -------------------------------------------------------------------


def signed(bundle, *names):
    """Bring the manifest's hashes up to date, and say what fails."""
    place = bundle.path / "manifest.json"
    manifest = json.loads(place.read_text())
    for name in names:
        manifest["files"][name] = sha256_of(bundle.path / name)
    place.write_text(json.dumps(manifest))
    return {check.name: check.text for check in verify(bundle.path).checks if not check.ok}


def changed(bundle, name, change):
    cells = pq.read_table(bundle.path / name)["count"].to_numpy().copy()
    change(cells)
    pq.write_table(pa.table({"count": cells}), bundle.path / name)
    return signed(bundle, name)


def test_a_changed_published_number_is_found(bundle):
    place = bundle.path / "published/ages.parquet"
    table = pq.read_table(place)
    numbers = table["count"].to_numpy().copy()
    numbers[0] += 1
    number = table.column_names.index("count")
    pq.write_table(table.set_column(number, "count", pa.array(numbers)), place)
    assert set(signed(bundle, "published/ages.parquet")) == {"published view"}


@pytest.mark.parametrize(
    ("amounts", "words"),
    [([1, 0], "adds up to"), ([-1000, 1000], "not non-negative"), ([40, -40], "")],
)
def test_changed_cells_are_found(bundle, amounts, words):
    def move(cells):
        largest, smallest = cells.argmax(), cells.argmin()
        cells[[smallest, largest]] += amounts

    assert words in changed(bundle, "published/groups/1.parquet", move)["published view"]


@pytest.mark.parametrize("factor", [1.05, -1.0, np.nan])
def test_a_changed_estimate_is_found(bundle, factor):
    def scale(cells):
        cells *= factor

    assert set(changed(bundle, "estimate/groups/2.parquet", scale)) == {"published view"}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("total", 7),
        ("total", None),
        ("sweeps", 0),
        ("left_out", {"ages": "because"}),
        ("groups", []),
        ("disagreement", {"largest": 0, "root_mean_square": 0.0, "numbers": 1, "attributes": []}),
    ],
)
def test_other_words_on_the_groups_are_found(bundle, key, value):
    place = bundle.path / "manifest.json"
    manifest = json.loads(place.read_text())
    manifest["published"][key] = value
    place.write_text(json.dumps(manifest))
    assert "published view" in signed(bundle)


def test_missing_groups_are_named(bundle):
    (bundle.path / "estimate/groups/1.parquet").unlink()
    failed = {check.name: check.text for check in verify(bundle.path).checks if not check.ok}
    assert "estimate/groups/1.parquet is missing" in failed["files"]


# ---- what is told of it ------------------------------------------------------------------------


def test_plan_manifest_page_and_release_tell_the_groups(rehearsed):
    job = rehearsed.job
    forecast = plan(job)
    groups = forecast.groups
    assert groups is not None
    plain = render.plain_plan(forecast)["published"]
    recorded = rehearsed.manifest["published"]
    assert [g["attributes"] for g in plain["groups"]] == [
        g["attributes"] for g in recorded["groups"]
    ]
    assert [g["method"] for g in plain["groups"]] == [g["method"] for g in recorded["groups"]]
    notes = render._published_notes(forecast, None)
    assert "432 cells are too many for one vector" in notes
    assert f"{len(groups.rules)} groups of attributes" in notes
    assert "age × sex" in notes
    assert "agree nearly" in notes
    assert "published numbers" in [step.name for step in forecast.steps]
    words = render.disagreement_words(rehearsed)
    assert f"{len(groups.rules)} groups: inside each they add up" in words
    page = rehearsed.report.read_text()
    assert "Inside a group everything adds up exactly" in page
    assert "Largest difference of a number between two groups" in page
    facts = groups_of(ReleaseFacts(forecast, rehearsed.views))
    assert facts is not None
    assert f"{recorded['disagreement']['largest']:,} row" in facts.facts[0][1]


def test_a_gap_is_told_in_words(rehearsed):
    gap = {"largest": 3, "root_mean_square": 1.25, "numbers": 9, "attributes": ["ward", "sex"]}
    told = {**rehearsed.manifest["published"], "disagreement": gap}
    other = Bundle(rehearsed.path, {**rehearsed.manifest, "published": told})
    assert "differs by up to 3 rows (by ward × sex), typically 1.2" in (
        render.disagreement_words(other)
    )


def test_a_table_of_too_many_cells_alone_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(table_groups, "NONNEGATIVE_CELLS", 30)
    job = job_of(tmp_path / "job")
    bundle = rehearse(job, rows=300)
    left_out = bundle.manifest["published"]["left_out"]
    assert list(left_out) == ["years"]
    assert "36 cells at a time" in left_out["years"]
    assert [("shifts" in t) for t in bundle.manifest["tables"]] == [True, True, True, False]
    assert not (bundle.path / "published/years.csv").exists()
    with pytest.raises(ReleaseError, match="'years' has no published view: it looks at 36 cells"):
        bundle.table("years", "published")
    assert "36 cells at a time" in bundle.report.read_text()
    assert verify(bundle.path).ok
    notes = render._published_notes(plan(job), None)
    assert "Table 'years' has no published view: it looks at 36 cells" in notes


def test_without_any_group_there_is_no_published_view(tmp_path, monkeypatch):
    monkeypatch.setattr(published_groups, "MOST_GROUPED_CELLS", 5)
    job = job_of(tmp_path / "job")
    bundle = rehearse(job, rows=300)
    assert bundle.manifest["views"] == ["raw", "consistent"]
    assert verify(bundle.path).ok
    forecast = plan(job)
    assert "There is no published view" in render._published_notes(forecast, None)
    assert forecast.views == ("raw", "consistent")
    assert not is_quick(forecast)


def test_groups_take_the_place_of_a_long_vector_where_they_serve_as_well(tmp_path, monkeypatch):
    monkeypatch.setattr(published, "VECTOR_CELLS", 432)
    monkeypatch.setattr(published_groups, "LONG_VECTOR_CELLS", 431)
    plain = FILE.replace("zeros = [\"age < 4 AND sex = 'M'\"]\n", "")
    job = job_of(tmp_path / "plain", plain)
    blocks = [block.matrix for block in plan(job).strategy.query.blocks]
    groups = PublishedGroups.of(job, blocks)
    assert groups is not None
    assert not groups.left_out
    for name, text in (("zeros", FILE), ("rows", plain + "\n[synthetic]\nrows = 50\n")):
        assert PublishedGroups.of(job_of(tmp_path / name, text), blocks) is None
    assert PublishedGroups.of(job, []) is None  # no block tells what a table asks
    monkeypatch.setattr(published_groups, "LONG_VECTOR_CELLS", 432)
    assert PublishedGroups.of(job, blocks) is None


def test_what_no_block_tells_alone_is_left_out(tmp_path):
    job = job_of(tmp_path / "job")
    blocks = [block.matrix for block in plan(job).strategy.query.blocks]
    groups = PublishedGroups.of(job, blocks)
    assert groups is not None
    assert groups.left_out == {}
    without = PublishedGroups.of(job, [ps.matrix.Identity(432)])
    assert without is not None
    assert set(without.left_out.values()) == {NOT_TOLD}


def test_one_group_is_enough_where_it_holds_all_tables(tmp_path, monkeypatch):
    monkeypatch.setattr(table_groups, "GROUP_CELLS", 500)
    bundle = rehearse(job_of(tmp_path / "job"), rows=300)
    facts = bundle.manifest["published"]
    assert len(facts["groups"]) == 1
    assert facts["disagreement"]["numbers"] == 0
    assert render.disagreement_words(bundle) == ""
    assert verify(bundle.path).ok


def test_a_public_total_is_held_by_all_groups(tmp_path):
    bundle = rehearse(job_of(tmp_path / "job", f"total = 777\n{FILE}"), rows=300)
    assert bundle.manifest["published"]["total"] == 777
    assert all(vector.sum() == 777 for vector, _ in bundle.views.published.vectors)
    assert verify(bundle.path).ok


# ---- questions and simulations -----------------------------------------------------------------


def test_the_model_answers_what_a_group_tells(rehearsed):
    question = "SELECT age, sex, COUNT(*) FROM t GROUP BY age, sex"
    reply = ask(rehearsed, question, model=True)
    cells = rehearsed.group_estimates
    axes = [set(group.axes) for group in cells.grouping.groups]
    (group,) = [g for g, those in enumerate(axes) if {0, 1} <= those]
    np.testing.assert_allclose(
        reply.table["count"].to_numpy(), cells.table(group, (0, 1)).reshape(-1)
    )
    (number,) = ask(rehearsed, "SELECT COUNT(*) FROM t", model=True).table["count"].to_pylist()
    assert number == pytest.approx(rehearsed.manifest["published"]["total"])
    with pytest.raises(UnsupportedError, match="no group of published tables holds"):
        ask(rehearsed, "SELECT age, month, COUNT(*) FROM t GROUP BY age, month", model=True)
    with pytest.raises(UnsupportedError, match="joined by AND"):
        ask(rehearsed, "SELECT COUNT(*) FROM t WHERE age < 3 OR sex = 'F'", model=True)


def test_other_estimates_are_where_they_belong(rehearsed):
    with pytest.raises(ReleaseError, match="group_estimates"):
        _ = rehearsed.estimate


def test_the_error_on_made_up_rows_is_simulated(tmp_path):
    forecast = plan(job_of(tmp_path / "job"))
    assert is_quick(forecast)
    error = simulated_error(forecast)
    assert error.rows == 10_000
    assert 0.4 < error.consistent / forecast.rmse < 2.5
    assert error.published < 1.2 * error.consistent


def test_made_up_rows_are_counted_as_cells_are(tmp_path):
    job = job_of(tmp_path / "job")
    columns = made_up_columns(job, 500, np.random.default_rng(1))
    assert len(columns) <= 500
    cells = np.bincount(np.ravel_multi_index(columns.T, job.domain.shape), minlength=432)
    assert not cells[job.zeros].any()
    np.testing.assert_array_equal(
        counted_answers(job.workload.domain, columns, job.workload),
        job.workload.answer(cells.reshape(job.domain.shape)),
    )
