"""What the owner does before a release: compare schema and data.

A check that passes leaves a stamp beside the release file, for this schema, unit and source. It
says that the check passed and nothing else about the data. `psephos release` asks for it, so that
no budget goes into a schema that nobody has compared with the data.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from psephos.engines import CheckReport, check
from psephos.engines.protocol import Mismatch
from psephos.errors import LedgerError, ReleaseError
from psephos.kernel.ledger import Ledger
from psephos.release.request import Job
from psephos.release.run import open_ledger
from psephos.release.selection import kept
from psephos.values import digest

STAMP = "The owner's check of this schema and source has passed.\n"


def check_job(job: Job, *, max_rows_total: int | None = None) -> CheckReport:
    """Everything that the release file and the data disagree on. PRIVATE; a pass is stamped."""
    # Written out, `drop` is a decision; left to the default, it may be news.
    meant = [
        name
        for name, entry in job.file.attributes.items()
        if entry.unknown == "drop" and "unknown" in entry.model_fields_set
    ]
    report = check(
        job.source,
        job.domain,
        unit=job.unit,
        max_rows_total=max_rows_total,
        left_out=meant,
        impossible=[(str(each), each.domain, each.conjuncts) for each in job.impossible],
    )
    _stamp(job, report.ok)
    return replace(report, findings=(*report.findings, *_edition_notes(job)))


def ledger_trouble(job: Job) -> LedgerError | None:
    """What a release would say of the ledger, if there is one; told early, it costs nothing."""
    try:
        if job.ledger.exists():
            open_ledger(job)
    except LedgerError as error:
        return error
    return None


def _edition_notes(job: Job) -> tuple[Mismatch, ...]:
    """What an edition is for, where earlier charges may be for other rows."""
    try:
        earlier = job.ledger.exists() and bool(Ledger.open(job.ledger).history())
    except LedgerError:
        earlier = False  # `ledger_trouble` tells
    if job.file.edition or not (earlier or job.file.builds_on):
        return ()
    text = (
        "none is declared, and this data set was measured before; if the source has new rows "
        'since, write edition = "2025", or what you call it: what was measured on different states '
        "of the data is then kept apart, under the same budget"
    )
    return (Mismatch("edition", "edition", "note", text),)


def require_check(job: Job, ledger: Ledger) -> None:
    """Refuse to spend on a schema that was never checked; what is paid for goes on."""
    paid = job.bundle.exists() or any(e.key == job.key for e in ledger.history())
    if not paid and not is_checked(job):
        raise ReleaseError(
            "this schema has not been compared with the data, or not with success: run `psephos "
            "check RELEASE` first, or say --unchecked. Nothing was charged"
        )


def is_checked(job: Job) -> bool:
    """Has the owner's check passed for this schema, unit and source?"""
    return _stamp_place(job).exists()


def _stamp(job: Job, passed: bool) -> None:
    place = _stamp_place(job)
    try:
        if passed:
            place.parent.mkdir(exist_ok=True)
            place.write_text(STAMP, encoding="utf-8")
        else:
            place.unlink(missing_ok=True)
    except OSError as error:
        raise ReleaseError(
            f"{place} cannot be written: {error.strerror}; make the folder of the release file "
            "writable"
        ) from None


def _stamp_place(job: Job) -> Path:
    """Named by what was compared, not by what was asked: tables and budget may change."""
    where = (str(job.source.resolve()), job.file.edition)
    compared = (job.domain, str(job.unit), *where, job.file.zeros)
    return kept(job) / f"{digest(compared)[:32]}.checked"
