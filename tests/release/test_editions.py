"""Editions: one data set in several states, under one budget, never combined."""

import json
import re
import shutil
from fractions import Fraction

import numpy as np
import pytest
from typer.testing import CliRunner

import psephos as ps
from psephos.cli.app import app
from psephos.release.bundle.bundle import Bundle
from psephos.release.bundle.files import sha256_of
from psephos.release.preflight.checks import create_ledger
from psephos.release.run import rehearse, release
from psephos.release.spec.job import Job
from tests.release.conftest import RELEASE, people, write_job


def of_edition(edition, text=RELEASE, name=None):
    """A release file of an edition, with another name and bundle if one is given."""
    text = text.replace('source = "people.csv"', f'source = "people.csv"\nedition = "{edition}"')
    if name is not None:
        text = text.replace('name = "pets"\ntitle', f'name = "{name}"\ntitle')
        text += f'[output]\nbundle = "{name}"\n'
    return text


def building_on(text, *bundles):
    listed = ", ".join(f'"{bundle}"' for bundle in bundles)
    return text.replace('source = "people.csv"', f'source = "people.csv"\nbuilds_on = [{listed}]')


def spent(folder):
    return ps.Ledger.open(folder / "people.ledger").spent()


@pytest.fixture(scope="module")
def dated(tmp_path_factory):
    """A release of the edition "2024"."""
    folder = tmp_path_factory.mktemp("dated") / "job"
    place = write_job(folder, of_edition("2024"))
    create_ledger(Job.read(place))
    return release(place, unchecked=True)


def test_a_bundle_says_its_edition(dated):
    assert dated.manifest["edition"] == "2024"
    assert dated.requests[0].edition == "2024"
    assert dated.measurement.lineage[0].endswith(" 2024")
    report = dated.report.read_text(encoding="utf-8")
    assert re.search(r"Edition of the data</dt>\s*<dd>2024<", report)
    assert ps.verify(dated.path, ledger=dated.path.parent / "people.ledger").ok
    said = CliRunner().invoke(app, ["budget", str(dated.path.parent / "people.ledger"), "--json"])
    assert [c["release"] for c in json.loads(said.stdout)["charges"]] == ["pets (2024)"]


def test_a_rehearsal_has_the_edition_too(dated):
    made_up = rehearse(dated.path.parent / "release.toml")
    assert made_up.manifest["edition"] == "2024"
    assert ps.verify(made_up.path).ok


@pytest.mark.parametrize("edition", ["2025", ""])
def test_other_editions_are_not_built_on(dated, edition):
    folder = dated.path.parent
    text = building_on(of_edition(edition, name="more"), "bundle")
    other = folder / "other.toml"
    other.write_text(text, encoding="utf-8")
    before = spent(folder)
    said = repr(edition) if edition else "one without a name"
    for look in (Job.read, ps.plan, release):
        with pytest.raises(ps.ReleaseError) as refused:
            look(other)
        assert f"('2024') than this release ({said})" in str(refused.value)
        assert "release without builds_on" in str(refused.value)
        assert "correct `edition`" in str(refused.value)
    assert spent(folder) == before


def test_the_same_edition_is_built_on(dated, tmp_path):
    folder = tmp_path / "job"
    shutil.copytree(dated.path.parent, folder)
    text = building_on(of_edition("2024", name="more"), "bundle")
    second = release(write_job(folder, text), unchecked=True)
    assert [each.edition for each in second.job.past] == ["2024"]
    assert ps.verify(second.path, ledger=folder / "people.ledger").ok


def test_an_edition_renews_no_budget(tmp_path):
    folder = tmp_path / "job"
    create_ledger(Job.read(write_job(folder, of_edition("2023"))))
    values = {}
    for halves, edition in enumerate(("2023", "2024", "2025"), 1):
        first = release(write_job(folder, of_edition(edition, name=f"e{edition}")), unchecked=True)
        assert spent(folder) == ps.epsilon(Fraction(halves, 2))
        values[edition] = first.measurement.values
    assert (values["2023"] != values["2024"]).any()
    release(write_job(folder, of_edition("2026", name="last")), unchecked=True)
    with pytest.raises(ps.BudgetExceededError, match="nothing is left"):
        release(write_job(folder, of_edition("2027", name="over")), unchecked=True)


