"""The main job: plan, charge, measure, estimate, write. Cut short anywhere, it can be run again.

The strategy is on disk before the charge, the charge before the noise, and the noisy integers are
in the ledger before anything is written. So a second run finds what the first one had: it charges
nothing twice and never draws a second answer. The bundle appears whole, or not at all.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from psephos.errors import BudgetExceededError, LedgerError, PsephosError, ReleaseError
from psephos.kernel.budget import Budget
from psephos.kernel.ledger import Ledger
from psephos.kernel.measurement import Measurement
from psephos.kernel.protected import ProtectedTable
from psephos.kernel.storage import Anchor
from psephos.protect import protect, simulate
from psephos.release.bundle import Bundle, release_json, write_bundle
from psephos.release.files import JSON_BYTES, json_text, read_json
from psephos.release.forecast import Plan, plan, plan_paid, shortage
from psephos.release.measured import Measured, booked, receipt_of
from psephos.release.page import write_report
from psephos.release.request import Job
from psephos.release.selection import keep_request, kept_request
from psephos.release.synthetic_rows import synthetic_rows
from psephos.release.views import Views
from psephos.strategy.strategy import Strategy

Say = Callable[[str], None]


def release(path: str | os.PathLike[str] | Job, *, progress: Say | None = None) -> Bundle:
    """Publish what a release file asks for: charge the ledger, write the bundle.

    A second run of the same file opens the bundle that is there and charges nothing.

    Args:
        path: a release file, or the folder of one called release.toml
        progress: told what is being done, a few words at a time
    """
    job = path if isinstance(path, Job) else Job.read(path)
    say = progress or (lambda _: None)
    if job.bundle.is_symlink() and not job.bundle.exists():
        raise ReleaseError(f"{job.bundle} is a link to nowhere; remove it. Nothing was charged")
    if job.bundle.exists():
        return _same(job, Bundle.open(job.bundle))
    ledger = open_ledger(job)
    check_ledger(job, ledger)
    charged = any(entry.key == job.key for entry in ledger.history())
    request = kept_request(job) if charged else None
    if request is not None:
        forecast = plan_paid(job, *request)
    else:
        say("looking for the best strategy")
        forecast = plan(job, progress=lambda n, gain: say(f"{n}: {gain:.2f}× better than cells"))
    if not charged:
        check_affordable(forecast, ledger)
    check_room(forecast)
    if not charged:
        keep_request(job, forecast.strategy, forecast.budget)
    say("counting and drawing noise")
    data = protect(job.source, job.workload.domain, ledger=ledger, edition=job.file.edition)
    measurement = measure(data, forecast.strategy, forecast.budget, job.key)
    say("estimating")
    receipt = receipt_of(ledger, job.key)
    own = Measured(job.file.name, forecast.strategy, forecast.budget, measurement, receipt)
    return _written(forecast, own, job.bundle, say)


def rehearse(
    path: str | os.PathLike[str] | Job,
    *,
    rows: int = 10_000,
    seed: int = 0,
    progress: Say | None = None,
) -> Bundle:
    """The whole run on made-up data from the public schema alone: safe to show to anyone.

    It opens neither the source nor the ledger, and its bundle says "rehearsal" throughout.
    """
    job = path if isinstance(path, Job) else Job.read(path)
    say = progress or (lambda _: None)
    place = job.bundle.with_name(f"{job.bundle.name}.rehearsal")
    if place.exists():
        _remove_rehearsal(place)
    say("looking for the best strategy")
    made = plan(job, progress=lambda name, gain: say(f"{name}: {gain:.2f}× better than cells"))
    say("making up data")
    source = synthetic_rows(job, rows, seed)
    currency = job.file.ledger.budget().currency
    budget = booked(made.budget, currency)
    for past in job.past:
        budget += booked(past.spend, currency)
    data = simulate(
        source,
        job.workload.domain,
        unit=job.unit,
        budget=budget,
        seed=seed,
        edition=job.file.edition,
    )

    def measured(name: str, strategy: Strategy, spend: Budget, key: str) -> Measured:
        found = measure(data, strategy, spend, key)
        receipt = {"dataset": "made up", "dataset_id": found.dataset_id, "rows": rows}
        return Measured(name, strategy, spend, found, receipt)

    # What past releases asked is asked of the made-up data too.
    old = tuple(
        measured(each.name, each.strategy, each.spend, f"rehearsal of past {i + 1}")
        for i, each in enumerate(job.past)
    )
    own = measured(job.file.name, made.strategy, made.budget, "rehearsal")
    return _written(replace(made, job=replace(job, past=old)), own, place, say)


def measure(data: ProtectedTable, strategy: Strategy, spend: Budget, key: str) -> Measurement:
    """The one look at the data."""
    return data.vectorise().measure(strategy.query, spend=spend, key=key)


def _written(made: Plan, own: Measured, place: Path, say: Say) -> Bundle:
    def report(views: Views, where: Path) -> None:
        write_report(made, views, where, own.receipt)

    return write_bundle(made.job, own, place, report=report, progress=say)


def open_ledger(job: Job) -> Ledger:
    """The data set's ledger, if it is the one that the file speaks of."""
    if not job.ledger.exists():
        raise LedgerError(
            f"there is no ledger at {job.ledger}. If this data set has none yet, its owner makes "
            "one, once: psephos check RELEASE --create-ledger"
        )
    ledger = Ledger.open(job.ledger)
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
    paid = None if job.ledger.exists() else next(_paid_bundles(job), None)
    if paid is not None:
        raise LedgerError(
            f"no ledger was made: {paid} is a paid release of {job.file.ledger.dataset!r}, so this "
            "data set has a ledger already, and a new one would give its budget a second time. Put "
            f"the old ledger back at {job.ledger}; if that bundle is of other data, move it away, "
            "or give these data another ledger.dataset"
        )
    return Ledger.create(
        job.ledger,
        dataset=job.file.ledger.dataset,
        unit=job.unit,
        budget=job.file.ledger.budget(),
    )


