"""Tables of persons in a release: paid for one by one, verified like everything else."""

import json
import re
from fractions import Fraction
from importlib import import_module

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from numpy.random import default_rng

import psephos as ps
from psephos.errors import BudgetExceededError, ReleaseError, SqlError
from psephos.release.bundle.files import sha256_of
from psephos.release.preflight.checks import check_release, create_ledger
from psephos.release.spec.job import Job

RELEASE = """
name = "visits"
source = "visits.csv"
privacy = { unit = "person", column = "patient", max_rows = 3 }
ledger = { path = "visits.ledger", dataset = "visits", epsilon = "100" }
budget = { epsilon = "20" }

[schema.ward]
values = ["a", "b", "c"]
levels = { site = { north = ["a", "b"], south = ["c"] } }

[schema.age]
bins = [0, 18, 65, 120]

[[tables]]
name = "visits"
rows = ["ward"]

[[persons]]
name = "patients"
epsilon = "20"

[[persons]]
name = "the old by site and ward"
rows = ["ward.site", "age"]
where = "age >= 65"
epsilon = "30"

[selection]
strategy = "identity"
"""


def visits():
    rng = default_rng(3)
    lines = ["patient,ward,age"]
    for person in range(400):
        age = int(rng.integers(0, 100))
        wards = rng.choice(["a", "b", "c"], int(rng.integers(1, 4)))
        lines += [f"{person},{ward},{age}" for ward in wards]
    return "\n".join(lines) + "\n"


def folder_with(path, text=RELEASE):
    (path / "visits.csv").write_text(visits())
    (path / "release.toml").write_text(text)
    return path / "release.toml"


def one_ledger(path):
    job = Job.read(path)
    create_ledger(job)
    check_release(job)


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    path = folder_with(tmp_path_factory.mktemp("visits"))
    one_ledger(path)
    return ps.release(path)


def distinct(condition, by):
    rows = [line.split(",") for line in visits().splitlines()[1:]]
    seen = {}
    for patient, ward, age in rows:
        if condition(int(age)):
            seen.setdefault(by(ward, int(age)), set()).add(patient)
    return {group: len(patients) for group, patients in seen.items()}


def test_every_person_is_counted_once(bundle):
    (row,) = bundle.persons_table("patients").to_pylist()
    assert abs(row["count"] - 400) <= 1
    assert row["low"] <= 400 <= row["high"]
    old = distinct(lambda age: age >= 65, lambda ward, _: "south" if ward == "c" else "north")
    table = bundle.persons_table("the old by site and ward").to_pylist()
    assert [(row["site"], row["age"]) for row in table][:2] == [
        ("north", "[0, 18)"),
        ("north", "[18, 65)"),
    ]
    for row in table:
        expected = old[row["site"]] if row["age"] == "[65, 120)" else 0
        assert abs(row["consistent"] - expected) <= 3
        assert row["count"] >= 0


def test_it_is_paid_for_beside_the_tables_and_verifies(bundle):
    ledger = ps.Ledger.open(bundle.path.parent / "visits.ledger")
    assert ledger.remaining() == ps.epsilon("30")
    assert ps.verify(bundle.path).ok
    assert ps.verify(bundle.path, ledger=ledger).ok
    again = ps.release(bundle.path.parent / "release.toml")
    assert again.path == bundle.path
    assert ledger.remaining() == ps.epsilon("30")


def test_the_report_states_what_rows_and_persons_cost_together(bundle):
    page = " ".join(re.sub("<[^>]*>", " ", bundle.report.read_text(encoding="utf-8")).split())
    for words in (
        "What it cost: ε = 70, charged",
        "differential privacy with ε = 70.",
        "M the release and ε = 70.",
        "Differentially private tables, ε = 70 (",
        "e 70 ≈ 2.5e+30",
        "Spent on this release ε = 70, of which ε = 20 for tables of rows",
        "Spent of it, this release included ε = 70",
        "ε = 70: ε = 20 for tables of rows, ε = 20, ε = 30 for those of persons",
    ):
        assert words in page
    anchor = bundle.persons[-1].receipt["anchor"]
    assert f"after the release {anchor['entries']} entries, {anchor['head'][:16]}" in page


