"""Releases that build on past ones: bought on top of what is known, and verified with it."""

import json
import re
import shutil
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import psephos as ps
from psephos.release.ask.price import price
from psephos.release.ask.question import question_workload
from psephos.release.bundle.bundle import Bundle
from psephos.release.bundle.files import sha256_of
from psephos.release.formats.names import table_files
from psephos.release.preflight.checks import create_ledger
from psephos.release.preflight.targets import amount_of, reached_at, step_of
from psephos.release.run import rehearse, release
from psephos.release.spec.entries import TargetEntry
from psephos.release.spec.job import Job
from psephos.release.spec.tables import Table
from tests.release.conftest import RELEASE, write_job

QUESTION = "SELECT pet, COUNT(*) FROM people WHERE age < 6 GROUP BY pet"
MORE = RELEASE.replace('name = "pets"\ntitle', 'name = "more"\ntitle')
MORE = MORE.replace('source = "people.csv"', 'source = "people.csv"\nbuilds_on = ["bundle"]')
MORE += '[output]\nbundle = "second"\n'


def first_and(text, folder):
    """The first release, then the release file of a second one."""
    place = write_job(folder)
    create_ledger(Job.read(place))
    release(place, unchecked=True)
    return write_job(folder, text)


def with_target(text, target):
    kept = text.replace("[budget]\nepsilon = 0.5", "")
    young = kept.index('[[tables]]\nname = "young"')
    asked_more = f'[[tables]]\nname = "infants"\nsql = "{QUESTION}"\ntarget = {target}\n'
    start = kept.index('[[tables]]\nname = "pets"')
    return kept[:start] + asked_more + kept[kept.index("[selection]", young) :]


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair") / "job"
    place = first_and(MORE, folder)
    return place, Bundle.open(folder / "bundle"), release(place, unchecked=True)


def test_two_measurements_are_better_than_either(pair):
    place, first, second = pair
    both = second.views
    assert len(both.estimate.measurements) == 2
    # The same tables, measured twice at the same spend in the same way: half the variance.
    np.testing.assert_allclose(both.stderr, first.views.stderr / np.sqrt(2), rtol=1e-9)
    mean = (first.measurement.values + second.measurement.values) / 2
    once = ps.infer.least_squares([second.measurement])
    fitted = once.form.fit([mean])
    workload = second.job.workload
    wanted = [fitted.answers(workload.factors(i)) for i in range(len(workload.products))]
    np.testing.assert_allclose(both.consistent, np.concatenate(wanted), atol=1e-8)
    planned = ps.plan(place)
    np.testing.assert_allclose(planned.widths.stderr, both.stderr, rtol=1e-9)


def test_the_bundle_stands_alone(pair, tmp_path):
    place, _, second = pair
    alone = tmp_path / "elsewhere"
    shutil.copytree(second.path, alone)
    found = ps.verify(alone, ledger=Job.read(place).ledger)
    assert found.ok, str(found)
    assert "builds on: 'pets'" in str(found)
    content = json.loads((alone / "release.json").read_text(encoding="utf-8"))
    assert content["builds_on"] == ["requests/1"]
    reply = ps.ask(alone, "SELECT COUNT(*) FROM people")
    assert reply.half_width == pytest.approx(ps.ask(second, "SELECT COUNT(*) FROM t").half_width)
    assert "Builds on measurements of" in (alone / "report.html").read_text(encoding="utf-8")


def test_a_third_release_knows_both(pair):
    place, _, second = pair
    text = MORE.replace('name = "more"', 'name = "third"').replace('["bundle"]', '["second"]')
    third = place.with_name("third.toml")
    third.write_text(text.replace('bundle = "second"', 'bundle = "third"'), encoding="utf-8")
    job = Job.read(third)
    assert [past.name for past in job.past] == ["pets", "more"]
    twice = Job.of(job.file.model_copy(update={"builds_on": ("bundle", "second")}), job.folder)
    assert [past.name for past in twice.past] == ["pets", "more"]
    stderr = ps.plan(job).widths.stderr
    np.testing.assert_allclose(stderr, second.views.stderr * np.sqrt(2 / 3), rtol=1e-9)


