"""Next year's rows behind last year's ledger: never averaged with last year's in silence.

A town measured 2,000 rows last year. This year's file has 4,000, at the same path, and the new
release builds on the old one. The mean of the two, 3,000 ± a few, would be of neither year.
"""

import shutil

import numpy as np
import pytest

import psephos as ps
from psephos.release.bundle import write as write_module
from psephos.release.preflight.checks import create_ledger
from psephos.release.run import release
from psephos.release.spec.job import Job
from tests.release.conftest import RELEASE, people, write_job

LAST, THIS = people(2_000, seed=1), people(4_000, seed=2)
MORE = RELEASE.replace('name = "pets"\ntitle', 'name = "more"\ntitle')
MORE = MORE.replace('source = "people.csv"', 'source = "people.csv"\nbuilds_on = ["bundle"]')
MORE += '[output]\nbundle = "second"\n'
TARGETS = MORE.replace("[budget]\nepsilon = 0.5", "")
TARGETS = TARGETS.replace("weight = 2", "target = { plus_minus = 6 }")


def alone(text):
    """The release file as the refusal says to change it."""
    return text.replace('builds_on = ["bundle"]\n', "")


def last_year(folder):
    """Last year's release, paid for."""
    place = write_job(folder, data=LAST)
    create_ledger(Job.read(place))
    release(place, unchecked=True)
    return folder


def spent(folder):
    return ps.Ledger.open(folder / "people.ledger").spent()


@pytest.mark.parametrize("text", [MORE, TARGETS])
def test_the_years_are_told_apart_and_what_was_paid_for_is_released_alone(tmp_path, text):
    folder = last_year(tmp_path / "job")
    place = write_job(folder, text, data=THIS)
    planned = ps.plan(place).budget
    with pytest.raises(
        ps.ReleaseError,
        match=r"builds_on: 'pets' contradicts what else was measured: they are up to "
        r"[\d,]+ standard errors apart(.|\n)*The charge stays(.|\n)*remove builds_on",
    ):
        release(place, unchecked=True)
    assert not (folder / "second").exists()
    assert spent(folder) == ps.epsilon("1/2") + planned
    with pytest.raises(ps.ReleaseError, match="contradicts what else"):
        release(place, unchecked=True)
    # The remedy: the same measurement, without the past, at no further cost; also where a target
    # alone would have bought more.
    without = write_job(folder, alone(text), data=THIS)
    assert (ps.plan(without).budget > planned) == (text == TARGETS)
    second = release(without, unchecked=True)
    assert spent(folder) == ps.epsilon("1/2") + planned
    assert second.spend == planned
    assert ps.verify(second.path, ledger=folder / "people.ledger").ok
    total = ps.ask(second, "SELECT COUNT(*) FROM people").table.to_pylist()[0]
    assert abs(total["count"] - 4_000) < 8 * total["stderr"]


def test_whoever_verifies_finds_years_that_were_averaged(tmp_path, monkeypatch):
    folder = last_year(tmp_path / "job")
    place = write_job(folder, MORE, data=THIS)
    monkeypatch.setattr(write_module, "require_agreement", lambda views: None)
    mixed = release(place, unchecked=True)
    total = ps.ask(mixed, "SELECT COUNT(*) FROM people").table.to_pylist()[0]
    assert 2_900 < total["low"] < total["high"] < 3_100
    checks = ps.verify(mixed.path).checks
    assert [check.name for check in checks if not check.ok] == ["past"]


def test_with_editions_nothing_is_charged_for_a_mixture(tmp_path):
    folder = tmp_path / "job"
    text = RELEASE.replace('source = "people.csv"', 'source = "people.csv"\nedition = "2024"')
    create_ledger(Job.read(write_job(folder, text, data=LAST)))
    release(folder / "release.toml", unchecked=True)
    newer = MORE.replace('source = "people.csv"', 'source = "people.csv"\nedition = "2025"')
    with pytest.raises(ps.ReleaseError, match=r"'2024'\) than this release \('2025'\)"):
        release(write_job(folder, newer, data=THIS), unchecked=True)
    assert spent(folder) == ps.epsilon("1/2")


def test_the_same_rows_are_still_combined(tmp_path):
    folder = last_year(tmp_path / "job")
    second = release(write_job(folder, MORE, data=LAST), unchecked=True)
    verification = ps.verify(second.path)
    assert verification.ok, str(verification)
    assert "'pets': within" in str(verification)


def test_of_two_pasts_the_one_that_contradicts_is_named(tmp_path):
    folder = last_year(tmp_path / "job")
    again = alone(MORE).replace("epsilon = 0.5", "epsilon = 1")
    release(write_job(folder, again, data=THIS), unchecked=True)
    third = MORE.replace('name = "more"', 'name = "third"').replace(
        "epsilon = 0.5", "epsilon = 0.1"
    )
    third = third.replace('["bundle"]', '["bundle", "second"]').replace('"second"\n', '"third"\n')
    with pytest.raises(ps.ReleaseError, match="'pets' contradicts what else was measured"):
        release(write_job(folder, third, data=THIS), unchecked=True)
    shutil.rmtree(folder / "bundle")
    good = third.replace('["bundle", "second"]', '["second"]')
    values = release(write_job(folder, good, data=THIS), unchecked=True).views.consistent
    assert np.isfinite(values).all()
