"""`psephos audit`: attack this installation with synthetic neighbouring tables.

No source and no ledger of the user is opened: tables are synthetic, ledgers are temporary, and all
requests take the real private path, with the operating system's entropy. The report sets the
privacy loss that each attack measured beside what the ledger charged for it.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

from psephos.audit.behaviour import check_behaviour
from psephos.audit.programs import random_programs
from psephos.audit.runs import SPENDS, TRIALS, check_draws, lower_bound
from psephos.audit.stage import AttackKind, AttackResult, Stage, temporary_stage
from psephos.errors import BudgetError
from psephos.report.html import Cell, HtmlTable, notebook_html

__all__ = ["AttackResult", "AuditReport", "audit"]

AuditProgress = Callable[[str, float], None]
"""Called with what is tried next and the share of the audit that is done."""

CAVEAT = (
    "A passed audit shows only that these attacks failed. Others may not: the promise rests on the "
    "proofs in docs/privacy.md, not on this page."
)
HEADINGS: dict[AttackKind, str] = {
    "behaviour": "Attacks that need no statistics",
    "exact loss": "Exact loss: the noise attached, against all neighbours of small tables",
    "lower bound": "Lower bounds from real runs on two neighbours",
    "draws": "Draws beside their exact probabilities",
}


@dataclass(frozen=True)
class AuditReport:
    """The results of all attacks; bounds hold together with the stated confidence."""

    findings: tuple[AttackResult, ...]
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
        return "\n".join([*lines, "", self.remark, CAVEAT])

    __repr__ = __str__

    def to_json(self) -> str:
        """The report as JSON."""
        content = {
            "ok": self.ok,
            "confidence": self.confidence,
            "seconds": round(self.seconds, 3),
            "findings": [_plain(finding) for finding in self.findings],
            "note": CAVEAT,
        }
        return json.dumps(content, indent=1, ensure_ascii=False)

    def _repr_html_(self) -> str:
        tables = []
        for kind, heading in HEADINGS.items():
            rows = [_row(finding) for finding in self.findings if finding.kind == kind]
            cells = [[cell.strip() for cell in row] for row in rows]
            tables.append(HtmlTable.of(heading, [], cells))
        return notebook_html(Cell(self.summary, look="strong"), *tables, self.remark, CAVEAT)


def audit(
    *, seconds: float = 20.0, confidence: float = 0.999, progress: AuditProgress | None = None
) -> AuditReport:
    """Attack this installation, and compare the losses measured with what was charged.

    Args:
        seconds: how long to take, about; what needs no statistics takes some seconds in any case,
            and every statistical attack has at least one round
        confidence: of all lower bounds together; a sound installation is blamed with at most the
            rest of it, and by the tests of draws in one of 10⁵ audits
        progress: called with what is tried next and the share that is done
    """
    _check(seconds, confidence)
    start = time.monotonic()
    groups = list(_groups((1 - confidence) / (2 * len(TRIALS))))  # two probabilities in each trial
    findings: list[AttackResult] = []
    with temporary_stage() as stage:
        for i, group in enumerate(groups):
            if progress is not None:
                progress(group.name, i / len(groups))
            now, shares = time.monotonic(), sum(later.share for later in groups[i:])
            remaining = max(0.0, start + seconds - now)
            findings += _attempt(group, stage, now + remaining * group.share / shares)
    if progress is not None:
        progress("done", 1.0)
    return AuditReport(tuple(findings), confidence, time.monotonic() - start)


def _plain(finding: AttackResult) -> dict[str, Any]:
    """A finding in JSON, where its loss is called `found`."""
    names = {"loss": "found"}
    return {names.get(name, name): value for name, value in asdict(finding).items()}


def _row(finding: AttackResult) -> tuple[str, str, str, str, str]:
    runs = f"{finding.runs:,} runs" if finding.runs > 1 else ""
    mark = "  " if finding.ok else "!!"
    return mark, finding.name, finding.claimed, runs, finding.verdict


@dataclass(frozen=True)
class _AttackGroup:
    """A group of attacks, and its share of the time that attacks by many runs may take."""

    kind: AttackKind
    name: str
    share: float
    attack: Callable[[Stage, float], Iterable[AttackResult]]


def _groups(alpha: float) -> Iterator[_AttackGroup]:
    """All attacks, in the order of the report; alpha is the error rate of each probability."""
    behaviour = "attacks that need no statistics"
    yield _AttackGroup("behaviour", behaviour, 0, lambda stage, _: check_behaviour(stage))
    yield _AttackGroup("exact loss", "random programs", 0, lambda stage, _: random_programs(stage))
    for trial in TRIALS:
        attack = partial(lower_bound, trial=trial, alpha=alpha)
        yield _AttackGroup("lower bound", trial.name, 1, attack)
    for spend in SPENDS:
        yield _AttackGroup("draws", f"draws at {spend}", 1 / 4, partial(check_draws, spend=spend))


def _attempt(group: _AttackGroup, stage: Stage, until: float) -> Iterator[AttackResult]:
    """The results of a group; an error that ends it is a result too."""
    try:
        yield from group.attack(stage, until)
    except Exception as error:  # noqa: BLE001 - a broken installation may fail anyhow
        text = f"IT BROKE OFF: {type(error).__name__}: {error}"
        yield AttackResult(group.kind, group.name, "an answer", text, ok=False, runs=1)


def _check(seconds: float, confidence: float) -> None:
    if not (isinstance(seconds, int | float) and 0 <= seconds < math.inf):
        raise BudgetError(f"seconds is how long to take, from 0, got {seconds!r}")
    if not (isinstance(confidence, float) and 0.5 <= confidence < 1):
        raise BudgetError(f"confidence is a number from 0.5 to below 1, got {confidence!r}")
