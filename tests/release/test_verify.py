"""Verification: every change to a bundle is found, by the check that it concerns."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.random import default_rng

import psephos as ps
from psephos.infer.rounding import round_cells
from psephos.kernel.measurement import pack
from psephos.release.bundle.bundle import Bundle
from psephos.release.bundle.files import (
    FREE_BYTES,
    JSON_BYTES,
    json_text,
    read_integers,
    read_parquet,
    sha256_of,
)
from psephos.release.bundle.manifest import release_json
from psephos.release.formats.csv_text import write_csv
from psephos.release.formats.digits import printed
from psephos.release.preflight.checks import create_ledger
from psephos.release.run import release
from psephos.release.spec.file import checked_release
from psephos.release.spec.job import Job
from psephos.release.verify.published import check_rounding
from psephos.release.verify.verify import verify
from tests.release.conftest import RELEASE, write_job

least_squares_module = import_module("psephos.infer.least_squares")


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """One release, made once; every test tampers with a copy of it."""
    place = write_job(tmp_path_factory.mktemp("verify") / "job")
    create_ledger(Job.read(place))
    return release(place, unchecked=True)


@pytest.fixture
def bundle(made, tmp_path):
    shutil.copytree(made.path.parent, tmp_path / "job")
    return Bundle.open(tmp_path / "job" / "bundle")


def failed(path, **options):
    return {check.name for check in verify(path, **options).checks if not check.ok}


def rewrite(path, change):
    """Change a column `count` or `value` of a Parquet file."""
    table = pq.read_table(path)
    name = "value" if "value" in table.column_names else "count"
    column = table[name].to_numpy().copy()
    change(column)
    at = table.column_names.index(name)
    pq.write_table(table.set_column(at, name, pa.array(column)), path)


def resign(bundle):
    """What a forger would do: bring the manifest's hashes up to date."""
    place = bundle.path / "manifest.json"
    manifest = json.loads(place.read_text())
    manifest["files"] = {name: sha256_of(bundle.path / name) for name in manifest["files"]}
    place.write_text(json.dumps(manifest))


def test_a_whole_bundle_verifies_and_says_what_it_cannot_show(bundle):
    found = verify(bundle.path)
    assert found.ok
    assert "cannot be shown: that the noisy integers came from the data" in str(found)


@pytest.mark.parametrize(
    "name",
    [
        "release.json",
        "requests/1/receipt.json",
        "requests/1/strategy.bin",
        "report.html",
        "raw/block-1.csv",
    ],
)
def test_any_changed_file_is_named(bundle, name):
    with (bundle.path / name).open("ab") as file:
        file.write(b" ")
    found = verify(bundle.path)
    assert not found.ok
    assert name in str(found)


def test_missing_and_added_files_are_named(bundle):
    (bundle.path / "report.html").unlink()
    (bundle.path / "note.txt").write_text("hello")
    text = verify(bundle.path).checks[0].text
    assert "report.html is missing" in text
    assert "note.txt does not belong here" in text


def add(amount, at=0):
    def change(column):
        column[at] += amount

    return change


@pytest.mark.parametrize(
    ("name", "amount", "wrong"),
    [
        ("requests/1/measurements.parquet", 1, {"receipt", "raw view", "consistent view"}),
        ("raw/block-1.parquet", 1, {"raw view"}),
        ("consistent/pets.parquet", 1e-3, {"consistent view"}),
        ("published/pets.parquet", 1, {"published view"}),
        ("published/cells.parquet", 1, {"published view"}),
    ],
)
def test_forged_numbers_are_found_behind_good_hashes(bundle, name, amount, wrong):
    rewrite(bundle.path / name, add(amount))
    resign(bundle)
    assert wrong <= failed(bundle.path) <= wrong | {"published view"}


def test_zeros_and_signs_of_the_cells_are_checked(bundle):
    zeros = np.flatnonzero(bundle.job.zeros)
    rewrite(bundle.path / "published/cells.parquet", add(1, zeros[0]))
    resign(bundle)
    assert "no row can lie in" in str(verify(bundle.path))
    rewrite(bundle.path / "published/cells.parquet", add(-(10**6)))
    resign(bundle)
    assert "non-negative" in str(verify(bundle.path))


def test_a_smaller_charge_than_the_noise_is_found(bundle):
    place = bundle.path / "requests/1/receipt.json"
    receipt = json.loads(place.read_text())
    receipt["charge"]["booked"][1] = "3/4"
    place.write_text(json.dumps(receipt))
    resign(bundle)
    assert failed(bundle.path) == {"receipt"}


