"""`psephos audit`: attack this installation with made-up neighbours.

No source and no ledger of the user is opened: tables are made up, ledgers are temporary, and all
requests take the real private path, with the operating system's entropy. What is reported are
losses that were found, to be held against what was charged for them.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial

from psephos.audit.behaviour import checks
from psephos.audit.draws import SPENDS, choices, draws_fit
from psephos.audit.exact import exact_losses
from psephos.audit.runs import TESTS, TRIALS, lower_bound
from psephos.audit.stage import Finding, Kind, Stage, stage
from psephos.errors import BudgetError
from psephos.report.html import Cell, HtmlTable, notebook_html

__all__ = ["AuditReport", "Finding", "audit"]

Progress = Callable[[str, float], None]
"""Called with what is tried next and the share of the audit that is done."""

LAST = (
    "A passed audit shows only that these attacks failed. Others may not: the promise rests on the "
    "proofs in docs/privacy.md, not on this page."
)
HEADINGS: dict[Kind, str] = {
    "behaviour": "Attacks that need no statistics",
    "exact loss": "Exact loss: the noise attached, against all neighbours of a small table",
    "lower bound": "Lower bounds from real runs on two neighbours",
    "draws": "Draws beside their exact probabilities",
}


@dataclass(frozen=True)
class AuditReport:
    """What every attack found; bounds hold together with the stated confidence."""

    findings: tuple[Finding, ...]
    confidence: float
    seconds: float

    @property
    def ok(self) -> bool:
        """No loss above its charge was found, and no attack got through."""
        return all(finding.ok for finding in self.findings)

    @property
    def summary(self) -> str:
        """One line."""
        failed = [finding.name for finding in self.findings if not finding.ok]
        size = f"{len(self.findings)} attacks in {self.seconds:.0f} s"
        if failed:
            return f"NOT ok: {len(failed)} of {size} succeeded"
        return f"ok: {size}, none of which succeeded"

    @property
    def remark(self) -> str:
        """How sure the bounds are."""
        return f"All lower bounds hold together with confidence {self.confidence:g}."

    def __str__(self) -> str:
        lines = [self.summary]
        for kind, heading in HEADINGS.items():
            rows = [_row(finding) for finding in self.findings if finding.kind == kind]
            widths = [max((len(row[i]) for row in rows), default=0) for i in range(4)]
            lines += ["", heading] if rows else []
            lines += ["  ".join(map(str.ljust, row, (*widths, 0))).rstrip() for row in rows]
        return "\n".join([*lines, "", self.remark, LAST])

    __repr__ = __str__

    def to_json(self) -> str:
        """The report as JSON."""
        content = {
            "ok": self.ok,
            "confidence": self.confidence,
            "seconds": round(self.seconds, 3),
            "findings": [asdict(finding) for finding in self.findings],
            "note": LAST,
        }
        return json.dumps(content, indent=1, ensure_ascii=False)

    def _repr_html_(self) -> str:
        tables = []
        for kind, heading in HEADINGS.items():
            rows = [_row(finding) for finding in self.findings if finding.kind == kind]
            cells = [[cell.strip() for cell in row] for row in rows]
            tables.append(HtmlTable.of(heading, [], cells))
        return notebook_html(Cell(self.summary, look="strong"), *tables, self.remark, LAST)


def _row(finding: Finding) -> tuple[str, str, str, str, str]:
    runs = f"{finding.runs:,} runs" if finding.runs > 1 else ""
    mark = "  " if finding.ok else "!!"
    return mark, finding.name, finding.claimed, runs, finding.verdict


@dataclass(frozen=True)
class _Step:
    """A group of attacks, and its share of the time that attacks by many runs may take."""

    kind: Kind
    name: str
    share: float
    attack: Callable[[Stage, float], Iterable[Finding]]


def _steps(alpha: float) -> Iterator[_Step]:
    yield _Step("behaviour", "attacks that need no statistics", 0, lambda s, _: checks(s))
    yield _Step("exact loss", "exact losses", 0, lambda s, _: exact_losses(s))
    yield _Step("lower bound", "choose", 3, partial(choices, alpha=alpha))
    for trial in TRIALS:
        attack = partial(_one, partial(lower_bound, trial=trial, alpha=alpha))
        yield _Step("lower bound", trial.name, 1, attack)
    for spend in SPENDS:
        yield _Step("draws", f"draws at {spend}", 1 / 4, partial(draws_fit, spend=spend))


def _one(attack: Callable[..., Finding], at: Stage, until: float) -> list[Finding]:
    return [attack(at, until=until)]


def audit(
    *, seconds: float = 20.0, confidence: float = 0.999, progress: Progress | None = None
) -> AuditReport:
    """Attack this installation, and hold the losses found against what was charged.

    Args:
        seconds: how long to take, about; what needs no statistics takes some seconds in any case,
            and every statistical attack has at least one round
        confidence: of all lower bounds together; a sound installation is blamed with at most the
            rest of it, and by the tests of draws in one of 10⁵ audits
        progress: called with what is tried next and the share that is done
    """
    _check(seconds, confidence)
    start = time.monotonic()
    steps = list(_steps((1 - confidence) / (2 * TESTS)))  # two probabilities in each test
    findings: list[Finding] = []
    with stage() as at:
        for i, step in enumerate(steps):
            if progress is not None:
                progress(step.name, i / len(steps))
            now, ahead = time.monotonic(), sum(later.share for later in steps[i:])
            left = max(0.0, start + seconds - now)
            findings += _attempted(step, at, now + left * step.share / ahead)
    if progress is not None:
        progress("done", 1.0)
    return AuditReport(tuple(findings), confidence, time.monotonic() - start)


def _attempted(step: _Step, at: Stage, until: float) -> Iterator[Finding]:
    """The findings of a step; one that breaks off is a finding too."""
    try:
        yield from step.attack(at, until)
    except Exception as error:  # noqa: BLE001 - a broken installation may fail anyhow
        text = f"IT BROKE OFF: {type(error).__name__}: {error}"
        yield Finding(step.kind, step.name, "an answer", text, ok=False, runs=1)


def _check(seconds: float, confidence: float) -> None:
    if not (isinstance(seconds, int | float) and 0 <= seconds < math.inf):
        raise BudgetError(f"seconds is how long to take, from 0, got {seconds!r}")
    if not (isinstance(confidence, float) and 0.5 <= confidence < 1):
        raise BudgetError(f"confidence is a number from 0.5 to below 1, got {confidence!r}")
