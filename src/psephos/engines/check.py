"""The owner's private comparison of a schema with the data; an analyst never sees its output."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from html import escape
from typing import Any

import duckdb

from psephos.attribute import Attribute
from psephos.domain import Domain
from psephos.engines.cells import CellSql, double
from psephos.engines.columns import column_problems, columns_of, needed_columns
from psephos.engines.duck import DuckSource
from psephos.engines.rows import Rows
from psephos.errors import SourceError, name_list
from psephos.kernel.unit import Cap

PRIVATE = "PRIVATE: for the data owner only; this looks at the data and is not protected"
TOP = 10


@dataclass(frozen=True)
class Finding:
    """One mismatch: where, what, and the entries it is about with their numbers of rows.

    An `error` means that rows are left out or that counting cannot work; the rest are notes.
    """

    column: str
    kind: str
    error: bool
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

    @property
    def ok(self) -> bool:
        """Nothing to mend; notes may be left."""
        return not any(finding.error for finding in self.findings)

    def __str__(self) -> str:
        size = "rows not counted" if self.rows is None else f"{self.rows:,} rows"
        lines = [PRIVATE, f"{'ok' if self.ok else 'NOT ok'}; {size}"]
        lines += [f"{'error' if f.error else 'note '}  {f}" for f in self.findings]
        return "\n".join(lines)

    __repr__ = __str__

    def to_json(self) -> str:
        """The report as JSON, whose first entry says that it is private."""
        findings = [asdict(finding) for finding in self.findings]
        content = {"private": PRIVATE, "ok": self.ok, "rows": self.rows, "findings": findings}
        return json.dumps(content, indent=1, ensure_ascii=False)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{'error' if f.error else 'note'}</td><td>{escape(str(f))}</td></tr>"
            for f in self.findings
        )
        head = f"<p><strong>{escape(PRIVATE)}</strong></p>"
        return f"{head}\n<p>{escape(str(self).splitlines()[1])}</p><table>{rows}</table>"


def check(
    source: DuckSource, domain: Domain, *, unit: Any = None, max_rows_total: int | None = None
) -> CheckReport:
    """Everything about the data that the schema did not expect, at once.

    Args:
        source: what will be counted
        domain: the public schema
        unit: the unit of privacy, whose person column and cap are looked at too
        max_rows_total: the declared public bound on the number of rows
    """
    cap = None if unit is None else unit.cap
    problems = column_problems(source.columns(), needed_columns(domain, cap))
    found = [Finding("columns", "columns", True, problem) for problem in problems]
    try:
        with source.opened() as rows:
            total = _row(rows, "COUNT(*)")[0]
            if max_rows_total is not None and total > max_rows_total:
                text = f"{total:,} rows, over the declared bound of {max_rows_total:,}"
                found.append(Finding("rows", "bound", True, text))
            there = [(n, a) for n, a in columns_of(domain) if source.columns().count(n) == 1]
            for i, (name, attribute) in enumerate(there):
                found += _column(rows, name, attribute, rows.cell(name, attribute, f"l{i}"))
            if cap is not None and source.columns().count(cap.column) == 1:
                found += _persons(rows, cap)
            return CheckReport(total, tuple(found))
    except (duckdb.Error, SourceError) as error:  # the owner may read the engine's own words
        found.append(Finding("source", "unreadable", True, f"cannot be read through: {error}"))
    return CheckReport(None, tuple(found))


def _column(rows: Rows, name: str, attribute: Attribute, cell: CellSql) -> list[Finding]:
    column = rows.column(name)
    missing, filled, unread, strange = _row(
        rows,
        f"COUNT(*) FILTER ({column} IS NULL), COUNT({column}), "
        f"COUNT(*) FILTER ({cell.alias}_r IS NULL AND {column} IS NOT NULL), "
        f"COUNT(*) FILTER ({cell.found} IS NULL AND {column} IS NOT NULL)",
        cell,
    )
    fate = "go to the cell (other)" if attribute.unknown == "other" else "are dropped"
    lost = attribute.unknown != "other"
    found = []
    if filled and unread == filled:
        text = f"no entry can be read as the declared values are ({attribute.some_values()})"
        found.append(Finding(name, "type", True, text))
    if strange:
        entry = f"CAST({column} AS VARCHAR)"
        where = f"WHERE {cell.found} IS NULL AND {column} IS NOT NULL"
        top = rows.run(
            f"SELECT {entry} AS entry, COUNT(*) AS n FROM {rows.entries([cell])} {where} "
            f"GROUP BY entry ORDER BY n DESC, entry LIMIT {TOP}"
        ).fetchall()
        text = f"{strange:,} rows with undeclared entries {fate}"
        found.append(Finding(name, "undeclared", lost, text, tuple(top)))
    if missing:
        declared = attribute.edges is None and None in attribute.values
        text = f"{missing:,} missing entries {'have their own cell' if declared else fate}"
        found.append(Finding(name, "missing", lost and not declared, text))
    return found + _range(rows, name, attribute, cell) + _absent(rows, name, attribute, cell)


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
    return [Finding(name, "range", False, text + clipped)]


def _absent(rows: Rows, name: str, attribute: Attribute, cell: CellSql) -> list[Finding]:
    """Declared values that no row has; no fault, but often a typing error."""
    seen = rows.run(f"SELECT DISTINCT {cell.cell} FROM {rows.entries([cell])}").fetchall()
    absent = sorted(set(range(attribute.size)) - {cell for (cell,) in seen})
    if not absent:
        return []
    labels = name_list(attribute.label(i) for i in absent)
    return [Finding(name, "absent", False, f"declared and never there: {labels}")]


def _persons(rows: Rows, cap: Cap) -> list[Finding]:
    column = rows.column(cap.column)
    people = f"SELECT COUNT(*) AS n FROM {rows.relation} WHERE {column} IS NOT NULL GROUP BY "
    people += f"CAST({column} AS VARCHAR)"
    found = []
    (nobody,) = _row(rows, f"COUNT(*) FILTER ({column} IS NULL)")
    if nobody:
        text = f"{nobody:,} rows without an id are dropped"
        found.append(Finding(cap.column, "missing", True, text))
    many, over = rows.run(
        f"SELECT COUNT(*), SUM(n - {cap.max_rows}) FROM ({people}) WHERE n > {cap.max_rows}"
    ).fetchall()[0]
    if many:
        text = f"{many:,} persons have more than {cap.max_rows} rows; up to {over:,} rows are cut"
        found.append(Finding(cap.column, "cap", False, text))
    return found


def _row(rows: Rows, expressions: str, cell: CellSql | None = None) -> tuple[int, ...]:
    entries = rows.relation if cell is None else rows.entries([cell])
    found: tuple[int, ...] = rows.run(f"SELECT {expressions} FROM {entries}").fetchall()[0]
    return found
