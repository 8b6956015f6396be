"""Rows made up from the public schema alone, for rehearsals and simulations."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.random import Generator, default_rng

from psephos.domain.attribute import Attribute
from psephos.domain.domain import Domain
from psephos.domain.values import OTHER
from psephos.errors import ReleaseError
from psephos.release.preflight.room import check_rows
from psephos.release.spec.job import Job
from psephos.values import Array

SYNTHETIC_CELLS = 20_000_000
"""The most cells for which counts are drawn cell by cell, zeros honoured."""
SYNTHETIC_ROWS = 10**9
"""The most rows of a rehearsal."""


def synthetic_rows(job: Job, rows: int, seed: int) -> Any:
    """This many rows, spread unevenly over the declared values: as counts, or as a table."""
    for name, number in (("rows", rows), ("seed", seed)):
        whole = isinstance(number, int | np.integer) and not isinstance(number, bool)
        if not whole or number < 0:
            raise ReleaseError(f"{name} is a whole number from 0, got {number!r}")
    if rows > SYNTHETIC_ROWS:
        raise ReleaseError(f"rows is at most {SYNTHETIC_ROWS:,} in a rehearsal, got {rows:,}")
    generator = default_rng(seed)
    job = job.whole
    domain = job.workload.domain if job.tree is None else job.domain
    shares = [generator.dirichlet(np.ones(n)) for n in domain.shape]
    if domain.size > SYNTHETIC_CELLS or job.unit.cap is not None:
        return _table(job, rows, generator)
    share = shares[0]
    for part in shares[1:]:
        share = np.multiply.outer(share, part).ravel()
    if job.zeros is not None:
        share = np.where(job.zeros, 0, share)
    return generator.multinomial(rows, share / share.sum())


def _table(job: Job, rows: int, generator: Generator) -> pa.Table:
    from psephos.engines.columns import columns_of

    check_rows(rows, len(job.domain.names))
    columns: dict[str, Any] = {}
    for name, attribute in columns_of(job.domain):
        share = generator.dirichlet(np.ones(attribute.size))
        cells = generator.choice(attribute.size, size=rows, p=share)
        columns[name] = entries_of(attribute, cells)
    cap = job.unit.cap
    if cap is not None:
        columns[cap.column] = generator.integers(0, max(1, rows // 2), rows)
    return pa.table(columns)


def table_of_codes(domain: Domain, codes: Array) -> pa.Table:
    """A table whose entries fall into these cells, a column of codes for each attribute."""
    from psephos.engines.columns import columns_of

    pairs = zip(columns_of(domain), codes.T, strict=True)
    return pa.table({name: entries_of(attribute, cells) for (name, attribute), cells in pairs})


def entries_of(attribute: Attribute, cells: Array) -> list[Any]:
    """Entries that fall into these cells; a missing one falls into the cell OTHER."""
    if attribute.edges is None:
        values = (attribute.values[int(i)] for i in cells)
        return [None if value is OTHER else value for value in values]
    low, high = np.array(attribute.edges[:-1]), np.array(attribute.edges[1:])
    inside = np.where(np.isfinite(low), low, np.where(np.isfinite(high), high - 1, 0.0))
    entries: list[Any] = [float(x) if math.isfinite(x) else 0.0 for x in inside]
    entries += [None] * len(attribute.apart)  # they come last and have no edges
    return [entries[int(i)] for i in cells]
