"""What a release's measurements tell of a question, attribute by attribute.

A question may fail on one attribute (age was measured by broad groups only) or on several together
(age and sex were measured, each by itself). Which it is, the inverse of the measurements says.
"""

from __future__ import annotations

from psephos.domain.domain import Domain
from psephos.errors import name_list
from psephos.inverse.form import Factors, Form
from psephos.matrix import Matrix, Partition, total
from psephos.matrix.columns import is_zero
from psephos.workload.workload import Workload

MOST = 3
"""The most parts of a question that a message names."""


def missing_words(form: Form, domain: Domain, workload: Workload) -> list[str]:
    """For parts of a question that are not determined, what is asked and what is missing."""
    if workload.domain != domain:
        question = " and ".join(workload.question(i) for i in range(len(workload.products))[:MOST])
        return [f"This release does not tell {question}, which looks at several columns together"]
    words = []
    for i in range(len(workload.products)):
        factors = workload.factors(i)
        if form.covers(factors) or any(is_zero(factor) for factor in factors):
            continue
        question = f"This release does not tell {workload.question(i)}"
        words.append(f"{question}: {_missing(form, domain, workload, i)}")
    return words[:MOST]


def _missing(form: Form, domain: Domain, workload: Workload, i: int) -> str:
    totals: Factors = tuple(total(n) for n in domain.shape)
    if not form.covers(totals):
        return "not even the number of all rows was measured"
    axes = {domain.axis(name): name for name, _ in workload.products[i].items}
    unknown = []
    for axis, name in sorted(axes.items()):
        if not form.covers(_with(totals, axis, workload.factors(i)[axis])):
            unknown.append(_known(form, totals, domain, axis, name))
    if unknown:
        return "; ".join(unknown)
    return f"{name_list(axes[axis] for axis in sorted(axes))} were measured, but not together"


def _known(form: Form, totals: Factors, domain: Domain, axis: int, name: str) -> str:
    """What is known of an attribute that is asked for more."""
    levels = [
        level.name
        for level in domain.attributes[axis].levels
        if form.covers(_with(totals, axis, Partition(level.groups)))
    ]
    if not levels:
        return f"nothing measured tells values of {name} apart"
    return f"{name} was measured by {name_list(levels)} and not finer"


def _with(totals: Factors, axis: int, factor: Matrix) -> Factors:
    return (*totals[:axis], factor, *totals[axis + 1 :])
