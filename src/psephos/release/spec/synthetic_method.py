"""The plan of a release that makes up rows: as its file says in [method] or in [synthetic]."""

from __future__ import annotations

from typing import Any

from psephos.domain.domain import Domain
from psephos.kernel.budget import Currency
from psephos.release.spec.entries import MethodEntry, ReleaseFile
from psephos.synthesis.method import PLAN_NAMES, SyntheticChoice, chosen_method


def synthetic_choice(
    file: ReleaseFile, domain: Domain, currency: Currency
) -> SyntheticChoice | None:
    """The method by which a release makes up rows; None if it makes up none."""
    if file.synthetic is None:
        return None
    if file.synthetic.method == "auto" and file.method.name != "measure":
        return SyntheticChoice("sample", f"rows of the estimate of {file.method.name}")
    return chosen_method(file.synthetic.method, domain, currency)


def method_entry(file: ReleaseFile, choice: SyntheticChoice | None) -> MethodEntry:
    """The plan of a release, as its file says it in [method] or in [synthetic]."""
    if choice is None or choice.method == "sample":
        return file.method
    options: dict[str, Any] = dict(file.method.options)
    if choice.method == "dual_query" and file.synthetic and file.synthetic.queries:
        options["queries"] = file.synthetic.queries
    return MethodEntry(name=PLAN_NAMES[choice.method], options=options)
