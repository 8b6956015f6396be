"""Was all that a bundle shows paid for, and does it show all that was?

The ledger cannot be forged by whoever has a bundle alone: its keys name what was asked. The key of
a release follows from its tables of rows, and the keys of its later steps and of its tables of
persons begin with it. So a table that was paid for and left out is a charge below that key which
nothing in the bundle stands for.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from psephos.kernel import gate
from psephos.kernel.ledger import Ledger
from psephos.kernel.ledger_history import Anchor
from psephos.release.bundle.bundle import Bundle
from psephos.release.bundle.contents import persons_tables
from psephos.release.bundle.requests import ReleaseRequest, check_in_ledger
from psephos.release.spec.job import Job
from psephos.release.verify.files import compare_tables
from psephos.release.verify.verification import WrongError, times_text

DATASET_FACTS = ("dataset", "dataset_id", "budget", "unit")
"""What the receipts of one release have in common."""


def check_receipts(bundle: Bundle) -> str:
    """Does each charge pay for its query, on this schema, at its spend, with its values?"""
    if bundle.simulation:
        return "a rehearsal on made-up data: nothing was charged"
    past, requests = bundle.job.past, bundle.all_requests
    schema = gate.fingerprint(bundle.job.workload.domain) if bundle.method is not None else ""
    for request in requests:
        request.check_receipt(schema)
        _check_dataset(bundle, request, request.name)
    # Choices of a plan may come out alike; measurements hardly ever do.
    for fact in (
        ("number", "key") if bundle.method is not None else ("number", "values_hash", "key")
    ):
        if len({request.receipt["charge"][fact] for request in requests}) < len(requests):
            raise WrongError("one charge is counted twice")
    text = f"{bundle.spend} was charged for these very queries, and these integers stored for it"
    names = ", ".join(repr(request.name) for request in past)
    times = times_text(request.receipt for request in (*requests, *bundle.persons))
    text += f"; {times}" if times else ""
    return text + (f"; so for what it builds on: {names}" if past else "")


def check_persons(bundle: Bundle) -> str:
    """Was each table of persons paid for, and is it what its noisy integers say?"""
    charges = [r.receipt["charge"] for r in (*bundle.all_requests, *bundle.persons)]
    if not bundle.simulation and len({charge["number"] for charge in charges}) < len(charges):
        raise WrongError("one charge is counted twice")
    for request, key in zip(bundle.persons, bundle.job.persons_keys, strict=True):
        if request.simulation != bundle.simulation or request.key != key:
            raise WrongError(f"{request.question.name!r} was measured by another request")
        # The manifest says them; what they have to be follows from release.json.
        if (request.spend, request.edition) != (request.question.spend, bundle.job.file.edition):
            raise WrongError(f"{request.question.name!r} was measured at another spend or edition")
        if not bundle.simulation:
            request.check_receipt()
            _check_dataset(bundle, request, request.question.name)
    kinds = bundle.job.file.output.table_formats
    compare_tables(bundle.path, persons_tables(bundle.job, bundle.persons), kinds)
    return (
        f"{len(bundle.persons)} tables, each with a receipt for it, and as its noisy integers say"
    )


def _check_dataset(bundle: Bundle, request: ReleaseRequest[Any], name: str) -> None:
    """Refuse a request of another data set than that of the release."""
    if any(request.receipt[fact] != bundle.receipt[fact] for fact in DATASET_FACTS):
        raise WrongError(f"{name!r} was measured on another data set")


def check_ledger(job: Job, receipt: dict[str, Any]) -> None:
    """Refuse a receipt of another ledger than release.json names."""
    limit = job.file.ledger.budget()
    facts = [job.file.ledger.dataset, [limit.currency, str(limit.amount)]]
    if [receipt["dataset"], receipt["budget"]] != facts:
        raise WrongError("the receipt is that of another ledger")


def check_charges(
    ledger: Ledger | str | os.PathLike[str],
    job: Job,
    receipts: Sequence[tuple[str, dict[str, Any]]],
) -> str:
    """Are the receipts, each with its key, what the ledger holds, and all that it holds?"""
    book = ledger if isinstance(ledger, Ledger) else Ledger.open(ledger)
    for key, receipt in receipts:
        book.verify(anchor=Anchor.from_dict(receipt["anchor"]))
        check_in_ledger(receipt, key, book)
    shown, name = {key for key, _ in receipts}, f"release {job.file.name[:200]} "
    others = [entry for entry in book.history() if entry.key not in shown]
    hidden = [entry for entry in others if entry.key.startswith(f"{job.key} ")]
    if hidden:
        charges = ", ".join(f"{e.key!r} ({e.booked}, record {e.number})" for e in hidden)
        raise WrongError(
            f"the bundle leaves out what was paid for with it: {charges}. Whoever publishes it has "
            "a bundle of the whole release, or makes it by releasing again, which charges nothing"
        )
    numbers = [receipt["charge"]["number"] for _, receipt in receipts]
    text = f"record {numbers[0]} of {book.dataset!r} is this charge"
    if len(numbers) > 1:
        text = f"{len(numbers)} records of {book.dataset!r}, the last {max(numbers)}, are these"
        text += " charges"
    same = sum(entry.key.startswith(name) for entry in others)
    return f"{text}, and all of this release" + (
        f"; {same} more under its name are of other tables, budgets or editions" if same else ""
    )
