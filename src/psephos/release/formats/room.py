"""Which tables have room in a workbook: by public sizes, so that a plan can say it beforehand."""

from __future__ import annotations

from psephos.release.request import Job

SHEET_ROWS, SHEET_COLUMNS = 1_048_576, 16_384
"""The size of a sheet."""
HEAD_ROWS = 10
"""Room for titles, headings and notes, for each part of a table."""
MOST_WORKBOOK_NUMBERS = 2_000_000
"""What a workbook has room for: more would take minutes to write, and gigabytes to open."""


def left_out_of_workbook(job: Job) -> dict[str, str]:
    """The tables that have no room in a workbook, and why."""
    reasons, numbers = {}, 0
    for table in job.tables:
        rows = sum(job.workload.query_counts[p] for p in table.products)
        if rows + HEAD_ROWS * len(table.products) > SHEET_ROWS:
            reasons[table.name] = f"{rows:,} numbers, and a sheet has {SHEET_ROWS:,} rows"
        elif numbers + rows > MOST_WORKBOOK_NUMBERS:
            reasons[table.name] = (
                f"{rows:,} numbers, and with the tables before it that would be over "
                f"{MOST_WORKBOOK_NUMBERS:,}"
            )
        else:
            numbers += rows
    return reasons


def workbook_numbers(job: Job) -> int:
    """How many numbers the workbook of a release has."""
    left_out = left_out_of_workbook(job)
    tables = (table for table in job.tables if table.name not in left_out)
    return sum(job.workload.query_counts[p] for table in tables for p in table.products)
