"""A release counts the rows that it checked, even of a table that is written to meanwhile."""

import json
import math
import os
from contextlib import ExitStack

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import psephos as ps
from psephos.engines import postgres as postgres_engine
from psephos.engines.duckdb.reader import Reader
from psephos.owner import check as owner_check
from psephos.release import run
from psephos.release.methods import measured
from psephos.release.preflight.checks import check_release, create_ledger, is_checked
from psephos.release.run import release
from psephos.release.spec.job import Job
from psephos.release.verify.verify import verify
from tests.engines.postgres_cluster import PASSWORD, deadly, fill_table, mortal_view, run_sql
from tests.release.conftest import RELEASE, people, write_job
from tests.release.test_persons import folder_with, one_ledger
from tests.release.test_sources import table

MANY = 100_000
"""So many rows come that no noise hides them, and one that contradicts the declared zeros."""


def csv(folder):
    def write():
        (folder / "people.csv").write_text(people(extra="19,dog\n" * MANY + "3,horse\n"))

    return '"people.csv"', write


def rows_to_come():
    return pa.table({"age": [19] * MANY + [3], "pet": ["dog"] * MANY + ["horse"]})


def parquet_folder(folder):
    (folder / "rows").mkdir()
    pq.write_table(table(), folder / "rows" / "a.parquet")
    return '"rows/"', lambda: pq.write_table(rows_to_come(), folder / "rows" / "b.parquet")


def duckdb_file(folder):
    def fill(path, *tables):
        with duckdb.connect(path) as connection:
            for i, given in enumerate(tables):
                connection.register("given", given)
                verb = "INSERT INTO people" if i else "CREATE TABLE people AS"
                connection.execute(f"{verb} FROM given")

    def replace():
        fill(folder / "new.db", table(), rows_to_come())
        os.replace(folder / "new.db", folder / "town.db")

    fill(folder / "town.db", table())
    return '{ duckdb = "town.db", table = "people" }', replace


def postgres(folder):
    url = fill_table("live people", table())

    def write():
        run_sql(
            f"INSERT INTO \"live people\" SELECT 19, 'dog' FROM generate_series(1, {MANY})",
            "UPDATE \"live people\" SET pet = 'horse' WHERE age = 3",
        )

    return json.dumps(url), write


SOURCES = [csv, parquet_folder, duckdb_file, pytest.param(postgres, marks=pytest.mark.slow)]


@pytest.fixture
def live(tmp_path, request):
    """A release file that was checked, and what writes to its table."""
    (tmp_path / "job").mkdir()
    source, write = request.param(tmp_path / "job")
    place = write_job(tmp_path / "job", RELEASE.replace('"people.csv"', source))
    create_ledger(Job.read(place))
    assert check_release(place).ok
    return place, write


def history(place):
    return ps.Ledger.open(Job.read(place).ledger).history()


def rows_in(bundle):
    """The grand total, up to a few rows of noise."""
    return max(bundle.table("pets")["count"].to_pylist())


@pytest.mark.parametrize("live", SOURCES, indirect=True)
def test_a_table_that_changed_after_the_check_is_checked_anew(live):
    place, write = live
    write()
    assert is_checked(Job.read(place))
    with pytest.raises(ps.ReleaseError, match=r"have changed since the owner's check.*--unchecked"):
        release(place)
    assert not history(place)
    release(place, unchecked=True)
    assert len(history(place)) == 1


@pytest.mark.parametrize("live", SOURCES, indirect=True)
def test_a_table_that_changes_between_check_and_count_is_counted_as_checked_or_refused(
    live, monkeypatch
):
    place, write = live
    store = measured.store_request

    def written_to(*facts):  # the last step between the repeated check and the charge
        store(*facts)
        write()

    monkeypatch.setattr(measured, "store_request", written_to)
    refusal = ""
    try:
        release(place)
    except ps.SourceError as error:
        refusal = str(error)
    if refusal:
        assert "written to while it was read" in refusal
        assert len(history(place)) == 1
        with pytest.raises(ps.ReleaseError, match="have changed since the owner's check"):
            release(place)
        release(place, unchecked=True)
        expected = MANY + 600
    else:
        expected = 600  # the old state
    bundle = ps.Bundle.open(Job.read(place).bundle)
    assert verify(bundle.path).ok
    assert len(history(place)) == 1
    assert abs(rows_in(bundle) - expected) < 500


def test_files_that_stand_still_are_checked_once(tmp_path, monkeypatch):
    place = write_job(tmp_path)
    create_ledger(Job.read(place))
    assert check_release(place).ok

    def never(*words, **facts):
        raise AssertionError("these very files were checked before")

    monkeypatch.setattr(owner_check, "check", never)
    release(place)


