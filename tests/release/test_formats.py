"""Files for other programs: digits, names, refusals before a charge, forgeries."""

import hashlib
import json
import re
import shutil
import zipfile
from pathlib import Path

import numpy as np
import openpyxl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import psephos as ps
from psephos.release.formats import excel, workbook_size
from psephos.release.formats.csv_text import csv_bytes, defused, parse_csv, write_csv
from psephos.release.formats.digits import decimals_of, printed, rounding_of
from psephos.release.formats.names import identifiers, sheet_names, table_files
from psephos.release.formats.registry import FILE_FORMATS, write_formats
from psephos.release.formats.sheets import cut
from psephos.release.formats.workbook_files import compare_workbooks
from psephos.release.preflight.checks import create_ledger, open_ledger
from psephos.release.spec.job import Job
from tests.cli.test_cli import run, told
from tests.release.conftest import RELEASE, write_job
from tests.release.test_persons import RELEASE as PERSONS
from tests.release.test_persons import folder_with

ALL = 'formats = ["csv", "parquet", "wide", "xlsx", "datapackage", "csvw", "jsonstat", "sdmx"]'


def with_output(lines):
    return RELEASE.replace("[selection]", f"[output]\n{lines}\n\n[selection]")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    place = write_job(tmp_path_factory.mktemp("files") / "job", with_output(ALL))
    create_ledger(Job.read(place))
    return ps.release(place, unchecked=True)


@pytest.fixture
def copy(bundle, tmp_path):
    return Path(shutil.copytree(bundle.path, tmp_path / "copy"))


def rehashed(folder):
    """A manifest with the hashes of the files as they are now."""
    place = folder / "manifest.json"
    manifest = json.loads(place.read_text())
    for name in manifest["files"]:
        manifest["files"][name] = hashlib.sha256((folder / name).read_bytes()).hexdigest()
    place.write_text(json.dumps(manifest))


def failures(folder):
    rehashed(folder)
    return {check.name: check.text for check in ps.verify(folder).checks if not check.ok}


# ---- forgeries ---------------------------------------------------------------------------------


def test_a_release_with_all_formats_verifies(bundle):
    assert ps.verify(bundle.path).ok


def rewrite_zip(place, name, change):
    """The same workbook with one file in it changed."""
    with zipfile.ZipFile(place) as book:
        members = {info.filename: book.read(info) for info in book.infolist()}
    members[name] = change(members[name])
    with zipfile.ZipFile(place, "w") as book:
        for member, content in members.items():
            book.writestr(member, content)


def test_a_number_in_the_workbook_that_was_touched_is_found(copy):
    place = copy / "tables.xlsx"
    book = openpyxl.load_workbook(place)
    count = int(book["pets"]["B6"].value)
    cell = f"<v>{count}</v>".encode()
    rewrite_zip(place, "xl/worksheets/sheet2.xml", lambda xml: xml.replace(cell, b"<v>7</v>", 1))
    assert openpyxl.load_workbook(place)["pets"]["B6"].value == 7
    assert failures(copy) == {
        "other files": "tables.xlsx does not hold what follows from the tables"
    }


def test_a_sheet_that_was_hidden_or_renamed_is_found(copy):
    def renamed(xml):
        return xml.replace(b'name="young"', b'name="older"')

    rewrite_zip(copy / "tables.xlsx", "xl/workbook.xml", renamed)
    assert "tables.xlsx" in failures(copy)["other files"]


def test_a_workbook_of_another_version_is_compared_cell_by_cell(copy):
    rewrite_zip(copy / "tables.xlsx", "docProps/app.xml", lambda xml: xml + b"\n")
    rehashed(copy)
    (check,) = [c for c in ps.verify(copy).checks if c.name == "other files"]
    assert check.ok
    assert "tables.xlsx every cell" in check.text
    assert "NOT checked" in check.text


def test_a_workbook_packed_otherwise_is_the_same(copy):
    rewrite_zip(copy / "tables.xlsx", "docProps/app.xml", bytes)
    assert failures(copy) == {}


@pytest.mark.parametrize("wrong", [b"", b"PK", b"no zip at all"])
def test_a_workbook_that_is_none_is_found(copy, wrong):
    (copy / "tables.xlsx").write_bytes(wrong)
    assert "tables.xlsx" in failures(copy)["other files"]


