"""One contract for all formats: every number with its interval, hostile labels, the same twice."""

import csv
import json
from itertools import product
from pathlib import Path
from typing import get_args

import openpyxl
import pytest
from openpyxl.utils.escape import unescape

import psephos as ps
from psephos.release.formats.csv_text import defused
from psephos.release.formats.registry import FILE_FORMATS, write_format
from psephos.release.spec.entries import TABLE_FORMATS, Format
from psephos.release.verify.files import publication_of
from tests.release.conftest import RELEASE, write_job

HOSTILE = [
    "=1+1", "+1 2", "-2+3", "@SUM(A1)", "'=x", "''-y", "＝1", " =z", "a\nb", 'q"q', "a,b", "a;b",
    "<b>&amp;", "_x0041_", " lead", "trail ", "𝔸", "{=1}", "\tx", "-5", "C3", "total", "_T", "cat",
]  # fmt: skip
FORMATS = f"formats = {json.dumps(get_args(Format))}"
TEXT = f"""
name = "hostile: names"
title = "=HYPERLINK(1)"
publisher = "=The town"
edition = "@2025"
description = "-one\\n\\n+two"
facts = ["=fact"]

[privacy]
unit = "add_remove_row"

[ledger]
path = "people.ledger"
dataset = "people"
epsilon = "2"

[budget]
epsilon = "0.7"

[schema.kind]
title = "=Kind"
values = {json.dumps(HOSTILE, ensure_ascii=False)}

[schema.count]
integers = [-2, 1]

[schema."=size"]
bins = [0, 5, 10]

[[tables]]
name = "=kind/by:size [the longest name of a sheet there is]"
rows = ["kind"]
columns = ["=size"]

[[tables]]
name = "history"
title = "'Both"
builder = "marginals"
up_to = 2

[[tables]]
name = "CON"
queries = {{ count = "prefix" }}

[selection]
strategy = "identity"

[output]
{FORMATS}
"""
TOTALS = ("total", "(total)")


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return ps.rehearse(write_job(tmp_path_factory.mktemp("formats") / "job", TEXT, "kind\n"))


def test_the_bundle_verifies(bundle):
    checks = ps.verify(bundle.path).checks
    assert [check for check in checks if not check.ok] == []
    assert checks[-1].text.startswith("wide, xlsx, datapackage, csvw, jsonstat, sdmx: made again")


# ---- what readers get --------------------------------------------------------------------------


def rows_of(bundle, table):
    """Labels without totals for what a part does not look at, and numbers, as rounded for CSV."""
    shown = next(t for t in publication_of(bundle).tables if t.table.name == table.name)
    return shown.read().to_pylist()


def read_package(bundle, table):
    import frictionless

    package = frictionless.Package(str(bundle.path / "datapackage.json"))
    (resource,) = [
        r
        for r in package.resources
        if r.path == f"published/{bundle.job.table_files[table.name]}.csv"
    ]
    return resource.read_rows()


def read_csvw(bundle, table):
    import csvw

    group = csvw.TableGroup.from_file(str(bundle.path / "csv-metadata.json"))
    (found,) = [
        t for t in group.tables if str(t.url).endswith(f"published/{quoted(bundle, table)}.csv")
    ]
    names = {c.name: c.titles.getfirst() for c in found.tableSchema.columns}
    return [{names[key]: value for key, value in row.items()} for row in found]


def quoted(bundle, table):
    from urllib.parse import quote

    return quote(bundle.job.table_files[table.name])


