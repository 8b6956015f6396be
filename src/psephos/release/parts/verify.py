"""Looking a release in parts through: hashes, the charge, and every number from the noisy ones.

Everything is worked out again from the sealed answers, run by run, so that it takes as long as the
release did and no more memory.
"""

from __future__ import annotations

import os
import tempfile
from functools import partial
from pathlib import Path

import numpy as np

from psephos.kernel import gate
from psephos.kernel.ledger import Ledger
from psephos.kernel.lineage import root_name
from psephos.release.bundle.files import json_text, read_json
from psephos.release.bundle.manifest import release_json
from psephos.release.bundle.requests import REHEARSAL, ReleaseRequest, StrategyQuestion
from psephos.release.parts.bundle import (
    ANSWERS_FOLDER,
    ESTIMATE_FOLDER,
    PartsBundle,
    request_name,
)
from psephos.release.parts.estimates import KINDS, PartEstimates
from psephos.release.parts.plan import PartsForecast
from psephos.release.parts.published import published_runs
from psephos.release.parts.tables import TABLES_FOLDER, run_tables
from psephos.release.parts.write import parts_facts
from psephos.release.verify.charges import check_charges, check_ledger
from psephos.release.verify.files import check_facts, check_files, compare_table
from psephos.release.verify.verification import Verification, WrongError, verification
from psephos.strategy.level_plan import LevelPlan, PartTables
from psephos.values import Array

CLOSE = 1e-7
"""How far estimates may be from those worked out here, as a share of the largest."""
SINGLE_FILES = ("release.json", "receipt.json", "receipts.bin", "strategy.bin", "report.html")
ERROR_WORDS = "the errors in the manifest do not follow from the query and the spend: errors"


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
    """Every file that belongs here, none other, each with its hash; tables are found later."""
    marks = bundle.manifest["files"]

    def expected() -> set[str]:
        answers = {f"{ANSWERS_FOLDER}/{receipt.name}" for receipt in bundle.measurement.receipts}
        levels = range(len(bundle.tree.names) - 1)
        stored = {f"{ESTIMATE_FOLDER}/{kind}-{level}.npy" for kind in KINDS for level in levels}
        tables = {name for name in marks if name.startswith(f"{TABLES_FOLDER}/")}
        return {*SINGLE_FILES, *answers, *(stored & marks.keys()), *tables}

    return check_files(bundle.path, marks, expected)


def _request(bundle: PartsBundle) -> str:
    """Does the manifest speak of what release.json asks?"""
    job, manifest = bundle.job, bundle.manifest
    if json_text(read_json(bundle.path / "release.json")) != json_text(release_json(job)):
        raise WrongError("release.json holds something that a release does not write")
    if bundle.spend != job.budget:
        raise WrongError(f"{bundle.spend} was spent, release.json says {job.budget}")
    tables = PartTables.levels_alike(bundle.tree, job.workload)
    plan = LevelPlan(tables, bundle.strategy, bundle.measurement.weights)
    facts = parts_facts(PartsForecast(job, plan, bundle.spend), bundle.measurement)
    check_facts(manifest["errors"], facts.pop("errors"), ERROR_WORDS)
    for key, fact in facts.items():
        if manifest.get(key) != fact:
            raise WrongError(f"the manifest's {key} is not {fact!r:.80}")
    if bundle.simulation:
        if bundle.receipt["charge"] or manifest["key"] != REHEARSAL:
            raise WrongError("the manifest says that it is a rehearsal, and it was charged")
        return "a rehearsal of what release.json asks"
    if manifest["key"] != job.key:
        raise WrongError("the key is not that of this request")
    check_ledger(job, bundle.receipt)
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
    names, numbers = set(), 0
    with tempfile.TemporaryDirectory() as work:
        estimates = PartEstimates(bundle.measurement, Path(work))
        _check_estimate(bundle, estimates)
        for run in published_runs(bundle.job, estimates, Path(work)):
            for table in run_tables(bundle.job, bundle.tree, run):
                compare_table(bundle.path, table, ["parquet"])
                names.add(f"{table.stem}.parquet")
                numbers += table.table.num_rows
    listed = {name for name in bundle.manifest["files"] if name.startswith(f"{TABLES_FOLDER}/")}
    if listed != names:
        raise WrongError(f"{min(listed ^ names)} is no file of these tables, or is missing")
    return f"{numbers:,} numbers of all parts follow from the noisy integers, and add up"


def _check_estimate(bundle: PartsBundle, estimates: PartEstimates) -> None:
    """Refuse stored estimates that are not those of the sealed answers."""
    stored = PartEstimates(bundle.measurement, stored=bundle.path / ESTIMATE_FOLDER).fit
    pairs = (estimates.fit.values, stored.values), (estimates.fit.handed_down, stored.handed_down)
    for kind, (ours, theirs) in zip(KINDS, pairs, strict=True):
        for level, (array, other) in enumerate(zip(ours, theirs, strict=True)):
            if not _is_close(np.asarray(array), np.asarray(other)):
                raise WrongError(f"estimate/{kind}-{level}.npy does not follow from the answers")


def _is_close(ours: Array, theirs: Array) -> bool:
    scale = max(1.0, float(np.abs(ours).max(initial=0.0)))
    return bool(np.isfinite(theirs).all() and (np.abs(ours - theirs) <= CLOSE * scale).all())
