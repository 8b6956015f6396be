"""Further questions to a bundle: free if its measurements determine them, else priced.

Questions that the measurements do not determine can be answered as a model: from the estimate that
published numbers are a rounding of, in which attributes are as independent as the measurements
allow. Such answers have no interval, since how far off the model is nobody measured.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from psephos.errors import PsephosError, ReleaseError, UnsupportedError
from psephos.infer.joint_noise import JointNoise
from psephos.infer.least_squares import over_merged_domain
from psephos.infer.statistics import StatisticValues, joint_noise
from psephos.release.ask.integrity import opened_bundle, opened_parts
from psephos.release.ask.price import price
from psephos.release.ask.question import missing_words, parts_question, question_table
from psephos.release.bundle.bundle import Bundle
from psephos.release.parts.bundle import PartPath, PartsBundle, is_in_parts
from psephos.release.parts.tables import part_rows_of
from psephos.release.preflight.targets import check_draw_count
from psephos.release.spec.asked_cells import finer_words, over_cells, spread_evenly
from psephos.release.spec.tables import Table, sql_layout
from psephos.release.views.estimates import MeasuredEstimate
from psephos.release.views.labels import marked, preview, table_labels
from psephos.release.views.layout import lay_out
from psephos.release.views.statistics import derived_values, plain_values, statistic_table
from psephos.release.views.views import Views
from psephos.report.cross_table import CrossTable
from psephos.report.html import notebook_html
from psephos.values import Array
from psephos.workload.query_sets import TotalQueries
from psephos.workload.sql import read_sql
from psephos.workload.workload import Workload

MODEL = "a model: the estimate of all cells that published numbers are a rounding of"
"""What answers without an interval come from."""
PLANNED = "the estimate of a plan that adapts to the data, which is biased"
NEAREST = "the consistent tables nearest to the noisy numbers in L1 or L∞"
CHECKED = "files have the hashes of the manifest, and receipts are for these noisy integers"
UNCHECKED = "`psephos verify` looks through all else"
MODEL_UNCHECKED = "that the model is what they give, only `psephos verify` works out"
PRICED_CELLS, PRICED_QUERIES = 500_000, 2_000
"""Questions up to this size are priced at once when measurements do not answer them."""
PRICE_DRAWS = 999


@dataclass(frozen=True, eq=False, repr=False)
class Reply:
    """Answers that cost nothing: labels, count, standard error and noise interval."""

    workload: Workload
    table: pa.Table
    half_width: float
    method: str

    @property
    def is_model(self) -> bool:
        """Do answers rest on a model where measurements do not tell?"""
        return self.method == MODEL

    @property
    def view(self) -> str:
        """What the answers come from: least squares, a model, or a plan's biased estimate."""
        views = {MODEL: "model", PLANNED: "plan", NEAREST: "nearest"}
        return views.get(self.method, "consistent")

    @property
    def checked(self) -> str:
        """What was looked at before this was answered, and what only `verify` does."""
        return f"{CHECKED}; {MODEL_UNCHECKED if self.is_model else UNCHECKED}"

    def __repr__(self) -> str:
        answers = self.table.num_rows
        plural = "s" if answers != 1 else ""
        if math.isinf(self.half_width):
            by = {"model": "by a model", "plan": "by a plan's estimate"}.get(self.view, "nearest")
            return f"Reply({answers:,} answer{plural}, free, {by}: without an interval)"
        return f"Reply({answers:,} answer{plural}, free, at most ± {self.half_width:,.4g})"

    def _repr_html_(self) -> str:
        return notebook_html(preview(repr(self), self.table))


def _question_views(
    bundle: Bundle, workload: Workload, measured: Workload, question: Table, draws: int
) -> Views:
    """The views of a release that asks one question, over the cells that were measured."""
    job, steps, coordinates = bundle.job, bundle.views.estimate.steps, bundle.coordinates
    if measured.domain != job.workload.domain:
        measurements = bundle.views.least_squares.measurements
        steps = tuple(over_merged_domain(each, measured.domain) for each in measurements)
        job, coordinates = replace(job, past=()), None
    reduction = (workload, job.cells)
    job = replace(job, workload=measured, reduction=reduction, tables=(question,))
    return Views(MeasuredEstimate(job, steps, coordinates), draws)


