"""The owner's private comparison of a schema with the data; an analyst never sees its output.

What the owner's check found; private, because it tells the truth about data.

Lines of a CSV file that are not what they seem, told to the owner alone.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from html import escape
from typing import Any, Literal

import duckdb
import pyarrow as pa

from psephos.domain.attribute import Attribute
from psephos.domain.domain import Domain
from psephos.engines.cells import CellSql, double
from psephos.engines.columns import column_problems, columns_of, needed_columns
from psephos.engines.duck import DuckSource
from psephos.engines.rows import Rows
from psephos.errors import SourceError, name_list
from psephos.kernel.source import Cells
from psephos.kernel.unit import Cap

PRIVATE = "PRIVATE: for the data owner only; this looks at the data and is not protected"
Level = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One mismatch: where, what, and the entries it is about with their numbers of rows.

    An `error` is to be mended before anything is spent: rows would be lost that nobody spoke of,
    or nothing could be counted. A `warning` tells of rows that are left out as the schema says. A
    `note` costs no row.
    """

    column: str
    kind: str
    level: Level
    text: str
    entries: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        listed = ", ".join(f"{entry!r} ({number:,})" for entry, number in self.entries)
        return f"{self.column}: {self.text}{': ' if listed else ''}{listed}"


@dataclass(frozen=True)
class CheckReport:
    """All that the schema and the data disagree on. PRIVATE: it tells the truth about data."""

    rows: int | None
    findings: tuple[Finding, ...]
    counted: int | None = None
    """Of the rows, those whose entries all have a cell."""

    @property
    def ok(self) -> bool:
        """Nothing to mend; warnings and notes may be left."""
        return not any(finding.level == "error" for finding in self.findings)

    def __str__(self) -> str:
        lines = [PRIVATE, self._summary()]
        lines += [f"{finding.level:<7}  {finding}" for finding in self.findings]
        return "\n".join(lines)

    __repr__ = __str__

    def to_json(self) -> str:
        """The report as JSON, whose first entry says that it is private."""
        findings = [asdict(finding) for finding in self.findings]
        content = {"private": PRIVATE, "ok": self.ok, "rows": self.rows, "counted": self.counted}
        return json.dumps({**content, "findings": findings}, indent=1, ensure_ascii=False)

    def _summary(self) -> str:
        size = "rows not counted" if self.rows is None else f"{self.rows:,} rows"
        if self.counted is not None and self.counted != self.rows:
            size += f", of which {self.counted:,} have a cell"
        return f"{'ok' if self.ok else 'NOT ok'}; {size}"

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{finding.level}</td><td>{escape(str(finding))}</td></tr>"
            for finding in self.findings
        )
        head = f"<p><strong>{escape(PRIVATE)}</strong></p>"
        return f"{head}\n<p>{escape(self._summary())}</p><table>{rows}</table>"


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


TOP = 10


def check(
    source: DuckSource,
    domain: Domain,
    *,
    unit: Any = None,
    max_rows_total: int | None = None,
    left_out: Collection[str] = (),
    impossible: Sequence[tuple[str, Domain, Cells]] = (),
) -> CheckReport:
    """Everything about the data that the schema did not expect, at once.

    Args:
        source: what will be counted
        domain: the public schema
        unit: the unit of privacy, whose person column and cap are looked at too
        max_rows_total: the declared public bound on the number of rows
        left_out: columns whose undeclared entries are meant to be dropped
        impossible: what no row can be: in words, and as masks over a domain of the same columns
    """
    cap = None if unit is None else unit.cap
    needed = needed_columns(domain, cap)
    problems = column_problems(source.found, needed)
    found = [Finding("columns", "columns", "error", problem) for problem in problems.values()]
    there = [(name, attribute) for name, attribute in columns_of(domain) if name not in problems]

    def findings(rows: Rows) -> tuple[int, list[Finding]]:
        total = _row(rows, "COUNT(*)")[0]
        listed = []
        if max_rows_total is not None and total > max_rows_total:
            text = f"{total:,} rows, over the declared bound of {max_rows_total:,}"
            listed.append(Finding("rows", "bound", "error", text))
        listed += broken_lines(source, rows, [name for name, _ in there])
        for i, (name, attribute) in enumerate(there):
            cell = rows.cell(name, attribute, f"l{i}")
            listed += _column(rows, name, attribute, cell, name in left_out)
        if cap is not None and cap.column not in problems:
            listed += _persons(rows, cap)
        return total, listed

    try:
        total, listed = source.read([name for name in needed if name not in problems], findings)
        found += listed
        counted = None if problems else int(source.count(domain, (), (), None))
        if total and counted == 0:
            found.append(Finding("rows", "none", "error", "no row is left to count"))
        if counted:
            found += _contradicted(source, impossible)
        return CheckReport(total, tuple(found), counted)
    except (
        duckdb.Error,
        pa.ArrowException,
        OSError,
        SourceError,
    ) as error:  # the owner may read the engine's own words
        found.append(Finding("source", "unreadable", "error", f"cannot be read through: {error}"))
    return CheckReport(None, tuple(found))