def test_what_is_paid_for_and_answered_is_written_whatever_the_data_are_now(tmp_path, monkeypatch):
    place = write_job(tmp_path)
    create_ledger(Job.read(place))
    assert check_release(place).ok

    def fails(*words, **facts):
        raise OSError("disk full")

    monkeypatch.setattr(measured, "write_bundle", fails)
    with pytest.raises(OSError, match="disk full"):
        release(place)
    monkeypatch.undo()
    csv(tmp_path)[1]()
    release(place)
    assert len(history(place)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("live", [postgres], indirect=True)
def test_a_server_that_ends_all_connections_half_way_costs_one_charge(live, monkeypatch):
    """The snapshot is gone with its connection: what is left cannot be read as if it were there."""
    place, _ = live
    store = measured.store_request
    end = (
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
        "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
    )

    def ended(*facts):
        store(*facts)
        run_sql(end)

    monkeypatch.setattr(measured, "store_request", ended)
    with pytest.raises(ps.SourceError, match="could not be counted") as caught:
        release(place)
    assert PASSWORD not in str(caught.value)
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert len(history(place)) == 1
    bundle = release(place)
    assert verify(bundle.path).ok
    assert abs(rows_in(bundle) - 600) < 500
    assert len(history(place)) == 1


@pytest.mark.slow
@pytest.mark.parametrize("worth", [0, math.inf], ids=["grouped", "row by row"])
def test_a_connection_that_dies_while_rows_come_costs_nothing_or_is_gone_on_with(
    tmp_path, monkeypatch, worth
):
    run_sql("DROP VIEW IF EXISTS mortal_people")
    fill_table("mortals", table())
    url = mortal_view("mortal_people", "mortals", "age = 11")
    place = write_job(tmp_path, RELEASE.replace('"people.csv"', json.dumps(url)))
    create_ledger(Job.read(place))
    assert check_release(place).ok
    monkeypatch.setattr(postgres_engine, "WORTH_GROUPING", worth)
    with deadly(), pytest.raises(ps.SourceError, match="Nothing was charged") as caught:
        release(place)  # the check that is repeated in the state that would be counted
    assert PASSWORD not in str(caught.value)
    assert not history(place)
    store, death = measured.store_request, ExitStack()

    def from_here_on(*facts):
        store(*facts)
        death.enter_context(deadly())

    monkeypatch.setattr(measured, "store_request", from_here_on)
    with death, pytest.raises(ps.SourceError, match="could not be counted") as caught:
        release(place)
    assert caught.value.__cause__ is caught.value.__context__ is None
    assert len(history(place)) == 1
    monkeypatch.setattr(measured, "store_request", store)
    bundle = release(place)
    assert verify(bundle.path).ok
    assert abs(rows_in(bundle) - 600) < 500
    assert len(history(place)) == 1


def test_a_release_takes_its_rows_once(tmp_path, monkeypatch):
    """Tables of rows and of persons: one reading, after the first charge."""
    place = folder_with(tmp_path)
    one_ledger(place)
    takings, take = [], Reader.take

    def noted(self, *args):
        takings.append(len(history(place)))
        return take(self, *args)

    monkeypatch.setattr(Reader, "take", noted)
    bundle = release(place)
    assert takings == [1]
    assert len(history(place)) == 3
    assert len({entry.snapshot for entry in history(place)}) == 1
    assert "were taken" not in str(verify(bundle.path))


def test_a_release_that_is_resumed_over_other_rows_says_so(tmp_path, monkeypatch):
    """The tables of rows were stored, then it was cut short; persons are counted in later rows."""
    place = folder_with(tmp_path)
    one_ledger(place)

    def cut_short(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(run, "measure_persons", cut_short)
        with pytest.raises(KeyboardInterrupt):
            release(place)
    bundle = release(place)
    assert len({entry.snapshot for entry in history(place)}) == 2
    report = verify(bundle.path, ledger=Job.read(place).ledger)
    assert report.ok
    assert "rows that were taken 2 times" in str(report)
    assert "rows that were taken 2 times" in (bundle.path / "report.html").read_text()


def test_a_release_that_was_answered_needs_no_source(tmp_path, monkeypatch):
    place = write_job(tmp_path)
    create_ledger(Job.read(place))
    assert check_release(place).ok

    def fails(*_, **__):
        raise OSError("disk full")

    with monkeypatch.context() as patch:
        patch.setattr(measured, "write_bundle", fails)
        with pytest.raises(OSError, match="disk full"):
            release(place)
    (tmp_path / "people.csv").unlink()
    assert verify(release(place).path).ok
    assert len(history(place)) == 1