def test_who_asks_for_persons_is_told_where_they_are(bundle):
    with pytest.raises(SqlError, match=r"\[\[persons\]\]") as told:
        ps.ask(bundle, "SELECT count(distinct patient) FROM visits")
    assert "counts persons in 'patients', 'the old by site and ward'" in str(told.value)
    with pytest.raises(SqlError) as told:
        ps.ask(bundle, "SELECT COUNT(*) FROM visits WHERE floor = 1")
    assert "counts persons" not in str(told.value)


def test_another_table_of_persons_is_paid_for_alone(tmp_path):
    path = folder_with(tmp_path, RELEASE.replace('"ward.site", "age"', '"ward.site"'))
    one_ledger(path)
    ps.release(path)
    more = '[output]\nbundle = "second"\n'
    more += '[[persons]]\nname = "by ward"\nrows = ["ward"]\nepsilon = "5"\n'
    path.write_text(path.read_text() + more)
    bundle = ps.release(path)
    assert ps.Ledger.open(tmp_path / "visits.ledger").remaining() == ps.epsilon("25")
    assert ps.verify(bundle.path).ok


@pytest.mark.parametrize("tamper", ["table", "integers", "spend", "key", "receipt"])
def test_what_was_changed_is_noticed(bundle, tmp_path, tamper):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(bundle.path, copy)
    manifest = json.loads((copy / "manifest.json").read_text())
    if tamper == "table":
        place = copy / "persons" / "patients.csv"
        table = pa.csv.read_csv(place)
        count = pa.array([c.as_py() + 1 for c in table["count"]])
        pa.csv.write_csv(table.set_column(1, "count", count), place)
    elif tamper == "integers":
        place = copy / "persons" / "1" / "measurements.parquet"
        pa.parquet.write_table(pa.table({"value": pa.array([401], pa.int64())}), place)
    elif tamper == "receipt":
        place = copy / "persons" / "1" / "receipt.json"
        receipt = json.loads(place.read_text())
        receipt["charge"]["fingerprint"] = "0" * 64
        place.write_text(json.dumps(receipt))
    elif tamper == "spend":
        manifest["persons"][0]["spend"] = ["epsilon", "1"]
    else:
        manifest["persons"][0]["key"] = manifest["persons"][1]["key"]
    manifest["files"] = {name: sha256_of(copy / name) for name in manifest["files"]}
    (copy / "manifest.json").write_text(json.dumps(manifest))
    failed = [check.name for check in ps.verify(copy).checks if not check.ok]
    assert "persons" in failed


def test_rows_and_persons_are_checked_together_before_anything_is_charged(tmp_path):
    path = folder_with(tmp_path, RELEASE.replace('"ward.site", "age"', '"ward"'))
    one_ledger(path)
    ledger = ps.Ledger.open(tmp_path / "visits.ledger")
    data = ps.protect(tmp_path / "visits.csv", Job.read(path).domain, ledger=ledger)
    data.noisy_count(spend=ps.epsilon("40"), key="other")
    with pytest.raises(BudgetExceededError, match="those of persons epsilon 50") as refusal:
        ps.release(path)
    assert refusal.value.requested.amount == Fraction(70)
    assert ledger.remaining() == ps.epsilon("60")


