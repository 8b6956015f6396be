"""Tables of sums, means, shares and quantiles on the page of a release."""

from __future__ import annotations

from psephos.release.pages.facts import ReleaseFacts
from psephos.release.spec.tables import Table
from psephos.release.views.statistics import bounds_words

UNKNOWN_ERRORS = "How far these numbers are off is not known, so no interval is printed."


def statistic_words(release: ReleaseFacts, table: Table) -> str:
    """What numbers and intervals of a table of statistics mean."""
    text = ""
    if not release.views.has_errors:
        text = UNKNOWN_ERRORS
    elif table.derived:
        text = (
            "Each interval holds all numbers that agree with the noisy counts and sums; where a "
            "group has too few rows to tell, it is the declared range."
        )
        whole = release.views.statistics[table.name].whole_range
        if whole is not None and whole.any():
            text += f" That is so for {int(whole.sum()):,} of {whole.size:,} numbers."
    return f"{text} {bounds_words(table)}".strip()
