"""What the owner does before a release: the check, its stamp, the ledger."""

import json
import shutil
import subprocess
import sys
from fractions import Fraction

import pytest

import psephos as ps
from psephos.release.preflight.checks import check_release, is_checked, open_ledger
from psephos.release.run import release
from psephos.release.spec.job import Job
from tests.cli.test_cli import OTHER_BUNDLE, run, told
from tests.release.conftest import RELEASE, people, write_job


@pytest.fixture
def folder(tmp_path):
    return write_job(tmp_path / "job").parent


def spent(folder):
    return open_ledger(Job.read(folder)).spent().amount


def by_kind(report, kind):
    return [finding for finding in report.findings if finding.kind == kind]


# ---- zeros ---------------------------------------------------------------------------------------

BAD_ZEROS = [
    ("nobody under 3", "'under' cannot stand here"),
    ("age = 'infant'", "is not a declared value of 'age'"),
    ("age < 0", "no declared value meets the condition"),
    ("age < 3 GROUP BY age", "this asks for several counts"),
    ("age < 3 GROUP BY CUBE (age, pet)", "this asks for several counts"),
    ("1 = 1", "every row meets it"),
    ("", "something is missing"),
]


@pytest.mark.parametrize(("condition", "said"), BAD_ZEROS)
def test_a_mistake_in_zeros_is_told_by_every_command_before_the_charge(folder, condition, said):
    run("check", folder, "--create-ledger")
    zeros = f'zeros = ["pet = \'cat\' AND age = 1", "{condition}"]'
    place = write_job(folder, RELEASE.replace("zeros = [\"age < 6 AND pet = 'horse'\"]", zeros))
    for command in ("check", "plan", "rehearse", "release"):
        message = told(command, place, code=2)["error"]["message"]
        assert message.startswith(f"zeros[2] {condition!r}: ")
        assert said in message
        assert "write: SELECT" not in message
    with pytest.raises(ps.ReleaseError, match=r"zeros\[2\]"):
        release(place, unchecked=True)
    ledger = ps.Ledger.open(folder / "people.ledger")
    assert ledger.spent().amount == 0


def test_zeros_that_together_leave_nothing_are_refused(folder):
    text = RELEASE.replace('unknown = "other"', "")
    for zeros, fits in ((["age < 9", "age > 9"], True), (["age < 9", "age > 8"], False)):
        place = write_job(
            folder, text.replace("[\"age < 6 AND pet = 'horse'\"]", json.dumps(zeros))
        )
        if fits:
            assert Job.read(place).whole.zeros.sum() == 19 * 3
        else:
            with pytest.raises(ps.ReleaseError, match="zeros: every row meets one of them"):
                Job.read(place)


def test_the_check_counts_rows_that_contradict_zeros(folder):
    zeros = ["age < 6 AND pet = 'horse'", "age = 7 OR pet = 'dog'", "age = 19 AND pet = 'cat'"]
    text = RELEASE.replace("[\"age < 6 AND pet = 'horse'\"]", json.dumps(zeros))
    rows = ["3,horse", "4,horse", "12,horse", "7,cat", "8,dog", "7,dog", "7,newt", "19,dog"]
    write_job(folder, text, "\n".join(["age,pet", *rows]) + "\n")
    report = check_release(Job.read(folder))
    assert [str(finding) for finding in by_kind(report, "zeros")] == [
        "zeros[1] age < 6 AND pet = 'horse': 2 rows contradict it; they will be published as 0",
        "zeros[2] age = 7 OR pet = 'dog': 5 rows contradict it; they will be published as 0",
    ]
    assert not report.ok
    found = run("check", folder)
    assert found.exit_code == 1
    assert "error    zeros[1]" in found.stdout


# ---- levels --------------------------------------------------------------------------------------


