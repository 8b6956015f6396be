"""What the columns of the CSV files hold, for programs that read them.

A Data Package (datapackage.json) says where each CSV file lies, its hash and its columns; CSV on
the Web, of the W3C, says the same in csv-metadata.json.
"""

from __future__ import annotations

import csv
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal
from urllib.parse import quote

from psephos.release.bundle.files import sha256_of, write_json
from psephos.release.formats.csv_text import defused
from psephos.release.formats.names import identifiers
from psephos.release.formats.publication import FormatFiles, Publication, ShownView
from psephos.release.spec.tables import RESERVED_COLUMNS, column_name

PACKAGE_FILE = "datapackage.json"
PROFILE = "https://datapackage.org/profiles/2.0/datapackage.json"
CSVW_FILE = "csv-metadata.json"
"""The name under which programs look for it beside CSV files."""
ColumnKind = Literal["string", "integer", "number", "boolean"]
NUMBERS: dict[str, ColumnKind] = {
    "count": "number",
    "value": "integer",
    "consistent": "number",
    "stderr": "number",
    "low": "number",
    "high": "number",
    "made_up": "boolean",
}


@dataclass(frozen=True)
class CsvColumn:
    """A column of a CSV file: its name there, what it holds, and what it is for people."""

    name: str
    kind: ColumnKind
    title: str
    words: str


@dataclass(frozen=True)
class CsvFileEntry:
    """A CSV file of a bundle: its place there, what it holds for people, and its columns."""

    name: str
    title: str
    columns: tuple[CsvColumn, ...]


def data_package(publication: Publication) -> FormatFiles:
    """The Data Package of a bundle."""
    yield PACKAGE_FILE, partial(_write_package, publication)


def csv_on_the_web(publication: Publication) -> FormatFiles:
    """The metadata of a bundle's CSV files."""
    yield CSVW_FILE, partial(_write_csvw, publication)


def _write_package(publication: Publication, place: Path) -> None:
    file, entries = publication.job.file, list(_csv_files(publication))
    slugs = identifiers([entry.name.removesuffix(".csv") for entry in entries])
    content: dict[str, Any] = {
        "$schema": PROFILE,
        "name": identifiers([file.name])[0].lower(),
        "title": publication.title,
        "description": publication.about,
    }
    if file.publisher:
        content["contributors"] = [{"title": file.publisher, "roles": ["publisher"]}]
    if file.edition:
        content["version"] = file.edition
    if publication.date is not None:
        content["created"] = publication.time_text
    content["resources"] = [
        _resource(publication.folder / entry.name, entry, slug.lower())
        for entry, slug in zip(entries, slugs, strict=True)
    ]
    write_json(place, content)


def _resource(place: Path, entry: CsvFileEntry, slug: str) -> dict[str, Any]:
    fields = [
        {"name": column.name, "type": column.kind, "title": column.title}
        | ({"description": column.words} if column.words else {})
        for column in entry.columns
    ]
    return {
        "name": slug,
        "path": entry.name,
        "title": entry.title,
        "format": "csv",
        "mediatype": "text/csv",
        "encoding": "utf-8",
        "bytes": place.stat().st_size,
        "hash": f"sha256:{sha256_of(place)}",
        "schema": {"fields": fields, "missingValues": []},
    }


def _write_csvw(publication: Publication, place: Path) -> None:
    file = publication.job.file
    content: dict[str, Any] = {
        "@context": "http://www.w3.org/ns/csvw",
        "dc:title": publication.title,
        "dc:description": publication.about,
    }
    if file.publisher:
        content["dc:publisher"] = file.publisher
    if publication.date is not None:
        content["dc:date"] = publication.date.strftime("%Y-%m-%d")
    content["tables"] = [
        {
            "url": quote(entry.name),
            "dc:title": entry.title,
            "tableSchema": {"columns": _csvw_columns(entry)},
        }
        for entry in _csv_files(publication)
    ]
    write_json(place, content)


def _csvw_columns(entry: CsvFileEntry) -> list[dict[str, Any]]:
    names = identifiers([column.name for column in entry.columns])
    return [
        {
            "name": name,
            "titles": column.name,
            "datatype": column.kind,
            "dc:description": column.words or column.title,
        }
        | ({"null": "\N{SYMBOL FOR NULL}"} if column.kind == "string" else {})
        for name, column in zip(names, entry.columns, strict=True)
    ]


def _csv_files(publication: Publication) -> Iterator[CsvFileEntry]:
    """All CSV files of the bundle, with what they and their columns hold."""
    job = publication.job
    titles = {f"persons/{job.persons_files[t.name]}": f"{t.title} (persons)" for t in job.persons}
    for view in publication.views.kinds:
        titles |= {f"{view}/{job.table_files[t.name]}": f"{t.title} ({view})" for t in job.tables}
    for name in publication.csv_files():
        folder, stem = name.removesuffix(".csv").split("/")
        title = titles.get(f"{folder}/{stem}", "Made-up rows that answer like the published tables")
        if folder == "raw":
            title = f"Measured numbers, {stem.replace('-', ' ')}"
        yield CsvFileEntry(name, title, tuple(_columns(publication, folder, name)))


def _columns(publication: Publication, folder: str, name: str) -> Iterator[CsvColumn]:
    with (publication.folder / name).open(encoding="utf-8", newline="") as file:
        heads = next(csv.reader(file))
    titles = {defused(column_name(each)): title for each, title in publication.job.titles.items()}
    view: ShownView = "consistent"
    if folder in ("published", "persons"):
        view = "published" if folder == "published" else "persons"
    words = publication.column_words(view)
    kinds = dict(NUMBERS)
    if folder == "raw":
        words |= {"value": "the noisy whole number as it was drawn"}
    elif folder == "synthetic":
        kinds = {"made_up": "boolean"}
    elif "statistic" in heads:
        kinds["value"] = "number"
    if folder in ("published", "persons"):
        kinds["count"] = "integer"
    for head in heads:
        title = head if head in RESERVED_COLUMNS else titles.get(head, head)
        yield CsvColumn(head, kinds.get(head, "string"), title, words.get(head, ""))
