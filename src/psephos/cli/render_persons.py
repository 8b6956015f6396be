"""Tables that count persons, before and after they are measured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from psephos.cli.render import plain_budget
from psephos.cli.render_tables import rich_numbers

if TYPE_CHECKING:
    from psephos.release.bundle.bundle import Bundle
    from psephos.release.spec.job import Job

MOST_SHOWN_TABLES = 3


def plain_persons(job: Job) -> list[dict[str, Any]]:
    """What each table of persons costs, and the half-width of its numbers."""
    confidence = float(job.file.output.confidence)
    return [
        {
            "name": table.name,
            "numbers": table.domain.size,
            "spend": plain_budget(table.spend),
            "half_width": table.half_width(job.unit, confidence),
        }
        for table in job.persons
    ]


def persons_words(job: Job) -> str:
    """The same for people."""
    confidence = float(job.file.output.confidence)
    lines = [
        f"persons: {table.name!r}, {table.domain.size:,} number{'s' * (table.domain.size > 1)} "
        f"within ± {table.half_width(job.unit, confidence):,} at {confidence * 100:g} %, for "
        f"{table.spend} of its own"
        for table in job.persons
    ]
    return "\n".join(lines)


def rich_persons(bundle: Bundle) -> list[RenderableType]:
    """The first tables of persons of a release."""
    return [
        rich_numbers(
            f"{request.question.title} (persons)", bundle.persons_table(request.question.name)
        )
        for request in bundle.persons[:MOST_SHOWN_TABLES]
    ]
