"""The published view: what it is rounded from, its intervals, and what verification finds."""

import json
import warnings

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import psephos as ps
from psephos.errors import ReleaseError
from psephos.infer import prior_model
from psephos.infer.entropy import maximum_entropy
from psephos.infer.splitting import MOST_STEPS_OF_SPLITTING
from psephos.release.ask.ask import ask
from psephos.release.bundle.bundle import Bundle
from psephos.release.bundle.contents import ESTIMATE_FILE
from psephos.release.bundle.files import read_floats, sha256_of
from psephos.release.bundle.shapes import PublishedShape
from psephos.release.preflight.checks import check_release, create_ledger
from psephos.release.preflight.forecast import forecast_measured as plan
from psephos.release.preflight.simulated import is_quick, made_up_counts, simulated_error
from psephos.release.preflight.step_costs import published_cost
from psephos.release.run import rehearse
from psephos.release.spec.job import Job
from psephos.release.verify.verify import verify
from psephos.release.views import published
from psephos.release.views.published import PublishedRule, share_of_ranges
from tests.release.conftest import RELEASE, write_job

LINE = """
name = "line"
privacy = { unit = "add_remove_row" }
ledger = { path = "line.ledger", dataset = "line", epsilon = "10" }
budget = { epsilon = "1" }

[schema.year]
integers = [0, 39]

[[tables]]
name = "years"
queries = { year = "prefix" }
"""


@pytest.fixture(scope="module")
def rehearsed(tmp_path_factory):
    return rehearse(write_job(tmp_path_factory.mktemp("published") / "job"), rows=400)


@pytest.fixture
def bundle(rehearsed, tmp_path):
    import shutil

    shutil.copytree(rehearsed.path.parent, tmp_path / "job")
    return Bundle.open(tmp_path / "job" / rehearsed.path.name)


def job_of(tmp_path, text):
    tmp_path.mkdir(exist_ok=True)
    (tmp_path / "release.toml").write_text(text)
    return Job.read(tmp_path / "release.toml")


# ---- the rule ----------------------------------------------------------------------------------


def test_ranges_are_told_by_how_often_values_are_added_up():
    domain = ps.Domain.of(a=range(40), b=2)
    cells = ps.Workload(domain, [ps.product(a=ps.identity(), b=ps.identity())])
    ranges = ps.Workload(domain, [ps.product(a=ps.prefix())])
    short = ps.Workload(domain, [ps.product(b=ps.prefix())])
    mixed = ps.Workload(domain, [ps.product(a=ps.identity(), b=ps.identity()),
                                 ps.product(a=ps.prefix())])  # fmt: skip
    assert [share_of_ranges(w) for w in (cells, ranges, short)] == [0, 1, 0]
    assert share_of_ranges(mixed) == pytest.approx(40 / 120)
    heavy = [ps.product(a=ps.identity()), ps.product(a=ps.prefix(), weight=3)]
    assert share_of_ranges(ps.Workload(domain, heavy)) == pytest.approx(0.9)


def test_the_file_decides_or_else_the_questions(tmp_path):
    line, tables = job_of(tmp_path / "line", LINE), job_of(tmp_path / "tables", RELEASE)
    assert PublishedRule.of(line).method == "least squares"
    assert "100% of the numbers add up ranges" in PublishedRule.of(line).reason
    assert PublishedRule.of(tables).method == "entropy"
    long = job_of(tmp_path / "long", LINE.replace("[0, 39]", "[0, 59999]"))
    assert PublishedRule.of(long).method == "entropy"
    assert "60,000 cells are too many" in PublishedRule.of(long).reason
    entropic = job_of(tmp_path / "said", f'{LINE}\n[output]\npublished = "entropy"\n')
    assert PublishedRule.of(entropic) == PublishedRule("entropy", "as the release file says")
    with pytest.raises(ReleaseError, match="published"):
        job_of(tmp_path / "wrong", f'{LINE}\n[output]\npublished = "magic"\n')
    with pytest.raises(ReleaseError, match="total"):
        job_of(tmp_path / "negative", f"total = -1\n{LINE}")
    assert published_cost(long, None).seconds > published_cost(tables, None).seconds > 0