def test_half_widths_are_told_before(bundle):
    first, second = Job.read(bundle.path.parent / "release.toml").persons
    unit = ps.person("patient", max_rows=3)
    assert first.half_width(unit, 0.95) == 0
    table = bundle.persons_table(second.name).to_pylist()[-1]
    assert table["consistent"] - table["low"] == second.half_width(unit, 0.95)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ('rows = ["ward.site", "age"]', 'rows = ["floor"]', "no attribute 'floor'"),
        ('rows = ["ward.site", "age"]', 'rows = ["ward.floor"]', "no level 'floor'"),
        ('where = "age >= 65"', 'where = "age >= 66"', "persons\\[2\\] where"),
        ('where = "age >= 65"', "where = \"age >= 65 OR ward = 'a'\"", "joined by AND"),
        ('name = "patients"', 'name = "visits"', "two tables are called"),
        ('epsilon = "20"\n\n[[persons]]', 'epsilon = "200"\n\n[[persons]]', "will ever hold"),
        (
            'unit = "person", column = "patient", max_rows = 3',
            'unit = "add_remove_row"',
            "unit of privacy is a row",
        ),
    ],
)
def test_mistakes_are_told_with_their_place(tmp_path, old, new, words):
    assert old in RELEASE
    path = folder_with(tmp_path, RELEASE.replace(old, new))
    with pytest.raises(ReleaseError, match=words):
        Job.read(path)


def test_an_attribute_cannot_be_taken_twice(tmp_path):
    """`ward` by value and by level at once would be one attribute twice."""
    path = folder_with(tmp_path, RELEASE.replace('"ward.site", "age"', '"ward.site", "ward"'))
    with pytest.raises(ReleaseError, match="'ward' is grouped by twice"):
        Job.read(path)


def test_a_rehearsal_makes_persons_up(tmp_path):
    path = folder_with(tmp_path, RELEASE.replace('"ward.site", "age"', '"ward"'))
    bundle = ps.rehearse(path, rows=500)
    assert bundle.persons_table("patients")["made_up"].to_pylist() == [True]
    assert ps.verify(bundle.path).ok


BY_SITE = """
SELECT ward.site, age, COUNT(DISTINCT patient) AS patients
FROM visits WHERE age >= 65 GROUP BY ward.site, age
"""


def test_sql_asks_the_same(tmp_path):
    by_rows = Job.read(folder_with(tmp_path)).persons[1]
    old = 'rows = ["ward.site", "age"]\nwhere = "age >= 65"'
    assert old in RELEASE
    text = BY_SITE.replace("\n", " ").strip()
    by_sql = Job.read(folder_with(tmp_path, RELEASE.replace(old, f'sql = "{text}"'))).persons[1]
    assert by_sql.by == by_rows.by
    assert by_sql.domain == by_rows.domain
    assert repr(by_sql.condition) == repr(by_rows.condition)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("SELECT COUNT(*) FROM v", "one COUNT\\(DISTINCT patient\\)"),
        ("SELECT COUNT(DISTINCT ward) FROM v", "one COUNT\\(DISTINCT patient\\)"),
        ("SELECT ward, COUNT(DISTINCT patient) FROM v GROUP BY CUBE (ward)", "2 groupings"),
        ("SELECT age >= 18 AS a, COUNT(DISTINCT patient) FROM v GROUP BY a", "levels"),
        ("SELECT COUNT(DISTINCT patient FROM v", "no statement that can be read"),
        ("SELECT COUNT(DISTINCT patient) FROM v WHERE floor = 1", "floor"),
    ],
)
def test_sql_that_counts_no_persons_is_refused(tmp_path, sql, words):
    old = 'rows = ["ward.site", "age"]\nwhere = "age >= 65"'
    path = folder_with(tmp_path, RELEASE.replace(old, f'sql = "{sql}"'))
    with pytest.raises(ReleaseError, match=words):
        Job.read(path)


WITHOUT_GROUPING = RELEASE.replace('rows = ["ward.site", "age"]\nwhere = "age >= 65"', "")
ROOMY = WITHOUT_GROUPING.replace('epsilon = "100"', 'epsilon = "1000"')


