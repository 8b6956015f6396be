"""Writing the files of a bundle to disk, and reading them from a bundle that nobody vouches for.

Files are read strictly, sizes are looked at before memory is taken for what lies in a file, and
whatever is wrong is a ReleaseError that names the file.

Arrow ends the process when it is asked how a column with a damaged footer is packed, so the few
numbers that are looked at before a Parquet file is read are read here, without Arrow: the footer is
one struct in Thrift's compact protocol (https://github.com/apache/thrift, doc/specs), its fields
numbered as in parquet.thrift. A child process with limits would be no shorter, and takes 0.3 s to
start where a footer takes 0.15 ms.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import struct
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet

from psephos.errors import PsephosError, ReleaseError
from psephos.release.formats.csv_text import parse_csv, write_csv
from psephos.values import Array

CELLS_STEM = "cells"
"""The name of the file of whole numbers for every cell, beside those of the tables."""
NAME_BYTES = 80
"""Bytes of a table's name in the name of its file; disks have room for 255."""
JSON_BYTES = 2**24
"""The longest JSON file."""
BINARY_BYTES = 2**30
"""The longest question of a plan."""
NUMBER_DIGITS = 400
"""The longest number in a JSON file; floats have at most 309 digits before the point."""
FREE_BYTES = 2**24
"""What a table's file may take however few its rows: names of columns, and Parquet's pages."""
ENTRY_BYTES = 500
"""What an entry of a table may take on top of that, on average."""
REMEDY = "get the bundle again"
PARQUET_MAGIC = b"PAR1"
CODECS = {0, 1}
"""Uncompressed and Snappy, as files are written; others can make a few bytes fill any memory."""
ENCODINGS = {0, 2, 3, 4, 8}
"""Plain, dictionaries, run lengths; not those that write texts by what they share."""
FOOTER_DEPTH = 16
"""Structs in structs that a footer may have."""


def marked_name(name: str) -> str:
    """A name as a folder's name: all but plain ones carry a mark."""
    safe = re.sub(r"[^\w.-]+", "-", name).strip("-.") or "table"
    mark = hashlib.sha256(name.encode()).hexdigest()[:8]
    # A mark keeps apart what is cut or cleaned to the same, and from the file of all cells.
    usable = safe == name and len(name.encode()) <= NAME_BYTES and name != CELLS_STEM
    return name if usable else f"{safe.encode()[:NAME_BYTES].decode(errors='ignore')}-{mark}"


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


def file_hashes(folder: Path) -> dict[str, str]:
    """The hash of every file in a folder but the manifest there; a link is an error."""
    hashes = {}
    for place in sorted(folder.rglob("*")):
        name = place.relative_to(folder).as_posix()
        if place.is_symlink():
            raise ReleaseError(f"{name} is a link to somewhere else")
        if place.is_file() and name != "manifest.json":  # which has the hashes of all others
            hashes[name] = sha256_of(place)
        elif not place.is_file() and not place.is_dir():
            raise ReleaseError(f"{name} is no file")
    return hashes


def sync_all(folder: Path) -> None:
    """Wait until all files of a folder are on disk."""
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        else:
            sync_folder(path)
    sync_folder(folder)


def sync_folder(folder: Path) -> None:
    """Wait until the names in a folder are on disk."""
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


@contextmanager
def report_damage(place: Path) -> Iterator[None]:
    """Turn any other error while a file or folder is read into a ReleaseError that names it."""
    try:
        yield
    except PsephosError:
        raise
    except Exception as error:
        raise ReleaseError(f"{place} is damaged ({type(error).__name__}); {REMEDY}") from error


def read_json(place: Path) -> Any:
    """The content of a JSON file: each key once, every number finite, nothing without end."""
    try:
        _check_size(place, JSON_BYTES)
        content = json.loads(
            place.read_text(encoding="utf-8"),
            parse_constant=_json_constant,
            parse_float=_json_float,
            parse_int=_json_integer,
            object_pairs_hook=_json_object,
        )
        json.dumps(content, ensure_ascii=False).encode()  # refuses halves of characters
    except ReleaseError:
        raise
    except RecursionError:
        raise ReleaseError(
            f"{place} is damaged: lists lie in lists without end; {REMEDY}"
        ) from None
    except UnicodeError:
        raise ReleaseError(f"{place} is damaged: it is not UTF-8; {REMEDY}") from None
    except FileNotFoundError:
        raise ReleaseError(f"{place} is missing; {REMEDY}") from None
    except (OSError, ValueError) as error:
        why = f": {error}" if isinstance(error, _FlawError) else ""
        raise ReleaseError(f"{place} is damaged{why}; {REMEDY}") from None
    return content