@pytest.mark.parametrize(
    "edit",
    [
        ("measurements.parquet", "cannot be read|integers are not those"),
        ("manifest.json", "another query, or at another spend"),
        ("receipt.json", "the charge is epsilon 1/4"),
    ],
)
def test_a_forged_past_is_found(pair, tmp_path, edit):
    name, said = edit
    _, _, second = pair
    copy = tmp_path / "copy"
    shutil.copytree(second.path, copy)
    place = copy / name if name == "manifest.json" else copy / "requests" / "1" / name
    if name == "measurements.parquet":
        values = pq.read_table(place)["value"].to_numpy() + 1
        pq.write_table(pa.table({"value": values}), place)
    else:
        text = place.read_text(encoding="utf-8")
        place.write_text(text.replace('"1/2"', '"1/4"'), encoding="utf-8")
    found = ps.verify(copy)
    first = "request" if name == "manifest.json" else "files"  # the manifest has all other hashes
    assert [c.name for c in found.checks if not c.ok][:1] == [first]
    (receipt,) = [c for c in found.checks if c.name == "receipt"]
    assert not receipt.ok
    assert re.search(said, receipt.text), receipt.text


def test_only_paid_measurements_of_this_data_set_are_built_on(pair, tmp_path):
    _, first, _ = pair
    folder = tmp_path / "job"
    create_ledger(Job.read(write_job(folder)))
    shutil.copytree(first.path, folder / "bundle")
    with pytest.raises(ps.LedgerError, match="bundle is a paid release of 'people', so this data"):
        release(write_job(folder, MORE), unchecked=True)
    folk = MORE.replace('path = "people.ledger"', 'path = "folk.ledger"')
    folk = write_job(folder, folk.replace('dataset = "people"', 'dataset = "folk"'))
    create_ledger(Job.read(folk))
    with pytest.raises(ps.ReleaseError, match=r"builds_on: 'pets' cannot be built on: .*no charge"):
        release(folk, unchecked=True)
    text = RELEASE.replace("epsilon = 0.5", "epsilon = 0.25")
    made = rehearse(write_job(folder, text))
    shutil.rmtree(folder / "bundle")
    made.path.rename(folder / "bundle")
    with pytest.raises(ps.ReleaseError, match=r"'pets' cannot be built on: this is a simulation"):
        release(write_job(folder, MORE), unchecked=True)
    assert ps.Ledger.open(folder / "people.ledger").spent().amount == 0


def test_another_schema_is_refused_and_a_missing_bundle_named(pair):
    place, _, _ = pair
    wider = MORE.replace("integers = [0, 19]", "integers = [0, 20]")
    with pytest.raises(ps.ReleaseError, match="measured under another schema"):
        Job.read(write_job(place.parent / "wide", wider.replace('["bundle"]', '["../bundle"]')))
    gone = MORE.replace('["bundle"]', '["nowhere"]')
    with pytest.raises(ps.ReleaseError, match=r"there is no bundle at .*nowhere"):
        Job.read(write_job(place.parent / "gone", gone))


def test_a_rehearsal_asks_the_past_of_made_up_data_too(pair):
    place, _, second = pair
    made = rehearse(place)
    assert made.simulation
    assert ps.verify(made.path).ok
    np.testing.assert_allclose(made.views.stderr, second.views.stderr, rtol=1e-9)
    assert (made.views.consistent != second.views.consistent).any()


