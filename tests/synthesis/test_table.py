"""Synthetic tables: labels, counts, answers and gaps."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

import psephos as ps
from psephos.infer.estimate import CellEstimate
from psephos.synthesis.table import SyntheticTable

DOMAIN = ps.Domain.of(
    {
        "age": ps.Attribute.integers(18, 20),
        "sex": {"F": "Female", "M": "Male"},
        "income": ps.Attribute.bins([0, 10, 50]),
        "kind": ["a", None],
    }
)


def drawn(domain, rows, seed=0):
    generator = np.random.default_rng(seed)
    columns = [generator.integers(0, n, rows) for n in domain.shape]
    return SyntheticTable(domain, np.stack(columns, axis=1))


def test_labels_are_the_declared_ones_and_integers_stay_integers():
    table = SyntheticTable(DOMAIN, np.array([[0, 1, 1, 0], [2, 0, 0, 1]]))
    assert table.to_arrow().to_pydict() == {
        "age": [18, 20],
        "sex": ["Male", "Female"],
        "income": ["[10, 50)", "[0, 10)"],
        "kind": ["a", "(missing)"],
    }
    assert table.to_pandas()["age"].dtype.kind == "i"


def test_undeclared_values_have_their_cell():
    ages = ps.Attribute.integers(1, 3).with_unknown("other")
    words = ps.Attribute.categories(["x", "y"]).with_unknown("other")
    domain = ps.Domain.of({"age": ages, "word": words})
    table = SyntheticTable(domain, np.array([[3, 2], [0, 0]]))
    assert table.to_arrow().to_pydict() == {"age": [None, 1], "word": ["(other)", "x"]}


def test_merged_attributes_become_columns_again():
    domain = ps.Domain.of(a=2, b=3, c=2)
    merged = domain.merge(["a", "c"])
    plain = drawn(domain, 30)
    a, b, c = plain.records.T.astype(int)
    table = SyntheticTable(merged, np.stack([a * 2 + c, b], axis=1))
    assert table.to_arrow().select(["a", "b", "c"]).equals(plain.to_arrow())


@given(seed=st.integers(0, 99))
def test_answers_are_those_of_the_vector_of_counts(seed):
    domain = ps.Domain.of(a=3, b=4, c=2)
    table = drawn(domain, 50, seed)
    vector = table.counts(domain.names).ravel()
    both = [ps.product(a=ps.prefix(), c=ps.identity()), ps.product(b=ps.all_range())]
    for workload in (ps.marginals(domain, up_to=3), ps.Workload(domain, both)):
        assert_array_equal(table.answer(workload).values, workload.answer(vector))


def test_counts_need_no_vector():
    domain = ps.Domain.of({f"x{i}": 10 for i in range(40)})
    table = drawn(domain, 100)
    assert table.counts(["x7", "x3"]).sum() == 100
    assert table.answer(ps.marginals(domain, k=2)).values.sum() == 100 * 780
    with pytest.raises(ps.TooLargeError, match="ask about fewer attributes"):
        table.counts(domain.names[:9])


def test_gaps_compare_with_the_model_at_its_number_of_rows():
    domain = ps.Domain.of(a=2)
    model = CellEstimate(domain, np.array([30.0, 10.0]), "made up")
    table = SyntheticTable(domain, np.array([[0], [1]]))
    gaps = table.gaps(model, ps.marginals(domain, up_to=1))
    assert_allclose(gaps.sample, [40, 20, 20])
    assert gaps.largest == 10
    assert gaps.mean == pytest.approx(20 / 3)
    assert gaps.by_product == pytest.approx({"total": 0, "a": 0.5})


@pytest.mark.parametrize(
    ("records", "words"),
    [
        (np.zeros((2, 3), int), "a column for each of 4"),
        (np.zeros((2, 4)), "whole numbers"),
        (np.array([[0, 2, 0, 0]]), "'sex' must be cells from 0 to 1"),
        (np.array([[-1, 0, 0, 0]]), "'age' must be cells"),
    ],
)
def test_strange_records_are_refused(records, words):
    with pytest.raises(ps.PsephosError, match=words):
        SyntheticTable(DOMAIN, records)


def test_an_empty_table_is_a_table():
    table = SyntheticTable(DOMAIN, np.zeros((0, 4), int))
    assert table.rows == 0
    assert table.to_arrow().num_rows == 0
    assert table.counts(["sex"]).tolist() == [0, 0]


def test_tables_are_values():
    assert drawn(DOMAIN, 5) == drawn(DOMAIN, 5)
    assert drawn(DOMAIN, 5) != drawn(DOMAIN, 5, seed=1)
    with pytest.raises(ValueError, match="read-only"):
        drawn(DOMAIN, 5).records[0, 0] = 1
