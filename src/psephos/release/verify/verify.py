"""Verify a bundle without the data: hashes, receipt, arithmetic.

Whatever follows from the noisy integers and release.json is worked out again, by the code that
writes a release, and held against the files and the manifest: views, tables, errors, decimals,
distances, groups, the plan and its options, and which estimate was published. The manifest is the
publisher's: what it says settles choices that hang on the last digits of floats, and nothing else
(psephos.release.verify.published). Least squares is also held against the noisy integers by its
normal equations, so that a fault of its solver is found and not repeated. Charges are compared with
the ledger, where it is given (psephos.release.verify.charges).

What it cannot show is said with the result: that the noisy integers came from the data, or that
the noise in them was drawn honestly, no file can prove.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from itertools import chain

import numpy as np

from psephos.errors import ReleaseError
from psephos.infer.certificates import unsolved_share
from psephos.infer.consistency import ConsistentTables
from psephos.kernel.ledger import Ledger
from psephos.plans.session import UNSPENT
from psephos.release.bundle.bundle import Bundle
from psephos.release.bundle.contents import ROWS_STEM, file_names, view_tables
from psephos.release.bundle.files import json_text, read_json
from psephos.release.bundle.manifest import (
    release_json,
    request_facts,
    synthetic_facts,
    table_facts,
)
from psephos.release.bundle.table_files import TableFile
from psephos.release.parts.bundle import is_in_parts
from psephos.release.parts.verify import verify_parts
from psephos.release.preflight.store import AUTO
from psephos.release.spec.entries import View
from psephos.release.verify.charges import (
    check_charges,
    check_ledger,
    check_persons,
    check_receipts,
)
from psephos.release.verify.files import (
    check_decimals,
    check_facts,
    check_files,
    check_formats,
    compare_tables,
    format_files,
    has_formats,
)
from psephos.release.verify.published import check_published
from psephos.release.verify.verification import Verification, WrongError, verification
from psephos.release.views.comparison import compare_past, worst_of
from psephos.release.views.of_requests import views_of
from psephos.release.views.views import Views

NEAREST_TOLERANCE = 1e-6
"""How much further than the nearest consistent tables may be from the noisy numbers, as a share."""
UNSOLVED = 1e-4
"""Of what noise makes of the normal equations: what least squares may leave of them."""
ROW_GAP = 2
"""How many times further from the model than rows that are made up again made-up rows may be."""
ABSENT = "not part of this release"


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
    """Every file that a release has, none other, each with its hash."""
    return check_files(
        bundle.path,
        bundle.manifest["files"],
        lambda: chain(
            file_names(bundle.views, bundle.requests, bundle.persons), format_files(bundle)
        ),
    )


FACT_WORDS = {
    "spend": "the requests did not spend together what the manifest says",
    "requests": "the manifest says something else of the requests than their files",
    "persons": "the manifest says something else of tables of persons than their files",
    "views": "the views are not those that were asked for",
    "fingerprint": "release.json asks something else than was released",
    "draws": f"intervals are made from {Views.draws:,} draws",
    "interval": "the manifest's words on intervals are not those of these numbers",
}


def _request(bundle: Bundle) -> str:
    """Does the manifest speak of what release.json asks?"""
    job, manifest, method = bundle.job, bundle.manifest, bundle.method
    if method is not None and method.name != job.method.name != AUTO:
        raise WrongError(f"release.json asks for the plan {job.method.name!r}")
    if json_text(read_json(bundle.path / "release.json")) != json_text(release_json(job)):
        raise WrongError("release.json holds something that a release does not write")
    for key, fact in request_facts(bundle.views, bundle.requests, bundle.persons, method).items():
        if manifest.get(key) != fact:
            words = f"the manifest's {key} is not {fact!r:.80}"
            raise WrongError(FACT_WORDS.get(key, words))
    least = 1 - UNSPENT if method is not None else Fraction(1)
    if job.budget is not None and not job.budget * least <= bundle.spend <= job.budget:
        raise WrongError(f"{bundle.spend} was spent, release.json says {job.budget}")
    _check_listed(bundle)
    if any(request.edition != job.file.edition for request in bundle.requests):
        raise WrongError(FACT_WORDS["requests"])
    if bundle.simulation:
        return "a rehearsal of what release.json asks"
    keys = [request.key for request in bundle.requests]
    if keys != job.step_keys(len(keys)):
        raise WrongError("the key is not that of this request")
    check_ledger(job, bundle.receipt)
    return f"{job.file.name!r}: {len(job.tables)} tables at {bundle.spend}, as release.json asks"


def _check_listed(bundle: Bundle) -> None:
    """Does the manifest list the tables, and speak of a published view if there is one?"""
    manifest, published = bundle.manifest, "published" in bundle.manifest["views"]
    shown = bundle.views.published_tables if published else ()
    names = [(t.name, bundle.job.table_files[t.name], t in shown) for t in bundle.job.tables]
    if [(t["name"], t["file"], "shifts" in t) for t in manifest["tables"]] != names:
        raise WrongError("the manifest lists other tables than were asked for")
    check_decimals(bundle)
    facts = manifest.get("published")
    if any((each is not None) != published for each in (manifest["distance"], facts)):
        raise WrongError(
            "a distance and an estimate are recorded for the published view, and for no other"
        )
    if facts is not None and ("groups" in facts) != (bundle.views.groups is not None):
        raise WrongError("groups are recorded where tables are in groups, and only there")
    if (manifest.get("synthetic") is not None) != bundle.views.has_rows:
        raise WrongError("made-up rows are recorded where a release has them, and only there")


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


def _compare(bundle: Bundle, views: Views, view: View) -> float:
    """How far the tables of a view are from what they should hold."""
    files = view_tables(views, view, bundle.manifest["decimals"])
    return compare_tables(bundle.path, files, bundle.job.file.output.table_formats)


def _raw(bundle: Bundle) -> str:
    if "raw" not in bundle.manifest["views"]:
        return ABSENT
    _compare(bundle, bundle.views, "raw")
    count = sum(len(block.values) for block in bundle.views.blocks)
    return f"{count:,} integers, exactly those that were measured"


def _consistent(bundle: Bundle) -> str:
    if "consistent" not in bundle.manifest["views"]:
        return ABSENT
    worst = _compare(bundle, bundle.views, "consistent")
    if bundle.method is not None:
        return f"within {worst:.1g} of the largest number of the plan's estimate, worked out again"
    unsolved = unsolved_share(bundle.views.least_squares)
    if not unsolved <= UNSOLVED:
        raise WrongError(
            f"least squares leaves {unsolved:.2g} of what noise makes of its normal equations; "
            f"{UNSOLVED} is allowed: the solver is at fault"
        )
    if bundle.views.estimate.nearest is not None:
        return _nearest(bundle, bundle.views.estimate.nearest)
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
    """Do published numbers follow from the noisy integers, and tables and facts from them?"""
    if "published" not in bundle.manifest["views"]:
        return ABSENT
    _check_listed(bundle)
    manifest, shown = bundle.manifest, bundle.published
    views = bundle.views.showing(shown)
    near = check_published(bundle.views, shown, manifest["published"])
    _compare(bundle, views, "published")
    check_facts(manifest["tables"], table_facts(views), "tables")
    check_facts(manifest["distance"], views.distance._asdict(), "distance")
    count = sum(whole.size for whole, _ in shown.vectors)
    numbers = (
        f"{count:,} non-negative whole cells"
        if count
        else f"{bundle.synthetic.rows:,} made-up rows"
    )
    inside = " in groups" if views.groups is not None else ""
    return (
        f"{numbers}{inside} add up to every table; at most {views.distance.largest:,.1f} from the "
        f"consistent view, as recorded{'; ' if near else ''}{near}"
    )


def _synthetic(bundle: Bundle) -> str:
    """Are the made-up rows those of the published numbers, and as far from them as is recorded?"""
    views, recorded, table = bundle.views, bundle.manifest.get("synthetic"), bundle.synthetic
    kinds = bundle.job.file.output.table_formats
    compare_tables(bundle.path, [TableFile(ROWS_STEM, table.to_arrow(), 0)], kinds)
    quality = views.published.quality_of(table)
    check_facts(recorded, synthetic_facts(bundle.job, quality), "synthetic")
    in_cells = views.estimate.has_cells and views.groups is None
    again, entry = (bundle if in_cells else views).published.rows(), bundle.job.file.synthetic
    same = np.array_equal(table.records, again.records)
    if in_cells and not same and (entry is None or entry.rows in (None, again.rows)):
        raise WrongError("the rows are not the published cells written out")
    if same:
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
