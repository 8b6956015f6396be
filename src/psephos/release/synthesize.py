"""Made-up rows from a bundle, free of charge: whoever has its numbers can deal out rows of them."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import NamedTuple

from psephos.errors import ReleaseError, checked_whole
from psephos.release.bundle.bundle import Bundle
from psephos.release.preflight.room import check_rows
from psephos.release.views.synthetic import public_generator
from psephos.synthesis.quality import SyntheticQuality
from psephos.synthesis.table import SyntheticTable

MOST_ROWS = 10**8


class MadeUpRows(NamedTuple):
    """Rows, and how far they are from the published numbers."""

    table: SyntheticTable
    quality: SyntheticQuality


def rows_of_bundle(bundle: Bundle | str | os.PathLike[str], rows: int | None = None) -> MadeUpRows:
    """Rows that answer like a bundle's published view; the same ones each time, free of charge.

    `ps.synthesize` makes rows of protected data and spends budget; these follow from what was
    published.

    Args:
        bundle: a release, or its folder
        rows: how many; as many as are published if left out
    """
    bundle = bundle if isinstance(bundle, Bundle) else Bundle.open(bundle)
    if "published" not in bundle.manifest["views"]:
        raise ReleaseError(
            "rows are made up from the published view, and this release has none; release it with "
            '"published" among output.views, which costs nothing more'
        )
    if rows is not None and checked_whole(rows, "rows", 1) > MOST_ROWS:
        raise ReleaseError(f"rows is at most {MOST_ROWS:,}, got {rows:,}")
    check_rows(rows or 0, len(bundle.job.domain.names))
    if bundle.manifest.get("synthetic") is not None and rows in (None, bundle.synthetic.rows):
        table = bundle.synthetic
        return MadeUpRows(table, bundle.views.published.quality_of(table))
    published = bundle.published
    table = published.rows(rows)
    return MadeUpRows(_of_declared_values(bundle, table), published.quality_of(table))


def _of_declared_values(bundle: Bundle, table: SyntheticTable) -> SyntheticTable:
    """Rows of asked cells, each with one of its cell's declared values, all as likely."""
    cells = bundle.job.cells
    if cells.is_whole:
        return table
    records = cells.drawn_values(table.records, public_generator(bundle.job))
    return replace(table, domain=cells.declared, records=records)
