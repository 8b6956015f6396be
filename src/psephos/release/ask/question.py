"""Further questions in SQL, and what a release cannot say of them.

A question may fail on one attribute (age was measured by broad groups only) or on several together
(age and sex were measured, each by itself). Which it is, the inverse of the measurements says.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from psephos.domain.domain import Domain
from psephos.errors import ReleaseError, SqlError, name_list
from psephos.inverse.form import Factors, Form
from psephos.matrix import Matrix, Partition, total
from psephos.matrix.columns import is_zero
from psephos.release.bundle.bundle import Bundle
from psephos.release.parts.bundle import PartsBundle
from psephos.release.spec.asked_cells import MOST_NAMED, question_words, unknown_words
from psephos.release.spec.tables import Table
from psephos.workload.sql import (
    CountTable,
    merge_attributes,
    read_sql,
    sql_products,
    sql_statistics,
)
from psephos.workload.workload import Workload

COUNT_DISTINCT = re.compile(r"COUNT\(DISTINCT .* is not a count of rows")


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
    declared = bundle.job.domain
    if all(table.aggregate.kind == "count" for table in tables):
        workload = Workload(domain, sql_products(tables, declared, domain, blocks))
        return workload, whole_table(workload)
    statistics = tuple(sql_statistics(tables, declared, domain, blocks, bundle.job.file.units))
    workload = Workload(domain, [part for each in statistics for part in each.products])
    products = range(len(workload.products))
    return workload, Table("ask", "ask", products, statistics=statistics)


def parts_question(
    bundle: PartsBundle, sql: str | Sequence[str], dialect: str | None
) -> tuple[Workload, Table]:
    """Counts in SQL over the attributes inside the parts, and the table that they make."""
    domain = bundle.job.workload.domain
    tables = read_sql(domain, sql, dialect=dialect)
    merged, blocks = merge_attributes(domain, tables)
    if merged != domain or any(table.aggregate.kind != "count" for table in tables):
        raise ReleaseError(
            "of parts, counts are asked with conditions on single columns joined by AND; ask so, "
            "or read the tables of the bundle"
        )
    workload = Workload(domain, sql_products(tables, domain, merged, blocks))
    return workload, whole_table(workload)


def whole_table(workload: Workload) -> Table:
    """All queries of a workload as one table."""
    return Table("ask", "ask", range(len(workload.products)))


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


def missing_words(form: Form, domain: Domain, workload: Workload) -> list[str]:
    """For parts of a question that are not determined, what is asked and what is missing."""
    if workload.domain != domain:
        return [f"This release does not tell {question_words(workload, merged=True)}"]
    words = []
    for i in range(len(workload.products)):
        factors = workload.factors(i)
        if form.covers(factors) or any(is_zero(factor) for factor in factors):
            continue
        question = f"This release does not tell {workload.question(i)}"
        words.append(f"{question}: {_missing(form, domain, workload, i)}")
    return words[:MOST_NAMED]


def _missing(form: Form, domain: Domain, workload: Workload, i: int) -> str:
    totals: Factors = tuple(total(n) for n in domain.shape)
    if not form.covers(totals):
        return "not even the number of all rows was measured"

    def is_known(axis: int, factor: Matrix) -> bool:
        return form.covers((*totals[:axis], factor, *totals[axis + 1 :]))

    axes = {domain.axis(name): name for name, _ in workload.products[i].items}
    unknown = []
    for axis, name in sorted(axes.items()):
        if not is_known(axis, workload.factors(i)[axis]):
            levels = domain.attributes[axis].levels
            known = [each.name for each in levels if is_known(axis, Partition(each.groups))]
            unknown.append(unknown_words(name, known))
    if unknown:
        return "; ".join(unknown)
    return f"{name_list(axes[axis] for axis in sorted(axes))} were measured, but not together"
