"""The main job: plan, charge, measure, estimate, write. Cut short anywhere, it can be run again.

The strategy is on disk before the charge, the charge before the noise, and the noisy integers are
in the ledger before anything is written. So a second run finds what the first one had: it charges
nothing twice and never draws a second answer. The bundle appears whole, or not at all.

A rehearsal does the same with synthetic rows, drawn from the public schema alone.
"""

from __future__ import annotations

import math
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.random import Generator, default_rng

from psephos.domain.attribute import Attribute
from psephos.domain.values import OTHER
from psephos.engines.columns import columns_of
from psephos.errors import ReleaseError
from psephos.kernel.budget import Budget
from psephos.kernel.ledger import Ledger
from psephos.plans.static import Static
from psephos.protect import protect, simulate
from psephos.release.bundle import Bundle, write_bundle
from psephos.release.forecast import Forecast, forecast_paid, plan
from psephos.release.page import write_report
from psephos.release.preflight import (
    check_affordable,
    check_ledger,
    check_room,
    open_ledger,
    require_check,
)
from psephos.release.request import Job
from psephos.release.requests import MeasuredRequest, receipt_of
from psephos.release.selection import store_request, stored_request
from psephos.release.views import Views
from psephos.strategy.strategy import Strategy
from psephos.values import Array

Say = Callable[[str], None]
SYNTHETIC_CELLS = 20_000_000
"""The most cells for which counts are drawn cell by cell, zeros honoured."""
SYNTHETIC_ROWS = 10**9
"""The most rows of a rehearsal."""


def release(
    path: str | os.PathLike[str] | Job,
    *,
    unchecked: bool = False,
    ledger: Ledger | None = None,
    progress: Say | None = None,
) -> Bundle:
    """Publish what a release file asks for: charge the ledger, write the bundle.

    A second run of the same file opens the bundle that is there and charges nothing. The owner's
    check of schema and data comes first (`check_release`).

    Args:
        path: a release file, or the folder of one called release.toml
        unchecked: spend without a check that passed
        ledger: the data set's ledger, if it is open; else that of the release file is opened
        progress: told what is being done, a few words at a time
    """
    job = path if isinstance(path, Job) else Job.read(path)
    say = progress or (lambda _: None)
    if job.bundle.is_symlink() and not job.bundle.exists():
        raise ReleaseError(f"{job.bundle} is a link to nowhere; remove it. Nothing was charged")
    if job.bundle.exists():
        return _same(job, Bundle.open(job.bundle))
    ledger = open_ledger(job, ledger)
    charged = any(entry.key == job.key for entry in ledger.history())
    check_ledger(job, ledger)
    if not charged and not unchecked:
        require_check(job)
    forecast = _forecast(job, charged, say)
    if not charged:
        check_affordable(forecast, ledger)
    check_room(forecast)
    if not charged:
        store_request(job, forecast.strategy, forecast.budget)
    say("counting and drawing noise")
    static = Static(forecast.strategy)
    data = protect(job.source, job.workload.domain, ledger=ledger, edition=job.file.edition)
    steps = static.steps(data.vectorise(), spend=forecast.budget, key=job.key)
    requests = [
        MeasuredRequest(job.file.name, *step, receipt_of(ledger, step.measurement.key))
        for step in steps
    ]
    return _written(forecast, requests, job.bundle, say)


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
    forecast = _forecast(job, False, say)
    say("making up data")
    source = synthetic_rows(job, rows, seed)
    currency = job.file.ledger.budget().currency
    budget = forecast.budget.booked(currency)
    for request in job.past:
        budget += request.spend.booked(currency)
    data = simulate(
        source,
        job.workload.domain,
        unit=job.unit,
        budget=budget,
        seed=seed,
        edition=job.file.edition,
    )

    receipt = {"dataset": "made up", "dataset_id": "simulation", "rows": rows}

    def rehearsed(name: str, strategy: Strategy, spend: Budget, key: str) -> list[MeasuredRequest]:
        steps = Static(strategy).steps(data.vectorise(), spend=spend, key=key)
        return [MeasuredRequest(name, *step, receipt) for step in steps]

    # What past releases asked is asked of the made-up data too.
    past = [
        rehearsed(request.name, request.strategy, request.spend, f"rehearsal of past {i + 1}")
        for i, request in enumerate(job.past)
    ]
    requests = rehearsed(job.file.name, forecast.strategy, forecast.budget, "rehearsal")
    job = replace(job, past=tuple(request for steps in past for request in steps))
    return _written(replace(forecast, job=job), requests, place, say)


def _forecast(job: Job, charged: bool, say: Say) -> Forecast:
    """What will be measured; what was charged before is measured as it was then."""
    request = stored_request(job) if charged else None
    if request is not None:
        return forecast_paid(job, *request)
    say("looking for the best strategy")
    return plan(job, progress=lambda name, gain: say(f"{name}: {gain:.2f}× better than cells"))


def _written(forecast: Forecast, requests: list[MeasuredRequest], place: Path, say: Say) -> Bundle:
    def report(views: Views, where: Path) -> None:
        write_report(forecast, views, where, requests[-1].receipt)

    return write_bundle(forecast.job, requests, place, report=report, progress=say)


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


def synthetic_rows(job: Job, rows: int, seed: int) -> Any:
    """This many rows, spread unevenly over the declared values: as counts, or as a table."""
    for name, number in (("rows", rows), ("seed", seed)):
        whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
        if not whole or number < 0:
            raise ReleaseError(f"{name} is a whole number from 0, got {number!r}")
    if rows > SYNTHETIC_ROWS:
        raise ReleaseError(f"rows is at most {SYNTHETIC_ROWS:,} in a rehearsal, got {rows:,}")
    generator = default_rng(seed)
    shares = [generator.dirichlet(np.ones(n)) for n in job.workload.domain.shape]
    if job.workload.domain.size > SYNTHETIC_CELLS or job.unit.cap is not None:
        return _table(job, rows, generator)
    share = shares[0]
    for part in shares[1:]:
        share = np.multiply.outer(share, part).ravel()
    if job.zeros is not None:
        share = np.where(job.zeros, 0, share)
    return generator.multinomial(rows, share / share.sum())


def _table(job: Job, rows: int, generator: Generator) -> pa.Table:
    columns: dict[str, Any] = {}
    for name, attribute in columns_of(job.domain):
        share = generator.dirichlet(np.ones(attribute.size))
        cells = generator.choice(attribute.size, size=rows, p=share)
        columns[name] = _entries(attribute, cells)
    cap = job.unit.cap
    if cap is not None:
        columns[cap.column] = generator.integers(0, max(1, rows // 2), rows)
    return pa.table(columns)


def _entries(attribute: Attribute, cells: Array) -> list[Any]:
    """Entries that fall into these cells; a missing one falls into the cell OTHER."""
    if attribute.edges is None:
        values = (attribute.values[int(i)] for i in cells)
        return [None if value is OTHER else value for value in values]
    low, high = np.array(attribute.edges[:-1]), np.array(attribute.edges[1:])
    inside = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high - 1, 0.0))
    entries: list[Any] = [float(x) if math.isfinite(x) else 0.0 for x in inside]
    if attribute.size > len(entries):  # the cell OTHER comes last and has no edges
        entries.append(None)
    return [entries[int(i)] for i in cells]
