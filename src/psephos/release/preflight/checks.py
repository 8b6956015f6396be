"""Before a charge: everything that could keep a release from being written is refused here.

The owner compares schema and data first. A check that passes leaves a stamp beside the release
file, for this schema, unit and source, which says that the check passed, for files in which state
(a hash of their sizes and times), and nothing else about the data. Without it `release` spends
nothing, unless it is told to. Then come the ledger, which must be the one that the file speaks of
and no older copy of it, what is left in it, and room on the disk. Last, in the very state that is
counted, the check is repeated, except where that is known to be the state that passed.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from psephos.errors import BudgetExceededError, LedgerError, PsephosError, ReleaseError, SourceError
from psephos.kernel.budget import Budget
from psephos.kernel.ledger import Ledger
from psephos.kernel.ledger_history import Anchor
from psephos.owner.report import CheckReport, Mismatch
from psephos.release.bundle.files import JSON_BYTES, json_text
from psephos.release.bundle.requests import last_receipt
from psephos.release.methods.kind import ReleaseForecast
from psephos.release.methods.persons import check_persons_affordable
from psephos.release.preflight.room import check_memory
from psephos.release.preflight.rules_record import check_rules, record_rules
from psephos.release.preflight.store import selection_folder, stored_cells
from psephos.release.spec.job import Job, public_source, refuse_source
from psephos.values import digest

if TYPE_CHECKING:
    from psephos.engines.bit_matrix import BitMatrix
    from psephos.engines.duckdb.reader import Reader

STAMP = "The owner's check of this schema and source has passed.\n"


def admit(job: Job, ledger: Ledger, *, unchecked: bool) -> tuple[Job, bool]:
    """The job over the cells that it was or will be charged for, and was it charged before.

    Refused are another ledger than the data set's, other rules of cleaning than those of an earlier
    charge, and data that nobody checked.
    """
    history = ledger.history()
    measured = {entry.key for entry in history}
    charged = job.key in measured
    if charged:
        job = _over_cells_counted(job, {entry.schema for entry in history if entry.key == job.key})
    check_ledger(job, ledger)
    check_rules(job, measured)
    if not charged:
        check_stand_in(job)
        if not unchecked:
            require_check(job)
        compare_stand_in(job)
    record_rules(job, measured)
    return job, charged


def _over_cells_counted(job: Job, schemas: Collection[str]) -> Job:
    """The job over the cells that were charged for: maybe all of them, or finer ones for a past."""
    for cells in (job.cells, stored_cells(job), job.whole.cells):
        if cells is not None and cells.schema in schemas and cells.refines(job.cells):
            return job.over(cells)
    if not job.past:
        return job.whole
    raise ReleaseError(
        "builds_on: this release was paid for over coarser cells than the releases that it builds "
        "on; leave builds_on out, or give it another name, which is charged. Nothing was charged"
    )


def check_release(
    path: str | os.PathLike[str] | Job, *, max_rows_total: int | None = None
) -> CheckReport:
    """PRIVATE, for the owner: everything that a release file and its data disagree on.

    A check that passes leaves a stamp beside the release file, without which `release` spends
    nothing.

    Args:
        path: a release file, or the folder of one called release.toml
        max_rows_total: a declared bound on the number of rows
    """
    from psephos.engines import as_source

    job = path if isinstance(path, Job) else Job.read(path)
    check_stand_in(job)
    report = _compared(job, as_source(job.data), max_rows_total)
    if not report.ok:
        _write_stamp(job, None)
    else:
        try:
            compare_stand_in(job)
        except ReleaseError:
            _write_stamp(job, None)
            raise
    notes = (*_total_notes(job, report.counted), *_edition_notes(job))
    return replace(report, findings=(*report.findings, *notes))


def _compared(job: Job, source: Reader | BitMatrix, max_rows_total: int | None) -> CheckReport:
    """The check of a source; one that passes leaves its stamp."""
    from psephos.owner.check import check

    state = _state(source)
    # Written out, `drop` is a decision; left to the default, it may be news.
    dropped = [
        name
        for name, entry in job.file.attributes.items()
        if entry.unknown == "drop" and "unknown" in entry.model_fields_set
    ]
    report = check(
        source,
        job.domain,
        unit=job.unit,
        max_rows_total=max_rows_total,
        left_out=dropped,
        impossible=[(str(each), each.domain, each.conjuncts) for each in job.impossible],
    )
    if report.ok:
        _write_stamp(job, {"state": state, "max_rows_total": max_rows_total})
    return report


def check_again(job: Job, source: Reader | BitMatrix) -> None:
    """Repeat the owner's check in the state that will be counted, unless that is known to pass."""
    stamp = _read_stamp(job)
    state = _state(source)
    if state is not None and stamp.get("state") == state:
        return
    report = _compared(job, source, stamp.get("max_rows_total"))
    if any(finding.kind == "unreadable" for finding in report.findings):
        raise SourceError(
            "the source could not be read through when the owner's check was repeated: a "
            "connection was lost, or somebody wrote to it meanwhile. Nothing was charged by this "
            "run: run it again, or `psephos check RELEASE`, which tells the owner why"
        )
    if not report.ok:
        raise ReleaseError(
            "the data have changed since the owner's check, and would not pass it now: run "
            "`psephos check RELEASE`, which tells the owner why, or say --unchecked. Nothing was "
            "charged by this run. (In Python: ps.check_release, unchecked=True)"
        )