def read_bytes(place: Path) -> bytes:
    """The bytes of a file that the kernel's gate reads."""
    try:
        _check_size(place, BINARY_BYTES)
        return place.read_bytes()
    except OSError:
        raise ReleaseError(f"{place} is missing or damaged; {REMEDY}") from None


def read_parquet(place: Path, schemas: tuple[pa.Schema, ...], rows: int) -> pa.Table:
    """The table in a Parquet file, if it has one of these schemas and this many rows."""
    with _refuse_unreadable(place):
        limit = FREE_BYTES + ENTRY_BYTES * rows * max(len(schema) for schema in schemas)
        _check_size(place, limit)
        _check_footer(place, rows, limit)
        schema = pa.parquet.read_schema(place).remove_metadata()
        if schema not in schemas:
            raise ReleaseError(f"{place} has other columns than were written; {REMEDY}")
        texts = [field.name for field in schema if pa.types.is_string(field.type)]
        # Texts stay numbers of a dictionary until it is known how long they are together.
        with pa.parquet.ParquetFile(place, read_dictionary=texts) as file:
            table = file.read(use_threads=False)
        words = [column for column in table.columns if pa.types.is_dictionary(column.type)]
        if table.num_rows != rows or sum(map(_text_bytes, words)) > limit:
            raise ReleaseError(f"{place} holds more than the release does; {REMEDY}")
        table = table.cast(schema)
        table.validate(full=True)  # text that is not UTF-8
    if any(column.null_count for column in table.columns):
        raise ReleaseError(f"{place} has empty entries; {REMEDY}")
    return table


def read_csv(place: Path, schema: pa.Schema, rows: int) -> pa.Table:
    """The table in a CSV file, if it has these columns and this many rows."""
    with _refuse_unreadable(place):
        _check_size(place, FREE_BYTES + ENTRY_BYTES * rows * len(schema))
        table = parse_csv(place, schema)
    if table.schema != schema:
        raise ReleaseError(f"{place} has other columns than were written; {REMEDY}")
    if table.num_rows != rows:
        raise ReleaseError(f"{place} has {table.num_rows:,} rows, not {rows:,}; {REMEDY}")
    return table


@contextmanager
def _refuse_unreadable(place: Path) -> Iterator[None]:
    """Whatever Arrow or the disk says of a file, in words that name it."""
    try:
        yield
    except ReleaseError:
        raise
    except (OSError, ValueError, pa.ArrowException):
        raise ReleaseError(f"{place} is missing or damaged; {REMEDY}") from None


def require_unchanged(folder: Path, marks: Mapping[str, str], names: Collection[str]) -> None:
    """Refuse files of a bundle that are not plain files with the hash that its manifest has."""
    for name in sorted(names):
        place = folder / name
        inside = not Path(name).is_absolute() and ".." not in Path(name).parts
        plain = inside and place.is_file() and not place.is_symlink()
        if not plain or sha256_of(place) != marks.get(name):
            raise ReleaseError(
                f"{place} has changed since the release, or is missing; get the bundle again "
                "(`psephos verify` looks through all of it)"
            )


def write_column(place: Path, name: str, numbers: Array) -> None:
    """Numbers as the only column of a Parquet file; whole ones beyond 64 bits as text."""
    if numbers.dtype == object:
        column = pa.array(map(str, numbers), type=pa.string())
    else:
        kind = pa.float64() if numbers.dtype.kind == "f" else pa.int64()
        column = pa.array(numbers, type=kind)
    pa.parquet.write_table(pa.table({name: column}), place)


def read_integers(place: Path, name: str, rows: int) -> Array:
    """The only column of a Parquet file, if it holds this many whole numbers."""
    schemas = tuple(pa.schema([(name, kind)]) for kind in (pa.int64(), pa.string()))
    column = read_parquet(place, schemas, rows)[name]
    if pa.types.is_int64(column.type):
        return np.asarray(column.to_numpy())
    try:
        return np.array([_canonical_integer(text) for text in column.to_pylist()], dtype=object)
    except ValueError:
        raise ReleaseError(f"{place} holds something else than whole numbers; {REMEDY}") from None