def test_entities_in_a_workbook_are_not_expanded(bundle, tmp_path):
    place = tmp_path / "tables.xlsx"
    shutil.copy(bundle.path / "tables.xlsx", place)

    def bomb(xml):
        return xml.replace(b"<worksheet", b'<!DOCTYPE x [<!ENTITY a "aaaa">]><worksheet', 1)

    rewrite_zip(place, "xl/worksheets/sheet2.xml", bomb)
    assert compare_workbooks(place, bundle.path / "tables.xlsx") == "other"


@pytest.mark.parametrize(
    "name",
    [
        "tables/pets.csv",
        "jsonstat/pets.json",
        "sdmx/pets.csv",
        "sdmx/structure.json",
        "datapackage.json",
    ],
)
def test_a_number_that_was_touched_is_found(copy, name):
    place = copy / name
    text = place.read_text()
    number = re.findall(r"\b\d+\b", text)[-1]
    head, _, tail = text.rpartition(number)
    place.write_text(f"{head}{int(number) + 1}{tail}")
    assert failures(copy) == {"other files": f"{name} does not hold what follows from the tables"}


def test_a_word_of_the_metadata_that_was_touched_is_found(copy):
    place = copy / "csv-metadata.json"
    place.write_text(place.read_text().replace("The town", "The city"))
    assert "csv-metadata.json" in failures(copy)["other files"]


def test_a_rounded_number_that_was_touched_is_found(copy):
    """By less than rounding moves it, so that only the Parquet file tells."""
    place = copy / "consistent" / "pets.csv"
    lines = place.read_text().splitlines()
    *labels, count, stderr, low, high = lines[3].split(",")
    lines[3] = ",".join([*labels, f"{float(count) + 0.01:.2f}", stderr, low, high])
    place.write_text("\n".join(lines) + "\n")
    assert "pets.csv" in failures(copy)["consistent view"]


def test_recorded_decimals_are_those_that_errors_leave(copy):
    place = copy / "manifest.json"
    manifest = json.loads(place.read_text())
    manifest["decimals"][0] += 1
    place.write_text(json.dumps(manifest))
    assert "other decimals" in failures(copy)["published view"]


# ---- digits ------------------------------------------------------------------------------------


def test_csv_has_the_digits_that_noise_leaves(bundle):
    (decimals, _) = bundle.manifest["decimals"]
    assert decimals == decimals_of(bundle.table("pets")["stderr"].to_numpy())
    text = (bundle.path / "consistent" / "pets.csv").read_text()
    assert max(len(part) for part in re.findall(r"\.(\d+)", text)) <= decimals + 1
    exact = bundle.table("pets")["count"].to_numpy()
    rounded = parse_csv(bundle.path / "consistent" / "pets.csv", bundle.table("pets").schema)
    gaps = np.abs(rounded["count"].to_numpy() - exact) / bundle.table("pets")["stderr"].to_numpy()
    assert gaps.max() <= 0.05


NUMBERS = st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=20)


@given(values=NUMBERS, spread=st.floats(1e-3, 1e4))
def test_rounding_is_near_outward_and_done_once(values, spread):
    centre, half = np.array(values), 2 * spread
    columns = {
        "count": centre, "stderr": np.full(centre.size, spread),
        "low": centre - half, "high": centre + half,
    }  # fmt: skip
    decimals = decimals_of(columns["stderr"])
    once = printed(pa.table(columns), decimals)
    assert printed(once, decimals).equals(once)
    for name in columns:
        gap = np.abs(once[name].to_numpy() - columns[name])
        assert (gap <= rounding_of(name, decimals) + 1e-6).all()
    slack = 2e-6 * 10.0**-decimals + 4e-6  # floats of 10⁹ are 10⁻⁷ apart
    assert (once["low"].to_numpy() <= columns["low"] + slack).all()
    assert (once["high"].to_numpy() >= columns["high"] - slack).all()


SPREADS = st.lists(st.floats(-9, 3).map(lambda power: 10**power), min_size=2, max_size=20)


@given(spreads=SPREADS, centre=st.floats(0, 100))
def test_ends_of_narrow_intervals_stay_in_order_beside_wide_ones(spreads, centre):
    half = np.array(spreads)
    columns = {"value": np.full(half.size, centre), "low": centre - half, "high": centre + half}
    decimals = decimals_of(half)
    once = printed(pa.table(columns), decimals)
    assert printed(once, decimals).equals(once)
    low, high = once["low"].to_numpy(), once["high"].to_numpy()
    assert (low <= high).all()
    for name, end in (("low", low), ("high", high)):
        assert (np.abs(end - columns[name]) <= rounding_of(name, decimals) + 1e-9).all()


