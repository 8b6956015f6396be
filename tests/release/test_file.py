"""The release file: what it means, and what is said when it is wrong."""

import csv
import json
import tomllib
from fractions import Fraction

import pandas as pd
import pytest

import psephos as ps
from psephos.release.preflight.selection import strategy_for
from psephos.release.preflight.synthetic_rows import synthetic_rows
from psephos.release.run import rehearse
from psephos.release.spec import tables
from psephos.release.spec.draft import draft
from psephos.release.spec.entries import TableEntry
from psephos.release.spec.file import json_schema, parse_release, read_release
from psephos.release.spec.job import Job
from psephos.workload.sql import compile_sql, read_sql
from psephos.workload.workload import Workload
from tests.release.conftest import RELEASE, write_job


def test_a_file_says_domain_workload_budget_and_unit(tmp_path):
    job = Job.read(write_job(tmp_path))
    assert job.domain.shape == (20, 4)
    assert job.domain["pet"].labels[-1] == "(other)"
    assert [t.name for t in job.tables] == ["pets", "young"]
    assert job.workload.query_counts == (4 * 5, 4)
    assert [p.weight for p in job.workload.products] == [1, 2]
    assert job.budget == ps.epsilon("1/2")
    assert job.unit == ps.add_remove_row()
    assert job.whole.zeros.sum() == 6


def test_numbers_with_a_point_are_exact():
    assert parse_release(RELEASE.replace("0.5", "0.1")).budget.budget().amount == Fraction(1, 10)
    assert parse_release(RELEASE.replace("0.5", '"1/3"')).budget.budget().amount == Fraction(1, 3)


def test_yaml_and_json_say_the_same():
    file = parse_release(RELEASE)
    text = file.model_dump_json(by_alias=True, exclude_defaults=True)
    assert parse_release(text, "release.json") == file
    assert parse_release(text, "release.yaml") == file  # JSON is YAML too
    yaml = parse_release(RELEASE_YAML, "release.yaml")
    assert yaml.budget.budget().amount == Fraction(1, 10)
    assert yaml.domain().shape == (2, 3)


RELEASE_YAML = """
name: y
privacy: {unit: person, column: id, max_rows: 2}
ledger: {path: l, dataset: d, epsilon: 1.5}
budget: {epsilon: 0.1}
schema:
  sex: {values: [F, M]}
  income: {bins: [0, 0.5, 10, .inf]}
tables:
  - {name: t, rows: [sex]}
"""

