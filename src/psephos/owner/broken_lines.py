"""Which lines of a CSV file are no rows, and why, in words for the owner."""

from __future__ import annotations

from collections.abc import Iterator

from psephos.engines.csv_lines import BrokenLineError
from psephos.engines.duckdb.rows import connect
from psephos.engines.files import CsvFile

TROUBLES = {
    "few fields": "have fewer fields than the header and are left out; complete them",
    "many fields": "have more fields than the header and are left out; put quotes around entries "
    'that hold a separator ("a, b")',
    "not UTF-8": "hold bytes that are not UTF-8 and are left out; save the file as UTF-8",
    "open quote": "hold a quoted entry that is not closed, or goes on after its closing quote, and "
    'are left out; write a quote inside quotes twice ("5"" pipe"); if entries may go on over '
    "several lines, write multiline = true beside the source",
    "over 2 MB": "are longer than 2 MB and are left out; look for an open quote",
}
"""By what a `BrokenLineError` says."""
REJECT_REASONS = {
    "MISSING COLUMNS": TROUBLES["few fields"],
    "TOO MANY COLUMNS": TROUBLES["many fields"].replace(
        "and are left out", "and the last are ignored"
    ),
    "INVALID ENCODING": TROUBLES["not UTF-8"],
    "LINE SIZE OVER MAXIMUM": TROUBLES["over 2 MB"],
}
"""By what DuckDB says of entries that may go on over several lines."""


def broken_lines(file: CsvFile) -> Iterator[tuple[int, str]]:
    """The numbers of lines that are no rows, from 1 for the header, and what is wrong there."""
    yield from _rejected(file) if file.is_multiline else _refused(file)


def _refused(file: CsvFile) -> Iterator[tuple[int, str]]:
    header, number = file.header, 2
    for block in header.blocks(file.path):
        if not header.is_regular(block):
            for place, line in enumerate(header.lines(block)):
                try:
                    _ = header.is_blank(line) or header.row(line)
                except BrokenLineError as error:
                    yield number + place, TROUBLES[str(error)]
        number += block.count(b"\n")


def _rejected(file: CsvFile) -> Iterator[tuple[int, str]]:
    columns = "".join(f", COUNT(c{i})" for i in range(len(file.header.names)))
    rejects = "strict_mode = true, store_rejects = true, rejects_limit = 0"
    with connect(file.files) as connection:
        connection.sql(f"SELECT COUNT(*){columns} FROM {file.rows(rejects)}").fetchall()
        rejected = connection.sql(
            "SELECT line, MIN(error_type) FROM reject_errors GROUP BY line ORDER BY line"
        ).fetchall()
    for line, kind in rejected:
        yield line, REJECT_REASONS.get(kind, "are left out")
