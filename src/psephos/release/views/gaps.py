"""How far numbers of a release lie apart: its views, and the declared number of rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from psephos.report.cross_table import TOTAL
from psephos.values import Array

WIDE_GAP = 3.0
"""In half-widths of the noisy total's interval: of intervals that cover 95 %, at most one in some
thousand numbers of rows that are declared rightly is further off."""


class Distance(NamedTuple):
    """How far apart the published and the consistent view are, in rows and in standard errors."""

    largest: float
    root_mean_square: float
    in_standard_errors: float | None

    @classmethod
    def of(cls, gaps: Array, stderr: Array | None) -> Distance:
        """The distance of numbers that are so far apart, with their standard errors if known."""
        in_errors = None
        if stderr is not None:
            in_errors = float(np.abs(gaps / np.maximum(stderr, 1e-12)).max())
        return cls(float(np.abs(gaps).max()), float(np.sqrt((gaps**2).mean())), in_errors)


class TotalGap(NamedTuple):
    """A declared number of rows, the noisy one, and the half-width of its interval."""

    declared: int
    noisy: float
    half_width: float

    @property
    def is_wide(self) -> bool:
        """Is the declared number so far off that noise is no explanation?"""
        return abs(self.declared - self.noisy) > WIDE_GAP * self.half_width

    def __str__(self) -> str:
        return (
            f"{self.declared:,} rows are declared, and the noisy numbers say {self.noisy:,.0f} "
            f"± {self.half_width:,.0f}"
        )


@dataclass(frozen=True)
class Shift:
    """The mean shift of a table's numbers that tell these columns apart and sum over the others."""

    by: tuple[str, ...]
    numbers: int
    mean: float


def mean_shifts(gaps: Array, labels: Mapping[str, Sequence[str]]) -> list[Shift]:
    """The mean of some gaps for each set of columns that tells them apart from a total."""
    if not labels:
        return [Shift((), gaps.size, float(gaps.mean()))]
    names = np.array(list(labels))
    apart = np.array([[word != TOTAL for word in words] for words in labels.values()])
    packed = np.packbits(apart, axis=0)  # a byte for eight columns
    _, first, part = np.unique(packed, axis=1, return_index=True, return_inverse=True)
    order = np.argsort(part.reshape(-1), kind="stable")
    parts = np.split(gaps[order], np.cumsum(np.bincount(part.reshape(-1)))[:-1])
    return [
        Shift(tuple(names[apart[:, first[k]]].tolist()), parts[k].size, float(parts[k].mean()))
        for k in np.argsort(first)
    ]
