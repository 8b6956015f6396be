"""Where a release's table may live: each form of `source`, from the check to the bundle."""

import io
import json
import math
from contextlib import contextmanager

import duckdb
import pyarrow as pa
import pyarrow.compute
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

import psephos as ps
from psephos.engines import Columns, registry
from psephos.release.preflight.checks import check_release, create_ledger, is_checked
from psephos.release.run import release
from psephos.release.spec.file import parse_release
from psephos.release.spec.job import Job
from psephos.release.verify.verify import verify
from tests.cli.test_cli import run, told
from tests.engines.postgres_cluster import PASSWORD, fill_table
from tests.engines.spark_session import spark_table
from tests.release.conftest import RELEASE, people, write_job


def table():
    return pa.csv.read_csv(io.BytesIO(people().encode()))


def hive(folder):
    for pet in ("cat", "dog", "horse", "newt"):
        (folder / "rows" / f"pet={pet}").mkdir(parents=True)
        rows = table().filter(pa.compute.equal(table()["pet"], pet)).select(["age"])
        pq.write_table(rows, folder / "rows" / f"pet={pet}" / "a.parquet")


def whole_folder(folder):
    hive(folder)
    return '"rows/"'


def glob(folder):
    hive(folder)
    return '"rows/*/*.parquet"'


def duckdb_file(folder):
    with duckdb.connect(folder / "town.db") as connection:
        connection.register("given", table())
        connection.execute("CREATE TABLE people AS FROM given")
    return '{ duckdb = "town.db", table = "people" }'


def duckdb_schema(folder):
    with duckdb.connect(folder / "town.db") as connection:
        connection.register("given", table())
        connection.execute("CREATE SCHEMA old")
        connection.execute('CREATE TABLE old."the people" AS FROM given')
    return '{ duckdb = "town.db", schema = "old", table = "the people" }'


def postgres(folder):
    return json.dumps(fill_table("people of a town", table()))


def spark(folder):
    return f'{{ spark = "{spark_table("people_of_a_town", table(), folder)}" }}'


SERVICES = [pytest.param(form, marks=pytest.mark.slow) for form in (postgres, spark)]
FORMS = [whole_folder, glob, duckdb_file, duckdb_schema]


@pytest.mark.parametrize("form", [*FORMS, *SERVICES])
def test_a_release_is_made_from_every_form_of_source(tmp_path, form):
    text = RELEASE.replace('"people.csv"', form(tmp_path))
    place = write_job(tmp_path, text, data="age,pet\n")
    job = Job.read(place)
    create_ledger(job)
    assert not is_checked(job)
    report = check_release(job)
    assert report.ok
    assert report.rows == report.counted == 600
    assert is_checked(Job.read(place))
    release(job)
    assert verify(job.bundle).ok
    assert len(ps.Ledger.open(job.ledger).history()) == 1
    secrets = (PASSWORD, "postgresql://", "town.db", "rows/")
    for file in [*job.bundle.rglob("*"), *(tmp_path / ".psephos").rglob("*")]:
        if file.is_file():
            content = file.read_bytes()
            assert not any(secret.encode() in content for secret in secrets), file


def test_another_table_of_a_file_is_not_checked(tmp_path):
    text = RELEASE.replace('"people.csv"', duckdb_file(tmp_path))
    assert check_release(Job.read(write_job(tmp_path, text))).ok
    assert is_checked(Job.read(tmp_path))
    write_job(tmp_path, text.replace('table = "people"', 'table = "others"'))
    assert not is_checked(Job.read(tmp_path))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ('"postgresql://me:hush@db/census/people"', "source: the source's URL holds a password"),
        ('"postgresql://db/census/people?password=hush"', "PGPASSWORD"),
        ('"postgresql://db/hush"', "names no database, or no table"),
        ('"mysql://me:hush@db/a/b"', "a mysql:// address cannot be read"),
        ('{ duckdb = "town.db" }', "source.table is missing"),
        ('{ spark = "" }', "source.spark"),
        ('{ spark = "census.people", foldr = "x" }', "did you mean 'folder'"),
        ('{ duckdb = "town.db", tabel = "people" }', "did you mean 'table'"),
        ('{ csv = "people.csv", multilines = true }', "did you mean 'multiline'"),
        ('{ csv = "people.csv", multiline = "yes, please" }', "source.multiline"),
        ("3", "source: must be text in quotes or keys and values, such as source ="),
    ],
)
def test_other_sources_are_refused_and_passwords_never_repeated(source, message):
    with pytest.raises(ps.ReleaseError) as caught:
        parse_release(RELEASE.replace('"people.csv"', source))
    assert message in str(caught.value)
    assert "hush" not in str(caught.value)


