"""What a line of a CSV is: a row, or none, by the line and the header alone.

Lines end at LF, and CRs before it are no part of them; a file whose header ends with a bare CR, as
on old Macs, is refused. Names, separator and line end come from the header, which is public.
A field that begins with a quote ends with one, inside it two stand for one, and a separator is an
ordinary character; other quotes are ordinary too. An empty field is missing, a quoted empty one is
empty text. A line whose quoted field is not closed or goes on after its quote, that has another
number of fields than the header, is not UTF-8, or is longer than 2 MB, is broken and no row.

Privacy: one written line is at most one row, and no other line becomes another row by it
(tests/engines/test_csv_lines.py::test_one_line_more_is_at_most_one_row_more).
"""

from __future__ import annotations

import codecs
import csv
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa

from psephos.errors import SourceError
from psephos.values import Array

SEPARATORS = (",", ";", "\t", "|")
HEADER_BYTES = 1 << 20
"""Bytes of a line; what goes on beyond them is no header."""
LINE_BYTES = 2_000_000
CSV_BLOCK_BYTES = 1 << 18  # what is made of a block to look at its lines stays in the cache
TEXT_KIND = pa.large_string()
FIRST_BIT = np.uint64(1)


class BrokenLineError(ValueError):
    """A line that is no row; its text says which rule it breaks, and holds nothing of the line."""


@dataclass(frozen=True)
class CsvHeader:
    """The first line of a CSV file: the names, and how this and other lines are split and end."""

    names: tuple[str, ...]
    separator: str
    newline: bytes

    def blocks(self, path: Path) -> Iterator[bytes]:
        """The lines below the header, some at a time, each with its end.

        Of a line that is too long no more is handed over than shows that.
        """
        end, rest, below = b"\n", b"", False
        with path.open("rb") as file:
            while data := file.read(CSV_BLOCK_BYTES):
                if not below:
                    _, mark, data = (rest + data).partition(end)
                    below, rest = bool(mark), b""
                    if not below:
                        continue
                cut = data.rfind(end) + 1
                if cut:
                    yield b"".join((rest, memoryview(data)[:cut]))
                    rest = b""
                rest = (rest + data[cut:])[: LINE_BYTES + 2]
        if rest:
            yield rest + self.newline

    def lines(self, block: bytes) -> list[bytes]:
        """The lines of a block without their ends; CRs count, but for one, towards their length."""
        lines = block.split(b"\n")[:-1]
        short = LINE_BYTES + 1  # `blocks` hands over more of every line that is longer
        return [line.rstrip(b"\r") if len(line) <= short else line + b"." for line in lines]

    def is_blank(self, line: bytes) -> bool:
        """Whether a line is no row and not broken; in a file of one column it is a missing one."""
        return not line and len(self.names) > 1

    def row(self, line: bytes) -> list[str | None]:
        """The entries of a line; one that is broken is refused."""
        if len(line) > LINE_BYTES:
            raise BrokenLineError("over 2 MB")
        try:
            text = line.decode()
        except UnicodeDecodeError:
            raise BrokenLineError("not UTF-8") from None
        fields: list[str | None] = [field or None for field in text.split(self.separator)]
        if '"' in text:
            fields = list(self._quoted_fields(text))
        if len(fields) != len(self.names):
            raise BrokenLineError("few fields" if len(fields) < len(self.names) else "many fields")
        return fields

    def _quoted_fields(self, text: str) -> Iterator[str | None]:
        place, mark = 0, self.separator
        while mark:
            field = self._field.match(text, place)
            if field is None:
                raise BrokenLineError("open quote")
            quoted, plain, mark = field.groups()
            yield (plain or None) if quoted is None else quoted.replace('""', '"')
            place = field.end()

    @cached_property
    def _field(self) -> re.Pattern[str]:
        mark = re.escape(self.separator)
        return re.compile(rf'(?:"([^"]*(?:""[^"]*)*)"|((?!")[^{mark}]*))({mark}|\Z)')

    def is_regular(self, block: bytes) -> bool:
        """Whether all lines are rows that every reader of CSV takes for the same.

        That is so if no line is blank, too long or no UTF-8, all lines end as the header does,
        fields begin and end with their quotes, and all lines have as many as the header. Bits
        stand for bytes here, 64 in a word.
        """
        if not _is_text(block) or _has_long_line(block):
            return False
        data = np.frombuffer(block, np.uint8)
        ends, commas = _bits(data == ord("\n")), _bits(data == ord(self.separator))
        returns = _previous(ends) if self.newline == b"\r\n" else np.zeros_like(ends)
        if (b"\r" in block or returns.any()) and (_bits(data == ord("\r")) != returns).any():
            return False
        if b'"' in block:
            quotes = _bits(data == ord('"'))
            inside = _inside(quotes)  # from a field's first quote to before its last
            opening, closing = quotes & inside, quotes & ~inside
            commas &= ~inside
            before = _next(ends | commas | closing)
            before[0] |= FIRST_BIT
            after = _previous(ends | commas | opening | returns)
            wrong = (ends & inside) | (opening & ~before) | (closing & ~after)
            if wrong.any():
                return False
        return _has_rows_of(len(self.names), commas | ends, ends)

    def table(self, block: bytes, places: Sequence[int]) -> pa.Table:
        """Some columns of the rows of a block, in the order of the file."""
        chosen = [f"c{i}" for i in places]
        if self.is_regular(block) and not block.startswith(codecs.BOM_UTF8):
            return self._regular_table(block, chosen or ["c0"]).select(chosen)
        rows = []
        for line in self.lines(block):
            try:
                rows += [] if self.is_blank(line) else [self.row(line)]
            except BrokenLineError:
                continue
        columns = {f"c{i}": pa.array([row[i] for row in rows], TEXT_KIND) for i in (0, *places)}
        return pa.table(columns).select(chosen)

    def _regular_table(self, block: bytes, chosen: list[str]) -> pa.Table:
        from pyarrow import csv as arrow_csv

        names = [f"c{i}" for i in range(len(self.names))]
        return arrow_csv.read_csv(
            pa.BufferReader(block),
            arrow_csv.ReadOptions(column_names=names, block_size=len(block) + 1),
            arrow_csv.ParseOptions(delimiter=self.separator, ignore_empty_lines=False),
            arrow_csv.ConvertOptions(
                column_types=dict.fromkeys(names, TEXT_KIND),
                include_columns=chosen,
                null_values=[""],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
            ),
        )


