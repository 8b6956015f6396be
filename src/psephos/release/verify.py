"""Verify a bundle without the data: hashes, receipt, arithmetic.

What it cannot show is said with the result: that the noisy integers came from the data, or that
the noise in them was drawn honestly, no file can prove.

Published numbers must be a rounding of an estimate x of all cells, which is in the bundle, and that
estimate must be the one that the noisy integers give. It is worked out again, with as many steps as
the manifest says; iterations end within a stated distance of their limit, on any machine, so x is
compared to that distance. Which of many good roundings z of x is found turns on the last digit of
floats. So z is compared with x itself, by what rounding guarantees (a cell moves to one of its two
whole neighbours) and by what it reaches: the gaps of the tables' numbers are held against those of
x rounded anew.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import asdict, astuple, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from psephos.errors import PsephosError, ReleaseError
from psephos.infer.rounding import RoundingGaps, round_cells
from psephos.kernel.ledger import Ledger
from psephos.kernel.storage import Anchor
from psephos.matrix import Identity, Kron, Matrix
from psephos.release.bundle import (
    CELLS_FILE,
    ESTIMATE_FILE,
    Bundle,
    distance,
    interval_of,
    release_json,
    strategy_facts,
)
from psephos.release.files import (
    file_name,
    json_text,
    read_csv,
    read_floats,
    read_integers,
    read_json,
    read_parquet,
    sha256_of,
)
from psephos.release.requests import (
    ESTIMATE_FORMAT,
    OLDEST_FORMAT,
    REQUEST_FILES,
    REQUESTS_FOLDER,
    request_folders,
)
from psephos.release.views import Shift, Views, compare_past, possible_views, worst_of
from psephos.report.html import HtmlTable, notebook_html
from psephos.values import Array

MOST_REFITTED_CELLS = 2_000_000
"""The most cells for which the best fit is worked out again."""
NEIGHBOUR = 1.25
"""How far a cell may be from the best fit: rounding moves it by one at most."""
FACTOR = 2.0
"""How many times further numbers may be from the best fit than those of its rounding anew."""
TYPICAL, NUMBER = 0.5, 2.0
"""What is allowed on top, for the root mean square of the gaps and for the largest of a table."""
TOLERANCE = 1e-9
"""Of a standard error: how far a consistent number may be from its recomputation."""
ESTIMATE_TOLERANCE = 0.02
"""Of standard errors, as a root mean square: how far tables of the estimate may be from theirs."""
CANNOT = (
    "that the noisy integers came from the data, and that their noise was drawn as it should be",
    "what report.html says: it is hashed, not read again; the tables are what counts; titles, the "
    "publisher and facts are as the bundle has them",
    "without the ledger, that receipts are the ledger's own: they are not signed",
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
    bundle = Bundle.open(path)
    steps: list[tuple[str, Callable[[Bundle], str]]] = [
        ("files", _files),
        ("request", _request),
        ("receipt", _receipt),
        ("past", _past),
        ("raw view", _raw),
        ("consistent view", _consistent),
        ("published view", _published),
    ]
    if ledger is not None:
        steps.insert(3, ("ledger", partial(_ledger, ledger=ledger)))
    checks = []
    for name, step in steps:
        try:
            checks.append(Check(name, True, step(bundle)))
        except (_WrongError, PsephosError) as wrong:
            checks.append(Check(name, False, str(wrong)))
        except Exception as error:  # noqa: BLE001 - whatever is wrong with a file is a finding
            checks.append(Check(name, False, f"cannot be read ({type(error).__name__})"))
    return Verification(str(Path(path)), tuple(checks))


class _WrongError(Exception):
    """A check that does not hold."""


def _files(bundle: Bundle) -> str:
    """Every file that a release has, none other, each with its hash."""
    listed, expected = set(bundle.manifest["files"]), set(_expected(bundle))
    there = set()
    for file in bundle.path.rglob("*"):
        if file.is_symlink():
            raise _WrongError(f"{file.relative_to(bundle.path)} is a link to somewhere else")
        if file.is_file():
            there.add(file.relative_to(bundle.path).as_posix())
    there.discard("manifest.json")  # the one that has the hashes of all others
    faults = [f"{name} is missing" for name in sorted(expected - there)]
    faults += [f"{name} does not belong here" for name in sorted(there - expected)]
    faults += [f"{name} is not in the manifest" for name in sorted(expected & there - listed)]
    faults += [f"{name} is in the manifest" for name in sorted(listed - expected)]
    if faults:
        raise _WrongError("; ".join(faults))
    marks = bundle.manifest["files"]
    changed = [name for name in sorted(listed) if sha256_of(bundle.path / name) != marks[name]]
    if changed:
        raise _WrongError(f"changed since the release: {', '.join(changed)}")
    return f"{len(listed)} files, every hash as the manifest has it"


def _expected(bundle: Bundle) -> Iterator[str]:
    """The files that a release of this job has, besides the manifest."""
    yield from ("release.json", "report.html")
    job, old = bundle.job, bundle.manifest["format"] == OLDEST_FORMAT
    for folder in request_folders(bundle.manifest):
        names = ("manifest.json", *REQUEST_FILES) if old and folder != "." else REQUEST_FILES
        yield from ((Path(folder) / name).as_posix() for name in names)
    for view in possible_views(job, job.file.output.views):
        blocks = [f"block-{i + 1}" for i in range(len(bundle.views.blocks))]
        tables = [file_name(table.name) for table in job.tables]
        for name in blocks if view == "raw" else tables:
            yield from (f"{view}/{name}.{kind}" for kind in job.file.output.formats)
        if view == "published":
            yield f"{view}/{CELLS_FILE}"
            if bundle.manifest["format"] >= ESTIMATE_FORMAT:
                yield ESTIMATE_FILE


def _request(bundle: Bundle) -> str:
    """Does the manifest speak of what release.json asks?"""
    job, manifest = bundle.job, bundle.manifest
    folder = "past" if manifest["format"] == OLDEST_FORMAT else REQUESTS_FOLDER
    if json_text(read_json(bundle.path / "release.json")) != json_text(release_json(job, folder)):
        raise _WrongError("release.json holds something that a release does not write")
    requests = (*job.past, *bundle.requests)
    if manifest["requests"] != [request.facts() for request in requests]:
        raise _WrongError("the manifest says something else of the requests than their files")
    spends = [request.spend for request in bundle.requests]
    if sum(spends[1:], start=spends[0]) != bundle.spend:
        raise _WrongError(f"the requests did not spend {bundle.spend} together")
    if manifest["views"] != list(possible_views(job, job.file.output.views)):
        raise _WrongError("the views are not those that were asked for")
    if manifest["fingerprint"] != job.fingerprint:
        raise _WrongError("release.json asks something else than was released")
    if job.budget is not None and bundle.spend != job.budget:
        raise _WrongError(f"{bundle.spend} was spent, release.json says {job.budget}")
    _listed(bundle)
    facts = {"title": job.file.title or job.file.name, "name": job.file.name}
    facts |= {"edition": job.file.edition}
    facts |= strategy_facts(bundle.requests)
    for key, fact in facts.items():
        if manifest.get(key) != fact:
            raise _WrongError(f"the manifest's {key} is not {fact!r}")
    if manifest["draws"] != Views.draws:
        raise _WrongError(f"intervals are made from {Views.draws:,} draws")
    if manifest["interval"] != interval_of(bundle.views):
        raise _WrongError("the manifest's words on intervals are not those of these numbers")
    if bundle.simulation:
        return "a rehearsal of what release.json asks"
    if [r.measurement.key for r in bundle.requests] != job.step_keys(len(bundle.requests)):
        raise _WrongError("the key is not that of this request")
    receipt, limit = bundle.receipt, job.file.ledger.budget()
    if [receipt["dataset"], receipt["budget"]] != [
        job.file.ledger.dataset,
        [limit.currency, str(limit.amount)],
    ]:
        raise _WrongError("the receipt is that of another ledger")
    return f"{job.file.name!r}: {len(job.tables)} tables at {bundle.spend}, as release.json asks"


def _listed(bundle: Bundle) -> None:
    """Does the manifest list the tables, with shifts and a distance if some are published?"""
    manifest, published = bundle.manifest, "published" in bundle.manifest["views"]
    names = [(table.name, file_name(table.name), published) for table in bundle.job.tables]
    if [(t["name"], t["file"], "shifts" in t) for t in manifest["tables"]] != names:
        raise _WrongError("the manifest lists other tables than were asked for")
    if (manifest["distance"] is not None) != published:
        raise _WrongError("a distance is recorded for the published view, and for no other")
    rounded_from = manifest["format"] >= ESTIMATE_FORMAT and published
    if (manifest.get("published") is not None) != rounded_from:
        raise _WrongError("an estimate is recorded for the published view, and for no other")


def _receipt(bundle: Bundle) -> str:
    """Does each charge pay for its query, on this schema, at its spend, with its values?"""
    if bundle.simulation:
        return "a rehearsal on made-up data: nothing was charged"
    past, facts = bundle.job.past, ("dataset", "dataset_id", "budget", "unit")
    requests = (*past, *bundle.requests)
    for request in requests:
        request.measurement.require_release()
        request.check_receipt(bundle.job.unit)
        if any(request.receipt[fact] != bundle.receipt[fact] for fact in facts):
            raise _WrongError(f"{request.name!r} was measured on another data set")
    for fact in ("number", "values_hash", "key"):
        if len({request.receipt["charge"][fact] for request in requests}) < len(requests):
            raise _WrongError("one charge is counted twice")
    text = f"{bundle.spend} was charged for these very queries, and these integers stored for it"
    names = ", ".join(repr(request.name) for request in past)
    return text + (f"; so for what it builds on: {names}" if past else "")


def _past(bundle: Bundle) -> str:
    """Do the noisy integers that were combined agree, as far as noise allows?"""
    comparisons = compare_past(bundle.views)
    if not comparisons:
        return "builds on no earlier release"
    worst = worst_of(comparisons)
    if not worst.ok:
        raise _WrongError(str(worst))
    return str(worst)


def _ledger(bundle: Bundle, ledger: Ledger | str | os.PathLike[str]) -> str:
    """Are the receipts, to the letter, what the ledger holds?"""
    ledger = ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)
    for request in (*bundle.job.past, *bundle.requests):
        ledger.verify(anchor=Anchor.from_dict(request.receipt["anchor"]))
        request.check_ledger(ledger)
    number = bundle.receipt["charge"]["number"]
    return f"record {number} of {ledger.dataset!r} is this charge"


def _raw(bundle: Bundle) -> str:
    if "raw" not in bundle.manifest["views"]:
        return "not part of this release"
    for i in range(len(bundle.views.blocks)):
        _compare(bundle, "raw", f"block-{i + 1}", bundle.views.raw(i))
    count = sum(len(block.values) for block in bundle.views.blocks)
    return f"{count:,} integers, exactly those that were measured"


def _consistent(bundle: Bundle) -> str:
    if "consistent" not in bundle.manifest["views"]:
        return "not part of this release"
    worst = 0.0
    for table in bundle.job.tables:
        again = bundle.views.table(table, "consistent")
        worst = max(worst, _compare(bundle, "consistent", file_name(table.name), again))
    return f"within {worst:.1g} standard errors of least squares on the noisy integers"


def _published(bundle: Bundle) -> str:
    if "published" not in bundle.manifest["views"]:
        return "not part of this release"
    _listed(bundle)
    job, views = bundle.job, bundle.views
    place = bundle.path / "published" / CELLS_FILE
    cells = read_integers(place, "count", job.workload.domain.size)
    if cells.dtype != np.int64 or (cells < 0).any():
        raise _WrongError("the cells are not non-negative whole numbers, one for each")
    if job.zeros is not None and cells[job.zeros].any():
        raise _WrongError("a cell that no row can lie in is not zero")
    published = views.counted(cells)
    for table, facts in zip(job.tables, bundle.manifest["tables"], strict=True):
        written = views.table(table, "published", published)
        _compare(bundle, "published", file_name(table.name), written)
        _check_shifts(facts, table.name, views.shifts(table, published))
    sizes, recorded = distance(views, published), bundle.manifest["distance"]
    for key, size in sizes.items():
        if not abs(size - recorded[key]) <= 1e-6 * max(1.0, size):
            raise _WrongError(f"distance: {key} is {size:.6g}, {recorded[key]:.6g} is recorded")
    text = (
        f"{cells.size:,} non-negative whole cells add up to every table; at most "
        f"{sizes['largest']:,.1f} from the consistent view, as recorded"
    )
    if bundle.manifest["format"] < ESTIMATE_FORMAT:
        return f"{text}; {check_rounding(views, cells)}"
    stored = read_floats(bundle.path / ESTIMATE_FILE, "count", cells.size)
    near = check_estimate(views, stored, bundle.manifest["published"])
    return f"{text}; {check_rounding(views, cells, stored)}; {near}"


def _check_shifts(facts: dict[str, Any], name: str, shifts: list[Shift]) -> None:
    """Does the manifest record the shifts that a table has?"""
    records = facts["shifts"]
    same = facts == {"name": name, "file": file_name(name), "shifts": records}
    same &= len(records) == len(shifts)
    for record, shift in zip(records, shifts, strict=False):
        same &= (tuple(record["by"]), record["numbers"]) == (shift.by, shift.numbers)
        same &= abs(record["mean"] - shift.mean) <= 1e-6
    if not same:
        raise _WrongError(f"{name!r} is shifted otherwise than is recorded")


def _compare(bundle: Bundle, view: str, name: str, again: pa.Table) -> float:
    """How far, in standard errors, files are from what is recomputed; labels to the letter."""
    worst = 0.0
    scale = np.maximum(again["stderr"].to_numpy(), 1e-9)
    for kind in bundle.job.file.output.formats:
        place = f"{view}/{name}.{kind}"
        if kind == "csv":
            written = read_csv(bundle.path / place, again.schema, again.num_rows)
        else:
            written = read_parquet(bundle.path / place, (again.schema,), again.num_rows)
        for column in again.column_names:
            if not pa.types.is_floating(again.schema.field(column).type):
                if not written[column].equals(again[column]):
                    raise _WrongError(f"{place}: {column} is not what was written")
                continue
            gap = np.abs(written[column].to_numpy() - again[column].to_numpy()) / scale
            if not gap.max(initial=0) <= TOLERANCE:
                raise _WrongError(
                    f"{place}: {column} is up to {gap.max():.2g} standard errors from its "
                    "recomputation"
                )
            worst = max(worst, float(gap.max(initial=0)))
    return worst


def check_estimate(views: Views, stored: Array, facts: dict[str, Any] | None) -> str:
    """Refuse cells that are not what the noisy integers give; else say how near they are."""
    if facts is None or (facts["method"], facts["reason"]) != astuple(views.rule):
        raise _WrongError("the manifest says something else of the published view than its rule")
    if (stored < 0).any() or (views.job.zeros is not None and stored[views.job.zeros].any()):
        raise _WrongError("the estimate is below zero somewhere, or not zero where no row can be")
    if stored.size > MOST_REFITTED_CELLS:
        return (
            f"over {MOST_REFITTED_CELLS:,} cells the estimate is not worked out again: that it is "
            "what the noisy integers give was NOT checked"
        )
    again = views.rule.fit(views.job, views.estimate, facts["steps"]).vector
    shape = views.job.workload.domain.shape
    gap = views.job.workload.answer((stored - again).reshape(shape))
    typical = float(np.sqrt(np.mean((gap / np.maximum(views.stderr, 1e-9)) ** 2)))
    if not typical <= ESTIMATE_TOLERANCE:
        raise ReleaseError(
            f"the estimate is typically {typical:.2g} standard errors from what the noisy integers "
            f"give, worked out again; {ESTIMATE_TOLERANCE} is allowed"
        )
    return (
        f"the {facts['method']} estimate, worked out again in {facts['steps']} steps, is typically "
        f"within {typical:.1g} standard errors (allowed: {ESTIMATE_TOLERANCE})"
    )


def check_rounding(views: Views, cells: Array, stored: Array | None = None) -> str:
    """Refuse cells that are no good rounding of the estimate; else say how near they are.

    It is stored with the bundle; of bundles up to format 4, it is worked out again.
    """
    workload = views.job.workload
    if stored is None and cells.size > MOST_REFITTED_CELLS:
        return (
            f"over {MOST_REFITTED_CELLS:,} cells the best fit is not worked out again: that these "
            "cells are its rounding was NOT checked, only that they add up"
        )
    solution = views.solution if stored is None else stored
    rounded = views.cells if stored is None else round_cells(stored, workload)
    gaps, again = (RoundingGaps.of(z, solution, workload) for z in (cells, rounded))
    by_cell = _cells_near(views, gaps, stored is not None)
    typical = FACTOR * again.typical + TYPICAL
    if not gaps.typical <= typical:
        raise ReleaseError(
            f"the tables are typically {gaps.typical:,.2f} from the estimate; "
            f"rounding it moves them by {again.typical:,.2f}, and {typical:,.2f} is allowed"
        )
    for product, gap, other in zip(workload.products, gaps.largest, again.largest, strict=True):
        most = FACTOR * max(other, 2 * again.typical) + NUMBER
        if not gap <= most:
            raise ReleaseError(
                f"a number of {product.title!r} is {gap:,.2f} from the estimate; "
                f"rounding it moves these by up to {other:,.2f}, and {most:,.2f} is allowed"
            )
    return (
        "a rounding of the estimate: numbers typically within "
        f"{gaps.typical:.2f} of it (allowed: {typical:.2f}), at most {max(gaps.largest):.2f} "
        f"(rounded anew: {max(again.largest):.2f}); {by_cell}"
    )


def _cells_near(views: Views, gaps: RoundingGaps, stored: bool) -> str:
    """Refuse cells that are no neighbours of the estimate, where it tells them."""
    partition = views.job.workload.reduce().partition
    if not stored and not _determined(views, partition):
        return "single cells are not told by the measurements, and only checked to add up"
    if not gaps.group <= NEIGHBOUR:
        raise ReleaseError(
            f"a cell, or cells that no question tells apart, are {gaps.group:,.2f} from the "
            f"estimate; rounding moves them by 1, and {NEIGHBOUR} is allowed"
        )
    shape = views.job.workload.domain.shape
    if (
        not stored
        and not gaps.even
        and not _determined(views, Kron(tuple(Identity(n) for n in shape)))
    ):
        return f"every group of cells told apart within {gaps.group:.2f} (allowed: {NEIGHBOUR})"
    if not gaps.share <= NEIGHBOUR:
        raise ReleaseError(
            f"a cell is {gaps.share:,.2f} from its share of the estimate; "
            f"rounding moves it by 1, and {NEIGHBOUR} is allowed"
        )
    return f"every cell within {max(gaps.group, gaps.share):.2f} (allowed: {NEIGHBOUR})"


def _determined(views: Views, queries: Matrix) -> bool:
    """Do the measurements determine these queries?"""
    factors = queries.factors if isinstance(queries, Kron) else (queries,)
    try:
        return views.estimate.form.covers(factors)
    except PsephosError:  # no closed form for it
        return False
