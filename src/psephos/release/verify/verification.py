"""What was checked of a bundle, and what holds: the result of `verify`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from psephos.errors import PsephosError, ReleaseError
from psephos.release.preflight.memory import is_out_of_memory
from psephos.report.html import HtmlTable, notebook_html

UNSIGNED = "without the ledger, that receipts are the ledger's own: they are not signed"
CANNOT = (
    "that the noisy integers came from the data, and that their noise was drawn as it should be",
    "what report.html says: it is hashed, not read again; the tables are what counts; titles, the "
    "publisher, facts and a public table that stands in are as the bundle has them",
    UNSIGNED,
    "that the source itself is right: sampling, coverage and reporting errors are not in any "
    "interval here",
)


@dataclass(frozen=True)
class Check:
    """One thing that was looked at."""

    name: str
    ok: bool
    text: str


@dataclass(frozen=True, repr=False)
class Verification:
    """What was checked of a bundle, what holds, and what no file can show."""

    bundle: str
    checks: tuple[Check, ...]
    cannot: tuple[str, ...] = CANNOT

    @property
    def ok(self) -> bool:
        """Everything that was checked holds."""
        return all(check.ok for check in self.checks)

    def as_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {"ok": self.ok, **asdict(self)}

    def __repr__(self) -> str:
        failed = ", ".join(check.name for check in self.checks if not check.ok)
        state = f"failed: {failed}" if failed else f"ok, {len(self.checks)} checks"
        return f"Verification({self.bundle!r}: {state})"

    def _repr_html_(self) -> str:
        rows = [[c.name, "ok" if c.ok else "FAILED", c.text] for c in self.checks]
        rows += [["cannot be shown", "–", text] for text in self.cannot]
        heads = ["check", "result", "what was found"]
        return notebook_html(HtmlTable.of(repr(self), heads, rows))

    def __str__(self) -> str:
        lines = [f"{'ok    ' if c.ok else 'FAILED'}  {c.name}: {c.text}" for c in self.checks]
        lines += [f"cannot be shown: {text}" for text in self.cannot]
        return "\n".join(lines)


class WrongError(ReleaseError):
    """A check that does not hold."""


def verification(
    path: str | os.PathLike[str], steps: Sequence[tuple[str, Callable[[], str]]], ledger: object
) -> Verification:
    """Take all steps; each says what holds, or raises what does not."""
    checks = []
    for name, step in steps:
        try:
            checks.append(Check(name, True, step()))
        except Exception as error:  # whatever is wrong with a file is a finding
            if is_out_of_memory(error) and all(check.ok for check in checks):
                raise  # a bundle is not wrong because there is no room to look at it
            known = isinstance(error, PsephosError)
            words = str(error) if known else f"cannot be read ({type(error).__name__})"
            checks.append(Check(name, False, words))
    cannot = CANNOT if ledger is None else tuple(text for text in CANNOT if text != UNSIGNED)
    return Verification(str(Path(path)), tuple(checks), cannot)


def times_text(receipts: Iterable[Mapping[str, Any]]) -> str:
    """How often the rows behind some receipts were taken, where that is more than once."""
    names = {receipt.get("charge", {}).get("snapshot", "") for receipt in receipts}
    if len(names) <= 1:
        return ""
    return f"measured on rows that were taken {len(names)} times, and may differ between them"