MISTAKES = [
    # what is changed, into what, and what must be said
    ('name = "pets"\ntitle', "title", ["name is missing"]),
    ("[budget]", "[budgett]", ["budgett is not known", "did you mean 'budget'?"]),
    ("epsilon = 0.5", 'epsilon = "one"', ["budget", "'one' is not a finite number"]),
    ("epsilon = 0.5", "epsilon = -1", ["budget", "more than 0, got -1"]),
    ("epsilon = 0.5", "epsilon = 0", ["budget", "more than 0, got 0"]),
    ("epsilon = 0.5", "epsilon = inf", ["budget", "not a finite number"]),
    ("epsilon = 0.5", "epsilon = nan", ["budget", "not a finite number"]),
    ("epsilon = 0.5", "epsilon = 0.5\nrho = 1", ["budget: give epsilon"]),
    ("[budget]\nepsilon = 0.5", "", ["say what may be spent", "there is no default"]),
    (
        'unit = "add_remove_row"',
        "",
        ['privacy.unit is missing: write unit = "add_remove_row", "substitute_row" or "person"'],
    ),
    ('unit = "add_remove_row"', 'unit = "row"', ["privacy.unit", "'add_remove_row'", "got 'row'"]),
    ('unit = "add_remove_row"', 'unit = "person"', ["privacy", "max_rows = 3"]),
    (
        "integers = [0, 19]",
        "",
        ["schema.age: give exactly one of values, integers, bins and dates"],
    ),
    ("integers = [0, 19]", "integers = [19, 0]", ["schema.age", "low <= high"]),
    ("integers = [0, 19]", "bins = [0, 5, 3]", ["schema.age", "edges must increase"]),
    ('["cat", "dog", "horse"]', '["cat", "cat"]', ["schema.pet", "'cat' is declared twice"]),
    ("broad = [0, 6, 12]", "broad = [0, 99]", ["schema.age", "99"]),
    ('name = "young"', 'name = "pets"', ["two tables are called 'pets'"]),
    ('rows = ["age.broad"]', 'rows = ["agee"]', ["tables 'pets'", "no attribute 'agee'"]),
    ('"age.broad"', '"age.brod"', ["tables 'pets'", "no level 'brod'; have broad"]),
    ("weight = 2", "weight = 0", ["tables 'young'.weight", "greater than 0"]),
    ("WHERE age < 12", "JOIN b USING (id)", ["tables 'young'.sql", "a join is not supported"]),
    ("GROUP BY pet", "GROUP BY pett", ["tables 'young'.sql", "^"]),
    ("COUNT(*)", "MAX(age)", ["tables 'young'.sql", "^"]),
    ("COUNT(*)", "AVG(pet)", ["tables 'young'.sql", "are no numbers", "^"]),
    ("age < 6 AND pet", "age < 6 AND pett", ["zeros", "pett"]),
    ('"opt_product"', '"best"', ["selection.strategy", "no 'best'; have datacube", "hdmm"]),
    ('"opt_product"', '"Cost"', ["selection.strategy", "no 'Cost'; have datacube"]),
    ("[privacy]", "[privacy", ["release.toml", "line"]),
    ("weight = 2", "target = { plus_minus = 5 }", ["budget and there are targets"]),
    (
        "weight = 2",
        "target = { relative = 0.1 }",
        ["tables 'young'.target", "declared guess", "not looked at"],
    ),
    ("weight = 2", "target = { plus_minus = 0.1 }", ["tables 'young'.target", "at least ± 0.5"]),
    ("weight = 2", "target = 5", ["'young'.target: must be keys and values, such as target = {"]),
    ("weight = 2", 'weight = "a"', ["'young'.weight: must be a number, got 'a'"]),
    (
        '["age.broad"]',
        '"age"',
        ["'pets'.rows: must be a list, such as rows = [\"age\"], got 'age'"],
    ),
    (
        "restarts = 1",
        'restarts = 1\nbuilds_on = ["bundle"]',
        ["selection.builds_on is not known here: builds_on belongs at the top of the file, before"],
    ),
    (
        "weight = 2",
        "target = { plus_minus = 5, confidence = 95 }",
        ["'young'.target.confidence: must be less than 1, got 95; write 0.95"],
    ),
    ("restarts = 1", "restarts = 1.5", ["selection.restarts: must be a whole number, got 1.5"]),
    ("epsilon = 0.5", "epsilon = true", ["budget.epsilon: must be a number", "got true"]),
    ("[0, 19]", "[0, 1, 5]", ["schema.age.integers: at most 2 are taken, got 3"]),
    ("integers = [0, 19]", 'bins = [0, "a"]', ["schema.age.bins[2]: must be a number", "got 'a'"]),
    (
        "broad = [0, 6, 12]",
        'broad = "x"',
        ["levels.broad: must be a width, a list of first values"],
    ),
    (
        '["cat", "dog", "horse"]',
        '["cat", 2020-01-01]',
        [
            "schema.pet.values[2]: must be true or false, a number or text in quotes",
            "got 2020-01-01",
        ],
    ),
    ('["cat", "dog", "horse"]', '[0, 1]\nlabels = ["a", 2]', ['got 2; put quotes around it: "2"']),
    ('name = "young"', 'name = ""', ["tables[2].name: must not be empty"]),
    ('name = "pets"\ntitle', "name = “pets”\ntitle", ["line 2 has the quote “; use straight"]),
    ('"Pets by age"', '"Pets by age”', ['line 3 has the quote ”; use straight quotes, "']),
    ('name = "young"', 'name = "young', ["line 35, 'name = \"young': a quote is missing"]),
    ('["cat", "dog", "horse"]', '["cat", "dog]', ["line 25", "a quote is missing"]),
    ('source = "people.csv"', "source = people.csv", ['text stands in quotes: source = "people.c']),
    ('["cat", "dog", "horse"]', '["cat" "dog"]', ["line 25", "a comma between its entries"]),
    ("broad = [0, 6, 12]", "broad = youth", ['text stands in quotes: "youth"']),
    ("integers = [0, 19]", "integers = [0..19]", ["written integers = [0, 99]"]),
    ('rows = ["age.broad"]\ncolumns = ["pet"]', 'queries = { age = "prefx" }', ["mean 'prefix'?"]),
    ("epsilon = 0.5", "epsilon: 0.5", ["joined by = in TOML, not by :"]),
    ("epsilon = 0.5", "epsilon 0.5", ["a line is key = value, or [section]"]),
    ("weight = 2", "weight = 2\nweight = 3", ["this key is there twice"]),
    ("weight = 2", "weight = 2\n[budget]\nrho = 1", ["this section is there twice"]),
    (
        "integers = [0, 19]",
        'bins = ["1920-01-01", "1960-01-01"]',
        ['schema.age.bins: these are dates; write dates = ["1920-01-01", "2020-12-31"]'],
    ),
    ("integers = [0, 19]", "integers = [1920-01-01, 1960-01-01]", ["these are dates"]),
    ('rows = ["age.broad"]', 'group_by = ["age"]', ["group_by is not known; did you mean 'rows'?"]),
    ('"opt_product"', '"opt_prodct"', ["no 'opt_prodct'; did you mean 'opt_product'?"]),
    ('name = "young"', 'name = "PETS"', ["'pets' and 'PETS'", "differ only in upper and lower"]),
]
PYTHON = ("tuple", "dict", "instance", "Entry", "after validation", "valid", "str ", "integer,")


