"""JSON-stat 2.0: one file a table, numbers with their errors and intervals along a last side.

A table of several parts is a collection of them.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from psephos.release.formats.cubes import CodeList, Cube, Cubes
from psephos.release.formats.publication import FormatFiles, Publication, PublishedTable

JSONSTAT_FOLDER = "jsonstat"
METRIC = "measure"
MEASURED_COLUMNS = ("count", "consistent", "stderr", "low", "high")


def json_stat(publication: Publication) -> FormatFiles:
    """Every table as a cube."""
    for table in publication.counts:
        yield f"{JSONSTAT_FOLDER}/{table.stem}.json", partial(_write, publication, table)


def _write(publication: Publication, table: PublishedTable, place: Path) -> None:
    text = json.dumps(_content(publication, table), ensure_ascii=False, allow_nan=False)
    place.write_text(f"{text}\n", encoding="utf-8")


def _content(publication: Publication, shown: PublishedTable) -> dict[str, Any]:
    table, data = shown.table, shown.read()
    cubes = Cubes.of(shown.questions, table, publication.job.titles)
    lists = {each.column: each for each in cubes.columns}
    parts = [_dataset(publication, shown, cube, lists, data) for cube in cubes.parts]
    if len(parts) == 1:
        return {"version": "2.0", **parts[0]}
    return {
        "version": "2.0",
        "class": "collection",
        "label": table.title,
        **_frame(publication),
        "link": {"item": parts},
    }


def _frame(publication: Publication) -> dict[str, Any]:
    frame: dict[str, Any] = {"note": list(publication.notes)}
    if publication.job.file.publisher:
        frame["source"] = publication.job.file.publisher
    if publication.date is not None:
        frame["updated"] = publication.time_text
    if publication.job.file.edition:
        frame["extension"] = {"edition": publication.job.file.edition}
    return frame


def _dataset(
    publication: Publication,
    shown: PublishedTable,
    cube: Cube,
    lists: dict[str, CodeList],
    data: pa.Table,
) -> dict[str, Any]:
    sides: dict[str, Any] = {}
    for column, codes in cube.sides.items():
        labels = lists[column].labels
        category = {"index": list(codes), "label": {code: labels[code] for code in codes}}
        sides[column] = {"label": lists[column].title, "category": category}
    metric = METRIC
    while metric in sides:
        metric += "_"
    columns = [name for name in MEASURED_COLUMNS if name in data.column_names]
    words = publication.column_words(shown.view)
    units = {name: {"decimals": _decimals(name, shown)} for name in columns}
    category = {"index": columns, "label": {name: words[name] for name in columns}, "unit": units}
    sides[metric] = {"label": "Measure", "category": category}
    part = f": {cube.part}" if cube.part else ""
    return {
        "class": "dataset",
        "label": f"{shown.table.title}{part}",
        **_frame(publication),
        "id": list(sides),
        "size": [*map(len, cube.sides.values()), len(columns)],
        "role": {"metric": [metric]},
        "dimension": sides,
        "value": _values(data.slice(cube.first, cube.rows), columns),
    }


def _decimals(name: str, shown: PublishedTable) -> int:
    if shown.view == "persons" and name != "stderr":
        return 0
    if name == "count" and shown.whole:
        return 0
    return shown.decimals + (name == "stderr")


def _values(data: pa.Table, columns: list[str]) -> list[float]:
    """All numbers of the rows, one row after the other; whole ones without a point."""
    numbers = np.stack([data[name].to_numpy().astype(float) for name in columns], axis=1)
    return [int(value) if value.is_integer() else value for value in numbers.ravel().tolist()]
