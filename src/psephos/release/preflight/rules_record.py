"""By which rules of cleaning each release was measured: the owner's own note, beside the ledger.

Spellings in `aliases` and `nulls` are in no key and no bundle, so the ledger cannot tell two
releases apart that differ in them alone. This file can: it holds, for the key of each release that
cleans its entries, a hash of all its rules. Like the ledger it is for the owner only.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from pathlib import Path

from psephos.errors import ReleaseError
from psephos.release.bundle.files import json_text, read_json
from psephos.release.spec.job import Job
from psephos.values import digest

NO_RULES = ""
PUT_BACK = "put `aliases` and `nulls` back as they were, or"


def record_place(job: Job) -> Path:
    """Where the note lies: beside the ledger, under its name."""
    return job.ledger.with_name(f"{job.ledger.name}.rules")


def check_rules(job: Job, measured: Collection[str]) -> None:
    """Refuse to show, or to build on, what was measured by other rules of cleaning.

    Args:
        job: the release
        measured: which of its keys were measured before
    """
    rules, recorded = _rules(job), _recorded(job)
    if job.key in measured and recorded.get(job.key, NO_RULES) != rules:
        raise ReleaseError(
            "the cleaning of entries (aliases, nulls) is not what this release was measured by, "
            "and what was paid for stands: running it again would show numbers of the old rules. "
            f"To measure by these rules, {PUT_BACK} give the release another name or edition. "
            "Nothing was charged"
        )
    for past in job.past:
        key = past.key.partition(" step ")[0]
        if recorded.get(key, NO_RULES) != rules:
            raise ReleaseError(
                f"builds_on: {past.name!r} was measured by other rules of cleaning, so it counted "
                f"other rows, which are never averaged with these: {PUT_BACK} release without "
                "builds_on. Nothing was charged"
            )


def record_rules(job: Job, measured: Collection[str]) -> None:
    """Note the rules of what a release is about to measure, before anything is charged for it.

    What an attempt noted that charged nothing gives way.
    """
    rules, recorded = _rules(job), _recorded(job)
    fresh = {} if job.key in measured else {job.key: rules}
    content = {key: rule for key, rule in {**recorded, **fresh}.items() if rule != NO_RULES}
    if content == recorded:
        return
    place = record_place(job)
    draft = place.with_name(f"{place.name}.new")
    try:
        with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as file:
            file.write(json_text(content))
        draft.replace(place)
    except OSError as error:
        raise ReleaseError(
            f"{place} cannot be written: {error.strerror}; make the ledger's folder writable. "
            "Nothing was charged"
        ) from None


def _rules(job: Job) -> str:
    rules = [(name, rule.digest()) for name, rule in sorted(job.cleaning.items())]
    return digest(rules) if rules else NO_RULES


def _recorded(job: Job) -> dict[str, str]:
    place = record_place(job)
    if not place.exists():
        return {}
    content = read_json(place)
    if not isinstance(content, dict):
        raise ReleaseError(f"{place} is damaged; put it back from where you keep the ledger's copy")
    return content