def _paid_bundles(job: Job) -> Iterator[Path]:
    """Releases of this data set: at the bundle's place, among those built on, and beside it."""
    beside = sorted(place.parent for place in job.bundle.parent.glob("*/receipt.json"))
    for place in (job.bundle, *(job.folder / name for name in job.file.builds_on), *beside):
        try:
            held = read_json(place / "receipt.json")
        except ReleaseError:
            continue  # no bundle, or none that can be read
        charged = isinstance(held, dict) and bool(held.get("charge"))
        if charged and held.get("dataset") == job.file.ledger.dataset:
            yield place


def check_ledger(job: Job, ledger: Ledger) -> None:
    """Refuse a ledger that is older than releases which lie here, or knows nothing of the past."""
    for place in _paid_bundles(job):
        anchor = read_json(place / "receipt.json").get("anchor")
        try:
            known = Anchor.from_dict(anchor)
        except (PsephosError, KeyError, TypeError, ValueError):
            continue  # a damaged receipt: `verify` tells
        if known.dataset_id == ledger.dataset_id:
            _check_anchor(ledger, known, place)
    job.check_past(ledger)


def _check_anchor(ledger: Ledger, known: Anchor, place: Path) -> None:
    try:
        ledger.verify(anchor=known)
    except LedgerError as error:
        raise LedgerError(
            f"this ledger is not the one that paid for {place}, or an older copy of it: {error}. "
            "Put the newest ledger back; budget that was spent does not come back"
        ) from None


def check_affordable(made: Plan, ledger: Ledger) -> None:
    """Refuse before anything is charged, and say what would do."""
    left = ledger.remaining()
    cost = made.budget
    if cost.currency != left.currency:
        return  # the kernel prices it in the ledger's currency
    if cost > left:
        raise BudgetExceededError(f"{shortage(made, left)}. Nothing was charged", cost, left)


def check_room(made: Plan) -> None:
    """Refuse before anything is charged if the disk could not hold the result."""
    size = len(json_text(release_json(made.job)).encode())
    if size > JSON_BYTES:
        raise ReleaseError(
            f"the release file makes a release.json of {size:,} bytes, and bundles hold "
            f"{JSON_BYTES:,}; declare fewer values, or bins. Nothing was charged"
        )
    answers, numbers = made.strategy.query.shape[0], made.job.workload.shape[0]
    needed = 32 * answers + 400 * numbers + 2**20
    place = made.job.bundle.parent
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


def _same(job: Job, bundle: Bundle) -> Bundle:
    """The bundle that is there, if it answers this very job."""
    if bundle.manifest["fingerprint"] != job.fingerprint or bundle.simulation:
        raise ReleaseError(
            f"{job.bundle} holds another release (other tables, schema, unit or budget); to "
            "publish this one too, which is charged, give it another output.bundle"
        )
    return bundle


def _remove_rehearsal(place: Path) -> None:
    """An older rehearsal makes way for a new one; anything else stays."""
    if not Bundle.open(place).simulation:
        raise ReleaseError(f"{place} is a release, not a rehearsal; move it away first")
    shutil.rmtree(place)