def test_a_line_that_is_no_toml_does_not_repeat_a_url():
    with pytest.raises(ps.ReleaseError, match="line 5") as caught:
        parse_release(RELEASE.replace('"people.csv"', '"postgresql://me:hush@db/census/people'))
    assert "hush" not in str(caught.value)


def test_what_is_not_there_costs_nothing(tmp_path):
    for source in ('"none/*.parquet"', '{ duckdb = "none.db", table = "a" }'):
        place = write_job(tmp_path, RELEASE.replace('"people.csv"', source))
        message = told("check", place, code=5)["error"]["message"]
        assert "correct the path" in message
    create_ledger(Job.read(place))
    told("release", place, "--unchecked", code=5)
    assert not ps.Ledger.open(Job.read(place).ledger).history()


def test_entries_over_several_lines_are_asked_for(tmp_path):
    table = '{ csv = "people.csv" }'
    lines = table.replace(" }", ", multiline = true }")
    for source, level in (('"people.csv"', "error"), (table, "error"), (lines, "warning")):
        write_job(tmp_path, RELEASE.replace('"people.csv"', source))
        (tmp_path / "people.csv").write_text(people() + '1,"cat\n"\n')
        report = check_release(tmp_path)
        assert [f.level for f in report.findings if f.column == "lines"][-1] == level
        if level == "error":
            assert not is_checked(Job.read(tmp_path))


@pytest.mark.parametrize("stand_in", ["rows/pet=cat/a.parquet", "rows/*/a.parquet", "rows"])
def test_a_stand_in_that_is_part_of_the_source_is_refused(tmp_path, stand_in):
    text = RELEASE.replace('"people.csv"', glob(tmp_path))
    text = f'stand_in = "{stand_in}"\n{text}[output]\nprior = "stand_in"\n'
    with pytest.raises(ps.ReleaseError, match="is the source itself"):
        Job.read(write_job(tmp_path, text))


def test_a_draft_of_a_folder_speaks_of_its_columns(tmp_path, monkeypatch):
    hive(tmp_path)
    monkeypatch.chdir(tmp_path)
    for i, source in enumerate(["rows", "rows/*/*.parquet"]):
        assert run("init", source, "-o", f"{i}.toml").exit_code == 0
        text = (tmp_path / f"{i}.toml").read_text()
        assert f'source = "{source}"' in text
        assert "[schema.pet]" in text
        assert "cat" not in text
    message = told("init", "postgresql://me:hush@db/a/b", "-o", "c.toml", code=2)["error"][
        "message"
    ]
    assert "holds a password" in message
    assert "hush" not in message


class Lost:
    """A table whose connection is lost after the first rows, so many times, once it is due."""

    def __init__(self, losses, due=lambda: True):
        self.table = table()
        self.losses = losses
        self.due = due

    def columns(self):
        return Columns(tuple(self.table.column_names), self.table.schema)

    def version(self):
        return None

    @contextmanager
    def snapshot(self):
        yield self

    @property
    def kinds(self):
        return self.table.schema.types

    def read(self, names):
        some = self.table.select(list(names))

        def batches():
            for batch in some.to_batches(max_chunksize=100):
                yield batch
                if self.losses and self.due():
                    self.losses -= 1
                    raise ConnectionError("lost at secret")

        return pa.RecordBatchReader.from_batches(some.schema, batches())


def test_a_release_whose_connection_is_lost_is_charged_once_and_resumed(tmp_path, monkeypatch):
    place = write_job(tmp_path)
    job = Job.read(place)
    create_ledger(job)
    assert check_release(job).ok
    ledger = ps.Ledger.open(job.ledger)
    # In every reading: one that ends early may lose its connection, too, and nobody sees it.
    lost = Lost(losses=math.inf, due=lambda: bool(ledger.history()))
    monkeypatch.setattr(registry, "OPENERS", [lambda data: lost])
    with pytest.raises(ps.SourceError, match="could not be counted") as caught:
        release(job)
    assert "secret" not in str(caught.value)
    spent = ledger.spent()
    assert len(ledger.history()) == 1
    lost.losses = 0
    release(job)
    assert verify(job.bundle).ok
    assert ps.Ledger.open(job.ledger).spent() == spent


def test_a_connection_lost_before_the_charge_costs_nothing(tmp_path, monkeypatch):
    job = Job.read(write_job(tmp_path))
    create_ledger(job)
    assert check_release(job).ok
    lost = Lost(losses=2)  # in both readings of the repeated check
    monkeypatch.setattr(registry, "OPENERS", [lambda data: lost])
    with pytest.raises(ps.SourceError, match=r"connection was lost.*Nothing was charged") as caught:
        release(job)
    assert lost.losses == 0
    assert "secret" not in str(caught.value)
    assert not ps.Ledger.open(job.ledger).history()
    release(job)
    assert verify(job.bundle).ok