def _column(
    rows: Rows, name: str, attribute: Attribute, cell: CellSql, left_out: bool
) -> list[Finding]:
    column = rows.column(name)
    missing, filled, unread, strange = _row(
        rows,
        f"COUNT(*) FILTER ({column} IS NULL), COUNT({column}), "
        f"COUNT(*) FILTER ({cell.alias}_r IS NULL AND {column} IS NOT NULL), "
        f"COUNT(*) FILTER ({cell.found} IS NULL AND {column} IS NOT NULL)",
        cell,
    )
    found = []
    if filled and unread == filled:
        text = f"no entry can be read as the declared values are ({attribute.some_values()})"
        found.append(Finding(name, "type", "error", text))
    if strange:
        level, text = _undeclared(attribute, strange, left_out)
        entry = f"CAST({column} AS VARCHAR)"
        where = f"WHERE {cell.found} IS NULL AND {column} IS NOT NULL"
        top = rows.run(
            f"SELECT {entry} AS entry, COUNT(*) AS n FROM {rows.entries([cell])} {where} "
            f"GROUP BY entry ORDER BY n DESC, entry LIMIT {TOP}"
        ).fetchall()
        found.append(Finding(name, "undeclared", level, text, tuple(top)))
    if missing:
        found.append(_missing(name, attribute, missing, filled))
    return found + _range(rows, name, attribute, cell) + _absent(rows, name, attribute, cell)


def _undeclared(attribute: Attribute, number: int, left_out: bool) -> tuple[Level, str]:
    """Losing entries that nobody spoke of is an error; losing them on purpose is not."""
    text = f"{number:,} rows with undeclared entries"
    if attribute.unknown == "other":
        return "note", f"{text} go to the cell (other)"
    if left_out:
        return "warning", f"{text} are dropped, as the schema says"
    remedy = 'declare them, or write unknown = "other" to keep them, or unknown = "drop" if they '
    return "error", f"{text} are dropped ({remedy}are to be left out)"


def _missing(name: str, attribute: Attribute, missing: int, filled: int) -> Finding:
    if attribute.edges is None and None in attribute.values:
        return Finding(name, "missing", "note", f"{missing:,} missing entries have their own cell")
    if attribute.unknown == "other":
        text = f"{missing:,} missing entries go to the cell (other)"
        return Finding(name, "missing", "note", text)
    keep = 'unknown = "other"'
    if attribute.edges is None and not isinstance(attribute.values, range):
        keep = f'missing = "not stated" or {keep}'
    text = f"{missing:,} rows with missing entries are dropped (to keep them write {keep})"
    return Finding(name, "missing", "warning" if filled else "error", text)


def _range(rows: Rows, name: str, attribute: Attribute, cell: CellSql) -> list[Finding]:
    """Numbers outside the declared ones; those that clipping does not keep are undeclared too."""
    values = [value for value in attribute.declared if value is not None]
    if not attribute.is_numeric:
        return []
    low = min(values) if attribute.edges is None else attribute.edges[0]
    high = max(values) if attribute.edges is None else attribute.edges[-1]
    number = f"{cell.alias}_n"
    top = f"{number} > {double(high)}" if attribute.edges is None else f"{number} >= {double(high)}"
    below, above = _row(
        rows, f"COUNT(*) FILTER ({number} < {double(low)}), COUNT(*) FILTER ({top})", cell
    )
    if not below and not above:
        return []
    text = f"{below:,} numbers below {low} and {above:,} above {high}"
    clipped = " are clipped" if attribute.unknown == "clip" else ""
    return [Finding(name, "range", "note", text + clipped)]


def _absent(rows: Rows, name: str, attribute: Attribute, cell: CellSql) -> list[Finding]:
    """Declared values that no row has; no fault, but often a typing error."""
    seen = rows.run(f"SELECT DISTINCT {cell.cell} FROM {rows.entries([cell])}").fetchall()
    absent = sorted(set(range(attribute.size)) - {cell for (cell,) in seen})
    if not absent:
        return []
    labels = name_list(attribute.label(i) for i in absent)
    return [Finding(name, "absent", "note", f"declared and never there: {labels}")]


def _persons(rows: Rows, cap: Cap) -> list[Finding]:
    column = rows.column(cap.column)
    people = f"SELECT COUNT(*) AS n FROM {rows.relation} WHERE {column} IS NOT NULL GROUP BY "
    people += rows.person(cap)
    found = []
    nobody, somebody = _row(rows, f"COUNT(*) FILTER ({column} IS NULL), COUNT({column})")
    if nobody:
        text = (
            f"{nobody:,} rows without an id are dropped (give them ids of their own to keep them)"
        )
        found.append(Finding(cap.column, "missing", "warning" if somebody else "error", text))
    many, over = rows.run(
        f"SELECT COUNT(*), SUM(n - {cap.max_rows}) FROM ({people}) WHERE n > {cap.max_rows}"
    ).fetchall()[0]
    if many:
        text = f"{many:,} persons have more than {cap.max_rows} rows; up to {over:,} rows are cut"
        found.append(Finding(cap.column, "cap", "warning", text))
    return found


def _contradicted(
    source: DuckSource, impossible: Sequence[tuple[str, Domain, Cells]]
) -> Iterator[Finding]:
    for words, domain, masks in impossible:
        rows = int(source.count(domain, (), masks, None))
        if rows:
            text = f"{rows:,} rows contradict it; they will be published as 0"
            yield Finding(words, "zeros", "error", text)


def _row(rows: Rows, expressions: str, cell: CellSql | None = None) -> tuple[int, ...]:
    entries = rows.relation if cell is None else rows.entries([cell])
    found: tuple[int, ...] = rows.run(f"SELECT {expressions} FROM {entries}").fetchall()[0]
    return found
