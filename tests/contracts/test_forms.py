"""One law suite for every form of X⁺: it agrees with the dense formula on every question.

A form joins by an example in EXAMPLES; the inverse of one axis joins by a generator in AXES.
"""

from typing import NamedTuple

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose

from psephos import matrix as mx
from psephos.inverse import choice, components
from psephos.inverse.axis import (
    DenseInverse,
    DiagonalInverse,
    DirectSumInverse,
    MergedInverse,
    WoodburyInverse,
)
from psephos.inverse.block_diagonal import DiagonalForm
from psephos.inverse.choice import form_of, method_of, predict_cost
from psephos.inverse.classes import Classes
from psephos.inverse.dense import DenseForm
from psephos.inverse.form import Form
from psephos.inverse.iterative import IterativeForm
from psephos.inverse.merged_cells import MergedForm
from psephos.inverse.nested import HaarInverse, NestedInverse, PinvInverse
from psephos.inverse.product import ProductForm, axis_inverse
from psephos.inverse.subspaces import Subspaces
from psephos.inverse.tree import TreeInverse
from tests.inverse.generators import (
    BLOCKS,
    SHAPE,
    attribute_factors,
    closed_pinv,
    nested_grids,
    nested_levels,
    queries_on,
    residual,
    tree_of_counts,
    trees_of_counts,
)

I3, I4, T3, T4 = mx.Identity(3), mx.Identity(4), mx.total(3), mx.total(4)
P = mx.PIdentity([1, 1, 2], [[1, 2, 1]])
Q = mx.PIdentity([3, 1, 2, 1], [[1, 2, 1, 0]])
HALVES = mx.Partition([0, 0, 1, 1])
TREE = tree_of_counts([np.eye(2), [[1, 0], [0, 1], [1, 2]]], [2, 1])
CUT_TREE = tree_of_counts([np.eye(3), np.eye(2)], [1, 3], cells=4)
ORDERED = mx.Stack((I4, mx.Partition([0, 0, 1, 1]), T4))


BASIS3 = mx.Dense(np.array([[2, -1, -1], [1, 1, -2], [0, 3, -3]]))
BASIS4 = mx.Dense(np.array([[3, -1, -1, -1], [0, 2, -1, -1], [0, 0, 5, -5]]))
OTHER4 = mx.Dense(np.array([[1, 1, -1, -1], [1, -1, 0, 0], [0, 0, 1, -1]]))
PAIRS = mx.Compose((mx.Prefix(2), HALVES))


def part_of_split(g, matrix):
    """A matrix on the cells of one of three groups, as the kernel gives the part of a split."""
    rows = sp.eye_array(12, dtype=np.int8, format="csr")[4 * g : 4 * g + 4]
    return mx.Compose((matrix, mx.Sparse(rows)))


class Example(NamedTuple):
    """Blocks over SHAPE, the form that they get and the method that its cost names."""

    form: type[Form]
    method: str
    blocks: list[mx.Matrix]
    axis: type[mx.Matrix] | None = None
    """The inverse of the second axis, where the form inverts axis by axis."""
    dense_cells: int = choice.DENSE_CELLS
    """The most cells for a dense inverse; small for blocks that then need iterations."""


def product(*factors):
    return [mx.Kron(factors)]


