"""What a strategy costs to measure and to reconstruct: time and memory, from its shape alone.

Counted are the exact answers, the noise at its samplers' rates, the inverse and the fit by the form
of least squares that the blocks will get (`psephos.infer.least_squares.form_of`). Reading the table
comes on top: how long that takes depends on its rows, which are not public.

The rates below are those of one core of one machine, and predictions are within a factor of about
three there (`python -m benchmarks.predicted`): enough to tell seconds from hours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from psephos.infer.forms import PAIR_AXIS, WRITTEN
from psephos.infer.least_squares import PAIR_CELLS
from psephos.infer.merged import Merging
from psephos.infer.subspaces import is_commuting
from psephos.kernel.query import Query
from psephos.matrix import (
    Compose,
    Dense,
    Diagonal,
    Haar,
    Identity,
    Kron,
    Matrix,
    Ones,
    Partition,
    Permuted,
    PIdentity,
    Scaled,
    Sparse,
    Stack,
)

PASS = 4e-9
"""Seconds to read a number, do little with it, and write it."""
FLOP = 1e-10
"""Seconds of an addition or a multiplication inside of a matrix product."""
EIGEN = 4e-10
"""Seconds of the eigenvectors of n x n numbers, for each of n³."""
DRAW = {"laplace": 2.7e-7, "gaussian": 3.4e-7}
"""Seconds of a draw of exact noise."""
BLOCK = {"laplace": 1e-3, "gaussian": 3e-3}
"""Seconds that a block takes however small it is: checks, one call of a sampler, its fit."""
ITERATIONS = 30
"""Of LSMR with its preconditioner."""

Method = Literal["product", "pair", "written", "subspaces", "iterative"]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Cost:
    """Predicted time and memory, the numbers counted and answered, and how it is inverted.

    >>> Cost(10**6, 10**6, 2.14, 4 * 10**8, "product")
    about 2 s and 0.4 GB
    """

    cells: int
    """Counts that are made of the table: all cells, or those of the marginals that are asked."""
    answers: int
    seconds: float
    bytes: int
    method: Method

    def __repr__(self) -> str:
        return f"about {_time(self.seconds)} and {_memory(self.bytes)}"


def predicted(query: Query, noise: Literal["laplace", "gaussian"], shape: Shape) -> Cost:
    """The cost of a query over a domain of that shape."""
    blocks = [block.matrix for block in query.blocks]
    krons = [_kron(block, shape) for block in blocks]
    tables = {tuple(i for i, f in enumerate(k.factors) if not _is_total(f)) for k in krons}
    wholes = any(len(k.factors) < len(shape) for k in krons)
    sizes = [math.prod(shape[i] for i in axes) for axes in tables]
    cells = math.prod(shape) if wholes else sum(sizes)
    answers = query.shape[0]
    seconds = sum(_seconds(_kept(kron)) for kron in krons) + len(blocks) * BLOCK[noise]
    seconds += answers * DRAW[noise]
    method, more, held = _inference(blocks, shape)
    # Counts are kept, and answers while noise is drawn for them; then answers and the inverse.
    largest = max(block.shape[0] for block in blocks)
    most = max(cells + answers + 3 * largest, cells + answers + held)
    return Cost(cells, answers, seconds + more, 8 * most, method)


def _inference(blocks: Sequence[Matrix], shape: Shape) -> tuple[Method, float, int]:
    """How blocks are inverted, the seconds of it, and the numbers it holds at a time."""
    merging = Merging.of(blocks, shape)
    if merging is not None:
        made: dict[tuple[int, int], Matrix] = {}
        blocks, shape = [merging.block(block, made) for block in blocks], merging.shape
    krons = [_kron(block, shape) for block in blocks]
    method = _method(krons, shape)
    cells, answers = math.prod(shape), sum(block.shape[0] for block in blocks)
    through = 1.5 * sum(_seconds(_kept(kron)) for kron in krons)
    if method == "product":
        dense = [f.shape[1] for f in krons[0].factors if not _is_closed(f)]
        inverses = sum(2 * EIGEN * n**3 for n in dense)
        return (
            method,
            through + inverses,
            cells + max(cells, answers) + 10 * sum(n * n for n in dense),
        )
    if method == "subspaces":
        tables = sum(k.shape[0] << sum(not _is_total(f) for f in k.factors) for k in krons)
        return method, 2 * PASS * tables, 2 * answers
    if method == "pair":
        turns = sum(4 * n * FLOP + 2 * PASS for n in shape) * cells
        spent = through + turns + sum(2 * EIGEN * n**3 for n in shape)
        return method, spent, (len(blocks) + 3) * cells + 4 * max(shape) ** 2
    if method == "written":
        return method, through + 2 * EIGEN * cells**3, 8 * cells**2
    turns = sum(2 * n * FLOP + 2 * PASS for n in shape) * cells
    return method, 2 * ITERATIONS * (through + turns), 6 * cells + 4 * answers


def _method(krons: Sequence[Kron], shape: Shape) -> Method:
    """The form that `form_of` gives to blocks on merged cells."""
    if len(krons) == 1:
        return "product"
    if is_commuting(shape, krons):
        return "subspaces"
    cells = math.prod(shape)
    whole = all(len(k.factors) == len(shape) for k in krons)
    if whole and cells <= PAIR_CELLS and max(shape) <= PAIR_AXIS:
        axes = zip(*(k.factors for k in krons), strict=True)
        if all(len(set({id(f): f for f in factors}.values())) <= 2 for factors in axes):
            return "pair"
    return "written" if cells <= WRITTEN else "iterative"


def _kron(block: Matrix, shape: Shape) -> Kron:
    """A block as a product over the attributes, or as one factor over all cells."""
    fits = isinstance(block, Kron) and tuple(f.shape[1] for f in block.factors) == shape
    return block if isinstance(block, Kron) and fits else Kron((block,))


def _kept(kron: Kron) -> Kron:
    """Without the attributes that are summed over while counting."""
    return Kron(tuple(f for f in kron.factors if not _is_total(f)) or (Identity(1),))


def _is_total(factor: Matrix) -> bool:
    return isinstance(factor, Ones) and factor.m == 1


def _seconds(a: Matrix) -> float:
    """The time of A x."""
    m, n = map(float, a.shape)
    if isinstance(a, Kron):  # the factors that shrink most come first
        spent, size = 0.0, n
        for factor in sorted(a.factors, key=lambda f: f.shape[0] / f.shape[1]):
            rows, width = factor.shape
            spent += _seconds(factor) * size / width
            size *= rows / width
        return spent
    if isinstance(a, Identity):
        return 0.0
    if isinstance(a, PIdentity):
        return 2 * FLOP * len(a.rows) * n + PASS * (m + n)
    if isinstance(a, Dense):
        return 2 * FLOP * m * n + PASS * (m + n)
    if isinstance(a, Sparse):
        return float(PASS * (a.entries.nnz + m))
    if isinstance(a, Stack | Compose):
        return sum(map(_seconds, a.parts))
    if isinstance(a, Scaled | Permuted):
        return _seconds(a.base) + PASS * m
    return PASS * n if isinstance(a, Ones | Partition | Diagonal) else 4 * PASS * (m + n)


def _is_closed(factor: Matrix) -> bool:
    """Is (AᵀA)⁺ on one attribute known without eigenvectors?"""
    inner = factor.parts[0] if isinstance(factor, Compose) else factor
    closed = Identity | Ones | PIdentity | Partition | Diagonal | Stack | Haar | Scaled
    return isinstance(inner, closed)


def _time(seconds: float) -> str:
    for unit, size in (("days", 86400.0), ("hours", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * size:
            return f"{_digit(seconds / size)} {unit}"
    return f"{_digit(seconds)} s" if seconds >= 0.01 else "0.01 s"


def _memory(count: int) -> str:
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= 0.1 * size:
            return f"{_digit(count / size)} {unit}"
    return "0.1 MB"


def _digit(number: float) -> str:
    """One digit; two would promise more than is known."""
    return f"{float(f'{number:.1g}'):g}" if number < 10 else f"{float(f'{number:.2g}'):.0f}"