def test_missing_entries_are_a_warning_that_says_how_to_keep_them(folder):
    text = RELEASE.replace('unknown = "other"', "")
    data = people().replace("newt", "cat")
    report = check_release(Job.read(write_job(folder, text, data + "7,\n,dog\n,\n")))
    assert report.ok
    assert (report.rows, report.counted) == (603, 600)
    assert "603 rows, of which 600 have a cell" in str(report)
    said = {finding.column: finding for finding in by_kind(report, "missing")}
    assert {finding.level for finding in said.values()} == {"warning"}
    assert "2 rows with missing entries are dropped" in said["pet"].text
    assert 'missing = "not stated" or unknown = "other"' in said["pet"].text
    assert 'missing = "not stated"' in said["age"].text
    kept = text.replace('"horse"]', '"horse"]\nmissing = "not stated"')
    report = check_release(Job.read(write_job(folder, kept, data + "7,\n")))
    assert [finding.level for finding in by_kind(report, "missing")] == ["note"]


@pytest.mark.parametrize("extra", ["7,newt\n", "old,cat\n", "7.5,cat\n", "99,cat\n"])
def test_undeclared_entries_are_an_error_unless_the_file_says_drop(folder, extra):
    text = RELEASE.replace('unknown = "other"', "")
    data = people().replace("newt", "cat") + extra
    report = check_release(Job.read(write_job(folder, text, data)))
    (found,) = by_kind(report, "undeclared")
    assert found.level == "error"
    assert 'unknown = "other" to keep them, or unknown = "drop"' in found.text
    said = text.replace('"horse"]', '"horse"]\nunknown = "drop"')
    said = said.replace("integers = [0, 19]", 'integers = [0, 19]\nunknown = "drop"')
    report = check_release(Job.read(write_job(folder, said, data)))
    assert report.ok
    assert [finding.level for finding in by_kind(report, "undeclared")] == ["warning"]


def test_clipping_does_not_cover_text(folder):
    text = RELEASE.replace("integers = [0, 19]", 'integers = [0, 19]\nunknown = "clip"')
    report = check_release(Job.read(write_job(folder, text, people(extra="99,cat\n"))))
    assert report.ok
    report = check_release(Job.read(write_job(folder, text, people(extra="old,cat\n"))))
    assert [(f.column, f.level) for f in by_kind(report, "undeclared")] == [
        ("age", "error"),
        ("pet", "note"),
    ]


@pytest.mark.parametrize("data", ["age,pet\n3,\n4,\n", "age,pet\n3,\n,cat\n"])
def test_a_source_with_nothing_to_count_is_an_error(folder, data):
    text = RELEASE.replace('unknown = "other"', 'unknown = "drop"')
    report = check_release(Job.read(write_job(folder, text, data)))
    assert not report.ok
    assert report.counted == 0
    assert by_kind(report, "none")


# ---- the ledger ----------------------------------------------------------------------------------


@pytest.mark.parametrize("data", ["Age,pet\n3,cat\n", "age,pet\n3,cat\nold,cat\n"])
def test_errors_of_the_check_leave_the_ledger_unmade(folder, data):
    write_job(folder, data=data)
    found = told("check", folder, "--create-ledger", code=1)
    assert found["ledger"] is None
    assert found["no_ledger"].startswith("no ledger was made: its unit and budget are for life")
    assert "mend the release file or the data" in run("check", folder, "--create-ledger").stdout
    assert not list(folder.glob("*.ledger*"))
    write_job(folder)
    assert told("check", folder, "--create-ledger")["ledger"] == str(folder / "people.ledger")


def test_a_lost_ledger_gives_no_fresh_budget(folder):
    run("check", folder, "--create-ledger")
    assert run("release", folder).exit_code == 0
    shutil.copytree(folder, folder.parent / "copy")
    for file in folder.glob("people.ledger*"):
        file.unlink()
    message = told("check", folder, "--create-ledger", code=4)["error"]["message"]
    assert f"{folder / 'bundle'} is a paid release of 'people'" in message
    assert f"Put the old ledger back at {folder / 'people.ledger'}" in message
    write_job(folder, RELEASE + OTHER_BUNDLE)  # the old bundle lies beside the new one's place
    assert told("check", folder, "--create-ledger", code=4)
    assert not list(folder.glob("people.ledger*"))
    shutil.move(folder / "bundle", folder.parent / "of other data")
    assert told("check", folder, "--create-ledger")["ledger"]