def test_a_public_total_is_held(tmp_path):
    for text in (LINE, RELEASE):
        made_up = rehearse(job_of(tmp_path / "total", f"total = 777\n{text}"), rows=600)
        assert made_up.estimate.sum() == pytest.approx(777)
        assert verify(made_up.path).ok


# ---- the bundle --------------------------------------------------------------------------------


def test_the_bundle_holds_what_was_rounded(rehearsed):
    facts = rehearsed.manifest["published"]
    assert facts["method"] == "entropy"
    assert facts["steps"] >= 1
    cells = pq.read_table(rehearsed.path / "published/cells.parquet")["count"].to_numpy()
    assert np.abs(cells - rehearsed.estimate).max() <= 1.0
    assert facts["prior"] == "independent"
    again = rehearsed.views.estimate.rule.fit(rehearsed.job, rehearsed.views.least_squares)
    np.testing.assert_allclose(again.vector, rehearsed.views.published.real, atol=1e-6)
    assert verify(rehearsed.path).ok


def test_latent_classes_are_told_and_found_again(tmp_path, monkeypatch):
    """As if the rule took them whatever their risk is."""
    monkeypatch.setattr(prior_model, "CLASS_CELLS", 1)
    with monkeypatch.context() as patch:
        patch.setattr(published, "maximum_entropy", lambda *given, **facts:
                      maximum_entropy(*given, **{**facts, "classes": True}))  # fmt: skip
        made_up = rehearse(write_job(tmp_path / "job"), rows=400)
        assert made_up.manifest["published"]["prior"] == "latent classes"
        assert verify(made_up.path).ok
    place = made_up.path / "manifest.json"
    place.write_text(place.read_text().replace("latent classes", "independent"))
    assert not verify(made_up.path).ok


def tampered(bundle, change):
    """Change the stored estimate, and bring the manifest's hashes up to date."""
    cells = bundle.estimate.copy()
    change(cells)
    pq.write_table(pa.table({"count": cells}), bundle.path / ESTIMATE_FILE)
    place = bundle.path / "manifest.json"
    manifest = json.loads(place.read_text())
    manifest["files"][ESTIMATE_FILE] = sha256_of(bundle.path / ESTIMATE_FILE)
    place.write_text(json.dumps(manifest))
    return {check.name: check.text for check in verify(bundle.path).checks if not check.ok}


def test_another_estimate_is_found(bundle):
    def swap(cells):
        most, least = cells.argmax(), cells.argmin()
        cells[[most, least]] = cells[[least, most]]

    assert set(tampered(bundle, swap)) == {"published view"}


def test_an_estimate_a_little_off_is_found(bundle):
    def stretch(cells):
        cells *= 1.02

    assert "worked out again" in tampered(bundle, stretch)["published view"]


@pytest.mark.parametrize("number", [-1.0, np.nan, np.inf])
def test_an_estimate_of_impossible_numbers_is_found(bundle, number):
    def put(cells):
        cells[0] = number

    assert set(tampered(bundle, put)) == {"published view"}


def test_other_words_on_the_estimate_are_found(bundle):
    place = bundle.path / "manifest.json"
    manifest = json.loads(place.read_text())
    for key, value in (("method", "least squares"), ("reason", "because")):
        facts = {**manifest["published"], key: value}
        place.write_text(json.dumps({**manifest, "published": facts}))
        assert "published view" in {c.name for c in verify(bundle.path).checks if not c.ok}
    place.write_text(json.dumps({**manifest, "published": None}))
    assert not verify(bundle.path).ok