def plan(place):
    job = Job.read(place)
    _ = job.zeros
    strategy_for(job, job.workload)


@pytest.mark.parametrize(("old", "new", "phrases"), MISTAKES)
def test_mistakes_are_told_by_their_place(tmp_path, old, new, phrases):
    assert old in RELEASE
    place = write_job(tmp_path, RELEASE.replace(old, new))
    with pytest.raises(ps.ReleaseError) as refusal:
        plan(place)
    for phrase in phrases:
        assert phrase in str(refusal.value)
    assert not [word for word in PYTHON if word in str(refusal.value)]
    assert "\n" not in str(refusal.value) or "^" in str(refusal.value)  # one mistake, told once


def test_yes_and_no_in_yaml_want_quotes():
    text = RELEASE_YAML.replace("values: [F, M]", "values: [0, 1], labels: [no, yes]")
    with pytest.raises(ps.ReleaseError, match=r"labels\[1\]: must be text in quotes") as refusal:
        parse_release(text, "release.yaml")
    assert "got false; YAML takes yes, no, on, off" in str(refusal.value)
    for empty, place in (("tables: []", "tables"), ("schema: {}", "schema")):
        with pytest.raises(ps.ReleaseError, match=rf"{place}: at least one is needed, such as \["):
            parse_release(RELEASE_YAML[: RELEASE_YAML.index("schema:")] + empty, "release.yaml")


@pytest.mark.parametrize("integers", [[None], [], [0], [0, None], [0, 1, 2], {}, None, 5])
@pytest.mark.parametrize("kind", ["json", "yaml"])
def test_integers_are_two_whole_numbers(integers, kind):
    content = tomllib.loads(RELEASE)
    content["schema"]["age"]["integers"] = integers
    with pytest.raises(ps.ReleaseError, match=r"schema\.age"):
        parse_release(json.dumps(content), f"release.{kind}")