@contextmanager
def one_state(
    job: Job, say: Callable[[str], None], *, unchecked: bool
) -> Iterator[Reader | BitMatrix]:
    """The source in the one state that all tables of a release are counted in.

    The owner's check is repeated in that state, so that what was checked is what is counted.
    """
    from psephos.engines import in_one_state

    with in_one_state(job.data) as source:
        if not unchecked:
            say("comparing schema and data")
            check_again(job, source)
        yield source


def _state(source: Reader | BitMatrix) -> str | None:
    """A hash of what tells the state of the rows; None where nothing does."""
    from psephos.engines.duckdb.reader import Reader

    try:
        version = source.version() if isinstance(source, Reader) else None
    except Exception:  # noqa: BLE001 - the check tells what is wrong with the source
        version = None
    return None if version is None else digest(version)


def check_stand_in(job: Job) -> None:
    """Refuse a stand-in whose bytes are those of the source."""
    if job.file.stand_in is not None:
        refuse_source(job, job.folder / job.file.stand_in, read=True)


def compare_stand_in(job: Job) -> None:
    """Refuse a stand-in whose counts are those of the source, whatever file or table holds them."""
    if job.file.stand_in is None or job.file.stand_in_is_public:
        return
    from psephos.engines import BitMatrix, as_source
    from psephos.engines.duckdb.reader import UNCOUNTABLE
    from psephos.engines.folders import source_files
    from psephos.owner.stand_in import is_copy

    place = job.folder / job.file.stand_in
    if not source_files(place):
        return  # what is not there decides nothing
    source, stand_in = as_source(job.data), public_source(job, place)
    if isinstance(source, BitMatrix) or isinstance(stand_in, BitMatrix):
        return
    copied: bool | None = None
    try:
        copied = is_copy(source, stand_in, job.questions.domain)
    except PsephosError:
        raise
    except Exception:  # noqa: BLE001 - an engine's words may hold an entry
        pass
    if copied is None:
        raise SourceError(UNCOUNTABLE)  # outside the handler, so that it has no context
    if copied:
        raise ReleaseError(
            f"stand_in: {place.name} has the source's own counts, or all but: "
            "independent tables would differ by more. A stand-in is public, since what is decided "
            "by it costs no budget, so this would publish them. Name a table of other rows, e.g. "
            "of an earlier year, or leave stand_in out; if exactly these counts have been "
            "published, write stand_in_is_public = true. Nothing was charged"
        )


def ledger_trouble(job: Job) -> PsephosError | None:
    """What a release would say of the ledger, if there is one; told early, it costs nothing."""
    try:
        check_paid(job, None)
    except PsephosError as error:
        return error
    return None


