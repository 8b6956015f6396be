"""Measure and reconstruct: processor time and memory of answers, noise and least squares.

"answers" are the exact integer answers to the strategy, "noise" the exact discrete noise for them,
"invert" what depends on the strategy alone, "fit" the estimate from noisy answers (for marginals
all tables asked, too). Memory is in vectors of 8 bytes a cell: the peak of two stages beyond what
they were given, and of the whole beyond the counts and the measurement that is returned, noise left
out. Time is that of a second run: memory that a process touches for the first time costs the system
more than the arithmetic, up to half a second for a vector of 10⁷ cells. Aims, besides noise: a
product over 10⁷ cells in 1 s and 2 vectors (10⁸ in 15 s, by the argument `large`), a union of two
products over 10⁶ cells in 1 s, marginals up to 3-way over 10⁷ in 1.5 s. The authors' column is a
run of their public code, noise included.
"""

from __future__ import annotations

import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

import psephos as ps
from benchmarks.measure import table
from psephos.inverse.form import Form
from psephos.kernel.measurement import noise_for
from psephos.kernel.query import Block
from psephos.kernel.sensitivity import answers
from psephos.matrix import Kron, Matrix

BLOCK_ENTRIES = 1 << 22
"""Answers of all slabs that are turned at a time."""
BUDGET, UNIT = ps.epsilon(1), ps.add_remove_row()


@dataclass(frozen=True)
class Case:
    """A strategy, what is asked of the estimate, and what others need."""

    name: str
    strategy: ps.Strategy
    asked: ps.Workload | None
    seconds: float | None
    vectors: float | None
    authors: str


def product(*sizes: int) -> ps.Strategy:
    """p-Identity factors for prefixes of every attribute."""
    domain = ps.Domain.of({f"a{i}": n for i, n in enumerate(sizes)})
    return ps.select.opt_product(ps.prefix_product(domain), restarts=1)


def factor(n: int, queries: ps.QuerySet) -> Matrix:
    """The integer p-Identity strategy of one attribute."""
    made = ps.select.opt0(ps.Workload(ps.Domain.of(a=n), [ps.product(a=queries)]), restarts=1)
    matrix = made.query.blocks[0].matrix
    return matrix.factors[0] if isinstance(matrix, Kron) else matrix


def union(n: int, d: int) -> ps.Strategy:
    """One product for prefixes, one for ranges: d attributes of n values, no factor in common."""
    domain = ps.Domain.of({f"a{i}": n for i in range(d)})
    kinds = (factor(n, ps.prefix()), factor(n, ps.all_range()))
    blocks = tuple(Block(Kron((a,) * d), Fraction(w)) for w, a in enumerate(kinds, 1))
    return ps.Strategy(domain, "laplace", ps.Query(blocks), "two products")


def cases(large: bool) -> list[Callable[[], Case]]:
    tens = ps.Domain.of({f"a{i}": 10 for i in range(7)})
    asked = ps.marginals(tens, up_to=3)
    made = [
        lambda: Case("product, 100³", product(100, 100, 100), None, None, None, "0.12 s"),
        lambda: Case(
            "product, 100³ × 10", product(100, 100, 100, 10), None, 1.0, 2, "2.2 s, 0.35 GB"
        ),
        lambda: Case("two products, 100³", union(100, 3), None, 1.0, None, "19.9 s (LSMR)"),
        lambda: Case("two products, 1000²", union(1000, 2), None, 1.0, None, "19.9 s (LSMR)"),
        lambda: Case(
            "marginals up to 3-way, 10⁷", ps.select.opt_marginals(asked), asked, 1.5, None, "5.8 s"
        ),
    ]
    if large:
        made.append(
            lambda: Case(
                "product, 100⁴", product(100, 100, 100, 100), None, 15.0, 2, "23 s, 2.8 GB"
            )
        )
    return made


class Stages:
    """Processor time and peak memory of each stage, beyond what it began with."""

    def __init__(self, *, trace: bool) -> None:
        self.trace = trace
        self.seconds: dict[str, float] = {}
        self.peaks: dict[str, int] = {}
        self.whole = 0
        self.estimate: np.ndarray | None = None

    def run(self, name: str, call: Callable[[], Any]) -> Any:
        if self.trace:
            tracemalloc.reset_peak()
        held = tracemalloc.get_traced_memory()[0] if self.trace else 0
        begin = time.process_time()
        made = call()
        self.seconds[name] = time.process_time() - begin
        if self.trace and name != "noise":
            peak = tracemalloc.get_traced_memory()[1]
            self.peaks[name] = peak - held
            self.whole = max(self.whole, peak)
        return made