def read_jsonstat(bundle, table):
    """All cells of the cubes as rows of the long table."""
    content = json.loads(
        (bundle.path / "jsonstat" / f"{bundle.job.table_files[table.name]}.json").read_text()
    )
    cubes = content["link"]["item"] if content["class"] == "collection" else [content]
    rows = []
    for cube in cubes:
        *names, metric = cube["id"]
        sides = [cube["dimension"][name]["category"] for name in names]
        numbers = cube["dimension"][metric]["category"]["index"]
        values = iter(cube["value"])
        assert cube["size"] == [*(len(s["index"]) for s in sides), len(numbers)]
        for codes in product(*(side["index"] for side in sides)):
            labels = [s["label"][code] for s, code in zip(sides, codes, strict=True)]
            row = dict(zip(names, labels, strict=True))
            rows.append(row | {name: next(values) for name in numbers})
        assert next(values, None) is None
    return rows


def read_sdmx(bundle, table):
    from pysdmx.io import get_datasets

    place = bundle.path / "sdmx"
    (dataset,) = get_datasets(
        str(place / f"{bundle.job.table_files[table.name]}.csv"), str(place / "structure.json")
    )
    parts = {c.id: c for c in dataset.structure.components}
    rows = []
    for row in dataset.data.to_dict("records"):
        labels = {}
        for name, component in parts.items():
            if component.role.name == "DIMENSION":
                codes = {code.id: code.name for code in component.enumeration.items}
                labels[f"label of {name}"] = codes[row[name]]
        numbers = {"count": float(row["OBS_VALUE"])}
        numbers |= {n: float(row[n.upper()]) for n in ("consistent", "stderr", "low", "high")}
        rows.append(labels | numbers)
    return rows


def read_csv_file(bundle, table):
    place = bundle.path / "published" / f"{bundle.job.table_files[table.name]}.csv"
    with place.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


LONG = {
    "csv": read_csv_file,
    "datapackage": read_package,
    "csvw": read_csvw,
    "jsonstat": read_jsonstat,
    "sdmx": read_sdmx,
}


@pytest.mark.parametrize("name", LONG)
def test_every_number_is_there_with_its_interval(bundle, name):
    for table in bundle.job.tables:
        rows, expected = LONG[name](bundle, table), rows_of(bundle, table)
        assert len(rows) == len(expected)
        for row, right in zip(rows, expected, strict=True):
            for number in ("count", "consistent", "stderr", "low", "high"):
                assert float(row[number]) == float(right[number]), (name, table.name, number)
            labels = [right[key] for key in ("kind", "count_", "=size") if key in right]
            if name in ("csv", "datapackage", "csvw"):
                labels = [defused(label) for label in labels]
            there = {*row.values(), *TOTALS}  # parts that do not look at a column
            assert set(labels) <= there, (name, right, row)


def test_no_field_of_a_csv_file_is_a_formula(bundle):
    for place in bundle.path.rglob("*.csv"):
        with place.open(encoding="utf-8", newline="") as file:
            for field in (field for line in csv.reader(file) for field in line):
                number = field.replace("–", "").replace("-", "").replace(".", "").isdigit()
                assert number or field.lstrip(" ")[:1] not in tuple("=+-@＝\t\r"), field


def test_tables_come_back_from_csv_as_they_were(bundle, tmp_path):
    place = write_job(tmp_path / "job", TEXT.replace('"csv", "parquet"', '"csv"'), "kind\n")
    other = ps.rehearse(place)
    assert ps.verify(other.path).ok
    for table in bundle.job.tables:
        for view in ("consistent", "published"):
            exact, rounded = bundle.table(table.name, view), other.table(table.name, view)
            assert exact.schema == rounded.schema
            names = [n for n in exact.column_names if n not in ("count", "consistent", "stderr")]
            labels = [n for n in names if n not in ("low", "high")]
            assert exact.select(labels).equals(rounded.select(labels))


# ---- Excel -------------------------------------------------------------------------------------