def test_one_name_in_two_editions_is_two_requests(dated, tmp_path):
    """Without editions the second would be last year's numbers again, as a replay."""
    folder = tmp_path / "job"
    shutil.copytree(dated.path.parent, folder)
    shutil.rmtree(folder / "bundle")
    again = release(write_job(folder, of_edition("2024"), data=people(900)), unchecked=True)
    assert (again.measurement.values == dated.measurement.values).all()
    shutil.rmtree(folder / "bundle")
    newer = release(write_job(folder, of_edition("2025"), data=people(900)), unchecked=True)
    assert (newer.measurement.values != dated.measurement.values).any()
    assert spent(folder) == ps.epsilon("1")


# ---- handles -----------------------------------------------------------------------------------


def simulated(edition, seed=0):
    domain = ps.Domain.of(sex=["F", "M"], age=range(4))
    unit, budget = ps.add_remove_row(), ps.epsilon("10")
    return ps.simulate(
        np.arange(8), domain, unit=unit, budget=budget, seed=seed, edition=edition
    ).vectorise()


def test_measurements_of_different_editions_are_not_combined():
    one, other, unnamed = (
        simulated(edition).noisy_count(spend=ps.epsilon("1")) for edition in ("2024", "2025", "")
    )
    ps.infer.least_squares([one, simulated("2024", 1).noisy_count(spend=ps.epsilon("1"))])
    with pytest.raises(ps.RefusedError, match="different editions of the data, '2024' and '2025'"):
        ps.infer.least_squares([one, other])
    with pytest.raises(ps.RefusedError, match="one without a name and '2024'"):
        ps.infer.least_squares([one, unnamed])


def test_a_key_of_one_edition_is_refused_to_another(tmp_path):
    domain = ps.Domain.of(sex=["F", "M"])
    (tmp_path / "people.csv").write_text("sex\nF\nM\n", encoding="utf-8")
    ledger = ps.Ledger.create(
        tmp_path / "people.ledger",
        dataset="people",
        unit=ps.add_remove_row(),
        budget=ps.epsilon("1"),
    )
    for part in ("F", "M"):
        split = ps.protect(tmp_path / "people.csv", domain, ledger=ledger, edition="2024")
        split.split("sex")[part].noisy_count(spend=ps.epsilon("1/4"), key=part)
        newer = ps.protect(tmp_path / "people.csv", domain, ledger=ledger, edition="2025")
        with pytest.raises(ps.LedgerError, match="belongs to another request"):
            newer.split("sex")[part].noisy_count(spend=ps.epsilon("1/4"), key=part)


@pytest.mark.parametrize("edition", ["20\n25", " 2025", "x" * 201, 2025, "\u200b"])
def test_an_edition_is_printable_text(edition, tmp_path):
    with pytest.raises(ps.DomainError, match="an edition is printable text of at most 200"):
        simulated(edition)
    content = json.dumps(edition)
    place = write_job(tmp_path / "job", of_edition("HERE").replace('"HERE"', content))
    with pytest.raises(ps.ReleaseError, match="edition"):
        Job.read(place)


# ---- forgers -----------------------------------------------------------------------------------


def changed(place, change):
    content = json.loads(place.read_text(encoding="utf-8"))
    change(content)
    place.write_text(json.dumps(content), encoding="utf-8")


def renamed(content):
    lineage = content["requests"][-1]["lineage"]
    lineage[0] = lineage[0].replace(" 2024", " 2025")


def of_request(**changes):
    return lambda content: content["requests"][-1].update(changes)


FORGED = {
    "in the manifest": {"manifest.json": [lambda c: c.update(edition="2025")]},
    "in what it says of the request": {"manifest.json": [of_request(edition="2025")]},
    "in the release file": {"release.json": [lambda c: c.update(edition="2025")]},
    "in the lineage": {"manifest.json": [renamed]},
    "everywhere": {
        "manifest.json": [
            lambda c: c.update(edition="2025"),
            of_request(edition="2025"),
            renamed,
        ],
        "release.json": [lambda c: c.update(edition="2025")],
    },
}