def test_more_values_than_can_be_counted():
    text = RELEASE.replace("integers = [0, 19]", f"integers = [0, {10**30}]")
    content = tomllib.loads(text)
    with pytest.raises(ps.ReleaseError, match=r"schema\.age: an attribute has too many values"):
        parse_release(json.dumps(content), "release.json").domain()
    with pytest.raises(ps.DomainError, match="too many values"):
        ps.Attribute.integers(0, 10**30)


@pytest.mark.parametrize("path", [None, 5, b"release.toml", "a\0b.toml", ["release.toml"]])
def test_a_release_file_is_a_path(path):
    for read in (Job.read, read_release):
        with pytest.raises(ps.ReleaseError, match="a release file is a path, got"):
            read(path)


@pytest.mark.parametrize("wrong", [-1, True, 2.0, "5", None])
def test_made_up_rows_and_seeds_are_whole_numbers(tmp_path, wrong):
    job = Job.read(write_job(tmp_path))
    with pytest.raises(ps.ReleaseError, match="rows is a whole number from 0, got"):
        synthetic_rows(job, wrong, 0)
    with pytest.raises(ps.ReleaseError, match="seed is a whole number from 0, got"):
        synthetic_rows(job, 10, wrong)
    assert synthetic_rows(job, 0, 0).sum() == 0


def test_a_table_of_a_trillion_cells_is_refused_at_once(tmp_path):
    schema = "".join(f"[schema.{name}]\nintegers = [0, 999]\n" for name in "abcd")
    text = RELEASE[: RELEASE.index("[schema.age]")].replace("zeros", "facts") + schema
    wide = '[[tables]]\nname = "all"\nrows = ["a", "b", "c", "d"]\n'
    with pytest.raises(ps.TooLargeError, match=r"tables 'all': it asks for 1,004,006,004,001"):
        Job.read(write_job(tmp_path, text + wide))
    narrow = '[[tables]]\nname = "some"\nrows = ["a"]\ncolumns = ["b"]\n'
    assert Job.read(write_job(tmp_path, text + narrow)).domain.size == 10**12


MERGING = [
    "SELECT pet, COUNT(*) FROM people WHERE age < 12 GROUP BY pet",
    "SELECT COUNT(*) FROM people WHERE age < 6 OR pet = 'cat'",
    "SELECT age, COUNT(*) FROM people GROUP BY age",
]


@pytest.mark.parametrize("statements", [MERGING[:1], MERGING[::2], MERGING[1:2], MERGING])
def test_sql_is_read_once_whether_attributes_are_merged_or_not(monkeypatch, statements):
    texts = []

    def read(domain, sql, **options):
        texts.append(sql)
        return read_sql(domain, sql, **options)

    monkeypatch.setattr("psephos.workload.sql.read_sql", read)
    entries = [TableEntry(name=f"table {i}", sql=sql) for i, sql in enumerate(statements)]
    domain = parse_release(RELEASE).domain()
    workload, _ = tables.compile_tables(domain, entries)
    assert texts == statements
    merged, products = compile_sql(domain, statements)
    assert workload.domain == merged
    assert (workload.matrix.dense() == Workload(merged, products).matrix.dense()).all()


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "people.csv",
            b"age,pet\n1,cat\n",
            r"is data, not a release file; `psephos init .*people.csv`",
        ),
        ("people.parquet", b"PAR1", "is data, not a release file"),
        ("people", b"PAR1....", "is a Parquet file"),
        ("people.ledger", b"SQLite format 3\0....", "is a ledger, .* `psephos budget"),
    ],
)
def test_data_and_ledgers_are_no_release_files(tmp_path, name, content, words):
    place = tmp_path / name
    place.write_bytes(content)
    with pytest.raises(ps.ReleaseError, match=words):
        read_release(place)


def test_a_frame_in_place_of_a_file_is_not_shown():
    with pytest.raises(ps.ReleaseError, match=r"a release file is a path, got DataFrame$"):
        read_release(pd.DataFrame({"age": [17]}))