def staged(case: Case, counts: np.ndarray, *, trace: bool) -> Stages:
    """All stages once; a traced run is for memory, an untraced one for time."""
    made = Stages(trace=trace)
    blocks = [block.matrix for block in case.strategy.query.blocks]
    if trace:
        tracemalloc.start()
    # Answers are made block by block and noise is added to each at once, as the kernel does.
    values = made.run("answers", lambda: [answers(block, counts) for block in blocks])
    noises = noise_for(case.strategy.query, BUDGET, UNIT, 1)

    def noisy() -> None:
        for value, noise in zip(values, noises, strict=True):
            value += noise.draw(len(value))

    made.run("noise", noisy)
    form: Form = made.run("invert", lambda: case.strategy.form(BUDGET, UNIT))

    def fit() -> Any:
        fitted = form.fit(values)
        if case.asked is None:
            return fitted
        products = range(len(case.asked.products))
        return [fitted.answers(case.asked.factors(i)) for i in products]

    made.run("fit", fit)
    if trace:
        tracemalloc.stop()
    return made


def staged_in_place(strategy: ps.Strategy, counts: np.ndarray) -> Stages:
    """The stages of a product, answers and then the estimate in one piece of memory.

    The same integers, noise and least squares as `staged`, slab by slab of the first attribute and
    block by block of the others: beside the answers no second vector is held.
    """
    made = Stages(trace=False)
    matrix = strategy.query.blocks[0].matrix
    first, *rest = matrix.factors if isinstance(matrix, Kron) else (matrix,)
    others = Kron(tuple(rest))
    inverse, other_inverses = first.pinv(), Kron(tuple(factor.pinv() for factor in rest))
    (rows, cells), (columns, width) = first.shape, others.shape
    values = np.empty((rows, columns), dtype=np.int64)
    estimate = values.view(np.float64)
    slabs = counts.reshape(cells, width)
    step = max(1, BLOCK_ENTRIES // rows)
    blocks = [slice(start, start + step) for start in range(0, columns, step)]

    def exact() -> None:
        for i in range(cells):
            values[i] = answers(others, slabs[i])
        for block in blocks:
            values[:, block] = answers(first, values[:cells, block])

    def noisy() -> None:
        (noise,) = noise_for(strategy.query, BUDGET, UNIT, 1)
        for value in values:
            value += noise.draw(value.size)

    def fit() -> None:
        for block in blocks:
            estimate[:cells, block] = inverse.matmat(values[:, block].astype(float))
        for i in range(cells):
            estimate[i, :width] = other_inverses.matvec(estimate[i])

    made.run("answers", exact)
    made.run("noise", noisy)
    made.run("fit", fit)
    made.estimate = estimate[:cells, :width]
    return made


def row(case: Case) -> list[str]:
    cells, rows = case.strategy.query.shape[1], case.strategy.query.shape[0]
    counts = np.random.default_rng(0).integers(0, 10, cells)
    traced = staged(case, counts, trace=True)
    timed = staged(case, counts, trace=False)
    peak = traced.whole / (8 * cells) - rows / cells  # the answers are the measurement returned
    spent = timed.seconds
    besides = sum(spent.values()) - spent["noise"]
    missed = ["time"] if case.seconds is not None and besides > case.seconds else []
    if case.vectors is not None and peak > case.vectors:
        missed.append("memory")
    return [
        case.name,
        f"{cells:.1e}",
        f"{rows:.1e}",
        *(f"{spent[stage]:.2f} s" for stage in ("answers", "invert", "fit", "noise")),
        f"{besides:.2f} s",
        "-" if case.seconds is None else f"{case.seconds:g} s",
        *(f"{traced.peaks[stage] / (8 * cells):.2f}" for stage in ("answers", "fit")),
        f"{peak:.2f}",
        "-" if case.vectors is None else f"{case.vectors:g}",
        f"{8 * cells * peak / 1e9:.2f} GB",
        case.authors,
        ", ".join(missed),
    ]


def main(large: bool) -> None:
    print(__doc__)
    head = [
        "strategy", "cells", "rows", "answers", "invert", "fit", "noise", "besides noise", "aim",
        "answers, vectors", "fit, vectors", "whole, vectors", "aim", "whole", "authors", "misses",
    ]  # fmt: skip
    table(head, [row(case()) for case in cases(large)])


if __name__ == "__main__":
    main("large" in sys.argv[1:])
