"""The noise of several answers together, for intervals of what is computed from them.

Least squares is linear, so every answer's noise is a fixed combination of the measured numbers'
noises. Where these combinations are known, that of any sum of answers is too, and its quantiles
are computed as for a single answer; where noise is narrow, or combinations are too many to hold,
they are those of a simulation. Where even that is too much, standard errors alone bound them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.random import default_rng

from psephos.infer.intervals import (
    HELD_NUMBERS,
    MOST_LOOPED_DRAWS,
    SIMULATION_WORK,
    WIDE_STDERR,
    NoiseInAnswers,
    order_statistic,
)
from psephos.infer.quantiles import shape_bounds, sum_quantiles
from psephos.inverse.form import Form
from psephos.kernel.noise import DiscreteLaplace, Noise
from psephos.kernel.simulate import SeededDraws
from psephos.values import Array
from psephos.workload.workload import Workload

NOISE_DRAWS = 9999
"""Draws of noise where it is simulated."""
FEWEST_JOINT_DRAWS = 999
"""Fewer than these tell too little; standard errors bound the noise then."""
EXACT_QUANTILES = 20_000_000
"""Numbers that quantiles are computed from at most; beyond, the widest shape is taken."""
ROUGH_NUMBERS = 1 << 22
"""Numbers of a simulation that are held at a time."""
OUTWARD = 1 + 1e-11
"""Widths are rounded up a little."""


@dataclass(frozen=True, eq=False)
class JointNoise:
    """The noise in the answers of a workload; `columns` has a row for each, or is None.

    A column is the effect of one measured number or, where noise is `drawn`, one draw.
    """

    noises: tuple[Noise, ...]
    rows: tuple[int, ...]
    stderr: Array
    columns: Array | None = None
    drawn: bool = False

    @classmethod
    def of(
        cls,
        form: Form,
        noises: Sequence[Noise],
        rows: Sequence[int],
        workload: Workload,
        *,
        rough: bool = False,
    ) -> JointNoise:
        """The noise of a workload's answers, if blocks of `rows` numbers each are measured.

        A rough one is simulated from few draws, which is enough for a forecast.
        """
        answers = NoiseInAnswers(form, noises, rows, workload, SeededDraws(default_rng(0)))
        stderr = np.concatenate(answers.errors())
        measured, queries = sum(rows), workload.shape[0]
        work = form.work + measured + queries
        kinds = tuple(noises), tuple(rows), stderr
        most = min(NOISE_DRAWS, SIMULATION_WORK // work)
        if form.exact and not rough and measured <= most and measured * queries <= HELD_NUMBERS:
            return cls(*kinds, answers.effects())
        wanted = FEWEST_JOINT_DRAWS if rough else MOST_LOOPED_DRAWS
        draws = min(wanted, SIMULATION_WORK // work, HELD_NUMBERS // queries)
        if form.exact and draws >= FEWEST_JOINT_DRAWS:
            noise = [np.concatenate(batch) for batch in answers.batches(draws)]
            return cls(*kinds, np.concatenate(noise, axis=1), drawn=True)
        return cls(*kinds)

    @property
    def method(self) -> str:
        """How quantiles are known, in a word."""
        if self.columns is None:
            return "bounded by standard errors"
        return "simulated" if self.drawn else "computed"

    @cached_property
    def spreads(self) -> Array:
        """The standard deviation of what each column stands for."""
        if self.columns is None or self.drawn:
            count = 0 if self.columns is None else self.columns.shape[1]
            return np.full(count, 1 / math.sqrt(max(1, count)))
        return np.repeat([math.sqrt(noise.exact_variance) for noise in self.noises], self.rows)

    @cached_property
    def _draws(self) -> Array:
        """The noise of every measured number, drawn: a row for each."""
        draws = SeededDraws(default_rng(0))
        pairs = zip(self.noises, self.rows, strict=True)
        each = [draws.noise(e, m * NOISE_DRAWS).reshape(m, NOISE_DRAWS) for e, m in pairs]
        return np.concatenate(each).astype(float)

    def some(self, places: Array) -> Array:
        """The noise of some answers."""
        if self.columns is None:
            return self.stderr[places][..., None]
        return np.asarray(self.columns[places])

    def covariance(self, one: Array, other: Array) -> Array:
        """Between the noises of answers, row by row; of bounds, the largest it can be."""
        weights = 1.0 if self.columns is None else self.spreads**2
        return np.asarray((one * other * weights).sum(axis=-1))

    def bounds(self, confidence: float) -> tuple[float, float]:
        """The least and the largest half-width of wide noise, in standard errors."""
        return shape_bounds(self.noises, confidence)

    def half_widths(self, noise: Array, confidence: float) -> Array:
        """H with P(|noise| ≤ h) at least as asked, for every row of noise."""
        if self.drawn:
            sizes = np.abs(noise)
            return np.array([order_statistic(row, confidence) for row in sizes]) * OUTWARD
        error = np.sqrt(self.covariance(noise, noise))
        low, high = self.bounds(confidence)
        width = high * error
        if self.columns is None:
            return width * OUTWARD
        wide = error >= WIDE_STDERR * np.abs(noise).max(axis=1, initial=0)
        known = any(isinstance(e, DiscreteLaplace) for e in self.noises) and low < high
        if known and wide.any() and noise[wide].size <= EXACT_QUANTILES:
            width[wide] = sum_quantiles(noise[wide], self.noises, self.rows, confidence)
        if not wide.all():
            width[~wide] = self._simulated(noise[~wide], confidence)
        return width * OUTWARD

    def _simulated(self, noise: Array, confidence: float) -> Array:
        some = max(1, ROUGH_NUMBERS // NOISE_DRAWS)
        parts = np.array_split(noise, math.ceil(len(noise) / some))
        sizes = [np.abs(part @ self._draws) for part in parts]
        return np.array([order_statistic(row, confidence) for part in sizes for row in part])
