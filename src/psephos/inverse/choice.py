"""Which form blocks get, decided once, and what measuring and reconstructing them will cost.

The cost counts the exact answers, the noise at its samplers' rates, the inverse and the fit by the
form that the blocks get. Reading the table comes on top: how long that takes depends on its rows,
which are not public.

The rates below are those of one core of one machine, and predictions are within a factor of about
three there (`python -m benchmarks.predicted`): enough to tell seconds from hours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from psephos.errors import UnsupportedError
from psephos.inverse.axis import DENSE_AXIS
from psephos.inverse.block_diagonal import Components, DiagonalForm
from psephos.inverse.classes import Classes, block_classes, class_seconds, cubes_of_blocks
from psephos.inverse.dense import DENSE_CELLS, DenseForm
from psephos.inverse.form import VECTOR_LIMIT, Form, check_vector
from psephos.inverse.iterative import IterativeForm
from psephos.inverse.marginal_blocks import falls_into_subspaces
from psephos.inverse.merged_cells import MergedForm, Merging
from psephos.inverse.product import ProductForm, closed_inverse
from psephos.inverse.subspaces import Subspaces
from psephos.matrix import (
    Compose,
    Dense,
    Diagonal,
    DirectSum,
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
    is_total,
)

SMALLEST_VARIANCE = 1e-200
"""What a smaller variance counts as."""

SECONDS_PER_NUMBER = 4e-9
"""Seconds to read a number, do little with it, and write it."""
SECONDS_PER_FLOP = 1e-10
"""Seconds of an addition or a multiplication inside of a matrix product."""
SECONDS_PER_EIGEN_FLOP = 4e-10
"""Seconds of the eigenvectors of n x n numbers, for each of n³."""
SECONDS_PER_DRAW = 4e-8
"""Seconds of a draw of exact noise."""
SECONDS_PER_BLOCK = 4e-4
"""Seconds that a block takes however small it is: checks, its counts, its fit."""
COSTED_ITERATIONS = 30
"""Of LSMR with its preconditioner, in a typical case."""

Method = Literal["product", "diagonal", "classes", "dense", "subspaces", "iterative"]


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
        return f"about {time_words(self.seconds)} and {memory_words(self.bytes)}"


def form_of(blocks: Sequence[Matrix], precisions: Sequence[float], shape: tuple[int, ...]) -> Form:
    """X⁺ of blocks measured with these precisions, in the form that fits them."""
    components = Components.of(blocks, precisions)
    if components is not None:
        return DiagonalForm.of(components, shape, form_of)
    merging = _merging_of_joined(blocks, shape)
    if merging is not None:
        return MergedForm(form_of(merging.blocks(blocks), precisions, merging.shape), merging)
    match _method_of_joined(blocks, shape):
        case "product":
            return ProductForm.of(blocks[0], precisions[0], shape)
        case "subspaces":
            return Subspaces.of(shape, blocks, precisions)
        case "classes":
            return Classes.of(blocks, precisions, shape)
        case "dense":
            return DenseForm.of(blocks, precisions)
        case _:
            return IterativeForm.of(blocks, precisions, shape)


def merging_of(blocks: Sequence[Matrix], shape: tuple[int, ...]) -> Merging | None:
    """Cells to be merged: those of common partitions, and equal ones where no form is closed."""
    return None if _falls_apart(blocks) else _merging_of_joined(blocks, shape)


def _merging_of_joined(blocks: Sequence[Matrix], shape: tuple[int, ...]) -> Merging | None:
    merging = Merging.of(blocks, shape)
    if merging is not None or _has_closed_form(blocks, shape):
        return merging
    return Merging.of_columns(blocks, shape)


def _falls_apart(blocks: Sequence[Matrix]) -> bool:
    """Do blocks look at disjoint groups of cells, each of which has a form of its own?"""
    return Components.of(blocks, [1.0] * len(blocks)) is not None


def _has_closed_form(blocks: Sequence[Matrix], shape: tuple[int, ...]) -> bool:
    """Is X⁺ known by structure, without anything written out?"""
    if len(blocks) > 1:
        return falls_into_subspaces(shape, blocks)
    factors = _kron(blocks[0], shape).factors
    return all(_is_inverted(f) for f in {id(f): f for f in factors}.values())


def method_of(blocks: Sequence[Matrix], shape: tuple[int, ...]) -> Method:
    """The form that blocks get once cells that they treat alike are merged."""
    return "diagonal" if _falls_apart(blocks) else _method_of_joined(blocks, shape)


def _method_of_joined(blocks: Sequence[Matrix], shape: tuple[int, ...]) -> Method:
    """The form of blocks that look at all cells together."""
    cells = math.prod(shape)
    if len(blocks) == 1 and cells <= VECTOR_LIMIT:
        return "product" if all(map(_has_inverse, _kron(blocks[0], shape).factors)) else "iterative"
    if falls_into_subspaces(shape, blocks):
        return "subspaces"
    if len(blocks) == 1:
        return "product"  # errors are known at any size, by attribute; only the fit has a limit
    if block_classes(blocks, shape) is not None:
        return "classes"
    if cells > VECTOR_LIMIT:
        raise UnsupportedError(
            f"an estimate of {cells:,} cells is over the limit of {VECTOR_LIMIT:,}, and these "
            "blocks have no common classes, which need no such vector; ask about "
            "fewer attributes, or keep fewer columns first"
        )
    return "dense" if cells <= DENSE_CELLS else "iterative"


def _has_inverse(factor: Matrix) -> bool:
    """Is (AᵀA)⁺ on one attribute known, or small enough to be written out?"""
    return factor.shape[1] <= DENSE_AXIS or _is_inverted(factor)


def _is_inverted(factor: Matrix) -> bool:
    """Is (AᵀA)⁺ on one attribute known by structure?"""
    plain = isinstance(factor, Identity | Ones | PIdentity | Partition)
    return plain or closed_inverse(factor) is not None


def check_reconstructible(blocks: Sequence[Matrix], shape: tuple[int, ...]) -> None:
    """Refuse blocks whose estimate would be a vector, or a table, of too many cells."""
    merging = merging_of(blocks, shape)
    if merging is not None:
        blocks, shape = merging.blocks(blocks), merging.shape
    if method_of(blocks, shape) in ("subspaces", "classes"):
        check_vector(max(block.shape[0] for block in blocks))
    else:
        check_vector(math.prod(shape))


def precision(variance: float) -> float:
    """One over a variance, which at very large budgets is smaller than floats can tell from 0."""
    return 1 / max(variance, SMALLEST_VARIANCE)


def predict_cost(blocks: Sequence[Matrix], shape: tuple[int, ...]) -> Cost:
    """The cost of blocks of queries over a domain of that shape."""
    krons = [_kron(block, shape) for block in blocks]
    tables = {tuple(i for i, f in enumerate(k.factors) if not is_total(f)) for k in krons}
    # Merged attributes may be products themselves: then factors are not those of the attributes.
    unsplit = any(tuple(f.shape[1] for f in k.factors) != shape for k in krons)
    cells = (
        math.prod(shape) if unsplit else sum(math.prod(shape[i] for i in axes) for axes in tables)
    )
    answers = sum(block.shape[0] for block in blocks)
    seconds = sum(_product_seconds(_counted_factors(kron)) for kron in krons)
    seconds += len(blocks) * SECONDS_PER_BLOCK + answers * SECONDS_PER_DRAW
    method, inference_seconds, numbers = _inference(blocks, shape)
    # Counts are kept, and answers while noise is drawn for them; then answers and the inverse.
    largest = max(block.shape[0] for block in blocks)
    most = max(cells + answers + 3 * largest, cells + answers + numbers)
    return Cost(cells, answers, seconds + inference_seconds, 8 * most, method)


def _inference(blocks: Sequence[Matrix], shape: tuple[int, ...]) -> tuple[Method, float, int]:
    """How blocks are inverted, the seconds of it, and the numbers it holds at a time."""
    merging = merging_of(blocks, shape)
    if merging is not None:
        blocks, shape = merging.blocks(blocks), merging.shape
    krons = [_kron(block, shape) for block in blocks]
    method = method_of(blocks, shape)
    cells, answers = math.prod(shape), sum(block.shape[0] for block in blocks)
    fit = 1.5 * sum(_product_seconds(_counted_factors(kron)) for kron in krons)
    if method == "product":
        dense = [f.shape[1] for f in krons[0].factors if not _is_closed(f)]
        inverses = sum(2 * SECONDS_PER_EIGEN_FLOP * n**3 for n in dense)
        return (
            method,
            fit + inverses,
            cells + max(cells, answers) + 10 * sum(n * n for n in dense),
        )
    if method == "diagonal":
        return method, 2 * fit + SECONDS_PER_NUMBER * (cells + answers), 3 * cells + 2 * answers
    if method == "subspaces":
        tables = sum(k.shape[0] << sum(not is_total(f) for f in k.factors) for k in krons)
        return method, 2 * SECONDS_PER_NUMBER * tables, 2 * answers
    if method == "classes":
        classes = block_classes(blocks, shape)
        axes = () if classes is None else classes[0]
        lengths = [len(axis.vectors) for axis in axes if len(axis.blocks) > 1]
        seconds = class_seconds(blocks, shape)
        seconds += 3 * fit + 4 * SECONDS_PER_FLOP * answers * sum(lengths)
        seconds += SECONDS_PER_EIGEN_FLOP * cubes_of_blocks(axes)
        entries = math.prod(axis.entries for axis in axes)
        return method, seconds, 4 * answers + 3 * entries + 6 * max(shape) ** 2
    if method == "dense":
        return method, fit + 2 * SECONDS_PER_EIGEN_FLOP * cells**3, 8 * cells**2
    turns = sum(2 * n * SECONDS_PER_FLOP + 2 * SECONDS_PER_NUMBER for n in shape) * cells
    return method, 2 * COSTED_ITERATIONS * (fit + turns), 6 * cells + 4 * answers


def _kron(block: Matrix, shape: tuple[int, ...]) -> Kron:
    """A block as a product over the attributes, or as one factor over all cells."""
    fits = isinstance(block, Kron) and tuple(f.shape[1] for f in block.factors) == shape
    return block if isinstance(block, Kron) and fits else Kron((block,))


def _counted_factors(kron: Kron) -> Kron:
    """Without the attributes that are summed over while counting."""
    return Kron(tuple(f for f in kron.factors if not is_total(f)) or (Identity(1),))


def _product_seconds(a: Matrix) -> float:
    """The time of A x."""
    m, n = map(float, a.shape)
    if isinstance(a, Kron):  # the factors that shrink most come first
        seconds, size = 0.0, n
        for factor in sorted(a.factors, key=lambda f: f.shape[0] / f.shape[1]):
            rows, width = factor.shape
            seconds += _product_seconds(factor) * size / width
            size *= rows / width
        return seconds
    if isinstance(a, Identity):
        return 0.0
    if isinstance(a, PIdentity):
        return 2 * SECONDS_PER_FLOP * len(a.rows) * n + SECONDS_PER_NUMBER * (m + n)
    if isinstance(a, Dense):
        return 2 * SECONDS_PER_FLOP * m * n + SECONDS_PER_NUMBER * (m + n)
    if isinstance(a, Sparse):
        return float(SECONDS_PER_NUMBER * (a.entries.nnz + m))
    if isinstance(a, Stack | Compose | DirectSum):
        return sum(map(_product_seconds, a.parts))
    if isinstance(a, Scaled | Permuted):
        return _product_seconds(a.base) + SECONDS_PER_NUMBER * m
    return (
        SECONDS_PER_NUMBER * n
        if isinstance(a, Ones | Partition | Diagonal)
        else 4 * SECONDS_PER_NUMBER * (m + n)
    )


def _is_closed(factor: Matrix) -> bool:
    """Is (AᵀA)⁺ on one attribute known without eigenvectors?"""
    inner = factor.parts[0] if isinstance(factor, Compose) else factor
    closed = Identity | Ones | PIdentity | Partition | Diagonal | Stack | Haar | Scaled | DirectSum
    return isinstance(inner, closed)


def time_words(seconds: float) -> str:
    """A length of time in the unit that suits it, to one digit or two."""
    for unit, size in (("days", 86400.0), ("hours", 3600.0), ("min", 60.0)):
        if seconds >= 1.5 * size:
            return f"{_digit(seconds / size)} {unit}"
    return f"{_digit(seconds)} s" if seconds >= 0.01 else "0.01 s"


def memory_words(count: int) -> str:
    """A number of bytes in the unit that suits it."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if count >= 0.1 * size:
            return f"{_digit(count / size)} {unit}"
    return "0.1 MB"


def _digit(number: float) -> str:
    """One digit; two would promise more than is known."""
    return f"{float(f'{number:.1g}'):g}" if number < 10 else f"{float(f'{number:.2g}'):.0f}"
