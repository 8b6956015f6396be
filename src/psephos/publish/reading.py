"""Files of a bundle read with care: strictly, and never more of them than the release implies.

A bundle comes from anyone. Sizes are looked at before memory is taken for what lies in a file;
whatever is wrong with it is a ReleaseError that names the file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet

from psephos.errors import PsephosError, ReleaseError
from psephos.frozen import Array
from psephos.publish.footer import Footer

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