def test_a_changed_file_answers_nothing(bundle):
    table = pa.table({"count": bundle.estimate + 1})
    pq.write_table(table, bundle.path / ESTIMATE_FILE)
    with pytest.raises(ReleaseError, match="has changed since the release"):
        _ = Bundle.open(bundle.path).estimate
    with pytest.raises(ReleaseError, match="rows"):
        read_floats(bundle.path / ESTIMATE_FILE, "count", 3)


# ---- questions to the model --------------------------------------------------------------------


def test_what_was_not_measured_is_answered_by_a_model_that_says_so(tmp_path):
    text = RELEASE.split("[[tables]]")[0] + '[[tables]]\nname = "ages"\nrows = ["age"]\n'
    bundle = rehearse(job_of(tmp_path / "ages", text), rows=400)
    question = "SELECT pet, COUNT(*) FROM t GROUP BY pet"
    with pytest.raises(ps.UnsupportedError, match=r"--model .* answers by a model"):
        ask(bundle, question)
    reply = ask(bundle, question, model=True)
    assert reply.is_model
    assert "by a model: without an interval" in repr(reply)
    assert {"low", "stderr"}.isdisjoint(reply.table.column_names)
    assert all(reply.table["model"].to_pylist())
    assert sum(reply.table["count"].to_pylist()) == pytest.approx(bundle.estimate.sum())
    reply = ask(bundle, "SELECT age, COUNT(*) FROM t GROUP BY age", model=True)
    ages = bundle.estimate.reshape(bundle.job.workload.domain.shape)
    axis = bundle.job.workload.domain.axis("age")
    others = tuple(i for i in range(ages.ndim) if i != axis)
    np.testing.assert_allclose(reply.table["count"].to_numpy(), ages.sum(axis=others))


# ---- the forecast ------------------------------------------------------------------------------


def test_the_error_on_made_up_rows_is_that_of_the_estimate(tmp_path):
    forecast = plan(write_job(tmp_path / "job"))
    assert is_quick(forecast)
    error = simulated_error(forecast)
    assert error == simulated_error(forecast)
    assert error.rows == 10_000
    # One draw: its consistent error is near the exact one, not at it.
    assert 0.5 < error.consistent / forecast.rmse < 2
    assert error.published < 1.1 * error.consistent


def test_made_up_rows_respect_what_is_public(tmp_path):
    job = Job.read(write_job(tmp_path / "job"))
    counts = made_up_counts(job, 500, np.random.default_rng(0))
    assert counts.sum() == 500
    assert job.zeros is not None
    assert not counts[job.zeros].any()


def test_a_declared_total_far_from_the_noisy_one_is_told_when_published(tmp_path):
    """By the noisy numbers alone: 600 rows, whose total is known to within a few tens of rows."""
    far, near = (released(tmp_path / f"{n}", f"total = {n}\n{RELEASE}") for n in (6000, 600))
    bundle, words = far
    assert "6,000 rows are declared, and the noisy numbers say" in words
    assert "more than noise explains" in bundle.report.read_text()
    bundle, words = near
    assert not words
    text = bundle.report.read_text()
    assert "600 rows are declared" in text
    assert "more than noise explains" not in text


def released(folder, text):
    """A release and what it warned of."""
    job = Job.read(write_job(folder, text))
    create_ledger(job)
    check_release(job)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        return ps.release(job), " ".join(str(each.message) for each in caught)


@pytest.mark.parametrize(("total", "words"), [(600, []), (601, ["601 rows are declared and 600"])])
def test_the_owner_is_told_of_another_number_of_rows(tmp_path, total, words):
    path = write_job(tmp_path / "job", f"total = {total}\n{RELEASE}")
    findings = [f for f in ps.check_release(path).findings if f.kind == "total"]
    assert [word for f, word in zip(findings, words, strict=True) if word in str(f)] == words


def test_a_manifest_has_room_for_all_steps_that_are_taken():
    facts = {"method": "least squares", "reason": "", "steps": MOST_STEPS_OF_SPLITTING, "gap": 0.0}
    assert PublishedShape.model_validate(facts).steps == MOST_STEPS_OF_SPLITTING
