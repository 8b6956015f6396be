"""A workload written as a matrix asks the rows of that matrix, and other arrays are redirected."""

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal

import psephos as ps
from psephos import matrix as mx

DOMAIN = ps.Domain.of(sex=["F", "M"], age=3)
CELLS = np.arange(6)
UNIT = ps.add_remove_row()
KRON = mx.Kron((mx.Identity(2), mx.Prefix(3)))


@given(rows=arrays(np.int64, (4, 6), elements=st.integers(-2, 2)))
def test_rows_are_asked_whatever_holds_them(rows):
    for matrix in (rows, rows.tolist(), sp.csr_array(rows), pd.DataFrame(rows), mx.Dense(rows)):
        W = ps.Workload.from_matrix(DOMAIN, matrix)
        assert_array_equal(W.answer(CELLS), rows @ CELLS)
        assert W.domain.size == DOMAIN.size


@pytest.mark.parametrize(
    "matrix",
    [
        KRON,
        mx.Stack((KRON, mx.Scaled(2.0, mx.Kron((mx.total(2), mx.Identity(3)))))),
        {"age": np.tri(3), "sex": np.eye(2)},
        {"age": mx.AllRange(3)},
        {"sex": sp.eye_array(2)},
    ],
    ids=["Kron", "Stack", "dict", "one attribute", "sparse"],
)
def test_what_is_structured_stays_over_the_attributes(matrix):
    W = ps.Workload.from_matrix(DOMAIN, matrix)
    assert W.domain == DOMAIN
    if isinstance(matrix, mx.Matrix):
        assert_allclose(W.matrix.dense(), matrix.dense())


def test_known_factors_have_labels_and_others_take_them():
    W = ps.Workload.from_matrix(DOMAIN, KRON)
    assert W.label(1) == ("sex × age", {"sex": "F", "age": "up to 1"})
    V = ps.Workload.from_matrix(DOMAIN, np.eye(6), labels=list("abcdef"))
    assert V.label(5) == ("sex*age", {"sex*age": "f"})
    X = ps.Workload.from_matrix(DOMAIN, sp.eye_array(6), labels=list("abcdef"))
    assert X.label(2) == ("sex*age", {"sex*age": "c"})


@pytest.mark.parametrize("select", [ps.select.hdmm, ps.select.identity])
@pytest.mark.parametrize("over_attributes", [True, False])
def test_one_is_answered_by_data_opened_over_the_attributes(select, over_attributes):
    """Merging all attributes in their order leaves the cells where they are."""
    rows = np.random.default_rng(0).integers(0, 2, (4, 6))
    W = ps.Workload.from_matrix(DOMAIN, rows)
    data = ps.simulate(CELLS, DOMAIN, unit=UNIT, budget=ps.epsilon("1"), seed=0)
    strategy = select(ps.marginals(DOMAIN, k=2) if over_attributes else W)
    y = data.vectorise().measure(strategy.query, spend=ps.epsilon("1"))
    estimate = ps.infer.least_squares(y)
    answers = estimate.answer(W)
    assert_allclose(answers.values, rows @ estimate.vector)
    A = np.vstack([b.matrix.dense() / np.sqrt(b.variance) for b in estimate.blocks])
    assert_allclose(answers.stderr**2, np.diag(rows @ np.linalg.pinv(A.T @ A) @ rows.T))
    closer = ps.infer.nonnegative(estimate)
    assert_allclose(closer.answer(W).values, rows @ closer.vector)


def test_cells_in_another_order_are_refused():
    domain = ps.Domain.of(a=2, b=3, c=2)
    data = ps.simulate(np.arange(12), domain, unit=UNIT, budget=ps.epsilon("1"), seed=0)
    query = ps.select.identity(ps.marginals(domain, k=3)).query
    estimate = ps.infer.least_squares(data.vectorise().measure(query, spend=ps.epsilon("1")))
    V = ps.marginals(domain, k=3)
    assert_allclose(estimate.answer(V.over(domain.merge(["b", "c"]))).values, estimate.vector)
    with pytest.raises(ps.WorkloadError, match=r"open the data over workload\.domain"):
        estimate.answer(V.over(domain.merge(["a", "c"])))


def test_one_is_measured_and_answered_over_its_domain():
    W = ps.Workload.from_matrix(DOMAIN, np.random.default_rng(0).integers(0, 2, (4, 6)))
    data = ps.simulate(CELLS, W.domain, unit=UNIT, budget=ps.epsilon("100"), seed=0)
    y = data.vectorise().measure(ps.select.hdmm(W, restarts=1).query, spend=ps.epsilon("100"))
    assert_allclose(ps.infer.least_squares(y).answer(W).values, W.answer(CELLS), atol=1)


