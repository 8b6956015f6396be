"""Files of a bundle on their way to disk: names, JSON, hashes, and waiting until they are there."""

from __future__ import annotations

import hashlib
import json
import os
import re
from pathlib import Path
from typing import Any

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
