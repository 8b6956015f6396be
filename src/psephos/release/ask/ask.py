"""Further questions to a bundle: free if its measurements determine them, else priced.

Questions that the measurements do not determine can be answered as a model: from the estimate that
published numbers are a rounding of, in which attributes are as independent as the measurements
allow. Such answers have no interval, since how far off the model is nobody measured.

A new question costs only what it adds: it is answered from the old measurements and the new one
together, by least squares, so the more the old ones know, the less the new one has to buy.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa

from psephos.domain.domain import Domain
from psephos.errors import PsephosError, ReleaseError, SqlError, UnsupportedError
from psephos.infer.joint_noise import JointNoise
from psephos.infer.least_squares import over_merged_domain
from psephos.infer.statistics import StatisticValues, joint_noise
from psephos.kernel.budget import Budget
from psephos.release.ask.determined import missing_words
from psephos.release.bundle.bundle import Bundle
from psephos.release.bundle.files import require_unchanged
from psephos.release.bundle.requests import (
    QUESTION_FILE,
    RECEIPT_FILE,
    STRATEGY_FILE,
    VALUES_FILE,
    request_folders,
)
from psephos.release.parts.ask import parts_answers
from psephos.release.parts.bundle import ANSWERS_FOLDER, PartPath, PartsBundle, is_in_parts
from psephos.release.parts.tables import TABLES_FOLDER
from psephos.release.parts.verify import SINGLE_FILES, check_parts_receipt
from psephos.release.preflight.targets import cheapest_strategy, check_draw_count
from psephos.release.spec.asked_cells import AskedCells, finer_words, over_cells, spread_evenly
from psephos.release.spec.entries import TargetEntry
from psephos.release.spec.job import Job, column_titles
from psephos.release.spec.tables import Table, sql_layout
from psephos.release.verify.charges import check_receipts
from psephos.release.views.labels import marked, table_labels
from psephos.release.views.layout import lay_out
from psephos.release.views.plan_views import PlanViews
from psephos.release.views.statistics import derived_values, plain_values, statistic_table
from psephos.release.views.views import Views
from psephos.report.cross_table import CrossTable
from psephos.report.html import HtmlTable, notebook_html
from psephos.strategy import select
from psephos.strategy.strategy import Strategy
from psephos.values import Array
from psephos.workload.query_sets import TotalQueries
from psephos.workload.reduction import asked_groups
from psephos.workload.sql import (
    CountTable,
    merge_attributes,
    read_sql,
    sql_products,
    sql_statistics,
)
from psephos.workload.workload import Workload

MODEL = "a model: the estimate of all cells that published numbers are a rounding of"
"""What answers without an interval come from."""
PLANNED = "the estimate of a plan that adapts to the data, which is biased"
NEAREST = "the consistent tables nearest to the noisy numbers in L1 or L∞"
CHECKED = "files have the hashes of the manifest, and receipts are for these noisy integers"
UNCHECKED = "`psephos verify` looks through all else"
MODEL_UNCHECKED = "that the model is what they give, only `psephos verify` works out"
NOTEBOOK_ROWS = 200
"""The most rows that a notebook shows."""
PRICED_CELLS, PRICED_QUERIES = 500_000, 2_000
"""Questions up to this size are priced at once when measurements do not answer them."""
PRICE_DRAWS = 999
COUNT_DISTINCT = re.compile(r"COUNT\(DISTINCT .* is not a count of rows")


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
        heads = self.table.column_names
        rows = [
            [f"{x:,.4g}" if isinstance(x, float) else str(x) for x in row.values()]
            for row in self.table.slice(0, NOTEBOOK_ROWS).to_pylist()
        ]
        return notebook_html(HtmlTable.of(repr(self), heads, rows))


@dataclass(frozen=True)
class Price:
    """What a question would cost to be answered so precisely, on top of what is known."""

    budget: Budget
    half_width: float
    alone: Budget


def question_workload(
    bundle: Bundle, sql: str | Sequence[str], dialect: str | None = None
) -> Workload:
    """Counts and sums in SQL, over the domain of the measurements or one that merges it."""
    tables, domain, blocks = _read_question(bundle, sql, dialect)
    return Workload(domain, sql_products(tables, bundle.job.domain, domain, blocks))


def question_table(
    bundle: Bundle, sql: str | Sequence[str], dialect: str | None = None
) -> tuple[Workload, Table]:
    """Questions in SQL: what to answer, and the table that it makes, of statistics if need be."""
    tables, domain, blocks = _read_question(bundle, sql, dialect)
    if all(table.aggregate.kind == "count" for table in tables):
        workload = Workload(domain, sql_products(tables, bundle.job.domain, domain, blocks))
        return workload, Table("ask", "ask", range(len(workload.products)))
    units = {name: entry.unit for name, entry in bundle.job.file.attributes.items()}
    statistics = tuple(sql_statistics(tables, bundle.job.domain, domain, blocks, units))
    workload = Workload(domain, [part for each in statistics for part in each.products])
    products = range(len(workload.products))
    return workload, Table("ask", "ask", products, statistics=statistics)


def _read_question(
    bundle: Bundle, sql: str | Sequence[str], dialect: str | None
) -> tuple[list[CountTable], Domain, tuple[tuple[str, ...], ...]]:
    """The tables of some SQL, the domain to ask them over, and what is looked at together."""
    job = bundle.job
    try:
        tables = read_sql(job.domain, sql, dialect=dialect)
    except SqlError as error:
        if not bundle.persons or not COUNT_DISTINCT.search(str(error)):
            raise
        names = ", ".join(repr(request.question.name) for request in bundle.persons)
        text = f"{error}\nthis release counts persons in {names}, in the folder persons/"
        raise SqlError(text, error.sql, error.start, error.end) from None
    merged, blocks = merge_attributes(job.domain, tables)
    measured = job.questions.domain
    if merged == job.domain:
        return tables, measured, ()
    if merged != measured and measured != job.domain:
        raise ReleaseError(
            f"this looks at {_together(merged)} together, and the release at "
            f"{_together(measured)}; ask with conditions on single columns joined by AND"
        )
    return tables, merged, blocks


def _together(domain: Domain) -> str:
    """The attributes that are merged in a domain."""
    merged = [domain[name].parts for name in domain.names if domain[name].parts]
    return ", and ".join(" with ".join(part for part, _ in parts) for parts in merged)


def _over(bundle: Bundle, workload: Workload, draws: int) -> Views:
    """The bundle's numbers, seen over the domain of a question."""
    views = replace(bundle.views, draws=draws)
    if workload.domain == bundle.job.workload.domain:
        return views
    job = replace(bundle.job, workload=workload, past=())
    steps = tuple(over_merged_domain(each, workload.domain) for each in views.measurements)
    return replace(views, job=job, steps=steps, coordinates=None)


