"""Lines of a CSV file that are not what they seem, told to the owner alone."""

from __future__ import annotations

from collections.abc import Sequence

from psephos.engines.duck import DuckSource
from psephos.engines.report import Finding
from psephos.engines.rows import Rows

MOST = 10_000
"""Lines that are left out are counted up to this number."""
REASONS = {
    "MISSING COLUMNS": "have fewer fields than the header and are left out; complete them",
    "INVALID ENCODING": "hold bytes that are not UTF-8 and are left out; save the file as UTF-8",
    "LINE SIZE OVER MAXIMUM": "are longer than 2 MB and are left out; look for an open quote",
}
QUOTED = 'put quotes around entries that hold a separator ("a, b")'


def broken_lines(source: DuckSource, rows: Rows, columns: Sequence[str]) -> list[Finding]:
    """Lines left out, lines with fields too many, and entries that go on over several lines."""
    if source.found.separator is None:
        return []
    found = [_finding("lines left out", *each) for each in _left_out(source, rows, columns)]
    width = len(source.names)
    (more,) = rows.run(
        f"SELECT COUNT(c{width}) FROM {source.csv(width + 1, 'ignore_errors = true')}"
    ).fetchall()[0]
    if more:
        text = f"have more fields than the header, and the last are ignored; {QUOTED}"
        found.append(_finding("too many fields", f"{more:,}", text))
    asked = " OR ".join(f"contains({rows.column(name)}, chr(10))" for name in columns) or "FALSE"
    (joined,) = rows.run(f"SELECT COUNT(*) FILTER ({asked}) FROM {rows.relation}").fetchall()[0]
    if joined:
        text = f"{joined:,} rows hold an entry of several lines; has a stray quote joined lines?"
        found.append(Finding("lines", "joined", "warning", text))
    return found


def _finding(kind: str, number: str, text: str) -> Finding:
    return Finding("lines", kind, "error", f"{number} lines {text}")


def _left_out(source: DuckSource, rows: Rows, columns: Sequence[str]) -> list[tuple[str, str]]:
    """How many lines are left out, and why; only columns that are read can hold wrong bytes."""
    errors = f"store_rejects = true, rejects_limit = {MOST}"
    read = "".join(f", COUNT({rows.column(name)})" for name in columns)
    rows.run(f"SELECT COUNT(*){read} FROM {source.csv(len(source.names), errors)}").fetchall()
    told = rows.run(
        "SELECT error_type, COUNT(DISTINCT line_byte_position) FROM reject_errors GROUP BY ALL "
        "ORDER BY ALL"
    ).fetchall()
    return [
        (f"{number:,}{' or more' if number >= MOST else ''}", REASONS.get(kind, "are left out"))
        for kind, number in told
    ]