def test_a_rehearsal_or_a_bundle_of_other_data_hinders_no_ledger(folder):
    run("rehearse", folder)
    (folder / "bundle.rehearsal").rename(folder / "bundle")
    assert told("check", folder, "--create-ledger")["ledger"]
    run("rehearse", folder)
    shutil.rmtree(folder / "bundle")
    assert run("release", folder).exit_code == 0
    text = RELEASE.replace('"people.ledger"', '"folk.ledger"').replace(
        'dataset = "people"', 'dataset = "folk"'
    )
    write_job(folder, text + OTHER_BUNDLE)
    assert told("check", folder, "--create-ledger")["ledger"]


def second_ledger(folder):
    """Another ledger of the same name, made where no bundle lies, in place of the first."""
    elsewhere = write_job(folder.parent / "elsewhere").parent
    run("check", elsewhere, "--create-ledger")
    for file in folder.glob("people.ledger*"):
        file.unlink()
    shutil.copy(elsewhere / "people.ledger", folder / "people.ledger")


def places_of_bundles(folder):
    """The release file of the paid bundle itself, of one beside it, and of one built on it."""
    yield RELEASE
    yield RELEASE + OTHER_BUNDLE
    away = folder.parent / "away"
    away.mkdir()
    shutil.move(folder / "bundle", away / "bundle")
    build = 'source = "people.csv"\nbuilds_on = ["../away/bundle"]'
    text = RELEASE.replace('source = "people.csv"', build)
    yield text.replace('name = "pets"\ntitle', 'name = "more"\ntitle') + OTHER_BUNDLE


def test_a_second_ledger_of_the_data_set_pays_for_nothing(folder):
    run("check", folder, "--create-ledger")
    assert run("release", folder).exit_code == 0
    second_ledger(folder)
    for text in places_of_bundles(folder):
        write_job(folder, text)
        for command in ("release", "check"):
            message = told(command, folder, code=4)["error"]["message"]
            assert "bundle is a paid release of 'people'" in message
            assert f"Put the old ledger back at {folder / 'people.ledger'}" in message
            assert "move it away, or give these data another ledger.dataset" in message
    assert spent(folder) == 0


def test_a_paid_bundle_of_another_format_still_says_that_there_is_a_ledger(folder):
    run("check", folder, "--create-ledger")
    assert run("release", folder).exit_code == 0
    place = folder / "bundle" / "manifest.json"
    manifest = json.loads(place.read_text())
    place.write_text(json.dumps({**manifest, "format": 8, "tables": None}))
    second_ledger(folder)
    for text in (RELEASE, RELEASE + OTHER_BUNDLE):
        write_job(folder, text)
        message = told("check", folder, code=4)["error"]["message"]
        assert "bundle is a paid release of 'people'" in message
    assert spent(folder) == 0


def test_a_bundle_is_not_paid_for_by_an_older_ledger(folder):
    run("check", folder, "--create-ledger")
    older = (folder / "people.ledger").read_bytes()
    told("release", folder)
    (folder / "people.ledger").write_bytes(older)
    message = told("release", folder, code=4)["error"]["message"]
    assert f"not the one that paid for {folder / 'bundle'}" in message
    assert "an older copy was put back" in message
    assert "Put the newest ledger back" in message
    (folder / "people.ledger").unlink()
    assert ps.release(folder).path == folder / "bundle"  # whoever has no ledger reads the bundle


# ---- the stamp -----------------------------------------------------------------------------------


def test_a_release_asks_for_a_check_that_passed(folder):
    ps.Ledger.create(
        folder / "people.ledger",
        dataset="people",
        unit=ps.add_remove_row(),
        budget=ps.epsilon("2"),
    )
    message = told("release", folder, code=2)["error"]["message"]
    assert "run `psephos check RELEASE` first, or say --unchecked. Nothing was charged" in message
    assert spent(folder) == 0
    assert run("check", folder).exit_code == 0
    assert run("release", folder).exit_code == 0