def read_floats(place: Path, name: str, rows: int) -> Array:
    """The only column of a Parquet file, if it holds this many finite numbers."""
    column = read_parquet(place, (pa.schema([(name, pa.float64())]),), rows)[name].to_numpy()
    if not np.isfinite(column).all():
        raise ReleaseError(f"{place} holds numbers without end; {REMEDY}")
    return np.asarray(column)


class _CompactReader:
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
        if depth > FOOTER_DEPTH:
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


class _FlawError(ValueError):
    """What is wrong with a file, in words."""


def _json_constant(word: str) -> NoReturn:
    raise _FlawError(f"{word} is no number")


def _json_float(text: str) -> float:
    if len(text) > NUMBER_DIGITS or not math.isfinite(float(text)):
        raise _FlawError(f"{text[:20]} … is no number of a release")
    return float(text)


def _json_integer(text: str) -> int:
    if len(text) > NUMBER_DIGITS:
        raise _FlawError(f"a number has {len(text):,} digits")
    return int(text)


def _json_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) < len(pairs):
        raise _FlawError("a key is there twice")
    return content


def _check_size(place: Path, limit: int) -> None:
    """Refuse what is no file, or a file longer than the release implies."""
    if not place.is_file():
        raise FileNotFoundError(place)
    size = place.stat().st_size
    if size > limit:
        raise ReleaseError(f"{place} has {size:,} bytes, and could have {limit:,}; {REMEDY}")


def _check_footer(place: Path, rows: int, limit: int) -> None:
    """Refuse a Parquet file by what it says of itself, before any of its pages is read."""
    with place.open("rb") as file:
        end = file.seek(-8, 2)
        size, magic = struct.unpack("<I4s", file.read(8))
        if magic != PARQUET_MAGIC or size > end:
            raise ValueError("no Parquet file")
        file.seek(end - size)
        content = file.read(size)
    try:
        footer = _CompactReader(content).struct(0)
        groups, notes = footer[4], {note[1] for note in footer.get(5, [])}
        counts = {footer[3], sum(group[3] for group in groups)}
        columns = [column for group in groups for column in group[1]]
        unpacked = [column[3][6] for column in columns]
        plain = min(unpacked, default=0) >= 0 and all(
            set(column) <= {2, 3, 4, 5, 6, 7}
            and column[3][4] in CODECS
            and set(column[3][2]) <= ENCODINGS
            for column in columns
        )
        if counts != {rows}:
            raise ReleaseError(f"{place} has {max(counts):,} rows, not {rows:,}; {REMEDY}")
        if not plain or sum(unpacked) > limit:
            raise ReleaseError(f"{place} is packed otherwise than it was written; {REMEDY}")
        if notes - {b"ARROW:schema"}:
            raise ReleaseError(f"{place} holds notes that were not written; {REMEDY}")
    except (IndexError, KeyError, TypeError, AttributeError, struct.error):
        raise ValueError("a damaged footer") from None


def _text_bytes(column: pa.ChunkedArray) -> int:
    """The bytes of all texts of a dictionary column, written out."""
    total = 0
    for chunk in column.chunks:
        lengths = pc.binary_length(chunk.dictionary).cast(pa.int64())
        total += pc.sum(pc.take(lengths, chunk.indices)).as_py() or 0
    return total


def _canonical_integer(text: str) -> int:
    """A whole number from its only spelling: no blanks, no zeros before it."""
    number = int(text)
    if str(number) != text:
        raise ValueError(text)
    return number


def write_rows(table: pa.Table, place: Path) -> None:
    """A table of rows as a CSV or Parquet file, by the ending of its name; whole or not at all."""
    writers = {".csv": write_csv, ".parquet": pa.parquet.write_table}
    if place.suffix not in writers:
        raise ReleaseError(f"{place} ends in neither .csv nor .parquet; name one of these")
    if not place.parent.is_dir():
        raise ReleaseError(f"{place} cannot be written: there is no folder {place.parent}")
    draft = place.with_name(f".{place.name}.draft-{os.getpid()}")
    try:
        writers[place.suffix](table, draft)
        os.replace(draft, place)
    except OSError as error:
        raise ReleaseError(f"{place} cannot be written: {error.strerror or error}") from None
    finally:
        draft.unlink(missing_ok=True)
