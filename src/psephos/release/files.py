"""Files of a bundle read with care: strictly, and never more of them than the release implies.

A bundle comes from anyone. Sizes are looked at before memory is taken for what lies in a file;
whatever is wrong with it is a ReleaseError that names the file.

Files of a bundle on their way to disk: names, JSON, hashes, and waiting until they are there.

What a Parquet file says of its rows and packing, read without Arrow.

Arrow ends the process when it is asked how a column with a damaged footer is packed, so the few
numbers that are looked at before anything is read are read here: the footer is one struct in
Thrift's compact protocol (https://github.com/apache/thrift, doc/specs), its fields numbered as in
parquet.thrift.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from psephos.errors import PsephosError, ReleaseError
from psephos.values import Array

CELLS = "cells"
"""The file of whole numbers for every cell, beside those of the tables."""


LONGEST = 80
"""Bytes of a table's name in the name of its file; disks have room for 255."""


def file_name(name: str) -> str:
    """A table's name as a file's name."""
    safe = re.sub(r"[^\w.-]+", "-", name).strip("-.") or "table"
    mark = hashlib.sha256(name.encode()).hexdigest()[:8]
    # A mark keeps apart what is cut or cleaned to the same, and from the file of all cells.
    own = safe == name and len(name.encode()) <= LONGEST and name != CELLS
    return name if own else f"{safe.encode()[:LONGEST].decode(errors='ignore')}-{mark}"


def write_json(path: Path, content: Any) -> None:
    """Plain values as JSON, in their order."""
    path.write_text(json_text(content), encoding="utf-8")


def json_text(content: Any) -> str:
    """Plain values as a JSON file has them."""
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def sha256_of(path: Path) -> str:
    """The hash of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_all(folder: Path) -> None:
    """Wait until all files of a folder are on disk."""
    for file in folder.rglob("*"):
        if file.is_file():
            with file.open("rb") as held:
                os.fsync(held.fileno())
        else:
            sync_folder(file)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


MAGIC = b"PAR1"
CODECS = {0, 1}
"""Uncompressed and Snappy, as files are written; others can make a few bytes fill any memory."""
ENCODINGS = {0, 2, 3, 4, 8}
"""Plain, dictionaries, run lengths; not those that write texts by what they share."""
DEPTH = 16


@dataclass(frozen=True)
class Footer:
    """What is looked at before anything else of a file is read."""

    rows: set[int]
    """Of the file, and of its parts together."""
    unpacked: int
    """The bytes of all pages."""
    plain: bool
    """Are they packed as files are written?"""
    notes: set[bytes]
    """The keys of what is noted besides."""

    @classmethod
    def read(cls, place: Path) -> Footer:
        """The footer of a file; a ValueError if there is none."""
        with place.open("rb") as file:
            end = file.seek(-8, 2)
            size, magic = struct.unpack("<I4s", file.read(8))
            if magic != MAGIC or size > end:
                raise ValueError("no Parquet file")
            file.seek(end - size)
            content = file.read(size)
        try:
            fields = _Compact(content).struct(0)
            return cls._of(fields)
        except (IndexError, KeyError, TypeError, AttributeError, struct.error):
            raise ValueError("a damaged footer") from None

    @classmethod
    def _of(cls, fields: dict[int, Any]) -> Footer:
        groups = fields[4]
        columns = [column for group in groups for column in group[1]]
        packing = [column[3] for column in columns]
        plain = all(
            set(column) <= {2, 3, 4, 5, 6, 7} and own[4] in CODECS and set(own[2]) <= ENCODINGS
            for column, own in zip(columns, packing, strict=True)
        )
        rows = {fields[3], sum(group[3] for group in groups)}
        sizes = [own[6] for own in packing]
        notes = {note[1] for note in fields.get(5, [])}
        return cls(rows, sum(sizes), plain and min(sizes, default=0) >= 0, notes)


class _Compact:
    """Thrift's compact protocol, as far as Parquet uses it: structs are dicts by field number."""

    def __init__(self, content: bytes) -> None:
        self.content, self.at = content, 0

    def byte(self) -> int:
        self.at += 1
        return self.content[self.at - 1]

    def varint(self) -> int:
        number = shift = 0
        while True:
            part = self.byte()
            number |= (part & 127) << shift
            shift += 7
            if part < 128:
                return number
            if shift > 63:
                raise ValueError("a number without end")

    def integer(self) -> int:
        number = self.varint()
        return (number >> 1) ^ -(number & 1)

    def binary(self) -> bytes:
        size = self.varint()
        if size > len(self.content) - self.at:
            raise ValueError("a text without end")
        self.at += size
        return self.content[self.at - size : self.at]

    def struct(self, depth: int) -> dict[int, Any]:
        fields: dict[int, Any] = {}
        number = 0
        while head := self.byte():
            number = number + (head >> 4) if head >> 4 else self.integer()
            kind = head & 15
            fields[number] = kind == 1 if kind in (1, 2) else self.value(kind, depth + 1)
        return fields

    def value(self, kind: int, depth: int) -> Any:
        if depth > DEPTH:
            raise ValueError("structs in structs without end")
        if kind in (1, 2, 3):
            return self.byte()
        if kind in (4, 5, 6):
            return self.integer()
        if kind == 7:
            self.at += 8
            return None
        if kind == 8:
            return self.binary()
        if kind == 9:
            head = self.byte()
            size = head >> 4 if head >> 4 < 15 else self.varint()
            if size > len(self.content):
                raise ValueError("a list without end")
            return [self.value(head & 15, depth + 1) for _ in range(size)]
        if kind == 12:
            return self.struct(depth + 1)
        raise ValueError(f"no Parquet footer has a value of kind {kind}")


