"""Verify a bundle without the data: hashes, receipt, arithmetic.

Whatever follows from the noisy integers and release.json is worked out again, by the code that
writes a release, and held against the files and the manifest: views, tables, errors, decimals,
distances, groups, the plan and its options, and which estimate was published. The manifest is the
publisher's: what it says settles choices that hang on the last digits of floats, and nothing else
(psephos.release.verify.published). Charges are compared with the ledger, where it is given
(psephos.release.verify.charges).

What it cannot show is said with the result: that the noisy integers came from the data, or that
the noise in them was drawn honestly, no file can prove.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np

from psephos.errors import ReleaseError
from psephos.infer.consistency import ConsistentTables
from psephos.kernel.ledger import Ledger
from psephos.plans.session import UNSPENT
from psephos.release.bundle.bundle import (
    CELLS_FILE,
    COORDINATES_FILE,
    ESTIMATE_FILE,
    PRIOR_FILE,
    ROWS_STEM,
    SYNTHETIC_FOLDER,
    Bundle,
    group_file,
)
from psephos.release.bundle.files import (
    json_text,
    read_floats,
    read_integers,
    read_json,
    sha256_of,
)
from psephos.release.bundle.requests import (
    request_folders,
)
from psephos.release.bundle.write import (
    method_facts,
    release_json,
    strategy_facts,
    synthetic_facts,
    total_spend,
)
from psephos.release.formats.csv_text import csv_bytes
from psephos.release.parts.bundle import is_in_parts
from psephos.release.parts.verify import verify_parts
from psephos.release.preflight.selection import AUTO
from psephos.release.spec.entries import View
from psephos.release.spec.persons import PERSONS_FOLDER
from psephos.release.verify.charges import check_charges, check_receipts
from psephos.release.verify.files import (
    PLAN_TOLERANCE,
    check_decimals,
    check_formats,
    compare_block,
    compare_table,
    format_files,
    has_formats,
)
from psephos.release.verify.persons import check_persons
from psephos.release.verify.published import (
    check_estimate,
    check_groups,
    check_plan_estimate,
    check_rounding,
    read_groups,
)
from psephos.release.verify.verification import Verification, WrongError, verification
from psephos.release.views.comparison import compare_past, worst_of
from psephos.release.views.gaps import Shift
from psephos.release.views.of_requests import views_of
from psephos.release.views.synthetic import written_out
from psephos.release.views.views import Views
from psephos.synthesis.table import SyntheticTable

NEAREST_TOLERANCE = 1e-6
"""How much further than the nearest consistent tables may be from the noisy numbers, as a share."""
ROW_GAP = 2
"""How many times further from the model than rows that are made up again made-up rows may be."""


def verify(
    path: str | os.PathLike[str], *, ledger: Ledger | str | os.PathLike[str] | None = None
) -> Verification:
    """Look a bundle through: every hash, the receipt, and every number that can be recomputed.

    Args:
        path: the bundle's directory
        ledger: the data set's ledger, if the owner verifies: then the charge is looked up in it
    """
    if not isinstance(path, str | os.PathLike):
        raise ReleaseError(f"a bundle is a directory, got {path!r}")
    if is_in_parts(path):
        return verify_parts(path, ledger=ledger)
    bundle = Bundle.open(path)
    steps: list[tuple[str, Callable[[Bundle], str]]] = [
        ("files", _files),
        ("request", _request),
        ("receipt", check_receipts),
        ("past" if bundle.method is None else "plan", _past),
        ("raw view", _raw),
        ("consistent view", _consistent),
        ("published view", _published),
    ]
    if bundle.manifest.get("persons") is not None:
        steps.append(("persons", check_persons))
    if bundle.manifest.get("synthetic") is not None:
        steps.append(("made-up rows", _synthetic))
    if has_formats(bundle):
        steps.append(("other files", check_formats))
    if ledger is not None:
        steps.insert(3, ("ledger", partial(_ledger, ledger=ledger)))
    return verification(path, [(name, partial(step, bundle)) for name, step in steps], ledger)


def _files(bundle: Bundle) -> str:
    """Every file that a release has, none other, each with its hash.

    Hashes come first: what else there should be follows from what files say.
    """
    marks, there = bundle.manifest["files"], set()
    for file in bundle.path.rglob("*"):
        if file.is_symlink():
            raise WrongError(f"{file.relative_to(bundle.path)} is a link to somewhere else")
        if file.is_file():
            there.add(file.relative_to(bundle.path).as_posix())
    there.discard("manifest.json")  # the one that has the hashes of all others
    listed = set(marks)
    changed = [n for n in sorted(listed & there) if sha256_of(bundle.path / n) != marks[n]]
    right = listed if changed or listed - there else set(_expected(bundle))
    faults = [f"{name} is missing" for name in sorted((listed | right) - there)]
    faults += [f"{name} does not belong here" for name in sorted((listed | there) - right)]
    faults += [f"{name} is not in the manifest" for name in sorted((right & there) - listed)]
    faults += [f"changed since the release: {', '.join(changed)}"] if changed else []
    if faults:
        raise WrongError("; ".join(faults))
    return f"{len(listed)} files, every hash as the manifest has it"


def _expected(bundle: Bundle) -> Iterator[str]:
    """The files that a release of this job has, besides the manifest."""
    yield from ("release.json", "report.html")
    if bundle.job.prior is not None:
        yield PRIOR_FILE
    if bundle.views.estimate.nearest is not None:
        yield COORDINATES_FILE
    job = bundle.job
    for folder, request in zip(request_folders(bundle.manifest), bundle.all_requests, strict=True):
        yield from (f"{folder}/{name}" for name in request.file_names)
    views, kinds = bundle.views, job.file.output.table_formats
    if views.synthetic is not None:
        yield from (f"{SYNTHETIC_FOLDER}/{ROWS_STEM}.{kind}" for kind in kinds)
    for number, request in enumerate(bundle.persons, 1):
        yield from (f"{PERSONS_FOLDER}/{number}/{name}" for name in request.file_names)
    for stem in job.persons_files.values():
        yield from (f"{PERSONS_FOLDER}/{stem}.{kind}" for kind in kinds)
    yield from format_files(bundle)
    for view in views.kinds:
        yield from _view_files(bundle, view)


def _view_files(bundle: Bundle, view: View) -> Iterator[str]:
    """The files of one view."""
    job, views = bundle.job, bundle.views
    names = [f"block-{i + 1}" for i in range(len(views.blocks))]
    if view != "raw":
        shown = views.published_tables if view == "published" else job.tables
        names = [job.table_files[table.name] for table in shown]
    for name in names:
        yield from (f"{view}/{name}.{kind}" for kind in job.file.output.table_formats)
    if view == "published" and views.groups is not None:
        for g in range(len(views.groups.rules)):
            yield from (f"{folder}/{group_file(g)}" for folder in ("published", "estimate"))
    elif view == "published" and views.estimate.has_cells:
        yield from (f"{view}/{CELLS_FILE}", ESTIMATE_FILE)


def _request(bundle: Bundle) -> str:
    """Does the manifest speak of what release.json asks?"""
    job, manifest, method = bundle.job, bundle.manifest, bundle.method
    if method is not None and method.name != job.method.name != AUTO:
        raise WrongError(f"release.json asks for the plan {job.method.name!r}")
    if json_text(read_json(bundle.path / "release.json")) != json_text(release_json(job)):
        raise WrongError("release.json holds something that a release does not write")
    if manifest["requests"] != [request.facts() for request in bundle.all_requests]:
        raise WrongError("the manifest says something else of the requests than their files")
    if total_spend(job, bundle.requests) != bundle.spend:
        raise WrongError(f"the requests did not spend {bundle.spend} together")
    if bool(manifest.get("persons")) != bool(job.persons):
        raise WrongError("tables of persons are listed where they were asked for, and only there")
    if manifest["views"] != list(bundle.views.kinds):
        raise WrongError("the views are not those that were asked for")
    if manifest["fingerprint"] != job.fingerprint:
        raise WrongError("release.json asks something else than was released")
    least = 1 - UNSPENT if bundle.method is not None else Fraction(1)
    if job.budget is not None and not job.budget * least <= bundle.spend <= job.budget:
        raise WrongError(f"{bundle.spend} was spent, release.json says {job.budget}")
    _listed(bundle)
    _check_facts(bundle)
    if bundle.simulation:
        return "a rehearsal of what release.json asks"
    keys = [request.key for request in bundle.all_requests[len(job.past) :]]
    if keys != job.step_keys(len(keys)):
        raise WrongError("the key is not that of this request")
    receipt, limit = bundle.receipt, job.file.ledger.budget()
    if [receipt["dataset"], receipt["budget"]] != [
        job.file.ledger.dataset,
        [limit.currency, str(limit.amount)],
    ]:
        raise WrongError("the receipt is that of another ledger")
    return f"{job.file.name!r}: {len(job.tables)} tables at {bundle.spend}, as release.json asks"


def _check_facts(bundle: Bundle) -> None:
    """Refuse other titles, strategies, draws or intervals than those of the release."""
    job, manifest, method = bundle.job, bundle.manifest, bundle.method
    facts = {"title": job.file.title or job.file.name, "name": job.file.name}
    facts |= {"edition": job.file.edition}
    facts |= strategy_facts(bundle.requests) if method is None else method_facts(job, method)
    for key, fact in facts.items():
        if manifest.get(key) != fact:
            raise WrongError(f"the manifest's {key} is not {fact!r}")
    if manifest["draws"] != Views.draws:
        raise WrongError(f"intervals are made from {Views.draws:,} draws")
    if manifest["interval"] != bundle.views.interval_facts:
        raise WrongError("the manifest's words on intervals are not those of these numbers")


def _listed(bundle: Bundle) -> None:
    """Does the manifest list the tables, with shifts and a distance if some are published?"""
    manifest, published = bundle.manifest, "published" in bundle.manifest["views"]
    tables = bundle.views.published_tables if published else ()
    stems = bundle.job.table_files
    names = [(t.name, stems[t.name], t in tables) for t in bundle.job.tables]
    if [(t["name"], t["file"], "shifts" in t) for t in manifest["tables"]] != names:
        raise WrongError("the manifest lists other tables than were asked for")
    check_decimals(bundle)
    if (manifest["distance"] is not None) != published:
        raise WrongError("a distance is recorded for the published view, and for no other")
    facts = manifest.get("published")
    if (facts is not None) != published:
        raise WrongError("an estimate is recorded for the published view, and for no other")
    if facts is not None and ("groups" in facts) != (bundle.views.groups is not None):
        raise WrongError("groups are recorded where tables are in groups, and only there")


def _past(bundle: Bundle) -> str:
    """Do the noisy integers that were combined agree, as far as noise allows?"""
    if bundle.method is not None:
        return _retraced(bundle)
    comparisons = compare_past(bundle.views)
    if not comparisons:
        return "builds on no earlier release"
    worst = worst_of(comparisons)
    if not worst.ok:
        raise WrongError(str(worst))
    return str(worst)


def _retraced(bundle: Bundle) -> str:
    """Is each request what the plan asks, given what came of those before it?"""
    same = bundle.views.estimate.repeated
    name, count = bundle.job.method.name if bundle.method is None else bundle.method.name, len(same)
    paid = "asks what was asked" if bundle.simulation else "asks what was paid for"
    if all(same):
        return f"{name}, taken again step by step, {paid} in all {count} requests, to the letter"
    other = ", ".join(str(i + 1) for i, equal in enumerate(same) if not equal)
    return (
        f"{name} makes {count} requests of these kinds and spends; what request {other} asks is "
        "worked out in floats and comes out otherwise here: that it is the plan's was NOT checked"
    )


def _ledger(bundle: Bundle, ledger: Ledger | str | os.PathLike[str]) -> str:
    """Are the receipts what the ledger holds, and all that it holds of this release?"""
    requests = (*bundle.all_requests, *bundle.persons)
    return check_charges(ledger, bundle.job, [(r.key, r.receipt) for r in requests])


def _raw(bundle: Bundle) -> str:
    if "raw" not in bundle.manifest["views"]:
        return "not part of this release"
    for i in range(len(bundle.views.blocks)):
        compare_block(bundle, f"block-{i + 1}", bundle.views.raw(i))
    count = sum(len(block.values) for block in bundle.views.blocks)
    return f"{count:,} integers, exactly those that were measured"


def _consistent(bundle: Bundle) -> str:
    if "consistent" not in bundle.manifest["views"]:
        return "not part of this release"
    worst = 0.0
    for table in bundle.job.tables:
        again = bundle.views.table(table, "consistent")
        worst = max(worst, compare_table(bundle, table, "consistent", again))
    if bundle.views.estimate.nearest is not None:
        return _nearest(bundle, bundle.views.estimate.nearest)
    if bundle.method is not None:
        return f"within {worst:.1g} of the largest number of the plan's estimate, worked out again"
    return f"within {worst:.1g} standard errors of least squares on the noisy integers"


def _nearest(bundle: Bundle, tables: ConsistentTables) -> str:
    """Are tables as near to the noisy numbers as any can be? Others may be as near."""
    best = views_of(bundle.job, bundle.requests).estimate.nearest
    size, least = tables.size_of_moves, math.inf if best is None else best.size_of_moves
    if not size <= least * (1 + NEAREST_TOLERANCE):
        raise WrongError(
            f"the noisy numbers are moved by {size:.9g} standard deviations, and {least:.9g} is "
            "enough for tables that add up"
        )
    words = "in all" if tables.norm == "l1" else "at most"
    return (
        f"they add up, and move noisy numbers by {size:,.6g} standard deviations {words}: the least"
    )


def _published(bundle: Bundle) -> str:
    if "published" not in bundle.manifest["views"]:
        return "not part of this release"
    _listed(bundle)
    job, views, facts = bundle.job, bundle.views, bundle.manifest.get("published")
    if views.groups is not None and facts is not None:
        whole = read_groups(bundle.path / "published", views.groups, facts["total"])
        text = _check_tables(bundle)
        near = check_groups(views, views.groups, whole, bundle.group_estimates, facts)
        count = sum(vector.size for vector in whole.vectors)
        return f"{count:,} non-negative whole cells in groups {text}; {near}"
    if not views.estimate.has_cells:
        return f"{bundle.synthetic.rows:,} made-up rows {_check_tables(bundle)}"
    place = bundle.path / "published" / CELLS_FILE
    cells = read_integers(place, "count", job.workload.domain.size)
    if cells.dtype != np.int64 or (cells < 0).any():
        raise WrongError("the cells are not non-negative whole numbers, one for each")
    if job.zeros is not None and cells[job.zeros].any():
        raise WrongError("a cell that no row can lie in is not zero")
    text = f"{cells.size:,} non-negative whole cells {_check_tables(bundle)}"
    stored = read_floats(bundle.path / ESTIMATE_FILE, "count", cells.size)
    if bundle.method is not None:
        near = check_plan_estimate(views, stored, facts)
    else:
        near = check_estimate(views, stored, facts)
    return f"{text}; {check_rounding(views, cells, stored)}; {near}"


def _check_tables(bundle: Bundle) -> str:
    """Do cells add up to the tables as they were written, as far from others as is recorded?"""
    views = replace(bundle.views, stored=bundle.published)
    for table, facts in zip(bundle.job.tables, bundle.manifest["tables"], strict=True):
        if table not in views.published_tables:
            continue
        written = views.table(table, "published")
        compare_table(bundle, table, "published", written)
        _check_shifts(bundle, facts, table.name, views.shifts(table))
    sizes, recorded = views.distance, bundle.manifest["distance"]
    for key, size in sizes._asdict().items():
        if (size is None) != (recorded[key] is None):
            raise WrongError(f"distance: {key} is recorded where it is not known, or left out")
        if size is not None and not abs(size - recorded[key]) <= 1e-6 * max(1.0, size):
            raise WrongError(f"distance: {key} is {size:.6g}, {recorded[key]:.6g} is recorded")
    return (
        f"add up to every table; at most {sizes.largest:,.1f} from the consistent view, as recorded"
    )


def _check_shifts(bundle: Bundle, facts: dict[str, Any], name: str, shifts: list[Shift]) -> None:
    """Does the manifest record the shifts that a table has?"""
    records = facts["shifts"]
    stem = bundle.job.table_files[name]
    same = facts == {"name": name, "file": stem, "shifts": records}
    same &= len(records) == len(shifts)
    for record, shift in zip(records, shifts, strict=False):
        same &= (tuple(record["by"]), record["numbers"]) == (shift.by, shift.numbers)
        same &= abs(record["mean"] - shift.mean) <= 1e-6
    if not same:
        raise WrongError(f"{name!r} is shifted otherwise than is recorded")


def _synthetic(bundle: Bundle) -> str:
    """Are the made-up rows those of the published numbers, and as far from them as is recorded?"""
    views, recorded = bundle.views, bundle.manifest.get("synthetic")
    if views.synthetic is None or recorded is None:
        raise WrongError("made-up rows are recorded where a release has them, and only there")
    table = bundle.synthetic
    _check_csv(bundle, table)
    quality = views.published.quality_of(table)
    _check_numbers(recorded, synthetic_facts(bundle.job, quality))
    again, entry = views.synthetic, bundle.job.file.synthetic
    if views.estimate.has_cells and views.groups is None:
        place = bundle.path / "published" / CELLS_FILE
        cells = read_integers(place, "count", bundle.job.workload.domain.size)
        again = written_out(bundle.job, cells, bundle.estimate, bundle.simulation)
        written = entry is None or entry.rows in (None, int(cells.sum()))
        if written and not np.array_equal(table.records, again.records):
            raise WrongError("the rows are not the published cells written out")
    if np.array_equal(table.records, again.records):
        return f"{table.rows:,} rows, made up again to the letter; gaps to the model as recorded"
    limit = ROW_GAP * (1 + views.published.quality_of(again).largest)
    if quality.largest > limit:
        raise WrongError(
            f"a number of the rows is {quality.largest:,.1f} from the model; rows that are made up "
            f"from it stay within {limit:,.1f}"
        )
    return (
        f"{table.rows:,} rows of declared values whose gaps to the model are as recorded; the "
        "model is worked out in floats, and rows come out otherwise here: that they are its was "
        "NOT checked"
    )


def _check_csv(bundle: Bundle, table: SyntheticTable) -> None:
    """Refuse a CSV file of other rows than the ones that were compared."""
    if "csv" not in bundle.job.file.output.formats:
        return
    name = f"{SYNTHETIC_FOLDER}/{ROWS_STEM}.csv"
    if (bundle.path / name).read_bytes() != csv_bytes(table.to_arrow()):
        raise WrongError(f"{name} does not hold these rows")


def _check_numbers(recorded: Any, facts: Any, place: str = "synthetic") -> None:
    """Refuse recorded facts that are not these; numbers may be off in their last digits."""
    if isinstance(facts, dict) and isinstance(recorded, dict) and facts.keys() == recorded.keys():
        for key, fact in facts.items():
            _check_numbers(recorded[key], fact, f"{place}.{key}")
    elif isinstance(facts, list) and isinstance(recorded, list) and len(facts) == len(recorded):
        for i, fact in enumerate(facts):
            _check_numbers(recorded[i], fact, f"{place}[{i + 1}]")
    elif isinstance(facts, float) and isinstance(recorded, float):
        if not abs(facts - recorded) <= PLAN_TOLERANCE * max(1.0, abs(facts)):
            raise WrongError(f"{place} is {facts:.6g}, {recorded:.6g} is recorded")
    elif facts != recorded:
        raise WrongError(f"{place} is not {facts!r:.80}")
