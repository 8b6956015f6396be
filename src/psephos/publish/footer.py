"""What a Parquet file says of its rows and packing, read without Arrow.

Arrow ends the process when it is asked how a column with a damaged footer is packed, so the few
numbers that are looked at before anything is read are read here: the footer is one struct in
Thrift's compact protocol (https://github.com/apache/thrift, doc/specs), its fields numbered as in
parquet.thrift.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