def _total_notes(job: Job, counted: int | None) -> tuple[Mismatch, ...]:
    """Whether the declared number of rows is the one that is counted."""
    total = job.file.total
    if total is None or counted is None or total == counted:
        return ()
    text = (
        f"{total:,} rows are declared and {counted:,} have a cell; published numbers will add up "
        "to what is declared"
    )
    return (Mismatch("total", "total", "warning", text),)


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


def require_check(job: Job) -> None:
    """Refuse to spend on a schema that was never compared with the data."""
    if not is_checked(job):
        raise ReleaseError(
            "this schema has not been compared with the data, or not with success: run `psephos "
            "check RELEASE` first, or say --unchecked. Nothing was charged. (In Python: "
            "ps.check_release, unchecked=True)"
        )


def is_checked(job: Job) -> bool:
    """Has the owner's check passed for this schema, unit and source?"""
    return _stamp_place(job).exists()


def _write_stamp(job: Job, facts: dict[str, Any] | None) -> None:
    """Leave a stamp, or take it away."""
    place = _stamp_place(job)
    try:
        if facts is not None:
            place.parent.mkdir(exist_ok=True)
            place.write_text(STAMP + json.dumps(facts), encoding="utf-8")
            place.chmod(0o600)  # its name follows from spellings, too
        else:
            place.unlink(missing_ok=True)
    except OSError as error:
        raise ReleaseError(
            f"{place} cannot be written: {error.strerror}; make the folder of the release file "
            "writable"
        ) from None


def _read_stamp(job: Job) -> dict[str, Any]:
    """What a stamp says; nothing if there is none, or an older one."""
    try:
        facts = json.loads(_stamp_place(job).read_text(encoding="utf-8").removeprefix(STAMP))
    except (OSError, ValueError, RecursionError):
        return {}
    return facts if isinstance(facts, dict) else {}


def _stamp_place(job: Job) -> Path:
    """Named by what was compared, not by what was asked: tables and budget may change."""
    where = (*job.source_place, job.file.edition)
    rules = [(name, rule.digest()) for name, rule in job.cleaning.items()]
    compared = (job.domain, str(job.unit), *where, job.file.zeros, *rules)
    return selection_folder(job) / f"{digest(compared)[:32]}.checked"


# ---- the ledger --------------------------------------------------------------------------------


def remaining_budget(job: Job) -> Budget | None:
    """What the ledger still holds, if it is there: planning needs none."""
    return open_ledger(job).remaining() if job.ledger.exists() else None


def open_ledger(job: Job, ledger: Ledger | None = None) -> Ledger:
    """The data set's ledger, or the one that is open, if the release file speaks of it."""
    if ledger is not None and ledger.path.resolve() != job.ledger.resolve():
        raise LedgerError(f"{ledger.path} is open, and the release file speaks of {job.ledger}")
    if not job.ledger.exists():
        raise LedgerError(
            f"there is no ledger at {job.ledger}. If this data set has none yet, its owner makes "
            "one, once: psephos check RELEASE --create-ledger"
        )
    ledger = Ledger.open(job.ledger) if ledger is None else ledger
    if ledger.dataset != job.file.ledger.dataset:
        raise LedgerError(
            f"{job.ledger} is the ledger of {ledger.dataset!r}, the release file speaks of "
            f"{job.file.ledger.dataset!r}; correct ledger.path or ledger.dataset"
        )
    if ledger.unit != job.unit:
        raise LedgerError(
            f"{job.ledger} protects by {ledger.unit!s}, the release file says {job.unit!s}; the "
            "unit of a ledger is for life, so correct [privacy]"
        )
    limit = job.file.ledger.budget()
    if ledger.budget != limit:
        raise LedgerError(
            f"{job.ledger} holds {ledger.budget} for life, the release file says {limit}; correct "
            "[ledger]"
        )
    return ledger


def create_ledger(job: Job) -> Ledger:
    """The owner's ledger for a new data set, with the unit and the budget that the file names.

    A data set that was released before has one: a second would give its budget twice.
    """
    bundle = None if job.ledger.exists() else next(_paid_bundles(job), None)
    if bundle is not None:
        raise LedgerError(f"no ledger was made: {_second_ledger(job, bundle)}")
    return Ledger.create(
        job.ledger,
        dataset=job.file.ledger.dataset,
        unit=job.unit,
        budget=job.file.ledger.budget(),
    )