def test_what_is_bought_is_what_was_priced(tmp_path):
    folder = tmp_path / "job"
    text = with_target(MORE, "{ plus_minus = 4 }")
    place = first_and(text, folder)
    first = Bundle.open(folder / "bundle")
    offer = price(first, question_workload(first, QUESTION), 4)
    assert 0 < offer.budget.amount < offer.alone.amount
    made = ps.plan(place)
    assert float(made.budget.amount) == pytest.approx(float(offer.budget.amount), rel=0.05)
    before = ps.Ledger.open(folder / "people.ledger").spent()
    second = release(place, unchecked=True)
    spent = ps.Ledger.open(folder / "people.ledger").spent() - before
    assert spent == made.budget
    assert second.views.widths.per_query.max() <= 4 * 1.03
    assert ps.verify(second.path).ok


@pytest.mark.parametrize("target", ["plus_minus = 4", "plus_minus = 1", "plus_minus = 2.5"])
def test_what_is_bought_is_the_least_on_top_of_the_past(tmp_path, target):
    place = first_and(with_target(MORE, f"{{ {target} }}"), tmp_path / "job")
    job = Job.read(place)
    forecast = ps.plan(job)
    step = step_of(forecast.budget.amount)
    met = [
        reached_at(job, forecast.strategy, job.budget_of(amount_of(each)), 9999)["infants"].met
        for each in (step, step - 1)
    ]
    assert met == [True, False]
    assert forecast.bottleneck.startswith("infants: ")


def test_what_is_known_already_is_not_bought(tmp_path):
    place = first_and(with_target(MORE, "{ plus_minus = 500 }"), tmp_path / "job")
    with pytest.raises(ps.ReleaseError, match="nothing to buy"):
        release(place, unchecked=True)


# ---- forgers and accidents ---------------------------------------------------------------------


def resigned(bundle):
    """Bring the hashes up to date, as a forger would."""
    place = bundle / "manifest.json"
    manifest = json.loads(place.read_text(encoding="utf-8"))
    files = [f for f in bundle.rglob("*") if f.is_file() and f != place]
    manifest["files"] = {f.relative_to(bundle).as_posix(): sha256_of(f) for f in files}
    place.write_text(json.dumps(manifest), encoding="utf-8")


def changed(place, change):
    content = json.loads(place.read_text(encoding="utf-8"))
    change(content)
    place.write_text(json.dumps(content), encoding="utf-8")


def of_past(**changes):
    return lambda content: content["requests"][0].update(changes)


FORGED = {
    "built on elsewhere": ("release.json", lambda c: c.update(builds_on=["../bundle"])),
    "a rehearsal as the past": ("manifest.json", of_past(simulation=True)),
    "another name": ("manifest.json", of_past(name="the census")),
    "another data set": ("requests/1/receipt.json", lambda c: c.update(dataset="others")),
    "fewer draws": ("manifest.json", lambda c: c.update(draws=19)),
    "more in the receipt": ("requests/1/receipt.json", lambda c: c.update(note="paid")),
    "more in the charge": ("requests/1/receipt.json", lambda c: c["charge"].update(note="paid")),
    "no schema in the receipt": ("requests/1/receipt.json", lambda c: c["charge"].pop("schema")),
    "no budget in the receipt": ("requests/1/receipt.json", lambda c: c.update(budget=[])),
}


@pytest.mark.parametrize("name", FORGED)
def test_what_a_forger_of_the_past_signs_again_is_found(pair, tmp_path, name):
    place, _, second = pair
    copy = place.parent / f"forged-{sorted(FORGED).index(name)}"
    shutil.copytree(second.path, copy)
    file, change = FORGED[name]
    changed(copy / file, change)
    resigned(copy)
    try:
        assert not ps.verify(copy).ok
    finally:
        shutil.rmtree(copy)