def test_a_check_that_fails_takes_the_stamp_away(folder):
    assert check_release(Job.read(folder)).ok
    assert is_checked(Job.read(folder))
    write_job(folder, data=people(extra="old,cat\n"))
    assert not check_release(Job.read(folder)).ok
    assert not is_checked(Job.read(folder))
    run("check", folder)


@pytest.mark.parametrize(
    ("old", "new", "asks"),
    [
        ("integers = [0, 19]", "integers = [0, 20]", True),
        ('"people.csv"', '"folk.csv"', True),
        ('unit = "add_remove_row"', 'unit = "substitute_row"', True),
        ("age < 6", "age < 5", True),
        ("epsilon = 0.5", "epsilon = 0.25", False),
        ("age < 12", "age < 13", False),
        ("WHERE age < 12", "WHERE age < 12 OR pet = 'cat'", False),
        ('"Age"', '"Years"', False),
    ],
)
def test_the_stamp_is_for_schema_unit_source_and_zeros(folder, old, new, asks):
    assert check_release(Job.read(folder)).ok
    job = Job.read(write_job(folder, RELEASE.replace(old, new)))
    assert is_checked(job) is not asks


def test_the_stamp_tells_nothing_of_the_data(folder):
    seen = []
    for data in (people(), people(extra="3,newt\n")):
        write_job(folder, data=data)
        assert check_release(Job.read(folder)).ok
        (stamp,) = (folder / ".psephos").glob("*.checked")
        words, facts = stamp.read_text().splitlines()
        # A hash of the file's times to the nanosecond: nothing follows from it, it can be compared.
        assert len(json.loads(facts).pop("state")) == 64
        seen.append((stamp.name, words, json.loads(facts) | {"state": ""}))
    assert seen[0] == seen[1]


def test_unchecked_says_so_and_what_is_paid_for_goes_on(folder, monkeypatch):
    run("check", folder, "--create-ledger")
    shutil.rmtree(folder / ".psephos")
    assert run("release", folder).exit_code == 2
    assert run("release", folder, "--unchecked").exit_code == 0
    assert spent(folder) == ps.epsilon("1/2").amount
    assert run("release", folder).exit_code == 0  # the bundle is there
    shutil.rmtree(folder / "bundle")
    assert run("release", folder).exit_code == 0  # the charge is there
    assert spent(folder) == ps.epsilon("1/2").amount


def test_python_does_not_ask(folder):
    run("check", folder, "--create-ledger")
    shutil.rmtree(folder / ".psephos")
    assert release(folder, unchecked=True).path.exists()


RUNS = """
import sys
from pathlib import Path
from typer.testing import CliRunner
from psephos.cli.app import app
from psephos.kernel.vault import Vault

genuine, folder, name = Vault.request, Path(sys.argv[1]), sys.argv[2]


def together(*given):
    (folder / f"{name}.ready").touch()
    while len(list(folder.glob("*.ready"))) < 2:
        pass
    return genuine(*given)


Vault.request = together
print(CliRunner().invoke(app, ["release", str(folder)], env={"NO_COLOR": "1"}).output)
"""


def test_of_two_runs_at_once_one_says_that_it_spent(folder):
    """Each has looked at the ledger before the other charges it."""
    run("check", folder, "--create-ledger")
    commands = [[sys.executable, "-c", RUNS, str(folder), name] for name in ("one", "two")]
    options = {"stdout": subprocess.PIPE, "text": True}
    racers = [subprocess.Popen(command, **options) for command in commands]
    outputs = [racer.communicate(timeout=120)[0] for racer in racers]
    assert spent(folder) == Fraction(1, 2)
    paid = ["this run spent epsilon 1/2" in output for output in outputs]
    free = ["this run spent nothing: it was paid for" in output for output in outputs]
    assert sorted(paid) == [False, True], outputs
    assert free == paid[::-1], outputs