def _second_ledger(job: Job, bundle: Path) -> str:
    return (
        f"{bundle} is a paid release of {job.file.ledger.dataset!r}, so this data set has a ledger "
        "already, and another one would give its budget a second time. Put the old ledger back at "
        f"{job.ledger}; if that bundle is of other data, move it away, or give these data another "
        "ledger.dataset"
    )


def _paid_bundles(job: Job) -> Iterator[Path]:
    """Releases of this data set: at the bundle's place, among those built on, and beside it."""
    beside = sorted(place.parent for place in job.bundle.parent.glob("*/manifest.json"))
    for place in (job.bundle, *(job.folder / name for name in job.file.builds_on), *beside):
        receipt = last_receipt(place)
        charged = isinstance(receipt, dict) and bool(receipt.get("charge"))
        if charged and receipt.get("dataset") == job.file.ledger.dataset:
            yield place


def check_ledger(job: Job, ledger: Ledger) -> None:
    """Refuse a second ledger of the data set, or one that is older than releases that lie here."""
    for place in _paid_bundles(job):
        try:
            anchor = Anchor.from_dict(last_receipt(place)["anchor"])
        except (PsephosError, KeyError, TypeError, ValueError):
            continue  # a damaged receipt: `verify` tells
        if anchor.dataset_id != ledger.dataset_id:
            raise LedgerError(f"this run charged nothing: {_second_ledger(job, place)}")
        _check_anchor(ledger, anchor, place)
    job.check_past(ledger)


def check_paid(job: Job, ledger: Ledger | None) -> None:
    """Refuse a ledger that lacks the charge of the bundle at hand; readers of bundles have none."""
    if ledger is not None or job.ledger.exists():
        check_ledger(job, open_ledger(job, ledger))


def _check_anchor(ledger: Ledger, anchor: Anchor, place: Path) -> None:
    try:
        ledger.verify(anchor=anchor)
    except LedgerError as error:
        raise LedgerError(
            f"this ledger is not the one that paid for {place}, or an older copy of it: {error}. "
            "Put the newest ledger back; budget that was spent does not come back"
        ) from None


# ---- budget and disk ---------------------------------------------------------------------------


def check_forecast(forecast: ReleaseForecast, ledger: Ledger, *, charged: bool) -> None:
    """Refuse what costs more than is left, or finds no room, before anything is charged for it."""
    rest, cost = ledger.remaining(), forecast.budget
    # What another currency costs, the kernel prices.
    if not charged and cost.currency == rest.currency and cost > rest:
        raise BudgetExceededError(f"{forecast.shortage(rest)}. Nothing was charged", cost, rest)
    check_persons_affordable(forecast.job, cost, ledger)
    check_room(forecast)


def check_room(forecast: ReleaseForecast) -> None:
    """Refuse a release if memory or the disk could not hold the result."""
    from psephos.release.bundle.manifest import release_json

    check_memory(forecast.job, forecast.steps)
    size = len(json_text(release_json(forecast.job)).encode())
    if size > JSON_BYTES:
        raise ReleaseError(
            f"the release file makes a release.json of {size:,} bytes, and bundles hold "
            f"{JSON_BYTES:,}; declare fewer values, or bins. Nothing was charged"
        )
    place, needed = forecast.job.bundle.parent, forecast.disk_bytes
    try:
        free = shutil.disk_usage(place).free
    except OSError:
        raise ReleaseError(f"there is no folder {place} to write the bundle to") from None
    if not os.access(place, os.W_OK | os.X_OK):
        raise ReleaseError(
            f"{place} cannot be written to, where the bundle goes; nothing was charged"
        )
    if free < needed:
        raise ReleaseError(
            f"{place} has {free / 1e6:,.0f} MB free and the bundle needs about "
            f"{needed / 1e6:,.0f} MB; make room first. Nothing was charged"
        )