def ask(
    bundle: Bundle | PartsBundle | str | os.PathLike[str],
    sql: str | Sequence[str],
    *,
    dialect: str | None = None,
    draws: int = 9999,
    model: bool = False,
    level: str = "",
    part: PartPath = (),
) -> Reply:
    """Answers from the measurements that were paid for, with their error; free of charge.

    Questions that the measurements do not determine are refused; `price` says what they cost. With
    `model` they are answered by a model, without an interval.

    Args:
        bundle: a release, or a release in parts
        sql: SELECT … COUNT(*) …; of parts, over the attributes inside them
        dialect: of the SQL; DuckDB's if left out
        draws: of noise, where widths are simulated
        model: answer by a model what the measurements do not tell
        level: of a release in parts, all parts of this level, such as "state"
        part: of a release in parts, one part by its way, such as "Bavaria / Munich"
    """
    if not isinstance(bundle, Bundle) and (isinstance(bundle, PartsBundle) or is_in_parts(bundle)):
        return _parts_reply(bundle, sql, dialect, model, level, part)
    if level or part:
        raise ReleaseError("level and part are for releases in parts; leave them out")
    bundle = opened_bundle(bundle)
    check_draw_count(draws)
    workload, question = question_table(bundle, sql, dialect)
    if model:
        return _model_reply(bundle, workload, question)
    if bundle.method is not None:
        return _plan_reply(bundle, workload, question)
    measured = over_cells(bundle.job.cells, workload)
    if measured is None:
        raise UnsupportedError(_missing(bundle, workload, ""))
    views = _question_views(bundle, workload, measured, question, draws)
    try:
        answers = views.estimate.answer(measured).values
    except UnsupportedError as error:
        raise UnsupportedError(_missing(bundle, workload, str(error))) from None
    if not views.has_errors:
        return _without_errors(bundle, workload, views.consistent, NEAREST, question)
    if question.derived:
        noise = joint_noise(views.least_squares, measured)
        return _statistics_reply(views, workload, question, answers, noise)
    half = float(views.widths.per_query.max())
    return Reply(workload, views.table(question, "consistent"), half, views.widths.method)


def _parts_reply(
    bundle: PartsBundle | str | os.PathLike[str],
    sql: str | Sequence[str],
    dialect: str | None,
    model: bool,
    level: str,
    part: PartPath,
) -> Reply:
    """Answers of parts, by least squares over all levels."""
    if model:
        raise ReleaseError("a release in parts answers by what was measured alone, by no model")
    bundle = opened_parts(bundle)
    workload, question = parts_question(bundle, sql, dialect)
    number, place = bundle.place(level, part)
    parts = range(bundle.tree.sizes[number]) if place is None else range(place, place + 1)
    try:
        answers = bundle.answer(workload, level, part)
    except PsephosError as error:
        raise ReleaseError(
            f"{error}. A release in parts answers what follows from what its parts were asked"
        ) from None
    numbers = {"count": answers.pop("consistent"), **answers}
    table = part_rows_of(workload, bundle.tree, question, number, parts, numbers)
    half = (table["high"].to_numpy() - table["low"].to_numpy()) / 2
    return Reply(workload, table, float(half.max()), "exact standard errors")


def _missing(bundle: Bundle, workload: Workload, reason: str) -> str:
    """What is not known about a question, and what it would cost to know."""
    measured, estimate, cells = bundle.job.workload, bundle.views.least_squares, bundle.job.cells
    finer = finer_words(cells, workload)
    words = [finer] if finer else []
    words = words or missing_words(estimate.form, measured.domain, cells.over(workload)) or [reason]
    if workload.domain == bundle.job.questions.domain:
        small = workload.domain.size <= PRICED_CELLS
        if small and max(measured.shape[0], workload.shape[0]) <= PRICED_QUERIES:
            width = max(1, math.ceil(2 * math.sqrt(estimate.variances(measured).max())))
            cost = price(bundle, workload, width, draws=PRICE_DRAWS).budget
            words.append(f"Within ± {width}, about as wide as its tables, it would cost {cost}")
        words.append(
            "--plus-minus N (in Python ps.price) says what it costs within ± N, and how to buy it"
        )
    words.append("--model (model=True) answers by a model, free and without an interval")
    return ". ".join(words)


def _statistics_reply(
    views: Views, workload: Workload, question: Table, answers: Array, noise: JointNoise
) -> Reply:
    """Statistics with intervals."""
    confidence = float(views.job.file.output.confidence)
    values = derived_values(question, workload, answers, noise, confidence)
    table = statistic_table(question, workload.domain, values, None, None, views.simulation)
    widths = (table["high"].to_numpy() - table["low"].to_numpy()) / 2
    return Reply(workload, table, float(widths[np.isfinite(widths)].max(initial=0)), noise.method)


