"""Files of a bundle: tables, whole numbers, JSON, hashes; written for good and read with care."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet

from psephos.errors import ReleaseError
from psephos.frozen import Array

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


def read_table(folder: Path, name: str, schema: pa.Schema | None = None) -> pa.Table:
    """A table that was written: its Parquet file, or its CSV file by a schema if one is given."""
    place = folder / f"{name}.parquet"
    try:
        if schema is None and place.exists():
            return pa.parquet.read_table(place)
        place = folder / f"{name}.csv"
        types = {} if schema is None else {field.name: field.type for field in schema}
        options = pa.csv.ConvertOptions(column_types=types, strings_can_be_null=False)
        return pa.csv.read_csv(place, convert_options=options)
    except (OSError, pa.ArrowException):
        raise ReleaseError(f"{place} is missing or damaged") from None


def read_integers(path: Path, name: str) -> Array:
    """A column of whole numbers that was written."""
    try:
        column = pa.parquet.read_table(path)[name]
    except (OSError, KeyError, pa.ArrowException):
        raise ReleaseError(f"{path} is missing or damaged") from None
    if pa.types.is_int64(column.type) and not column.null_count:
        return np.asarray(column.to_numpy())
    try:
        return np.array([int(str(text)) for text in column.to_pylist()], dtype=object)
    except ValueError:
        raise ReleaseError(f"{path} holds something else than whole numbers") from None


def write_json(path: Path, content: Any) -> None:
    """Plain values as JSON, in their order."""
    text = json.dumps(content, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")


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