@pytest.mark.parametrize(
    ("matrix", "words"),
    [
        (np.ones((2, 5)), "5 columns and the domain 6 cells; give a column for each cell"),
        (mx.Identity(5), "5 columns and the domain 6 cells"),
        ({"age": np.ones((1, 6))}, "attribute 'age': the matrix has 6 columns and the attribute 3"),
        (np.full((1, 6), np.nan), "needs finite entries"),
        ("all", "needs an array of numbers"),
        ([[1, 0], [1]], "rows of the matrix differ in length"),
        (np.ones((2, 2, 6)), "2-D array"),
    ],
)
def test_other_matrices_are_refused(matrix, words):
    with pytest.raises(ps.WorkloadError, match=words):
        ps.Workload.from_matrix(DOMAIN, matrix)


def test_labels_are_one_for_each_row():
    with pytest.raises(ps.WorkloadError, match="6 rows but 2 as labels"):
        ps.Workload.from_matrix(DOMAIN, np.eye(6), labels=["a", "b"])
    with pytest.raises(ps.WorkloadError, match="labels are for the rows of one matrix"):
        ps.Workload.from_matrix(DOMAIN, {"age": np.eye(3), "sex": np.eye(2)}, labels=["a"] * 6)
    with pytest.raises(ps.WorkloadError, match="the domain comes first"):
        ps.Workload.from_matrix(np.eye(6), DOMAIN)


# ---- arrays and other things where something else is wanted --------------------------------------

VECTOR = ps.simulate(CELLS, DOMAIN, unit=UNIT, budget=ps.epsilon("1"), seed=0).vectorise()
ASKED = ps.Workload(DOMAIN, [ps.product(age=ps.identity())])
SPEND = ps.epsilon("1/100")


@pytest.mark.parametrize(
    ("call", "remedy"),
    [
        (lambda: ps.Workload(DOMAIN, np.eye(6)), "Workload.from_matrix(domain, matrix)"),
        (lambda: ps.Workload(DOMAIN, [np.eye(6)]), "Workload.from_matrix(domain, matrix)"),
        (lambda: ps.Workload(DOMAIN, mx.Identity(6)), "Workload.from_matrix(domain, matrix)"),
        (lambda: ps.select.hdmm(np.eye(6)), "Workload.from_matrix(domain, matrix)"),
        (lambda: ps.select.hdmm(DOMAIN), "marginals(domain, k=2)"),
        (lambda: ps.select.hdmm([ps.product()]), "Workload(domain, [product("),
        (lambda: ps.product(age=np.eye(3)), "'age': ndarray of shape (3, 3) is not a query set"),
        (lambda: ps.product(age=np.eye(3)), "write ps.masks(array)"),
        (lambda: ps.product(age=[1, 0, 1]), "ps.masks([[0, 1, 1]])"),
        (lambda: ps.product(age=range(2)), "ps.ranges([(0, 17), (18, 64)])"),
        (lambda: ps.product(age="prefix"), "write ps.prefix()"),
        (lambda: ps.product(age="broad"), "ps.level('broad')"),
        (lambda: ps.product(age=ps.prefix), "with its parentheses"),
        (lambda: ps.product(age=ps.col("age") < 2), "ps.predicates(condition)"),
        (lambda: ps.product(age=5), "ps.identity()"),
        (lambda: VECTOR.measure(np.eye(6), spend=SPEND), "write ps.matrix.Dense(array)"),
        (lambda: VECTOR.transform(np.eye(6)), "write ps.matrix.Dense(array)"),
        (lambda: VECTOR.measure(ps.select.identity(ASKED), spend=SPEND), "write strategy.query"),
        (lambda: VECTOR.measure(ASKED, spend=SPEND), "ps.select.hdmm(workload).query"),
        (lambda: ps.Domain.of(pd.DataFrame({"age": [1]})), "never read from data"),
        (lambda: ps.select.load("a.strategy"), "load(path, workload.domain)"),
        (lambda: ps.select.identity(ASKED).rmse(ASKED, 0.5, UNIT), 'write ps.epsilon("1/2")'),
        (lambda: ps.Attribute.bins(["2020-01-01", "2021-01-01"]), "Attribute.dates("),
    ],
)
def test_what_was_meant_is_said(call, remedy):
    with pytest.raises(ps.PsephosError) as refusal:
        call()
    assert remedy in str(refusal.value)


def test_questions_in_words():
    domain = ps.Domain.of(sex=["F", "M"], age=100, region=4)
    W = ps.Workload.from_sql(
        domain,
        """SELECT region, COUNT(*) FROM t WHERE sex = 'F' AND age < 30 GROUP BY region;
        SELECT COUNT(*) FROM t""",
    )
    assert W.question(0) == "the count by region where sex = 'F' and age < 30"
    assert W.question(1) == "the count of all rows"