def test_a_manifest_that_says_more_of_a_request_is_damaged(pair, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(pair[2].path, copy)
    changed(copy / "manifest.json", of_past(title="The truth"))
    with pytest.raises(ps.ReleaseError, match=r"'requests\.0\.title' does not belong there"):
        ps.verify(copy)


def test_one_charge_counts_once(pair, tmp_path):
    _, _, second = pair
    copy = tmp_path / "copy"
    shutil.copytree(second.path, copy)
    (copy / "requests/2").rename(copy / "requests/3")
    shutil.copytree(copy / "requests/1", copy / "requests/2")
    key = {"key": "release pets 0123"}

    def twice(content):
        first, last = content["requests"]
        content.update(requests=[first, {**first, **key}, last], builds_on=2)

    changed(copy / "manifest.json", twice)
    changed(copy / "requests/2/receipt.json", lambda c: c["charge"].update(key))
    changed(copy / "release.json", lambda c: c.update(builds_on=["requests/1", "requests/2"]))
    resigned(copy)
    (receipt,) = [c for c in ps.verify(copy).checks if c.name == "receipt"]
    assert not receipt.ok


def test_targets_belong_to_their_tables(tmp_path):
    text = RELEASE.replace("[budget]\nepsilon = 0.5", "")
    target = "target = { plus_minus = 30 }"
    one = text.replace("weight = 2", target)
    other = text.replace('columns = ["pet"]', f'columns = ["pet"]\n{target}')
    other = other.replace("weight = 2", "")
    jobs = [Job.read(write_job(tmp_path / "job", each)) for each in (one, other)]
    assert jobs[0].fingerprint != jobs[1].fingerprint


def test_an_older_ledger_beside_newer_releases_is_noticed(tmp_path):
    folder = tmp_path / "job"
    place = write_job(folder)
    create_ledger(Job.read(place))
    shutil.copy(folder / "people.ledger", folder / "kept")
    release(place, unchecked=True)
    shutil.copy(folder / "kept", folder / "people.ledger")
    again = RELEASE.replace('name = "pets"', 'name = "more"') + '[output]\nbundle = "more"\n'
    with pytest.raises(ps.LedgerError, match="or an older copy of it"):
        release(write_job(folder, again), unchecked=True)


def test_answers_come_from_what_was_released(pair, tmp_path):
    _, _, second = pair
    for name in ("requests/2/measurements.parquet", "requests/1/measurements.parquet"):
        copy = tmp_path / name.replace("/", "-")
        shutil.copytree(second.path, copy)
        values = pq.read_table(copy / name)["value"].to_numpy() + 1
        pq.write_table(pa.table({"value": values}), copy / name)
        with pytest.raises(ps.ReleaseError, match="has changed since the release"):
            ps.ask(copy, "SELECT COUNT(*) FROM people")


def test_a_plan_refuses_what_a_release_would(pair):
    place, _, _ = pair
    made = rehearse(place)
    text = MORE.replace('["bundle"]', f'["{made.path.name}"]')
    other = place.with_name("on-rehearsal.toml")
    other.write_text(text, encoding="utf-8")
    with pytest.raises(
        ps.ReleaseError, match=r"cannot be built on: this is a simulation.*leave it"
    ):
        ps.plan(other)


@pytest.mark.parametrize("wanted", [3, 4, 6])
def test_what_is_bought_is_no_more_than_is_needed(pair, wanted):
    """Where what is known and what is bought help each other, less is enough than their sum."""
    _, first, _ = pair
    question = "SELECT age, COUNT(*) FROM people WHERE age < 12 GROUP BY age"
    offer = price(first, question_workload(first, question), wanted * 10)
    if offer.budget.amount == 0:
        return
    job = first.job.whole
    target = TargetEntry.model_validate({"plus_minus": wanted * 10})
    table = Table("ask", "ask", range(1), target)
    job = replace(
        job, workload=question_workload(first, question), tables=(table,), past=first.requests
    )
    strategy = ps.select.hdmm(job.workload, restarts=1)
    less = ps.epsilon(str(offer.budget.amount * 9 / 10))
    assert reached_at(job, strategy, less, 9999)["ask"][0] > wanted * 10


def test_names_of_files_fit_on_disks():
    for name in ("表" * 90, "𝔸" * 70, "a" * 300):
        assert len(table_files([name])[name].encode()) < 200
    assert len(set(table_files(["表" * 90, "表" * 91]).values())) == 2