def test_two_digits_of_the_least_error_count():
    assert [decimals_of(np.array([x])) for x in (0.012, 0.5, 1.0, 9.99, 10.0, 5000.0)] == [
        3, 2, 1, 1, 0, 0,
    ]  # fmt: skip
    assert decimals_of(None) == decimals_of(np.zeros(3)) == 2


def test_sure_numbers_set_no_digits_and_have_no_width():
    assert decimals_of(np.array([2.5, 1.2, 4e-7, 0.0])) == 1
    numbers = {"value": [37.9085, 100.0], "low": [32.9, 99.999998], "high": [42.93, 100.000001]}
    shares = printed(pa.table(numbers), 1)
    assert shares.to_pylist() == [
        {"value": 37.9, "low": 32.9, "high": 43.0},
        {"value": 100.0, "low": 100.0, "high": 100.0},
    ]
    assert printed(shares, 1).equals(shares)
    third = {"value": [50.0, 1 / 3], "low": [40.0, 1 / 3], "high": [60.0, 1 / 3]}
    assert printed(pa.table(third), 1).to_pylist()[1] == {"value": 0.3, "low": 0.3, "high": 0.4}


# ---- text --------------------------------------------------------------------------------------

TEXTS = st.lists(
    st.text("=+-@'＝ \t\n\r,;\"ab–.05to", max_size=8) | st.text(max_size=4), min_size=1, max_size=9
).filter(lambda texts: all(t.isprintable() or set(t) <= set("\t\n\r =+-@'ab,;\"") for t in texts))


@given(texts=TEXTS, name=st.sampled_from(["x", "=x", "'@x", "-5"]))
def test_labels_survive_csv_and_are_no_formulas(texts, name, tmp_path_factory):
    place = tmp_path_factory.mktemp("csv") / "x.csv"
    table = pa.table({name: pa.array(texts, pa.string()), "n": list(range(len(texts)))})
    write_csv(table, place)
    assert place.read_bytes() == csv_bytes(table)
    assert parse_csv(place, table.schema).equals(table)
    for text in texts:
        safe = defused(text)
        number = re.fullmatch(r"-?[\d.]+((–| to )-?[\d.]+)?", safe)
        assert number or safe.lstrip(" ")[:1] not in tuple("=+-@\t\r\n＝")


# ---- names -------------------------------------------------------------------------------------

NAMES = st.lists(
    st.text("aAbßé日𝔸 ./\\:*?[]'-_0", min_size=1, max_size=40)
    | st.sampled_from(["CON", "con.x", "cells", "Cells", "groups", "History", "lpt1", "x" * 200]),
    min_size=1, max_size=12, unique=True,
)  # fmt: skip


@given(names=NAMES)
def test_names_are_allowed_and_each_its_own(names):
    files = table_files(names)
    assert list(files) == names
    folded = {stem.casefold() for stem in files.values()}
    assert len(folded) == len(names)
    assert not folded & {"cells", "groups", "con", "lpt1"}
    for stem in files.values():
        assert re.fullmatch(r"[\w.-]+", stem)
        assert len(stem.encode()) <= 80
        assert stem.strip("-.") == stem
    sheets = sheet_names(names, ["Cover"])
    assert len({sheet.casefold() for sheet in sheets} - {"cover", "history"}) == len(names)
    for sheet in sheets:
        assert 0 < len(sheet.encode("utf-16-le")) <= 62
        assert not re.search(r"[\[\]:*?/\\']", sheet)
    plain = identifiers(names, ["TAKEN"])
    assert len({name.casefold() for name in plain}) == len(names)
    assert all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name) for name in plain)


def test_marks_are_left_out_where_names_are_unique():
    assert table_files(["Age by sex", "Einkommen (netto)", "a/b"]) == {
        "Age by sex": "Age-by-sex",
        "Einkommen (netto)": "Einkommen-netto",
        "a/b": "a-b",
    }
    assert sorted(map(len, table_files(["a b", "a-b", "c"]).values())) == [1, 12, 12]


def test_long_texts_fit_a_cell():
    assert cut("x" * 32_767, 32_767) == "x" * 32_767
    assert len(cut("𝔸" * 20_000, 32_767).encode("utf-16-le")) <= 2 * 32_767