def test_the_ledger_knows_the_charge(bundle, tmp_path):
    ledger = bundle.path.parent / "people.ledger"
    assert verify(bundle.path, ledger=ledger).ok
    other = write_job(tmp_path / "other", RELEASE)
    create_ledger(Job.read(other))
    assert failed(bundle.path, ledger=tmp_path / "other" / "people.ledger") == {"ledger"}


def test_what_is_no_bundle_is_refused(tmp_path, bundle):
    with pytest.raises(ps.ReleaseError, match="there is no bundle at"):
        verify(tmp_path / "nowhere")
    (bundle.path / "manifest.json").write_text("{")
    with pytest.raises(ps.ReleaseError, match="is damaged"):
        verify(bundle.path)


# ---- forgers who bring the hashes up to date ---------------------------------------------------


def edit(bundle, name, change):
    """Change a JSON file of the bundle."""
    place = bundle.path / name
    content = json.loads(place.read_text())
    change(content)
    place.write_text(json.dumps(content))


def edit_csv(bundle):
    place = bundle.path / "consistent" / "pets.csv"
    place.write_text(place.read_text().replace("cat", "cow"))


def forged_throughout(bundle):
    """Other integers, with a receipt made to match them."""
    count = len(bundle.measurement.values)
    rewrite(bundle.path / "requests/1/measurements.parquet", lambda column: column.fill(1000))
    mark = hashlib.sha256(bytes(pack(np.full(count, 1000)))).hexdigest()
    edit(bundle, "requests/1/receipt.json", lambda r: r["charge"].update(values_hash=mark))


def publish(bundle, cells):
    """Other published cells, and all that follows from them in every file."""
    numbers = replace(bundle.views.published, stored=cells)
    views = replace(bundle.views, stored=numbers)
    pq.write_table(pa.table({"count": cells}), bundle.path / "published/cells.parquet")
    for table, decimals in zip(bundle.job.tables, bundle.manifest["decimals"], strict=True):
        name = bundle.path / "published" / table.name
        written = views.table(table, "published")
        pq.write_table(written, name.with_suffix(".parquet"))
        write_csv(printed(written, decimals), name.with_suffix(".csv"))
    shifts = [[asdict(s) for s in views.shifts(t)] for t in bundle.job.tables]

    def follow(manifest):
        manifest["distance"] = views.distance._asdict()
        for entry, own in zip(manifest["tables"], shifts, strict=True):
            entry["shifts"] = own

    edit(bundle, "manifest.json", follow)


def people_moved(bundle):
    """Two hundred people in another cell."""
    cells = pq.read_table(bundle.path / "published/cells.parquet")["count"].to_numpy().copy()
    cells[np.argmax(cells)] += 200
    publish(bundle, cells)


def charged(*cost):
    return lambda b: edit(
        b, "requests/1/receipt.json", lambda r: r["charge"].update(booked=list(cost))
    )


def said(**changes):
    return lambda b: edit(b, "manifest.json", lambda m: m.update(changes))


FORGERIES = {
    "a label in a CSV": (edit_csv, "consistent view"),
    "a view left out": (said(views=["raw"]), "request"),
    "one count that is no number": (
        lambda b: rewrite(b.path / "consistent/pets.parquet", add(np.nan)),
        "consistent view",
    ),
    "a smaller charge": (charged("epsilon", "1/9"), "receipt"),
    "another currency": (charged("rho", "1/2"), "receipt"),
    "another budget asked": (
        lambda b: edit(b, "release.json", lambda r: r["budget"].update(epsilon="0.1")),
        "request",
    ),
    "zeros dropped": (lambda b: edit(b, "release.json", lambda r: r.pop("zeros")), "request"),
    "another ledger's budget": (
        lambda b: edit(b, "requests/1/receipt.json", lambda r: r.update(budget=["epsilon", "9"])),
        "request",
    ),
    "a shift that is not": (
        lambda b: edit(
            b, "manifest.json", lambda m: m["tables"][0]["shifts"][0].update(mean=1234.5)
        ),
        "published view",
    ),
    "a distance that is not": (
        lambda b: edit(b, "manifest.json", lambda m: m["distance"].update(in_standard_errors=0.1)),
        "published view",
    ),
    "people moved between cells": (people_moved, "published view"),
    "another noise": (said(noise="gaussian"), "request"),
    "another strategy": (said(strategy="OPT_X"), "request"),
    "another title": (said(title="The truth"), "request"),
    "more draws claimed": (
        lambda b: edit(b, "manifest.json", lambda m: m["interval"].update(draws=10**6)),
        "request",
    ),
    "a second manifest": (lambda b: (b.path / "raw/manifest.json").write_text("{}"), "files"),
}


