"""Further questions to a bundle: free if its measurements determine them, else priced.

A new question costs only what it adds: it is answered from the old measurements and the new one
together, by least squares, so the more the old ones know, the less the new one has to buy.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import pyarrow as pa

from psephos.errors import ReleaseError, UnsupportedError
from psephos.infer.estimate import check_covered
from psephos.infer.intervals import half_widths
from psephos.infer.least_squares import form_of, precision
from psephos.kernel.budget import Budget
from psephos.kernel.measurement import noise_for
from psephos.publish.accuracy import rounded_up
from psephos.publish.bundle import Bundle
from psephos.publish.tables import Table
from psephos.publish.views import marked, table_labels
from psephos.strategy import select
from psephos.workload.product import regroup
from psephos.workload.sql import compile_sql
from psephos.workload.workload import Workload


@dataclass(frozen=True, eq=False)
class Reply:
    """Answers that cost nothing: labels, count, standard error and noise interval."""

    workload: Workload
    table: pa.Table
    half_width: float
    method: str


@dataclass(frozen=True)
class Price:
    """What a question would cost to be answered so precisely, on top of what is known."""

    budget: Budget
    half_width: float
    alone: Budget


def asked(bundle: Bundle, sql: str | Sequence[str], dialect: str | None = None) -> Workload:
    """Questions in SQL, over the domain of the bundle's measurements."""
    job = bundle.job
    merged, products = compile_sql(job.domain, sql, dialect=dialect)
    measured = job.workload.domain
    if merged == job.domain:
        products = [regroup(each, job.domain, measured) for each in products]
    elif merged != measured:
        raise ReleaseError(
            f"this looks at {', '.join(n for n in merged.names if n not in job.domain.names)} "
            "together, and the release measured them in another arrangement; ask with conditions "
            "on single columns joined by AND"
        )
    return Workload(measured, products)


def ask(
    bundle: Bundle | str | os.PathLike[str],
    sql: str | Sequence[str],
    *,
    dialect: str | None = None,
    draws: int = 9999,
) -> Reply:
    """Answers from the measurements that were paid for, with their error; free of charge.

    Questions that the measurements do not determine are refused; `price` says what they cost.
    """
    bundle = bundle if isinstance(bundle, Bundle) else Bundle.open(bundle)
    workload = asked(bundle, sql, dialect)
    estimate = bundle.views.estimate
    try:
        answers = estimate.answer(workload)
    except UnsupportedError as error:
        raise UnsupportedError(
            f"{error}. The old measurements cannot tell; --plus-minus N says what it would cost"
        ) from None
    measurement = bundle.measurement
    rows = [block.matrix.shape[0] for block in measurement.query.blocks]
    confidence = float(bundle.job.file.output.confidence)
    widths = half_widths(
        estimate.form, measurement.noise, rows, workload, confidence=confidence, draws=draws
    )
    whole = Table("ask", "ask", range(len(workload.products)))
    numbers = {
        "count": answers.values,
        "stderr": widths.stderr,
        "low": answers.values - widths.per_query,
        "high": answers.values + widths.per_query,
    }
    table = marked(table_labels(workload, whole), numbers, bundle.simulation)
    return Reply(workload, table, float(widths.per_query.max()), widths.method)


def price(bundle: Bundle, workload: Workload, half_width: float, *, draws: int = 1999) -> Price:
    """The least budget at which every answer is within ± half_width, old measurements included."""
    if not half_width > 0:
        raise ReleaseError(f"the half-width wanted is a positive number of rows, got {half_width}")
    job, old = bundle.job, bundle.measurement
    free = job.paid(Fraction(0))
    known = _known_width(bundle, workload, draws)
    strategy = select.hdmm(workload, job.noise, restarts=1)
    matrices = [block.matrix for block in strategy.query.blocks]
    confidence = float(job.file.output.confidence)

    def width(amount: Fraction, with_old: bool) -> float:
        noises = list(noise_for(strategy.query, job.paid(amount), job.unit, 1))
        blocks = list(matrices)
        if with_old:
            blocks += [block.matrix for block in old.query.blocks]
            noises += list(old.noise)
        precisions = [precision(noise) for noise in noises]
        form = form_of(blocks, precisions, workload.domain.shape)
        check_covered(form, workload)
        rows = [block.shape[0] for block in blocks]
        found = half_widths(form, noises, rows, workload, confidence=confidence, draws=draws)
        return float(found.per_query.max())

    alone = job.paid(rounded_up(_least(lambda amount: width(amount, False) <= half_width)))
    if known <= half_width:
        return Price(free, half_width, alone)
    both = job.paid(rounded_up(_least(lambda amount: width(amount, True) <= half_width)))
    return Price(min(both, alone), half_width, alone)


def _known_width(bundle: Bundle, workload: Workload, draws: int) -> float:
    """The largest half-width of what past measurements tell; infinite where they tell nothing."""
    form, old = bundle.views.estimate.form, bundle.measurement
    try:
        check_covered(form, workload)
    except UnsupportedError:
        return math.inf
    rows = [block.matrix.shape[0] for block in old.query.blocks]
    confidence = float(bundle.job.file.output.confidence)
    found = half_widths(form, old.noise, rows, workload, confidence=confidence, draws=draws)
    return float(found.per_query.max())


def _least(holds: Callable[[Fraction], bool]) -> Fraction:
    """The least amount, to about 2 %, at which a condition holds that larger ones keep."""
    low, high = Fraction(1, 10**6), Fraction(1, 10**6)
    if holds(low):
        return low
    while not holds(high):
        low, high = high, high * 4
        if high > 10**6:
            raise ReleaseError("no budget makes this question so precise; ask for less")
    while high / low > Fraction(51, 50):
        middle = Fraction(float(np.sqrt(float(low) * float(high)))).limit_denominator(10**9)
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high
