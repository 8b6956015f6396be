"""Releases that build on past ones: bought on top of what is known, and verified with it."""

import json
import re
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import psephos as ps
from psephos.publish.ask import asked, price
from psephos.publish.bundle import Bundle
from psephos.publish.job import Job
from psephos.publish.release import create_ledger, rehearse, release
from tests.publish.conftest import RELEASE, write_job

QUESTION = "SELECT pet, COUNT(*) FROM people WHERE age < 6 GROUP BY pet"
MORE = RELEASE.replace('name = "pets"\ntitle', 'name = "more"\ntitle')
MORE = MORE.replace('source = "people.csv"', 'source = "people.csv"\nbuilds_on = ["bundle"]')
MORE += '[output]\nbundle = "second"\n'


def first_and(text, folder):
    """The first release, then the release file of a second one."""
    place = write_job(folder)
    create_ledger(Job.read(place))
    release(place)
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
    return place, Bundle.open(folder / "bundle"), release(place)


def test_two_measurements_are_better_than_either(pair):
    place, first, second = pair
    both = second.views
    assert len(both.measurements) == 2
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
    assert content["builds_on"] == ["past/1"]
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
    place = copy / "past" / "1" / name
    if name == "measurements.parquet":
        values = pq.read_table(place)["value"].to_numpy() + 1
        pq.write_table(pa.table({"value": values}), place)
    else:
        text = place.read_text(encoding="utf-8")
        place.write_text(text.replace('"1/2"', '"1/4"', 1), encoding="utf-8")
    found = ps.verify(copy)
    assert [c.name for c in found.checks if not c.ok][:1] == ["files"]
    (receipt,) = [c for c in found.checks if c.name == "receipt"]
    assert not receipt.ok
    assert re.search(said, receipt.text), receipt.text


def test_only_paid_measurements_of_this_data_set_are_built_on(pair, tmp_path):
    _, first, _ = pair
    folder = tmp_path / "job"
    create_ledger(Job.read(write_job(folder)))
    shutil.copytree(first.path, folder / "bundle")
    other = write_job(folder, MORE)
    with pytest.raises(ps.ReleaseError, match=r"builds_on: 'pets' cannot be built on: .*no charge"):
        release(other)
    text = RELEASE.replace("epsilon = 0.5", "epsilon = 0.25")
    made = rehearse(write_job(folder, text))
    shutil.rmtree(folder / "bundle")
    made.path.rename(folder / "bundle")
    with pytest.raises(ps.ReleaseError, match=r"'pets' cannot be built on: this is a simulation"):
        release(write_job(folder, MORE))
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
    offer = price(first, asked(first, QUESTION), 4)
    assert 0 < offer.budget.amount < offer.alone.amount
    made = ps.plan(place)
    assert float(made.budget.amount) == pytest.approx(float(offer.budget.amount), rel=0.05)
    before = ps.Ledger.open(folder / "people.ledger").spent()
    second = release(place)
    spent = ps.Ledger.open(folder / "people.ledger").spent() - before
    assert spent == made.budget
    assert second.views.widths.per_query.max() <= 4 * 1.03
    assert ps.verify(second.path).ok


def test_what_is_known_already_is_not_bought(tmp_path):
    place = first_and(with_target(MORE, "{ plus_minus = 500 }"), tmp_path / "job")
    with pytest.raises(ps.ReleaseError, match="nothing to buy"):
        release(place)
