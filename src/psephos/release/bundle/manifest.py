"""What the JSON files of a bundle say of a release: manifest.json and release.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from psephos.kernel.budget import Budget
from psephos.release.bundle.contents import shown_tables
from psephos.release.bundle.requests import BUNDLE_FORMAT, REQUESTS_FOLDER, ReleaseRequest
from psephos.release.methods.kind import PersonsRequest, ReleaseMethod
from psephos.release.preflight.store import AUTO
from psephos.release.spec.job import Job
from psephos.release.views.views import Views
from psephos.synthesis.method import SyntheticChoice
from psephos.synthesis.quality import SyntheticQuality


def release_json(job: Job) -> dict[str, Any]:
    """What release.json holds: the release file without the owner's paths.

    What it builds on lies among the requests of the bundle.
    """
    content = job.file.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    content.pop("source", None)
    content["ledger"] = {**content["ledger"], "path": "-"}
    if "stand_in" in content:
        content["stand_in"] = "-"
    if job.past:
        content["builds_on"] = [f"{REQUESTS_FOLDER}/{i + 1}" for i in range(len(job.past))]
    return content


def total_spend(job: Job, requests: Sequence[ReleaseRequest[Any]]) -> Budget:
    """What all steps spend together, in the currency of the release's budget."""
    currency = job.noise.currency
    spends = [request.price(currency) for request in requests]
    return sum(spends[1:], start=spends[0])


def job_facts(job: Job) -> dict[str, Any]:
    """What every manifest says of what was asked."""
    return {
        "format": BUNDLE_FORMAT,
        "name": job.file.name,
        "title": job.file.title or job.file.name,
        "edition": job.file.edition,
        "fingerprint": job.fingerprint,
    }


def request_facts(
    views: Views,
    requests: Sequence[ReleaseRequest[Any]],
    persons: Sequence[PersonsRequest],
    method: ReleaseMethod | None,
) -> dict[str, Any]:
    """What a manifest says that follows from what was asked, and how it was measured."""
    job, nearest = views.job, views.estimate.nearest
    spend = total_spend(job, requests)
    facts = {
        **job_facts(job),
        "simulation": views.simulation,
        "spend": [spend.currency, str(spend.amount)],
        "requests": [request.facts() for request in (*job.past, *requests)],
        "builds_on": len(job.past),
        "views": list(views.kinds),
        "draws": views.draws,
        "interval": views.interval_facts,
        "coordinates": None if nearest is None else nearest.difference.size,
        "persons": [request.facts() for request in persons] or None,
    }
    if method is not None and method.adaptive:
        return {
            **facts,
            "noise": str(job.noise),
            "strategy": method.name,
            "method": asdict(method),
        }
    strategies = [request.question.strategy for request in requests]
    names = dict.fromkeys(strategy.name for strategy in strategies)
    return {**facts, "noise": str(strategies[0].noise), "strategy": ", then ".join(names)}


def table_facts(views: Views) -> list[dict[str, Any]]:
    """What a manifest says of each table: its file, and the shifts of its published view."""
    shown = shown_tables(views, "published") if "published" in views.kinds else ()
    facts: list[dict[str, Any]] = []
    for table in views.job.tables:
        facts.append({"name": table.name, "file": views.job.table_files[table.name]})
        if table in shown:
            facts[-1]["shifts"] = [asdict(shift) for shift in views.shifts(table)]
    return facts


def synthetic_facts(job: Job, quality: SyntheticQuality) -> dict[str, Any]:
    """What a manifest says of made-up rows."""
    choice = job.synthetic_choice
    if choice is None:
        choice = SyntheticChoice("sample", "the plan's estimate has no vector of all cells")
    return {**asdict(choice), **quality.facts()}


def manifest_of(
    views: Views,
    requests: Sequence[ReleaseRequest[Any]],
    persons: Sequence[PersonsRequest],
    method: ReleaseMethod | None,
    decimals: Sequence[int],
) -> dict[str, Any]:
    """What a manifest says but the version and the hashes of files."""
    shown, quality = "published" in views.kinds, views.quality
    facts = request_facts(views, requests, persons, method)
    if method is not None and views.job.method.name == AUTO:
        facts["method"] = asdict(method)
    facts |= {
        "tables": table_facts(views),
        "decimals": list(decimals),
        "distance": views.distance._asdict() if shown else None,
        "published": dict(views.published.facts) if shown else None,
    }
    if quality is not None:
        facts["synthetic"] = synthetic_facts(views.job, quality)
    optional = ("coordinates", "persons", "method")
    return {key: fact for key, fact in facts.items() if fact is not None or key not in optional}
