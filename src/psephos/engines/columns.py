"""The names and types of a source's columns, against those that a schema needs.

Files that can be counted, and their columns: from a schema or a header line, never from a row.

A CSV's separator is found in its header line too, which is public: the one of , ; tab and | that
is there most often outside quotes, and in a tie the one that the file's name promises.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from psephos.domain.attribute import Attribute
from psephos.domain.domain import Domain
from psephos.engines.arrow import type_problem
from psephos.errors import DomainError, SourceError
from psephos.kernel.unit import Cap

PARQUET = (".parquet", ".pq")
TEXT = {".csv": ",", ".tsv": "\t"}
SEPARATORS = (",", ";", "\t", "|")
LONGEST = 1 << 20
"""Bytes of a line; what goes on beyond them is no header."""


@dataclass(frozen=True)
class Columns:
    """The names of a source's columns; of a CSV also what separates them."""

    names: tuple[str, ...]
    separator: str | None = None
    newline: str | None = None
    """How lines end, if with LF: then a stray CR ends none and takes no row along."""
    types: Any = field(default=None, compare=False, repr=False)
    """Arrow's schema of a Parquet file or a frame."""


def checked_file(path: Path) -> Path:
    """The path, if it is that of one file of a kind that can be counted."""
    if path.suffix.lower() not in (*TEXT, *PARQUET):
        raise DomainError(
            f"{path.name!r} is none of .csv, .tsv and .parquet; export the table as CSV or Parquet"
        )
    if any(mark in str(path) for mark in "*?["):
        raise DomainError(f"{str(path)!r} holds one of * ? [, which stand for many files; rename")
    if not path.is_file():
        raise SourceError(
            f"there is no file {path.name!r} in {path.absolute().parent}; correct the path (in a "
            "release file, `source`)"
        )
    return path


def file_columns(path: Path) -> Columns:
    """The columns of a Parquet file's schema or a CSV's first line; no row is looked at.

    Names in a CSV are taken without the blanks around them.
    """
    if path.suffix.lower() in PARQUET:
        try:
            # Without its notes, which may tell the number of rows.
            schema = pq.read_schema(path).remove_metadata()
        except (OSError, pa.ArrowException):
            raise _without_columns(path, "is it a Parquet file?") from None
        return Columns(tuple(schema.names), types=schema)
    try:
        with path.open("rb") as file:
            line = file.readline(LONGEST)
        header = _text(_first_line(line), path)
        separator = _separator(header, TEXT[path.suffix.lower()])
        # Strictly: an open quote is refused, for read on, rows would be taken for names.
        read = csv.reader([header], delimiter=separator, strict=True)
        names = tuple(map(str.strip, next(read, ())))
    except (OSError, csv.Error):
        why = "its first line cannot be read as column names: is a quote not closed there?"
        raise _without_columns(path, why) from None
    if not any(names):
        raise _without_columns(path, "it needs a header, a first line of column names")
    plain = line.endswith(b"\n") and b"\r" not in line.rstrip(b"\r\n")
    return Columns(names, separator, "\\n" if plain else None)


def _without_columns(path: Path, why: str) -> SourceError:
    return SourceError(f"{path.name!r} has no columns that can be read; {why}")


def _first_line(line: bytes) -> bytes:
    """The header, however lines end."""
    return line.rstrip(b"\r\n").partition(b"\r")[0]


def _text(line: bytes, path: Path) -> str:
    """A line of the header; bytes that are no text are refused without a look at what follows."""
    try:
        text = line.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise SourceError(
            f"the first line of {path.name!r} is not in UTF-8; save the file as UTF-8 (in a "
            'spreadsheet: "CSV UTF-8")'
        ) from None
    if re.search(r"[\x00-\x08\x0e-\x1f]", text):
        raise SourceError(
            f"{path.name!r} is not a CSV or Parquet file: its first line is no text; export the "
            "table as CSV, in UTF-8"
        )
    return text


def _separator(line: str, promised: str) -> str:
    bare = re.sub(r'"(?:[^"]|"")*"', "", line)
    return max((promised, *SEPARATORS), key=bare.count)


def columns_of(domain: Domain) -> Iterator[tuple[str, Attribute]]:
    """The columns that fill a domain, in order; a merged attribute is filled by its parts.

    >>> [name for name, _ in columns_of(Domain.of(a=2, b=3, c=4).merge(["a", "c"]))]
    ['a', 'c', 'b']
    """
    for name, attribute in zip(domain.names, domain.attributes, strict=True):
        if attribute.parts:
            names, attributes = zip(*attribute.parts, strict=True)
            yield from columns_of(Domain(names, attributes))
        else:
            yield name, attribute


def needed_columns(domain: Domain, cap: Cap | None) -> tuple[str, ...]:
    """The names that a source must have, once each, to be counted."""
    person = [] if cap is None else [cap.column]
    return tuple(dict.fromkeys([*(name for name, _ in columns_of(domain)), *person]))


def column_problems(columns: Columns, needed: tuple[str, ...]) -> dict[str, str]:
    """What is wrong with the needed columns of a source; public names and types only.

    >>> column_problems(Columns(("Age", "sex", "sex")), ("age", "sex"))
    {'age': "no column 'age'; close to it: 'Age'", 'sex': "column 'sex' is there 2 times"}
    """
    problems, have = {}, columns.names
    for name in needed:
        if have.count(name) > 1:
            problems[name] = f"column {name!r} is there {have.count(name)} times"
        elif name not in have:
            folded = {other.casefold(): other for other in have}
            close = [folded[c] for c in get_close_matches(name.casefold(), folded, n=3)]
            hint = f"; close to it: {', '.join(map(repr, close))}" if close else ""
            problems[name] = f"no column {name!r}{hint}"
        elif columns.types is not None:
            problem = type_problem(name, columns.types.field(have.index(name)).type)
            if problem is not None:
                problems[name] = problem
    return problems
