"""Cleaning in a release: counted for, noted by the owner, and nowhere in what is published."""

import pytest

import psephos as ps
from psephos.engines import as_source
from psephos.errors import ReleaseError
from psephos.release.preflight.checks import check_release, create_ledger
from psephos.release.preflight.rules_record import record_place
from psephos.release.run import release
from psephos.release.spec.file import parse_release
from psephos.release.spec.job import Job, stand_in_counts
from psephos.release.verify.verify import verify
from tests.release.conftest import RELEASE, people, write_job

SPELLING, NULL_WORD = "Hauskatze", "keine Angabe"
RULES = f"""
trim = true
case = "lower"
nulls = ["{NULL_WORD}", -9]
aliases = {{ cat = ["{SPELLING}", "Kater"] }}
"""
CLEAN = RELEASE.replace('fact = "the form lists them"', 'fact = "the form lists them"' + RULES)
DIRTY = people(extra=f"3,{SPELLING}\n4, DOG \n5,{NULL_WORD}\n")


def cleaned_job(folder, text=CLEAN):
    place = write_job(folder, text, DIRTY)
    job = Job.read(place)
    if not job.ledger.exists():
        create_ledger(job)
    return place


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    folder = tmp_path_factory.mktemp("clean") / "job"
    place = cleaned_job(folder)
    assert check_release(place).ok
    return folder, release(place)


def test_the_owner_counts_cleaned_entries(tmp_path):
    job = Job.read(cleaned_job(tmp_path / "job"))
    rows = check_release(job)
    kinds = {f.kind: f.text for f in rows.findings if f.column == "pet"}
    assert kinds["missing"].startswith("1 missing entries")
    assert "cat" not in kinds
    assert as_source(job.data).count(job.domain, ("pet",), (), None).sum() == 603


def test_no_spelling_is_published(released):
    folder, bundle = released
    assert verify(bundle.path).ok
    files = [place for place in bundle.path.rglob("*") if place.is_file()]
    assert len(files) > 5
    for place in files:
        content = place.read_bytes().lower()
        for word in (SPELLING, NULL_WORD, "kater"):
            assert word.lower().encode() not in content, place
    published = parse_release((bundle.path / "release.json").read_text(), "release.json")
    rules = published.cleaning()["pet"]
    assert rules == ps.Cleaning(trim=True, case="lower")
    assert "Hauskatze" not in (folder / "people.ledger.rules").read_text()


def test_other_spellings_are_no_other_key_and_other_public_rules_are(tmp_path):
    jobs = [
        Job.read(cleaned_job(tmp_path / name, text))
        for name, text in {
            "a": CLEAN,
            "b": CLEAN.replace("Kater", "Mieze"),
            "c": CLEAN.replace("trim = true\n", ""),
            "d": RELEASE,
        }.items()
    ]
    keys = [job.key for job in jobs]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 3


def test_a_release_is_not_shown_for_one_of_other_rules(released, tmp_path):
    folder, bundle = released
    place = folder / "release.toml"
    assert release(place).path == bundle.path  # the same rules: the same release
    try:
        place.write_text(CLEAN.replace("Kater", "Mieze"))
        with pytest.raises(ReleaseError, match="not what this release was measured by"):
            release(place, unchecked=True)
        place.write_text(CLEAN.replace("Kater", "Mieze") + '[output]\nbundle = "other"\n')
        with pytest.raises(ReleaseError, match="give the release another name or edition"):
            release(place, unchecked=True)
        assert not (folder / "other").exists()
    finally:
        place.write_text(CLEAN)


def test_a_check_is_of_the_rules_it_was_made_with(tmp_path):
    place = cleaned_job(tmp_path / "job")
    assert check_release(place).ok
    place.write_text(CLEAN.replace("Kater", "Mieze"))
    with pytest.raises(ReleaseError, match="has not been compared"):
        release(place)


def test_measurements_by_other_rules_are_not_built_on(released):
    folder, _ = released
    more = CLEAN.replace('name = "pets"\ntitle', 'name = "more"\ntitle')
    more = more.replace('source = "people.csv"', 'source = "people.csv"\nbuilds_on = ["bundle"]')
    more += '[output]\nbundle = "second"\n'
    place = folder / "more.toml"
    place.write_text(more.replace("Kater", "Mieze"))
    with pytest.raises(ReleaseError, match="builds_on: 'pets' was measured by other rules"):
        release(place, unchecked=True)
    place.write_text(more)
    assert len(release(place, unchecked=True).job.past) == 1


def test_a_damaged_note_is_told(released):
    folder, _ = released
    note = record_place(Job.read(folder / "release.toml"))
    text = note.read_text()
    assert note.stat().st_mode & 0o077 == 0
    try:
        note.write_text("[]")
        with pytest.raises(ReleaseError, match="is damaged"):
            release(folder / "release.toml")
    finally:
        note.write_text(text)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('case = "lower"', 'case = "Lower"', "schema.pet.case: must be 'lower' or 'upper'"),
        ("trim = true", 'trim = "x"', "schema.pet.trim: must be true or false, such as trim"),
        ("Kater", "dog", "schema.pet: aliases: 'dog' is a declared value of its own"),
        ("cat = [", "mouse = [", "schema.pet: aliases: 'mouse' is no declared value"),
        ('nulls = ["', 'decimal = ","\nnulls = ["', "schema.pet: decimal goes with numbers"),
        ('values = ["cat"', 'values = ["Cat"', "declare 'cat', with a label"),
        (f'["{SPELLING}", "Kater"]', '"Kater"', "must be a list, such as aliases = { employed"),
    ],
)
def test_mistakes_name_their_place(old, new, words):
    text = CLEAN.replace(old, new)
    assert text != CLEAN
    with pytest.raises(ReleaseError) as caught:
        parse_release(text).domain()
    assert words in str(caught.value)


def test_the_persons_column_has_no_rules():
    unit = 'unit = "person"\ncolumn = "pet"\nmax_rows = 1'
    with pytest.raises(ReleaseError, match="names the person of a row and is never cleaned"):
        parse_release(CLEAN.replace('unit = "add_remove_row"', unit))


def test_a_stand_in_is_cleaned_by_the_public_rules(tmp_path):
    folder = tmp_path / "job"
    text = CLEAN.replace('source = "people.csv"', 'source = "people.csv"\nstand_in = "old.csv"')
    place = cleaned_job(folder, text)
    (folder / "old.csv").write_text(f"age,pet\n1, CAT\n2,{SPELLING}\n")
    job = Job.read(place)
    counts = stand_in_counts(job)
    table = counts.reshape(job.workload.domain.shape).sum(axis=0)
    assert table.tolist() == [1, 0, 0, 1]  # the spelling is the owner's: it is undeclared here