def laid_out_reply(
    bundle: Bundle, reply: Reply, sql: str | Sequence[str], dialect: str | None = None
) -> tuple[CrossTable, ...]:
    """Answers as people read them, the keys in the order of GROUP BY; none of statistics."""
    if "value" in reply.table.column_names:
        return ()
    layout = sql_layout(read_sql(bundle.job.domain, sql, dialect=dialect))
    whole = Table("ask", "answers", range(len(reply.workload.products)), layout=layout)
    return lay_out(reply.workload, whole, reply.table, bundle.job.titles)


def _plan_reply(bundle: Bundle, workload: Workload, question: Table) -> Reply:
    """Answers of the plan's estimate of all cells."""
    names = _attributes_of(workload) - _attributes_of(bundle.job.workload)
    if names:
        raise UnsupportedError(
            f"no table of this release asks about {', '.join(sorted(names))}, so its plan had no "
            "reason to look there; --model answers what it takes for granted"
        )
    answers = _plan_answers(bundle.views, workload)
    return _without_errors(bundle, workload, answers, PLANNED, question)


def _plan_answers(views: Views, workload: Workload) -> Array:
    """Answers of a plan's estimate: without a vector of cells about few attributes at a time."""
    if not views.estimate.has_cells and workload.domain != views.job.workload.domain:
        raise UnsupportedError(
            "this merges attributes, and the plan's estimate has no vector of all cells; ask with "
            "conditions on single columns joined by AND"
        )
    return np.asarray(views.estimate.answer(workload).values, dtype=float)


def _attributes_of(workload: Workload) -> set[str]:
    """The attributes that some query looks at."""
    items = (item for product in workload.products for item in product.items)
    return {name for name, queries in items if not isinstance(queries, TotalQueries)}


def _without_errors(
    bundle: Bundle, workload: Workload, answers: Array, method: str, question: Table
) -> Reply:
    """Answers whose errors are not known."""
    if question.statistics:
        values = StatisticValues(plain_values(question, workload, answers))
        table = statistic_table(question, workload.domain, values, None, None, bundle.simulation)
    else:
        table = marked(table_labels(workload, question), {"count": answers}, bundle.simulation)
    return Reply(workload, table, math.inf, method)


def _model_reply(bundle: Bundle, workload: Workload, question: Table) -> Reply:
    """Answers of the estimate of all cells, or of the first group of tables that tells them."""
    if not bundle.views.estimate.has_cells:
        answers = _plan_answers(bundle.views, workload)
    elif bundle.views.groups is None:
        shape, cells = bundle.job.workload.domain.shape, bundle.job.cells
        measured = over_cells(cells, workload)
        if measured is None:  # what was left out is there with one cell
            measured = spread_evenly(cells, workload)
            merged = (
                measured.domain if workload.domain == cells.declared else measured.domain.origin
            )
            shape = (merged or measured.domain).shape
        answers = measured.answer(bundle.estimate.reshape(shape))
    else:
        answers = _group_answers(bundle, workload)
    reply = _without_errors(bundle, workload, answers, MODEL, question)
    flags = pa.array([True] * reply.table.num_rows)
    place = reply.table.num_columns - bundle.simulation  # made-up numbers say so last
    return replace(reply, table=reply.table.add_column(place, "model", flags))


def _group_answers(bundle: Bundle, workload: Workload) -> Array:
    """Answers from groups of tables: each product looks at attributes of one group."""
    declared, held = bundle.job.cells.declared, bundle.job.cells.groups
    if workload.domain != declared or "published" not in bundle.manifest["views"]:
        raise UnsupportedError(
            f"there is no model of {bundle.job.workload.domain.size_text} cells, and no group of "
            "tables that tells this; ask without --model, with conditions joined by AND"
        )
    measured = over_cells(bundle.job.cells, workload) or spread_evenly(bundle.job.cells, workload)
    cells = bundle.group_estimates
    groups, answers = cells.grouping.groups, []
    for product in measured.products:
        names = [n for n, queries in product.items if not isinstance(queries, TotalQueries)]
        axes = {bundle.job.workload.domain.axis(name) for name in names if name in held}
        holding = (g for g, group in enumerate(groups) if axes <= set(group.axes))
        group = next(holding, None)
        if group is None:
            raise UnsupportedError(
                f"no group of published tables holds {', '.join(names)} together, and there is no "
                "model of all cells; ask about fewer attributes at a time, or without --model"
            )
        inside = cells.grouping.names(groups[group].axes)
        # What was left out has one cell, if it is there.
        domain = measured.domain.project(
            [n for n in measured.domain if n in inside or n not in held]
        )
        answers.append(Workload(domain, [product]).answer(cells.grid(group).reshape(domain.shape)))
    return np.concatenate(answers)