def test_persons_are_counted_anew_where_entries_are_cleaned_otherwise(tmp_path):
    """Rules decide which rows count, so what was counted by others is never shown for these."""
    path = folder_with(tmp_path, ROOMY)
    data = tmp_path / "visits.csv"
    data.write_text(data.read_text().replace(",c,", ",C ,"))
    job = Job.read(path)
    create_ledger(job)
    first = ps.release(path, unchecked=True)
    cleaned = ROOMY.replace("levels =", 'trim = true\ncase = "lower"\nlevels =')
    path.write_text(cleaned + '\n[output]\nbundle = "cleaned"\n')
    second = ps.release(path, unchecked=True)
    counts = [b.persons_table("patients")["count"][0].as_py() for b in (first, second)]
    assert counts[0] < 390
    assert abs(counts[1] - 400) <= 1


def test_other_tables_of_rows_are_another_release_with_persons_of_its_own(tmp_path):
    """What was counted by the owner's old spellings is never shown beside other rows."""
    path = folder_with(tmp_path, ROOMY)
    create_ledger(Job.read(path))
    first = ps.release(path, unchecked=True)
    other = ROOMY.replace("levels =", 'aliases = { c = ["gamma"] }\nlevels =')
    path.write_text(
        other.replace('epsilon = "20" }', 'epsilon = "21" }') + '\n[output]\nbundle = "b2"\n'
    )
    second = ps.release(path, unchecked=True)
    keys = [{request.key for request in bundle.persons} for bundle in (first, second)]
    assert not keys[0] & keys[1]
    ledger = tmp_path / "visits.ledger"
    assert ps.Ledger.open(ledger).spent() == ps.epsilon("141")
    results = [ps.verify(bundle.path, ledger=ledger) for bundle in (first, second)]
    assert [result.ok for result in results] == [True, True]
    assert "3 more under its name" in str(results[0])


def test_a_refused_attempt_leaves_no_rules_behind(tmp_path):
    path = folder_with(tmp_path, WITHOUT_GROUPING)
    create_ledger(Job.read(path))
    ledger = ps.Ledger.open(tmp_path / "visits.ledger")
    data = ps.protect(tmp_path / "visits.csv", Job.read(path).domain, ledger=ledger)
    data.noisy_count(spend=ps.epsilon("40"), key="other")
    ruled = WITHOUT_GROUPING.replace("levels =", 'aliases = { c = ["gamma"] }\nlevels =')
    path.write_text(ruled)
    with pytest.raises(BudgetExceededError):
        ps.release(path, unchecked=True)
    smaller = WITHOUT_GROUPING.replace('epsilon = "30"', 'epsilon = "5"')
    path.write_text(smaller)
    bundle = ps.release(path, unchecked=True)
    assert ps.release(path, unchecked=True).path == bundle.path


def test_another_schema_is_another_request(tmp_path):
    path = folder_with(tmp_path, ROOMY)
    create_ledger(Job.read(path))
    ps.release(path, unchecked=True)
    other = ROOMY.replace("[0, 18, 65, 120]", "[0, 30, 120]")
    path.write_text(other + '\n[output]\nbundle = "b2"\n')
    assert ps.verify(ps.release(path, unchecked=True).path).ok
    assert ps.Ledger.open(tmp_path / "visits.ledger").spent() == ps.epsilon("140")


def test_a_plan_that_was_stopped_before_its_persons_goes_on(tmp_path, monkeypatch):
    """What the plan paid is not asked for a second time beside the persons."""
    plan = WITHOUT_GROUPING.split("[selection]")[0].replace('epsilon = "20" }', 'epsilon = "50" }')
    method = 'total = 800\n[method]\nname = "MWEM"\noptions = { rounds = 2 }\n'
    path = folder_with(tmp_path, plan.replace("\n[schema.ward]", f"\n{method}\n[schema.ward]"))
    create_ledger(Job.read(path))
    with monkeypatch.context() as patch:
        patch.setattr(import_module("psephos.release.run"), "measure_persons", stopped)
        with pytest.raises(KeyboardInterrupt):
            ps.release(path, unchecked=True)
    assert ps.verify(ps.release(path, unchecked=True).path).ok
    assert ps.Ledger.open(tmp_path / "visits.ledger").remaining().amount == 0


def stopped(*_):
    raise KeyboardInterrupt