JSON_BYTES = 2**24
"""The longest JSON file."""
DIGITS = 400
"""The longest number in a JSON file; floats have at most 309 digits before the point."""
FREE_BYTES = 2**24
"""What a table's file may take however few its rows: names of columns, and Parquet's own pages."""
ENTRY_BYTES = 500
"""What an entry of a table may take on top of that, on average."""
WORDS = "get the bundle again"


@contextmanager
def told_of(place: Path) -> Iterator[None]:
    """Whatever else goes wrong with what a file or folder holds is said in one way."""
    try:
        yield
    except PsephosError:
        raise
    except Exception as error:
        raise ReleaseError(f"{place} is damaged ({type(error).__name__}); {WORDS}") from error


def read_json(place: Path) -> Any:
    """The content of a JSON file: each key once, every number finite, nothing without end."""
    try:
        _check_size(place, JSON_BYTES)
        content = json.loads(
            place.read_text(encoding="utf-8"),
            parse_constant=_no_number,
            parse_float=_finite,
            parse_int=_whole,
            object_pairs_hook=_each_once,
        )
        json.dumps(content, ensure_ascii=False).encode()  # refuses halves of characters
    except ReleaseError:
        raise
    except RecursionError:
        raise ReleaseError(f"{place} is damaged: lists lie in lists without end; {WORDS}") from None
    except UnicodeError:
        raise ReleaseError(f"{place} is damaged: it is not UTF-8; {WORDS}") from None
    except FileNotFoundError:
        raise ReleaseError(f"{place} is missing; {WORDS}") from None
    except (OSError, ValueError) as error:
        why = f": {error}" if isinstance(error, _FlawError) else ""
        raise ReleaseError(f"{place} is damaged{why}; {WORDS}") from None
    return content


class _FlawError(ValueError):
    """What is wrong with a file, in words."""


def _no_number(word: str) -> NoReturn:
    raise _FlawError(f"{word} is no number")


def _finite(text: str) -> float:
    if len(text) > DIGITS or not math.isfinite(float(text)):
        raise _FlawError(f"{text[:20]} … is no number of a release")
    return float(text)


def _whole(text: str) -> int:
    if len(text) > DIGITS:
        raise _FlawError(f"a number has {len(text):,} digits")
    return int(text)


def _each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise _FlawError("a key is there twice")
    return content


def _check_size(place: Path, limit: int) -> None:
    """Refuse what is no file, or a longer one than it could be."""
    if not place.is_file():
        raise FileNotFoundError(place)
    size = place.stat().st_size
    if size > limit:
        raise ReleaseError(f"{place} has {size:,} bytes, and could have {limit:,}; {WORDS}")


