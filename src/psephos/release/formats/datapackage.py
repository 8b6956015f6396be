"""A Data Package: one JSON file that describes the CSV files of a bundle (datapackage.org)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from psephos.release.bundle.files import sha256_of, write_json
from psephos.release.formats.columns import csv_columns, title_of
from psephos.release.formats.names import identifiers
from psephos.release.formats.publication import Publication

PACKAGE_FILE = "datapackage.json"
PROFILE = "https://datapackage.org/profiles/2.0/datapackage.json"


@dataclass(frozen=True)
class DataPackage:
    """Where each CSV file lies, its hash, and what its columns hold."""

    name: str = "datapackage"

    def files(self, publication: Publication) -> Iterator[str]:
        yield PACKAGE_FILE

    def write(self, publication: Publication, folder: Path) -> None:
        file, names = publication.job.file, list(publication.csv_files())
        slugs = identifiers([name.removesuffix(".csv") for name in names])
        content: dict[str, Any] = {
            "$schema": PROFILE,
            "name": identifiers([file.name])[0].lower(),
            "title": publication.title,
            "description": "\n\n".join((*publication.description, *publication.notes)),
        }
        if file.publisher:
            content["contributors"] = [{"title": file.publisher, "roles": ["publisher"]}]
        if file.edition:
            content["version"] = file.edition
        if publication.date is not None:
            content["created"] = publication.date.strftime("%Y-%m-%dT%H:%M:%SZ")
        content["resources"] = [
            _resource(publication, name, slug.lower())
            for name, slug in zip(names, slugs, strict=True)
        ]
        write_json(folder / PACKAGE_FILE, content)


def _resource(publication: Publication, name: str, slug: str) -> dict[str, Any]:
    place = publication.folder / name
    fields = [
        {"name": column.name, "type": column.kind, "title": column.title}
        | ({"description": column.words} if column.words else {})
        for column in csv_columns(publication, name)
    ]
    return {
        "name": slug,
        "path": name,
        "title": title_of(publication, name),
        "format": "csv",
        "mediatype": "text/csv",
        "encoding": "utf-8",
        "bytes": place.stat().st_size,
        "hash": f"sha256:{sha256_of(place)}",
        "schema": {"fields": fields, "missingValues": []},
    }
