"""Comparing two workbooks by what is packed in them.

A workbook is a zip of XML files. How zlib packs them differs between machines, and what xlsxwriter
writes besides cells between its versions; so files are compared unpacked, and where they differ,
cell by cell. Nothing is unpacked that is larger than it should be.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Literal
from xml.etree import ElementTree

Likeness = Literal["same", "same cells", "other"]
MAIN = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
SHEET_FILE = re.compile(r"xl/worksheets/sheet[0-9]+\.xml")
GROWTH, FREE_MEMBER_BYTES = 2, 2**20
"""How much larger files inside may be than those of the workbook made again."""


def compare_workbooks(written: Path, again: Path) -> Likeness:
    """How alike a workbook is to the one it should be."""
    try:
        with zipfile.ZipFile(written) as first, zipfile.ZipFile(again) as second:
            return _compare(first, second)
    except (
        zipfile.BadZipFile,
        ElementTree.ParseError,
        KeyError,
        ValueError,
        RuntimeError,
        EOFError,
    ):
        return "other"


def _compare(first: zipfile.ZipFile, second: zipfile.ZipFile) -> Likeness:
    names = second.namelist()
    if first.namelist() != names:
        return "other"
    for name in names:
        limit = GROWTH * second.getinfo(name).file_size + FREE_MEMBER_BYTES
        if first.getinfo(name).file_size > limit:
            return "other"
    if all(_equal(first, second, name) for name in names):
        return "same"
    for name in (name for name in names if SHEET_FILE.fullmatch(name)):
        if list(_cells(first, name)) != list(_cells(second, name)):
            return "other"
    return "same cells" if _sheets(first) == _sheets(second) else "other"


def _equal(first: zipfile.ZipFile, second: zipfile.ZipFile, name: str) -> bool:
    if first.getinfo(name).file_size != second.getinfo(name).file_size:
        return False
    with first.open(name) as one, second.open(name) as other:
        while chunk := one.read(2**20):
            if chunk != other.read(2**20):
                return False
        return not other.read(1)


def _cells(book: zipfile.ZipFile, name: str) -> Iterator[tuple[str, str, str]]:
    """Place, kind and content of every cell; texts are written in place."""
    with book.open(name) as file:
        if b"<!" in file.read(4096):
            raise ValueError("a sheet has no document type")
    with book.open(name) as file:
        for _, element in ElementTree.iterparse(file):
            if element.tag == f"{MAIN}c":
                inside = "".join(f"{part.tag}{''.join(part.itertext())}" for part in element)
                yield element.get("r", ""), element.get("t", ""), inside
            if element.tag == f"{MAIN}row":
                element.clear()


def _sheets(book: zipfile.ZipFile) -> list[tuple[str, str]]:
    with book.open("xl/workbook.xml") as file:
        text = file.read(2**24)
    if b"<!" in text:
        raise ValueError("a workbook has no document type")
    sheets = ElementTree.fromstring(text).iter(f"{MAIN}sheet")
    return [(sheet.get("name", ""), sheet.get("state", "")) for sheet in sheets]