@pytest.mark.parametrize("name", FORGERIES)
def test_what_a_forger_signs_again_is_found(bundle, name):
    change, wrong = FORGERIES[name]
    change(bundle)
    resign(bundle)
    assert wrong in failed(bundle.path)


def test_a_link_to_elsewhere_is_found(bundle, tmp_path):
    place = bundle.path / "report.html"
    place.rename(tmp_path / "elsewhere.html")
    place.symlink_to(tmp_path / "elsewhere.html")
    assert "files" in failed(bundle.path)


def test_labels_and_columns_are_compared(bundle):
    place = bundle.path / "published" / "pets.parquet"
    table = pq.read_table(place)
    swapped = pa.array(list(reversed(table["pet"].to_pylist())))
    pq.write_table(table.set_column(table.column_names.index("pet"), "pet", swapped), place)
    resign(bundle)
    assert failed(bundle.path) == {"published view"}
    pq.write_table(table.append_column("truth", table["count"]), place)
    resign(bundle)
    assert failed(bundle.path) == {"published view"}


def test_a_bundle_forged_throughout_is_not_what_the_ledger_holds(bundle):
    forged_throughout(bundle)
    resign(bundle)
    assert "receipt" not in failed(bundle.path)
    assert "ledger" in failed(bundle.path, ledger=bundle.path.parent / "people.ledger")


@pytest.mark.parametrize("key", ["spend", "views", "simulation", "files", "draws"])
def test_a_damaged_manifest_is_said_in_words(bundle, key):
    edit(bundle, "manifest.json", lambda m: m.pop(key))
    with pytest.raises(ps.ReleaseError, match=f"is damaged: '{key}'"):
        verify(bundle.path)


# ---- moves below the old tolerance -------------------------------------------------------------

GRID = """
name = "grid"
source = "people.csv"
privacy = { unit = "add_remove_row" }
ledger = { path = "grid.ledger", dataset = "grid", epsilon = 10 }
budget = { epsilon = "%s" }
tables = [{ name = "grid", %s }]
selection = { strategy = "%s", restarts = 1 }
[schema]
a = { integers = [0, 7] }
b = { integers = [0, 5] }
c = { integers = [0, 4] }
"""
ALL, PAIRS = 'rows = ["a", "b", "c"], totals = false', 'builder = "marginals", up_to = 2'
SHAPE = (8, 6, 5)


@pytest.fixture(scope="module")
def grids(tmp_path_factory):
    """Releases of all cells and of two-way marginals, with little noise."""
    rng, paths = default_rng(0), {}
    rows = [rng.integers(0, n, 9000).tolist() for n in SHAPE]
    data = "a,b,c\n" + "\n".join(f"{a},{b},{c}" for a, b, c in zip(*rows, strict=True)) + "\n"
    for name, asked, strategy in (("all", ALL, "identity"), ("pairs", PAIRS, "hdmm")):
        folder = tmp_path_factory.mktemp("grid") / name
        place = write_job(folder, GRID % ("1", asked, strategy), data)
        create_ledger(Job.read(place))
        paths[name] = release(place, unchecked=True).path
    return paths


@pytest.mark.parametrize("name", ["all", "pairs"])
@pytest.mark.parametrize("step", [2, 3, 5])
def test_a_checkerboard_of_small_moves_is_found(grids, tmp_path, name, step):
    """Every total stays; hashes, distances and shifts are brought up to date."""
    bundle = Bundle.open(shutil.copytree(grids[name], tmp_path / "copy"))
    assert verify(bundle.path).ok
    cells = pq.read_table(bundle.path / "published/cells.parquet")["count"].to_numpy()
    first, second, third = np.indices(SHAPE)
    signs = np.where((first + second + (third if name == "all" else 0)) % 2 == 0, 1, -1)
    publish(bundle, np.maximum(cells + step * signs.reshape(-1), 0))
    resign(bundle)
    assert failed(bundle.path) == {"published view"}