THREE = [mx.Kron((P, Q)), mx.Kron((T3, Q)), mx.Kron((P, T4))]
FOUR = [*THREE, mx.Kron((mx.Prefix(3), T4))]
UNEVEN = mx.Partition([0, 1, 1, 1])
LEVELS = [mx.Kron((P, UNEVEN)), mx.Kron((T3, I4)), mx.Kron((I3, T4)), mx.Kron((P, I4))]
EXAMPLES = {
    "cells": Example(ProductForm, "product", product(I3, I4), DiagonalInverse),
    "p-identities": Example(ProductForm, "product", product(P, Q), WoodburyInverse),
    "written axis": Example(ProductForm, "product", product(P, mx.AllRange(4)), DenseInverse),
    "prefix axis": Example(ProductForm, "product", product(P, mx.Prefix(4)), PinvInverse),
    "wavelet axis": Example(ProductForm, "product", product(I3, mx.Haar(4)), HaarInverse),
    "nested axis": Example(ProductForm, "product", product(P, ORDERED), NestedInverse),
    "tree axis": Example(ProductForm, "product", product(I3, TREE), TreeInverse),
    "cut tree axis": Example(ProductForm, "product", product(P, CUT_TREE), TreeInverse),
    "blocks on a diagonal": Example(
        DiagonalForm, "diagonal", [mx.DirectSum((P, mx.Prefix(4), mx.total(1), Q))]
    ),
    "blocks on a diagonal that leave something open": Example(
        DiagonalForm, "diagonal", [mx.DirectSum((P, mx.Prefix(4), mx.total(2), P))]
    ),
    "stripes": Example(DiagonalForm, "diagonal", [mx.by_group(np.arange(12) % 4, mx.Prefix(3))]),
    "unlike stripes": Example(
        DiagonalForm, "diagonal", [mx.by_group(np.arange(12) // 4, [Q, PAIRS, mx.Prefix(4)])]
    ),
    "parts of a split": Example(
        DiagonalForm, "diagonal", [part_of_split(g, Q) for g in (2, 0, 1, 2)]
    ),
    "an axis with blocks on a diagonal": Example(
        ProductForm, "product", product(P, mx.DirectSum((mx.total(1), P))), DirectSumInverse
    ),
    "one factor": Example(ProductForm, "product", [mx.Prefix(12)]),
    "merged cells": Example(MergedForm, "product", product(P, mx.Compose((mx.Prefix(2), HALVES)))),
    "merged axis of one factor": Example(
        ProductForm, "product", [mx.Partition(np.arange(12) // 2)], None
    ),
    "merged marginals": Example(
        MergedForm, "subspaces", [mx.Kron((I3, HALVES)), mx.Kron((T3, HALVES))]
    ),
    "shared factors": Example(Classes, "classes", THREE),
    "shared factors that leave something open": Example(Classes, "classes", THREE[1:]),
    "three factors of one axis": Example(Classes, "classes", FOUR),
    "two products": Example(
        Classes, "classes", [mx.Kron((P, Q)), mx.Kron((mx.Prefix(3), ORDERED))]
    ),
    "levels": Example(Classes, "classes", LEVELS),
    "levels that leave something open": Example(Classes, "classes", LEVELS[:3]),
    "no products": Example(
        DenseForm, "dense", [mx.Prefix(12), mx.Stack((mx.Prefix(12), mx.total(12)))]
    ),
    "marginals": Example(Subspaces, "subspaces", [mx.Kron((I3, T4)), mx.Kron((T3, I4))]),
    "residuals": Example(
        Subspaces, "subspaces", [mx.Kron((residual(3), residual(4))), mx.Kron((I3, T4))]
    ),
    "residual bases": Example(
        Subspaces,
        "subspaces",
        [mx.Kron((BASIS3, BASIS4)), mx.Kron((BASIS3, T4)), mx.Kron((T3, BASIS4)), mx.total(12)],
    ),
    "a basis beside cells, twice": Example(
        Subspaces,
        "subspaces",
        [mx.Kron((I3, BASIS4)), mx.Kron((residual(3), BASIS4)), mx.Kron((I3, T4))],
    ),
    "a basis and something else": Example(
        Classes, "classes", [mx.Kron((I3, BASIS4)), mx.Kron((I3, I4))]
    ),
    "two bases of one axis": Example(
        Classes, "classes", [mx.Kron((I3, BASIS4)), mx.Kron((T3, OTHER4)), mx.Kron((I3, T4))]
    ),
    "all cells and the total": Example(Subspaces, "subspaces", [mx.Identity(12), mx.total(12)]),
    "iterations": Example(IterativeForm, "iterative", [*FOUR, mx.Prefix(12)], dense_cells=1),
}
PRECISIONS = [0.5, 2.0, 1.0, 0.25, 4.0]
QUERIES = [
    (w, v)
    for w in (I3, mx.Prefix(3), T3, mx.Dense([[1, 1, 0]]))
    for v in (I4, mx.AllRange(4), T4, mx.Dense([[1, 1, 0, 0]]), HALVES)
]


@pytest.fixture(params=EXAMPLES)
def example(request, monkeypatch):
    chosen = EXAMPLES[request.param]
    monkeypatch.setattr(choice, "DENSE_CELLS", chosen.dense_cells)
    return chosen


@pytest.fixture
def form(example):
    return form_of(example.blocks, PRECISIONS[: len(example.blocks)], SHAPE)


class Reference:
    """Least squares by dense matrices."""

    def __init__(self, blocks, precisions):
        self.blocks = [block.dense() for block in blocks]
        self.precisions = precisions
        self.x = sum(c * b.T @ b for b, c in zip(self.blocks, precisions, strict=True))
        self.inverse = np.linalg.pinv(self.x, rcond=1e-10, hermitian=True)

    def covers(self, factors):
        w = mx.Kron(factors).dense()
        return np.allclose(w @ self.inverse @ self.x, w, atol=1e-7)

    def variances(self, factors):
        w = mx.Kron(factors).dense()
        return np.diag(w @ self.inverse @ w.T)

    def answers(self, factors, values):
        parts = zip(self.blocks, self.precisions, values, strict=True)
        return mx.Kron(factors).dense() @ self.inverse @ sum(c * b.T @ y for b, c, y in parts)


@pytest.fixture
def reference(example):
    return Reference(example.blocks, PRECISIONS[: len(example.blocks)])


def measured(blocks, *columns):
    """Noisy answers of every block."""
    rng = np.random.default_rng(3)
    return [rng.integers(-50, 50, (block.shape[0], *columns)) for block in blocks]


def check_against(form, reference, blocks, factors):
    """Every law that one product of queries can tell."""
    assert form.covers(factors) == reference.covers(factors)
    if not reference.covers(factors):
        return
    variances = reference.variances(factors)
    assert_allclose(form.variances(factors), variances, atol=1e-8)
    if form.exact:
        assert_allclose(form.trace(factors), variances.sum(), rtol=1e-8)
        assert_allclose(form.traces([factors])[0], form.trace(factors))
    values = measured(blocks)
    answers = form.fit(values).answers(factors)
    assert_allclose(answers, reference.answers(factors, values), atol=1e-6)


# ---- laws over all examples --------------------------------------------------------------------


def test_each_structure_has_its_form(example, form):
    assert type(form) is example.form
    if example.axis is not None:
        assert type(form.inverses[1]) is example.axis
    inner = form.inner if isinstance(form, MergedForm) else form
    blocks, shape = example.blocks, SHAPE
    if isinstance(form, MergedForm):
        blocks, shape = form.merging.blocks(blocks), form.merging.shape
    assert type(inner).__name__.removesuffix("Form").lower() == example.method
    assert method_of(blocks, shape) == example.method


def test_the_predicted_cost_names_the_method(example):
    cost = predict_cost(example.blocks, SHAPE)
    assert cost.method == example.method
    assert cost.answers == sum(block.shape[0] for block in example.blocks)
    assert cost.seconds > 0
    assert cost.bytes >= 8 * cost.answers


def test_errors_and_estimates_are_those_of_the_dense_formula(example, form, reference):
    known = [factors for factors in QUERIES if reference.covers(factors)]
    assert known, "an example has to determine some of the queries"
    for factors in QUERIES:
        check_against(form, reference, example.blocks, factors)
    if form.exact:
        assert_allclose(form.traces(known), [form.variances(f).sum() for f in known])


def test_variances_are_those_of_the_fit(example, form, reference):
    """Each measured number moves an answer by its effect: Var = Σ effect² / precision."""
    rows = [block.shape[0] for block in example.blocks]
    units = np.split(np.eye(sum(rows)), np.cumsum(rows)[:-1])
    variance = np.repeat(1 / np.array(PRECISIONS[: len(rows)]), rows)
    fitted = form.fit(units)
    for factors in filter(reference.covers, QUERIES):
        effects = fitted.answers(factors)
        assert_allclose(effects**2 @ variance, form.variances(factors), atol=1e-7)


def test_exact_answers_give_the_truth(example, form, reference):
    """Linear, and exact without noise: so unbiased."""
    x = np.arange(12.0) ** 2 - 20
    fitted = form.fit([block @ x for block in example.blocks])
    for factors in filter(reference.covers, QUERIES):
        assert_allclose(fitted.answers(factors), mx.Kron(factors) @ x, atol=1e-6)


@pytest.mark.parametrize("large_table", [components.LARGE_TABLE, 1])
def test_many_fits_at_once_are_those_one_by_one(example, form, reference, large_table, monkeypatch):
    monkeypatch.setattr(components, "LARGE_TABLE", large_table)
    values = measured(example.blocks, 4)
    together = form.fit(values)
    alone = [form.fit([v[:, k] for v in values]) for k in range(4)]
    for factors in filter(reference.covers, QUERIES):
        one_by_one = np.stack([fitted.answers(factors) for fitted in alone], axis=1)
        assert_allclose(together.answers(factors), one_by_one, atol=1e-7)


def test_work_is_counted(form):
    assert form.work > 0


# ---- generated blocks --------------------------------------------------------------------------


@given(st.lists(BLOCKS, min_size=1, max_size=3), st.sampled_from(QUERIES), st.data())
def test_the_form_that_is_chosen_is_least_squares(blocks, factors, data):
    numbers = st.sampled_from([0.25, 0.5, 1.0, 2.0])
    precisions = data.draw(st.lists(numbers, min_size=len(blocks), max_size=len(blocks)))
    form = form_of(blocks, precisions, SHAPE)
    check_against(form, Reference(blocks, precisions), blocks, factors)


@settings(max_examples=30)
@given(st.lists(BLOCKS, min_size=2, max_size=3), st.sampled_from(QUERIES))
def test_iterations_agree_with_the_closed_forms(blocks, factors):
    precisions = PRECISIONS[: len(blocks)]
    form = IterativeForm.of(blocks, precisions, SHAPE)
    check_against(form, Reference(blocks, precisions), blocks, factors)


def test_queries_whose_signed_sums_are_reached_may_not_be():
    """Two of six queries miss what is measured by opposite vectors, which equal signs cancel."""
    once = mx.Compose((mx.PIdentity(np.ones(2), np.zeros((1, 2))), mx.Partition([0, 1, 1])))
    mixed = mx.Compose((mx.PIdentity(np.ones(2), np.array([[3, 2]])), mx.Partition([0, 1, 1, 0])))
    blocks = [
        mx.Kron((mx.Ones(1, 3), mixed)),
        mx.Kron((once, mx.Identity(4))),
        mx.Kron((mx.Identity(3), mx.Ones(1, 4))),
    ]
    form = IterativeForm.of(blocks, PRECISIONS[:3], SHAPE)
    assert not form.covers((mx.Prefix(3), mx.Partition([0, 0, 1, 1])))


# ---- inverses of one axis ----------------------------------------------------------------------

AXES = {
    "factors of strategies": attribute_factors(4),
    "nested levels": nested_levels(),
    "nested grids": nested_grids(),
    "closed pseudo-inverses": closed_pinv(),
    "trees of counts": trees_of_counts(),
}


def axis_queries(a):
    """Queries of every kind on the factor's cells, and what the factor itself measures."""
    if isinstance(a, mx.Stack) and isinstance(a.parts[0], mx.Kron):
        widths = [factor.shape[1] for factor in a.parts[0].factors]
        if len(widths) == 2:
            pairs = zip(queries_on(widths[0]), reversed(list(queries_on(widths[1]))), strict=True)
            return [*map(mx.Kron, pairs), a]
    return [*queries_on(a.shape[1]), a]


@pytest.mark.parametrize("family", AXES)
@given(st.data())
def test_the_inverse_of_an_axis_is_the_dense_one(family, data):
    a = data.draw(AXES[family])
    inverse, gram = axis_inverse(a), a.gram().dense()
    dense = np.linalg.pinv(gram, hermitian=True)
    assert_allclose(inverse.dense(), dense, rtol=1e-8, atol=1e-10)
    for queries in axis_queries(a):
        w = queries.dense()
        covered = np.allclose(w @ dense @ gram, w)
        assert inverse.spans(queries) == covered
        if covered:
            covariance = w @ dense @ w.T
            assert inverse.trace_with(queries) == pytest.approx(np.trace(covariance), rel=1e-9)
            variances = inverse.variances(queries)
            assert_allclose(variances, np.diag(covariance), rtol=1e-8, atol=1e-10)
            assert_allclose(inverse.trace_with(queries), variances.sum())
    x = np.arange(2.0 * gram.shape[0] * 2).reshape(2, gram.shape[0], 2)
    assert_allclose(inverse._apply(x), np.einsum("ij,ljr->lir", dense, x), rtol=1e-8, atol=1e-8)


def test_a_factor_on_groups_of_cells_is_inverted_on_them():
    assert isinstance(axis_inverse(HALVES), MergedInverse)
