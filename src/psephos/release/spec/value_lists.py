"""Values and levels of a column from a public list beside the release file.

A geography of thousands of parts is a file that somebody publishes: one line for each value, the
value first, and a column for each coarser level. What it says becomes part of the release as if it
had been written out, so that a bundle needs no other file.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

from psephos.errors import ReleaseError
from psephos.release.bundle.files import JSON_BYTES

MOST_LINES_OF_LIST = 10**6


def with_value_lists(content: Any, folder: Path) -> Any:
    """A release file's content with every `list = "counties.csv"` read in."""
    schema = content.get("schema") if isinstance(content, dict) else None
    if not isinstance(schema, dict):
        return content
    columns = {
        name: _read_in(name, entry, folder)
        if isinstance(entry, dict) and "list" in entry
        else entry
        for name, entry in schema.items()
    }
    return {**content, "schema": columns}


def _read_in(name: str, entry: dict[str, Any], folder: Path) -> dict[str, Any]:
    place, rest = entry["list"], {key: value for key, value in entry.items() if key != "list"}
    where = f"schema.{name}.list"
    if not isinstance(place, str) or not place:
        raise ReleaseError(f'{where}: must be a file beside this one, such as "counties.csv"')
    if "values" in rest:
        raise ReleaseError(f"{where}: the list has the values; take `values` out")
    heads, *lines = _lines(folder / place, where)
    if not lines or len(heads) != len(set(heads)):
        raise ReleaseError(
            f"{where}: {place} needs a heading for each column, each its own, and a line for each "
            "value: the value first, then the group of each coarser level"
        )
    levels: dict[str, dict[str, list[str]]] = {head: {} for head in heads[1:]}
    for number, line in enumerate(lines, 2):
        if len(line) != len(heads):
            raise ReleaseError(
                f"{where}: line {number} of {place} has {len(line)} entries, and there are "
                f"{len(heads)} headings"
            )
        if not all(line):
            raise ReleaseError(f"{where}: line {number} of {place} has an empty entry")
        for head, group in zip(heads[1:], line[1:], strict=True):
            levels[head].setdefault(group, []).append(line[0])
    twice = set(levels) & set(rest.get("levels", {}))
    if twice:
        raise ReleaseError(f"{where}: level {min(twice)!r} is in the list and in `levels`")
    return {
        **rest,
        "values": [line[0] for line in lines],
        "levels": {**levels, **rest.get("levels", {})},
    }


def _lines(place: Path, where: str) -> list[list[str]]:
    try:
        with place.open(encoding="utf-8-sig", newline="") as file:
            text = file.read(JSON_BYTES + 1)
        if len(text) > JSON_BYTES:
            raise csv.Error(f"it has over {JSON_BYTES:,} characters, and so would the release")
        lines = [line for line in csv.reader(io.StringIO(text, newline="")) if line]
    except FileNotFoundError:
        raise ReleaseError(f"{where}: there is no file {place.name} beside this one") from None
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise ReleaseError(f"{where}: {place.name} cannot be read: {error}") from None
    if not 1 < len(lines) <= MOST_LINES_OF_LIST:
        raise ReleaseError(
            f"{where}: {place.name} has {len(lines):,} lines; a heading and 1 to "
            f"{MOST_LINES_OF_LIST:,} values are read"
        )
    return lines
