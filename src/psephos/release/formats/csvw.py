"""CSV on the Web (W3C): one JSON file that says what the columns of the CSV files hold."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from psephos.release.bundle.files import write_json
from psephos.release.formats.columns import csv_columns, title_of
from psephos.release.formats.names import identifiers
from psephos.release.formats.publication import Publication

CSVW_FILE = "csv-metadata.json"
"""The name under which programs look for it beside CSV files."""


@dataclass(frozen=True)
class CsvOnTheWeb:
    """A group of tables with the schema of each."""

    name: str = "csvw"

    def files(self, publication: Publication) -> Iterator[str]:
        yield CSVW_FILE

    def write(self, publication: Publication, folder: Path) -> None:
        file = publication.job.file
        content: dict[str, Any] = {
            "@context": "http://www.w3.org/ns/csvw",
            "dc:title": publication.title,
            "dc:description": "\n\n".join((*publication.description, *publication.notes)),
        }
        if file.publisher:
            content["dc:publisher"] = file.publisher
        if publication.date is not None:
            content["dc:date"] = publication.date.strftime("%Y-%m-%d")
        content["tables"] = [_table(publication, name) for name in publication.csv_files()]
        write_json(folder / CSVW_FILE, content)


def _table(publication: Publication, name: str) -> dict[str, Any]:
    columns = csv_columns(publication, name)
    names = identifiers([column.name for column in columns])
    return {
        "url": quote(name),
        "dc:title": title_of(publication, name),
        "tableSchema": {
            "columns": [
                {
                    "name": name,
                    "titles": column.name,
                    "datatype": column.kind,
                    "dc:description": column.words or column.title,
                }
                | ({"null": "\N{SYMBOL FOR NULL}"} if column.kind == "string" else {})
                for name, column in zip(names, columns, strict=True)
            ]
        },
    }
