"""Looking a release in parts through: hashes, the charge, and every number from the noisy ones.

Everything is worked out again from the sealed answers, run by run, so that it takes as long as the
release did and no more memory.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa

from psephos.kernel import gate
from psephos.kernel.ledger import Ledger
from psephos.kernel.lineage import root_name
from psephos.release.bundle.files import json_text, read_json, read_parquet, sha256_of
from psephos.release.bundle.requests import REHEARSAL, ReleaseRequest, StrategyQuestion
from psephos.release.bundle.write import release_json
from psephos.release.parts.bundle import (
    ANSWERS_FOLDER,
    ESTIMATE_FOLDER,
    PartsBundle,
    request_name,
)
from psephos.release.parts.estimates import KINDS, PartEstimates
from psephos.release.parts.plan import PartsForecast
from psephos.release.parts.published import published_runs
from psephos.release.parts.tables import (
    PART_NUMBERS,
    TABLES_FOLDER,
    level_folder,
    part_rows,
    run_file,
)
from psephos.release.verify.charges import check_charges
from psephos.release.verify.verification import Verification, WrongError, verification
from psephos.strategy.level_plan import LevelPlan, PartTables

CLOSE = 1e-7
"""How far real numbers may be from those worked out here, as a share of the largest."""
SINGLE_FILES = ("release.json", "receipt.json", "receipts.bin", "strategy.bin", "report.html")


def verify_parts(
    path: str | os.PathLike[str], *, ledger: Ledger | str | os.PathLike[str] | None = None
) -> Verification:
    """Check a release in parts; see `psephos.release.verify.verify.verify`."""
    bundle = PartsBundle.open(path)
    steps = [("files", _files), ("request", _request), ("receipt", check_parts_receipt)]
    checks = [(name, partial(step, bundle)) for name, step in steps]
    if ledger is not None:
        checks.append(("ledger", partial(_ledger, bundle, ledger)))
    checks += [("answers", partial(_answers, bundle)), ("tables", partial(_tables, bundle))]
    return verification(path, checks, ledger)


def _files(bundle: PartsBundle) -> str:
    """Every file that belongs here, none other, each with its hash."""
    marks = bundle.manifest["files"]
    there = set()
    for file in bundle.path.rglob("*"):
        if file.is_symlink():
            raise WrongError(f"{file.relative_to(bundle.path)} is a link to somewhere else")
        if file.is_file():
            there.add(file.relative_to(bundle.path).as_posix())
        elif not file.is_dir():
            raise WrongError(f"{file.relative_to(bundle.path)} is no file")
    there.discard("manifest.json")
    places = _places(bundle)
    strange = [
        name
        for name in sorted(there | set(marks))
        if name not in places and not name.startswith(f"{TABLES_FOLDER}/")
    ]
    faults = [f"{name} is missing" for name in sorted(set(marks) - there)]
    faults += [f"{name} is not in the manifest" for name in sorted(there - set(marks))]
    faults += [f"{name} does not belong here" for name in strange]
    if faults:
        raise WrongError("; ".join(faults[:20]))
    changed = [name for name in sorted(marks) if sha256_of(bundle.path / name) != marks[name]]
    if changed:
        raise WrongError(f"changed since the release: {', '.join(changed[:20])}")
    return f"{len(marks):,} files, every hash as the manifest has it"


def _places(bundle: PartsBundle) -> set[str]:
    """Where files lie, apart from tables."""
    answers = {f"{ANSWERS_FOLDER}/{receipt.name}" for receipt in bundle.measurement.receipts}
    levels = range(len(bundle.tree.names) - 1)
    stored = {f"{ESTIMATE_FOLDER}/{kind}-{level}.npy" for kind in KINDS for level in levels}
    return {*SINGLE_FILES, *answers, *stored}


def _request(bundle: PartsBundle) -> str:
    """Does the manifest speak of what release.json asks?"""
    job, manifest = bundle.job, bundle.manifest
    if json_text(read_json(bundle.path / "release.json")) != json_text(release_json(job)):
        raise WrongError("release.json holds something that a release does not write")
    facts = {
        "fingerprint": job.fingerprint,
        "name": job.file.name,
        "title": job.file.title or job.file.name,
        "edition": job.file.edition,
        "levels": dict(zip(bundle.tree.names, bundle.tree.sizes, strict=True)),
    }
    for key, fact in facts.items():
        if manifest.get(key) != fact:
            raise WrongError(f"the manifest's {key} is not {fact!r:.80}")
    if bundle.spend != job.budget:
        raise WrongError(f"{bundle.spend} was spent, release.json says {job.budget}")
    if bundle.simulation:
        if bundle.receipt["charge"] or manifest["key"] != REHEARSAL:
            raise WrongError("the manifest says that it is a rehearsal, and it was charged")
        return "a rehearsal of what release.json asks"
    if manifest["key"] != job.key:
        raise WrongError("the key is not that of this request")
    receipt, limit = bundle.receipt, job.file.ledger.budget()
    written = [limit.currency, str(limit.amount)]
    if [receipt["dataset"], receipt["budget"]] != [job.file.ledger.dataset, written]:
        raise WrongError("the receipt is that of another ledger")
    return f"{job.file.name!r}: {len(job.tables)} tables of {bundle.tree}, as release.json asks"


def check_parts_receipt(bundle: PartsBundle) -> str:
    """Does the charge pay for this query in these parts, with these answers?"""
    if bundle.simulation:
        return "a rehearsal on made-up data: nothing was charged"
    measurement, job = bundle.measurement, bundle.job
    schema = gate.fingerprint(job.domain)
    lineage = (root_name(schema, job.file.edition), f"parts {job.file.by}")
    if measurement.lineage != lineage:
        raise WrongError("the charge was made for another schema, or for other parts")
    if bundle.receipt["charge"]["fingerprint"] != request_name(measurement, bundle.spend):
        raise WrongError("the charge was made for another query, other weights or another spend")
    ReleaseRequest(
        job.file.name,
        StrategyQuestion(bundle.strategy, job.cells),
        bundle.spend,
        measurement.key,
        job.file.edition,
        measurement.manifest,
        bundle.receipt,
        job.unit,
    ).check_charge(schema)
    return f"{bundle.spend} was charged for this query in all parts, and these receipts stored"


def _ledger(bundle: PartsBundle, ledger: Ledger | str | os.PathLike[str]) -> str:
    return check_charges(ledger, bundle.job, [(bundle.measurement.key, bundle.receipt)])


def _answers(bundle: PartsBundle) -> str:
    """Does every sealed file hold what its receipt says?"""
    measurement = bundle.measurement
    for level in measurement.measured:
        for _ in measurement.answers(level):
            pass
    return f"{len(measurement.receipts):,} sealed files hold the answers that the ledger stored"


def _tables(bundle: PartsBundle) -> str:
    """Every number of every table, worked out again; and no file of tables that is not."""
    with tempfile.TemporaryDirectory() as work:
        estimates = PartEstimates(bundle.measurement, Path(work))
        _check_estimate(bundle, estimates)
        _check_errors(bundle)
        names, numbers = set(), 0
        for name, rows in _worked_out(bundle, estimates, Path(work)):
            stored = read_parquet(bundle.path / name, (rows.schema,), rows.num_rows)
            _compare(name, stored, rows)
            names.add(name)
            numbers += rows.num_rows
    listed = {name for name in bundle.manifest["files"] if name.startswith("tables/")}
    if listed != names:
        raise WrongError(f"{min(listed ^ names)} is no file of these tables, or is missing")
    return f"{numbers:,} numbers of all parts follow from the noisy integers, and add up"


def _worked_out(
    bundle: PartsBundle, estimates: PartEstimates, work: Path
) -> Iterator[tuple[str, pa.Table]]:
    job, tree = bundle.job, bundle.tree
    for level, parts, numbers, _ in published_runs(job, estimates, work):
        for table in job.tables:
            folder = level_folder(job.table_files[table.name], tree.names[level])
            rows = part_rows(job, tree, table, level, parts, numbers)
            yield (folder / run_file(parts)).as_posix(), rows


def _check_estimate(bundle: PartsBundle, estimates: PartEstimates) -> None:
    stored = PartEstimates(bundle.measurement, stored=bundle.path / ESTIMATE_FOLDER).fit
    for kind, ours, theirs in zip(
        KINDS,
        (estimates.fit.values, estimates.fit.handed_down),
        (stored.values, stored.handed_down),
        strict=True,
    ):
        for level, (array, other) in enumerate(zip(ours, theirs, strict=True)):
            if not _close(np.asarray(array), np.asarray(other)):
                raise WrongError(f"estimate/{kind}-{level}.npy does not follow from the answers")


def _check_errors(bundle: PartsBundle) -> None:
    """Are the errors that the manifest tells those of this query, these weights and this spend?"""
    tables = PartTables.levels_alike(bundle.tree, bundle.job.workload)
    plan = LevelPlan(tables, bundle.strategy, bundle.measurement.weights)
    ours = [vars(error) for error in PartsForecast(bundle.job, plan, bundle.spend).errors]
    theirs = bundle.manifest["errors"]
    rmse = [np.array([error["rmse"] for error in errors]) for errors in (ours, theirs)]
    same = [{**error, "rmse": 0} for error in ours] == [{**error, "rmse": 0} for error in theirs]
    if not same or not _close(*rmse):
        raise WrongError("the errors in the manifest do not follow from the query and the spend")


def _compare(name: str, stored: pa.Table, rows: pa.Table) -> None:
    for column in rows.column_names:
        theirs, ours = stored[column], rows[column]
        if column not in PART_NUMBERS:
            same = theirs.cast(pa.string()).equals(ours.cast(pa.string()))
        elif column == "count":
            same = theirs.equals(ours)
        else:
            same = _close(ours.to_numpy(), theirs.to_numpy())
        if not same:
            raise WrongError(f"{name}: column {column!r} does not follow from the noisy integers")


def _close(ours: np.ndarray, theirs: np.ndarray) -> bool:
    scale = max(1.0, float(np.abs(ours).max(initial=0.0)))
    return bool(np.isfinite(theirs).all() and (np.abs(ours - theirs) <= CLOSE * scale).all())