def test_cells_moved_to_neighbours_at_will_are_found(grids, tmp_path):
    """All cells rounded up, which is a neighbour for each of them, but no good rounding."""
    bundle = Bundle.open(shutil.copytree(grids["pairs"], tmp_path / "copy"))
    publish(bundle, np.ceil(bundle.views.published.real).astype(np.int64))
    resign(bundle)
    assert failed(bundle.path) == {"published view"}


@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.parametrize("name", ["all", "pairs"])
def test_bundles_verify_on_any_number_of_threads(grids, name, threads):
    """BLAS sums in another order then, and rounding turns on the last digit."""
    code = f"import psephos as ps; assert ps.verify({str(grids[name])!r}).ok"
    names = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
    environment = os.environ | dict.fromkeys(names, threads)
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


@pytest.mark.parametrize("exponent", [-14, -12, -10])
@pytest.mark.parametrize("name", ["all", "pairs"])
def test_other_last_digits_verify(grids, name, exponent):
    """A rounding of the estimate as another machine might have it."""
    bundle = Bundle.open(grids[name])
    views, stored = bundle.views, bundle.estimate
    for seed in range(5):
        noise = 10.0**exponent * default_rng(seed).standard_normal(stored.size)
        cells = round_cells(stored * (1 + noise), views.job.workload)
        assert "a rounding of the estimate" in check_rounding(views, cells, stored)


def test_a_fault_of_the_solver_does_not_confirm_itself(tmp_path, monkeypatch):
    """The release and its verification solve by the same code; what was measured tells."""
    solve = least_squares_module.fit_blocks

    def fault(domain, blocks, measurements):
        moved = [block._replace(values=block.values + block.variance**0.5) for block in blocks]
        return replace(solve(domain, moved, measurements), blocks=tuple(blocks))

    monkeypatch.setattr(least_squares_module, "fit_blocks", fault)
    place = write_job(tmp_path / "job")
    create_ledger(Job.read(place))
    made = release(place, unchecked=True)
    (wrong,) = [check for check in verify(made.path).checks if not check.ok]
    assert wrong.name == "consistent view"
    assert "the solver is at fault" in wrong.text


# ---- whole schemas, and sizes ------------------------------------------------------------------


def with_note(content):
    content["note"] = "the truth"


def with_column(place):
    table = pq.read_table(place)
    pq.write_table(table.append_column("note", table[table.column_names[0]]), place)


def with_metadata(place):
    table = pq.read_table(place)
    pq.write_table(table.replace_schema_metadata({"note": "the truth"}), place)


@pytest.mark.parametrize("inside", [[], ["charge"], ["anchor"]])
def test_a_receipt_with_more_in_it_is_found(bundle, inside):
    def change(receipt):
        for key in inside:
            receipt = receipt[key]
        with_note(receipt)

    edit(bundle, "requests/1/receipt.json", change)
    resign(bundle)
    assert "receipt" in failed(bundle.path)


@pytest.mark.parametrize("inside", [[], ["tables", 0], ["interval"], ["distance"]])
def test_a_manifest_with_more_in_it_is_refused(bundle, inside):
    def change(manifest):
        for key in inside:
            manifest = manifest[key]
        with_note(manifest)

    edit(bundle, "manifest.json", change)
    with pytest.raises(ps.ReleaseError, match=r"note' does not belong there"):
        verify(bundle.path)


@pytest.mark.parametrize(
    "change",
    [
        with_note,
        lambda r: r.update(source="people.csv"),
        lambda r: r.update(description=""),
        lambda r: r["ledger"].update(path="elsewhere"),
        lambda r: r["selection"].update(restarts=1.0),
    ],
)
def test_a_release_json_that_no_release_writes_is_found(bundle, change):
    edit(bundle, "release.json", change)
    resign(bundle)
    assert "request" in failed(bundle.path)


@pytest.mark.parametrize("change", [with_column, with_metadata])
@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("requests/1/measurements.parquet", "receipt"),
        ("raw/block-1.parquet", "raw view"),
        ("consistent/pets.parquet", "consistent view"),
        ("published/pets.parquet", "published view"),
        ("published/cells.parquet", "published view"),
    ],
)
def test_a_parquet_file_with_more_in_it_is_found(bundle, name, wrong, change):
    change(bundle.path / name)
    resign(bundle)
    assert wrong in failed(bundle.path)


