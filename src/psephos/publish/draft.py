"""A first release file from a table's own schema: names and types, never an entry.

Of a CSV file only the header line is read, of a Parquet file only its schema. What the values can
be is public knowledge that a person has to bring: every such fact is left open and marked.
"""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet

from psephos.errors import ReleaseError, SourceError

LONGEST = 1 << 20


def draft(source: str | os.PathLike[str], *, beside: str | os.PathLike[str] = ".") -> str:
    """The text of a release file for a table, with every public fact left for a person to confirm.

    Args:
        source: a CSV or Parquet file
        beside: the folder in which the release file will lie
    """
    place = Path(source)
    columns = column_types(place)
    shown = os.path.relpath(place, beside)
    name = place.stem
    head = HEAD.format(
        name=_text(name),
        source=_text(shown),
        ledger=_text(f"{name}.ledger"),
        table=_text(columns[0][0]),
    )
    return head + "\n".join(_attribute(column, kind) for column, kind in columns)


def column_types(place: Path) -> list[tuple[str, str]]:
    """Names and kinds of a table's columns: bool, int, float, text or unknown."""
    if not place.exists():
        raise SourceError(f"there is no file {place}; give the path of a CSV or Parquet file")
    if place.suffix.lower() in (".parquet", ".pq"):
        try:
            schema = pa.parquet.read_schema(place)
        except (OSError, pa.ArrowException):
            raise SourceError(f"{place} is no Parquet file, or a damaged one") from None
        columns = [(field.name, _kind(field.type)) for field in schema]
    else:
        columns = [(name, "unknown") for name in _header(place)]
    if not columns:
        raise SourceError(f"{place} has no columns")
    return columns


def _header(place: Path) -> list[str]:
    """The first line of a CSV file, if it can be a header; nothing below it is read."""
    try:
        with place.open(encoding="utf-8-sig", newline="") as file:
            line = file.readline(LONGEST)
    except (OSError, UnicodeDecodeError):
        raise SourceError(f"{place} cannot be read as text in UTF-8") from None
    if not line.strip():
        raise SourceError(f"{place} is empty; a CSV file starts with a line of column names")
    try:
        delimiter = csv.Sniffer().sniff(line, delimiters=",;\t|").delimiter
    except csv.Error:
        delimiter = ","
    try:
        names = [name.strip() for name in next(csv.reader([line], delimiter=delimiter))]
    except csv.Error:
        raise SourceError(
            f"the first line of {place} cannot be read as column names; add a header line"
        ) from None
    if any(not name or _is_number(name) for name in names) or len(set(names)) < len(names):
        # The names are not repeated here: without a header they would be a row of the data.
        raise SourceError(
            f"the first line of {place} does not look like column names (a name is empty, a number "
            "or there twice); add a header line"
        )
    return names


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _kind(arrow: pa.DataType) -> str:
    if pa.types.is_boolean(arrow):
        return "bool"
    if pa.types.is_integer(arrow):
        return "int"
    if pa.types.is_floating(arrow) or pa.types.is_decimal(arrow):
        return "float"
    return "text" if pa.types.is_string(arrow) or pa.types.is_large_string(arrow) else "unknown"


SUGGESTIONS = {
    "bool": "values = [false, true]",
    "int": "integers = [0, 99]                # first and last, both included",
    "float": "bins = [0, 10, 100, inf]           # edges; each bin holds its lower edge",
    "text": 'values = ["a", "b"]                # every value that can occur',
    "unknown": 'values = ["a", "b"]                # or integers = [0, 99], or bins = [0, 10, inf]',
}


def _attribute(name: str, kind: str) -> str:
    return (
        f"[schema.{_key(name)}]\n"
        "confirmed = false                  # CONFIRM: write what can occur, delete this line\n"
        f"# {SUGGESTIONS[kind]}\n"
        '# unknown = "other"                # entries not declared: drop (default), clip or other\n'
        '# fact = ""                        # why this is public knowledge, e.g. "the code book"\n'
    )


def _key(name: str) -> str:
    bare = name.isascii() and name.replace("_", "").replace("-", "").isalnum()
    return name if bare else _text(name)


def _text(text: str) -> str:
    """A basic string of TOML: JSON's escapes are among its own."""
    if any(ord(c) == 0x7F for c in text):
        raise ReleaseError(f"{text!r} holds a control character; rename it")
    return json.dumps(text, ensure_ascii=False)


HEAD = """\
# A draft, made from the names and types of the columns alone: no entry of the data was read.
# What is marked CONFIRM is for a person who knows what may be public. Then:
#   psephos check release.toml --create-ledger    the owner compares schema and data, in private
#   psephos plan release.toml                     the error of every table, before anything is spent
#   psephos rehearse release.toml                 the whole run on made-up data
#   psephos release release.toml                  the real one

name = {name}
title = ""
publisher = ""
source = {source}

[privacy]                          # CONFIRM: whose presence must not show?
# unit = "add_remove_row"          # or "substitute_row", or "person" with the two lines below
# column = "person_id"             # the column that names a person
# max_rows = 3                     # the most rows of one person that count

[ledger]                           # made once for this data set; unit and budget are for life
path = {ledger}
dataset = {name}
# epsilon = "..."                  # CONFIRM: all that may ever be spent on these data

[budget]                           # what this release spends; or delete it and give tables targets
# epsilon = "..."                  # CONFIRM

[[tables]]
name = "first table"
rows = [{table}]
# columns = ["..."]
# or: sql = "SELECT a, b, COUNT(*) FROM t WHERE c > 3 GROUP BY a, b"
# target = {{ plus_minus = 50 }}     # instead of [budget]: +- 50 at 95 % for every count

# ---- the columns: delete those that no table asks about -----------------------------------------

"""