def test_a_workbook_has_every_number_beside_its_margin(bundle):
    book = openpyxl.load_workbook(bundle.path / "tables.xlsx")
    assert len(book.sheetnames) == 1 + len(bundle.job.tables)
    for name, table in zip(book.sheetnames[1:], bundle.job.tables, strict=True):
        cells = [cell for row in book[name].iter_rows() for cell in row if cell.value is not None]
        assert {cell.data_type for cell in cells} <= {"s", "n", "inlineStr"}
        numbers = [cell for cell in cells if cell.data_type == "n"]
        counts = [cell for cell in numbers if "±" not in cell.number_format]
        margins = [cell for cell in numbers if "±" in cell.number_format]
        rows = rows_of(bundle, table)
        assert sorted(cell.value for cell in counts) == sorted(row["count"] for row in rows)
        assert len(margins) == len(rows)
        # Where an interval is cut at zero, the margin is that of the interval before it.
        pairs = sorted((c.value, float(m.value)) for c, m in zip(counts, margins, strict=True))
        least = sorted(
            (r["count"], max(r["high"] - r["count"], r["count"] - r["low"])) for r in rows
        )
        assert all(m >= cut - 1e-6 for (_, m), (_, cut) in zip(pairs, least, strict=True))


def test_hostile_labels_are_texts_in_a_workbook(bundle):
    book = openpyxl.load_workbook(bundle.path / "tables.xlsx")
    cells = [cell for row in book[book.sheetnames[1]].iter_rows() for cell in row]
    texts = {unescape(cell.value) for cell in cells if isinstance(cell.value, str)}
    assert set(HOSTILE) <= texts
    cover = {cell.value: cell for row in book["Cover"].iter_rows() for cell in row}
    assert cover["Rehearsal on made-up data: =HYPERLINK(1)"].data_type == "s"
    for text in ("=The town", "@2025", "-one", "+two", "=fact"):
        assert cover[text].data_type == "s", text
    links = {cell.value: cell.hyperlink for cell in book["Cover"]["A"] if cell.hyperlink}
    assert list(links) == book.sheetnames[1:]
    for name in book.sheetnames[1:]:
        assert links[name].location == f"'{name}'!A1"
        assert len(name) <= 31
        assert name.casefold() != "history"


def test_totals_are_last_and_bold(bundle):
    book = openpyxl.load_workbook(bundle.path / "tables.xlsx")
    sheet = book[book.sheetnames[1]]
    labels = [row for row in sheet.iter_rows(min_col=1, max_col=1) if row[0].value == "(total)"]
    (total,) = [row[0] for row in labels]
    assert total.font.bold
    assert sheet.freeze_panes == "B6"
    below = sheet.cell(total.row + 1, 1).value
    assert below is None
    heads = [cell.value for cell in sheet[4] if cell.value]
    assert heads[-1] == "total"


# ---- the family --------------------------------------------------------------------------------


def test_all_formats_are_listed():
    assert set(FILE_FORMATS) | set(TABLE_FORMATS) == set(get_args(Format))


@pytest.mark.parametrize("each", FILE_FORMATS)
def test_the_same_release_gives_the_same_files(bundle, tmp_path, each):
    publication = publication_of(bundle)
    names = {name for name, _ in FILE_FORMATS[each](publication)}
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        write_format(publication, each, tmp_path / folder)
        there = {p.relative_to(tmp_path / folder) for p in (tmp_path / folder).rglob("*.*")}
        assert there == set(map(Path, names))
    for name in names:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_tables_without_intervals(tmp_path):
    text = RELEASE.replace("[selection]", f'[output]\nconsistency = "linf"\n{FORMATS}\n[selection]')
    text = text.replace("zeros = [\"age < 6 AND pet = 'horse'\"]\n", "")
    bundle = ps.rehearse(write_job(tmp_path / "job", text))
    assert ps.verify(bundle.path).ok
    book = openpyxl.load_workbook(bundle.path / "tables.xlsx")
    cover = [cell.value for row in book["Cover"].iter_rows() for cell in row]
    assert any(str(text).startswith("How far these numbers are off is not known") for text in cover)
    assert not any("±" in str(cell.value) for row in book["pets"].iter_rows() for cell in row)
