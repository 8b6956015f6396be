"""Tables of persons in a bundle: was each paid for, and is it what its noisy integers say?"""

from __future__ import annotations

from psephos.release.bundle.bundle import Bundle, job_persons_table
from psephos.release.methods.kind import PersonsRequest
from psephos.release.verify.charges import DATASET_FACTS
from psephos.release.verify.files import compare_persons
from psephos.release.verify.verification import WrongError


def check_persons(bundle: Bundle) -> str:
    """Look through all tables of persons."""
    if [request.facts() for request in bundle.persons] != bundle.manifest.get("persons"):
        raise WrongError("the manifest says something else of tables of persons than their files")
    charges = [r.receipt["charge"] for r in (*bundle.all_requests, *bundle.persons)]
    if not bundle.simulation and len({charge["number"] for charge in charges}) < len(charges):
        raise WrongError("one charge is counted twice")
    for request, key in zip(bundle.persons, bundle.job.persons_keys, strict=True):
        if request.simulation != bundle.simulation or request.key != key:
            raise WrongError(f"{request.question.name!r} was measured by another request")
        _check(bundle, request)
    return (
        f"{len(bundle.persons)} tables, each with a receipt for it, and as its noisy integers say"
    )


def _check(bundle: Bundle, request: PersonsRequest) -> None:
    name = request.question.name
    if not bundle.simulation:
        request.check_receipt()
        if any(request.receipt[fact] != bundle.receipt[fact] for fact in DATASET_FACTS):
            raise WrongError(f"{name!r} was measured on another data set")
    compare_persons(bundle, name, job_persons_table(bundle.job, request))