@pytest.mark.parametrize("where", FORGED)
def test_a_forged_edition_is_found(dated, tmp_path, where):
    copy = tmp_path / "copy"
    shutil.copytree(dated.path, copy)
    for file, changes in FORGED[where].items():
        for change in changes:
            changed(copy / file, change)
    if where == "everywhere":  # and the name of the request with it
        job = Bundle.open(copy).job
        changed(copy / "manifest.json", lambda c: c.update(fingerprint=job.fingerprint))
        changed(copy / "manifest.json", of_request(key=job.key))
        changed(copy / "requests/1/receipt.json", lambda c: c["charge"].update(key=job.key))
    changed(
        copy / "manifest.json",
        lambda c: c.update(
            files={
                f.relative_to(copy).as_posix(): sha256_of(f)
                for f in copy.rglob("*")
                if f.is_file() and f.name != "manifest.json"
            }
        ),
    )
    failed = [check.name for check in ps.verify(copy).checks if not check.ok]
    assert failed
    assert where != "everywhere" or failed == ["receipt"]


# ---- the request -------------------------------------------------------------------------------


def test_a_release_does_not_build_on_itself(tmp_path):
    """What it builds on is no part of the request, so its own measurement would count twice."""
    folder = tmp_path / "job"
    create_ledger(Job.read(write_job(folder)))
    release(folder / "release.toml", unchecked=True)
    text = building_on(RELEASE, "bundle") + '[output]\nbundle = "second"\n'
    with pytest.raises(ps.ReleaseError, match="'pets' is what this release measures"):
        release(write_job(folder, text), unchecked=True)
    assert spent(folder) == ps.epsilon("1/2")


def test_what_was_charged_is_measured_again_in_the_same_way(tmp_path):
    """How a strategy is searched may change after the charge; the request stays as it was."""
    folder = tmp_path / "job"
    create_ledger(Job.read(write_job(folder)))
    first = release(folder / "release.toml", unchecked=True)
    shutil.move(first.path, folder / "moved")
    second = release(
        write_job(folder, RELEASE.replace('"opt_product"', '"identity"')), unchecked=True
    )
    assert second.strategy.name == first.strategy.name
    assert (second.measurement.values == first.measurement.values).all()
    assert spent(folder) == ps.epsilon("1/2")


# ---- the owner's check -------------------------------------------------------------------------


def notes(place):
    said = CliRunner().invoke(app, ["check", str(place), "--json"])
    assert said.exit_code == 0, said.output
    findings = json.loads(said.stdout)["findings"]
    return [f["level"] for f in findings if f["column"] == "edition"]


def test_the_check_tells_what_an_edition_is_for(tmp_path):
    folder = tmp_path / "job"
    place = write_job(folder)
    create_ledger(Job.read(place))
    assert notes(place) == []
    release(place, unchecked=True)
    assert notes(place) == ["note"]
    assert notes(write_job(folder, of_edition("2025", name="more"))) == []
    assert notes(write_job(folder, of_edition("", name="more"))) == ["note"]


def test_another_edition_is_checked_anew(tmp_path):
    """The same path may hold other rows by then."""
    folder = tmp_path / "job"
    create_ledger(Job.read(write_job(folder, of_edition("2024"))))
    run = CliRunner()
    assert run.invoke(app, ["check", str(folder)]).exit_code == 0
    write_job(folder, of_edition("2025"))
    said = run.invoke(app, ["release", str(folder), "--json"])
    assert said.exit_code == 2
    assert "has not been compared with the data" in said.stdout


def test_a_draft_has_a_line_for_the_edition(tmp_path):
    (tmp_path / "people.csv").write_text(people(3), encoding="utf-8")
    drafted = tmp_path / "release.toml"
    said = CliRunner().invoke(app, ["init", str(tmp_path / "people.csv"), "-o", str(drafted)])
    assert said.exit_code == 0
    assert '\n# edition = "' in drafted.read_text(encoding="utf-8")