# ---- before a charge, and when something goes wrong --------------------------------------------


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        ('formats = ["xlsx"]', r'write formats = \["csv", "xlsx"\]'),
        ('formats = ["parquet", "csvw"]', r"csvw describes CSV files"),
        ('formats = ["csv", "xlsx"]\nviews = ["raw"]', "only raw ones are asked for"),
        ('formats = ["csv", "excel"]', "xlsx"),
    ],
)
def test_formats_that_cannot_be_are_refused(tmp_path, lines, words):
    place = write_job(tmp_path / "job", with_output(lines))
    with pytest.raises(ps.ReleaseError, match=words):
        ps.plan(place)


def test_formats_in_python(tmp_path):
    file = Job.read(write_job(tmp_path / "job", with_output(ALL))).file
    assert file.output.table_formats == ("csv", "parquet")
    assert set(FILE_FORMATS) < set(file.output.formats)


def test_tables_that_have_no_room_are_named_beforehand(tmp_path, monkeypatch):
    monkeypatch.setattr(workbook_size, "SHEET_ROWS", 25)
    place = write_job(tmp_path / "job", with_output('formats = ["csv", "xlsx"]'))
    words = "'pets': it has 20 numbers, and a sheet has 25 rows"
    assert words in " ".join(run("plan", place.parent).output.split())
    assert words in told("plan", place.parent)["workbook"]
    bundle = ps.rehearse(place)
    assert ps.verify(bundle.path).ok
    book = openpyxl.load_workbook(bundle.path / "tables.xlsx")
    assert book.sheetnames == ["Cover", "young"]
    cover = " ".join(str(cell.value) for row in book["Cover"].iter_rows() for cell in row)
    assert "not in this workbook" in cover
    assert "published/pets.csv has all" in cover


def test_a_full_disk_loses_nothing(tmp_path, monkeypatch):
    place = write_job(tmp_path / "job", with_output(ALL))
    create_ledger(Job.read(place))

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(excel, "write_table", full)
    with pytest.raises(ps.ReleaseError, match=r"No space left on device\. Nothing is lost"):
        ps.release(place, unchecked=True)
    spent = open_ledger(Job.read(place)).spent()
    assert not Job.read(place).bundle.exists()
    monkeypatch.undo()
    assert ps.verify(ps.release(place, unchecked=True).path).ok
    assert open_ledger(Job.read(place)).spent() == spent


def test_a_format_that_fails_can_be_left_out(bundle, tmp_path, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(excel, "write_table", broken)
    from psephos.release.verify.files import publication_of

    with pytest.raises(ps.ReleaseError, match=r"Take 'xlsx' out of output\.formats"):
        write_formats(publication_of(bundle), tmp_path)


def test_an_unwritable_place_is_an_os_error(bundle, tmp_path):
    from psephos.release.verify.files import publication_of

    with pytest.raises(OSError, match="No such file"):
        write_formats(publication_of(bundle), tmp_path / "nowhere")


def test_tables_of_persons_are_in_every_file(tmp_path):
    place = folder_with(tmp_path, PERSONS.replace("[selection]", f"[output]\n{ALL}\n\n[selection]"))
    bundle = ps.rehearse(place)
    assert ps.verify(bundle.path).ok
    book = openpyxl.load_workbook(bundle.path / "tables.xlsx")
    assert book.sheetnames[-2:] == ["patients", "the old by site and ward"]
    sheet = book["the old by site and ward"]
    counts = [c.value for row in sheet.iter_rows() for c in row if c.number_format == "#,##0"]
    table = bundle.persons_table("the old by site and ward")
    assert counts == table["count"].to_pylist()
    cube = json.loads((bundle.path / "jsonstat" / "the-old-by-site-and-ward.json").read_text())
    numbers = np.array(cube["value"]).reshape(-1, 5)
    assert numbers[:, 0].tolist() == table["count"].to_pylist()
    assert numbers[:, 4].tolist() == table["high"].to_pylist()
    paths = [
        r["path"] for r in json.loads((bundle.path / "datapackage.json").read_text())["resources"]
    ]
    assert "persons/patients.csv" in paths
    assert (bundle.path / "sdmx" / "patients.csv").exists()
    cover = [str(cell.value) for row in book["Cover"].iter_rows() for cell in row]
    whole = bundle.spend + ps.epsilon("50")
    assert any(f"ε = {float(whole.amount):g}:" in text for text in cover)