def test_a_missing_or_empty_file(tmp_path):
    with pytest.raises(ps.ReleaseError, match="there is no release file at"):
        read_release(tmp_path / "no.toml")
    (tmp_path / "empty.toml").write_text("  \n")
    with pytest.raises(ps.ReleaseError, match=r"empty.toml is empty; `psephos init DATA`"):
        read_release(tmp_path / "empty.toml")


def test_a_folder_stands_for_its_release_file(tmp_path):
    for name in ("release.json", "release.yml"):
        (tmp_path / name).write_text(RELEASE_YAML)
    with pytest.raises(
        ps.ReleaseError, match=r"holds release\.yml and release\.json; name the one"
    ):
        read_release(tmp_path)
    (tmp_path / "release.json").unlink()
    assert Job.read(tmp_path).file.name == "y"
    write_job(tmp_path)
    assert Job.read(tmp_path).file.name == "pets"
    with pytest.raises(ps.ReleaseError, match=r"there is no release file at .*release\.toml"):
        read_release(tmp_path.parent)


@pytest.mark.parametrize("rows", [0, 1, 200])
def test_made_up_entries_of_bins_may_be_missing(tmp_path, rows):
    binned = RELEASE.replace("integers = [0, 19]", 'bins = [0, 6, 12, inf]\nunknown = "other"')
    person = 'unit = "person"\ncolumn = "id"\nmax_rows = 2'
    place = write_job(tmp_path, binned.replace('unit = "add_remove_row"', person))
    table = synthetic_rows(Job.read(place), rows, 0)
    assert set(table["age"].to_pylist()) <= {0.0, 6.0, 12.0, None}
    assert rehearse(place, rows=rows).simulation


def test_all_mistakes_are_listed_at_once():
    text = RELEASE.replace("weight = 2", "weigth = 2").replace('name = "pets"\ntitle', "title")
    with pytest.raises(ps.ReleaseError) as refusal:
        parse_release(text)
    assert len(str(refusal.value).splitlines()) == 2


def test_the_json_schema_names_every_part():
    schema = json.dumps(json_schema())
    for word in ("privacy", "ledger", "tables", "plus_minus", "schema", "max_rows"):
        assert f'"{word}"' in schema


def test_a_draft_holds_names_only_and_waits_for_a_person(tmp_path):
    secret = tmp_path / "people.csv"
    secret.write_text("age;pet of choice\n41;newt\n")
    text = draft(secret, beside=tmp_path)
    assert '[schema."pet of choice"]' in text
    assert "41" not in text
    assert "newt" not in text
    with pytest.raises(ps.ReleaseError, match=r"privacy\.unit is missing"):
        parse_release(text)
    filled = text.replace("# unit =", "unit =").replace('# epsilon = "..."', 'epsilon = "1"')
    with pytest.raises(ps.ReleaseError, match="age, pet of choice are still a draft"):
        parse_release(filled).domain()


@pytest.mark.parametrize("text", ["", "41,newt\n", "a,a\n1,2\n", ",b\n"])
def test_a_file_without_a_header_is_not_repeated(tmp_path, text):
    place = tmp_path / "people.csv"
    place.write_text(text)
    with pytest.raises(ps.SourceError) as refusal:
        draft(place)
    assert "newt" not in str(refusal.value)


def test_a_header_with_an_overlong_name_is_refused(tmp_path):
    place = tmp_path / "people.csv"
    before = csv.field_size_limit(2**17)  # Python's own, which some libraries raise for all
    try:
        place.write_text("age," + "x" * (2**17 + 1) + "\n")
        with pytest.raises(ps.SourceError, match="cannot be read as column names") as refusal:
            draft(place)
    finally:
        csv.field_size_limit(before)
    assert "xxx" not in str(refusal.value)


def test_a_draft_of_parquet_knows_types(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(
        pa.table({"sex": [True], "age": [41], "w": [0.5], "n": ["x"]}), tmp_path / "p.parquet"
    )
    text = draft(tmp_path / "p.parquet", beside=tmp_path)
    assert "# values = [false, true]" in text
    assert "# integers = [0, 99]" in text
    assert "41" not in text