def read_parquet(place: Path, schemas: tuple[pa.Schema, ...], rows: int) -> pa.Table:
    """The table in a Parquet file, if it has one of these schemas and so many rows."""
    try:
        most = FREE_BYTES + ENTRY_BYTES * rows * max(len(schema) for schema in schemas)
        _check_size(place, most)
        _check_footer(place, rows, most)
        schema = pa.parquet.read_schema(place).remove_metadata()
        if schema not in schemas:
            raise ReleaseError(f"{place} has other columns than were written; {WORDS}")
        texts = [field.name for field in schema if pa.types.is_string(field.type)]
        # Texts stay numbers of a dictionary until it is known how long they are together.
        with pa.parquet.ParquetFile(place, read_dictionary=texts) as file:
            table = file.read(use_threads=False)
        if table.num_rows != rows or sum(_text_bytes(table[name]) for name in texts) > most:
            raise ReleaseError(f"{place} holds more than the release does; {WORDS}")
        table = table.cast(schema)
        table.validate(full=True)  # text that is not UTF-8
    except ReleaseError:
        raise
    except (OSError, ValueError, pa.ArrowException):
        raise ReleaseError(f"{place} is missing or damaged; {WORDS}") from None
    if any(column.null_count for column in table.columns):
        raise ReleaseError(f"{place} has empty entries; {WORDS}")
    return table


def _check_footer(place: Path, rows: int, most: int) -> None:
    """Refuse a Parquet file by what it says of itself, before any of its pages is read."""
    footer = Footer.read(place)
    if footer.rows != {rows}:
        raise ReleaseError(f"{place} has {max(footer.rows):,} rows, not {rows:,}; {WORDS}")
    if not footer.plain or footer.unpacked > most:
        raise ReleaseError(f"{place} is packed otherwise than it was written; {WORDS}")
    if footer.notes - {b"ARROW:schema"}:
        raise ReleaseError(f"{place} holds notes that were not written; {WORDS}")


def _text_bytes(column: pa.ChunkedArray) -> int:
    """The bytes of all texts of a dictionary column, written out."""
    total = 0
    for chunk in column.chunks:
        lengths = pc.binary_length(chunk.dictionary).cast(pa.int64())
        total += pc.sum(pc.take(lengths, chunk.indices)).as_py() or 0
    return total


def read_csv(place: Path, schema: pa.Schema, rows: int) -> pa.Table:
    """The table in a CSV file, if it has these columns and so many rows."""
    try:
        _check_size(place, FREE_BYTES + ENTRY_BYTES * rows * len(schema))
        types = {field.name: field.type for field in schema}
        options = pa.csv.ConvertOptions(column_types=types, strings_can_be_null=False)
        table = pa.csv.read_csv(place, convert_options=options)
    except ReleaseError:
        raise
    except (OSError, ValueError, pa.ArrowException):
        raise ReleaseError(f"{place} is missing or damaged; {WORDS}") from None
    if table.schema != schema:
        raise ReleaseError(f"{place} has other columns than were written; {WORDS}")
    if table.num_rows != rows:
        raise ReleaseError(f"{place} has {table.num_rows:,} rows, not {rows:,}; {WORDS}")
    return table


def read_integers(place: Path, name: str, rows: int) -> Array:
    """A column of so many whole numbers, which is all there is in a file."""
    kinds = tuple(pa.schema([(name, kind)]) for kind in (pa.int64(), pa.string()))
    column = read_parquet(place, kinds, rows)[name]
    if pa.types.is_int64(column.type):
        return np.asarray(column.to_numpy())
    try:
        return np.array([_written_whole(text) for text in column.to_pylist()], dtype=object)
    except ValueError:
        raise ReleaseError(f"{place} holds something else than whole numbers; {WORDS}") from None


def _written_whole(text: str) -> int:
    """A whole number as it was written: no blanks, no zeros before it."""
    number = int(text)
    if str(number) != text:
        raise ValueError(text)
    return number
