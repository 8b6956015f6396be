"""Which tables have room in a workbook: by public sizes, so that a plan can say it beforehand."""

from __future__ import annotations

from psephos.release.spec.job import Job

SHEET_ROWS, SHEET_COLUMNS = 1_048_576, 16_384
"""The size of a sheet."""
HEAD_ROWS = 10
"""Room for titles, headings and notes, for each part of a table."""
MOST_WORKBOOK_NUMBERS = 2_000_000
"""What a workbook has room for: more would take minutes to write, and gigabytes to open."""


def left_out_of_workbook(job: Job) -> dict[str, str]:
    """The tables that have no room in a workbook, and why."""
    reasons, numbers = {}, 0
    for name, (rows, parts) in _sizes(job).items():
        if rows + HEAD_ROWS * parts > SHEET_ROWS:
            reasons[name] = f"{rows:,} numbers, and a sheet has {SHEET_ROWS:,} rows"
        elif numbers + rows > MOST_WORKBOOK_NUMBERS:
            reasons[name] = (
                f"{rows:,} numbers, and with the tables before it that would be over "
                f"{MOST_WORKBOOK_NUMBERS:,}"
            )
        else:
            numbers += rows
    return reasons


def workbook_numbers(job: Job) -> int:
    """How many numbers the workbook of a release has."""
    left_out = left_out_of_workbook(job)
    return sum(rows for name, (rows, _) in _sizes(job).items() if name not in left_out)


def _sizes(job: Job) -> dict[str, tuple[int, int]]:
    """The numbers and the parts of each table."""
    counts = job.workload.query_counts
    tables = {t.name: (sum(counts[p] for p in t.products), len(t.products)) for t in job.tables}
    return tables | {table.name: (table.domain.size, 1) for table in job.persons}
