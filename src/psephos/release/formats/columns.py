"""The columns of a bundle's CSV files, for programs that read them."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pyarrow as pa

from psephos.release.formats.csv_text import defused
from psephos.release.formats.publication import Publication, ShownView
from psephos.release.spec.tables import RESERVED_COLUMNS, column_name

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


def csv_columns(publication: Publication, name: str) -> list[CsvColumn]:
    """The columns of a CSV file of the bundle."""
    folder = Path(name).parent.name
    with (publication.folder / name).open(encoding="utf-8", newline="") as file:
        heads = next(csv.reader(file))
    titles = {column_name(each): title for each, title in publication.titles.items()}
    view: ShownView = "consistent"
    if folder in ("published", "persons"):
        view = "published" if folder == "published" else "persons"
    words = number_words(publication, view)
    if folder == "raw":
        words |= {"value": "the noisy whole number as it was drawn"}
    columns = []
    statistics = "statistic" in heads and folder not in ("raw", "synthetic")
    for head in heads:
        kind = NUMBERS.get(head, "string")
        if statistics and head == "value":
            kind = "number"
        if folder in ("published", "persons") and head == "count":
            kind = "integer"
        if folder == "synthetic" and head != "made_up":
            kind = "string"
        column = next((each for each in titles if defused(each) == head), head)
        title = head if head in RESERVED_COLUMNS else titles.get(column, head)
        columns.append(CsvColumn(head, kind, title, words.get(head, "")))
    return columns


def number_columns(data: pa.Table) -> list[str]:
    """The columns of a table's numbers, its count first."""
    return [name for name in data.column_names if name in NUMBERS and name != "made_up"]


def number_words(publication: Publication, view: ShownView) -> dict[str, str]:
    """What the columns of numbers hold."""
    ends = f"of the {publication.confidence} interval, which covers the privacy noise alone"
    whole = "" if view == "consistent" else ": whole, never negative"
    counted = "persons" if view == "persons" else "rows"
    return {
        "part": "which part of the table",
        "statistic": "what the number is",
        "unit": "what the number is in",
        "value": "the number, from counts and sums with noise",
        "count": f"number of {counted}, with noise{whole}",
        "consistent": "the same before it was made whole and non-negative",
        "stderr": "standard deviation of the noise",
        "low": f"lower end {ends}",
        "high": f"upper end {ends}",
        "made_up": "a rehearsal: all numbers are made up",
    }


def title_of(publication: Publication, name: str) -> str:
    """What a CSV file of the bundle holds, for people."""
    folder, stem = Path(name).parent.name, Path(name).stem
    if folder == "raw":
        return f"Measured numbers, {stem.replace('-', ' ')}"
    if folder == "synthetic":
        return "Made-up rows that answer like the published tables"
    if folder == "persons":
        stems = publication.job.persons_files
        titles = {stems[table.name]: table.title for table in publication.job.persons}
        return f"{titles[stem]} (persons)"
    tables = {publication.files.stems[table.name]: table.title for table in publication.job.tables}
    return f"{tables[stem]} ({folder})"