def opened_bundle(bundle: Bundle | str | os.PathLike[str]) -> Bundle:
    """The bundle, if what answers come from is as it was released."""
    bundle = bundle if isinstance(bundle, Bundle) else Bundle.open(bundle)
    folders, files = request_folders(bundle.manifest), bundle.manifest["files"]
    question = STRATEGY_FILE if bundle.method is None else QUESTION_FILE
    names = (question, VALUES_FILE, RECEIPT_FILE)
    needed = {"release.json", *(f"{folder}/{name}" for folder in folders for name in names)}
    require_unchanged(bundle.path, files, needed | set(files))
    with _as_verified(bundle.path):
        check_receipts(bundle)
    return bundle


@contextmanager
def _as_verified(path: Path) -> Iterator[None]:
    """Say of what is wrong with a bundle that it is not asked for this reason."""
    try:
        yield
    except PsephosError as error:
        raise ReleaseError(
            f"{path} fails verification and is not asked: {error}; get the bundle again "
            "(`psephos verify` looks through all of it)"
        ) from None


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
    try:
        views = _over(bundle, measured, draws)
        answers = views.estimate.answer(measured)
    except UnsupportedError as error:
        raise UnsupportedError(_missing(bundle, workload, str(error))) from None
    if views.nearest is not None:
        values = views.nearest.answer(measured).values
        return _without_errors(bundle, workload, values, NEAREST, question)
    if question.derived:
        noise = joint_noise(views.estimate, measured)
        return _statistics_reply(views, workload, question, answers.values, noise)
    widths = views.widths_of(measured)
    if question.statistics:
        values = plain_values(question, workload, answers.values)
        half = widths.per_query
        linear = StatisticValues(values, values - half, values + half)
        table = statistic_table(
            question, workload.domain, linear, widths.stderr, None, bundle.simulation
        )
        return Reply(workload, table, float(half.max()), widths.method)
    numbers = {
        "count": answers.values,
        "stderr": widths.stderr,
        "low": answers.values - widths.per_query,
        "high": answers.values + widths.per_query,
    }
    table = marked(table_labels(workload, question), numbers, bundle.simulation)
    return Reply(workload, table, float(widths.per_query.max()), widths.method)


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
    bundle = bundle if isinstance(bundle, PartsBundle) else PartsBundle.open(bundle)
    marks = bundle.manifest["files"]
    others = {name for name in marks if not name.startswith((f"{TABLES_FOLDER}/", ANSWERS_FOLDER))}
    require_unchanged(bundle.path, marks, others | set(SINGLE_FILES))  # answers are sealed
    with _as_verified(bundle.path):
        check_parts_receipt(bundle)
    workload, table = parts_answers(bundle, sql, level=level, part=part, dialect=dialect)
    half = (table["high"].to_numpy() - table["low"].to_numpy()) / 2
    return Reply(workload, table, float(half.max()), "exact standard errors")


