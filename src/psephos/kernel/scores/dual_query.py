"""Queries that records undercount: one round of DualQuery (Gaboardi et al. 2014, Algorithm 1).

A game between queries and records. After records x¹ … xᵗ, query q with true count c_q has

    k_q = Σ_τ (n·q(xᵗ) - c_q),    weight exp(-λ k_q),

n a declared number of rows, λ the paper's η/n: what records undercount weighs more (its Equation 1
and its Algorithm 1 differ in sign; the other sign ends far from the data). The negation of q holds
where q does not, so that its count is n - c_q, its k is -k_q, and both are candidates. A round
draws s queries, independently and in proportion to their weights.

Privacy: one row more or less moves c_q by at most 1, so k_q by at most t, and weights by at most
exp(λt) up or down: a draw is an exponential mechanism of ε = 2λt per row moved, and ε²/8-zCDP, its
range being bounded (Cesar and Rogers 2021). Its s draws share the spend evenly. What is cut off
counts above n moves them no further. Nothing rests on n being true, and a wrong one costs accuracy.

Draws are exact. With integers W ≥ 2ᵇ·exp(-γ), γ = λ(k - min k), a candidate is proposed in
proportion to W and kept with probability 2ᵇ·exp(-γ)/W; no float takes part
(tests/kernel/test_dual_query.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from psephos.domain.bits import RecordTally
from psephos.domain.conjunctions import Conjunctions
from psephos.domain.domain import Domain
from psephos.errors import RefusedError, ShapeError
from psephos.kernel.budget import Mechanism
from psephos.kernel.scores.exponentials import (
    ABOVE_LN_2,
    UNIT_BITS,
    UpperExponentials,
    falls_below,
    rounded_rate,
)
from psephos.kernel.scores.mechanisms import Draws
from psephos.values import Array, largest

MOST_DRAWN_FROM = 1 << 25
MOST_DRAWS = 1 << 20
MOST_FEATURES = 1 << 31
LARGEST_SCORE = 1 << 52
"""Rows times rounds; sums of counts stay below."""
DRAW_BITS = 40
SUM_BITS = 62
"""The weights of all candidates add up to less than 2 to this power."""


@dataclass(frozen=True, eq=False)
class UndercountedQueries:
    """Draw conjunctions, or negations of them, that records so far hold too rarely.

    Args:
        queries: the conjunctions; number i + len(queries) stands for the negation of number i
        records: one row of cell codes for each round so far, at least one
        rows: how many rows the table has, as declared
        draws: how many queries to draw
    """

    queries: Conjunctions
    records: ArrayLike
    rows: int
    draws: int
    _tally: RecordTally | None = field(default=None, init=False)
    """In how many records queries hold; the kernel counts them as it admits a round."""
    mechanism: ClassVar[Mechanism] = "exponential"

    def admitted(self, domain: Domain, earlier: RecordTally | None = None) -> UndercountedQueries:
        """The same from the kernel's own parts; what is no round over this domain is refused.

        `earlier` is the tally of a round over this domain that was admitted before. Its queries,
        if these are the same entry by entry, need no second check, and its records are counted.
        """
        queries, rows, draws = self.queries, self.rows, self.draws
        if sum(domain.shape) >= MOST_FEATURES:
            raise RefusedError("the attributes have over 2^31 values in all; declare bins")
        if type(queries) is not Conjunctions:
            raise RefusedError(f"queries are Conjunctions, got {type(queries).__name__}")
        given = whole_copy(queries.attributes), whole_copy(queries.values)
        if earlier is not None and earlier.sizes == domain.shape and _same(earlier, given):
            conjunctions = earlier.conjunctions
        else:
            earlier, conjunctions = None, Conjunctions(*given)
            conjunctions.check(domain)
        if not 1 <= len(conjunctions) <= MOST_DRAWN_FROM:
            raise RefusedError(f"1 to {MOST_DRAWN_FROM:,} queries, got {len(conjunctions):,}")
        records, sizes = whole_copy(self.records), np.array(domain.shape)
        if records.ndim != 2 or records.shape[1] != sizes.size or not len(records):
            raise ShapeError(
                f"records are rows of {sizes.size:,} cell codes, one for each round so far, got an "
                f"array of shape {records.shape}; the first round is drawn without data"
            )
        if (records < 0).any() or (records >= sizes).any():
            raise ShapeError("a record has a code outside of its attribute's cells")
        limits = ("rows", rows, LARGEST_SCORE // len(records)), ("draws", draws, MOST_DRAWS)
        for name, number, most in limits:
            if type(number) is not int or not 1 <= number <= most:
                raise RefusedError(f"{name} is a whole number from 1 to {most:,}, got {number!r}")
        game = UndercountedQueries(conjunctions, records, rows, draws)
        tally = earlier or RecordTally.of(conjunctions, domain.shape)
        object.__setattr__(game, "_tally", tally.over(records))
        return game

    def check_drawn(self, numbers: Array) -> None:
        """Refuse what no draw of this game can be; records may be anybody's."""
        inside = numbers.shape == (self.draws,) and numbers.dtype == np.int64
        if not inside or (numbers < 0).any() or (numbers >= 2 * len(self.queries)).any():
            raise RefusedError(f"what is stored is not {self.draws:,} numbers of these queries")

    @property
    def parts(self) -> Sequence[Any]:
        """Records, and the two numbers; the queries have a name of their own."""
        return "undercounted queries", np.asarray(self.records), self.rows, self.draws

    def scores(self, counts: Array) -> Array:
        """How far the records have overcounted each query so far: k."""
        if self._tally is None:
            raise RefusedError("a round is scored as the kernel has admitted it")
        rounds = len(self._tally.records)
        return np.asarray(self.rows * self._tally.counts - rounds * np.minimum(counts, self.rows))

    def draw(self, counts: Array, epsilon: Fraction, draws: Draws) -> Array:
        """The numbers of the drawn queries; epsilon is for all draws, per row moved."""
        scores = self.scores(counts)
        rate = rounded_rate(epsilon / self.draws / (2 * len(np.asarray(self.records))))
        most = int(np.abs(scores).max())  # a query or its negation has it: the smallest gap is 0
        return _drawn(np.concatenate([most + scores, most - scores]), rate, self.draws, draws)