def test_a_csv_file_with_more_in_it_is_found(bundle):
    place = bundle.path / "published/pets.csv"
    lines = place.read_text().splitlines()
    place.write_text("\n".join([f'{lines[0]},"note"', *(f"{line},1" for line in lines[1:])]))
    resign(bundle)
    assert failed(bundle.path) == {"published view"}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('"format": 9, "format": 9', "a key is there twice"),
        ('"format": NaN', "NaN is no number"),
        ('"format": 1e999', "is no number of a release"),
        (f'"format": {"9" * 9999}', "a number has 9,999 digits"),
        (f'"format": {"[" * 99999}', "lists in lists|lie in lists without end"),
    ],
)
def test_json_is_read_strictly(bundle, text, said):
    place = bundle.path / "manifest.json"
    place.write_text(place.read_text().replace('"format": 9', text, 1))
    with pytest.raises(ps.ReleaseError, match=said):
        verify(bundle.path)


def test_long_json_is_refused_before_it_is_read(bundle, monkeypatch):
    with (bundle.path / "manifest.json").open("ab") as file:
        file.truncate(JSON_BYTES + 1)
    monkeypatch.setattr(json, "loads", None)
    with pytest.raises(ps.ReleaseError, match="bytes, and could have"):
        Bundle.open(bundle.path)


def many_rows(place):
    name = pq.read_schema(place).names[0]
    pq.write_table(pa.table({name: np.zeros(20_000_000, dtype=np.int64)}), place)


def one_text(place):
    """Twenty times the same text, which is written once."""
    table = pq.read_table(place)
    text = pa.array(["x" * 950_000] * table.num_rows)
    pq.write_table(table.set_column(0, table.column_names[0], text), place)


def long_texts(place):
    """Texts of forty megabytes."""
    table = pq.read_table(place)
    text = pa.array(["x" * 40_000_000] * 3 + [""] * (table.num_rows - 3))
    pq.write_table(table.set_column(0, table.column_names[0], text), place)


def packed(place):
    pq.write_table(pq.read_table(place), place, compression="zstd")


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("published/cells.parquet", many_rows, "has 20,000,000 rows, not 12"),
        ("requests/1/measurements.parquet", many_rows, "has 20,000,000 rows, not 12"),
        ("published/pets.parquet", one_text, "holds more than the release does"),
        ("published/pets.parquet", long_texts, "packed otherwise"),
        ("consistent/pets.parquet", packed, "packed otherwise"),
    ],
)
def test_files_that_would_fill_the_memory_are_refused(bundle, name, change, said):
    change(bundle.path / name)
    assert (bundle.path / name).stat().st_size < FREE_BYTES
    resign(bundle)
    assert said in str(verify(bundle.path))
    if "pets" in name:
        with pytest.raises(ps.ReleaseError, match=said):
            Bundle.open(bundle.path).table("pets", name.partition("/")[0])


@pytest.mark.parametrize("change", [many_rows, packed])
def test_what_is_refused_for_its_size_is_not_read(bundle, change, monkeypatch):
    place = bundle.path / "published/cells.parquet"
    change(place)
    monkeypatch.setattr(pq.ParquetFile, "read", None)
    with pytest.raises(ps.ReleaseError, match=r"rows, not 80|packed otherwise"):
        read_integers(place, "count", 80)


def test_no_damage_to_a_parquet_file_ends_the_process(bundle):
    """One bit of every byte; Arrow alone ends it for some of a footer's."""
    place = bundle.path / "raw/block-1.parquet"
    content, table = place.read_bytes(), pq.read_table(place)
    for at in range(len(content)):
        damaged = bytearray(content)
        damaged[at] ^= 1 << (at * 5 % 8)
        place.write_bytes(bytes(damaged))
        with suppress(ps.ReleaseError):
            again = read_parquet(place, (table.schema,), table.num_rows)
            assert again.schema == table.schema
            assert again.num_rows == table.num_rows


def test_what_answers_come_from_must_be_there(bundle):
    (bundle.path / "requests/1/measurements.parquet").unlink()
    with pytest.raises(ps.ReleaseError, match=r"measurements.parquet is damaged|is missing"):
        ps.ask(bundle.path, "SELECT COUNT(*) FROM people")


@pytest.mark.parametrize("name", ["home_ownership", "wages", "census"])
def test_what_release_json_holds_is_read_as_it_was_written(name):
    job = Job.read(Path(__file__).parents[2] / "examples" / name / "release.toml")
    written = json_text(release_json(job))
    again = replace(job, file=checked_release(json.loads(written), "release.json"))
    assert json_text(release_json(again)) == written