def csv_header(path: Path, promised: str) -> CsvHeader:
    """The first line of a CSV file; names are taken without the blanks around them.

    The separator is the one of , ; tab and | that is there most often outside quotes, and in a tie
    the one that the file's name promises.
    """
    why = "its first line cannot be read as column names: is a quote not closed there?"
    try:
        with path.open("rb") as file:
            data = file.readline(HEADER_BYTES)
        line, newline = data.rstrip(b"\r\n"), b"\r\n" if data.endswith(b"\r\n") else b"\n"
        if b"\r" in line:
            raise without_columns(
                path, "its lines end in CR alone; save it with ends of LF or CRLF"
            )
        header = _text(line, path)
        separator = _separator(header, promised)
        # Strictly: an open quote is refused, for read on, rows would be taken for names.
        fields = csv.reader([header], delimiter=separator, strict=True)
        names = tuple(map(str.strip, next(fields, ())))
    except (OSError, csv.Error):
        raise without_columns(path, why) from None
    if not any(names):
        raise without_columns(path, "it needs a header, a first line of column names")
    return CsvHeader(names, separator, newline)


def without_columns(path: Path, why: str) -> SourceError:
    """The error about a file that does not say what its columns are."""
    return SourceError(f"{path.name!r} has no columns that can be read; {why}")


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


def _is_text(block: bytes) -> bool:
    try:
        return block.isascii() or bool(block.decode())
    except UnicodeDecodeError:
        return False


def _has_long_line(block: bytes) -> bool:
    start = 0
    while len(block) - start > LINE_BYTES:
        end = block.rfind(b"\n", start, start + LINE_BYTES + 1)
        if end < 0:
            return True
        start = end + 1
    return False


def _has_rows_of(width: int, marks: Array, ends: Array) -> bool:
    """Whether every end of a line is the `width`-th mark after the last."""
    counts = np.bitwise_count(marks)
    before = np.cumsum(counts, dtype=np.int64)
    # With the multiples below: no line has a multiple of them other than one.
    if before[-1] != width * int(np.bitwise_count(ends).sum()):
        return False
    before -= counts
    words = np.flatnonzero(ends)
    while words.size:  # the first end of every word, then the second
        left = ends[words]
        first = left & -left
        places = before[words] + np.bitwise_count(marks[words] & (first - FIRST_BIT))
        if ((places + 1) % width).any():
            return False
        ends[words] = left ^ first
        words = words[left != first]
    return True


def _bits(mask: Array) -> Array:
    bits = np.packbits(mask, bitorder="little")
    return np.concatenate([bits, np.zeros(-len(bits) % 8, np.uint8)]).view("<u8")


def _inside(quotes: Array) -> Array:
    """Bits with an odd number of quotes up to them, theirs included."""
    inside = quotes
    for step in (1, 2, 4, 8, 16, 32):
        inside = inside ^ (inside << np.uint64(step))
    inside[1:] ^= -np.bitwise_xor.accumulate(inside >> np.uint64(63))[:-1]
    return inside


def _next(bits: Array) -> Array:
    moved = bits << FIRST_BIT
    moved[1:] |= bits[:-1] >> np.uint64(63)
    return moved


def _previous(bits: Array) -> Array:
    moved = bits >> FIRST_BIT
    moved[:-1] |= bits[1:] << np.uint64(63)
    return moved