def _drawn(gaps: Array, rate: Fraction, number: int, draws: Draws) -> Array:
    """Independent draws of candidates i with probability proportional to exp(-rate·gaps[i]).

    Privacy: exact, see the module's text. Bounds are within 2⁻¹⁹ of the weights above 2⁻²⁰, and
    the largest weight is 1, so hardly a proposal is dropped; how long it takes depends on the
    gaps (tests/kernel/test_dual_query.py::test_draws_have_their_probabilities).
    """
    bits = min(DRAW_BITS, SUM_BITS - int(gaps.size).bit_length())
    weights = _weights(gaps, rate, bits)
    ends = np.cumsum(weights)
    drawn: list[int] = []
    while len(drawn) < number:
        place = draws.below(int(ends[-1]))
        candidate = int(np.searchsorted(ends, place, "right"))
        gamma = rate * int(gaps[candidate])
        if falls_below(gamma, bits, [(1, int(weights[candidate]))], draws):
            drawn.append(candidate)
    return np.array(drawn, dtype=np.int64)


def _weights(gaps: Array, rate: Fraction, bits: int) -> Array:
    """Whole numbers W ≥ 2ᵇ·exp(-rate·gap), b up to 40, the least of them 1.

    Beyond a gap of (b + 1) ln 2 / rate that is less than a half, and 1 is above it: nothing is
    worked out for such gaps, which late in a game are nearly all
    (test_weights_are_above_and_close).
    """
    weights = np.ones(gaps.size, dtype=np.int64)
    near = np.flatnonzero(gaps <= int((bits + 1) * ABOVE_LN_2 / rate))
    upper = UpperExponentials(rate).of(gaps[near])
    halvings = np.minimum(upper.halvings + (DRAW_BITS - bits), SUM_BITS)
    weights[near] = -((-(upper.mantissa << (DRAW_BITS - UNIT_BITS))) >> halvings)
    return weights


def _same(earlier: RecordTally, given: tuple[Array, Array]) -> bool:
    """Are these the attributes and values of the queries of an earlier round?"""
    known = earlier.conjunctions.attributes, earlier.conjunctions.values
    return all(map(np.array_equal, known, given))


def whole_copy(given: Any) -> Array:
    """A copy of whole numbers, and no subclass; each array is read once."""
    try:  # a view can show more than there is memory for
        copy = np.array([] if type(given) is np.ndarray and given.nbytes >= 1 << 33 else given)
    except (TypeError, ValueError, MemoryError):
        copy = np.array([])
    if copy.dtype.kind not in "iu" or largest(copy) >= 1 << 31:
        raise ShapeError(f"queries and records hold whole 32-bit numbers, got {copy.dtype}")
    return copy.astype(np.int32, copy=False)
