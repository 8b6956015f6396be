"""What changed between two editions of the data: differences of tables, with their noise.

Two bundles that were measured one after the other have independent noise, so that the noise of a
difference is known as exactly as that of each number. Differences come from the consistent views,
which are unbiased. A percent change is a ratio, and has the interval of one (psephos.infer
.statistics); it knows no end where the old number may be zero. The change of a mean, a share or a
quantile lies between the ends of two intervals that both hold as often as needed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from psephos.errors import ReleaseError
from psephos.infer.joint_noise import JointNoise
from psephos.infer.statistics import joint_noise, ratio_ends
from psephos.release.ask.integrity import opened_bundle
from psephos.release.bundle.bundle import Bundle
from psephos.release.spec.tables import Table
from psephos.release.views.labels import marked, preview, table_labels
from psephos.release.views.statistics import derived_values, plain_values, statistic_labels
from psephos.report.html import notebook_html
from psephos.values import Array


@dataclass(frozen=True, eq=False, repr=False)
class EditionChange:
    """The change of every table that two bundles share."""

    old: Bundle
    new: Bundle
    tables: Mapping[str, pa.Table]
    """By name: labels, old, new, change, its interval, percent."""
    left_out: Mapping[str, str]
    """Tables of one bundle without a match, and why."""
    confidence: float

    @property
    def simulation(self) -> bool:
        """Is one of them a rehearsal?"""
        return self.old.simulation or self.new.simulation

    @property
    def editions(self) -> tuple[str, str]:
        """What the two editions are called."""
        first, second = (bundle.manifest["edition"] for bundle in (self.old, self.new))
        return first or self.old.path.name, second or self.new.path.name

    def table(self, name: str) -> pa.Table:
        """The change of one table."""
        if name not in self.tables:
            why = self.left_out.get(name, f"have {', '.join(self.tables)}")
            raise ReleaseError(f"no change of table {name!r}: {why}")
        return self.tables[name]

    def __repr__(self) -> str:
        old, new = self.editions
        return f"EditionChange({old!r} to {new!r}: {len(self.tables)} tables)"

    def _repr_html_(self) -> str:
        return notebook_html(*(preview(name, table) for name, table in self.tables.items()))


def change(
    old: Bundle | str | os.PathLike[str], new: Bundle | str | os.PathLike[str]
) -> EditionChange:
    """The change of all tables of the same name and layout between two editions; free of charge.

    Args:
        old: the bundle of the earlier edition, or its directory
        new: that of the later one
    """
    first, second = bundles = [opened_bundle(each) for each in (old, new)]
    _check_independent(first, second)
    confidences = {float(bundle.job.file.output.confidence) for bundle in bundles}
    if len(confidences) > 1:
        raise ReleaseError(
            "the two releases have intervals at different confidences; compare releases of one"
        )
    (confidence,) = confidences
    later = {table.name: _Side(second, table) for table in second.job.tables}
    tables, left_out = {}, {}
    for side in (_Side(first, table) for table in first.job.tables):
        other = later.pop(side.table.name, None)
        if other is None:
            left_out[side.table.name] = "only the old release has it"
        elif side.labels != other.labels:
            left_out[side.table.name] = "it is laid out otherwise in the two releases"
        else:
            tables[side.table.name] = _changed(side, other, confidence)
    left_out |= dict.fromkeys(later, "only the new release has it")
    if not tables:
        why = "; ".join(f"{name!r}: {words}" for name, words in left_out.items())
        raise ReleaseError(f"the two releases share no table ({why})")
    return EditionChange(first, second, tables, left_out, confidence)


def _check_independent(old: Bundle, new: Bundle) -> None:
    """Refuse bundles of one state of the data, or with measurements in common."""
    datasets = [bundle.all_requests[-1].receipt["dataset_id"] for bundle in (old, new)]
    editions = [bundle.manifest["edition"] for bundle in (old, new)]
    if datasets[0] == datasets[1] and editions[0] == editions[1]:
        state = f"edition {editions[0]!r}" if editions[0] else "the same state"
        raise ReleaseError(
            f"both releases are of {state} of the same data, so nothing changed between them but "
            "noise; give releases of new data an `edition`"
        )
    keys = [{_charge_of(request.receipt) for request in each.all_requests} for each in (old, new)]
    if keys[0] & keys[1] and not (old.simulation or new.simulation):
        raise ReleaseError(
            "the second release builds on measurements of the first, so they share their noise; "
            "compare it with a release that it does not build on"
        )


def _charge_of(receipt: Mapping[str, Any]) -> tuple[str, str]:
    """Which charge of which ledger a receipt is for."""
    return receipt["dataset_id"], str((receipt.get("charge") or {}).get("number"))


@dataclass(frozen=True, eq=False)
class _Side:
    """A table in the release of one edition."""

    bundle: Bundle
    table: Table

    @property
    def labels(self) -> dict[str, list[str]]:
        """What its numbers are about."""
        questions = self.bundle.job.questions
        if self.table.statistics:
            return statistic_labels(self.table, questions.domain)
        return table_labels(questions, self.table)

    @cached_property
    def numbers(self) -> Array:
        """Its consistent numbers."""
        questions, answers = self.bundle.job.questions, self.bundle.views.consistent
        if self.table.statistics:
            return plain_values(self.table, questions, answers)
        return np.asarray(answers[self.table.rows(questions)], dtype=float)

    @cached_property
    def noise(self) -> JointNoise:
        """The noise in the linear answers that they follow from."""
        workload = self.table.workload(self.bundle.job.workload)
        return joint_noise(self.bundle.views.least_squares, workload)

    def ends(self, confidence: float) -> tuple[Array, Array]:
        """The ends of the intervals of numbers that are not linear."""
        answers, questions = self.bundle.views.consistent, self.bundle.job.questions
        values = derived_values(self.table, questions, answers, self.noise, confidence)
        if values.low is None or values.high is None:
            raise ReleaseError(f"table {self.table.name!r} has no intervals")
        return values.low, values.high


def _changed(old: _Side, new: _Side, confidence: float) -> pa.Table:
    """One table: old and new number, the difference, and percent where numbers are linear."""
    before, after = old.numbers, new.numbers
    columns: dict[str, Array] = {"old": before, "new": after, "change": after - before}
    if not (old.bundle.views.has_errors and new.bundle.views.has_errors):
        columns["percent"] = _percent(before, after)
    elif old.table.derived:
        # Both hold at once: their noise is independent.
        first, second = (side.ends(math.sqrt(confidence)) for side in (old, new))
        columns |= {"low": second[0] - first[1], "high": second[1] - first[0]}
    else:
        columns |= _linear_columns(old, new, confidence)
    return marked(old.labels, columns, old.bundle.simulation or new.bundle.simulation)


def _linear_columns(old: _Side, new: _Side, confidence: float) -> dict[str, Array]:
    """Standard error, interval and percent change of counts and sums."""
    before, after, noise = old.numbers, new.numbers, _side_by_side(old.noise, new.noise)
    places = np.arange(len(before))
    earlier, later = noise.some(places), noise.some(len(before) + places)
    stderr = np.hypot(old.noise.stderr, new.noise.stderr)
    if noise.columns is None:
        half = noise.bounds(confidence)[1] * stderr
    else:
        half = noise.half_widths(later - earlier, confidence)
    gap = after - before
    low, high = ratio_ends(after, before, later, earlier, noise, confidence)
    sums = (each.numbers for each in old.table.statistics if each.numbers is not None)
    floor = -np.inf if any(numbers.low < 0 for numbers in sums) else 0.0
    return {
        "stderr": stderr,
        "low": gap - half,
        "high": gap + half,
        "percent": _percent(before, after),
        "percent_low": 100 * (np.maximum(low, floor) - 1),
        "percent_high": 100 * (high - 1),
    }


def _percent(before: Array, after: Array) -> Array:
    """The percent change; none from nothing."""
    return np.where(before > 0, 100 * (after / np.where(before > 0, before, 1) - 1), np.nan)


def _side_by_side(one: JointNoise, other: JointNoise) -> JointNoise:
    """The noises of two releases, which have nothing in common."""
    noises, rows = (*one.noises, *other.noises), (*one.rows, *other.rows)
    stderr = np.concatenate([one.stderr, other.stderr])
    if one.columns is None or other.columns is None or one.drawn or other.drawn:
        return JointNoise(noises, rows, stderr)
    columns = np.zeros((len(stderr), one.columns.shape[1] + other.columns.shape[1]))
    columns[: len(one.stderr), : one.columns.shape[1]] = one.columns
    columns[len(one.stderr) :, one.columns.shape[1] :] = other.columns
    return JointNoise(noises, rows, stderr, columns)