def _missing(bundle: Bundle, workload: Workload, reason: str) -> str:
    """What is not known about a question, and what it would cost to know."""
    measured, estimate, cells = bundle.job.workload, bundle.views.estimate, bundle.job.cells
    words = finer_words(cells, workload)
    if not words:
        coarse = over_cells(cells, workload) or workload
        words = missing_words(estimate.form, measured.domain, coarse) or [reason]
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
    return lay_out(reply.workload, whole, reply.table, column_titles(bundle.job))


def _plan_reply(bundle: Bundle, workload: Workload, question: Table) -> Reply:
    """Answers of the plan's estimate of all cells."""
    if not isinstance(bundle.views, PlanViews):
        raise ReleaseError(f"{bundle.path} holds no plan")
    names = _attributes_of(workload) - _attributes_of(bundle.job.workload)
    if names:
        raise UnsupportedError(
            f"no table of this release asks about {', '.join(sorted(names))}, so its plan had no "
            "reason to look there; --model answers what it takes for granted"
        )
    if bundle.views.has_cells:
        answers = workload.answer(bundle.views.vector.reshape(bundle.job.workload.domain.shape))
    else:
        answers = _table_answers(bundle.views, workload)
    return _without_errors(bundle, workload, answers, PLANNED, question)


def _table_answers(views: PlanViews, workload: Workload) -> Array:
    """Answers of a plan's estimate that has no vector of cells: about few attributes at a time."""
    if workload.domain != views.job.workload.domain:
        raise UnsupportedError(
            "this merges attributes, and the plan's estimate has no vector of all cells; ask with "
            "conditions on single columns joined by AND"
        )
    return np.asarray(views.plan_answers(workload).values, dtype=float)


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
    if isinstance(bundle.views, PlanViews) and not bundle.views.has_cells:
        answers = _table_answers(bundle.views, workload)
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


def price(
    bundle: Bundle | str | os.PathLike[str],
    question: str | Sequence[str] | Workload,
    half_width: float,
    *,
    dialect: str | None = None,
    draws: int = 9999,
) -> Price:
    """The least budget at which every answer is within ± half_width, old measurements included.

    A release that `builds_on` the bundle and has this target costs as much; nothing is charged.

    Args:
        bundle: a bundle or its directory
        question: SQL, or a workload over the domain of the bundle's measurements
        half_width: of the noise interval of every answer, in rows, at the bundle's confidence
        dialect: of the SQL, by sqlglot's name for it; DuckDB's when left out
        draws: of simulated noise, for the widths of intervals
    """
    bundle = opened_bundle(bundle)
    check_draw_count(draws)
    if bundle.method is not None:
        raise ReleaseError(
            f"{bundle.path} was made by {bundle.method.name!r}, which adapts to the data: nothing "
            "builds on it, and what it errs by is not known, so there is no price on top of it"
        )
    workload = (
        question if isinstance(question, Workload) else question_workload(bundle, question, dialect)
    )
    job, declared = bundle.job, bundle.job.cells.declared
    if workload.domain == declared:
        groups = asked_groups(declared, workload.products, workload.factor, {}, ())
        job = job.over(job.cells.joined([AskedCells(declared, groups)]))
    measured = over_cells(job.cells, workload)
    workload = workload if measured is None else measured
    if workload.domain != job.workload.domain:
        raise ReleaseError(
            f"the question is about {workload.domain}, the measurements are of "
            f"{bundle.job.workload.domain}; what looks at several columns together (OR) is priced "
            "only where the release did so too"
        )
    confidence = bundle.job.file.output.confidence
    if (
        isinstance(half_width, bool)
        or not isinstance(half_width, int | float)
        or not 0.5 <= half_width < math.inf
    ):
        raise ReleaseError(
            f"the half-width wanted is a number of rows from 0.5 on, got {half_width!r}"
        )
    target = TargetEntry.model_validate({"plus_minus": half_width, "confidence": confidence})
    table = Table("ask", "ask", range(len(workload.products)), target)
    alone = replace(job, workload=workload, tables=(table,), past=())
    job = replace(alone, past=(*bundle.job.past, *bundle.requests))

    def search(_: Job, weighted: Workload) -> Strategy:
        return select.hdmm(weighted, job.noise, restarts=1)

    by_itself = cheapest_strategy(alone, draws, search).budget
    return Price(
        min(by_itself, cheapest_strategy(job, draws, search).budget), half_width, by_itself
    )
