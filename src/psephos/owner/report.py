"""PRIVATE: what the owner's check says, finding by finding; an analyst never sees it."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from html import escape
from typing import Literal

PRIVATE = "PRIVATE: for the data owner only; this looks at the data and is not protected"
Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Mismatch:
    """One finding: where, what, and the entries it is about with their numbers of rows.

    An `error` is to be fixed before anything is spent: rows would be lost that nobody spoke of,
    or nothing could be counted. A `warning` tells of rows that are left out as the schema says. A
    `note` costs no row.
    """

    column: str
    kind: str
    level: Severity
    text: str
    entries: tuple[tuple[str, int], ...] = ()

    def __str__(self) -> str:
        listed = ", ".join(f"{entry!r} ({number:,})" for entry, number in self.entries)
        return f"{self.column}: {self.text}{': ' if listed else ''}{listed}"


@dataclass(frozen=True)
class CheckReport:
    """All that the schema and the data disagree on. PRIVATE: it tells the truth about data."""

    rows: int | None
    findings: tuple[Mismatch, ...]
    counted: int | None = None
    """Of the rows, those whose entries all have a cell."""

    @property
    def ok(self) -> bool:
        """Nothing to fix; warnings and notes may be left."""
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
